"""The training losses against torch's own, the metric's and by hand: of labels, adversaries and selections."""

import itertools
import math
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import rel_entr
from torch.nn.functional import binary_cross_entropy_with_logits

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.models.rationale_samplers import bernoulli_log_prob
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import RationaleConfig
from attnfaith.training.losses import (
    adversarial_loss,
    balancing_weights,
    classification_loss,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)
from attnfaith.training.rationales import Constraint, reinforced, selection_price


@pytest.mark.parametrize("weight", [1.0, 0.91358, 7.0])
def test_two_classes_are_the_weighted_binary_loss(weight):
    """Jain & Wallace: one logit, BCE with positives weighted by N_neg / N_pos, summed over the batch."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(40, 2, generator=generator) * 5, torch.randint(2, (40,), generator=generator)
    ours = classification_loss(logits, labels, torch.tensor([1.0, weight])).sum()
    single = logits[:, 1] - logits[:, 0]
    theirs = binary_cross_entropy_with_logits(single, labels.float(), pos_weight=torch.tensor(weight), reduction="sum")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


def test_balancing_weights():
    weights = balancing_weights(torch.tensor([0] * 6 + [1] * 2 + [2] * 12), 3)
    torch.testing.assert_close(weights, torch.tensor([1.0, 3.0, 0.5]))


# ------------------------------------------------------------------------------------------------ adversaries


def adversary_batch(count=12, tokens=6, classes=3, seed=0, zeros=0.0):
    """logits, base_probs, attention, base_attention, mask in float64; rows of 1..tokens tokens, and a row without any."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, tokens + 1, (count,), generator=generator)
    lengths[-1] = 0
    mask = torch.arange(tokens) < lengths.unsqueeze(1)

    def weights():
        values = draw(count, tokens).mul(2).exp() * mask
        drop = torch.rand(count, tokens, generator=generator) < zeros
        values = values.masked_fill(drop & (values < values.amax(-1, keepdim=True)), 0)
        return values / values.sum(-1, keepdim=True).clamp(min=1e-300)

    return draw(count, classes), draw(count, classes).softmax(-1), weights(), weights(), mask


@pytest.mark.parametrize(
    ("divergence", "expected"),
    # the two divergences from the average are equal
    [("kl", 0.8 * log(4) + 0.2 * log(0.25)), ("jsd", 0.8 * log(0.8 / 0.5) + 0.2 * log(0.2 / 0.5))],
)
def test_the_adversary_by_hand(divergence, expected):
    """p = (.5, .5) against (.9, .1), attention (.8, .2) against (.2, .8)."""
    tensors = [torch.zeros(1, 2), *(torch.tensor([row]) for row in ([0.9, 0.1], [0.8, 0.2, 0.0], [0.2, 0.8, 0.0]))]
    actual = adversarial_loss(*tensors, torch.tensor([[True, True, False]]), weight=0.25, divergence=divergence)
    torch.testing.assert_close(actual, torch.tensor([0.4 - 0.25 * expected]))


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_divergences_are_those_of_the_metric_and_scipy(zeros):
    logits, base_probs, attention, base_attention, mask = adversary_batch(count=60, seed=1, zeros=zeros)
    pairs = [[row[inside].numpy() for row, inside in zip(x, mask, strict=True)] for x in (attention, base_attention)]
    references = {
        jensen_shannon: jensen_shannon_divergence(*pairs),
        kullback_leibler: np.array([rel_entr(p, q).sum() for p, q in zip(*pairs, strict=True)]),
    }
    for divergence, expected in references.items():
        assert float(divergence(attention, base_attention)[-1]) == 0  # the text without tokens
        np.testing.assert_allclose(divergence(attention, base_attention)[:-1], expected[:-1], atol=1e-12)
        single = divergence(attention.float(), base_attention.float())[:-1]
        np.testing.assert_allclose(single, expected[:-1], atol=2e-6, rtol=1e-5)
    assert np.isinf(references[kullback_leibler]).any() == (zeros > 0)
    probs = logits.softmax(-1)
    expected = total_variation_distance(probs.numpy(), base_probs.numpy())
    np.testing.assert_allclose(total_variation(probs, base_probs), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("attention", "base_attention", "divergence"),
    [
        ([0.0, 1.0, 0.0], [0.3, 0.7, 0.0], "kl"),  # the last place is padding
        ([0.0, 1.0, 0.0], [0.0, 0.5, 0.5], "jsd"),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "jsd"),
        ([1.0, 1e-45, 0.0], [1e-45, 1.0, 0.0], "kl"),
        ([1.0, 1e-45, 0.0], [0.0, 1.0, 0.0], "jsd"),
    ],
)
@pytest.mark.parametrize("logit", [0.0, 200.0])
def test_zeros_and_saturated_predictions_have_finite_gradients(attention, base_attention, divergence, logit):
    attention, base_attention = torch.tensor([attention], requires_grad=True), torch.tensor([base_attention])
    logits = torch.tensor([[-logit, logit]], requires_grad=True)
    mask = base_attention > 0 if divergence == "kl" else torch.ones(1, 3, dtype=torch.bool)
    base_probs = torch.tensor([[0.0, 1.0]])
    loss = adversarial_loss(logits, base_probs, attention, base_attention, mask, weight=0.5, divergence=divergence)
    loss.sum().backward()
    assert loss.isfinite().all() and logits.grad.isfinite().all() and attention.grad.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"divergence": "tvd"}, "divergence='tvd' is not known; choose one of kl, jsd"),
        ({"weight": 0.0}, "weight=0.0 must be a finite number above 0"),
        ({"weight": float("nan")}, "weight=nan must be"),
        ({"zeros": 0.5}, "base's attention to a token is exactly 0.*use divergence 'jsd'"),
    ],
)
def test_adversaries_that_are_refused(change, message):
    tensors = adversary_batch(seed=6, zeros=change.pop("zeros", 0.0))
    with pytest.raises(ValueError, match=message):
        adversarial_loss(*tensors, **{"weight": 0.1, **change})


