"""The frozen network's smallest set against all sets there are, and the model asked by hand."""

from itertools import combinations

import numpy as np
import pytest
import torch

from attnfaith.interventions.flip_sets import smallest_set
from attnfaith.measurement.registry import find
from attnfaith.subjects import Batch, SelfAttention, SubjectError
from attnfaith.subjects.removal import read_parts
from tests import tolerances
from tests.measuring import run
from tests.small_classifiers import classifier, texts, tokenizer


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
    shares = bert.relevance(batch, lambda logits, rows: logits, "frozen").of_places.numpy()
    made = run("frozen_flip_set", bert, batch, absent="mask_token", draws=3)
    sizes = made["frozen_flip_size"]
    assert np.isfinite(sizes).any()
    for row in range(4):
        own = logits[row].argmax()
        rivals = [number for number in range(3) if number != own]
        of_tokens = shares[row][:, mask[row]]
        parts, whole = of_tokens[own] - of_tokens[rivals], logits[row, own] - logits[row, rivals]
        expected = smallest_of_all(parts, whole, np.array(rivals) < own)
        chosen = made["frozen_flip_set"][row]
        if expected is None:
            assert np.isnan(sizes[row]) and not chosen.any() and np.isnan(made["frozen_flip_probs"][row]).all()
            assert np.isnan(made["frozen_flip_class"][row]) and np.isnan(made["frozen_flip_random"][row])
            continue
        assert sizes[row] == expected == chosen.sum()
        frozen = logits[row] - of_tokens[:, chosen > 0].sum(1)
        assert frozen.argmax() == made["frozen_flip_class"][row] != own
        alone = [np.ones((0, count), bool) for count in mask.sum(1)]
        alone[row] = (chosen == 0)[None]
        said = read_parts(bert, batch, alone, "mask_token")[row][0]
        tolerances.close(made["frozen_flip_probs"][row], np.exp(said) / np.exp(said).sum(), dtype=torch.float32, depth=4)
        assert made["frozen_flip_random"][row] * 3 == pytest.approx(round(made["frozen_flip_random"][row] * 3))


def test_what_is_refused(bert):
    with pytest.raises(SubjectError, match="frozen_flip_set with absent='mask_token'' needs 'mask token'"):
        find("frozen_flip_set")(absent="mask_token").check(SelfAttention(classifier("gpt2")), None)
