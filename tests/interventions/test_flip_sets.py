"""Flipping sets against every subset there is, in exact arithmetic, and against the model."""

import itertools
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.interventions import erasure
from attnfaith.interventions.explanation_tests import smallest_set
from attnfaith.models.modeling_attention_classifier import Encoded
from attnfaith.subjects import Batch, SelfAttention
from attnfaith.subjects.text_parts import read_parts
from tests import tolerances
from tests.measuring import run
from tests.small_classifiers import classifier, texts, tokenizer


# --------------------------------------------------------------------------------------- minimal


ORDERS = (*erasure.RANKINGS, "random")


class Given:
    """A subject that attends as told and whose states are class values already: logits are sum_t a_t v_t + b."""

    kind, device, pad_token_id = "texts that are given", torch.device("cpu"), None
    can = capabilities = frozenset({"classes", "states", "affine read-out", "intervention"})
    removal_renormalises = True  # as softmax attention's

    def __init__(self, attention, bias):
        self.given, self.bias = attention, bias

    def attention(self, _batch):
        return self.given

    def attendable(self, batch):
        return batch["encoded"].mask

    def encoded(self, batch):
        return batch["encoded"]

    def decoder_weights(self, _query=None):
        return torch.eye(len(self.bias), dtype=torch.float64), self.bias


def asked(texts, bias):
    """Model and batch of texts given as (weights, values): weights in any unit."""
    length = max(1, *(len(weights) for weights, _ in texts))
    attention = torch.zeros(len(texts), length, dtype=torch.float64)
    values = torch.zeros(len(texts), length, len(bias), dtype=torch.float64)
    mask = torch.zeros(len(texts), length, dtype=torch.bool)
    for row, (weights, of) in enumerate(texts):
        if len(weights):
            attention[row, : len(weights)] = torch.tensor(weights, dtype=torch.float64) / sum(weights)
            values[row, : len(weights)] = torch.tensor(of, dtype=torch.float64)
            mask[row, : len(weights)] = True
    batch = Batch(
        {
            "input_ids": mask.long(),
            "encoded": Encoded(values, mask, None),
            "instance_id": [f"t/{row}" for row in range(len(texts))],
        }
    )
    return Given(attention, torch.tensor(bias, dtype=torch.float64)), batch


def smallest(weights, values, bias, **options):
    found = run("minimal_flip_set", *asked([(weights, values)], bias), **options)
    return {name.removeprefix("minimal_flip_"): column[0] for name, column in found.items()}


def decision(weights, values, bias, removed):
    """The most probable class, the lower one on ties, in exact arithmetic; weights, values and bias are whole numbers."""
    left = [t for t in range(len(weights)) if t not in removed]
    total = sum(weights[t] for t in left)
    logits = [
        Fraction(sum(weights[t] * values[t][c] for t in left), total) + bias[c] if total else Fraction(bias[c])
        for c in range(len(bias))
    ]
    return logits.index(max(logits))


def flipping(weights, values, bias):
    """Every smallest set that flips the decision, by trying all; [] where none does."""
    own = decision(weights, values, bias, ())
    for size in range(1, len(weights) + 1):
        sets = itertools.combinations(range(len(weights)), size)
        if found := [removed for removed in sets if decision(weights, values, bias, removed) != own]:
            return found
    return []


@st.composite
def cases(draw):
    tokens, classes = draw(st.integers(2, 8)), draw(st.integers(2, 4))
    # few different numbers: many ties and many weights of 0
    weights = draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 97]), min_size=tokens, max_size=tokens).filter(any))
    row = st.lists(st.integers(-3, 3), min_size=classes, max_size=classes)
    return weights, draw(st.lists(row, min_size=tokens, max_size=tokens)), draw(row)


@pytest.mark.slow
@settings(max_examples=400, derandomize=True)
@given(cases())
def test_no_smaller_set_flips(case):
    weights, values, bias = case
    best, found = flipping(*case), smallest(*case)
    removed = tuple(np.flatnonzero(found["set"]).tolist())
    assert found["certainty"] == "exact"
    if not best:
        assert removed == () and np.isnan(found["size"]) and np.isnan(found["mass"]) and not found["empty"]
        return
    assert removed in best and found["size"] == len(removed)
    np.testing.assert_allclose(found["mass"], sum(weights[t] for t in removed) / sum(weights), rtol=1e-6)
    assert found["empty"] == (found["mass"] == 1)
    if found["empty"]:  # only the loss of all weight flips: no set that leaves some is as small
        assert all(sum(weights[t] for t in other) == sum(weights) for other in best)


