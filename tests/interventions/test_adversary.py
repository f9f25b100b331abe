"""Adversaries: the exact maximum against hand values, grids and random points; searches against a plain version."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from attnfaith.interventions.adversary import bounded, maximise
from attnfaith.interventions.adversary_search import AdversarySearch, affine_slope_of, slope_of
from attnfaith.interventions.targets import Readout, of_values, read_out, softmax
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.subjects import SelfAttention, opened
from tests.measuring import run
from tests.models import test_golden as golden
from tests.small_classifiers import batch_of, classifier
from tests.stages import Text


def divergence(attentions, own):
    return jensen_shannon_divergence(np.atleast_2d(attentions), np.broadcast_to(own, np.atleast_2d(attentions).shape))


def change(attentions, own, scores, bias):
    return np.abs(expit(attentions @ scores + bias) - expit(own @ scores + bias))


def drawn(generator, tokens, spread=2.0):
    return generator.dirichlet(np.full(tokens, 0.7)), generator.normal(size=tokens) * spread, float(generator.normal())


def multiclass(values, bias, own):
    values, bias, own = (np.asarray(array, np.float64) for array in (values, bias, own))
    return Readout(own, values, bias, softmax(own @ values + bias))


def test_closed_forms():
    """Equal scores: the token of least weight a, log 2 - h(1, a) / 2. p = 1/2, scores -1 and 1: the second token's weight
    moves to where sigmoid(2 w - 1) = 1/2 + epsilon; both ends are as far, and the first token has the most.
    """
    alike = maximise([0.5, 0.2, 0.3], [1.0, 1.0, 1.0], -4.0, 0.01)
    assert alike.attention.tolist() == [0, 1, 0] and alike.one_token == 3
    assert alike.jsd == pytest.approx(math.log(2) - (1.2 * math.log(1.2) - 0.2 * math.log(0.2)) / 2)
    assert alike.logits.tolist() == pytest.approx([0, -3])
    mixed = maximise([0.5, 0.5], [-1.0, 1.0], 0.0, 0.2)
    weight = (1 + math.log(0.7 / 0.3)) / 2
    assert mixed.attention.tolist() == pytest.approx([weight, 1 - weight]) and mixed.one_token == 0
    assert mixed.jsd == pytest.approx(divergence([1 - weight, weight], [0.5, 0.5])[0])


@pytest.mark.parametrize("logit", [40.0, 800.0, -800.0])
def test_saturated_predictions(logit):
    """p rounds to 0 or 1: one end of the interval is open, the other is the log-odds of epsilon."""
    furthest = maximise([0.6, 0.3, 0.1], [logit, logit, -logit], 0.0, 0.01)
    weight = (1 - np.sign(logit) * math.log(0.99 / 0.01) / logit) / 2  # on the third token, at most
    ends = divergence([[0, 1 - weight, weight], [0, 1, 0]], [0.6, 0.3, 0.1])
    assert furthest.one_token == 2 and furthest.jsd == pytest.approx(ends.max(), abs=1e-12)
    assert abs(expit(furthest.logits[1]) - expit(logit * 0.8)) <= 0.01 + 1e-12


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), tokens=st.integers(2, 30), epsilon=st.sampled_from([1e-4, 0.01, 0.05, 0.3]))
def test_no_random_attention_that_keeps_the_prediction_is_further(seed, tokens, epsilon):
    generator = np.random.default_rng(seed)
    own, scores, bias = drawn(generator, tokens)
    if seed % 3 == 0:  # ties and zeros
        own, scores = np.round(own, 1) + (np.arange(tokens) == 0) * (1 - np.round(own, 1).sum()), np.round(scores)
        own = np.abs(own) / np.abs(own).sum()
    furthest = maximise(own, scores, bias, epsilon)
    assert 0 <= furthest.jsd <= math.log(2)
    assert change(furthest.attention, own, scores, bias) <= epsilon + 1e-12
    assert (furthest.attention > 0).sum() <= 2 and furthest.attention.sum() == pytest.approx(1)
    corners = np.eye(tokens)
    assert furthest.one_token == (change(corners, own, scores, bias) <= epsilon).sum()
    first, second = generator.integers(0, tokens, (2, 400))
    weight = generator.random((400, 1))
    pairs = weight * corners[first] + (1 - weight) * corners[second]
    points = np.concatenate([corners, pairs, generator.dirichlet(np.full(tokens, 0.2), 200)])
    points = np.concatenate([points, own + generator.random((len(points), 1)) ** 2 * (points - own)])
    allowed = points[change(points, own, scores, bias) <= epsilon]
    assert divergence(allowed, own).max(initial=0.0) <= furthest.jsd + 1e-9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.5], [1.0, 2.0], 0.0, 1.0), "above 0 and below 1"),
        (([0.5, 0.5], [1.0], 0.0, 0.1), "of one length above 0"),
        (([0.5, 0.6], [1.0, 2.0], 0.0, 0.1), "sum to 1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        maximise(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.parametrize("epsilon", [0.02, 0.2])
def test_on_a_fine_grid_nothing_is_above_the_bound_and_little_above_the_best(classes, epsilon):
    generator = np.random.default_rng(classes)
    short = []
    for tokens, steps in ((3, 150), (4, 40)):
        cuts = itertools.combinations(range(steps + tokens - 1), tokens - 1)
        grid = np.array([np.diff([-1, *cut, steps + tokens - 1]) - 1 for cut in cuts]) / steps
        for _ in range(5):
            own = generator.dirichlet(np.ones(tokens))
            text = multiclass(generator.normal(size=(tokens, classes)), generator.normal(size=classes), own)
            jsd, attention, logits, bound, _ = bounded(text, epsilon)
            np.testing.assert_allclose(softmax(text.logits(attention)), softmax(logits), atol=1e-12)
            assert np.abs(softmax(logits) - text.probs).sum() / 2 <= epsilon + 1e-9
            allowed = grid[np.abs(softmax(text.logits(grid)) - text.probs).sum(1) / 2 <= epsilon]
            best = divergence(allowed, own).max() if len(allowed) else 0.0
            assert best <= bound + 1e-9 and jsd <= bound <= math.log(2)
            short.append(best - jsd)
    assert np.mean(short) < 0.002 and max(short) < 0.05


def exact_rows(model, batch, **options):
    columns = run("adversary_exact", model, batch, **options)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [SimpleNamespace(**{name.removeprefix("adversary_exact_"): value for name, value in row.items()}) for row in rows]


@pytest.mark.parametrize(("classes", "projection", "certainty"), [(2, "softmax", "exact"), (3, "sparsemax", "bounded")])
def test_attention_that_is_stored_keeps_the_prediction(classes, projection, certainty, tiny_model, tiny_rows, tiny_batch):
    """By the decoder itself; and the search is never further."""
    model = tiny_model(num_labels=classes, projection=projection, query="text")
    batch = tiny_batch(tiny_rows([8, 5, 2, 1, 0], pair=True))
    rows = exact_rows(model, batch, epsilons=(0.05, 0.01))
    searched = run("adversary_search", model, batch, steps=200)["adversary_search_attention"]
    for number, row in enumerate(rows[:3]):
        assert row.certainty == certainty and row.epsilon.tolist() == [0.05, 0.01]
        text = Text(model, batch, number)
        own, before = text.attention, text.probs(text.attention)
        probs = text.probs(row.attention)
        assert (np.abs(probs - before).sum(1) / 2 <= row.epsilon + 1e-6).all()
        np.testing.assert_allclose(probs, row.probs, atol=1e-6)
        np.testing.assert_allclose(divergence(row.attention, own), row.jsd, atol=2e-6)
        assert (row.jsd <= row.bound).all() and (row.bound <= math.log(2)).all() and (row.jsd >= 0).all()
        assert certainty != "exact" or (row.jsd == row.bound).all()
        alone = np.abs(text.probs(np.eye(len(own))) - before).sum(1) / 2
        assert row.one_token.tolist() == (alone <= row.epsilon[:, None]).sum(1).tolist()
        moved, far = np.abs(text.probs(searched[number]) - before).sum(1) / 2, divergence(searched[number], own)
        for epsilon, jsd in zip(row.epsilon, row.jsd, strict=True):
            assert far[moved <= epsilon].max(initial=0.0) <= jsd + 1e-6
    for row, length in zip(rows[3:], (1, 0), strict=True):
        assert row.certainty == "undefined" and len(row.epsilon) == len(row.jsd) == len(row.bound) == 0
        assert row.attention.shape == (0, length) and row.probs.shape == (0, classes)


REFERENCE = {"steps": 500, "learning_rate": 0.01, "penalty": 500.0, "epsilon": 0.01}


@pytest.mark.parametrize(("encoder", "alignment"), [("lstm", "tanh"), ("cnn", "dot"), ("average", "tanh")])
def test_the_reference_implementations_search_from_its_noise(encoder, alignment):
    model, expected = golden.single(encoder, alignment)
    texts = read_out(*opened(model, {"input_ids": golden.TOKEN_IDS}))
    inner = [slice(1, length - 1) for length in golden.LENGTHS]
    noise = expected["adversary_noise"].double().numpy()
    starts = [noise[row][:, tokens] for row, tokens in enumerate(inner)]  # the width and 1 / L shift all alike
    read = of_values(texts)
    slope, by_gradient = affine_slope_of(texts), slope_of(lambda attention: read(attention.double()), texts)
    weights = np.random.default_rng(0).dirichlet(np.ones(max(golden.LENGTHS) - 2), (5, len(texts))).astype(np.float32)
    np.testing.assert_allclose(*(way(weights.transpose(0, 2, 1), 0.01) for way in (slope, by_gradient)), atol=1e-6)
    attentions = AdversarySearch(**REFERENCE).search(texts, starts, slope)
    for row, attention in enumerate(attentions):
        probs = softmax(texts[row].logits(attention))
        np.testing.assert_allclose(attention, expected["adversary_attention"][row][:, inner[row]], atol=1e-4)
        np.testing.assert_allclose(probs[:, 1], expected["adversary_p"][row], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reduction"),
    [("bert", "last"), ("bert", "rollout"), ("gpt2", {"layers": 0, "head": 1}), ("bart", "last")],
)
def test_maps_beyond_epsilon_are_not_reported(kind, reduction):
    subject = SelfAttention(classifier(kind), reduction=reduction)
    batch = batch_of(subject, [6, 4])
    batch["instance_id"] = ["0", "1"]
    own, reduced = subject.predict(batch).double().softmax(-1).detach().numpy(), subject.attention(batch).numpy()
    for epsilon in (0.002, 0.2):
        columns = run("map_adversary", subject, batch, steps=8, restarts=2, epsilon=epsilon)
        for row, mask in enumerate(subject.attendable(batch).numpy()):
            moved = np.abs(columns["map_adversary_probs"][row] - own[row]).sum() / 2
            assert columns["map_adversary_change"][row] == pytest.approx(moved, abs=1e-6) and moved <= epsilon + 1e-6
            attention, jsd = columns["map_adversary_attention"][row], columns["map_adversary_jsd"][row]
            assert jsd == pytest.approx(divergence(attention, reduced[row, mask])[0], abs=1e-6)
            assert attention.sum() == pytest.approx(1) and columns["map_adversary_certainty"][row] == "lower bound"
    assert max(columns["map_adversary_jsd"]) > 0.02
