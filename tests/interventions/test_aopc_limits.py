"""Limits of AOPC, against every order there is."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from attnfaith.interventions.aopc_limits import AOPCLimits


def aopc_of_all_orders(p, length):
    """p: a function of sets (V,T) of removed tokens."""
    orders = np.array(list(itertools.permutations(range(length))))
    removed = np.argsort(orders, 1)[:, None] <= np.arange(length)[:, None]
    return p(np.zeros((1, length), bool))[0] - p(removed.reshape(-1, length)).reshape(len(orders), length).mean(1)


def drawn(length, seed):
    """A probability for each set of tokens, drawn at random."""
    values = np.random.default_rng(seed).random(2**length)
    return lambda sets: values[(sets * 2 ** np.arange(length)).sum(1)]


def limits_of(p, orders, exact_tokens, beam):
    limits = AOPCLimits(exact_tokens=exact_tokens, beam=beam).limits(np.asarray(orders), p)
    return SimpleNamespace(**dict(zip(("aopc", "low", "high", "certainty"), limits, strict=True)))


@pytest.mark.parametrize("length", [1, 3, 5])
def test_exact_limits_are_those_of_all_orders(length):
    for seed in range(3):
        p, order = drawn(length, seed), np.random.default_rng(seed).permutation(length)
        limits, values = limits_of(p, [order], length, 1), aopc_of_all_orders(p, length)
        assert (limits.low, limits.high) == pytest.approx((values.min(), values.max()), abs=1e-12)
        assert limits.certainty == "exact"
        removed = np.argsort(order)[None] <= np.arange(length)[:, None]
        assert limits.aopc == pytest.approx([p(np.zeros((1, length), bool))[0] - p(removed).mean()])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_lies_within_the_limits(seed):
    length = 6
    p = drawn(length, seed)
    values = aopc_of_all_orders(p, length)
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(length), (3, 1)), axis=1)
    for beam in (1, 3, 1000):
        limits = limits_of(p, orders, 0, beam)
        assert values.min() <= limits.low + 1e-12 <= limits.aopc.min() + 2e-12
        assert values.max() >= limits.high - 1e-12 >= limits.aopc.max() - 2e-12
        assert limits.certainty == "met"
        assert min(np.abs(values - limits.low)) < 1e-12 and min(np.abs(values - limits.high)) < 1e-12  # of an order
    assert (limits.low, limits.high) == pytest.approx((values.min(), values.max()))
