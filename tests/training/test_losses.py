"""The training losses against torch's own, the metric's and by hand: of labels, adversaries and selections."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import rel_entr
from torch.nn.functional import binary_cross_entropy_with_logits

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.models.rationale_samplers import bernoulli_log_prob
from attnfaith.training.losses import (
    adversarial_loss,
    balancing_weights,
    classification_loss,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from attnfaith.training.rationales import moved_multiplier, reinforced, selection_price


def test_two_classes_are_the_weighted_binary_loss():
    """Jain & Wallace: one logit, BCE with positives weighted by N_neg / N_pos, summed over the batch."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(40, 2, generator=generator) * 5, torch.randint(2, (40,), generator=generator)
    losses = classification_loss(logits, labels, torch.tensor([1.0, 7.0])).sum()
    single, weight = logits[:, 1] - logits[:, 0], torch.tensor(7.0)
    expected = binary_cross_entropy_with_logits(single, labels.float(), pos_weight=weight, reduction="sum")
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-4)
    assert balancing_weights(torch.tensor([0] * 6 + [1] * 2 + [2] * 12), 3).tolist() == [1.0, 3.0, 0.5]


@pytest.mark.parametrize(
    ("divergence", "expected"),
    # the two divergences from the average are equal
    [("kl", 0.8 * math.log(4) + 0.2 * math.log(0.25)), ("jsd", 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5))],
)
def test_the_adversary_by_hand(divergence, expected):
    """p = (.5, .5) against (.9, .1), attention (.8, .2) against (.2, .8)."""
    tensors = [torch.zeros(1, 2), *(torch.tensor([row]) for row in ([0.9, 0.1], [0.8, 0.2, 0.0], [0.2, 0.8, 0.0]))]
    actual = adversarial_loss(*tensors, weight=0.25, divergence=divergence)
    torch.testing.assert_close(actual, torch.tensor([0.4 - 0.25 * expected]))


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_divergences_are_those_of_the_metric_and_scipy(zeros):
    draws = np.random.default_rng(1)
    mask = np.arange(6) < np.r_[draws.integers(1, 7, 59), 0][:, None]
    pair = []
    for _ in range(2):
        weights = np.exp(2 * draws.normal(size=mask.shape)) * mask
        weights *= (draws.random(mask.shape) >= zeros) | (weights == weights.max(1, keepdims=True))
        pair.append(weights / weights.sum(1, keepdims=True).clip(1e-300))
    texts = [[row[inside] for row, inside in zip(weights, mask, strict=True)] for weights in pair]
    references = {
        jensen_shannon: jensen_shannon_divergence(*texts),
        kullback_leibler: np.array([rel_entr(p, q).sum() for p, q in zip(*texts, strict=True)]),
    }
    for divergence, expected in references.items():
        values = divergence(*map(torch.tensor, pair))
        assert float(values[-1]) == 0  # the text without tokens
        np.testing.assert_allclose(values[:-1], expected[:-1], atol=1e-12)
        single = divergence(*(torch.tensor(weights).float() for weights in pair))
        np.testing.assert_allclose(single[:-1], expected[:-1], atol=2e-6, rtol=1e-5)
    assert np.isinf(references[kullback_leibler]).any() == (zeros > 0)
    probs = draws.dirichlet(np.ones(3), (2, 9))
    np.testing.assert_allclose(total_variation(*map(torch.tensor, probs)), total_variation_distance(*probs), atol=1e-12)


@pytest.mark.parametrize(
    ("attention", "base_attention", "divergence"),
    [
        ([0.0, 1.0, 0.0], [0.3, 0.7, 0.0], "kl"),  # the last place is padding
        ([0.0, 1.0, 0.0], [0.0, 0.5, 0.5], "jsd"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "jsd"),
        ([1.0, 1e-45, 0.0], [1e-45, 1.0, 0.0], "kl"),
    ],
)
def test_zeros_and_saturated_predictions_have_finite_gradients(attention, base_attention, divergence):
    attention, base_attention = torch.tensor([attention], requires_grad=True), torch.tensor([base_attention])
    logits, base_probs = torch.tensor([[-200.0, 200.0]], requires_grad=True), torch.tensor([[0.0, 1.0]])
    loss = adversarial_loss(logits, base_probs, attention, base_attention, weight=0.5, divergence=divergence)
    loss.sum().backward()
    assert loss.isfinite().all() and logits.grad.isfinite().all() and attention.grad.isfinite().all()


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_the_gradient_is_that_of_the_expected_cost(baseline):
    """Over all selections of three tokens, each as often as it is drawn; whatever the baseline. The value is the cost's."""
    scores = torch.tensor([[0.4, -0.2, 0.9]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    draws = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    mask = torch.ones(8, 3, dtype=torch.bool)
    prices = selection_price(draws, mask, 0.1, 2.0)
    torch.testing.assert_close(prices[[0, 1, 5, 7]], torch.tensor([0, 1 + 2, 2 + 2 * 2, 3]).double() / 10)
    without_marker = selection_price(draws[[5]], torch.tensor([[False, True, True]]), 0.1, 2.0)
    assert float(without_marker) == pytest.approx(0.1 * (1 + 2))
    logs = bernoulli_log_prob(scores.expand(8, -1), draws, mask)
    costs = (draws @ weight).square() + prices
    losses = reinforced(costs, logs, baseline)
    torch.testing.assert_close(losses, costs)
    slopes = torch.autograd.grad((logs.exp().detach() * losses).sum(), (scores, weight), retain_graph=True)
    exact = torch.autograd.grad((logs.exp() * costs).sum(), (scores, weight))
    for slope, expected in zip(slopes, exact, strict=True):
        torch.testing.assert_close(slope, expected)


def after(multiplier, average, measured, **args):
    """Multiplier and moving average after a batch, for a target of 0.3."""
    return moved_multiplier(
        SimpleNamespace(**{"multiplier_range": None, "share": 0.3, **args}), multiplier, average, measured
    )


def test_the_multiplier_as_in_the_authors_code():
    """c_ma <- a c_ma + (1 - a) c; lambda <- lambda exp(rate c_ma). Where nothing is selected it falls towards 0."""
    multiplier, average = 1e-4, 0.0
    expected_multiplier, expected_average = 1e-4, 0.0
    for measured in (0.9, 0.8, 0.1, 0.0, 0.0):
        multiplier, average = after(multiplier, average, measured, multiplier_rate=0.5, decay=0.9)
        expected_average = 0.9 * expected_average + 0.1 * (measured - 0.3)
        expected_multiplier *= math.exp(0.5 * expected_average)
        assert multiplier == pytest.approx(expected_multiplier) and average == pytest.approx(expected_average)
    for _ in range(50):
        multiplier, average = after(multiplier, average, 0.0, multiplier_rate=0.5, decay=0.9)
    assert 0 < multiplier < 1e-4
    assert after(2.0, 0.0, 1.0, multiplier_rate=9.0, decay=0.0, multiplier_range=[0.5, 3.0])[0] == 3.0


def multiplied(measured, multiplier):
    return after(multiplier, 0.0, measured, multiplier_rate=1e3, decay=0.0)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (multiplied, {"measured": float("nan"), "multiplier": 1.0}, "selection.share is nan"),
        (multiplied, {"measured": 1.0, "multiplier": 1e308}, "selection.share is inf"),
        (balancing_weights, {"labels": torch.tensor([0, 0]), "num_labels": 2}, "class .1."),
    ],
)
def test_refusals(function, options, message):
    with pytest.raises(ValueError, match=message):
        function(**options)
