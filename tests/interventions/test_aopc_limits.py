"""Limits of AOPC, against every order there is."""

import itertools

import numpy as np
import pytest

from attnfaith.interventions.aopc_limits import AOPCLimits, WeightAOPCLimits
from attnfaith.interventions.targets import read_out
from attnfaith.subjects import subject_of
from tests.measuring import run
from tests.stages import Text


def aopc_of_all_orders(p, length):
    """p: a function of sets (V,T) of removed tokens."""
    orders = np.array(list(itertools.permutations(range(length))))
    removed = np.argsort(orders, 1)[:, None] <= np.arange(length)[:, None]
    return p(np.zeros((1, length), bool))[0] - p(removed.reshape(-1, length)).reshape(len(orders), length).mean(1)


def drawn(length, seed):
    """A probability for each set of tokens, drawn at random."""
    values = np.random.default_rng(seed).random(2**length)
    return lambda sets: values[(sets * 2 ** np.arange(length)).sum(1)]


def limits_of(p, orders, exact_tokens, beam, **options):
    return AOPCLimits(exact_tokens=exact_tokens, beam=beam, **options).limits(np.asarray(orders), p)


@pytest.mark.parametrize("length", [1, 3, 5])
def test_exact_limits_are_those_of_all_orders(length):
    for seed in range(3):
        p, order = drawn(length, seed), np.random.default_rng(seed).permutation(length)
        limits, values = limits_of(p, [order], length, 1), aopc_of_all_orders(p, length)
        assert (limits.low, limits.high) == pytest.approx((values.min(), values.max()), abs=1e-12)
        assert (limits.low_bound, limits.high_bound, limits.certainty) == (limits.low, limits.high, "exact")
        removed = np.argsort(order)[None] <= np.arange(length)[:, None]
        assert limits.aopc == pytest.approx([p(np.zeros((1, length), bool))[0] - p(removed).mean()])


@pytest.mark.parametrize("whole_sizes", [0, 1, 2])
def test_a_beam_lies_within_the_limits_and_the_bounds_without(whole_sizes):
    length = 6
    p = drawn(length, whole_sizes)
    values, sets = aopc_of_all_orders(p, length), []

    def counted(removed):
        sets.extend(row.tobytes() for row in removed)
        return p(removed)

    orders = np.random.default_rng(whole_sizes).permuted(np.tile(np.arange(length), (3, 1)), axis=1)
    for beam in (1, 3, 1000):
        sets.clear()
        limits = limits_of(counted, orders, 0, beam, whole_sizes=whole_sizes)
        assert len(sets) == len(set(sets))  # nothing is read twice
        assert limits.low_bound <= values.min() + 1e-12 <= limits.low + 2e-12 <= limits.aopc.min() + 3e-12
        assert limits.high_bound >= values.max() - 1e-12 >= limits.high - 2e-12 >= limits.aopc.max() - 3e-12
        assert limits.certainty == "bounded"
        assert min(np.abs(values - limits.low)) < 1e-12 and min(np.abs(values - limits.high)) < 1e-12  # of an order
    assert (limits.low, limits.high) == pytest.approx((values.min(), values.max()))


def test_bounds_are_as_wide_as_the_sizes_that_were_not_read():
    """p = 1 whatever is removed: sizes that were not read could have been anything."""
    for whole_sizes, unread in ((1, 5), (3, 1), (4, 0)):
        limits = limits_of(lambda sets: np.ones(len(sets)), [np.arange(8)], 0, 2, whole_sizes=whole_sizes)
        assert (limits.low, limits.high, limits.low_bound) == (0, 0, 0) and limits.high_bound == pytest.approx(unread / 8)
        assert limits.certainty == ("bounded" if unread else "exact")


@pytest.mark.parametrize(("labels", "projection"), [(2, "sparsemax"), (3, "softmax"), (3, "sparsemax")])
def test_weights_of_a_text(labels, projection, tiny_model, tiny_rows):
    """Erased weights: exact limits and proved bounds, size by size, against every order and set."""
    model = tiny_model(num_labels=labels, projection=projection)
    subject = subject_of(model)
    batch = subject.collate(tiny_rows([5, 0, 6, 2, 1, 6]))
    exact, proved = (run("weight_aopc_limits", subject, batch, exact_tokens=most, beam=2) for most in (12, 0))
    readers = WeightAOPCLimits().readers(subject, batch)
    for row, (readout, (_, bounds)) in enumerate(zip(read_out(subject, batch), readers, strict=True)):
        low, high, low_bound, high_bound = (
            f"weight_aopc_limits_{end}" for end in ("low", "high", "low_bound", "high_bound")
        )
        if not len(readout.attention):
            assert exact["weight_aopc_limits_certainty"][row] == "undefined" and np.isnan(exact[high][row])
            continue
        text = Text(model, batch, row)

        def p(sets, text=text):
            probs = text.probs(np.array([text.without(gone) for gone in sets]))
            return probs[:, text.probs(text.attention).argmax()]

        values = aopc_of_all_orders(p, len(text))
        assert (exact[low][row], exact[high][row]) == pytest.approx((values.min(), values.max()), abs=1e-9)
        assert proved[low_bound][row] <= values.min() + 1e-9 <= proved[low][row] + 2e-9
        assert proved[high_bound][row] >= values.max() - 1e-9 >= proved[high][row] - 2e-9
        lowest, highest = bounds(len(text))
        sets = np.array(list(itertools.product([False, True], repeat=len(text))))
        for size in range(len(text) + 1):
            of_size = p(sets[sets.sum(1) == size])
            assert lowest[size] <= of_size.min() + 1e-9 and highest[size] >= of_size.max() - 1e-9
            if labels == 2:  # the bounds are met
                assert (lowest[size], highest[size]) == pytest.approx((of_size.min(), of_size.max()), abs=1e-9)
