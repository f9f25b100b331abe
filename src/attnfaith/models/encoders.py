"""Encoders: token embeddings to states, one per token, and to one state for a whole text (the query of a pair).

Shapes: B instances, T tokens (padding on the right only), E embedding, H hidden. An encoder maps embeddings (B,T,E) and a
prefix mask (B,T) to states (B,T,H), zero on padding, and a last state (B,H), which depend neither on the padding nor on the
rest of the batch. To add an encoder: one class and one line in ENCODERS.
"""

import math

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


NEARLY_ZERO = 1e-6  # added to the squared length of a mean of states, as in the code of Mohankumar et al. (2020)


class Encoder(GradientCheckpointingLayer):
    """The base of all encoders. contextual: whether a state depends on other tokens."""

    contextual = True


def reverse_by_length(mask: torch.Tensor) -> torch.Tensor:
    """Return positions (B,T) that reverse each text and leave padding in place; the map is its own inverse."""
    lengths = mask.sum(1, keepdim=True)
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(positions < lengths, lengths - 1 - positions, positions)


def take(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return values (B,T,D) at positions (B,S): (B,S,D)."""
    return values.gather(1, positions.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def last_of(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the state (B,H) of each text's last token."""
    return states[torch.arange(len(states), device=states.device), (mask.sum(1) - 1).clamp(min=0)]


def mean_over_tokens(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean (B,H) of states (B,T,H) without padding; 0 for an empty text."""
    return (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class OrthogonalLSTM(nn.RNNBase):
    """An LSTM layer of one direction, positions first, whose states have no part along the mean of earlier states.

    h_t <- h_t - (h_t . m) / (m . m + 1e-6) m with m the mean of the final h_1 .. h_(t-1); h_1 is unchanged. The next step
    reads the result; the memory is unchanged (Mohankumar et al. 2020; their code divides the sum by t, not t - 1, which only
    changes the weight of 1e-6).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__("LSTM", input_size, hidden_size)

    def forward(self, tokens):
        """Tokens (T,B,E) to states (T,B,H) and the last state."""
        entering = nn.functional.linear(tokens, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)  # of all steps at once
        state = memory = entering.new_zeros(tokens.shape[1], self.hidden_size)
        total = state.to(torch.promote_types(state.dtype, torch.float32), copy=True)  # a sum of many
        states = []
        for count, gates in enumerate(entering.unbind(0)):
            enter, keep, candidate, leave = torch.addmm(gates, state, self.weight_hh_l0.t()).chunk(4, -1)
            memory = torch.addcmul(keep.sigmoid() * memory, enter.sigmoid(), candidate.tanh())
            state = leave.sigmoid() * memory.tanh()
            # s . m / (m . m + e) m = s . t / (t . t + e n^2) t for the sum t of n states and m = t / n
            exact = state.to(total.dtype)
            length = (total * total).sum(-1, keepdim=True) + NEARLY_ZERO * (count * count + (count == 0))
            along = (exact * total).sum(-1, keepdim=True) / length
            state = torch.addcmul(exact, along, total, value=-1).to(state.dtype)
            total = total + state
            states.append(state)
        return torch.stack(states), (state,)


class Recurrent(Encoder):
    """Layers of one kind, named in `parts`, each of one direction with an equal part of the H units: one over the text and
    perhaps one over the reversed text. Last state: the end of each.

    The numbers are those of a packed layer; packing is several times slower on CPUs.
    """

    layer: type[nn.RNNBase]
    parts: tuple[str, ...]

    def __init__(self, config):
        super().__init__()
        for part in self.parts:
            self.add_module(part, self.layer(config.embedding_size, config.hidden_size // len(self.parts)))

    @property
    def directions(self) -> tuple[nn.RNNBase, ...]:
        """The layer that reads onward and, if any, the one that reads backward."""
        return tuple(getattr(self, part) for part in self.parts)

    def forward(self, embedded, mask):
        return self.read(embedded, mask, *self.directions)

    def read(self, embedded, mask, read_onward, read_backward=None):
        """Return states and last state; each reader maps tokens (T,B,E), in its order, to (states (T,B,D), ...)."""
        batch, length, size = embedded.shape
        tokens = embedded.transpose(0, 1).contiguous()
        onward = read_onward(tokens)[0]
        if read_backward is None:
            states = onward.transpose(0, 1) * mask.unsqueeze(-1)
            return states, last_of(states, mask)
        rows = torch.arange(batch, device=embedded.device)
        reverse = (reverse_by_length(mask).t() * batch + rows).flatten()  # positions first, as the layers read
        backward = read_backward(tokens.flatten(0, 1).index_select(0, reverse).view(length, batch, size))[0]
        states = torch.cat([onward.flatten(0, 1), backward.flatten(0, 1).index_select(0, reverse)], -1)
        states = states.unflatten(0, (length, batch)).transpose(0, 1) * mask.unsqueeze(-1)
        half = onward.shape[-1]
        return states, torch.cat([last_of(states, mask)[:, :half], states[:, 0, half:]], -1)


class OnwardLSTM(Recurrent):
    """The plain model of Mohankumar et al. 2020."""

    layer, parts = nn.LSTM, ("forward_lstm",)


class OnwardOrthogonalLSTM(Recurrent):
    """States orthogonal to the mean of those before them (`OrthogonalLSTM`)."""

    layer, parts = OrthogonalLSTM, ("forward_lstm",)


class BiGRU(Recurrent):
    """GRU layers of H / 2 units each (Yang et al. 2016; Serrano & Smith 2019)."""

    layer, parts = nn.GRU, ("forward_gru", "backward_gru")


class BiLSTM(Recurrent):
    """LSTM layers of H / 2 units each."""

    layer, parts = nn.LSTM, ("forward_lstm", "backward_lstm")


class CNN(Encoder):
    """Parallel convolutions of odd widths (1, 3, 5, 7), H / 4 filters each, ReLU; last state: the maximum over tokens."""

    def __init__(self, config):
        super().__init__()
        filters = config.hidden_size // len(config.kernel_sizes)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_size, filters, width, padding=width // 2) for width in config.kernel_sizes
        )

    def forward(self, embedded, mask):
        inside = (embedded * mask.unsqueeze(-1)).transpose(1, 2)
        states = torch.cat([convolution(inside) for convolution in self.convolutions], 1).relu().transpose(1, 2)
        states = states * mask.unsqueeze(-1)
        return states, states.amax(1)


class Average(Encoder):
    """tanh(W x + b) on each token, no context: Jain & Wallace's "average" model; last state: the mean over tokens."""

    contextual = False

    def __init__(self, config):
        super().__init__()
        self.projection = nn.Linear(config.embedding_size, config.hidden_size)

    def forward(self, embedded, mask):
        states = self.projection(embedded).tanh() * mask.unsqueeze(-1)
        return states, mean_over_tokens(states, mask)


class Embedding(Encoder):
    """The embeddings themselves; last state: the mean over tokens."""

    contextual = False

    def __init__(self, config):
        super().__init__()

    def forward(self, embedded, mask):
        states = embedded * mask.unsqueeze(-1)
        return states, mean_over_tokens(states, mask)


class SelfAttention(nn.Module):
    """Scaled dot-product attention of each token to all tokens of its text, by softmax."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.inputs = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states, mask):
        query, key, value = self.by_head(self.inputs(states))
        weights = self.weights(query, key, mask).to(value.dtype)
        return self.output(self.joined(weights @ value)), weights

    def by_head(self, inputs):
        """Split (B,T,3H) into queries, keys and values (B,heads,T,H/heads)."""
        return inputs.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

    def weights(self, query, key, mask):
        """Return attention (B,heads,T,T) of each token to all tokens, in float32 or float64."""
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse for a softmax
        return scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).softmax(-1)

    @staticmethod
    def joined(heads):
        """(B,heads,T,H/heads) to (B,T,H)."""
        return heads.transpose(1, 2).flatten(2)


class TransformerLayer(GradientCheckpointingLayer):
    """Self-attention and a feed-forward part, each followed by addition and layer normalisation."""

    def __init__(self, config):
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.hidden_size, config.intermediate_size),
            nn.ReLU(),
            nn.Linear(config.intermediate_size, config.hidden_size),
        )
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, states, mask):
        states = self.attention_norm(states + self.attention(states, mask)[0])
        return self.feed_forward_norm(states + self.feed_forward(states))


def sinusoidal_positions(length: int, size: int, device=None) -> torch.Tensor:
    """Return (T,H): sines in even places and cosines in odd ones (Vaswani et al. 2017)."""
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10000.0) / size))
    angles = torch.arange(length, device=device).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(length, -1)[:, :size]


class Transformer(Encoder):
    """Meister et al.'s encoder: embeddings projected to H, sinusoidal positions, 2 layers of 1 head, as in Vaswani et al.

    Last state: the mean over tokens.
    """

    def __init__(self, config):
        super().__init__()
        self.projection = nn.Linear(config.embedding_size, config.hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_hidden_layers))

    def forward(self, embedded, mask):
        positions = sinusoidal_positions(embedded.shape[1], self.projection.out_features, embedded.device)
        states = self.projection(embedded) + positions.to(embedded.dtype)
        for layer in self.layers:
            states = layer(states, mask)
        states = states * mask.unsqueeze(-1)
        return states, mean_over_tokens(states, mask)


ENCODERS = {
    "bilstm": BiLSTM,
    "bigru": BiGRU,
    "lstm": OnwardLSTM,
    "orthogonal_lstm": OnwardOrthogonalLSTM,
    "transformer": Transformer,
    "cnn": CNN,
    "average": Average,
    "embedding": Embedding,
}
