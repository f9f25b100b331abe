"""Measures that pass what is explained back, layer by layer, by rules: LRP, AttnLRP, DecompX, Chefer et al."""

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch

from attnfaith.importance.explained import Explain, Explains, explaining
from attnfaith.importance.inputs import gradients, inside, item_sums
from attnfaith.importance.lrp_rules import BIAS, POSITIONS, QUERY, STABILISER, Rules, check_rules, read_by_rules
from attnfaith.measurement.options import Inputs, number
from attnfaith.measurement.registry import register
from attnfaith.record import Column, ragged
from attnfaith.subjects import Pooled, SubjectError, WordLevel, opened
from attnfaith.subjects.attention import map_products


def rest_of(name: str) -> dict[str, Column]:
    """The columns of a measure that say what no token has."""
    one = {"dtype": "float64", "signed": True, "undefined": "where a part is"}
    return {
        f"{name}_markers": Column(**one, doc="the same of all markers together"),
        f"{name}_rest": Column(**one, doc="what tokens and markers leave of f, what is explained: the part of biases"),
    }


@dataclass(frozen=True, kw_only=True)
class _Ruled(Explains):
    """A measure by gradient times input under rules of the backward pass; inputs: the vectors that are explained."""

    inputs: Inputs = "layer"

    def check(self, subject, dataset) -> None:
        """Raise ValueError where the model lacks the class, and SubjectError where the rules do not suit it."""
        subject.check_rules(self.inputs)
        super().check(subject, dataset)


def ruled(subject, batch, names, rules: str, target, output: str, inputs: str) -> dict[str, list]:
    """Three columns, by these names: the tokens' scores, those of all markers together, and what these leave of f."""
    subject.check_rules(inputs)
    shares = subject.relevance(batch, Explain(batch, target, output), rules, inputs)
    mask = subject.attendable(batch)
    of_places, values = shares.of_places[:, 0], shares.values[:, 0]
    markers = of_places.masked_fill(mask, 0).sum(1)
    rest = values - of_places.sum(1)
    made = (ragged(of_places.float().cpu(), mask.cpu()), markers.tolist(), rest.tolist())
    return dict(zip(names, made, strict=True))


