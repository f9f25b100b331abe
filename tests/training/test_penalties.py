"""The penalties of training: by hand, by a second route, and where they are undefined."""

from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_similarity as sklearn_cosine

from attnfaith.models.projections import project
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.penalties import FLOOR, conicity, drawn_words, impermissible_mass, masked_language_model, word_tying


LENGTHS = (5, 1, 3, 0, 4)
MARKED = ([0, 1, 0, 0, 1], [0], [1, 1, 1], [], [0, 0, 0, 0])  # both kinds, none, all, no token, none


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def marked_batch(width=5):
    """impermissible (B,T) and mask (B,T) of LENGTHS and MARKED; outside the texts impermissible says 1."""
    mask = torch.arange(width) < torch.tensor(LENGTHS).unsqueeze(1)
    impermissible = torch.ones(len(LENGTHS), width, dtype=torch.int64)
    for row, marks in enumerate(MARKED):
        impermissible[row, : len(marks)] = torch.tensor(marks)
    return impermissible, mask


def projected(scores, mask, projection="softmax"):
    config = SimpleNamespace(projection=projection, score_scale=None, sparsegen_lambda=0.5, entmax_alpha=1.3)
    return project(scores, mask, config)


# -------------------------------------------------------------------------------------------------- impermissible mass


def test_two_heads_by_hand():
    """Impermissible shares 3/4 and 1/2: nats log 4 and log 2."""
    attention = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]])
    mask, impermissible = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    for heads, expected in (("mean", log(8) / 2), ("max", log(4))):
        for scores in (None, attention.log() + 7):
            mass = impermissible_mass(attention, impermissible, mask, heads=heads, scores=scores)
            torch.testing.assert_close(mass, torch.tensor([expected]))


@pytest.mark.parametrize("projection", ["softmax", "sparsegen", "entmax"])
def test_the_logarithm_of_what_is_left_by_loops(projection):
    impermissible, mask = marked_batch()
    scores = drawn(5, 5, seed=3) / 10
    attention = projected(scores, mask, projection)
    expected = []
    for weights, marks, inside in zip(attention.numpy(), impermissible.numpy(), mask.numpy(), strict=True):
        mass = sum(w for w, m, i in zip(weights, marks, inside, strict=True) if m and i)
        tokens = marks[inside]
        expected.append(-np.log(max(1 - mass, FLOOR)) if 0 < tokens.sum() < len(tokens) else 0.0)
    assert expected[0] > 0 and expected[1:] == [0.0] * 4
    for own_scores in (None, scores) if projection == "softmax" else (None,):
        mass = impermissible_mass(attention, impermissible, mask, scores=own_scores)
        np.testing.assert_allclose(mass, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_far_apart_keep_value_and_gradient(dtype):
    """Weights that are rounded to 1 and 0: the logarithm of their sum would be minus infinity, or cut without gradient."""
    scores = torch.tensor([[-200.0, 200.0], [200.0, -200.0]], dtype=dtype, requires_grad=True)
    mask, impermissible = torch.ones(2, 2, dtype=torch.bool), torch.tensor([[0, 1], [0, 1]])
    penalty = impermissible_mass(scores.softmax(-1), impermissible, mask, scores=scores)
    assert penalty.dtype == torch.float32 and penalty.tolist() == [400, 0]
    (slope,) = torch.autograd.grad(penalty.sum(), scores)
    torch.testing.assert_close(slope, torch.tensor([[-1.0, 1.0], [0.0, 0.0]], dtype=dtype))


def test_below_the_floor_there_is_no_gradient():
    attention = torch.tensor([[FLOOR / 2, 1 - FLOOR / 2]], requires_grad=True)
    mask, impermissible = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    penalty = impermissible_mass(attention, impermissible, mask)
    torch.testing.assert_close(penalty.detach(), torch.tensor([-log(FLOOR)]))
    assert torch.autograd.grad(penalty.sum(), attention)[0].eq(0).all()


# ------------------------------------------------------------------------------------------------- diversity and tying


def test_conicity_by_loops():
    mask = marked_batch()[1]
    states = drawn(5, 5, 7, seed=1)
    values = conicity(states, mask)
    assert values.tolist()[1] == 0 and values.tolist()[3] == 0  # a single token, and none
    for row in (0, 2, 4):
        inside = states[row, : LENGTHS[row]].numpy()
        expected = np.abs(sklearn_cosine(inside, inside.mean(0, keepdims=True))).mean()
        np.testing.assert_allclose(values[row], expected, atol=1e-12)


@pytest.mark.parametrize(("distance", "power"), [("norm", 1), ("squared", 2)])
def test_distances_by_loops(distance, power):
    mask = marked_batch()[1]
    states, vectors = (drawn(5, 5, 7, seed=seed).requires_grad_() for seed in (1, 2))
    apart = (states - vectors).detach().numpy()
    expected = [
        np.mean([np.linalg.norm(apart[row, place]) ** power for place in range(length)]) if length else 0.0
        for row, length in enumerate(LENGTHS)
    ]
    values = word_tying(states, vectors, mask, distance)
    np.testing.assert_allclose(values.detach(), expected, atol=1e-12)
    slopes = torch.autograd.grad(values.sum(), (states, vectors))
    torch.testing.assert_close(slopes[0], -slopes[1])
    assert slopes[0][~mask].eq(0).all() and slopes[0][mask].ne(0).all()
    with pytest.raises(AttnfaithError, match="a state of 3 numbers with a word vector of 4"):
        word_tying(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4), torch.ones(1, 2, dtype=torch.bool))


# ------------------------------------------------------------------------------------------------ masked language model


def test_masked_words_by_loops():
    masked = marked_batch()[1] & (drawn(5, 5, seed=8) > 0)
    words = torch.arange(25).reshape(5, 5) % 6
    logits = drawn(int(masked.sum()), 6, seed=9)
    probs = iter(np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True))
    expected = np.zeros(5)
    for row in range(5):
        right = [next(probs)[words[row, place]] for place in range(5) if masked[row, place]]
        expected[row] = -np.mean(np.log(right)) if right else 0
    assert (expected > 0).sum() >= 3
    np.testing.assert_allclose(masked_language_model(logits, words, masked), expected, rtol=1e-5)


def test_which_words_are_masked_is_the_texts_own():
    ids = torch.arange(1, 121).reshape(2, 60)
    present, words = torch.ones_like(ids), torch.ones_like(ids, dtype=torch.bool)
    words[:, 0] = False
    masked = drawn_words(ids, present, words, 0.3, seed=1, step=5)
    assert not masked[:, 0].any() and 20 < int(masked.sum()) < 55
    swapped = drawn_words(ids.flip(0), present, words, 0.3, seed=1, step=5)
    assert swapped.flip(0).equal(masked)
    padded = [torch.nn.functional.pad(values[:1], (0, 7)) for values in (ids, present, words)]
    assert drawn_words(*padded, 0.3, seed=1, step=5)[:, :60].equal(masked[:1])
    for stream in ({"seed": 2, "step": 5}, {"seed": 1, "step": 6}):
        assert not drawn_words(ids, present, words, 0.3, **stream).equal(masked)
    assert drawn_words(ids, present, words, 1.0, seed=1, step=5).equal(words) and words[:, 1:].all()
