"""Rules of layer-wise relevance propagation, written so that relevance is value times gradient.

Shapes: B instances, T tokens, E embedding, H states, D units of one direction; leading and middle dimensions are free.

Every function gives the value of the model's own layer. Its backward pass carries g = R / value, so that R = value * g is
the relevance of whatever a gradient is asked of. Constants are multiplied by `Rules.unit`, ones whose gradient is the
relevance that ended in constants.

* dense layer, convolution, weighted sum: epsilon rule. R_i = sum_j x_i w_ij / (y_j + epsilon sign(y_j)) R_j, which is
  g_i = sum_j w_ij g_j |y_j| / (|y_j| + epsilon). A bias keeps its part b_j of y_j, epsilon absorbs its own.
* nonlinearity y = f(x), unit by unit: R passes, g_x = g_y y / x.
* gate times signal: all relevance goes to the signal. Attention, also self-attention: the weights are a gate.
* layer normalisation: its divisor is held fixed.

Source: Bach et al. 2015; Arras et al. 2017 and 2019 (gates, recurrent steps); Ali et al. 2022 (self-attention, norms).
"""

import torch
from torch import nn

from attnfaith.models import decoders, encoders
from attnfaith.models.encoders import sinusoidal_positions
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.projections import project
from attnfaith.subjects.protocol import TEXT


class Rules:
    """The rules for a batch: epsilon, and `unit` (B,), ones whose gradient is the relevance that ends in constants."""

    def __init__(self, epsilon: float, unit: torch.Tensor):
        self.epsilon, self.unit = epsilon, unit

    def of(self, rows: torch.Tensor) -> "Rules":
        """The same for instances (n,) of the batch, which may come more than once."""
        return Rules(self.epsilon, self.unit[rows])

    def plus(self, values, constant):
        """values (B,...,D) plus a constant that broadcasts to it and keeps its part of the relevance."""
        unit = self.unit.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
        return values + constant.detach().to(values.dtype) * unit

    def stable(self, values):
        """values (B,...,D), a sum whose terms share its relevance, less what epsilon absorbs."""
        if not self.epsilon:
            return values
        size = values.detach().abs()
        share = size / (size + self.epsilon)
        return self.plus(values * share, values * (1 - share))

    def dense(self, values, weight, *constants):
        """values (B,...,I) through a matrix (O,I); constants: what is added, a bias (O,) first."""
        values = nn.functional.linear(values, weight.detach())
        for constant in constants:
            values = self.plus(values, constant)
        return self.stable(values)

    def linear(self, values, layer):
        """values (B,...,I) through an `nn.Linear`."""
        return self.dense(values, layer.weight, layer.bias)

    def convolution(self, values, layer):
        """values (B,I,T) through an `nn.Conv1d` that keeps the length, with a bias."""
        values = nn.functional.conv1d(values, layer.weight.detach(), padding=layer.padding)
        return self.stable(self.plus(values, layer.bias.unsqueeze(1)))

    def pooled(self, values, attention):
        """Sums (B,D) of values (B,T,D) under attention (B,T), a gate."""
        attention = attention.detach().to(values.dtype)
        return self.stable((attention.unsqueeze(1) @ values).squeeze(1))

    def normalised(self, values, layer):
        """values (B,...,D) through an `nn.LayerNorm` whose divisor is held fixed."""
        scale = (values.detach().var(-1, unbiased=False, keepdim=True) + layer.eps).rsqrt()
        return self.plus((values - values.mean(-1, keepdim=True)) * scale * layer.weight.detach(), layer.bias)

    def lstm(self, tokens, layer):
        """States (T,B,D) of tokens (T,B,E), read by a one-directional LSTM: c = f c' + i tanh(y), y = W x + V h' + b,
        h = o tanh(c). Relevance goes through c and y, none to i, f and o.
        """
        read, recur = layer.weight_ih_l0.detach(), layer.weight_hh_l0.detach()
        bias = (layer.bias_ih_l0 + layer.bias_hh_l0).detach()
        own = slice(2 * layer.hidden_size, 3 * layer.hidden_size)  # the candidate, in torch's order i, f, g, o
        state = memory = tokens.new_zeros(tokens.shape[1], layer.hidden_size)
        states = []
        for token in tokens:
            gates = nn.functional.linear(token.detach(), read, bias) + state.detach() @ recur.t()
            enter, keep, _, leave = gates.sigmoid().chunk(4, -1)
            sums = self.stable(self.plus(token @ read[own].t() + state @ recur[own].t(), bias[own]))
            memory = self.stable(keep * memory + enter * tanh(sums))
            state = leave * tanh(memory)
            states.append(state)
        return torch.stack(states) if states else tokens.new_zeros(0, *state.shape)

    def gru(self, tokens, layer):
        """States (T,B,D) of tokens (T,B,E), read by a one-directional GRU: h = (1 - z) tanh(y) + z h', y = W x + b +
        r (V h' + d). Relevance goes through h' and y, none to z and r.
        """
        read, recur, bias, recur_bias = (part.detach().chunk(3) for part in layer._flat_weights)  # in torch's order r, z, n
        state, states = tokens.new_zeros(tokens.shape[1], layer.hidden_size), []
        for token in tokens:
            with torch.no_grad():
                reset, update = (
                    (token @ read[gate].t() + bias[gate] + state @ recur[gate].t() + recur_bias[gate]).sigmoid()
                    for gate in (0, 1)
                )
            sums = token @ read[2].t() + reset * (state @ recur[2].t())
            sums = self.stable(self.plus(sums, bias[2] + reset * recur_bias[2]))
            state = self.stable(update * state + (1 - update) * tanh(sums))
            states.append(state)
        return torch.stack(states) if states else tokens.new_zeros(0, *state.shape)

    def encoded(self, encoder, embedded, mask):
        """States (B,T,H) of embeddings (B,T,E) with a prefix mask (B,T), from an encoder of a kind in ENCODERS."""
        return ENCODERS[type(encoder)](self, encoder, embedded, mask)

    def decoded(self, decoder, context, query):
        """Logits (B,C) of contexts (B,H) and the state (B,H) of a second text or None, from a kind in DECODERS."""
        constants = [] if query is None else [decoder.query(query)]
        inner = self.dense(context, decoder.context.weight, decoder.context.bias, *constants)
        return inner if type(decoder) is decoders.Affine else self.linear(tanh(inner), decoder.output)