@register
class AttnLrp(_Ruled):
    """AttnLRP (Achtibat et al. 2024): relevance of tokens in a Transformer, as one gradient by rules. Asked for by name
    only.

    Gradient times input, where gradients follow the rules of AttnLRP; in units of f.

    A product of two factors that both depend on the text, such as weights with values, queries with keys, or a gate with
    what it lets through, gives each half of the gradient; so values have a half of it, and queries and keys a quarter. The
    divisor of a normalisation is held fixed, an activation y of x has the slope y / x (where x is 0, its derivative), a
    linear layer and softmax keep their gradient: relevance of biases, and what softmax does not conserve, is nobody's. It is
    in attn_lrp_rest. Where `decompx` holds attention fixed, this follows what made the attention, too.

    inputs: see `decompx`. f is what `target` and `output` name. Signed: a token ranks high as
    evidence for what is explained.

    LRP is patented. The package lxt, by authors of the method, is under the Clear BSD licence, which grants no patent
    rights, and its README says that it is free for personal and scientific use. Have other uses checked. No default, list or
    study of this package runs this measure unless it is asked for by name.

    Source: Achtibat et al. 2024, section 3. No code of theirs is used here.
    """

    name, cost = "attn_lrp", "gradient"
    needs = frozenset({"embeddings", "backward rules"})
    columns = {
        "importance_attn_lrp": Column(
            ("T",),
            words="sum",
            signed=True,
            undefined="where f or its slope is not finite",
            doc="relevance of a token in f, what is explained",
        ),
        **rest_of("attn_lrp"),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        return ruled(subject, batch, self.columns, "halved", self.target, self.output, self.inputs)


@register
class DecompX(_Ruled):
    """DecompX without biases (Modarressi et al. 2023): what each token adds to what is explained, through a frozen network.

    The vector of each token, carried through all layers and the classifier; in units of f.

    With the attention of the text, the divisors of its normalisations and the slope y / x of each activation held fixed
    (where x is 0, its derivative) a model is affine in its tokens, and so is a logit: what a token adds to it is exact. The
    paper carries every token's vector forward, in memory that grows with the square of the text; here it is gradient times
    input of that frozen model, one backward pass, and the numbers are the same. Biases are nobody's: the paper can divide
    them among tokens, which is not done. Of a gated product, which the paper does not have, the gate is held fixed.

    inputs: "layer", the vectors that the first layer reads, token, position and type together after their normalisation, as
    in the paper; "table", those of the table of tokens alone, with the divisor of that normalisation held fixed. Of an
    encoder–decoder a token has what it has in both.

    f is what `target` and `output` name. A logit is the sum of its tokens, decompx_markers and
    decompx_rest; of other outputs decompx_rest has, besides the biases, what they are beyond logits times slopes. Signed: a
    token ranks high as evidence for what is explained.

    Source: Modarressi et al. 2023, section 3, without the decomposition of biases.
    """

    name, cost = "decompx", "gradient"
    needs = frozenset({"embeddings", "backward rules"})
    columns = {
        "importance_decompx": Column(
            ("T",),
            words="sum",
            signed=True,
            undefined="where f or its slope is not finite",
            doc="what a token adds to f, what is explained, attention, divisors and slopes held fixed",
        ),
        **rest_of("decompx"),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        return ruled(subject, batch, self.columns, "frozen", self.target, self.output, self.inputs)


def _check_layers(subject) -> None:
    if subject.sites.maps != len(subject.sites.layers):
        raise SubjectError(
            f"chefer goes through layers of self-attention, and this model has {subject.sites.maps} maps, of which only "
            f"{len(subject.sites.layers)}, a decoder's over its encoder, are of its text: take attention_x_gradient"
        )


@register
class Chefer(Explains):
    """Relevance through attention times its gradient, layer by layer (Chefer et al. 2021, ICCV).

    The rows that matter of R, a product over layers of I + the mean over heads of (A dF/dA) where it is positive.

    R begins as the identity and R becomes R + A' R in each layer, A' the mean over heads of the positive parts of attention
    times its gradient. The mean of R - I over the rows that the logits depend on: the identity says only that such a row
    stands at its own token, which the authors leave out as well. Not negative: evidence against what is explained is cut
    off. f is what `target` and `output` name.

    Source: Chefer et al. 2021 (ICCV), section 3.2, self-attention.
    """

    name, cost = "chefer", "gradient"
    needs = frozenset({"attention maps"})
    columns = {
        "importance_chefer": Column(
            ("T",),
            words="sum",
            range=(0.0, None),
            undefined="where f or its slope is not finite",
            doc="relevance of a token for the rows that matter, f what is explained",
        ),
    }

    def check(self, subject, dataset) -> None:
        """Raise ValueError where the model lacks the class, and SubjectError for an encoder–decoder."""
        _check_layers(subject)
        super().check(subject, dataset)

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        _check_layers(subject)
        mask = subject.attendable(batch)
        scores = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        layers = range(len(subject.sites.layers))
        for part in map_products(subject, batch, Explain(batch, self.target, self.output), layers):
            identity = torch.eye(part.length, dtype=torch.float64, device=mask.device)
            whole = identity
            for layer in layers:
                whole = whole + part.positive[layer] @ whole
            matter = part.matter.double()
            of_rows = (matter.unsqueeze(1) @ (whole - identity)).squeeze(1) / matter.sum(1, keepdim=True).clamp(min=1)
            scores[part.rows, : part.length] = of_rows
        return {"importance_chefer": ragged(scores.float().cpu(), mask.cpu())}


EPSILON = 1e-3


class Relevance(NamedTuple):
    """How what is explained is shared out, for the B instances of a batch; float64, in units of `explained`.

    tokens, hidden (B,T): relevance of embeddings and of states, of sentences or words as attention is over them; 0 outside
    `mask` (B,T). Each of the rest (B,): explained; markers: embeddings of input positions that are no token, such as begin
    and end marker; query: the second text; positions: what a Transformer adds for places; biases; stabiliser: what epsilon
    absorbs; output: what a product of logits with slopes leaves of `explained`, 0 for logits.

    explained = sum of tokens + markers + query + positions + biases + stabiliser + output, but for rounding.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    mask: torch.Tensor
    explained: torch.Tensor
    markers: torch.Tensor
    query: torch.Tensor
    positions: torch.Tensor
    biases: torch.Tensor
    stabiliser: torch.Tensor
    output: torch.Tensor

    @property
    def residual(self) -> torch.Tensor:
        """(B,): what no token has been given."""
        return self.explained - self.tokens.sum(1)

    @property
    def unaccounted(self) -> torch.Tensor:
        """(B,): what is in no part that was followed: the curvature of an output that is not a logit, and rounding."""
        return self.residual - self.markers - self.query - self.positions - self.biases - self.stabiliser


def relevance(subject, batch, *, target="predicted", output: str = "logit", epsilon: float = EPSILON) -> Relevance:
    """Follow all of what is explained: see `Lrp` for the rules and `Relevance` for the parts."""
    subject, batch = opened(subject, batch, {"layers"}, "lrp")
    check_rules(subject.classifier)
    if torch.finfo(subject.classifier.dtype).bits < 32:  # states of coarse sums are not the sums that relevance goes through
        classifier = copy.deepcopy(subject.classifier).float()
        subject = Pooled(WordLevel(classifier) if subject.level == "word" else classifier)
    count = len(batch["input_ids"])
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embedded = subject.embed(batch).detach().requires_grad_()
        ledger = torch.zeros(count, 4, dtype=torch.float64, device=embedded.device, requires_grad=True)
        read = read_by_rules(subject.classifier, batch, embedded, Rules(epsilon, ledger))
        f = explaining(read.logits.detach(), batch, target, output)
        tops = read.logits.detach().requires_grad_()
        values = f(tops)
        (slopes,) = torch.autograd.grad(values.sum(), tops)
        wanted = [embedded, ledger, read.hidden, *(states for _, states in read.words)]
        embedded_slopes, entries, hidden_slopes, *word_slopes = gradients((read.logits * slopes).sum(), wanted)
    tokens = _times(embedded, embedded_slopes)
    hidden, mask = _times(read.hidden, hidden_slopes), read.mask
    if subject.level == "word":
        hidden = torch.zeros_like(tokens)
        for (group, states), slope in zip(read.words, word_slopes, strict=True):
            hidden = group.put(_times(states, slope), hidden)
    items, of_items = subject.items(batch), inside(subject, batch)
    markers = tokens.masked_fill(of_items, 0).sum(1)
    if subject.level == "word":
        hidden, mask = item_sums(hidden, items), subject.attendable(batch)
    values, tops = values.detach(), tops.detach()
    return Relevance(
        tokens=item_sums(tokens.masked_fill(~of_items, 0), items),
        hidden=hidden,
        mask=mask,
        explained=values,
        markers=markers,
        query=entries[:, QUERY],
        positions=entries[:, POSITIONS],
        biases=entries[:, BIAS],
        stabiliser=entries[:, STABILISER],
        output=values - (tops * slopes).double().sum(1),
    )


def _times(values, slopes) -> torch.Tensor:
    """(...,D) to (...): value times slope, summed in float64."""
    return (values.detach() * slopes).sum(-1, dtype=torch.float64)


@register
class Lrp(Explains):
    """Layer-wise relevance propagation: what is explained, shared out layer by layer down to the embeddings.

    The share of each token in the number explained, by rules that conserve the sum from layer to layer.

    Relevance starts at the logits as value times slope of what `target` and `output` name: for a
    logit that is the logit, for a contrast one logit and minus the other. Dense layers and convolutions divide it by the
    epsilon rule, LSTM and GRU steps and attention give all of it to the signal and none to gate or weight, self-attention
    weights and the divisor of layer normalisation are held fixed, nonlinearities pass it on: `lrp_rules` has the
    formulas. So the query of attention has no relevance, and a token without attention has relevance only through others'
    states.

    Biases keep what is theirs, which Arras et al. recommend for explanations (their bias factor of 0); with markers, a
    second text and positions that is `lrp_residual`. `lrp_unaccounted` says whether the rules conserved what they should: it
    is rounding for a logit, a contrast, and the log-odds of two classes. A probability, or log-odds of more classes, is no
    sum of parts of logits: what its value exceeds logits times slopes by is in `lrp_unaccounted`, too. epsilon: added to the
    size of each divisor, in units of activations.

    Signed: a token ranks high as evidence for what is explained, low as evidence against it. Of a hierarchical model a
    sentence's is the sum over its words. All encoders, decoders and levels; one forward and one backward pass, in float32 or
    what is more exact.

    LRP is patented: the README of the package lxt, by authors of the method, says that it may be used free of charge for
    personal and scientific purposes only. Have other uses checked.

    Source: Bach et al. 2015; Arras et al. 2017 and 2019; Ali et al. 2022. No code of theirs is used here.
    """

    name, cost = "lrp", "gradient"
    needs = frozenset({"layers"})
    columns = {
        "importance_lrp": Column(
            ("T",),
            words="sum",
            signed=True,
            undefined="where what is explained is",
            unit="what is explained",
            doc="relevance of a token's embedding",
        ),
        "importance_lrp_hidden": Column(
            ("T",),
            words="sum",
            signed=True,
            undefined="where what is explained is",
            doc="the same of a token's encoder state",
        ),
        "lrp_residual": Column(
            dtype="float64",
            signed=True,
            undefined="where what is explained is",
            doc="what is explained minus the sum of importance_lrp: not given to any token",
        ),
        "lrp_unaccounted": Column(
            dtype="float64",
            signed=True,
            undefined="where what is explained is",
            doc="the part of lrp_residual that is in no marker, second text, position, bias or stabiliser",
        ),
    }

    epsilon: number("what stabilises a divisor: a number from 0 on", ge=0) = EPSILON

    def check(self, subject, dataset) -> None:
        """Raise ValueError for an encoder or decoder without a rule, and where the model lacks the class."""
        check_rules(subject.classifier)
        super().check(subject, dataset)

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        shares = relevance(subject, batch, target=self.target, output=self.output, epsilon=self.epsilon)
        mask = shares.mask.cpu()
        values = (
            ragged(shares.tokens.float().cpu(), mask),
            ragged(shares.hidden.float().cpu(), mask),
            shares.residual.tolist(),
            shares.unaccounted.tolist(),
        )
        return dict(zip(self.columns, values, strict=True))
