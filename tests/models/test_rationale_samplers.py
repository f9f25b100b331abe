"""Samplers of rationales against closed forms, numerical integrals, draws, and every selection there is."""

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, special

from attnfaith.models import rationale_samplers as samplers


SHAPES = [(0.3, 0.4), (0.5, 3.0), (1.0, 1.0), (2.0, 0.7), (4.0, 5.0)]


def whole(*shape):
    return torch.ones(shape, dtype=torch.bool)


def shapes():
    a, b = torch.tensor(SHAPES, dtype=torch.float64).unbind(-1)
    return a.unsqueeze(0), b.unsqueeze(0)


def test_bernoulli_draws_and_probabilities():
    torch.manual_seed(0)
    scores = torch.tensor([[-1.5, 0.0, 2.0, 5.0]], dtype=torch.float64).expand(40_000, -1)
    mask = torch.tensor([[True, True, True, False]]).expand_as(scores)
    gates = samplers.bernoulli_sample(scores, mask)
    assert set(gates.unique().tolist()) == {0.0, 1.0} and not gates[:, 3].any()
    torch.testing.assert_close(gates.mean(0)[:3], scores[0, :3].sigmoid(), atol=0.01, rtol=0)
    everything = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    everything = torch.cat([everything, torch.zeros(8, 1)], 1)
    logs = samplers.bernoulli_log_prob(scores[:8], everything, mask[:8])
    assert logs.max() <= 0 and float(logs.exp().sum()) == pytest.approx(1)
    p = scores[0, :3].sigmoid()
    assert float(logs[0].exp()) == pytest.approx(float((1 - p).prod()))


def density(value, a, b):
    return a * b * value ** (a - 1) * (1 - value**a) ** (b - 1)


def test_kuma_against_integrals():
    a, b = shapes()
    for value in (0.05, 0.4, 1 / 12, 11 / 12):
        expected = [integrate.quad(density, 0, value, args=pair)[0] for pair in SHAPES]
        np.testing.assert_allclose(samplers.kuma_cdf(value, a, b)[0], expected, atol=1e-6)
    expected = [pair[1] * special.beta(1 + 1 / pair[0], pair[1]) for pair in SHAPES]
    np.testing.assert_allclose(samplers.kuma_mean(a, b)[0], expected, rtol=1e-12)
    integrals = [integrate.quad(lambda value, pair=pair: value * density(value, *pair), 0, 1)[0] for pair in SHAPES]
    np.testing.assert_allclose(expected, integrals, atol=1e-5)


def test_hardkuma_against_draws():
    """Shares of zeros and ones, and the number selected, of 200,000 texts."""
    torch.manual_seed(1)
    a, b = (values.expand(200_000, -1) for values in shapes())
    mask = whole(*a.shape)
    gates = samplers.hardkuma_sample(a, b, mask)
    assert bool(((gates >= 0) & (gates <= 1)).all())
    # uniform numbers are drawn from the inner 99.8 %, as the authors draw them
    torch.testing.assert_close((gates == 0).double().mean(0), samplers.hardkuma_zero(a, b)[0], atol=4e-3, rtol=0)
    torch.testing.assert_close((gates == 1).double().mean(0), samplers.hardkuma_one(a, b)[0], atol=4e-3, rtol=0)
    selected = (gates > 0).double()
    share = samplers.expected_share(a, b, mask)[0]
    assert float(selected.mean()) == pytest.approx(float(share), abs=2e-3)


def test_hardkuma_at_test_time():
    """The likeliest of 0, 1 and all between; then the mean of what was not stretched."""
    a = torch.tensor([[0.1, 5.0, 1.0, 3.0]], dtype=torch.float64)
    b = torch.tensor([[5.0, 0.1, 1.0, 3.0]], dtype=torch.float64)
    value = samplers.hardkuma_value(a, b, whole(1, 4))[0]
    mean = 3 * special.beta(1 + 1 / 3, 3)
    np.testing.assert_allclose(value, [0, 1, 0.5, mean], rtol=1e-12)
    assert not samplers.hardkuma_value(a, b, ~whole(1, 4)).any()


def test_hardkuma_stays_finite_at_the_ends():
    scores = torch.tensor([[[-1e4, -1e4], [1e4, 1e4], [-1e4, 1e4], [1e4, -1e4], [0.0, 0.0]]], requires_grad=True)
    a, b = samplers.kuma_shape(scores)
    for function in (samplers.hardkuma_sample, samplers.expected_share, samplers.hardkuma_value):
        result = function(a, b, whole(1, 5))
        (slope,) = torch.autograd.grad(result.sum(), scores, retain_graph=True)
        assert bool(result.isfinite().all()) and bool(slope.isfinite().all())


def test_no_selection_is_better_than_the_solution():
    """Of 10 tokens: the condition that makes it the largest, over all selections; texts of several lengths at once."""
    torch.manual_seed(3)
    lengths, counts = (10, 7, 1, 0), torch.tensor([3, 7, 1, 0])
    scores = torch.randn(4, 10, dtype=torch.float64)
    mask = torch.arange(10) < torch.tensor(lengths)[:, None]
    gates = samplers.budget(scores, mask, counts).numpy()
    for row, (length, count) in enumerate(zip(lengths, counts.tolist(), strict=True)):
        assert not gates[row, length:].any() and (gates[row] >= 0).all() and gates[row].sum() <= count + 1e-9
        rows = np.array([*itertools.product((0.0, 1.0), repeat=length)]).reshape(2**length, length)
        slope = scores[row, :length].numpy() - gates[row, :length]
        assert (rows[rows.sum(1) <= count] @ slope).max() <= gates[row, :length] @ slope + 1e-8


@pytest.mark.parametrize("count", [1, 2, 7])
def test_budget_gradients(count):
    torch.manual_seed(count)
    scores = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 7, [False] + [True] * 4 + [False] * 2, [True] + [False] * 6])
    counts = torch.minimum(torch.tensor([count] * 3), mask.sum(1))
    assert torch.autograd.gradcheck(lambda scores: samplers.budget(scores, mask, counts), scores, eps=1e-7)


def test_values_that_only_rounding_parts_are_equal():
    values = torch.tensor([[0.5 - 1e-7, 0.5, 0.1, 0.5 + 1e-7, 0.5, 0.49]])
    for count in range(7):
        chosen = samplers.hardened(values, whole(1, 6), torch.tensor([count]))[0].nonzero().flatten().tolist()
        assert chosen == sorted([0, 1, 3, 4, 5, 2][:count])
    apart = torch.tensor([[0.5, 0.5 + 1e-4]])
    assert samplers.hardened(apart, whole(1, 2), torch.tensor([1])).tolist() == [[False, True]]
