"""Limits of AOPC, against every order there is."""

import itertools

import numpy as np
import pytest

from attnfaith.interventions.aopc_limits import AOPCLimits, WeightAOPCLimits
from attnfaith.interventions.explanation_tests import read_parts, whole
from attnfaith.interventions.targets import read_out
from attnfaith.subjects import subject_of
from tests.loud_classifiers import batch_of, classifier
from tests.measuring import run


def every_aopc(p, length):
    """AOPC of all orders of so many tokens; p: a function of sets (V,T) of removed tokens."""
    p_whole = p(np.zeros((1, length), bool))[0]
    values = []
    for order in itertools.permutations(range(length)):
        removed = np.zeros((length, length), bool)
        for step, token in enumerate(order):
            removed[step:, token] = True
        values.append(p_whole - p(removed).mean())
    return np.array(values)


def drawn(length, seed):
    """A probability for each set of tokens, drawn at random."""
    values = np.random.default_rng(seed).random(2**length)
    return lambda sets: values[(sets * 2 ** np.arange(length)).sum(1)]


def found(p, orders, exact_tokens, beam, **options):
    return AOPCLimits(exact_tokens=exact_tokens, beam=beam, **options).limits(np.asarray(orders), p)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_exact_limits_are_those_of_all_orders(length, seed):
    p, order = drawn(length, seed), np.random.default_rng(seed).permutation(length)
    ends, every = found(p, [order], length, 1), every_aopc(p, length)
    assert ends.low == pytest.approx(every.min(), abs=1e-12) and ends.high == pytest.approx(every.max(), abs=1e-12)
    assert (ends.low_bound, ends.high_bound, ends.certainty) == (ends.low, ends.high, "exact")
    removed = np.argsort(order)[None] <= np.arange(length)[:, None]
    assert ends.aopc == pytest.approx([p(np.zeros((1, length), bool))[0] - p(removed).mean()])


@pytest.mark.parametrize(("whole_sizes", "seed"), [(0, 0), (1, 1), (2, 2)])
def test_what_a_beam_meets_lies_within_and_bounds_without(seed, whole_sizes):
    length = 6
    p, every = drawn(length, seed), every_aopc(drawn(length, seed), length)
    orders = np.random.default_rng(seed).permuted(np.tile(np.arange(length), (3, 1)), axis=1)
    widths = [found(p, orders, 0, beam, whole_sizes=whole_sizes) for beam in (1, 3, 1000)]
    for ends in widths:
        assert ends.low_bound <= every.min() + 1e-12 <= ends.low + 2e-12 <= ends.aopc.min() + 3e-12
        assert ends.high_bound >= every.max() - 1e-12 >= ends.high - 2e-12 >= ends.aopc.max() - 3e-12
        assert ends.certainty == "bounded"
        assert min(np.abs(every - ends.low)) < 1e-12 and min(np.abs(every - ends.high)) < 1e-12  # an order's own
    assert widths[-1].low == pytest.approx(every.min()) and widths[-1].high == pytest.approx(every.max())


def test_bounds_are_as_wide_as_what_was_not_read():
    """p = 1 whatever is removed: sizes that were not read could have been anything."""
    ends = found(lambda sets: np.ones(len(sets)), [np.arange(8)], 0, 2)
    assert (ends.low, ends.high) == (0, 0) and ends.low_bound == 0
    assert ends.high_bound == pytest.approx(5 / 8)  # sizes 2 to 6; those of 1, 7 and 8 tokens are known
    closer = found(lambda sets: np.ones(len(sets)), [np.arange(8)], 0, 2, whole_sizes=3)
    assert closer.high_bound == pytest.approx(1 / 8)
    assert found(lambda sets: np.ones(len(sets)), [np.arange(8)], 0, 2, whole_sizes=4).certainty == "exact"


