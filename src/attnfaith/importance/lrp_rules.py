"""Rules of layer-wise relevance propagation, written so that relevance is value times gradient.

Shapes: B instances, T tokens, E embedding, H states, D units of one direction; leading and middle dimensions are free.

Every function here gives the value that the model's own layer gives. Its backward pass carries g = R / value instead of a
derivative, so that R = value * g is the relevance of whatever a gradient is asked of: no rule divides by a value, and one
backward pass serves all layers. Where an ordinary operation obeys its rule as it is (a product with something held fixed, a
sum, a choice of places), it is used as it is. What ends on the way belongs to no input and is entered in a ledger (B,), an
input of zeros whose gradient is the sum of relevance that ended in constants, so that nothing is lost unseen.

Rules:
 * dense layer, convolution, weighted sum: epsilon rule. R_i = sum_j x_i w_ij / (y_j + epsilon sign(y_j)) R_j, which is
   g_i = sum_j w_ij g_j |y_j| / (|y_j| + epsilon). A bias keeps its part b_j of y_j, epsilon absorbs its own.
 * nonlinearity y = f(x), unit by unit: R passes, g_x = g_y y / x.
 * gate times signal: all relevance goes to the signal, none to what the gate is computed from (gate held fixed).
 * attention, also self-attention: the weights are a gate. Layer normalisation: its divisor is held fixed.

Source: Bach et al. 2015 (epsilon); Arras et al. 2017 and 2019 (gates, recurrent steps); Ali et al. 2022 (self-attention,
layer normalisation).
"""

from typing import NamedTuple

import torch
from torch import nn

from attnfaith.models import decoders, encoders
from attnfaith.models.decoders import answer_bias, with_answers
from attnfaith.models.encoders import NEARLY_ZERO, sinusoidal_positions
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.projections import project
from attnfaith.subjects.pooled import text_of