@pytest.mark.slow
@settings(max_examples=200, derandomize=True)
@given(cases())
def test_every_order_of_erasure_step_by_step_and_never_below_the_minimum(case):
    weights, values, bias = case
    own, least = decision(*case, ()), smallest(*case)["size"]
    model, batch = asked([(weights, values)], bias)
    found = run("erasure", model, batch)
    scores = {
        "attention": model.given[0].numpy(),
        "gradient": found["erasure_gradient"][0],
        "attention_gradient": model.given[0].numpy() * found["erasure_gradient"][0],
    }
    orders = {name: [np.argsort(-score, kind="stable")] for name, score in scores.items()}
    for name, ranked in (orders | {"random": found["erasure_order"][0]}).items():
        for draw, order in enumerate(ranked):
            steps = (k for k in range(1, len(order) + 1) if decision(*case, set(order[:k].tolist())) != own)
            expected = next(steps, np.nan)
            parts = [np.atleast_1d(found[f"erasure_flip_{part}_{name}"][0])[draw] for part in ("size", "mass", "empty")]
            np.testing.assert_equal(float(parts[0]), float(expected))
            assert not parts[0] < least and not (np.isnan(least) and parts[0] > 0)
            if parts[0] > 0:
                gone = sum(weights[t] for t in order[: int(expected)])
                np.testing.assert_allclose(parts[1], gone / sum(weights), rtol=1e-6)
                assert parts[2] == (gone == sum(weights))
            else:
                assert np.isnan(parts[1]) and not parts[2]


def test_by_hand():
    """Class 1 is ahead by 8, 4, 1 and -6 in four equal weights, and behind without the 8: 4 + 1 - 6 < 0."""
    found = smallest([1, 1, 1, 1], [[0, 8], [0, 4], [0, 1], [0, -6]], [0, 0])
    np.testing.assert_array_equal(found["set"], [1, 0, 0, 0])
    assert (found["size"], found["mass"], found["empty"], found["certainty"]) == (1, 0.25, False, "exact")
    # class 0 keeps the tie at 4 + 2 - 6 and loses it only to one token more
    found = smallest([1, 1, 1, 1], [[8, 0], [4, 0], [2, 0], [-6, 0]], [0, 0])
    np.testing.assert_array_equal(found["set"], [1, 1, 0, 0])
    # against class 0 a tie is enough
    found = smallest([1, 1, 1, 1], [[0, 8], [0, 4], [0, 2], [0, -6]], [0, 0])
    np.testing.assert_array_equal(found["set"], [1, 0, 0, 0])


def test_all_attention_on_one_token():
    """Nothing but the bias is left without it; the tokens without weight are not in the set."""
    values = [[5, 0], [0, 3], [0, 4]]
    found = smallest([0, 1, 0], values, [1, 0])
    np.testing.assert_array_equal(found["set"], [0, 1, 0])
    assert (found["size"], found["mass"], found["empty"]) == (1, 1, True)
    kept = smallest([0, 1, 0], values, [0, 1])
    assert np.isnan(kept["size"]) and not kept["set"].any() and not kept["empty"] and kept["certainty"] == "exact"


def test_nearly_all_attention_on_one_token():
    """What remains is added up, not what is removed subtracted from 1: weights of 1e-17 still decide."""
    found = smallest([1, 1e-17, 2e-17], [[0, 5], [1, 0], [0, 2]], [0, 0])
    np.testing.assert_array_equal(found["set"], [1, 0, 1])
    assert found["size"] == 2 and not found["empty"]


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@torch.no_grad()
def test_the_model_decides_as_claimed(projection, query, tiny_model, tiny_rows, tiny_batch):
    """Read-out and all: removing the set changes the decision of the decoder, and all weights but one do as well."""
    model = tiny_model(projection=projection, query=query, num_labels=3)
    batch = tiny_batch(tiny_rows([5, 6, 4, 7, 3, 8], pair=query == "text"))
    check_against_the_decoder(model, batch, exact=True)


@torch.no_grad()
def check_against_the_decoder(model, batch, exact):
    hidden, mask, asking = model.encode(**{name: value for name, value in batch.items() if name != "instance_id"})
    attention = model.attend(hidden, mask, asking)
    found = run("minimal_flip_set", model, batch)
    flips = 0
    for row, chosen in enumerate(found["minimal_flip_set"]):
        keep = np.array(list(itertools.product([1.0, 0.0], repeat=len(chosen))))
        weights = torch.zeros(1, len(keep), mask.shape[1], dtype=torch.float64)
        weights[0][:, mask[row]] = attention[row][mask[row]].double() * torch.from_numpy(keep)
        weights /= weights.sum(-1, keepdim=True).clamp(min=1e-300)
        query = None if asking is None else asking[row, None]
        logits = model.decode(hidden[row, None], weights.float(), query)[0]
        changed = logits.argmax(-1).numpy() != int(logits[0].argmax())
        sizes = (keep == 0).sum(1)
        least = sizes[changed].min() if changed.any() else np.nan
        size = found["minimal_flip_size"][row]
        if exact:
            np.testing.assert_equal(size, float(least))
        else:
            assert not size < least
        if size > 0:
            flips += 1
            assert changed[(keep == 1 - chosen).all(1)].all() and size == chosen.sum()
            if found["minimal_flip_certainty"][row] == "exact":
                assert size == least
    assert flips > 1