def test_nothing_is_read_twice():
    seen = []

    def p(sets):
        seen.extend(row.tobytes() for row in sets)
        return np.full(len(sets), 0.5)

    found(p, [np.arange(7), np.arange(7)[::-1]], 0, 3)
    assert len(seen) == len(set(seen))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "gpt2", "bart"])
def test_tokens_of_a_text(kind):
    """Of a model: what is read with tokens deleted, order by order."""
    subject = classifier(kind)
    batch = batch_of(subject, [4, 1, 5])
    scores = {"a": [np.arange(n, dtype=float) for n in (4, 1, 5)], "b": [np.r_[np.nan, np.zeros(n - 1)] for n in (4, 1, 5)]}
    batch["scores"] = scores
    columns = run("aopc_limits", subject, batch)
    predicted = whole(subject, batch).argmax(1)
    for row, length in enumerate((4, 1, 5)):

        def p(sets, row=row):
            parts = [~sets if other == row else np.zeros((0, n), bool) for other, n in enumerate((4, 1, 5))]
            return read_parts(subject, batch, parts, "deleted")[row][:, predicted[row]]

        every = every_aopc(p, length)
        assert columns["aopc_limits_low"][row] == pytest.approx(every.min(), abs=1e-6)
        assert columns["aopc_limits_high"][row] == pytest.approx(every.max(), abs=1e-6)
        assert columns["aopc_limits_certainty"][row] == "exact"
        removed = np.tril(np.ones((length, length), bool))[:, ::-1]  # by decreasing number: the last token first
        expected = p(np.zeros((1, length), bool))[0] - p(removed).mean()
        np.testing.assert_allclose(columns["aopc_limits_aopc"][row], [expected, np.nan], atol=1e-6)
        assert columns["aopc_limits_measures"][row] == ["a", "b"]


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@pytest.mark.parametrize("labels", [2, 3])
def test_weights_of_a_text(labels, projection, tiny_model, tiny_rows, tiny_batch):
    """Erased weights: exact limits and proved bounds, against every order."""
    subject = subject_of(tiny_model(num_labels=labels, projection=projection))
    batch = subject.collate(tiny_rows([5, 0, 6, 2, 1, 6, 6]))
    exact, proved = (run("weight_aopc_limits", subject, batch, exact_tokens=most, beam=2) for most in (12, 0))
    start, readers = "weight_aopc_limits", WeightAOPCLimits().readers(subject, batch)
    for row, (one, (_, bounds)) in enumerate(zip(read_out(subject, batch), readers, strict=True)):
        if not len(one.attention):
            assert exact[f"{start}_certainty"][row] == "undefined" and np.isnan(exact[f"{start}_high"][row])
            continue

        def p(sets, one=one):
            weights = ~sets * one.attention
            total = weights.sum(1, keepdims=True)
            logits = one.logits(np.where(total > 0, weights / np.where(total > 0, total, 1), 0))
            return (np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[:, one.probs.argmax()]

        every = every_aopc(p, len(one.attention))
        assert exact[f"{start}_low"][row] == pytest.approx(every.min(), abs=1e-9)
        assert exact[f"{start}_high"][row] == pytest.approx(every.max(), abs=1e-9)
        assert proved[f"{start}_low_bound"][row] <= every.min() + 1e-9 <= proved[f"{start}_low"][row] + 2e-9
        assert proved[f"{start}_high_bound"][row] >= every.max() - 1e-9 >= proved[f"{start}_high"][row] - 2e-9
        # sizes one by one: with two classes the bounds are met
        lowest, highest = bounds(len(one.attention))
        sets = np.array(list(itertools.product([False, True], repeat=len(one.attention))))
        for size in range(len(one.attention) + 1):
            of_size = p(sets[sets.sum(1) == size])
            assert lowest[size] <= of_size.min() + 1e-9 and highest[size] >= of_size.max() - 1e-9
            if labels == 2:
                assert (lowest[size], highest[size]) == pytest.approx((of_size.min(), of_size.max()), abs=1e-9)
