"""Integrated gradients (Sundararajan et al. 2017): what is explained, handed out to tokens along a line from a baseline.

Shapes: B instances, L input positions, T tokens, D what a position is given as, N points of the lines taken together.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from attnfaith.importance._explained import Explained, check_data, check_target, explaining
from attnfaith.importance._fast.lines import EnteredLine
from attnfaith.importance._inputs import STATES, gradients, inside, item_sums, without_parameters
from attnfaith.record import Column, ragged
from attnfaith.subjects import Batch, Subject, asks, whole_logits


COLUMNS = {
    "importance_integrated_gradients": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where the line leaves float range",
        doc="the token's part of f - f at the baseline, f what is explained",
    ),
    "importance_integrated_gradients_hidden": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where the line leaves float range",
        doc="the same of encoder states, from states of 0",
    ),
    "integrated_gradients_residual": Column(
        undefined="where a part is",
        tolerance=2,  # what rounding and the step size leave
        doc="sum of the tokens' parts - (f - f at the baseline), in units of f; 0 is complete",
    ),
    "integrated_gradients_residual_hidden": Column(
        undefined="where a part is", tolerance=2, doc="the same for encoder states"
    ),
    "integrated_gradients_steps": Column(dtype="int64", doc="points of the line that were taken"),
    "integrated_gradients_steps_hidden": Column(dtype="int64", doc="the same for encoder states"),
}
NEEDS = frozenset({"embeddings"})
COST = "draws"
COLUMN_NEEDS = {name: STATES for name in COLUMNS if name.endswith("_hidden")}

BASELINES = ("zero", "padding", "mean")
PLACES_AT_ONCE = 3 * 2**12  # positions of texts dealt with together: with more a CPU is slower, not faster
ROUNDING = 1e-6  # of what is explained at both ends: a smaller residual is rounding in float32
REFINED = 3  # each new midpoint rule has three times the points of the last and uses these again


class Line(NamedTuple):
    """A line for each instance, from `start` to `end` (B,L,D), of which `lengths` (B,) positions matter.

    value(start (n,l,D), change (n,l,D), shares (P,), rows (n,)) -> (n,P): what is explained of the instances `rows` at the
    points start + share * change, with a gradient in start that is the sum over points. reached (B,): what is explained at
    `end`, where that is known, so that it is not read again.
    """

    start: torch.Tensor
    end: torch.Tensor
    lengths: torch.Tensor
    value: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    reached: torch.Tensor | None = None


class Parts(NamedTuple):
    """Parts (B,L), residual (B,) in float64, and steps (B,) of the instances of a line."""

    parts: torch.Tensor
    residual: torch.Tensor
    steps: torch.Tensor


def check(
    target="predicted",
    output: str = "logit",
    baseline: str = "zero",
    steps: int = 20,
    max_steps: int = 540,
    tolerance: float = 0.01,
) -> None:
    """Raises ValueError for a target, an output or a baseline that there is not, steps that are no whole numbers of 1 or
    more or above max_steps, and a tolerance that is negative or no number.
    """
    check_target(target, output)
    if baseline not in BASELINES:
        raise ValueError(f"baseline={baseline!r} is not known; choose one of {', '.join(BASELINES)}")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}; give a whole number, 1 or more")
    if steps > max_steps:
        raise ValueError(f"steps={steps} is above max_steps={max_steps}: lower the one or raise the other")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise ValueError(
            f"tolerance={tolerance!r}; give the residual that is allowed, as a share of the difference: 0 or more"
        )


def check_model(subject, dataset, *, target="predicted", output: str = "logit", baseline: str = "zero", **_steps) -> None:
    """Raises ValueError as `_explained.check_data` says, and for baseline="padding" where there is no padding token."""
    check_baseline(subject, baseline)
    check_data(subject, dataset, target=target, output=output)


def check_baseline(subject: Subject, baseline: str) -> None:
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
    baseline: str = "zero",
    steps: int = 20,
    max_steps: int = 540,
    tolerance: float = 0.01,
) -> dict[str, list]:
    """sum_d (x - b)_d * the mean of df/dx_d over the line from b to x, for every token at once; in units of f.

    x are the embeddings of the tokens, b their baseline: zeros, the embedding of padding, or the mean of all embeddings of
    the vocabulary but padding's. Markers, marks between sentences and a second text stay what they are along the line, so
    that the tokens' parts sum to f at x - f at b and nothing belongs to no token. f is what `_explained.explaining` makes of
    target and output; the class is that of the text itself all along. Of encoder states the line goes from states of 0,
    where the context is 0, whatever the baseline of inputs is.

    The mean is taken by the midpoint rule at `steps` points. Where |residual| > tolerance |f at x - f at b| three times as
    many are taken, which include those taken before, until it is not or max_steps would be passed; texts that are exact
    early stop early. The residual that is left and the steps are returned. Sparse projections have kinks along the line and
    need many steps, softmax few. Of a hierarchical model a sentence's part is that of all its words. Signed: a token ranks
    high as evidence for what is explained.

    Undefined (NaN, with its residual) where f or a gradient on the line is not finite. Raises ValueError as `check`,
    `check_model` and `_explained.explaining` say.

    Source: Sundararajan et al. 2017, eq. 1 and 3 and proposition 1.
    """
    check(target, output, baseline, steps, max_steps, tolerance)
    check_baseline(subject, baseline)
    with without_parameters(subject):
        with torch.no_grad():
            f = explaining(whole_logits(subject, batch), batch, target, output)
        lines = {"": input_line(subject, batch, f, baseline)}
        if "states" in subject.capabilities:
            lines["_hidden"] = state_line(subject, batch, f)
        handed_out = {ending: integrate(line, steps, max_steps, tolerance) for ending, line in lines.items()}
    mask, made = subject.attendable(batch).cpu(), {}
    for ending, (parts, residual, used) in handed_out.items():
        of_items = parts if ending else item_sums(parts, subject.items(batch))
        made[f"importance_integrated_gradients{ending}"] = ragged(of_items.float().cpu(), mask)
        made[f"integrated_gradients_residual{ending}"] = residual.tolist()
        made[f"integrated_gradients_steps{ending}"] = used.tolist()
    return {name: made[name] for name in COLUMNS if name in made}


@torch.no_grad()
def input_line(subject: Subject, batch: Batch, f: Explained, baseline: str) -> Line:
    """The line of embeddings, from the baseline to the text; what takes in tokens one by one is asked once for both ends."""
    embedded, lengths = subject.embed(batch), batch["attention_mask"].sum(1)
    filling = baseline_vector(subject, baseline).to(embedded)
    start = torch.where(inside(subject, batch).unsqueeze(-1), filling, embedded)
    if "layers" in subject.capabilities and subject.level == "token":
        line = EnteredLine(subject, batch)
        value = _value_of_states(subject, batch, f, line.states)
        return Line(line.enter(start), line.enter(embedded), lengths, value)

    def value_of_points(start, change, shares, rows):
        points = (start.unsqueeze(1) + shares[:, None, None] * change.unsqueeze(1)).flatten(0, 1)
        rows = rows.repeat_interleave(len(shares))
        return f[rows](subject.predict(batch.take(rows, start.shape[1]), points)).view(-1, len(shares))

    return Line(start, embedded, lengths, value_of_points, f(whole_logits(subject, batch)))


def state_line(subject: Subject, batch: Batch, f: Explained) -> Line:
    """The line of states, from states of 0."""

    def states(start, change, shares, _rows):
        return start.unsqueeze(1) + shares[:, None, None] * change.unsqueeze(1)

    hidden, mask, _ = subject.encoded(batch)
    places = mask.shape[1] - mask.flip(1).to(torch.int8).argmax(1)  # up to the last that is attendable
    return Line(torch.zeros_like(hidden), hidden, places, _value_of_states(subject, batch, f, states))


def _value_of_states(subject: Subject, batch: Batch, f: Explained, states: Callable) -> Callable:
    """The `value` of a line whose points have states (n,P,l,H)."""
    _, mask, query = subject.encoded(batch)

    def value(start, change, shares, rows):
        points = states(start, change, shares, rows)
        rows = rows.repeat_interleave(points.shape[1])
        asked, here = None if query is None else query[rows], mask[rows, : points.shape[2]]
        hidden = points.flatten(0, 1)
        attention = subject.attend(hidden, here, asked).unsqueeze(1)  # as one of K: states then meet an affine decoder first
        return f[rows](subject.decode(hidden, attention, asked).squeeze(1)).view(points.shape[:2])

    return value


def baseline_vector(subject: Subject, baseline: str) -> torch.Tensor:
    """(E,): zeros, the embedding of padding, or the mean of those of the vocabulary but padding's."""
    table, padding = subject.vocabulary(), subject.pad_token_id
    if baseline == "padding":
        return table[padding]
    if baseline == "zero":
        return torch.zeros_like(table[0])
    total = table.double().sum(0)
    return total / len(table) if padding is None else (total - table[padding]) / (len(table) - 1)