@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_a_decoder_that_is_not_affine_gets_an_upper_bound(projection, query, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(projection=projection, query=query, num_labels=3, readout="tanh", seed=1)
    batch = tiny_batch(tiny_rows([5, 6, 4, 7, 3, 8], pair=query == "text"))
    check_against_the_decoder(model, batch, exact=False)
    found, erased = run("minimal_flip_set", model, batch), run("erasure", model, batch)
    for size, certainty in zip(found["minimal_flip_size"], found["minimal_flip_certainty"], strict=True):
        assert certainty == ("exact" if size == 1 else "upper bound")
    for name in ORDERS:
        for size, others in zip(found["minimal_flip_size"], erased[f"erasure_flip_size_{name}"], strict=True):
            assert not (np.atleast_1d(others) < size).any()


# --------------------------------------------------------------------------------------- frozen


@pytest.fixture(scope="module")
def bert():
    return SelfAttention(classifier("bert", seed=3), tokenizer())


def smallest_of_all(parts, whole, lower):
    """The size of the smallest set that loses a margin, by trying all; None where there is none."""
    for size in range(1, parts.shape[1] + 1):
        for chosen in combinations(range(parts.shape[1]), size):
            left = whole - parts[:, chosen].sum(1)
            if ((left < 0) | (lower & (left == 0))).any():
                return size
    return None


@pytest.mark.parametrize("seed", range(40))
def test_a_sort_finds_the_smallest_of_all_sets(seed):
    random = np.random.default_rng(seed)
    parts = random.integers(-4, 5, (int(random.integers(1, 4)), int(random.integers(0, 8)))).astype(float)
    whole, lower = random.integers(1, 9, len(parts)).astype(float), random.random(len(parts)) < 0.5
    chosen, rival = smallest_set(parts, whole, lower)
    expected = smallest_of_all(parts, whole, lower)
    assert (chosen.sum() or None) == expected
    if expected:
        left = whole - parts[:, chosen].sum(1)
        assert left[rival] == left.min() and (left[rival] < 0 or (lower & (left == 0)).any())


@torch.no_grad()
def test_sets_and_what_the_model_says(bert):
    """Parts are those of single logits; what the model says is read by hand."""
    batch = Batch.of(texts(bert.model, (11, 7, 9, 10), seed=2), bert)
    mask = bert.attendable(batch).numpy()
    logits = bert.predict(batch).double().numpy()
    shares = bert.relevance(batch, lambda logits, rows: logits, "frozen").per_position.numpy()
    columns = run("frozen_flip_set", bert, batch, absent="mask_token", draws=3)
    sizes = columns["frozen_flip_size"]
    assert np.isfinite(sizes).any()
    for row in range(4):
        own = logits[row].argmax()
        rivals = [number for number in range(3) if number != own]
        of_tokens = shares[row][:, mask[row]]
        parts, whole = of_tokens[own] - of_tokens[rivals], logits[row, own] - logits[row, rivals]
        expected = smallest_of_all(parts, whole, np.array(rivals) < own)
        chosen = columns["frozen_flip_set"][row]
        if expected is None:
            assert np.isnan(sizes[row]) and not chosen.any() and np.isnan(columns["frozen_flip_probs"][row]).all()
            assert np.isnan(columns["frozen_flip_class"][row]) and np.isnan(columns["frozen_flip_random"][row])
            continue
        assert sizes[row] == expected == chosen.sum()
        frozen = logits[row] - of_tokens[:, chosen > 0].sum(1)
        assert frozen.argmax() == columns["frozen_flip_class"][row] != own
        alone = [np.ones((0, count), bool) for count in mask.sum(1)]
        alone[row] = (chosen == 0)[None]
        prediction = read_parts(bert, batch, alone, "mask_token")[row][0]
        tolerances.close(
            columns["frozen_flip_probs"][row], np.exp(prediction) / np.exp(prediction).sum(), dtype=torch.float32, depth=4
        )
        assert columns["frozen_flip_random"][row] * 3 == pytest.approx(round(columns["frozen_flip_random"][row] * 3))
