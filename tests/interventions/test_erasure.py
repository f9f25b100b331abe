"""Erased weights against attentions that are really erased and decoded; orders and flip sets against exact arithmetic."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from attnfaith.interventions import erasure
from attnfaith.interventions.erasure import smallest_set
from attnfaith.subjects import Batch, SelfAttention
from attnfaith.subjects.protocol import read_parts
from attnfaith.support.draws import generator
from tests import tolerances
from tests.affine_subject import affine_texts
from tests.measuring import run
from tests.small_classifiers import biased, texts, tokenizer
from tests.stages import Text, logits_of


TEXTS = [6, 1, 9, 0, 4]
PROJECTIONS = ("softmax", "sparsemax", "sparsegen", "entmax15", "entmax", "uniform")


def balanced(tiny_model, tiny_rows, tiny_batch, lengths=TEXTS, **fields):
    """A model and a batch in which no class is far ahead of the others in every text."""
    model = tiny_model(**{"sparsegen_lambda": 0.4, "entmax_alpha": 1.25, "num_labels": 3, **fields})
    batch = tiny_batch(tiny_rows(lengths, pair=fields.get("query") == "text"))
    with torch.no_grad():
        last_layer(model).bias -= logits_of(model, batch).mean(0)
    return model, batch


def last_layer(model):
    return model.decoder.context if model.decoder.affine else model.decoder.output


def orders_of(columns, row, attention):
    """{ranking: its orders (R,T)} of a text, from the scores that rank."""
    gradient = columns["erasure_gradient"][row]
    scores = {"attention": attention, "gradient": gradient, "attention_gradient": attention * gradient}
    ranked = {name: [np.argsort(-score, kind="stable")] for name, score in scores.items()}
    return ranked | {"random": columns["erasure_order"][row]}


def flips_of(columns, row, name, draw, *parts):
    return [float(np.atleast_1d(columns[f"erasure_{part}_{name}"][row])[draw]) for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize(("query", "readout"), [("learned", "affine"), ("text", "affine"), ("text", "tanh")])
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_each_removal_decoded_anew(projection, query, readout, tiny_model, tiny_rows, tiny_batch):
    factors = {"projection": projection, "query": query, "readout": readout}
    model, batch = balanced(tiny_model, tiny_rows, tiny_batch, **factors, seed=1)
    columns, flips = run("erasure", model, batch, seed=3), 0
    for row, tokens in enumerate(TEXTS):
        text = Text(model, batch, row)
        for token in range(tokens):
            probs = columns["erasure_probs"][row][token]
            np.testing.assert_allclose(probs, text.probs(text.without([token])), atol=2e-6)
        for name, orders in orders_of(columns, row, text.attention).items() if tokens > 1 else ():
            for draw, order in enumerate(np.asarray(orders).tolist()):
                size, mass, empty = flips_of(columns, row, name, draw, "flip_size", "flip_mass", "flip_empty")
                np.testing.assert_equal(size, float(text.first_flip(order, text.without)))
                if size > 0:
                    flips += 1
                    np.testing.assert_allclose(mass, text.attention[order[: int(size)]].sum(), rtol=1e-5)
                    assert empty == (text.without(order[: int(size)]).sum() == 0)
                else:
                    assert np.isnan(mass) and not empty
    assert flips > 3


@pytest.mark.parametrize(("query", "readout"), [("learned", "tanh"), ("text", "affine")])
def test_gradient_by_finite_differences(query, readout, tiny_model, tiny_rows, tiny_batch):
    """The signed derivative of the predicted class's probability, one weight alone, nothing renormalised."""
    model, batch = balanced(tiny_model, tiny_rows, tiny_batch, query=query, readout=readout, scale=1.5, seed=1)
    gradients, signs = run("erasure", model, batch)["erasure_gradient"], set()
    for row, tokens in enumerate(TEXTS):
        text = Text(model, batch, row)
        predicted, steps = text.logits(text.attention).argmax(), 1e-5 * np.eye(tokens)
        if tokens:
            ahead, behind = (text.probs(text.attention + sign * steps)[:, predicted] for sign in (1, -1))
            np.testing.assert_allclose(gradients[row], (ahead - behind) / 2e-5, atol=1e-7, rtol=1e-4)
            signs |= set(np.sign(gradients[row]))
    assert signs >= {1, -1}


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_a_saturated_probability_keeps_its_ranking(readout, tiny_model, tiny_rows, tiny_batch):
    """With logits 50 apart p is 1 in float64 too: its derivative is tiny, never 0, and the same weights come first."""
    model, batch = balanced(tiny_model, tiny_rows, tiny_batch, lengths=[8, 8, 8], num_labels=2, readout=readout)
    before = run("erasure", model, batch)["erasure_gradient"]
    factor = 50 / float(logits_of(model, batch).diff().abs().min())
    with torch.no_grad():
        last_layer(model).weight.mul_(factor)
        last_layer(model).bias.mul_(factor)
    assert (logits_of(model, batch).softmax(-1).amax(1) == 1).all()
    for own, saturated in zip(before, run("erasure", model, batch)["erasure_gradient"], strict=True):
        assert (saturated != 0).all() and np.abs(saturated).max() < 1e-12
        np.testing.assert_array_equal(np.argsort(-saturated, kind="stable"), np.argsort(-own, kind="stable"))


