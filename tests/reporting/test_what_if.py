"""Answers of the page when its reader tries another attention, in Node, against the library's own answers to 1e-9.

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
    process = Node("what_if.js", "whatIf")
    yield process
    process.close()


@st.composite
def texts(draw, most=4):
    """own (T,) that sums to 1, values (T,C) and bias (C,): with weights of 0, and with ties."""
    length, count = draw(st.integers(2, 9)), draw(st.integers(2, most))
    own = np.array(draw(st.lists(WEIGHTS, min_size=length, max_size=length).filter(any)), np.float64)
    values = draw(st.lists(SCORES, min_size=length * count, max_size=length * count))
    bias = draw(st.lists(SCORES, min_size=count, max_size=count))
    return own / own.sum(), np.array(values).reshape(length, count), np.array(bias)


def text_of(own, values, bias):
    return {"own": own, "values": values, "bias": bias}


@MANY
@given(texts(), st.data())
def test_the_prediction_under_any_attention(node, text, data):
    own, values, bias = text
    weights = np.array(data.draw(st.lists(WEIGHTS, min_size=len(own), max_size=len(own)).filter(any)), np.float64)
    attention = weights / weights.sum()
    probs, before = node("probabilities", text_of(*text), attention), softmax(own @ values + bias)
    np.testing.assert_allclose(probs, softmax(attention @ values + bias), **CLOSE)
    np.testing.assert_allclose(node("distance", np.array(probs), before), np.abs(probs - before).sum() / 2, **CLOSE)
    middle = (own + attention) / 2
    jsd = (rel_entr(own, middle) + rel_entr(attention, middle)).sum() / 2
    np.testing.assert_allclose(node("divergence", own, attention), jsd, **CLOSE)


@MANY
@given(texts(most=2), st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.5, 0.9]))
def test_the_furthest_attention_is_the_exact_one(node, text, epsilon):
    own, values, bias = text
    expected = maximise(own, values[:, 1] - values[:, 0], bias[1] - bias[0], epsilon)
    furthest = node("furthest", text_of(own, values, bias), epsilon)
    np.testing.assert_allclose(furthest["divergence"], expected.jsd, **CLOSE)
    np.testing.assert_allclose(furthest["attention"], expected.attention, **CLOSE)
    assert furthest["oneToken"] == expected.one_token


@MANY
@given(texts())
def test_the_smallest_set_that_flips_is_the_exact_one(node, text):
    own, values, bias = text
    model, batch = affine_texts([(own, values)], bias)
    expected = {name: column[0] for name, column in run("minimal_flip_set", model, batch).items()}
    (readout,) = read_out(*opened(model, batch))
    flip = node("smallestFlip", text_of(readout.attention, values, bias))
    assert flip["taken"] == expected["minimal_flip_set"].astype(int).tolist()
    if np.isnan(expected["minimal_flip_size"]):
        assert flip["size"] is None and flip["mass"] is None
        return
    assert flip["size"] == expected["minimal_flip_size"] and flip["empty"] == expected["minimal_flip_empty"]
    np.testing.assert_allclose(flip["mass"], expected["minimal_flip_mass"], rtol=0, atol=1e-6)  # float32 in the record
    left = np.array(node("without", readout.attention, np.array(flip["taken"], float)))
    probs = softmax(left @ values + bias)
    assert probs[flip["rival"]] >= probs[flip["predicted"]] - 1e-9


def test_texts_at_the_edges(node):
    """No weight at all, a barred class, more classes than two, a single token, and equal logits."""
    own, barred = np.array([0.5, 0.5]), np.array([[9.0, np.nan, 1.0]] * 2)
    text = text_of(own, barred, np.array([0.0, np.nan, 0.0]))
    assert node("probabilities", text, np.zeros(2)) == [0.5, 0.0, 0.5], "the bias decides"
    np.testing.assert_allclose(node("probabilities", text, own), softmax(np.array([9.0, -np.inf, 1.0])), **CLOSE)
    single = text_of(np.ones(1), np.array([[1000.0, 0.0]]), np.zeros(2))
    assert node("probabilities", single, np.ones(1)) == [1.0, 0.0]
    assert node("furthest", single, 0.01) is None and node("smallestFlip", single) is None
    assert node("furthest", text_of(own, np.zeros((2, 3)), np.zeros(3)), 0.01) is None
    left = text_of(np.array([0.5, 0.3, 0.2]), np.tile([3.0, np.nan], (3, 1)), np.array([0.0, np.nan]))
    furthest = node("furthest", left, 0.01)
    assert furthest["attention"] == [0.0, 0.0, 1.0] and furthest["oneToken"] == 3, "the class that is left is certain"
    values = np.array([[0.0, 1.0], [0.0, 0.0]])
    flip = node("smallestFlip", text_of(own, values, np.zeros(2)))  # without the first token both logits are 0: class 0
    assert (flip["predicted"], flip["rival"], flip["size"], flip["empty"]) == (1, 0, 1, False)
    assert node("smallestFlip", text_of(own, values[:, ::-1].copy(), np.zeros(2)))["size"] is None, "class 0 stays at a tie"


@MANY
@given(texts(), st.data())
def test_an_attention_that_is_dragged_or_removed_sums_to_one(node, text, data):
    own = text[0]
    place, weight = data.draw(st.integers(0, len(own) - 1)), data.draw(st.floats(0, 1))
    dragged, rest = np.array(node("dragged", own, place, weight)), np.delete(own, place)
    assert dragged[place] == weight and dragged.min() >= 0 and dragged.sum() == pytest.approx(1, abs=1e-12)
    if rest.sum() > 0:
        np.testing.assert_allclose(np.delete(dragged, place) * rest.sum(), rest * (1 - weight), **CLOSE)
    left = np.array(node("without", own, np.eye(len(own))[place]))
    expected = np.where(np.arange(len(own)) == place, 0.0, own)
    np.testing.assert_allclose(left, expected / expected.sum() if expected.sum() > 0 else expected, **CLOSE)
