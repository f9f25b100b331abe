"""Layer-wise relevance propagation: what is explained, shared out layer by layer down to the embeddings."""

import copy
import math
from typing import NamedTuple

import torch

from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import gradients, inside, item_sums
from attnfaith.importance.lrp_rules import BIAS, POSITIONS, QUERY, STABILISER, Rules, check_rules, read_by_rules
from attnfaith.record import Column, ragged
from attnfaith.subjects import Pooled, WordLevel, asks


COLUMNS = {
    "importance_lrp": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where what is explained is",
        unit="what is explained",
        doc="relevance of a token's embedding",
    ),
    "importance_lrp_hidden": Column(
        ("T",), words="sum", signed=True, undefined="where what is explained is", doc="the same of a token's encoder state"
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
NEEDS = frozenset({"layers"})
COST = "gradient"
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


def check(*, target="predicted", output: str = "logit", epsilon: float = EPSILON) -> None:
    """Raises ValueError for an epsilon that is not a finite number from 0 on, and as `_explained.check_target` says."""
    check_target(target, output)
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r}; give what stabilises a divisor: a number from 0 on, such as {EPSILON:g}")


def check_model(subject, dataset, *, target="predicted", output: str = "logit", epsilon: float = EPSILON) -> None:
    """Raises ValueError as `check` does, for a model with an encoder or decoder that no rule is known for, and for a class
    that the model does not have or an instance may not be given.
    """
    check(target=target, output=output, epsilon=epsilon)
    check_rules(subject.classifier)
    check_data(subject, dataset, target=target, output=output)


@asks(NEEDS)
def measure(
    subject, batch, *, seed: int = 0, target="predicted", output: str = "logit", epsilon: float = EPSILON
) -> dict[str, list]:
    """The share of each token in the number explained, by rules that conserve the sum from layer to layer.

    Relevance starts at the logits as value times slope of what `_explained.explaining` makes of target and output: for a
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

    Raises ValueError as `check_model` says.

    Source: Bach et al. 2015; Arras et al. 2017 and 2019; Ali et al. 2022. No code of theirs is used here.
    """
    shares = relevance(subject, batch, target=target, output=output, epsilon=epsilon)
    mask = shares.mask.cpu()
    values = (
        ragged(shares.tokens.float().cpu(), mask),
        ragged(shares.hidden.float().cpu(), mask),
        shares.residual.tolist(),
        shares.unaccounted.tolist(),
    )
    return dict(zip(COLUMNS, values, strict=True))


@asks(NEEDS)
def relevance(subject, batch, *, target="predicted", output: str = "logit", epsilon: float = EPSILON) -> Relevance:
    """All of what `measure` follows: see there, and `Relevance`."""
    check(target=target, output=output, epsilon=epsilon)
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
    tokens = _relevance(embedded, embedded_slopes)
    hidden, mask = _relevance(read.hidden, hidden_slopes), read.mask
    if subject.level == "word":
        hidden = torch.zeros_like(tokens)
        for (group, states), slope in zip(read.words, word_slopes, strict=True):
            hidden = group.put(_relevance(states, slope), hidden)
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


def _relevance(values, slopes) -> torch.Tensor:
    """(...,D) to (...): value times slope, summed in float64."""
    return (values.detach() * slopes).sum(-1, dtype=torch.float64)
