"""The exact adversary against hand values, grids, random points and the search, which must all stay below it."""

import doctest
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from attnfaith.interventions import adversary, climb
from attnfaith.interventions.adversary import maximise
from attnfaith.interventions.targets import Readout, softmax
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from tests.interventions.pooled import attention_of, decoded
from tests.measuring import run


def divergence(attentions, own):
    return jensen_shannon_divergence(np.atleast_2d(attentions), np.broadcast_to(own, np.atleast_2d(attentions).shape))


def change(attentions, own, scores, bias):
    return np.abs(expit(attentions @ scores + bias) - expit(own @ scores + bias))


def drawn(generator, tokens, spread=2.0):
    return generator.dirichlet(np.full(tokens, 0.7)), generator.normal(size=tokens) * spread, float(generator.normal())


def simplex_grid(tokens, steps):
    cuts = itertools.combinations(range(steps + tokens - 1), tokens - 1)
    rows = [np.diff([-1, *cut, steps + tokens - 1]) - 1 for cut in cuts]
    return np.array(rows) / steps


def multiclass(values, bias, own):
    values, bias, own = (np.asarray(given, np.float64) for given in (values, bias, own))
    return Readout(own, values, bias, softmax(own @ values + bias), np.ones(len(bias), bool))


def test_examples_in_the_docstring():
    assert doctest.testmod(adversary).failed == 0


def test_equal_scores_put_all_weight_on_the_least_attended_token():
    """Any attention keeps the prediction; the furthest is the token of least weight a: log 2 - h(1, a) / 2."""
    found = maximise([0.5, 0.2, 0.3], [1.0, 1.0, 1.0], -4.0, 0.01)
    assert found.attention.tolist() == [0, 1, 0] and found.one_token == 3
    assert found.jsd == pytest.approx(math.log(2) - (1.2 * math.log(1.2) - 0.2 * math.log(0.2)) / 2)
    assert found.log_odds == pytest.approx(-3)


def test_two_tokens_are_mixed_up_to_the_end_of_the_interval():
    """p = 1/2, scores -1 and 1: the weight of the second token moves to where sigmoid(2 w - 1) = 1/2 + epsilon."""
    found = maximise([0.5, 0.5], [-1.0, 1.0], 0.0, 0.2)
    weight = (1 + math.log(0.7 / 0.3)) / 2
    assert sorted(found.attention) == pytest.approx([1 - weight, weight])
    assert found.attention[0] > found.attention[1]  # both ends are as far: the first token has the most, or the pair's order
    assert found.one_token == 0
    assert found.jsd == pytest.approx(divergence([1 - weight, weight], [0.5, 0.5])[0])


@pytest.mark.parametrize("logit", [40.0, 800.0, -40.0, -800.0])
def test_saturated_predictions(logit):
    """p rounds to 0 or 1: one end of the interval is open, the other is the log-odds of epsilon."""
    sign = np.sign(logit)
    found = maximise([0.6, 0.3, 0.1], [logit, logit, -logit], 0.0, 0.01)
    end = sign * math.log(0.99 / 0.01)
    assert found.one_token == 2
    weight = (1 - end / logit) / 2  # on the third token, at most
    mixed = divergence([0, 1 - weight, weight], [0.6, 0.3, 0.1])[0]
    assert found.jsd == pytest.approx(max(mixed, divergence([0, 1, 0], [0.6, 0.3, 0.1])[0]), abs=1e-12)
    assert abs(expit(found.log_odds) - expit(logit * 0.8)) <= 0.01 + 1e-12


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), tokens=st.integers(2, 30), epsilon=st.sampled_from([1e-4, 0.01, 0.05, 0.3]))
def test_no_random_attention_that_keeps_the_prediction_is_further(seed, tokens, epsilon):
    generator = np.random.default_rng(seed)
    own, scores, bias = drawn(generator, tokens)
    if seed % 3 == 0:  # ties and zeros
        own, scores = np.round(own, 1) + (np.arange(tokens) == 0) * (1 - np.round(own, 1).sum()), np.round(scores)
        own = np.abs(own) / np.abs(own).sum()
    found = maximise(own, scores, bias, epsilon)
    assert 0 <= found.jsd <= math.log(2)
    assert change(found.attention, own, scores, bias) <= epsilon + 1e-12
    assert (found.attention > 0).sum() <= 2 and found.attention.sum() == pytest.approx(1)
    corners = np.eye(tokens)
    assert found.one_token == (change(corners, own, scores, bias) <= epsilon).sum()
    first, second = generator.integers(0, tokens, (2, 400))
    weight = generator.random((400, 1))
    pairs = weight * corners[first] + (1 - weight) * corners[second]
    tried = np.concatenate([corners, pairs, generator.dirichlet(np.full(tokens, 0.2), 200)])
    near = own + generator.random((len(tried), 1)) ** 2 * (tried - own)
    tried = np.concatenate([tried, near])
    kept = tried[change(tried, own, scores, bias) <= epsilon]
    assert divergence(kept, own).max(initial=0.0) <= found.jsd + 1e-9


