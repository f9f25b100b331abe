"""What the page computes when its reader tries another attention, in Node, against the library's own answers to 1e-9.

Skipped where Node is not installed.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr

from attnfaith.interventions.adversary import maximise
from attnfaith.interventions.targets import read_out, softmax
from attnfaith.subjects import opened
from tests.affine_subject import affine_texts
from tests.measuring import run
from tests.nodes import NO_NODE, NODE, Node


pytestmark = pytest.mark.skipif(NODE is None, reason=NO_NODE)
CLOSE = {"rtol": 0, "atol": 1e-9}
MANY = settings(max_examples=150)
SCORES = st.integers(-4000, 4000).map(lambda number: number / 1000)
WEIGHTS = st.one_of(st.just(0), st.integers(1, 1000))


@pytest.fixture(scope="module")
def node():
    held = Node("what_if.js", "whatIf")
    yield held
    held.close()


@st.composite
def texts(draw, most=4):
    """own (T,) that sums to 1, values (T,C) and bias (C,): with weights of 0, and with ties."""
    length, count = draw(st.integers(2, 9)), draw(st.integers(2, most))
    weights = draw(st.lists(WEIGHTS, min_size=length, max_size=length).filter(any))
    values = draw(st.lists(SCORES, min_size=length * count, max_size=length * count))
    bias = draw(st.lists(SCORES, min_size=count, max_size=count))
    own = np.array(weights, np.float64)
    return own / own.sum(), np.array(values).reshape(length, count), np.array(bias)


def of(own, values, bias):
    return {"own": own, "values": values, "bias": bias}


@MANY
@given(texts(), st.data())
def test_the_prediction_under_any_attention(node, text, data):
    own, values, bias = text
    weights = np.array(data.draw(st.lists(WEIGHTS, min_size=len(own), max_size=len(own)).filter(any)), np.float64)
    attention = weights / weights.sum()
    made = node("probabilities", of(*text), attention)
    np.testing.assert_allclose(made, softmax(attention @ values + bias), **CLOSE)
    said = softmax(own @ values + bias)
    np.testing.assert_allclose(node("distance", np.array(made), said), np.abs(made - said).sum() / 2, **CLOSE)
    middle = (own + attention) / 2
    jsd = (rel_entr(own, middle) + rel_entr(attention, middle)).sum() / 2
    np.testing.assert_allclose(node("divergence", own, attention), jsd, **CLOSE)


def test_without_any_weight_the_bias_decides_and_barred_classes_have_no_share(node):
    text = of(np.array([0.5, 0.5]), np.array([[9.0, np.nan, 1.0], [9.0, np.nan, 1.0]]), np.array([0.0, np.nan, 0.0]))
    assert node("probabilities", text, np.zeros(2)) == [0.5, 0.0, 0.5]
    np.testing.assert_allclose(node("probabilities", text, text["own"]), softmax(np.array([9.0, -np.inf, 1.0])), **CLOSE)
    assert node("probabilities", of(np.ones(1), np.array([[1000.0, 0.0]]), np.zeros(2)), np.ones(1)) == [1.0, 0.0]


@MANY
@given(texts(most=2), st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.5, 0.9]))
def test_the_furthest_attention_is_the_exact_one(node, text, epsilon):
    own, values, bias = text
    wanted = maximise(own, values[:, 1] - values[:, 0], bias[1] - bias[0], epsilon)
    made = node("furthest", of(*text), epsilon)
    np.testing.assert_allclose(made["divergence"], wanted.jsd, **CLOSE)
    np.testing.assert_allclose(made["attention"], wanted.attention, **CLOSE)
    assert made["oneToken"] == wanted.one_token
    probs = [softmax(one @ values + bias)[1] for one in (np.array(made["attention"]), own)]
    assert abs(probs[0] - probs[1]) <= epsilon + 1e-9


@pytest.mark.parametrize(("length", "saturated"), [(2, 1.0), (3, 30.0), (40, 1.0), (150, 30.0)])
def test_the_furthest_attention_of_longer_texts(node, length, saturated):
    generator = np.random.default_rng(length)
    own = generator.dirichlet(np.full(length, 0.3))
    own[generator.random(length) < 0.3] = 0.0
    own = own / own.sum() if own.any() else np.eye(length)[0]
    values, bias = saturated * generator.normal(size=(length, 2)), generator.normal(size=2)
    wanted = maximise(own, values[:, 1] - values[:, 0], bias[1] - bias[0], 0.02)
    made = node("furthest", of(own, values, bias), 0.02)
    np.testing.assert_allclose(made["divergence"], wanted.jsd, **CLOSE)
    np.testing.assert_allclose(made["attention"], wanted.attention, **CLOSE)


def test_one_class_that_is_left_keeps_any_attention(node):
    text = of(np.array([0.5, 0.3, 0.2]), np.tile([3.0, np.nan], (3, 1)), np.array([0.0, np.nan]))
    made = node("furthest", text, 0.01)
    assert made["attention"] == [0.0, 0.0, 1.0] and made["oneToken"] == 3


def test_more_classes_have_no_closed_form_and_one_token_no_other_attention(node):
    three = of(np.array([0.5, 0.5]), np.zeros((2, 3)), np.zeros(3))
    one = of(np.ones(1), np.zeros((1, 2)), np.zeros(2))
    assert node("furthest", three, 0.01) is None and node("furthest", one, 0.01) is None
    assert node("smallestFlip", one) is None


@MANY
@given(texts())
def test_the_smallest_set_that_flips_is_the_exact_one(node, text):
    own, values, bias = text
    model, batch = affine_texts([(own, values)], bias)
    wanted = {name: column[0] for name, column in run("minimal_flip_set", model, batch).items()}
    (readout,) = read_out(*opened(model, batch))
    made = node("smallestFlip", of(readout.attention, values, bias))
    assert made["taken"] == wanted["minimal_flip_set"].astype(int).tolist()
    if np.isnan(wanted["minimal_flip_size"]):
        assert made["size"] is None and made["mass"] is None
    else:
        assert made["size"] == wanted["minimal_flip_size"] and made["empty"] == wanted["minimal_flip_empty"]
        np.testing.assert_allclose(made["mass"], wanted["minimal_flip_mass"], rtol=0, atol=1e-6)  # float32 in the record
        left = np.array(node("without", readout.attention, np.array(made["taken"], float)))
        assert softmax(left @ values + bias)[made["rival"]] >= softmax(left @ values + bias)[made["predicted"]] - 1e-9


def test_of_equal_logits_the_first_class_is_predicted_so_a_tie_can_flip(node):
    own, values, bias = np.array([0.5, 0.5]), np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros(2)
    made = node("smallestFlip", of(own, values, bias))  # without the first token both logits are 0: class 0, which was 1
    assert (made["predicted"], made["rival"], made["size"], made["empty"]) == (1, 0, 1, False)
    swapped = node("smallestFlip", of(own, values[:, ::-1].copy(), bias))  # class 0 keeps a tie
    assert swapped["size"] is None


@MANY
@given(texts(), st.data())
def test_what_is_dragged_or_removed_sums_to_one(node, text, data):
    own = text[0]
    place, weight = data.draw(st.integers(0, len(own) - 1)), data.draw(st.floats(0, 1))
    made = np.array(node("dragged", own, place, weight))
    assert made[place] == weight and made.min() >= 0 and made.sum() == pytest.approx(1, abs=1e-12)
    rest = np.delete(own, place)
    if rest.sum() > 0:
        np.testing.assert_allclose(np.delete(made, place) * rest.sum(), rest * (1 - weight), **CLOSE)
    assert node("dragged", np.array([1.0, 0.0, 0.0]), 0, 0.5) == [0.5, 0.25, 0.25]
    left = np.array(node("without", own, np.eye(len(own))[place]))
    kept = np.where(np.arange(len(own)) == place, 0.0, own)
    np.testing.assert_allclose(left, kept / kept.sum() if kept.sum() > 0 else kept, **CLOSE)


def shuffled(values, seed):
    """Fisher and Yates's shuffle with the numbers of mulberry32, as published."""
    state, values, limit = seed, list(values), 0xFFFFFFFF
    for last in range(len(values) - 1, 0, -1):
        state = (state + 0x6D2B79F5) & limit
        mixed = ((state ^ state >> 15) * (state | 1)) & limit
        mixed ^= (mixed + (((mixed ^ mixed >> 7) * (mixed | 61)) & limit)) & limit
        place = int((mixed ^ mixed >> 14) / 2**32 * (last + 1))
        values[last], values[place] = values[place], values[last]
    return values


@MANY
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_permuting_deals_the_same_weights_out_anew(node, weights, seed):
    made = node("permuted", np.array(weights, np.float64), seed)
    assert made == shuffled(weights, seed) and sorted(made) == sorted(weights)
