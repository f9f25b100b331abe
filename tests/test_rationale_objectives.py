"""What a selection costs, and the multiplier that holds it at a target."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from attnfaith.models.rationale_samplers import bernoulli_log_prob
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.rationales import Constraint, RationaleConfig, reinforced, selection_price


def test_the_price_of_a_selection():
    gates = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0, 0.0], [0.0] * 6])
    mask = torch.tensor([[False] + [True] * 4 + [False], [False] + [True] * 3 + [False] * 2, [False] * 6])
    price = selection_price(gates, mask, sparsity=0.1, coherence=2.0)
    torch.testing.assert_close(price, torch.tensor([0.1 * (3 + 2 * 2), 0.1 * 3, 0.0]))


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_the_gradient_is_that_of_the_expected_cost(baseline):
    """Over all selections of three tokens, each as often as it is drawn; whatever the baseline. The value is the cost's."""
    scores = torch.tensor([[0.4, -0.2, 0.9]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    mask = torch.ones(8, 3, dtype=torch.bool)
    logs = bernoulli_log_prob(scores.expand(8, -1), every, mask)
    costs = (every @ weight).square() + selection_price(every, mask, 0.1, 2.0)
    losses = reinforced(costs, logs, baseline)
    torch.testing.assert_close(losses, costs)
    own = torch.autograd.grad((logs.exp().detach() * losses).sum(), (scores, weight), retain_graph=True)
    exact = torch.autograd.grad((logs.exp() * costs).sum(), (scores, weight))
    for one, other in zip(own, exact, strict=True):
        torch.testing.assert_close(one, other)


def to_share(target, multiplier_range=None, two_sided=False, **args):
    return Constraint("share", target, SimpleNamespace(multiplier_range=multiplier_range, two_sided=two_sided, **args))


def test_the_multiplier_as_in_the_authors_code():
    """c_ma <- a c_ma + (1 - a) c; lambda <- lambda exp(rate c_ma); lambda times the constraint, with the value of c_ma."""
    constraint = to_share(0.3, multiplier_rate=0.5, decay=0.9)
    multiplier, average = 1e-4, 0.0
    expected_multiplier, expected_average = 1e-4, 0.0
    for measured in (0.9, 0.8, 0.1, 0.0, 0.0):
        multiplier, average = constraint.after(multiplier, average, measured)
        expected_average = 0.9 * expected_average + 0.1 * (measured - 0.3)
        expected_multiplier *= math.exp(0.5 * expected_average)
        assert multiplier == pytest.approx(expected_multiplier) and average == pytest.approx(expected_average)
        assert multiplier > 0
    shares = torch.tensor([0.5, 0.1, 0.6], requires_grad=True)
    losses = constraint.loss(shares, multiplier, average)
    assert losses.mean().item() == pytest.approx(multiplier * average)
    (slope,) = torch.autograd.grad(losses.mean(), shares)
    torch.testing.assert_close(slope, torch.full((3,), multiplier / 3))


def test_one_side_fades_and_two_sides_pull():
    """Nothing is selected: the authors' multiplier falls towards 0, the other one becomes negative."""
    reached = {}
    for two_sided in (False, True):
        constraint = to_share(0.3, multiplier_rate=0.5, decay=0.5, two_sided=two_sided)
        multiplier, average = 1e-3, 0.0
        for _ in range(50):
            multiplier, average = constraint.after(multiplier, average, 0.0)
        reached[two_sided] = multiplier
    assert 0 < reached[False] < 1e-3 and reached[True] < -1


@pytest.mark.parametrize(("measured", "multiplier"), [(float("nan"), 1.0), (1.0, float("nan")), (1.0, 1e308)])
def test_a_multiplier_that_is_no_number_is_refused(measured, multiplier):
    constraint = to_share(0.1, multiplier_rate=1e3, decay=0.0)
    with pytest.raises(
        AttnfaithError, match="^the multiplier of selection.share is (nan|inf) .*lower selection.multiplier_rate"
    ):
        constraint.after(multiplier, 0.0, measured)


@pytest.mark.parametrize(("key", "value"), [("multiplier", 0.0), ("multiplier_range", [2.0, 1.0])])
def test_options_out_of_their_range(key, value, tmp_path):
    with pytest.raises(ValueError, match=key):
        RationaleConfig(str(tmp_path), **{key: value})