# ------------------------------------------------------------------------------------------------ selections


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
    draws = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    mask = torch.ones(8, 3, dtype=torch.bool)
    logs = bernoulli_log_prob(scores.expand(8, -1), draws, mask)
    costs = (draws @ weight).square() + selection_price(draws, mask, 0.1, 2.0)
    losses = reinforced(costs, logs, baseline)
    torch.testing.assert_close(losses, costs)
    own = torch.autograd.grad((logs.exp().detach() * losses).sum(), (scores, weight), retain_graph=True)
    exact = torch.autograd.grad((logs.exp() * costs).sum(), (scores, weight))
    for slope, expected in zip(own, exact, strict=True):
        torch.testing.assert_close(slope, expected)


def to_share(target, **args):
    return Constraint("share", target, SimpleNamespace(**{"multiplier_range": None, "two_sided": False, **args}))


def test_the_multiplier_as_in_the_authors_code():
    """c_ma <- a c_ma + (1 - a) c; lambda <- lambda exp(rate c_ma); lambda times the constraint, with the value of c_ma.

    Where nothing is selected it falls towards 0; the two-sided multiplier becomes negative.
    """
    constraint = to_share(0.3, multiplier_rate=0.5, decay=0.9)
    multiplier, average = 1e-4, 0.0
    expected_multiplier, expected_average = 1e-4, 0.0
    for measured in (0.9, 0.8, 0.1, 0.0, 0.0):
        multiplier, average = constraint.after(multiplier, average, measured)
        expected_average = 0.9 * expected_average + 0.1 * (measured - 0.3)
        expected_multiplier *= math.exp(0.5 * expected_average)
        assert multiplier == pytest.approx(expected_multiplier) and average == pytest.approx(expected_average)
    shares = torch.tensor([0.5, 0.1, 0.6], requires_grad=True)
    losses = constraint.loss(shares, multiplier, average)
    assert losses.mean().item() == pytest.approx(multiplier * average)
    (slope,) = torch.autograd.grad(losses.mean(), shares)
    torch.testing.assert_close(slope, torch.full((3,), multiplier / 3))
    two_sided, pulled = to_share(0.3, multiplier_rate=0.5, decay=0.5, two_sided=True), (1e-3, 0.0)
    for _ in range(50):
        multiplier, average = constraint.after(multiplier, average, 0.0)
        pulled = two_sided.after(*pulled, 0.0)
    assert 0 < multiplier < 1e-4 and pulled[0] < -1


@pytest.mark.parametrize(("measured", "multiplier"), [(float("nan"), 1.0), (1.0, 1e308)])
def test_a_multiplier_that_is_no_number_is_refused(measured, multiplier):
    message = "^the multiplier of selection.share is (nan|inf) .*lower selection.multiplier_rate"
    with pytest.raises(AttnfaithError, match=message):
        to_share(0.1, multiplier_rate=1e3, decay=0.0).after(multiplier, 0.0, measured)


@pytest.mark.parametrize(("key", "value"), [("multiplier", 0.0), ("multiplier_range", [2.0, 1.0])])
def test_options_out_of_their_range(key, value, tmp_path):
    with pytest.raises(ValueError, match=key):
        RationaleConfig(str(tmp_path), **{key: value})
