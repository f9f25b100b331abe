"""Permuted and shuffled attention, against every order there is and against the decoder itself.

The numbers of the reference implementation are in tests/models/test_golden.py.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from attnfaith.measurement.registry import find
from tests.measuring import run
from tests.stages import Text


READOUTS = pytest.mark.parametrize(
    ("query", "readout", "projection"), [("learned", "affine", "softmax"), ("text", "tanh", "sparsemax")]
)


@READOUTS
def test_every_order_is_drawn_equally_often(query, readout, projection, tiny_model, tiny_rows, tiny_batch):
    """Of three tokens there are six orders: each draw is what one of them gives, and each comes a sixth of the time."""
    model = tiny_model(query=query, readout=readout, projection=projection, num_labels=3)
    batch = tiny_batch(tiny_rows([3, 5], pair=query == "text"))
    text = Text(model, batch)
    orders = text.probs(text.attention[np.array(list(itertools.permutations(range(3))))])
    probs = run("permutation", model, batch, draws=3000)["permuted_probs"][0]
    distance = np.abs(probs[:, None] - orders).max(-1)
    assert distance.min(1).max() < 1e-6
    # orders that give the same prediction (two weights of 0) are counted together
    alike = np.abs(orders[:, None] - orders).max(-1) < 1e-6
    assert len({tuple(row) for row in alike}) > 1
    np.testing.assert_allclose((distance < 1e-6).mean(0), alike.sum(1) / 6, atol=5 * math.sqrt(0.25 / 3000))


ATTENTION, PROBS, NORM, REMOVED = find("random_support").columns


def by_hand(text, weights):
    """Probabilities, gradient norms and distances of a text under one attention, by the decoder in float64."""
    states = text.hidden[:, text.places].detach().requires_grad_()
    probs = text.model.decode(states, torch.as_tensor(weights)[None], text.query).softmax(-1)[0]
    best = probs.argmax()
    (slope,) = torch.autograd.grad(probs[best].log() - torch.log1p(-probs[best]), states)
    moved = []
    for token in range(len(weights)):
        left = weights * (np.arange(len(weights)) != token)
        left = left / left.sum() if left.sum() else left
        moved.append(np.abs(text.probs(left) - text.probs(weights)).sum() / 2)
    return probs.detach().numpy(), slope[0].norm(dim=-1).numpy(), moved


@pytest.mark.parametrize("num_labels", [2, 4])
@pytest.mark.parametrize(("query", "readout"), [("text", "affine"), ("learned", "tanh")])
def test_random_support_by_the_decoder(query, readout, num_labels, tiny_model, tiny_rows, tiny_batch):
    """A state without weight is worth exactly nothing."""
    model = tiny_model(query=query, readout=readout, projection="sparsemax", num_labels=num_labels)
    batch = tiny_batch(tiny_rows([6, 0, 9, 1, 2], pair=query == "text"))
    columns, idle = run("random_support", model, batch, draws=3), 0
    for row, length in enumerate((6, 0, 9, 1, 2)):
        text, draws = Text(model, batch, row), 3 if length > 1 else 0
        assert columns[PROBS][row].shape == (draws, num_labels)
        assert all(columns[name][row].shape == (draws, length) for name in (ATTENTION, NORM, REMOVED))
        for draw in range(draws):
            weights = columns[ATTENTION][row][draw].astype(np.float64)
            np.testing.assert_allclose(np.sort(weights), np.sort(text.attention), atol=1e-7)
            for name, expected in zip((PROBS, NORM, REMOVED), by_hand(text, weights / weights.sum()), strict=True):
                np.testing.assert_allclose(columns[name][row][draw], expected, atol=2e-6, rtol=1e-5)
            without = weights == 0
            idle += without.sum()
            assert not columns[NORM][row][draw][without].any() and not columns[REMOVED][row][draw][without].any()
    assert idle and max(values.max() for values in columns[REMOVED] if values.size) > 0.01