def test_ties_go_to_the_first_token_whatever_the_rounding():
    own, scores = np.full(6, 1 / 6), np.array([2.0, -2.0, 0.0, 0.0, -2.0, 2.0])
    generator = np.random.default_rng(0)
    for _ in range(20):
        noisy = own + generator.normal(size=6) * 1e-8
        found = maximise(noisy / noisy.sum(), scores + generator.normal(size=6) * 1e-7, 0.0, 0.01)
        assert found.attention.tolist() == [0, 0, 1, 0, 0, 0]
    mixed = maximise(own[:4] * 1.5, [2.0, -2.0, -2.0, 2.0], 0.0, 0.01)  # no single token keeps the prediction
    assert set(np.flatnonzero(mixed.attention)) == {0, 1}


@pytest.mark.parametrize("block", [1, 60])
def test_pairs_of_tokens_in_blocks_or_all_at_once(block, monkeypatch):
    generator = np.random.default_rng(0)
    for number in range(80):
        own, scores, bias = drawn(generator, int(generator.integers(2, 40)), 10 ** generator.uniform(-1, 2))
        if number % 2:  # ties and weights of 0
            own, scores = np.round(own, 1) + (np.arange(len(own)) == 0), np.round(scores)
        arguments = own / own.sum(), scores, bias, float(generator.choice([0.01, 0.05, 0.3]))
        monkeypatch.setattr(adversary, "BLOCK", 1 << 17)
        whole = maximise(*arguments)
        monkeypatch.setattr(adversary, "BLOCK", block)
        parts = maximise(*arguments)
        assert (parts.jsd, parts.log_odds, parts.one_token) == (whole.jsd, whole.log_odds, whole.one_token)
        assert parts.attention.tolist() == whole.attention.tolist()


