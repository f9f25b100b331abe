"""Integrated gradients (Sundararajan et al. 2017): what is explained, handed out to tokens along a line from a baseline.

Shapes: B instances, L input positions, T tokens, E embedding.
"""

from contextlib import nullcontext

import torch

from attnfaith.importance._explained import Explained, check_data, check_target, explaining
from attnfaith.importance._inputs import STATES, inside, item_sums, without_parameters
from attnfaith.importance._quadrature import Line, integrate
from attnfaith.record import Column, ragged
from attnfaith.subjects import Batch, Subject, asks, whole_logits
from attnfaith.subjects.classifier import SelfAttention
from attnfaith.subjects.translator import CrossAttention


UNDEFINED = "where the line leaves float range, or max_steps points do not give its integral to the tolerance"
COLUMNS = {
    "importance_integrated_gradients": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined=UNDEFINED,
        doc="the token's part of f - f at the baseline, f what is explained",
    ),
    "importance_integrated_gradients_hidden": Column(
        ("T",), words="sum", signed=True, undefined=UNDEFINED, doc="the same of encoder states, from states of 0"
    ),
    "integrated_gradients_residual": Column(
        undefined="where the line leaves float range",
        tolerance=2,  # what rounding and the points leave
        doc="sum of the tokens' parts - (f - f at the baseline), in units of f; 0 is complete",
    ),
    "integrated_gradients_residual_hidden": Column(
        undefined="where the line leaves float range", tolerance=2, doc="the same for encoder states"
    ),
    "integrated_gradients_error": Column(
        undefined="where the line leaves float range",
        tolerance=2,
        doc="the estimated error of the token's part that is least certain, in units of f",
    ),
    "integrated_gradients_error_hidden": Column(
        undefined="where the line leaves float range", tolerance=2, doc="the same for encoder states"
    ),
    "integrated_gradients_steps": Column(dtype="int64", doc="points of the line at which a gradient was taken"),
    "integrated_gradients_steps_hidden": Column(dtype="int64", doc="the same for encoder states"),
}
NEEDS = frozenset({"embeddings"})
COST = "draws"
COLUMN_NEEDS = {name: STATES for name in COLUMNS if name.endswith("_hidden")}

BASELINES = ("zero", "padding", "mean")


def check(
    target="predicted",
    output: str = "logit",
    baseline: str | None = None,
    max_steps: int = 1500,
    tolerance: float = 0.01,
) -> None:
    """Raises ValueError for a target, an output or a baseline that there is not, for max_steps that is no whole number of
    15 or more, and for a tolerance that is negative or no number.
    """
    check_target(target, output)
    if baseline is not None and baseline not in BASELINES:
        raise ValueError(f"baseline={baseline!r} is not known; choose one of {', '.join(BASELINES)}")
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 15:
        raise ValueError(f"max_steps={max_steps!r}; give a whole number, 15 or more: the smallest rule has 15 points")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise ValueError(
            f"tolerance={tolerance!r}; give the error that is allowed, as a share of the largest part: 0 or more"
        )


def check_model(subject, dataset, *, target="predicted", output: str = "logit", baseline: str | None = None, **_) -> None:
    """Raises ValueError as `_explained.check_data` says, and for baseline="padding" where there is no padding token."""
    check_baseline(subject, baseline)
    check_data(subject, dataset, target=target, output=output)


def check_baseline(subject: Subject, baseline: str | None) -> None:
    """Raises ValueError for baseline="padding" where the subject has no padding token."""
    if baseline == "padding" and subject.pad_token_id is None:
        raise ValueError("baseline='padding', and the model has no pad_token_id; choose zero or mean")


