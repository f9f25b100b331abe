"""Permuted and shuffled attention, against every order there is and against the decoder itself.

The numbers of the reference implementation are in tests/models/test_golden.py.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from attnfaith.importance.gradients import GradientNorm
from attnfaith.importance.perturbation import LeaveOneOut
from attnfaith.interventions.permutation import read_permuted
from attnfaith.interventions.targets import Pooled
from attnfaith.measurement.registry import find
from attnfaith.subjects import opened
from tests.interventions.pooled import attention_of, decoded, encoded
from tests.measuring import run


def probabilities(model, batch, **options):
    return run("permutation", model, batch, **options)["permuted_probs"]


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_every_order_is_drawn_equally_often(query, readout, projection, tiny_model, tiny_rows, tiny_batch):
    """Of three tokens there are six orders: each draw is what one of them gives, and each comes a sixth of the time."""
    model = tiny_model(query=query, readout=readout, projection=projection, num_labels=3)
    batch = tiny_batch(tiny_rows([3, 5], pair=query == "text"))
    weights = attention_of(model, batch, 0)
    every = decoded(model, batch, 0, [weights[list(order)] for order in itertools.permutations(range(3))])
    found = probabilities(model, batch, draws=3000)[0]
    distance = np.abs(found[:, None] - every).max(-1)
    assert distance.min(1).max() < 1e-6
    # orders that give the same prediction (two weights of 0) are counted together
    alike = np.abs(every[:, None] - every).max(-1) < 1e-6
    expected = alike.sum(1) / 6
    shares = (distance < 1e-6).mean(0)
    assert len({tuple(row) for row in alike}) > 1
    np.testing.assert_allclose(shares, expected, atol=5 * math.sqrt(0.25 / 3000))


@pytest.mark.parametrize("readout", ["affine", "tanh"])
@pytest.mark.parametrize("query", ["learned", "text"])
def test_given_orders_are_what_the_decoder_says(query, readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(query=query, readout=readout, num_labels=4)
    batch = tiny_batch(tiny_rows([6, 0, 9, 1], pair=query == "text"))
    random = np.random.default_rng(0)
    orders = [
        np.array([random.permutation(length) for _ in range(count)])
        for length, count in zip((6, 0, 9, 1), (7, 2, 5, 3), strict=True)
    ]
    found = read_permuted(Pooled(*opened(model, batch)), orders)[0]
    for row, order in enumerate(orders):
        assert found[row].shape == (len(order), 4)
        expected = decoded(model, batch, row, attention_of(model, batch, row)[order.astype(int)])
        np.testing.assert_allclose(found[row], expected, atol=1e-6)


# --------------------------------------------------------------------------------------- random support


ATTENTION, PROBS, NORM, REMOVED = find("random_support").columns


def close(found, expected, atol=2e-6, rtol=1e-5):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=atol, rtol=rtol)


def by_hand(model, batch, row, weights):
    """Probabilities, gradient norms and distances of one text under one attention, by the decoder in float64."""
    hidden, mask, query = encoded(model, batch)
    states = hidden[row : row + 1, mask[row]].detach().requires_grad_()
    query = None if query is None else query[row : row + 1]

    def probabilities(attention):
        return model.decode(states, torch.as_tensor(attention)[None], query).softmax(-1)[0]

    probs = probabilities(weights)
    best = probs.argmax()
    (slope,) = torch.autograd.grad(probs[best].log() - torch.log1p(-probs[best]), states)
    moved = []
    for token in range(len(weights)):
        left = weights.copy()
        left[token] = 0
        left = left / left.sum() if left.sum() else left
        moved.append(float((probabilities(left) - probs).abs().sum().detach() / 2))
    return probs.detach().numpy(), slope[0].norm(dim=-1).numpy(), moved


@pytest.mark.parametrize("num_labels", [2, 4])
@pytest.mark.parametrize(("query", "readout"), list(itertools.product(["learned", "text"], ["affine", "tanh"])))
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_against_the_decoder(query, readout, projection, num_labels, tiny_model, tiny_rows, tiny_batch):
    fields = {"query": query, "readout": readout, "projection": projection, "num_labels": num_labels}
    model = tiny_model(**fields, dtype=torch.float64)
    batch = tiny_batch(tiny_rows([6, 0, 9, 1, 2], pair=query == "text"))
    measured = run("random_support", model, batch, draws=3)
    for row, length in enumerate((6, 0, 9, 1, 2)):
        draws = 3 if length > 1 else 0
        assert measured[PROBS][row].shape == (draws, num_labels)
        assert all(measured[name][row].shape == (draws, length) for name in (ATTENTION, NORM, REMOVED))
        own = attention_of(model, batch, row)
        for draw in range(draws):
            weights = measured[ATTENTION][row][draw].astype(np.float64)
            close(np.sort(weights), np.sort(own), atol=1e-7)
            found = [measured[name][row][draw] for name in (PROBS, NORM, REMOVED)]
            for one, other in zip(found, by_hand(model, batch, row, weights / weights.sum()), strict=True):
                close(one, other)
    assert max(values.max() for values in measured[REMOVED] if values.size) > 0.01


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_a_state_without_weight_is_worth_exactly_nothing(readout, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(projection="sparsemax", readout=readout, scale=6.0)
    measured = run("random_support", model, tiny_batch(tiny_rows([20])))
    idle = measured[ATTENTION][0] == 0
    assert 0 < idle.sum() < idle.size
    for name in (NORM, REMOVED):
        assert (measured[name][0][idle] == 0).all() and (measured[name][0][~idle] > 0).all()


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_equal_weights_have_one_order(readout, tiny_model, tiny_rows, tiny_batch):
    """Every draw is the model's own attention: the measures of importance say the same of it."""
    model, batch = tiny_model(projection="uniform", readout=readout, num_labels=3), tiny_batch(tiny_rows([7, 2]))
    measured = run("random_support", model, batch)
    removed = run(LeaveOneOut, model, batch)["importance_leave_one_out_hidden"]
    norms = run(GradientNorm, model, batch)["importance_gradient_norm_detached_hidden"]
    probs = [decoded(model, batch, row, attention_of(model, batch, row)[None])[0] for row in (0, 1)]
    for row, length in enumerate((7, 2)):
        close(measured[ATTENTION][row], np.full((5, length), 1 / length))
        close(measured[PROBS][row], np.broadcast_to(probs[row], (5, 3)))
        close(measured[REMOVED][row], np.broadcast_to(removed[row], (5, length)))
        close(measured[NORM][row], np.broadcast_to(norms[row], (5, length)))
