"""DeepLIFT (Shrikumar et al. 2017), rescale rule: finite differences to a baseline instead of slopes, through captum."""

import warnings

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from attnfaith.importance._captum import captum
from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import inside, item_sums, without_parameters
from attnfaith.importance.integrated_gradients import BASELINES, baseline_vector, check_baseline
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks, whole_logits


COLUMNS = {
    "importance_deeplift": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where f or a slope is not finite",
        doc="the token's part of f - f at the baseline, f what is explained",
    ),
    "deeplift_residual": Column(
        dtype="float64",
        undefined="where a part is",
        unit="what is explained",
        tolerance=2,  # what rounding leaves
        doc="sum of the tokens' parts - (f - f at the baseline)",
    ),
}
NEEDS = frozenset({"embeddings"})
COST = "gradient"

SAME = 1e-6  # inputs of a nonlinearity this close have a slope, not a difference: float32 would make noise of it


def check(*, target="predicted", output: str = "logit", baseline: str = "zero") -> None:
    """Raises ValueError for a target, an output or a baseline that there is not, and where captum is not installed."""
    check_target(target, output)
    if baseline not in BASELINES:
        raise ValueError(f"baseline={baseline!r} is not known; choose one of {', '.join(BASELINES)}")
    captum()


def check_model(subject, dataset, *, target="predicted", output: str = "logit", baseline: str = "zero") -> None:
    """Raises ValueError without captum, for a class that the model does not have or an instance may not be given, and for
    baseline="padding" where the model has no padding token.
    """
    captum()
    check_baseline(subject, baseline)
    check_data(subject, dataset, target=target, output=output)


@asks(NEEDS)
def measure(
    subject, batch, *, seed: int = 0, target="predicted", output: str = "logit", baseline: str = "zero"
) -> dict[str, list]:
    """sum_d (x - b)_d m_d for each token, in units of f: x its embedding, b the baseline's, m the multipliers of DeepLIFT.

    Where a tanh, a sigmoid or a ReLU stands between, m goes through it by (f(x) - f(b)) / (x - b), of the text and of the
    text with all its tokens at their baseline, instead of by its slope. captum has this rule for nothing else that is in
    these models: what projections, self-attention, layer normalisation, GELU and SiLU, products with attention, and the
    steps of an LSTM or GRU do is taken by its slope at the text, so that for a BiLSTM this is nearer to gradient times input
    than to the paper. The part of f - f at the baseline that is missed by this is `deeplift_residual`; it is 0 for a model
    of dense layers, nonlinearities and uniform attention.

    b: zeros, the embedding of padding, or the mean of those of the vocabulary but padding's; markers and a second text stay
    what they are, and have no part. f is what `_explained.explaining` makes of target and output. Of a hierarchical model a
    sentence's is the sum over all its words. Signed: a token ranks high as evidence for what is explained. Raises
    ValueError as `check`, `check_model` and `_explained.explaining` say.

    Source: Shrikumar et al. 2017, section 3.5.1 (rescale); captum's `DeepLift`.
    """
    check(target=target, output=output, baseline=baseline)
    check_baseline(subject, baseline)
    mask = subject.attendable(batch)
    with torch.no_grad():
        f = explaining(whole_logits(subject, batch), batch, target, output)
        embedded = subject.embed(batch)
        of_items = inside(subject, batch).unsqueeze(-1)
        start = torch.where(of_items, baseline_vector(subject, baseline).to(embedded), embedded)
    with without_parameters(subject), torch.backends.cudnn.flags(enabled=False):
        view = _View(lambda points: _value(subject, batch, f, points))
        view.find(embedded.requires_grad_())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that hooks are set, and removed
            shares = captum().DeepLift(view, eps=SAME).attribute(embedded, start)
    with torch.no_grad():
        shares = item_sums(shares.sum(-1, dtype=torch.float64), subject.items(batch))
        ends = _value(subject, batch, f, torch.cat([start, embedded])).unflatten(0, (2, -1))
    of_tokens = shares.masked_fill(~mask, 0)
    residual = of_tokens.sum(1) - (ends[1] - ends[0])
    return dict(zip(COLUMNS, (ragged(of_tokens.float().cpu(), mask.cpu()), residual.tolist()), strict=True))


def _value(subject, batch, f, points) -> torch.Tensor:
    """What is explained (N,) at embeddings (N,L,E): those of the batch's B instances, then of the same anew, and so on."""
    rows = torch.arange(len(batch["input_ids"]), device=points.device).repeat(len(points) // len(batch["input_ids"]))
    values = f[rows](subject.predict(batch.take(rows), points))
    return values + 0 * points.sum((1, 2))  # so that what does not depend on its text has a gradient, too


class _View(nn.Module):
    """A function of embeddings as captum wants it: each of its nonlinearities a module of its own, used once.

    `find` runs the function to see which there are; then calls give the same values by way of these modules. Which they are
    must not depend on the values.
    """

    def __init__(self, value):
        super().__init__()
        self.value = value
        self.nonlinearities = nn.ModuleList()

    def find(self, points) -> None:
        """Makes the modules, for the nonlinearities that gradients in points (B,L,E) go through."""
        with torch.enable_grad(), _Routed(self._make):
            self.value(points)

    def _make(self, kind, values):
        self.nonlinearities.append(kind())
        return self.nonlinearities[-1](values)

    def forward(self, points):
        waiting = iter(self.nonlinearities)
        with _Routed(lambda _kind, values: next(waiting)(values)):
            return self.value(points)


class _Routed(TorchFunctionMode):
    """Sends tanh, sigmoid and ReLU of what has a gradient to `route`, which is given the kind of module and the values."""

    KINDS = {
        torch.tanh: nn.Tanh,
        torch.Tensor.tanh: nn.Tanh,
        torch.sigmoid: nn.Sigmoid,
        torch.Tensor.sigmoid: nn.Sigmoid,
        torch.relu: nn.ReLU,
        torch.Tensor.relu: nn.ReLU,
        nn.functional.relu: nn.ReLU,
    }

    def __init__(self, route):
        super().__init__()
        self.route = route

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in self.KINDS and args[0].requires_grad:
            return self.route(self.KINDS[func], args[0])
        return func(*args, **(kwargs or {}))