@asks(NEEDS)
def measure(
    subject,
    batch,
    *,
    seed: int = 0,
    target="predicted",
    output: str = "logit",
    baseline: str | None = None,
    max_steps: int = 1500,
    tolerance: float = 0.01,
) -> dict[str, list]:
    """sum_d (x - b)_d * the mean of df/dx_d over the line from b to x, for every token at once; in units of f.

    x are the embeddings of the tokens. b is their baseline: "zero", "padding" (the embedding of the padding token) or "mean"
    (the mean of all embeddings of the vocabulary but padding's). None takes "zero" for models of this package and "mean" for
    others: layers that divide by the length of a state turn ever closer to an input of zeros, in deep models closer than
    float32 can tell from 0. Markers, marks between sentences and a second text stay what they are along the line, so that
    the tokens' parts sum to f at x - f at b. f is what `_explained.explaining` makes of target and output; the class is that
    of the text itself all along. For encoder states the line goes from states of 0, where the context is 0, whatever the
    baseline of inputs is.

    The rule of Gauss and Kronrod with 15 points takes the integral. Its difference from the rule of Gauss with 7 of these
    points estimates the error of each part. No token's estimate may be above `tolerance` times the largest part, nor the
    residual above `tolerance` times the larger of that and |f at x - f at b|. Until then the least certain intervals are
    halved; a text that needs more than `max_steps` points gets NaN. Close to the start, where f may turn at a tiny share of
    the line, intervals are taken in the logarithm of the share. The part of a sentence of a hierarchical model is that of
    all its words. Signed: a token ranks high as evidence for what is explained.

    Raises ValueError as `check`, `check_model` and `_explained.explaining` say.

    Source: Sundararajan et al. 2017, eq. 1 and 3 and proposition 1; Piessens et al. 1983, QUADPACK, section 2.2.
    """
    check(target, output, baseline, max_steps, tolerance)
    check_baseline(subject, baseline)
    with without_parameters(subject):
        with torch.no_grad():
            f = explaining(whole_logits(subject, batch), batch, target, output)
        lines = {"": input_line(subject, batch, f, baseline)}
        if "states" in subject.capabilities:
            lines["_hidden"] = state_line(subject, batch, f)
        with getattr(subject, "fused", nullcontext)():
            handed_out = {ending: integrate(line, max_steps, tolerance) for ending, line in lines.items()}
    mask, columns = subject.attendable(batch).cpu(), {}
    for ending, found in handed_out.items():
        of_items = found.parts if ending else item_sums(found.parts, subject.items(batch))
        columns[f"importance_integrated_gradients{ending}"] = ragged(of_items.float().cpu(), mask)
        columns[f"integrated_gradients_residual{ending}"] = found.residual.tolist()
        columns[f"integrated_gradients_error{ending}"] = found.error.tolist()
        columns[f"integrated_gradients_steps{ending}"] = found.steps.tolist()
    return {name: columns[name] for name in COLUMNS if name in columns}


@torch.no_grad()
def input_line(subject: Subject, batch: Batch, f: Explained, baseline: str | None) -> Line:
    """The line of embeddings, from the baseline to the text."""
    embedded, lengths = subject.embed(batch), batch["attention_mask"].sum(1)
    filling = baseline_vector(subject, baseline).to(embedded)
    start = torch.where(inside(subject, batch).unsqueeze(-1), filling, embedded)

    def value(points, rows):
        return f[rows](subject.predict(batch.take(rows, points.shape[1]), points))

    return Line(start, embedded, lengths, value, f(whole_logits(subject, batch)))


@torch.no_grad()
def state_line(subject: Subject, batch: Batch, f: Explained) -> Line:
    """The line of states, from states of 0."""
    hidden, mask, query = subject.encoded(batch)
    places = mask.shape[1] - mask.flip(1).to(torch.int8).argmax(1)  # up to the last that is attendable

    def value(points, rows):
        asked = None if query is None else query[rows]
        attention = subject.attend(points, mask[rows, : points.shape[1]], asked)
        return f[rows](subject.decode(points, attention, asked))

    return Line(torch.zeros_like(hidden), hidden, places, value, f(whole_logits(subject, batch)))


def baseline_vector(subject: Subject, baseline: str | None) -> torch.Tensor:
    """(E,): zeros, the embedding of padding, or the mean of those of the vocabulary but padding's. None: see `measure`."""
    table, padding = subject.vocabulary(), subject.pad_token_id
    if baseline is None:
        baseline = "mean" if isinstance(subject, SelfAttention | CrossAttention) else "zero"
    if baseline == "padding":
        return table[padding]
    if baseline == "zero":
        return torch.zeros_like(table[0])
    total = table.double().sum(0)
    return total / len(table) if padding is None else (total - table[padding]) / (len(table) - 1)
