"""Measures by the way from a baseline to the text: integrated gradients and DeepLIFT.

Shapes: B instances, L input positions, T tokens, E embedding.
"""

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from attnfaith.importance.input_gradients import differentiable, gradients, inside, item_sums
from attnfaith.importance.quadrature import Line, integrate
from attnfaith.importance.targets import STATES, TARGET_DOC, TargetMeasure, TargetOutput, signed_score
from attnfaith.measurement.options import Baseline, Points, Tolerance
from attnfaith.measurement.registry import register
from attnfaith.record import Column
from attnfaith.subjects import Batch, SelfAttention, Subject, per_token, whole_logits
from attnfaith.subjects.base import frozen
from attnfaith.subjects.translator import CrossAttention


UNDEFINED = "where the line leaves float range, or max_steps points do not give its integral to the tolerance"
RESIDUAL = {"undefined": "where the line leaves float range", "tolerance": 2}  # what rounding and the points leave


@torch.no_grad()
def input_line(subject: Subject, batch: Batch, f: TargetOutput, baseline: str | None) -> Line:
    """The line of embeddings, from the baseline to the text."""
    embedded, lengths = subject.embed(batch), batch["attention_mask"].sum(1)
    filling = baseline_vector(subject, baseline).to(embedded)
    start = torch.where(inside(subject, batch).unsqueeze(-1), filling, embedded)

    def value(points, rows):
        return f[rows](subject.predict(batch.take(rows, points.shape[1]), points))

    return Line(start, embedded, lengths, value, f(whole_logits(subject, batch)))


@torch.no_grad()
def state_line(subject: Subject, batch: Batch, f: TargetOutput) -> Line:
    """The line of states, from states of 0."""
    hidden, mask, query = subject.encoded(batch)
    places = mask.shape[1] - mask.flip(1).to(torch.int8).argmax(1)  # up to the last that is attendable

    def value(points, rows):
        queries = None if query is None else query[rows]
        attention = subject.attend(points, mask[rows, : points.shape[1]], queries)
        return f[rows](subject.decode(points, attention, queries))

    return Line(torch.zeros_like(hidden), hidden, places, value, f(whole_logits(subject, batch)))


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

    name, cost = "integrated_gradients", "draws"
    needs = frozenset({"embeddings"})
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
        **{
            f"integrated_gradients_{number}{ending}": Column(
                **fields, needs=needs, doc=doc if not ending else "the same for encoder states"
            )
            for number, fields, doc in (
                ("residual", RESIDUAL, "sum of the tokens' parts - (f - f at the baseline), in units of f"),
                ("error", RESIDUAL, "the estimated error of the token's part that is least certain, in units of f"),
                ("steps", {"dtype": "int64"}, "points of the line at which a gradient was taken"),
            )
            for ending, needs in (("", frozenset()), ("_hidden", STATES))
        },
    }

    baseline: Baseline | None = None
    max_steps: Points = 1500
    tolerance: Tolerance = 0.01

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
    nearer to gradient times input than to the paper. `deeplift_residual` is what this misses.

    baseline: zeros, the embedding of padding, or the mean of those of the vocabulary but padding's.

    Source: Shrikumar et al. 2017, section 3.5.1 (rescale).
    """

    name, cost = "deeplift", "gradient"
    needs = frozenset({"embeddings"})
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

    def __call__(self, subject, batch) -> dict[str, list]:
        f = self.explained(subject, batch)
        line = input_line(subject, batch, f, self.baseline)
        count = len(line.end)
        rows = torch.arange(count, device=line.end.device).repeat(2)
        with differentiable(subject):
            both = torch.cat([line.end, line.start]).requires_grad_()
            with _Rescaling():
                values = f[rows](subject.predict(batch.take(rows), both))
            (slopes,) = gradients(values[:count], [both])
        shares = ((line.end - line.start) * slopes[:count]).sum(-1, dtype=torch.float64)
        parts = item_sums(shares, subject.items(batch)).masked_fill(~subject.attendable(batch), 0)
        residual = parts.sum(1) - (values[:count] - values[count:]).detach()
        return {"importance_deeplift": per_token(subject, batch, parts), "deeplift_residual": residual.tolist()}