def smallest(weights, values, bias):
    columns = run("minimal_flip_set", *affine_texts([(weights, values)], bias))
    return {name.removeprefix("minimal_flip_"): column[0] for name, column in columns.items()}


def decision(weights, values, bias, removed):
    """The most probable class, the lower one on ties; weights, values and bias are whole numbers."""
    left = [t for t in range(len(weights)) if t not in removed]
    total = sum(weights[t] for t in left)
    logits = [
        Fraction(sum(weights[t] * values[t][c] for t in left), total) + bias[c] if total else Fraction(bias[c])
        for c in range(len(bias))
    ]
    return logits.index(max(logits))


@st.composite
def cases(draw):
    tokens, classes = draw(st.integers(2, 8)), draw(st.integers(2, 4))
    # few different numbers: many ties and many weights of 0
    weights = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 97]), min_size=tokens, max_size=tokens).filter(any))
    row = st.lists(st.integers(-3, 3), min_size=classes, max_size=classes)
    return weights, draw(st.lists(row, min_size=tokens, max_size=tokens)), draw(row)


@settings(max_examples=150, derandomize=True)
@given(cases())
def test_flip_sets_and_orders_against_all_subsets(case):
    """No smaller set flips; each order flips where it first does, and never below the smallest set."""
    weights, values, bias = case
    own, flip_set, total = decision(*case, ()), smallest(*case), sum(weights)
    removed, least = tuple(np.flatnonzero(flip_set["set"]).tolist()), flip_set["size"]
    best = []
    for size in range(1, len(weights) + 1):
        best = best or [s for s in itertools.combinations(range(len(weights)), size) if decision(*case, s) != own]
    assert flip_set["certainty"] == "exact"
    if best:
        assert removed in best and least == len(removed)
        np.testing.assert_allclose(flip_set["mass"], sum(weights[t] for t in removed) / total, rtol=1e-6)
        assert flip_set["empty"] == (flip_set["mass"] == 1)
        if flip_set["empty"]:  # only the loss of all weight flips: no set that leaves some is as small
            assert all(sum(weights[t] for t in flipping) == total for flipping in best)
    else:
        assert removed == () and np.isnan(least) and np.isnan(flip_set["mass"]) and not flip_set["empty"]
    subject, batch = affine_texts([(weights, values)], bias)
    columns = run("erasure", subject, batch)
    for name, orders in orders_of(columns, 0, subject.weights[0].numpy()).items():
        for draw, order in enumerate(orders):
            steps = (k for k in range(1, len(order) + 1) if decision(*case, set(order[:k].tolist())) != own)
            first = next(steps, np.nan)
            size, mass, empty = flips_of(columns, 0, name, draw, "flip_size", "flip_mass", "flip_empty")
            np.testing.assert_equal(size, float(first))
            assert not size < least and not (np.isnan(least) and size > 0)
            if size > 0:
                gone = sum(weights[t] for t in order[: int(first)])
                np.testing.assert_allclose(mass, gone / total, rtol=1e-6)
                assert empty == (gone == total)


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_the_decoder_decides_as_claimed(projection, tiny_model, tiny_rows, tiny_batch):
    """Of every subset of tokens; below every order of erasure."""
    model = tiny_model(projection=projection, query="text", num_labels=3, seed=1)
    batch = tiny_batch(tiny_rows([5, 6, 4, 7, 3, 8], pair=True))
    columns, erased, flips = run("minimal_flip_set", model, batch), run("erasure", model, batch), 0
    for row, chosen in enumerate(columns["minimal_flip_set"]):
        text, size = Text(model, batch, row), columns["minimal_flip_size"][row]
        sets = np.array(list(itertools.product([False, True], repeat=len(chosen))))
        decisions = text.logits(np.array([text.without(removed) for removed in sets])).argmax(1)
        changed = decisions != decisions[0]
        np.testing.assert_equal(float(size), float(sets.sum(1)[changed].min() if changed.any() else np.nan))
        assert columns["minimal_flip_certainty"][row] == "exact"
        if size > 0:
            flips += 1
            assert changed[(sets == chosen).all(1)].all() and size == chosen.sum()
        for name in (*erasure.RANKINGS, "random"):
            assert not (np.atleast_1d(erased[f"erasure_flip_size_{name}"][row]) < size).any()
    assert flips > 1