class Rules:
    """The rules for a batch: epsilon, and the ledger (B,) that relevance is entered in which ends in a constant."""

    def __init__(self, epsilon: float, ledger: torch.Tensor):
        self.epsilon = epsilon
        self.ledger = ledger

    def of(self, rows: torch.Tensor) -> "Rules":
        """The same for instances (n,) of the batch, which may come more than once."""
        return Rules(self.epsilon, self.ledger[rows])

    def plus(self, values, constant):
        """values (B,...,D) plus a constant that broadcasts to it and keeps its part of the relevance."""
        return _Plus.apply(values, constant.detach().to(values.dtype), self.ledger)

    def stable(self, values, bias=None):
        """values (B,...,D), a sum whose terms share its relevance, less what epsilon absorbs.

        bias: a term of these sums that broadcasts to them and keeps its part.
        """
        if bias is None and not self.epsilon:
            return values
        return _Stable.apply(values, None if bias is None else bias.detach(), self.ledger, self.epsilon)

    def dense(self, values, weight, bias, *constants):
        """values (B,...,I) through a matrix (O,I) and a bias (O,); constants: what else is added."""
        values = nn.functional.linear(values, weight.detach(), bias.detach())
        for constant in constants:
            values = self.plus(values, constant)
        return self.stable(values, bias)

    def linear(self, values, layer):
        """values (B,...,I) through an `nn.Linear`."""
        return self.dense(values, layer.weight, layer.bias)

    def convolution(self, values, layer):
        """values (B,I,T) through an `nn.Conv1d` that keeps the length, with a bias."""
        values = nn.functional.conv1d(values, layer.weight.detach(), layer.bias.detach(), padding=layer.padding)
        return self.stable(values, layer.bias.unsqueeze(1))

    def pooled(self, values, attention):
        """Sums (B,D) of values (B,T,D) under attention (B,T), a gate."""
        attention = attention.detach().to(values.dtype)
        return self.stable((attention.unsqueeze(1) @ values).squeeze(1))

    def normalised(self, values, layer):
        """values (B,...,D) through an `nn.LayerNorm` whose divisor is held fixed."""
        return _Normalised.apply(values, layer, self.ledger)

    def lstm(self, tokens, layer):
        """States (T,B,D) of tokens (T,B,E), read by a one-directional `nn.LSTM`: c = f c' + i tanh(y), y = W x + V h' + b,
        h = o tanh(c). Relevance goes through c and y, none to i, f and o.
        """
        return _LSTM.apply(tokens, self.ledger, layer, self.epsilon)

    def orthogonal_lstm(self, tokens, layer):
        """States (T,B,D) of tokens (T,B,E), read by an `OrthogonalLSTM`: an LSTM with h = s - k m. k, how much of the mean m
        of earlier states the state s has, is a gate.
        """
        size = layer.hidden_size
        state = memory = total = tokens.new_zeros(tokens.shape[1], size)
        states = []
        read, recur = layer.weight_ih_l0.detach(), layer.weight_hh_l0.detach()
        bias = (layer.bias_ih_l0 + layer.bias_hh_l0).detach()
        own = slice(2 * size, 3 * size)  # the candidate, in torch's order i, f, g, o
        with torch.no_grad():
            entering = nn.functional.linear(tokens, read, bias)
        entered = tokens @ read[own].t() + bias[own]
        for count, (gates, sums) in enumerate(zip(entering, entered, strict=True)):
            enter, keep, _, leave = torch.addmm(gates, state.detach(), recur.t()).sigmoid().chunk(4, -1)
            sums = self.stable(sums + state @ recur[own].t(), bias[own])
            memory = self.stable(keep * memory + enter * tanh(sums))
            state = leave * tanh(memory)
            if count:
                mean, now = total / count, state.detach()
                share = (now * mean).sum(-1, keepdim=True) / (mean.square().sum(-1, keepdim=True) + NEARLY_ZERO)
                state = self.stable(state - share.detach() * mean)
            total = total + state
            states.append(state)
        return torch.stack(states) if states else tokens.new_zeros(0, *state.shape)

    def gru(self, tokens, layer):
        """States (T,B,D) of tokens (T,B,E), read by a one-directional GRU: h = (1 - z) tanh(y) + z h', y = W x + b +
        r (V h' + d). Relevance goes through h' and y, none to z and r.
        """
        state = tokens.new_zeros(tokens.shape[1], layer.hidden_size)
        read, recur, bias, recur_bias = (part.detach().chunk(3) for part in layer._flat_weights)  # in torch's order r, z, n
        states = []
        for token in tokens:
            with torch.no_grad():
                reset, update = (
                    (token @ read[gate].t() + bias[gate] + state @ recur[gate].t() + recur_bias[gate]).sigmoid()
                    for gate in (0, 1)
                )
                constant = bias[2] + reset * recur_bias[2]
            sums = self.stable(token @ read[2].t() + reset * (state @ recur[2].t()) + constant, constant)
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
    return values * _ratio(values.detach())


def _ratio(values):
    """tanh(x) / x, 1 at 0."""
    return torch.where(values == 0, 1.0, values.tanh() / values)


def _share(values, epsilon: float):
    """|y| / (|y| + epsilon): what the terms of a sum y keep of its relevance."""
    return values.abs() / (values.abs() + epsilon) if epsilon else torch.ones_like(values)


def _dots(slopes, values):
    """Relevance (B,) of values that broadcast to their slopes (B,...,D)."""
    if values.dim() == 1:  # the same at every place, where slopes add up
        slopes = slopes.reshape(len(slopes), -1, len(values)).sum(1)
    return (slopes * values).flatten(1).sum(1, dtype=torch.float64)


class _Plus(torch.autograd.Function):
    """values + constant; the constant's relevance, constant * g, is entered in the ledger."""

    @staticmethod
    def forward(ctx, values, constant, ledger):
        ctx.save_for_backward(constant)
        return values + constant

    @staticmethod
    def backward(ctx, slope):
        (constant,) = ctx.saved_tensors
        return slope, None, _dots(slope, constant)


