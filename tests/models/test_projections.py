"""Projections against closed forms by hand, against the enumeration of supports, and by properties."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.models import projections
from attnfaith.models.projections import PROJECTIONS, project


PARAMETERS = {
    "sparsegen": [{"sparsegen_lambda": value} for value in (-1.0, 0.0, 0.9)],
    "entmax": [{"entmax_alpha": value} for value in (1, 1.25, 2, 3.0)],
}
CASES = [
    pytest.param(name, parameters, id=name + "".join(f"({value})" for value in parameters.values()))
    for name in PROJECTIONS
    for parameters in PARAMETERS.get(name, [{}])
]
everything = pytest.mark.parametrize(("name", "parameters"), CASES)
every_that_reads_scores = pytest.mark.parametrize(
    ("name", "parameters"), [case for case in CASES if case.values[0] != "uniform"]
)


def apply(scores, name, mask=None, **parameters):
    scores = torch.as_tensor(scores)
    mask = torch.ones(scores.shape, dtype=torch.bool) if mask is None else torch.as_tensor(mask, dtype=torch.bool)
    defaults = {"sparsegen_lambda": 0.0, "entmax_alpha": 1.5}
    return project(scores, mask, SimpleNamespace(projection=name, **{**defaults, **parameters}))


def double(values):
    return torch.tensor(values, dtype=torch.float64)


BY_HAND = [
    ("softmax", {}, [0.0, np.log(2.0), np.log(5.0)], [1 / 8, 2 / 8, 5 / 8]),
    ("uniform", {}, [3.0, -7.0, 0.1], [1 / 3, 1 / 3, 1 / 3]),
    # support {1, .8}: tau = (1.8 - 1) / 2 = .4
    ("sparsemax", {}, [1.0, 0.8, 0.1], [0.6, 0.4, 0.0]),
    ("sparsemax", {}, [0.5, 0.4, 0.3], [1 / 3 + 0.1, 1 / 3, 1 / 3 - 0.1]),
    ("sparsegen", {"sparsegen_lambda": 0.0}, [1.0, 0.8, 0.1], [0.6, 0.4, 0.0]),
    # tau = (1.8 - 1 + .5) / 2 = .65, divided by 1 - .5
    ("sparsegen", {"sparsegen_lambda": 0.5}, [1.0, 0.8, 0.1], [0.7, 0.3, 0.0]),
    # one-hot from lambda = 1 - (1 - .8) on
    ("sparsegen", {"sparsegen_lambda": 0.8}, [1.0, 0.8, 0.1], [1.0, 0.0, 0.0]),
    # all three, tau = (1.9 - 1 - 1) / 3 = -.1 / 3, divided by 2
    ("sparsegen", {"sparsegen_lambda": -1.0}, [1.0, 0.8, 0.1], [3.1 / 6, 2.5 / 6, 0.4 / 6]),
    # 1.5: p = (z / 2 - tau)^2. Two equal scores: 1/2 each. z = (0, d): sqrt(p) differ by d / 2
    ("entmax15", {}, [0.3, 0.3], [0.5, 0.5]),
    ("entmax15", {}, [0.4, 0.0], [((0.2 + np.sqrt(2 - 0.04)) / 2) ** 2, ((-0.2 + np.sqrt(2 - 0.04)) / 2) ** 2]),
    ("entmax15", {}, [2.0, 0.0, -1.0], [1.0, 0.0, 0.0]),
    # 3: p = sqrt(2 z - tau); p1^2 - p2^2 = 2 d and p1 + p2 = 1, so p1 - p2 = 2 d
    ("entmax", {"entmax_alpha": 3.0}, [0.2, 0.0], [0.7, 0.3]),
]


@pytest.mark.parametrize(("name", "parameters", "scores", "expected"), BY_HAND)
def test_closed_form(name, parameters, scores, expected):
    np.testing.assert_allclose(apply(double(scores), name, **parameters), expected, atol=1e-12)


def sparsegen_by_enumeration(scores, lam):
    """Try every support: the stationary point on it that is positive and that has the least objective."""
    best, best_value = None, np.inf
    for size in range(1, len(scores) + 1):
        for support in map(list, combinations(range(len(scores)), size)):
            p = np.zeros(len(scores))
            p[support] = (scores[support] - (scores[support].sum() - 1 + lam) / size) / (1 - lam)
            value = ((p - scores) ** 2).sum() - lam * (p**2).sum()
            if (p[support] >= 0).all() and value < best_value:
                best, best_value = p, value
    return best


@pytest.mark.parametrize("lam", [-100.0, -1.0, 0.0, 0.5, 0.9])
def test_sparsegen_solves_its_problem(lam):
    for seed in range(5):
        scores = np.random.default_rng(seed).normal(size=6)
        ours = apply(scores, "sparsegen", sparsegen_lambda=lam).numpy()
        np.testing.assert_allclose(ours, sparsegen_by_enumeration(scores, lam), atol=1e-12)


@everything
def test_masked_is_truncated(name, parameters):
    scores = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores[:, 5:] += 30  # what is blocked would win
    mask = (torch.arange(9) < 5).expand(4, 9)
    weights = apply(scores, name, mask, **parameters)
    torch.testing.assert_close(weights[:, :5], apply(scores[:, :5], name, **parameters), atol=1e-10, rtol=0)
    assert (weights[:, 5:] == 0).all()


@everything
@pytest.mark.parametrize("blocked", [1e4, float("inf"), float("-inf"), float("nan")])
def test_row_without_allowed_token(name, parameters, blocked):
    scores = torch.tensor([[0.3, -1.0, 2.0], [0.3, blocked, 2.0], [0.1, 0.2, 0.3]], requires_grad=True)
    mask = torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 1]]).bool()
    weights = apply(scores, name, mask, **parameters)
    assert weights[0].tolist() == [0, 0, 0]
    torch.testing.assert_close(weights[1:].sum(-1), torch.ones(2))
    if weights.requires_grad:  # uniform does not look at the scores
        (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        assert torch.isfinite(scores.grad).all()
        assert scores.grad[0].tolist() == [0, 0, 0] and scores.grad[1, 1] == 0


@everything
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sums_to_one_in_float32(name, parameters, dtype):
    for length in (1, 7, 500):
        scores = (3 * torch.randn(6, length, generator=torch.Generator().manual_seed(0))).to(dtype)
        weights = apply(scores, name, **parameters)
        assert weights.dtype == torch.float32 and (weights >= 0).all()
        torch.testing.assert_close(weights.double().sum(-1), torch.ones(6).double(), atol=1e-6, rtol=0)


@every_that_reads_scores
def test_broken_scores_are_not_hidden(name, parameters):
    for broken in (float("nan"), float("inf")):
        weights = apply(torch.tensor([[0.1, broken, 0.3], [0.1, 0.2, 0.3]]), name, **parameters)
        assert weights[0].isnan().all()
        torch.testing.assert_close(weights[1], apply(torch.tensor([0.1, 0.2, 0.3]), name, **parameters))


@every_that_reads_scores
def test_gradient(name, parameters):
    # distinct scores, away from the kinks at which a support changes
    scores = double([[0.31, 0.05, -0.22, 0.47, 5.0], [1.4, -0.6, 0.15, 0.83, 0.02]]).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 1, 1]]).bool()
    assert torch.autograd.gradcheck(lambda z: apply(z, name, mask, **parameters), scores, atol=1e-6)


numbers = st.floats(-50, 50, allow_nan=False, width=32)


@everything
@settings(max_examples=25)
@given(data=st.data())
def test_properties(name, parameters, data):
    """A point of the simplex; equivariant under permutation; blind to a constant; larger score, no smaller weight."""
    values = data.draw(st.lists(numbers, min_size=1, max_size=8))
    allowed = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    order = data.draw(st.permutations(range(len(values))))
    scores, mask = double(values), torch.tensor(allowed)
    weights = apply(scores, name, mask, **parameters)
    assert (weights >= 0).all() and (weights[~mask] == 0).all()
    assert weights.sum().item() == pytest.approx(float(any(allowed)), abs=1e-9)
    torch.testing.assert_close(apply(scores[order], name, mask[order], **parameters), weights[order], atol=1e-9, rtol=0)
    torch.testing.assert_close(apply(scores + 7.5, name, mask, **parameters), weights, atol=1e-9, rtol=0)
    ranked = weights[mask][scores[mask].argsort()]
    assert (ranked.diff() >= -1e-9).all()


def test_sparse_projections_need_the_entmax_package(monkeypatch):
    monkeypatch.setattr(projections, "entmax", None)
    for name in ("sparsemax", "sparsegen", "entmax15", "entmax"):
        with pytest.raises(ImportError, match="pip install entmax"):
            apply(torch.zeros(3), name, entmax_alpha=1.25)
    for name in ("softmax", "uniform"):
        torch.testing.assert_close(apply(torch.zeros(2), name), torch.tensor([0.5, 0.5]))
