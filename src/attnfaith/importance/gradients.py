"""Gradients in the embeddings of a batch, measures by one gradient of a text, and how states depend on tokens.

Shapes: B instances, L input positions, T tokens, E embedding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import ClassVar

import torch

from attnfaith.importance.targets import STATES, TARGET_DOC, TargetMeasure, score, signed_score
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import Batch, Subject, per_token
from attnfaith.subjects.base import frozen
from attnfaith.subjects.protocol import log_odds


HELD = frozenset({"held attention"})
ITEM = "x the embeddings of a token (of all words of a sentence, where attention is over sentences)"
PROBABILITY = (
    "p the probability of the predicted class (of the most probable label where labels do not exclude one another, the "
    "largest output itself in a regression)"
)
ODDS = (
    "f the log-odds of the predicted class, its logit less the log-sum-exp of the others (the largest logit without classes)"
)
THROUGH = "the gradient flows through attention"
HELD_FIXED = "the attention of all layers held fixed"


@contextmanager
def differentiable(subject: Subject | None = None) -> Iterator[None]:
    """Within, gradients can be taken, and the parameters of the subject take none.

    cuDNN refuses a backward pass through an LSTM in eval mode, and train mode would turn dropout on, so cuDNN is off here.
    """
    with (
        nullcontext() if subject is None else frozen(subject),
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
    ):
        yield


def inside(subject: Subject, batch: Batch) -> torch.Tensor:
    """(B,L) bool: the input positions that belong to an item of attention."""
    items = subject.items(batch)
    return subject.attendable(batch) if items is None else items >= 0


def item_sums(values: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    """Sum values (B,L) of input positions over those of each item: (B,T). Where items are tokens, values stay as is."""
    if items is None:
        return values
    sums = values.new_zeros(len(values), max(1, int(items.max()) + 1) + 1)
    return sums.scatter_add(1, items + 1, values)[:, 1:]  # column 0 takes what belongs to no item


def gradients(output: torch.Tensor, inputs: list[torch.Tensor], retain: bool = False) -> list[torch.Tensor]:
    """d sum(output) / d input for each input; zero for an input that output does not depend on (an empty text)."""
    needed = [value for value in inputs if value.requires_grad]
    if not output.requires_grad or not needed:
        return [torch.zeros_like(value) for value in inputs]
    slopes = torch.autograd.grad(output.sum(), needed, materialize_grads=True, allow_unused=True, retain_graph=retain)
    remaining = iter(slopes)
    return [next(remaining) if value.requires_grad else torch.zeros_like(value) for value in inputs]


def value_times_slope(values: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """(...,D) to (...): value times slope, summed in float64."""
    return (values.detach() * slopes).sum(-1, dtype=torch.float64)


def input_slopes(subject: Subject, batch: Batch, explain: Callable, hold: bool = False) -> tuple:
    """Return f = explain(logits (B,C)), (B,); a list of x . df/dx, and one of ||df/dx||, (B,T) each: first x are the
    embeddings of items, then states, where the subject has them. hold: whether no gradient flows through attention.
    """
    with differentiable(subject):
        embedded = subject.embed(batch).detach().requires_grad_()
        inputs, items = [embedded], subject.items(batch)
        if "states" in subject.capabilities:
            encoded = subject.encoded(batch, embedded)
            attention = subject.attend(*encoded)
            inputs.append(encoded.hidden)
            logits = subject.decode(encoded.hidden, attention.detach() if hold else attention, encoded.query)
        else:
            logits = subject.predict(batch, embedded, hold=hold)
        f = explain(logits)
        slopes = gradients(f, inputs)
    inward, *products = map(value_times_slope, inputs, slopes)
    norms = [item_norms(slopes[0], items), *(slope.norm(dim=-1) for slope in slopes[1:])]
    return f.detach(), [item_sums(inward, items), *products], norms


def odds_slopes(subject: Subject, batch: Batch, hold: bool) -> tuple:
    """Return the slopes of the log-odds of the predicted class, see `input_slopes`; for a model without classes those of its
    largest output, since a label's logit is its log-odds. They are kept in the batch.
    """
    explain = log_odds if "classes" in subject.capabilities else lambda logits: logits.double().amax(-1)
    return batch.once("slopes", hold, lambda: input_slopes(subject, batch, explain, hold))


def item_norms(vectors: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    """Return the length (B,T) of the vectors (B,L,E) of all positions of an item, taken as one vector."""
    norms = vectors.norm(dim=-1)
    return norms if items is None else item_sums(norms.double().square(), items).sqrt()


@register
class Gradient(Measure):
    """Gradient importance: |x . dp/dx|, the size of the embedding times the slope of the predicted probability in it.

    A model with many heads and layers has the gradient of captum's InputXGradient, through attention; take
    `gradient_attention_held` for the one that holds attention fixed. A model with one attention over states has that of Jain
    & Wallace: attention is detached after the projection, and of states it is p(1-p) a_t |s_t|, s what a state adds to the
    difference of logits. It is computed by log-odds, dp = p(1-p) df: in float32 a softmax is flat above a difference of 17.

    Source: Jain & Wallace 2019, section 4.1 and their code ("XxE[X]").
    """

    name, cost, needs = "gradient", "gradient", frozenset({"embeddings", "embedding length"})
    columns = {
        "importance_gradient": score(
            f"|sum_d x_d dp/dx_d|, {ITEM}, {PROBABILITY}; through the attention of a model with many heads and layers, and "
            "with attention held fixed where it is one sum of states"
        ),
        "importance_gradient_hidden": score(
            f"|sum_d h_d dp/dh_d|, h the encoder state of a token, {PROBABILITY}; attention held fixed", needs=STATES | HELD
        ),
    }

    held: ClassVar[bool] = False  # attention is held fixed in a stack of layers, too

    def __call__(self, subject, batch) -> dict[str, list]:
        odds, products, _ = odds_slopes(subject, batch, self.held or subject.capabilities >= STATES | HELD)
        is_value = getattr(subject, "output", "classes") == "values"
        spread = torch.ones_like(odds) if is_value else odds.sigmoid() * (-odds).sigmoid()  # p(1-p)
        return {
            name: per_token(subject, batch, spread.unsqueeze(-1) * values.abs())
            for name, values in zip(self.columns, products, strict=False)  # states where there are any
        }


@register
class GradientAttentionHeld(Gradient):
    """Gradient importance with attention held fixed, |x . dp/dx|, as Jain & Wallace (2019) define it.

    In a stack of layers it orders tokens otherwise than the gradient through attention does. In a model with one attention
    over states it is `gradient`.

    Source: Jain & Wallace 2019, section 4.1 and their code ("XxE[X]").
    """

    name, cost, needs = "gradient_attention_held", "gradient", Gradient.needs | HELD
    columns = {
        "importance_gradient_attention_held": score(f"|sum_d x_d dp/dx_d|, {ITEM}, {PROBABILITY}; {HELD_FIXED}"),
    }
    held = True


@register
class GradientNorm(Measure):
    """Gradient importance as Meister et al. (2021) define it: the L2 norm of the logit's gradient, through attention or not.

    With two classes f is the single logit of a sigmoid model, with more the logit of "this class or another".
    Where attention is held fixed the state of token t has a_t ||df/dc||_2, c the context: the order of the states is that
    of attention whatever the model. Norms are not divided by their sum (their eq. 4 does).

    Source: Meister et al. 2021, eq. 4; held fixed as in Jain & Wallace 2019, section 4.1.
    """

    name, cost, needs = "gradient_norm", "gradient", frozenset({"embeddings"})
    columns = {
        "importance_gradient_norm": score(f"||df/dx||_2, {ITEM}, {ODDS}; {THROUGH}"),
        "importance_gradient_norm_hidden": score(
            f"||df/dh||_2, h the encoder state of a token, {ODDS}; {THROUGH}", needs=STATES
        ),
        "importance_gradient_norm_detached": score(f"||df/dx||_2, {ITEM}, {ODDS}; {HELD_FIXED}", needs=HELD),
        "importance_gradient_norm_detached_hidden": score(
            f"||df/dh||_2, h the encoder state of a token, {ODDS}; {HELD_FIXED}", needs=STATES | HELD
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        holds = [False, True] if subject.capabilities >= HELD else [False]
        norms = [values for hold in holds for values in odds_slopes(subject, batch, hold)[2]]
        return self.in_columns(subject, zip(*(per_token(subject, batch, values) for values in norms), strict=True))


@register
class GradientXInput(TargetMeasure):
    """Gradient times input (Denil et al. 2015; Shrikumar et al. 2016): the part of a linear approximation that a token has.

    What leaving a token's embedding out would change if f were linear. `gradient` drops the sign, and in pooled models holds
    attention fixed. A saturated probability keeps its order until it is exactly flat, at log-odds of about 700.

    Source: Denil et al. 2015; Shrikumar et al. 2016.
    """

    name, cost, needs = "gradient_x_input", "gradient", frozenset({"embeddings", "embedding length"})
    columns = {
        "importance_gradient_x_input": signed_score(
            f"x . df/dx, {ITEM}, {TARGET_DOC}; {THROUGH}; markers and a second text have shares that belong to no token"
        ),
        "importance_gradient_x_input_hidden": signed_score(
            f"h . df/dh, h the encoder state of a token, {TARGET_DOC}; {THROUGH}", needs=STATES
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        def explain(logits):  # the predicted class comes from the same reading
            return self.explained(subject, batch, logits.detach())(logits)

        _, products, _ = input_slopes(subject, batch, explain)
        named = zip(self.columns, products, strict=False)  # states where there are any
        return {name: per_token(subject, batch, values) for name, values in named}


@register
class GradientHiddenToInput(Measure):
    """What an encoder's states are made of: how the length of each state depends on each token (Meister et al. 2021, eq. 5).

        g_p(i) = ||d ||h_p||_2 / d x_i||_2 / sum_k ||d ||h_p||_2 / d x_k||_2

    for state p and the embedding x_i of token i; p, i and k run over the attendable tokens, in a hierarchical model over
    sentences, with the embeddings of all words of one as one vector. A row of g is undefined where all its gradients are 0.
    The second text of a pair is not counted.

    One backward pass for each place of the longest text, in float64: a Transformer as it is drawn makes all states equally
    long but for the epsilon of its norms.

    Source: Meister et al. 2021, eq. 5 and Table 1.
    """

    name, cost, needs = "gradient_hidden_to_input", "tokens", frozenset({"layers"})
    columns = {
        "hidden_to_input_entropy": Column(
            ("T",),
            range=(0.0, 1.0),
            undefined="where the row of g is, and for a text of one token",
            doc="entropy of a state's row of g over log T; g: shares of ||d ||h_p||_2 / d x_i||_2 over the tokens i",
        ),
        "hidden_to_input_own": Column(
            ("T",), range=(0.0, 1.0), undefined="where the row of g is", doc="share of a state's own token in its row of g"
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        mask, wide = subject.attendable(batch), subject.with_dtype(torch.float64)
        with differentiable(wide):
            embedded, items = wide.embed(batch).detach().requires_grad_(), wide.items(batch)
            lengths = wide.encoded(batch, embedded).hidden.norm(dim=-1)
            places = [gradients(length, [embedded], retain=True)[0] for length in lengths.unbind(1)]
        norms = torch.stack([item_norms(slopes, items) for slopes in places], 1)  # ||d ||h_p||_2 / d x_i||_2, (B,P,T)
        norms = norms.masked_fill(~mask.unsqueeze(1), 0)
        shares = norms / norms.sum(-1, keepdim=True)  # 0 / 0 is NaN
        counts = mask.sum(1, keepdim=True).double()
        entropies = (torch.special.entr(shares).sum(-1) / counts.log()).clamp(0, 1)  # of one token 0 / 0
        numbers = entropies, shares.diagonal(dim1=1, dim2=2)
        return dict(zip(self.columns, (per_token(subject, batch, values) for values in numbers), strict=True))
