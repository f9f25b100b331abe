"""Measures by the way from a baseline to the text: integrated gradients and DeepLIFT.

Shapes: B instances, L input positions, T tokens, E embedding, D what a position is given as, n points, I intervals, R
instances, S shares.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from attnfaith.data.collation import by_length
from attnfaith.importance.gradients import differentiable, gradients, inside, item_sums
from attnfaith.importance.targets import STATES, TARGET_DOC, TargetMeasure, TargetOutput, signed_score
from attnfaith.measurement.options import Baseline, Points, Tolerance
from attnfaith.measurement.registry import register
from attnfaith.record import Column
from attnfaith.subjects import Batch, CrossAttention, SelfAttention, Subject, per_token, whole_logits
from attnfaith.subjects.base import frozen


UNDEFINED = "where the line leaves float range, or max_steps points do not give its integral to the tolerance"
PLACES_AT_ONCE = 2**11  # positions of texts dealt with together: with more a CPU is slower, not faster
ROUNDING = 1e-6  # of what is explained at both ends: a smaller residual or error is rounding in float32
NODES = (
    (0.991455371120812639206854697526329, 0.022935322010529224963732008058970, 0.0),
    (0.949107912342758524526189684047851, 0.063092092629978553290700663189204, 0.129484966168869693270611432679082),
    (0.864864423359769072789712788640926, 0.104790010322250183839876322541518, 0.0),
    (0.741531185599394439863864773280788, 0.140653259715525918745189590510238, 0.279705391489276667901467771423780),
    (0.586087235467691130294144691693013, 0.169004726639267902826583426598550, 0.0),
    (0.405845151377397166906606412076961, 0.190350578064785409913256402421014, 0.381830050505118944950369775488975),
    (0.207784955007898467600689403773245, 0.204432940075298892414161999234649, 0.0),
    (0.0, 0.209482141084727828012999174891714, 0.417959183673469387755102040816327),
)
"""Of the rule of Gauss and Kronrod on -1..1: node, its weight among 15 nodes, and among the 7 of Gauss. QUADPACK (1983)."""
GEOMETRIC = 2.0  # an interval whose ends differ by a larger factor is taken in the logarithm
STEEP = 1e-3  # of the way of f, what it may have gone at the first of these: a straight line has gone 1e-4
NEAR_START = tuple(10.0 ** -(4 * power) for power in range(1, 10))
"""Shares of the line at which f is read where it turns close to the start."""
RESIDUAL = {"undefined": "where the line leaves float range", "unit": "what is explained", "tolerance": 2}


class Line(NamedTuple):
    """A line for each instance, from `start` to `end` (B,L,D), of which `lengths` (B,) positions matter.

    value(points (n,l,D), rows (n,)) -> (n,): what is explained of the instances `rows`, each at its point; with gradients.
    reached (B,): what is explained at `end`.
    """

    start: torch.Tensor
    end: torch.Tensor
    lengths: torch.Tensor
    value: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    reached: torch.Tensor


class Parts(NamedTuple):
    """Parts (B,L), residual (B,), error (B,) in float64, and steps (B,) of the instances of a line."""

    parts: torch.Tensor
    residual: torch.Tensor
    error: torch.Tensor
    steps: torch.Tensor


class Intervals(NamedTuple):
    """Intervals of lines: the instance of each (I,), its ends as shares of the line (I,), what each position gets from it
    (I,L) and how far that may be off (I,L); all but rows in float64.
    """

    rows: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    parts: torch.Tensor
    errors: torch.Tensor


def integrate(line: Line, max_steps: int, tolerance: float) -> Parts:
    """Integrate the gradient along the line of each instance, with as many points as it needs.

    tolerance, max_steps: see `IntegratedGradients`.
    """
    count = len(line.end)
    intervals, difference, rounding = _begin(line)
    steps = 15 * torch.bincount(intervals.rows, minlength=count)
    while True:
        parts, errors = (
            values.new_zeros(count, values.shape[1]).index_add(0, intervals.rows, values)
            for values in (intervals.parts, intervals.errors)
        )
        error, largest, residual = errors.amax(1), parts.abs().amax(1), parts.sum(1) - difference
        uncertain = error > tolerance * largest + rounding  # never where it is NaN
        unfinished = uncertain | (residual.abs() > tolerance * torch.maximum(largest, difference.abs()) + rounding)
        worst = intervals.errors.amax(1)
        worst_of_row = torch.zeros_like(error).scatter_reduce(0, intervals.rows, worst, "amax")
        # where both rules agree and the sum is wrong, they missed something: all intervals are halved
        uneven = 4 * worst >= worst_of_row[intervals.rows]
        split = (unfinished & residual.isfinite())[intervals.rows] & (uneven | ~uncertain[intervals.rows])
        more = 30 * torch.bincount(intervals.rows[split], minlength=count)
        split &= (steps + more <= max_steps)[intervals.rows]
        if not split.any():
            break
        steps += more * (steps + more <= max_steps)
        rows, low, high, _, _ = (values[split] for values in intervals)
        middle = torch.where(_geometric(low, high), (low * high).sqrt(), (low + high) / 2)
        halves = _integrated(line, rows.repeat(2), torch.cat([low, middle]), torch.cat([middle, high]))
        intervals = Intervals(*(torch.cat([old[~split], new]) for old, new in zip(intervals, halves, strict=True)))
    broken = ~residual.isfinite()
    residual[broken], error[broken] = torch.nan, torch.nan
    parts[broken | unfinished] = torch.nan
    return Parts(parts, residual, error, steps)


def _begin(line: Line) -> tuple[Intervals, torch.Tensor, torch.Tensor]:
    """The first intervals, f at the end less f at the start (B,), and what is rounding of these (B,). An interval is a whole
    line; where f turns close to the start, four decades, down to where f no longer differs from that at the start.
    """
    lines, shares = torch.arange(len(line.end), device=line.end.device), [0.0, *NEAR_START]
    first, near = _values(line, lines, shares[:2]).unbind(1)
    last = torch.where(line.lengths > 0, line.reached, 0.0)  # of no text at all both ends are 0
    difference, rounding = last - first, ROUNDING * (first.abs() + last.abs())
    small = STEEP * difference.abs() + rounding
    turning = lines[(near - first).abs() > small]
    ends = {row: [1.0, 0.0] for row in lines.tolist()}
    for row, values in zip(turning.tolist(), _values(line, turning, shares[1:]), strict=True):
        differs = ((values - first[row]).abs() > small[row]).nonzero()
        ends[row] = [1.0, *NEAR_START[: 2 + int(differs.max())], 0.0]
    intervals = [(row, low, high) for row, bounds in ends.items() for high, low in pairwise(bounds)]
    rows, low, high = line.end.new_tensor(intervals, dtype=torch.float64).reshape(-1, 3).unbind(1)
    return _integrated(line, rows.long(), low, high), difference, rounding


@torch.no_grad()
def _values(line: Line, rows: torch.Tensor, shares: list[float]) -> torch.Tensor:
    """(R,S) float64: what is explained of each of the rows (R,) at each of the shares; 0 where there is no text."""
    values = line.end.new_zeros(len(rows), len(shares), dtype=torch.float64)
    for some, instances, points, _ in _points(line, rows, values.new_tensor(shares).expand_as(values)):
        values.view(-1)[some] = line.value(points, instances).double()
    return values


def _points(line: Line, rows: torch.Tensor, shares: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The points at shares (R,S) of the lines of the instances `rows` (R,) that have a text, some at a time: their places in
    shares.flatten(), their instances (n,), the points (n,l,D), and the whole ways (n,l,D). Texts of one length meet.
    """
    instances, shares = rows.repeat_interleave(shares.shape[1]), shares.flatten()
    places = (line.lengths[instances] > 0).nonzero().squeeze(1)
    lengths = line.lengths[instances[places]].cpu().numpy()
    for chosen in by_length(lengths, PLACES_AT_ONCE):
        length, some = int(lengths[chosen].max()), places[torch.from_numpy(chosen).to(places.device)]
        start = line.start[instances[some], :length]
        way = line.end[instances[some], :length] - start
        yield some, instances[some], start + shares[some, None, None].to(start.dtype) * way, way


