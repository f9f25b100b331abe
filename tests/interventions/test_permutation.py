"""Permuted attention, against every order there is and against the decoder itself.

The numbers of the reference implementation are in tests/models/test_golden.py.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from attnfaith.interventions.permutation import read_permuted
from attnfaith.interventions.targets import Pooled
from attnfaith.subjects import opened
from tests.measuring import run


def probabilities(model, batch, **options):
    return run("permutation", model, batch, **options)["permuted_probs"]


def decoded(model, batch, row, weights):
    """Class probabilities (K,C) by the decoder itself, of attentions (K,T) over the tokens of one instance."""
    hidden, mask, query = model.encode(**{name: v for name, v in batch.items() if name != "instance_id"})
    attention = torch.zeros(1, len(weights), mask.shape[1])
    attention[0][:, mask[row]] = torch.from_numpy(np.asarray(weights, np.float32))
    logits = model.decode(hidden[row, None], attention, None if query is None else query[row, None])
    return logits[0].detach().double().softmax(-1).numpy()


def attention_of(model, batch, row):
    encoded = model.encode(**{name: v for name, v in batch.items() if name != "instance_id"})
    return model.attend(*encoded)[row, encoded.mask[row]].detach().numpy()


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


def test_token_t_takes_the_weight_of_the_token_named(tiny_model, tiny_rows, tiny_batch):
    """A rotation is no order that is its own inverse: the direction shows."""
    model, batch = tiny_model(), tiny_batch(tiny_rows([4]))
    weights = attention_of(model, batch, 0)
    found = read_permuted(Pooled(*opened(model, batch)), [np.array([[1, 2, 3, 0]])])[0][0]
    np.testing.assert_allclose(found, decoded(model, batch, 0, [np.roll(weights, -1)]), atol=1e-6)
    assert np.abs(found - decoded(model, batch, 0, [np.roll(weights, 1)])).max() > 1e-3


@pytest.mark.parametrize("readout", ["affine", "tanh"])
def test_uniform_attention_never_changes(readout, tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(projection="uniform", readout=readout), tiny_batch(tiny_rows([7, 2, 30]))
    own = model(**{name: v for name, v in batch.items() if name != "instance_id"}).logits.detach().softmax(-1).numpy()
    for probs, expected in zip(probabilities(model, batch), own, strict=True):
        assert (probs == probs[0]).all()
        np.testing.assert_allclose(probs[0], expected, atol=1e-6)


def test_nothing_to_permute_is_no_draw(tiny_model, tiny_rows, tiny_batch):
    found = probabilities(tiny_model(num_labels=3), tiny_batch(tiny_rows([0, 1, 2])), draws=5)
    assert [probs.shape for probs in found] == [(0, 3), (0, 3), (5, 3)]