def integrate(line: Line, steps: int, max_steps: int, tolerance: float) -> Parts:
    """The parts of all instances of a line, each with as many steps as it needs: see `measure`."""
    every = torch.arange(len(line.end), device=line.end.device)
    ends = line.end.new_zeros(len(every), 2, dtype=torch.float64)
    with torch.no_grad():
        sides = [0, 1] if line.reached is None else [0]
        for texts, start, change, shares in _pieces(line, every, line.end.new_tensor(sides)):
            ends[texts, : len(sides)] = line.value(start, change, shares, texts).double()
    if line.reached is not None:
        ends[:, 1] = torch.where(line.lengths > 0, line.reached, 0.0)  # of no text at all both ends are 0
    difference, scale = ends[:, 1] - ends[:, 0], ends.abs().sum(1)
    across = line.end.double() - line.start.double()
    sums, parts = torch.zeros_like(across), torch.zeros_like(across[..., 0])
    residual, used = torch.zeros_like(difference), torch.zeros_like(every)
    rows, count, nodes = every, steps, range(steps)
    while len(rows) and count <= max_steps:
        points = line.end.new_tensor([(node + 0.5) / count for node in nodes])
        for texts, slopes in _slopes(line, rows, points):
            sums[texts, : slopes.shape[1]] += slopes
        parts[rows] = (across[rows] * sums[rows] / count).sum(-1)
        residual[rows] = parts[rows].sum(-1) - difference[rows]
        used[rows] = count
        inexact = residual.abs() > tolerance * difference.abs() + ROUNDING * scale  # never where it is NaN
        rows, count = every[inexact & residual.isfinite()], REFINED * count
        nodes = [node for node in range(count) if node % REFINED != REFINED // 2]  # the middle one was taken before
    broken = ~residual.isfinite()
    parts[broken], residual[broken] = torch.nan, torch.nan
    return Parts(parts, residual, used)


def _pieces(line: Line, rows: torch.Tensor, points: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """(instances n, start (n,l,D), change (n,l,D), shares of the points) until all points of all rows are taken."""
    rows = rows[line.lengths[rows] > 0]
    together = max(1, PLACES_AT_ONCE // int(line.lengths[rows].max())) if len(rows) else 1
    for texts in rows.split(max(1, together // len(points))):
        length = int(line.lengths[texts].max())
        start, end = line.start[texts, :length], line.end[texts, :length]
        for shares in points.tensor_split(math.ceil(len(points) * len(texts) / together)):  # a small rest costs as much
            yield texts, start, end - start, shares


def _slopes(line: Line, rows: torch.Tensor, points: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(instances n, gradients (n,l,D) summed over some of the points) until all points of all rows are taken."""
    for texts, start, change, shares in _pieces(line, rows, points):
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            start = start.detach().requires_grad_()
            (slopes,) = gradients(line.value(start, change, shares, texts), [start])
        yield texts, slopes