def _geometric(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """(I,) bool: the intervals that are taken in the logarithm of the share."""
    return (low > 0) & (high > GEOMETRIC * low)


def _integrated(line: Line, rows: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Intervals:
    """Intervals with the parts that gradients at their nodes give, and the difference of two rules as error."""
    mirrored = [(-node, long, short) for node, long, short in NODES[:-1]]  # all but 0
    nodes, long, short = low.new_tensor([*NODES, *mirrored]).unbind(1)
    geometric, bottom, top = (values.unsqueeze(1) for values in (_geometric(low, high), low, high))
    ratio = torch.where(geometric, top / bottom, 1.0).log()
    shares = torch.where(geometric, top * (ratio * (nodes - 1) / 2).exp(), (bottom + top + (top - bottom) * nodes) / 2)
    stretch = torch.where(geometric, shares * ratio, top - bottom) / 2
    slopes = shares.new_zeros(*shares.shape, line.end.shape[1])
    for some, instances, points, way in _points(line, rows, shares):
        with differentiable():
            (slope,) = gradients(line.value(points.requires_grad_(), instances), [points])
        slopes.flatten(0, 1)[some, : way.shape[1]] = (slope.double() * way.double()).sum(-1)
    parts, less = (torch.einsum("in,inl->il", weights * stretch, slopes) for weights in (long, short))
    return Intervals(rows, low, high, parts, (parts - less).abs())


@torch.no_grad()
def input_line(subject: Subject, batch: Batch, f: TargetOutput, baseline: str | None) -> Line:
    """The line of embeddings, from the baseline to the text."""
    embedded, lengths = subject.embed(batch), batch["attention_mask"].sum(1)
    filling = baseline_vector(subject, baseline).to(embedded)
    start = torch.where(inside(subject, batch).unsqueeze(-1), filling, embedded)

    def value(points, rows):
        return f(subject.predict(batch.take(rows, points.shape[1]), points), rows)

    return Line(start, embedded, lengths, value, f(whole_logits(subject, batch)))


@torch.no_grad()
def state_line(subject: Subject, batch: Batch, f: TargetOutput) -> Line:
    """The line of states, from states of 0."""
    hidden, mask, query = subject.encoded(batch)
    places = mask.shape[1] - mask.flip(1).to(torch.int8).argmax(1)  # up to the last that is attendable

    def value(points, rows):
        queries = None if query is None else query[rows]
        attention = subject.attend(points, mask[rows, : points.shape[1]], queries)
        return f(subject.decode(points, attention, queries), rows)

    return Line(torch.zeros_like(hidden), hidden, places, value, f(whole_logits(subject, batch)))


def check_baseline(subject: Subject, baseline: str | None) -> None:
    """Raise ValueError for a baseline of padding where the model has no padding token."""
    if baseline == "padding" and subject.pad_token_id is None:
        raise ValueError("baseline='padding', and the model has no pad_token_id; choose zero or mean")


def baseline_vector(subject: Subject, baseline: str | None) -> torch.Tensor:
    """(E,): zeros, the embedding of padding, or the mean of those of the vocabulary but padding's. None: see
    `IntegratedGradients`.
    """
    table, padding = subject.vocabulary(), subject.pad_token_id
    if baseline is None:
        baseline = "mean" if isinstance(subject, SelfAttention | CrossAttention) else "zero"
    if baseline == "padding":
        return table[padding]
    if baseline == "zero":
        return torch.zeros_like(table[0])
    total = table.double().sum(0)
    return total / len(table) if padding is None else (total - table[padding]) / (len(table) - 1)


@register
class IntegratedGradients(TargetMeasure):
    """Integrated gradients (Sundararajan et al. 2017): what is explained, handed out to tokens along a line from a baseline.

    baseline: "zero", "padding" (the embedding of the padding token) or "mean" (the mean of all embeddings of the vocabulary
    but padding's). None takes "zero" for models of this package and "mean" for others: layers that divide by the length of a
    state turn ever closer to an input of zeros, in deep models closer than float32 can tell from 0.

    The rule of Gauss and Kronrod with 15 points takes the integral. Its difference from the rule of Gauss with 7 of these
    points estimates the error of each part. No token's estimate may be above `tolerance` times the largest part, nor the
    residual above `tolerance` times the larger of that and |f - f at the baseline|. Until then the least certain intervals
    are halved; a text that needs more than `max_steps` points gets NaN. Close to the start, where f may turn at a tiny share
    of the line, intervals are taken in the logarithm of the share.

    Source: Sundararajan et al. 2017, eq. 1 and 3 and proposition 1; Piessens et al. 1983, QUADPACK, section 2.2.
    """

    name, cost, needs = "integrated_gradients", "draws", frozenset({"embeddings"})
    columns = {
        "importance_integrated_gradients": signed_score(
            "sum_d (x - b)_d times the mean of df/dx_d over the line from b to x, x the embeddings of a token and b their "
            "baseline: zeros in models of this package, the mean of the vocabulary's in others, unless the option baseline "
            f"says else; {TARGET_DOC}, always of the class of the text itself; through attention. Markers, marks between "
            "sentences and a second text stay what they are, so that the parts sum to f - f at the baseline. An adaptive "
            "rule of Gauss and Kronrod takes the integral, each part right to `tolerance` times the largest",
            undefined=UNDEFINED,
        ),
        "importance_integrated_gradients_hidden": signed_score(
            f"the same of encoder states, from states of 0, whatever the baseline of embeddings; {TARGET_DOC}",
            undefined=UNDEFINED,
            needs=STATES,
        ),
        "integrated_gradients_residual": Column(doc="sum of the tokens' parts - (f - f at the baseline)", **RESIDUAL),
        "integrated_gradients_residual_hidden": Column(doc="the same for encoder states", needs=STATES, **RESIDUAL),
        "integrated_gradients_error": Column(doc="estimated error of the token's part that is least certain", **RESIDUAL),
        "integrated_gradients_error_hidden": Column(doc="the same for encoder states", needs=STATES, **RESIDUAL),
        "integrated_gradients_steps": Column(dtype="int64", doc="points of the line at which a gradient was taken"),
        "integrated_gradients_steps_hidden": Column(dtype="int64", doc="the same for encoder states", needs=STATES),
    }

    baseline: Baseline | None = None
    max_steps: Points = 1500
    tolerance: Tolerance = 0.01

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a class, or a baseline, that the model does not have."""
        check_baseline(subject, self.baseline)
        super().check(subject, dataset)

    def __call__(self, subject, batch) -> dict[str, list]:
        with frozen(subject):
            f = self.explained(subject, batch)
            lines = {"": input_line(subject, batch, f, self.baseline)}
            if "states" in subject.capabilities:
                lines["_hidden"] = state_line(subject, batch, f)
            integrals = {ending: integrate(line, self.max_steps, self.tolerance) for ending, line in lines.items()}
        columns = {}
        for ending, integral in integrals.items():
            parts = integral.parts if ending else item_sums(integral.parts, subject.items(batch))
            columns[f"importance_integrated_gradients{ending}"] = per_token(subject, batch, parts)
            for number in ("residual", "error", "steps"):
                columns[f"integrated_gradients_{number}{ending}"] = getattr(integral, number).tolist()
        return {name: columns[name] for name in self.columns if name in columns}


SAME = 1e-6  # inputs of a nonlinearity this close have a slope, not a difference: float32 would make noise of it
NONLINEARITIES = (torch.tanh, torch.Tensor.tanh, torch.sigmoid, torch.Tensor.sigmoid, torch.relu, torch.Tensor.relu)
NONLINEARITIES += (nn.functional.relu,)


class _Rescaling(TorchFunctionMode):
    """Within, the slope of tanh, sigmoid and ReLU of what has a gradient is a difference quotient: of texts and, behind
    them, of their baselines.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in NONLINEARITIES or not args[0].requires_grad:
            return func(*args, **(kwargs or {}))
        with torch.enable_grad():
            inputs = args[0].detach().requires_grad_()
            results = func(inputs)
            (slopes,) = torch.autograd.grad(results.sum(), inputs)
        (text_values, baseline_values), (high, low) = inputs.detach().chunk(2), results.detach().chunk(2)
        way = text_values - baseline_values
        multiplier = torch.where(way.abs() < SAME, slopes.chunk(2)[0], (high - low) / way)
        return results.detach() + torch.cat([multiplier, multiplier]) * (args[0] - inputs.detach())


@register
class DeepLift(TargetMeasure):
    """DeepLIFT (Shrikumar et al. 2017), rescale rule: finite differences to a baseline instead of slopes.

    Where a tanh, a sigmoid or a ReLU stands between, the multiplier m goes through it by (f(x) - f(b)) / (x - b), of the
    text and of the text with all its tokens at their baseline, as in captum. All else, such as projections, self-attention,
    layer normalisation and the steps of an LSTM or GRU, is taken by its slope at the text, so that for a BiLSTM this is
    nearer to gradient times input than to the paper. `deeplift_residual` is what this misses. baseline: see
    `integrated_gradients`.

    Source: Shrikumar et al. 2017, section 3.5.1 (rescale).
    """

    name, cost, needs = "deeplift", "gradient", frozenset({"embeddings"})
    columns = {
        "importance_deeplift": signed_score(
            "sum_d (x - b)_d m_d, x the embeddings of a token, b the option baseline, zeros unless it says else, m the "
            f"multipliers of the rescale rule; {TARGET_DOC}; through attention, by its slope at the text; markers and a "
            "second text stay what they are and have no part"
        ),
        "deeplift_residual": Column(
            dtype="float64",
            undefined="where a part is",
            unit="what is explained",
            tolerance=2,  # what rounding leaves
            doc="sum of the tokens' parts - (f - f at the baseline)",
        ),
    }

    baseline: Baseline = "zero"

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a class, or a baseline, that the model does not have."""
        check_baseline(subject, self.baseline)
        super().check(subject, dataset)

    def __call__(self, subject, batch) -> dict[str, list]:
        f = self.explained(subject, batch)
        line = input_line(subject, batch, f, self.baseline)
        count = len(line.end)
        rows = torch.arange(count, device=line.end.device).repeat(2)
        with differentiable(subject):
            both = torch.cat([line.end, line.start]).requires_grad_()
            with _Rescaling():
                values = f(subject.predict(batch.take(rows), both), rows)
            (slopes,) = gradients(values[:count], [both])
        shares = ((line.end - line.start) * slopes[:count]).sum(-1, dtype=torch.float64)
        parts = item_sums(shares, subject.items(batch)).masked_fill(~subject.attendable(batch), 0)
        residual = parts.sum(1) - (values[:count] - values[count:]).detach()
        return {"importance_deeplift": per_token(subject, batch, parts), "deeplift_residual": residual.tolist()}