def tanh(values):
    """tanh(x), all relevance passing to x."""
    fixed = values.detach()
    return values * torch.where(fixed == 0, 1.0, fixed.tanh() / fixed)


def _recurrent(read):
    def encoded(rules, encoder, embedded, mask):
        readers = [lambda tokens, layer=layer: (read(rules, tokens, layer),) for layer in encoder.directions]
        return encoder.read(embedded, mask, *readers)[0]

    return encoded


def _cnn(rules, encoder, embedded, mask):
    inside = (embedded * mask.unsqueeze(-1)).transpose(1, 2)
    states = torch.cat([rules.convolution(inside, layer) for layer in encoder.convolutions], 1).relu()
    return states.transpose(1, 2) * mask.unsqueeze(-1)


def _transformer(rules, encoder, embedded, mask):
    projection = encoder.projection
    positions = sinusoidal_positions(embedded.shape[1], projection.out_features, embedded.device)
    states = rules.dense(embedded, projection.weight, projection.bias, positions)
    for layer in encoder.layers:
        attention = layer.attention
        query, key, value = attention.by_head(rules.linear(states, attention.inputs))
        weights = attention.weights(query.detach(), key.detach(), mask).to(value.dtype)
        mixed = states + rules.linear(attention.joined(weights @ value), attention.output)
        states = rules.normalised(mixed, layer.attention_norm)
        inner = rules.linear(states, layer.feed_forward[0]).relu()
        states = rules.normalised(states + rules.linear(inner, layer.feed_forward[2]), layer.feed_forward_norm)
    return states * mask.unsqueeze(-1)


ENCODERS = {
    encoders.BiLSTM: _recurrent(Rules.lstm),
    encoders.BiGRU: _recurrent(Rules.gru),
    encoders.OnwardLSTM: _recurrent(Rules.lstm),
    encoders.Transformer: _transformer,
    encoders.CNN: _cnn,
    encoders.Average: lambda rules, encoder, embedded, mask: (
        tanh(rules.linear(embedded, encoder.projection)) * mask.unsqueeze(-1)
    ),
    encoders.Embedding: lambda rules, encoder, embedded, mask: embedded * mask.unsqueeze(-1),
}
DECODERS = (decoders.Affine, decoders.Tanh)


def check_rules(subject) -> None:
    """Raise ValueError for a subject with an encoder or decoder that no rule is known for."""
    for part, kinds in ((subject.model.model.encoder, ENCODERS), (subject.model.decoder, DECODERS)):
        if type(part) not in kinds:
            raise ValueError(
                f"lrp has no rule for {type(part).__name__}; measures that do not need 'layers' can measure this model"
            )


def read_by_rules(subject, batch, embedded, rules) -> tuple[torch.Tensor, torch.Tensor]:
    """A subject's logits (B,C) and states (B,T,H), from embeddings (B,L,E), by rules."""
    model = subject.model
    text = {name: batch.get(name) for name in TEXT}
    with torch.no_grad():
        _, present, mask, query = model.model.texts(
            None, text["attention_mask"], text["token_type_ids"], inputs_embeds=embedded.detach()
        )
    inputs, reader = embedded, model.model.sentence_reader
    if reader is not None:
        present = mask = model.attendable(**text)
        inputs = embedded.new_zeros(*mask.shape, model.config.hidden_size)
        for group in sentence_groups(model.items(**text)):
            group_rules = rules.of(group.rows)
            states = group_rules.encoded(reader.word_encoder, group.take(embedded), group.mask)
            group_query = None if query is None else query[group.rows]
            weights = project(reader.scores(states.detach(), group_query), group.mask, model.config)
            inputs = inputs.index_put((group.rows, group.numbers), group_rules.pooled(states, weights))
    hidden = rules.encoded(model.model.encoder, inputs, present)
    attention = model.attend(hidden.detach(), mask, query)
    return rules.decoded(model.decoder, rules.pooled(hidden, attention), query), hidden
