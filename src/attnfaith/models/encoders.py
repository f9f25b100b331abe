"""Encoders: token embeddings to states, one per token, and to one state for a whole text (the query of a pair).

Shapes: B instances, T tokens (padding on the right only), E embedding, H hidden, V deleted positions. An encoder takes
embeddings (B,T,E) and a prefix mask (B,T), and gives states (B,T,H), zero on padding, and a last state (B,H). What it
gives for a text does not depend on how far the text is padded or with what it is batched. To add an encoder: one class
and one line in ENCODERS.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


STATES_AT_ONCE = 2**15  # states of shortened texts made together: 32 MiB for H = 256 in float32


class Encoder(GradientCheckpointingLayer):
    """What every encoder shares.

    `contextual` is False where a state depends on its own token only: deleting another token then leaves it as it is.
    """

    contextual = True

    @torch.no_grad()
    def without(self, embedded: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """States of each text after deleting, in turn, the tokens at positions start..stop-1.

        embedded (B,T,E), all texts of the full length T >= 2; start < stop. Returns (V, B, T-1, H) with V = stop - start.
        """
        states = None
        for rows, positions, block in self.blocks_without(embedded, start, stop):
            if states is None:
                shape = (stop - start, embedded.shape[0], embedded.shape[1] - 1, block.shape[-1])
                states = block.new_empty(shape)
            states[rows, :, positions] = block
        return states

    def blocks_without(self, embedded, start, stop) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """The same in parts: (deletions v, positions p of the shorter text, states (v, B, p, H)), each place once.

        This is the definition: the token is gone, later tokens move up, and everything is encoded again. An encoder that
        knows a shorter way gives smaller parts; a part is valid until the next one is asked for.
        """
        batch, length, size = embedded.shape
        for begin, end in pieces(start, stop, batch * length):
            kept = remaining_positions(length, begin, end, embedded.device)
            variants = embedded[:, kept].transpose(0, 1).reshape(-1, length - 1, size)
            mask = torch.ones(variants.shape[:2], dtype=torch.bool, device=embedded.device)
            states = self(variants, mask)[0].view(end - begin, batch, length - 1, -1)
            yield slice(begin - start, end - start), slice(0, length - 1), states


def pieces(start: int, stop: int, states: int) -> Iterator[tuple[int, int]]:
    """start..stop in pieces of at most STATES_AT_ONCE states, where one deletion makes `states` of them."""
    step = max(1, STATES_AT_ONCE // states)
    for begin in range(start, stop, step):
        yield begin, min(begin + step, stop)


def remaining_positions(length: int, start: int, stop: int, device=None) -> torch.Tensor:
    """(stop - start, length - 1): row v lists the positions that stay when position start + v is deleted."""
    positions = torch.arange(length - 1, device=device).expand(stop - start, -1)
    deleted = torch.arange(start, stop, device=device).unsqueeze(1)
    return positions + (positions >= deleted)


def reverse_by_length(mask: torch.Tensor) -> torch.Tensor:
    """Positions (B,T) that read each text from its own end, leaving padding where it is. Its own inverse."""
    lengths = mask.sum(1, keepdim=True)
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(positions < lengths, lengths - 1 - positions, positions)


def take(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """values (B,T,D) read at positions (B,S): (B,S,D)."""
    return values.gather(1, positions.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class BiLSTM(Encoder):
    """One bidirectional LSTM layer of H / 2 units a direction; last state: the end of each direction.

    Two one-directional LSTMs over the text and over the text reversed by its own length: the numbers of a packed
    bidirectional LSTM, without packing, which is several times slower on CPUs.
    """

    def __init__(self, config):
        super().__init__()
        self.forward_lstm = nn.LSTM(config.embedding_size, config.hidden_size // 2)
        self.backward_lstm = nn.LSTM(config.embedding_size, config.hidden_size // 2)

    def forward(self, embedded, mask):
        batch, length, size = embedded.shape
        # Tokens in the order in which the LSTMs take them, position by position, so that nothing is copied once more.
        tokens = embedded.transpose(0, 1).reshape(length * batch, size)
        rows = torch.arange(batch, device=embedded.device)
        reverse = (reverse_by_length(mask).t() * batch + rows).flatten()
        onward = self.forward_lstm(tokens.view(length, batch, size))[0]
        backward = self.backward_lstm(tokens.index_select(0, reverse).view(length, batch, size))[0]
        backward = backward.flatten(0, 1).index_select(0, reverse).view_as(onward)
        states = torch.cat([onward, backward], -1).transpose(0, 1) * mask.unsqueeze(-1)
        end = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
        last = torch.cat([take(states, end)[:, 0, : onward.shape[-1]], states[:, 0, onward.shape[-1] :]], -1)
        return states, last

    def blocks_without(self, embedded, start, stop):
        """As defined in the base class, with half of the work: what lies before a deleted token is not run again.

        Where a token stands after the deleted one its onward state is new and its backward state that of the whole text;
        where it stands before, the other way round. A part is one position for all deletions on one side of it.
        """
        length = embedded.shape[1]
        size = self.forward_lstm.hidden_size
        whole, _ = self(embedded, torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device))
        whole = whole.transpose(0, 1)
        buffer = embedded.new_empty(stop - start, embedded.shape[0], 2 * size)
        for rows, position, states in _lstm_without(self.forward_lstm, embedded, start, stop, range(length)):
            block = buffer[rows]
            block[..., :size], block[..., size:] = states, whole[position, :, size:]
            yield rows, slice(position - 1, position), block.unsqueeze(2)
        for rows, position, states in _lstm_without(self.backward_lstm, embedded, start, stop, range(length - 1, -1, -1)):
            block = buffer[rows]
            block[..., :size], block[..., size:] = whole[position, :, :size], states
            yield rows, slice(position, position + 1), block.unsqueeze(2)


def _lstm_without(lstm, embedded, start, stop, order: range) -> Iterator[tuple[slice, int, torch.Tensor]]:
    """(deletions v, position, states (v, B, D)) of one direction for all deletions that the reader has passed.

    order: the positions as this direction reads them. The whole text is read once; the deletion of a token branches off
    when the reader meets it, with the state before it, and from then on runs beside the whole text, so that one matrix
    product per position serves all of them. All texts and deletions advance together.
    """
    batch = embedded.shape[0]
    size, deletions, backward = lstm.hidden_size, stop - start, order.step < 0
    # tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is several times faster: scale the candidate gate (g of i, f, g, o).
    scale = torch.ones_like(lstm.bias_ih_l0)
    scale[2 * size : 3 * size] = 2
    recurrent = (lstm.weight_hh_l0 * scale.unsqueeze(1)).t()
    weight, bias = lstm.weight_ih_l0 * scale.unsqueeze(1), (lstm.bias_ih_l0 + lstm.bias_hh_l0) * scale
    inputs = nn.functional.linear(embedded, weight, bias).transpose(0, 1)
    # Row of the whole text at the end that the deletions join first, so that the rows under way are contiguous.
    whole, first = (deletions, 0) if backward else (0, 1)
    hidden = embedded.new_zeros(deletions + 1, batch, size)
    cell = torch.zeros_like(hidden)
    buffer = embedded.new_empty((deletions + 1) * batch, 4 * size)
    for position in order:
        if start <= position < stop:
            hidden[first + position - start], cell[first + position - start] = hidden[whole], cell[whole]
        before = min(max(position - start, 0), deletions)  # deletions left of here
        after = min(max(position - start + 1, 0), deletions)  # the first deletion right of here
        rows = slice(after, deletions + 1) if backward else slice(0, before + 1)
        state, memory = hidden[rows], cell[rows]
        gates = buffer[: state.shape[0] * batch]
        torch.mm(state.view(-1, size), recurrent, out=gates)
        gates = gates.view(-1, batch, 4 * size).add_(inputs[position]).sigmoid_()
        enter, keep, candidate, leave = gates.split(size, -1)
        memory.mul_(keep).addcmul_(enter, candidate.mul_(2).sub_(1))
        torch.mul(memory, 2, out=state).sigmoid_().mul_(2).sub_(1).mul_(leave)
        passed = slice(after, deletions) if backward else slice(0, before)
        if passed.start < passed.stop:
            yield passed, position, hidden[first + passed.start : first + passed.stop]


class CNN(Encoder):
    """Parallel convolutions of odd widths (1, 3, 5, 7), H / 4 filters each, ReLU; last state: the maximum over tokens."""

    def __init__(self, config):
        super().__init__()
        widths = config.kernel_sizes
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_size, config.hidden_size // len(widths), width, padding=width // 2)
            for width in widths
        )

    def forward(self, embedded, mask):
        inside = (embedded * mask.unsqueeze(-1)).transpose(1, 2)
        states = torch.cat([convolution(inside) for convolution in self.convolutions], 1).relu().transpose(1, 2)
        states = states * mask.unsqueeze(-1)
        return states, states.amax(1)

    def blocks_without(self, embedded, start, stop):
        """As defined in the base class; only states whose window holds the deleted place are convolved again.

        With a reach of r tokens to each side these are the r places left of it and the r that follow, and they depend on
        2 r tokens to each side.
        """
        batch, length, _ = embedded.shape
        whole, _ = self(embedded, torch.ones(embedded.shape[:2], dtype=torch.bool, device=embedded.device))
        reach = max(convolution.padding[0] for convolution in self.convolutions)
        for begin, end in pieces(start, stop, batch * length):
            states = whole[:, remaining_positions(length, begin, end, embedded.device)].transpose(0, 1)
            if reach:
                deleted = torch.arange(begin, end, device=embedded.device).unsqueeze(1)
                places = deleted + torch.arange(-2 * reach, 2 * reach, device=embedded.device)  # of the shorter text
                inside = (places >= 0) & (places < length - 1)
                tokens = (places + (places >= deleted)).clamp(0, length - 1)
                windows = embedded[:, tokens].transpose(0, 1).flatten(0, 1)
                again, _ = self(windows, inside.repeat_interleave(batch, 0))
                middle = slice(reach, 3 * reach)
                again = again[:, middle].view(end - begin, batch, 2 * reach, -1)
                rows, columns = inside[:, middle].nonzero(as_tuple=True)
                states[rows, :, places[:, middle][rows, columns]] = again[rows, :, columns]
            yield slice(begin - start, end - start), slice(0, length - 1), states


def mean_over_tokens(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B,T,H) to (B,H), padding left out; 0 for an empty text."""
    return (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


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
    """Scaled dot-product attention of every token to every token of its text, softmax."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.inputs = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states, mask):
        batch, length, size = states.shape
        parts = self.inputs(states).view(batch, length, 3, self.heads, size // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        scores = query @ key.transpose(-1, -2) / math.sqrt(size // self.heads)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse for a softmax
        scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).to(value.dtype)
        return self.output((weights @ value).transpose(1, 2).reshape(batch, length, size)), weights


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
    """(T,H): sines in the even places and cosines in the odd ones (Vaswani et al. 2017)."""
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10000.0) / size))
    angles = torch.arange(length, device=device).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).reshape(length, -1)[:, :size]


class Transformer(Encoder):
    """Meister et al.'s encoder: embeddings projected to H, sinusoidal positions, 2 layers of 1 head.

    Layer order (normalisation after addition), ReLU and positions are not stated there; they are those of Vaswani et al.
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


ENCODERS = {"bilstm": BiLSTM, "transformer": Transformer, "cnn": CNN, "average": Average, "embedding": Embedding}
