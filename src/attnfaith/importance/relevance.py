"""Measures that pass what is explained back, layer by layer, by rules: LRP, AttnLRP, DecompX, Chefer et al.

Shapes: B instances, T tokens, E embedding, H states, D units of one direction; leading and middle dimensions are free.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from attnfaith.importance.gradients import differentiable, gradients, inside, item_sums, value_times_slope
from attnfaith.importance.targets import ROWS_DOC, TARGET_DOC, TargetMeasure, score, signed_score
from attnfaith.measurement.options import Inputs, number
from attnfaith.measurement.registry import register
from attnfaith.models import decoders, encoders
from attnfaith.models.encoders import sinusoidal_positions
from attnfaith.models.hierarchy import sentence_groups
from attnfaith.models.projections import project
from attnfaith.record import Column
from attnfaith.subjects import per_token
from attnfaith.subjects.attention import map_products
from attnfaith.subjects.protocol import TEXT


VECTORS = (
    "x what the first layer reads of a token, position and type included, or with inputs='table' the token's embedding alone"
)
NUMBER = {"dtype": "float64", "signed": True, "undefined": "where a part or what is explained is"}


def _rest_columns(name: str) -> dict[str, Column]:
    """The columns of what no token has."""
    return {
        f"{name}_markers": Column(**NUMBER, doc="the same of all markers together"),
        f"{name}_rest": Column(**NUMBER, doc="what tokens and markers leave of f, what is explained: the part of biases"),
    }


@dataclass(frozen=True, kw_only=True)
class _GradientByRules(TargetMeasure):
    """Gradient times input under rules of the backward pass: the tokens' scores, all markers', and what these leave of f."""

    rules: ClassVar[str]  # of `attnfaith.subjects.backward_rules`

    inputs: Inputs = "layer"

    def check(self, subject, dataset) -> None:
        """Raise SubjectError where the rules do not suit the model."""
        subject.check_rules(self.inputs)
        super().check(subject, dataset)

    def __call__(self, subject, batch) -> dict[str, list]:
        shares = subject.relevance(batch, self.explained(subject, batch), self.rules, self.inputs)
        values, places = (part[:, 0] for part in shares)
        markers = places.masked_fill(subject.attendable(batch), 0).sum(1)
        rest = values - places.sum(1)
        return dict(zip(self.columns, (per_token(subject, batch, places), markers.tolist(), rest.tolist()), strict=True))


@register
class AttnLrp(_GradientByRules):
    """AttnLRP (Achtibat et al. 2024): relevance of tokens in a Transformer, as one gradient by rules. Asked for by name
    only.

    A product of two factors that both depend on the text, such as weights with values, queries with keys, or a gate with
    what it lets through, gives each half of the gradient. The divisor of a normalisation is held fixed, an activation y of x
    has the slope y / x (where x is 0, its derivative), a linear layer and softmax keep their gradient: relevance of biases,
    and what softmax does not conserve, is in attn_lrp_rest. Where `decompx` holds attention fixed, this follows what made
    the attention, too. inputs: see `decompx`.

    LRP is patented, and the package lxt, by authors of the method, grants no patent rights; its README says that it is free
    for personal and scientific use. Have other uses checked. No default, list or study of this package runs this measure.

    Source: Achtibat et al. 2024, section 3. No code of theirs is used here.
    """

    name, cost, needs = "attn_lrp", "gradient", frozenset({"embeddings", "backward rules"})
    rules = "halved"
    columns = {
        "importance_attn_lrp": signed_score(
            f"x . df/dx, {VECTORS}, by the rules of AttnLRP, through attention; {TARGET_DOC}"
        ),
        **_rest_columns("attn_lrp"),
    }


@register
class DecompX(_GradientByRules):
    """DecompX without biases (Modarressi et al. 2023): what each token adds to what is explained, through a frozen network.

    With attention, divisors and slopes held fixed a model is affine in its tokens, and so is a logit: what a token adds to
    it is exact. The paper carries every token's vector forward; here it is gradient times input of that frozen model, with
    the same numbers. Biases are not divided among tokens. Of a gated product, which the paper does not have, the gate is
    held fixed. Of outputs other than a logit decompx_rest also has what they are beyond logits times slopes.

    inputs: "layer", the vectors that the first layer reads, token, position and type together after their normalisation, as
    in the paper, of models whose layers are a chain; "table", those of the table of tokens alone, with the divisor of that
    normalisation held fixed.

    Source: Modarressi et al. 2023, section 3, without the decomposition of biases.
    """

    name, cost, needs = "decompx", "gradient", frozenset({"embeddings", "backward rules"})
    rules = "frozen"
    columns = {
        "importance_decompx": signed_score(
            f"x . df/dx, {VECTORS}, with the attention, the divisors of normalisations and the slopes y / x of activations "
            f"held as they are in the text (where x is 0, its derivative): what x adds to f through all layers; {TARGET_DOC}"
        ),
        **_rest_columns("decompx"),
    }


@register
class Chefer(TargetMeasure):
    """Relevance through attention times its gradient, layer by layer (Chefer et al. 2021, ICCV).

    R begins as the identity and R becomes R + A' R in each layer, A' the mean over heads of the positive parts of attention
    times its gradient. The identity says only that a row stands at its own token, which the authors leave out as well.
    Evidence against what is explained is cut off.

    Source: Chefer et al. 2021 (ICCV), section 3.2, self-attention.
    """

    name, cost, needs = "chefer", "gradient", frozenset({"attention maps", "stacked maps"})
    columns = {
        "importance_chefer": score(
            f"the mean of R - I over {ROWS_DOC}, R the product over layers of I + the mean over heads of max(0, A df/dA); "
            f"{TARGET_DOC}",
            undefined="where f or its slope is not finite",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        mask = subject.attendable(batch)
        scores = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        layers = range(len(subject.sites.layers))
        for rows, length, matter, by_layer in map_products(subject, batch, self.explained(subject, batch), layers):
            identity = whole = torch.eye(length, dtype=torch.float64, device=mask.device)
            for products in by_layer:
                whole = whole + products.clamp(min=0).mean(1) @ whole
            matter = matter.double()
            row_sums = (matter.unsqueeze(1) @ (whole - identity)).squeeze(1) / matter.sum(1, keepdim=True).clamp(min=1)
            scores[rows, :length] = row_sums
        return {"importance_chefer": per_token(subject, batch, scores)}


@register
class Lrp(TargetMeasure):
    """Layer-wise relevance propagation: what is explained, shared out layer by layer down to the embeddings.

    Relevance starts at the logits as value times slope of what is explained. Dense layers and convolutions divide it by the
    epsilon rule, LSTM and GRU steps and attention give all of it to the signal and none to gate or weight, self-attention
    weights and the divisor of layer normalisation are held fixed, nonlinearities pass it on: `Rules` has the formulas.
    So the query of attention has no relevance, and a token without attention has relevance only through others' states.
    Biases keep what is theirs (Arras et al.'s bias factor of 0). Of a probability, or log-odds of more than two classes,
    `lrp_unaccounted` also has what they are beyond logits times slopes; else it is rounding.

    epsilon: added to the size of each divisor, in units of activations. LRP is patented: see `attn_lrp`.

    Source: Bach et al. 2015; Arras et al. 2017 and 2019; Ali et al. 2022. No code of theirs is used here.
    """

    name, cost, needs = "lrp", "gradient", frozenset({"layers"})
    columns = {
        "importance_lrp": signed_score(
            "relevance of a token's embedding by the epsilon rule (option epsilon, 0.001 unless it says else), attention, "
            f"gates and divisors of normalisations held fixed; {TARGET_DOC}; biases, markers, a second text and positions "
            "keep theirs",
            undefined="where what is explained is",
            unit="what is explained",
        ),
        "importance_lrp_hidden": signed_score("the same of a token's encoder state", undefined="where what is explained is"),
        "lrp_residual": Column(**NUMBER, doc="f - the sum of importance_lrp: not given to any token"),
        "lrp_unaccounted": Column(
            **NUMBER, doc="the part of lrp_residual that is in no marker, second text, position, bias or stabiliser"
        ),
    }

    epsilon: number(ge=0) = 1e-3

    def check(self, subject, dataset) -> None:
        """Raise ValueError for an encoder or decoder without a rule."""
        for part, kinds in ((subject.model.model.encoder, ENCODERS), (subject.model.decoder, DECODERS)):
            if type(part) not in kinds:
                raise ValueError(
                    f"lrp has no rule for {type(part).__name__}; measures that do not need 'layers' can measure this model"
                )
        super().check(subject, dataset)

    def __call__(self, subject, batch) -> dict[str, list]:
        f = self.explained(subject, batch)
        if torch.finfo(subject.vocabulary().dtype).bits < 32:  # coarse sums are not those that relevance goes through
            subject = subject.with_dtype(torch.float32)
        with differentiable(subject):
            embedded = subject.embed(batch).detach().requires_grad_()
            unit = torch.ones(len(embedded), dtype=torch.float64, device=embedded.device, requires_grad=True)
            logits, states = read_by_rules(subject, batch, embedded, Rules(self.epsilon, unit))
            tops = logits.detach().requires_grad_()
            values = f(tops)
            (slopes,) = torch.autograd.grad(values.sum(), tops)
            embedded_slopes, constants, state_slopes = gradients((logits * slopes).sum(), [embedded, unit, states])
        places, values = value_times_slope(embedded, embedded_slopes), values.detach()
        tokens = item_sums(places.masked_fill(~inside(subject, batch), 0), subject.items(batch))
        return {
            "importance_lrp": per_token(subject, batch, tokens),
            "importance_lrp_hidden": per_token(subject, batch, value_times_slope(states, state_slopes)),
            "lrp_residual": (values - tokens.sum(1)).tolist(),
            # in no token, marker or constant: curvature of what is no logit, and rounding
            "lrp_unaccounted": (values - places.sum(1) - constants).tolist(),
        }


class Rules:
    """The rules of `lrp` for a batch: epsilon, and `unit` (B,), ones whose gradient is the relevance that ends in constants.

    Every function gives the value of the model's own layer. Its backward pass carries g = R / value, so that R = value * g
    is the relevance of whatever a gradient is asked of. Constants are multiplied by `unit`.

    * dense layer, convolution, weighted sum: epsilon rule. R_i = sum_j x_i w_ij / (y_j + epsilon sign(y_j)) R_j, which is
      g_i = sum_j w_ij g_j |y_j| / (|y_j| + epsilon). A bias keeps its part b_j of y_j, epsilon absorbs its own.
    * nonlinearity y = f(x), unit by unit: R passes, g_x = g_y y / x.
    * gate times signal: all relevance goes to the signal. Attention, also self-attention: the weights are a gate.
    * layer normalisation: its divisor is held fixed.

    Source: Bach et al. 2015; Arras et al. 2017 and 2019 (gates, recurrent steps); Ali et al. 2022 (self-attention, norms).
    """

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
            weights = project(reader.word_alignment(states.detach(), group_query), group.mask, model.config)
            inputs = inputs.index_put((group.rows, group.numbers), group_rules.pooled(states, weights))
    hidden = rules.encoded(model.model.encoder, inputs, present)
    attention = model.attend(hidden.detach(), mask, query)
    return rules.decoded(model.decoder, rules.pooled(hidden, attention), query), hidden