def smallest_of_all(parts, whole, lower):
    """The size of the smallest set that loses a margin, by trying all; None where there is none."""
    for size in range(1, parts.shape[1] + 1):
        for chosen in itertools.combinations(range(parts.shape[1]), size):
            left = whole - parts[:, chosen].sum(1)
            if ((left < 0) | (lower & (left == 0))).any():
                return size
    return None


@pytest.mark.parametrize("seed", range(20))
def test_a_sort_finds_the_smallest_of_all_sets(seed):
    random = np.random.default_rng(seed)
    parts = random.integers(-4, 5, (int(random.integers(1, 4)), int(random.integers(0, 8)))).astype(float)
    whole, lower = random.integers(1, 9, len(parts)).astype(float), random.random(len(parts)) < 0.5
    chosen, rival = smallest_set(parts, whole, lower)
    size = smallest_of_all(parts, whole, lower)
    assert (chosen.sum() or None) == size
    if size:
        left = whole - parts[:, chosen].sum(1)
        assert left[rival] == left.min() and (left[rival] < 0 or (lower & (left == 0)).any())


@torch.no_grad()
def test_frozen_sets_and_the_models_answer():
    """Parts are those of single logits; the text without the set is read by hand. No set flips the third text."""
    bert = SelfAttention(biased("bert", seed=37)[0], tokenizer())
    batch = Batch.of(texts(bert.model, (11, 3, 9, 5), seed=2), bert)
    mask = bert.attendable(batch).numpy()
    logits = bert.predict(batch).double().numpy()
    shares = bert.relevance(batch, lambda logits, rows: logits, "frozen")[1].numpy()
    columns = {
        name.removeprefix("frozen_flip_"): values
        for name, values in run("frozen_flip_set", bert, batch, absent="mask_token", draws=3).items()
    }
    assert np.isnan(columns["size"]).tolist() == [False, False, True, False]
    for row in range(4):
        own, of_tokens, chosen = logits[row].argmax(), shares[row][:, mask[row]], columns["set"][row]
        rivals = [number for number in range(3) if number != own]
        parts, whole = of_tokens[own] - of_tokens[rivals], logits[row, own] - logits[row, rivals]
        size = smallest_of_all(parts, whole, np.array(rivals) < own)
        if size is None:
            assert not chosen.any()
            assert all(np.isnan(columns[name][row]).all() for name in ("size", "probs", "class", "random"))
            continue
        assert columns["size"][row] == size == chosen.sum()
        frozen = logits[row] - of_tokens[:, chosen > 0].sum(1)
        assert frozen.argmax() == columns["class"][row] != own
        random = generator(0, batch["instance_id"][row], "frozen_flip_set")
        stays = [np.ones((0, count), bool) for count in mask.sum(1)]
        stays[row] = np.array([chosen, *(random.permutation(chosen) for _ in range(3))]) == 0
        without, *others = read_parts(bert, batch, stays, "mask_token")[row]
        tolerances.close(columns["probs"][row], softmax(without), dtype=torch.float32)
        assert columns["random"][row] == pytest.approx(np.mean([other.argmax() != own for other in others]))