class _Stable(torch.autograd.Function):
    """values unchanged; g is multiplied by |y| / (|y| + epsilon). What that takes off is entered in the ledger, and so is
    the relevance of the bias in y.
    """

    @staticmethod
    def forward(ctx, values, bias, ledger, epsilon):
        ctx.save_for_backward(values, bias)
        ctx.epsilon = epsilon
        return values.view_as(values)

    @staticmethod
    def backward(ctx, slope):
        values, bias = ctx.saved_tensors
        stable = slope * _share(values, ctx.epsilon)
        ended = _dots(slope - stable, values)
        return stable, None, ended if bias is None else ended + _dots(stable, bias), None


class _Normalised(torch.autograd.Function):
    """Layer normalisation, (x - mean) gain / divisor + bias, whose divisor is held fixed."""

    @staticmethod
    def forward(ctx, values, layer, ledger):
        gain, bias = layer.weight.detach(), layer.bias.detach()
        normalised, _, scale = torch.native_layer_norm(values, layer.normalized_shape, gain, bias, layer.eps)
        ctx.save_for_backward(scale, gain, bias)
        return normalised

    @staticmethod
    def backward(ctx, slope):
        scale, gain, bias = ctx.saved_tensors
        scaled = slope * gain * scale
        return scaled - scaled.mean(-1, keepdim=True), None, _dots(slope, bias)


class _LSTM(torch.autograd.Function):
    """The rules of an LSTM, step by step: at 200 tokens a third of the time that autograd takes over a loop."""

    @staticmethod
    def forward(ctx, tokens, ledger, layer, epsilon):
        states = layer(tokens)[0]
        before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
        gates = nn.functional.linear(tokens, layer.weight_ih_l0, layer.bias_ih_l0)
        gates = (gates + nn.functional.linear(before, layer.weight_hh_l0, layer.bias_hh_l0)).chunk(4, -1)
        (enter, keep, leave), candidate = (gates[part].sigmoid() for part in (0, 1, 3)), gates[2]
        memory, entering = torch.empty_like(states), enter * candidate.tanh()
        for place, step in enumerate(entering):
            memory[place] = step + keep[place] * memory[place - 1] if place else step
        sums = _share(memory, epsilon)
        # from h to c, from c to the c before it, from c to y
        ctx.save_for_backward(leave * _ratio(memory), keep * sums, enter * sums * _ratio(candidate), candidate, memory)
        ctx.layer, ctx.epsilon = layer, epsilon
        return states

    @staticmethod
    def backward(ctx, slope):
        into, keep, enter, candidate, memory = ctx.saved_tensors
        own = slice(2 * memory.shape[2], 3 * memory.shape[2])  # the candidate, in torch's order i, f, g, o
        read, recur = ctx.layer.weight_ih_l0.detach()[own], ctx.layer.weight_hh_l0.detach()[own]
        share = _share(candidate, ctx.epsilon)
        into_sum, memory_slopes, sum_slopes = enter * share, torch.empty_like(slope), torch.empty_like(slope)
        earlier, state = torch.zeros_like(slope[:1].sum(0)), slope[-1:].sum(0)  # of no token, too
        for place in range(len(slope) - 1, -1, -1):
            torch.addcmul(earlier, into[place], state, out=memory_slopes[place])
            torch.mul(into_sum[place], memory_slopes[place], out=sum_slopes[place])
            if place:
                earlier = keep[place] * memory_slopes[place]
                state = torch.addmm(slope[place - 1], sum_slopes[place], recur)
        absorbed = memory_slopes * (memory * (1 - _share(memory, ctx.epsilon)) + enter * candidate * (1 - share))
        constants = sum_slopes * (ctx.layer.bias_ih_l0 + ctx.layer.bias_hh_l0).detach()[own]
        ended = (absorbed + constants).transpose(0, 1).flatten(1).sum(1, dtype=torch.float64)
        return sum_slopes @ read, ended, None, None


