"""Measures that pass what is explained back, layer by layer, by rules: LRP, AttnLRP, DecompX, Chefer et al."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from attnfaith.importance.input_gradients import differentiable, gradients, inside, item_sums, value_times_slope
from attnfaith.importance.lrp_rules import Rules, check_rules, read_by_rules
from attnfaith.importance.targets import ROWS_DOC, TARGET_DOC, TargetMeasure, score, signed_score
from attnfaith.measurement.options import Inputs, number
from attnfaith.measurement.registry import register
from attnfaith.record import Column
from attnfaith.subjects import per_token
from attnfaith.subjects.attention import map_products


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
    """A measure by gradient times input under rules of the backward pass. Three columns: the tokens' scores, those of all
    markers together, and what these leave of f.

    inputs: the vectors that are explained, see `DecompX`.
    """

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

    name, cost = "attn_lrp", "gradient"
    needs = frozenset({"embeddings", "backward rules"})
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
    the same numbers. Biases are nobody's: the paper can divide them among tokens, which is not done. Of a gated product,
    which the paper does not have, the gate is held fixed. Of outputs other than a logit decompx_rest also has what they are
    beyond logits times slopes.

    inputs: "layer", the vectors that the first layer reads, token, position and type together after their normalisation, as
    in the paper, of models whose layers are a chain; "table", those of the table of tokens alone, with the divisor of that
    normalisation held fixed.

    Source: Modarressi et al. 2023, section 3, without the decomposition of biases.
    """

    name, cost = "decompx", "gradient"
    needs = frozenset({"embeddings", "backward rules"})
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

    name, cost = "chefer", "gradient"
    needs = frozenset({"attention maps", "stacked maps"})
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
    weights and the divisor of layer normalisation are held fixed, nonlinearities pass it on: `lrp_rules` has the formulas.
    So the query of attention has no relevance, and a token without attention has relevance only through others' states.

    Biases keep what is theirs (Arras et al.'s bias factor of 0). `lrp_unaccounted` is rounding for a logit, a contrast, and
    the log-odds of two classes. A probability, or log-odds of more classes, is no sum of parts of logits: what its value
    exceeds logits times slopes by is in it, too.

    epsilon: added to the size of each divisor, in units of activations. One forward and one backward pass, in float32 or
    what is more exact. LRP is patented: see `attn_lrp`.

    Source: Bach et al. 2015; Arras et al. 2017 and 2019; Ali et al. 2022. No code of theirs is used here.
    """

    name, cost = "lrp", "gradient"
    needs = frozenset({"layers"})
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
        check_rules(subject)
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