def test_of_many_classes_the_most_probable_are_asked_about(monkeypatch):
    """What is certified and what is reached stay true, whatever the classes that were not asked about do."""
    generator = np.random.default_rng(4)
    for number in range(6):
        tokens = 3 + number % 3
        text = multiclass(
            generator.normal(size=(tokens, 6)) * 3, generator.normal(size=6), generator.dirichlet(np.ones(tokens))
        )
        ((_, _, _, all_asked, _),) = adversary.bounded(text, (0.1,))
        monkeypatch.setattr(climb, "MOST_CLASSES", 3)
        assert len(climb.implied_ranges(text.values, text.probs, 0.1).scores) == 3
        ((attention, probs, jsd, bound, _),) = adversary.bounded(text, (0.1,))
        monkeypatch.undo()
        np.testing.assert_allclose(softmax(text.logits(attention)), probs, atol=1e-12)
        assert np.abs(probs - text.probs).sum() / 2 <= 0.1 + 1e-9
        assert jsd <= all_asked + 1e-9 and all_asked <= bound + 1e-9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.5, 0.5], [1.0, 2.0], 0.0, 1.0), "above 0 and below 1"),
        (([0.5, 0.5], [1.0], 0.0, 0.1), "of one length above 0"),
        (([0.5, 0.6], [1.0, 2.0], 0.0, 0.1), "sum to 1"),
        (([0.5, 0.5], [1.0, np.nan], 0.0, 0.1), "finite"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        maximise(*arguments)


def columns(model, batch, **options):
    found = run("adversary_exact", model, batch, **options)
    rows = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
    return [SimpleNamespace(**{name.removeprefix("adversary_exact_"): value for name, value in row.items()}) for row in rows]


CASES = [("affine", 2, "exact"), ("affine", 3, "bounded"), ("tanh", 2, "lower bound"), ("tanh", 4, "lower bound")]


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@pytest.mark.parametrize(("readout", "classes", "certainty"), CASES)
def test_what_is_stored_keeps_the_prediction(readout, classes, certainty, projection, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(readout=readout, num_labels=classes, projection=projection, query="text")
    batch = tiny_batch(tiny_rows([8, 5, 2, 1, 0], pair=True))
    found = columns(model, batch, epsilons=(0.05, 0.01))
    for row, text in enumerate(found[:3]):
        assert text.certainty == certainty and text.epsilon.tolist() == [0.05, 0.01]
        own = attention_of(model, batch, row)
        probs, before = decoded(model, batch, row, text.attention), decoded(model, batch, row, own[None])[0]
        assert (np.abs(probs - before).sum(1) / 2 <= text.epsilon + 1e-6).all()
        np.testing.assert_allclose(probs, text.probs, atol=1e-6)
        np.testing.assert_allclose(divergence(text.attention, own), text.jsd, atol=2e-6)
        assert (text.jsd <= text.bound).all() and (text.bound <= math.log(2)).all() and (text.jsd >= 0).all()
        assert certainty != "exact" or (text.jsd == text.bound).all()
        alone = decoded(model, batch, row, np.eye(len(own)))
        expected = (np.abs(alone - before).sum(1) / 2 <= text.epsilon[:, None]).sum(1)
        assert text.one_token.tolist() == expected.tolist()
    for text, length in zip(found[3:], (1, 0), strict=True):
        assert text.certainty == "undefined"
        assert text.attention.shape == (0, length) and text.probs.shape == (0, classes)
        assert len(text.epsilon) == len(text.jsd) == len(text.bound) == len(text.one_token) == 0


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.parametrize("epsilon", [0.02, 0.2])
def test_more_classes_lie_between_what_is_found_and_a_bound(classes, epsilon):
    """On a fine grid of three and four tokens: nothing is above the bound, and little above what was found."""
    generator = np.random.default_rng(classes)
    short = []
    for tokens, steps in ((3, 150), (4, 40)):
        grid = simplex_grid(tokens, steps)
        for _ in range(5):
            own = generator.dirichlet(np.ones(tokens))
            text = multiclass(generator.normal(size=(tokens, classes)), generator.normal(size=classes), own)
            ((attention, probs, jsd, bound, _),) = adversary.bounded(text, (epsilon,))
            assert np.abs(probs - text.probs).sum() / 2 <= epsilon + 1e-9
            np.testing.assert_allclose(softmax(text.logits(attention)), probs, atol=1e-12)
            kept = grid[np.abs(softmax(text.logits(grid)) - text.probs).sum(1) / 2 <= epsilon]
            best = divergence(kept, own).max() if len(kept) else 0.0
            assert best <= bound + 1e-9 and jsd <= bound <= math.log(2)
            short.append(best - jsd)
    assert np.mean(short) < 0.002 and max(short) < 0.05


def test_a_third_class_that_never_comes_leaves_the_two_class_maximum():
    generator = np.random.default_rng(0)
    for _ in range(4):
        own, scores, bias = drawn(generator, 7)
        values = np.stack([np.zeros(7), scores, np.full(7, -60.0)], 1)
        ((_, _, jsd, bound, one_token),) = adversary.bounded(multiclass(values, [0.0, bias, 0.0], own), (0.05,))
        exact = maximise(own, scores, bias, 0.05)
        assert jsd == pytest.approx(exact.jsd, abs=1e-5) and bound == pytest.approx(exact.jsd, abs=1e-5)
        assert one_token == exact.one_token


@pytest.mark.parametrize(("readout", "classes"), [("affine", 2), ("affine", 3), ("tanh", 2)])
def test_the_search_is_never_further(readout, classes, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(readout=readout, num_labels=classes, encoder="average", scale=2.0)
    batch = tiny_batch(tiny_rows([12, 9, 9, 15]))
    searched = run("adversary_search", model, batch, steps=300)
    for row, text in enumerate(columns(model, batch)):
        attention = searched["adversary_search_attention"][row]
        own = attention_of(model, batch, row)
        probs, before = decoded(model, batch, row, attention), decoded(model, batch, row, own[None])[0]
        moved, far = np.abs(probs - before).sum(1) / 2, divergence(attention, own)
        for epsilon, jsd in zip(text.epsilon, text.jsd, strict=True):
            assert far[moved <= epsilon].max(initial=0.0) <= jsd + 1e-6