def _recurrent(read):
    def encoded(rules, encoder, embedded, mask):
        readers = [lambda tokens, layer=layer: (read(rules, tokens, layer),) for layer in encoder.directions]
        return encoder.read(embedded, mask, *readers)[0]

    return encoded


def _cnn(rules, encoder, embedded, mask):
    inside = (embedded * mask.unsqueeze(-1)).transpose(1, 2)
    states = torch.cat([rules.convolution(inside, layer) for layer in encoder.convolutions], 1).relu()
    return states.transpose(1, 2) * mask.unsqueeze(-1)


def _average(rules, encoder, embedded, mask):
    return tanh(rules.linear(embedded, encoder.projection)) * mask.unsqueeze(-1)


def _embedding(rules, encoder, embedded, mask):
    return embedded * mask.unsqueeze(-1)


def _with_values(rules, states, layer):
    """States through a layer that makes queries, keys and values of them, the last third: only this has relevance."""
    size = states.shape[-1]
    weight, bias = layer.weight.detach(), layer.bias.detach()
    queries_and_keys = nn.functional.linear(states.detach(), weight[:-size], bias[:-size])
    return torch.cat([queries_and_keys, rules.dense(states, weight[-size:], bias[-size:])], -1)


def _transformer(rules, encoder, embedded, mask):
    projection = encoder.projection
    positions = sinusoidal_positions(embedded.shape[1], projection.out_features, embedded.device)
    states = rules.dense(embedded, projection.weight, projection.bias, positions)
    for layer in encoder.layers:
        attention = layer.attention
        query, key, value = attention.by_head(_with_values(rules, states, attention.inputs))
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
    encoders.OnwardOrthogonalLSTM: _recurrent(Rules.orthogonal_lstm),
    encoders.Transformer: _transformer,
    encoders.CNN: _cnn,
    encoders.Average: _average,
    encoders.Embedding: _embedding,
}


DECODERS = (decoders.Affine, decoders.Tanh)


def check_rules(classifier) -> None:
    """Raise ValueError for a classifier with an encoder or decoder that no rule is known for."""
    for part, kinds in ((classifier.model.encoder, ENCODERS), (classifier.decoder, DECODERS)):
        if type(part) not in kinds:
            raise ValueError(
                f"lrp has no rule for {type(part).__name__}; measures that do not need 'layers' can measure this model"
            )


class Read(NamedTuple):
    """A batch read by the rules: logits (B,C), states (B,T,H) with their mask (B,T), and word states by group."""

    logits: torch.Tensor
    hidden: torch.Tensor
    mask: torch.Tensor
    words: list


def read_by_rules(model, batch, embedded, rules) -> Read:
    """The stages of a classifier, from embeddings (B,L,E), by rules."""
    text = text_of(batch)
    with torch.no_grad():
        _, present, mask, query = model.model.texts(
            None, text["attention_mask"], text["token_type_ids"], inputs_embeds=embedded.detach()
        )
    inputs, words, reader = embedded, [], model.model.sentence_reader
    if reader is not None:
        items = model.items(**text)
        present = mask = model.attendable(**text)
        inputs = embedded.new_zeros(*mask.shape, model.config.hidden_size)
        for group in sentence_groups(items):
            group_rules = rules.of(group.rows)
            states = group_rules.encoded(reader.word_encoder, group.take(embedded), group.mask)
            group_query = None if query is None else query[group.rows]
            weights = project(reader.scores(states.detach(), group_query), group.mask, model.config)
            inputs = inputs.index_put((group.rows, group.numbers), group_rules.pooled(states, weights))
            words.append((group, states))
    hidden = rules.encoded(model.model.encoder, inputs, present)
    allowed = with_answers(query, batch.get("answer_mask"), model.num_labels)
    attention = model.attend(hidden.detach(), mask, query)
    logits = rules.decoded(model.decoder, rules.pooled(hidden, attention), query)
    return Read(logits + answer_bias(allowed, logits), hidden, mask, words)
