"""The polytope of attentions with one weighted sum: by hand, by enumeration, and by linear programmes one at a time."""

import itertools
from types import SimpleNamespace

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from attnfaith.interventions import polytope
from attnfaith.interventions.polytope import OTHERWISE, SETTINGS, Programmes, alternatives, equations, far
from attnfaith.support.errors import AttnfaithError


def drawn(length, size, seed=0, sharpness=1.5):
    """Values (T,d) and attention (T,)."""
    generator = np.random.default_rng(seed)
    scores = np.exp(generator.normal(size=length) * sharpness)
    return generator.normal(size=(length, size)), scores / scores.sum()


def vertices(values, attention):
    """All of them (n,T), by every set of places that could be the support."""
    matrix = np.vstack([values.T, np.ones(len(values))])
    kept = matrix @ attention
    rank = np.linalg.matrix_rank(matrix)
    every = []
    for places in itertools.combinations(range(len(values)), rank):
        part = matrix[:, places]
        weights = np.linalg.lstsq(part, kept, rcond=None)[0]
        if np.abs(part @ weights - kept).max() < 1e-9 and weights.min() > -1e-10:
            vertex = np.zeros(len(values))
            vertex[list(places)] = weights.clip(0)
            every.append(vertex)
    return np.array(every)


def stays(values, attention, other, atol=1e-12):
    assert (other >= 0).all()
    assert other.sum() == pytest.approx(1, abs=atol)
    np.testing.assert_allclose(values.T @ other, values.T @ attention, atol=atol * max(1, np.abs(values).max()))


def test_three_tokens_by_hand():
    """0 x1 + 1 x2 + 2 x3 = 1: x = (s, 1 - 2 s, s), s in 0..1/2."""
    found = alternatives([[0.0], [1.0], [2.0]], [0.2, 0.6, 0.2])
    np.testing.assert_allclose(found.low, [0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.high, [0.5, 1, 0.5], atol=1e-12)
    np.testing.assert_allclose(found.attention, [0.5, 0, 0.5], atol=1e-12)
    assert (found.tvd, found.bound, found.top_mass) == pytest.approx((0.6, 0.6, 0))
    assert (found.support, found.certainty) == (1, "exact")


@pytest.mark.parametrize(("length", "size"), [(1, 3), (2, 1), (4, 3), (9, 8), (5, 12)])
def test_no_more_tokens_than_equations_is_one_attention(length, size, monkeypatch):
    """By rank: no linear programme is asked."""
    monkeypatch.delattr(polytope, "Programmes")
    values, attention = drawn(length, size)
    found = alternatives(values, attention)
    for same in (found.low, found.high, found.attention):
        np.testing.assert_allclose(same, attention, atol=1e-15)
    assert (found.tvd, found.bound, found.support, found.certainty) == (0, 0, length, "exact")
    assert len(equations(values)) == length


@pytest.mark.parametrize(("length", "size"), [(3, 1), (5, 3), (10, 8)])
def test_one_token_more_is_a_segment(length, size, monkeypatch):
    monkeypatch.delattr(polytope, "Programmes")
    values, attention = drawn(length, size, seed=3)
    found = alternatives(values, attention)
    ends = vertices(values, attention)
    assert len(ends) == 2
    np.testing.assert_allclose(found.low, ends.min(0), atol=1e-10)
    np.testing.assert_allclose(found.high, ends.max(0), atol=1e-10)
    assert found.tvd == pytest.approx(np.abs(ends - attention).sum(1).max() / 2, abs=1e-10) and found.tvd > 1e-3
    assert found.certainty == "exact" and found.support == size + 1
    stays(values, attention, found.attention)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("length", "size"), [(6, 1), (8, 2), (7, 4), (9, 5), (11, 3)])
def test_against_all_vertices(length, size, seed):
    """Intervals, the furthest with its proof, the least mass of the top tokens, the smallest support."""
    values, attention = drawn(length, size, seed)
    every = vertices(values, attention)
    found = alternatives(values, attention, top=2, nodes=10_000)
    np.testing.assert_allclose(found.low, every.min(0), atol=1e-8)
    np.testing.assert_allclose(found.high, every.max(0), atol=1e-8)
    distances = np.abs(every - attention).sum(1) / 2
    assert found.certainty == "exact" and found.gap < 1e-9
    assert found.tvd == pytest.approx(distances.max(), abs=2e-6)
    assert found.bound >= distances.max() - 2e-6
    assert found.top_mass == pytest.approx(every[:, np.argsort(-attention)[:2]].sum(1).min(), abs=1e-8)
    assert size + 1 >= found.support >= (every > 1e-9).sum(1).min()
    stays(values, attention, found.attention)


@pytest.mark.parametrize(("length", "size"), [(20, 3), (18, 12), (30, 25)])  # fewer equations than free directions, and more
def test_against_programmes_one_at_a_time(length, size):
    values, attention = drawn(length, size, seed=1)
    found = alternatives(values, attention)
    matrix, kept = np.vstack([values.T, np.ones(length)]), np.append(values.T @ attention, 1)
    for token in range(length):
        for sign, limit in ((1, found.low), (-1, found.high)):
            costs = np.zeros(length)
            costs[token] = sign
            assert limit[token] == pytest.approx(sign * linprog(costs, A_eq=matrix, b_eq=kept).fun, abs=1e-8)
    assert found.gap < 1e-9 and found.bound >= found.tvd > 0
    stays(values, attention, found.attention)


@pytest.mark.parametrize(("length", "size"), [(14, 3), (12, 9)])
def test_a_bound_holds_whatever_the_solver_did(length, size):
    """It meets the optimum; and prices that are wrong make it worse, never wrong."""
    values, attention = drawn(length, size, seed=4)
    rows = equations(values)
    programmes = Programmes(attention, rows)
    assert (programmes.basis is None) == (size < 9)
    generator = np.random.default_rng(0)
    for costs in generator.normal(size=(5, length)):
        vertex, bound = programmes.minimise(costs)
        optimum = float(costs @ vertex)
        assert bound == pytest.approx(optimum, abs=1e-8)
        right = programmes.solver
        solution = right.getSolution()
        for prices in (np.zeros(len(solution.row_dual)), generator.normal(size=len(solution.row_dual))):
            wrong = SimpleNamespace(col_value=solution.col_value, row_dual=prices)
            programmes.solver = SimpleNamespace(
                changeColsCost=lambda *given: None,
                run=lambda: None,
                getModelStatus=right.getModelStatus,
                getSolution=lambda wrong=wrong: wrong,
            )
            assert programmes.minimise(costs)[1] <= optimum + 1e-9
        programmes.solver = right


@pytest.mark.parametrize("times", [1, len(OTHERWISE), len(OTHERWISE) + 1])
@pytest.mark.parametrize("size", [3, 9])
def test_a_programme_that_is_given_up_is_solved_otherwise(times, size, monkeypatch):
    """In every other way the same optimum, with its bound; the next programme is solved as the first was."""
    values, attention = drawn(12, size, seed=3)
    costs = np.random.default_rng(1).normal(size=(2, 12))
    expected = [Programmes(attention, equations(values)).minimise(row)[1] for row in costs]
    status, runs = highspy.Highs.getModelStatus, iter(range(times))
    giving_up = lambda solver: highspy.HighsModelStatus.kUnknown if next(runs, None) is not None else status(solver)  # noqa: E731
    monkeypatch.setattr(highspy.Highs, "getModelStatus", giving_up)
    programmes = Programmes(attention, equations(values))
    if times > len(OTHERWISE):
        with pytest.raises(AttnfaithError, match=r"of 12 tokens has no solution \(Unknown\)"):
            programmes.minimise(costs[0])
        return
    for row, best in zip(costs, expected, strict=True):
        vertex, bound = programmes.minimise(row)
        assert row @ vertex == pytest.approx(best, abs=1e-6) and bound == pytest.approx(best, abs=1e-6)
        for name, value in {**SETTINGS, "solver": "choose"}.items():
            assert programmes.solver.getOptionValue(name)[1] == value


def test_groups_have_sums_of_their_own():
    """Two sums at once are what each is by itself, scaled by its weight."""
    values, attention = drawn(11, 2, seed=8)
    groups = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    found = alternatives(values, attention, groups=groups, nodes=5000)
    distance = 0.0
    for group in (0, 1):
        members = groups == group
        mass = attention[members].sum()
        alone = alternatives(values[members], attention[members] / mass, nodes=5000)
        np.testing.assert_allclose(found.low[members], mass * alone.low, atol=1e-8)
        np.testing.assert_allclose(found.high[members], mass * alone.high, atol=1e-8)
        distance += mass * alone.tvd
    assert found.tvd == pytest.approx(distance, abs=1e-5)


@pytest.mark.parametrize("attention", [[0.25] * 4, [0.5, 0.5, 0, 0], [1.0, 0, 0, 0]])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_equal_values_leave_everything_open(attention, value):
    """Any weights at all; also where rounding made them a little different."""
    rounded = value + np.random.default_rng(0).normal(size=(4, 6)) * 1e-8 * value
    for values, rounding in ((np.full((4, 6), value), polytope.DOUBLE), (rounded, 1.2e-7)):
        found = alternatives(values, attention, rounding=rounding, nodes=100)
        np.testing.assert_allclose(found.low, 0, atol=1e-9)
        np.testing.assert_allclose(found.high, 1, atol=1e-9)
        assert found.support == 1 and found.top_mass == pytest.approx(0)
        assert found.tvd == pytest.approx(1 - min(attention), abs=1e-6) and found.certainty == "exact"


def test_a_corner_cannot_be_left():
    """All weight on a value that is no mixture of others: there is one attention, though there are many tokens."""
    values = np.array([[0.0, 0.0], [1, 0], [0, 1], [1, 1], [0.5, 0.5], [0.3, 0.4]])
    found = alternatives(values, np.eye(6)[0], nodes=100)
    np.testing.assert_allclose(found.low, np.eye(6)[0], atol=1e-9)
    np.testing.assert_allclose(found.high, np.eye(6)[0], atol=1e-9)
    assert found.tvd == pytest.approx(0, abs=1e-9) and found.certainty == "exact"
    np.testing.assert_allclose(far(values, np.eye(6)[:1])[0], np.eye(6)[0], atol=1e-9)


INSTANCES = st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(0, 10**6), st.floats(0.1, 3), st.integers(0, 3))


@settings(max_examples=60)
@given(INSTANCES)
def test_properties(instance):
    """low <= a <= high; alternatives change nothing; the order and linear maps of the values are nothing."""
    length, size, seed, sharpness, zeros = instance
    values, attention = drawn(length, size, seed, sharpness)
    attention[1 : 1 + min(zeros, length - 1)] = 0
    attention /= attention.sum()
    found = alternatives(values, attention, top=2)
    assert (found.low >= 0).all() and (found.low <= attention + 1e-15).all() and (attention <= found.high + 1e-15).all()
    assert found.gap < 1e-8 and 0 <= found.tvd <= found.bound <= 1 + 1e-9
    assert (np.abs(found.attention - attention) <= np.maximum(found.high - attention, attention - found.low) + 1e-8).all()
    stays(values, attention, found.attention, 1e-10)
    assert 1 <= found.support <= max(len(equations(values)), (attention > 1e-9).sum())
    assert found.top_mass <= np.sort(attention)[::-1][:2].sum() + 1e-12

    generator = np.random.default_rng(seed)
    order, mixing = generator.permutation(length), np.eye(size) + 0.3 * generator.normal(size=(size, size))
    if np.linalg.cond(mixing) < 100:
        other = alternatives((values @ mixing)[order] - 5.0, attention[order], top=2)
        np.testing.assert_allclose(other.low, found.low[order], atol=1e-7)
        np.testing.assert_allclose(other.high, found.high[order], atol=1e-7)


@settings(max_examples=60)
@given(INSTANCES, st.integers(1, 4))
def test_walks_change_nothing(instance, count):
    length, size, seed, sharpness, zeros = instance
    values = drawn(length, size, seed)[0]
    attention = np.array([drawn(length, 1, seed + number, sharpness)[1] for number in range(count)])
    attention[:, 1 : 1 + min(zeros, length - 1)] = 0
    attention /= attention.sum(1, keepdims=True)
    before = attention.copy()
    others = far(values, attention)
    assert np.array_equal(attention, before)
    for own, other in zip(attention, others, strict=True):
        stays(values, own, other)
        if not zeros:
            assert (other > 1e-9).sum() <= len(equations(values))
    if length > size + 1 and not zeros:
        assert (np.abs(others - attention).sum(1) > 1e-6).all()


@pytest.mark.parametrize(("length", "size"), [(12, 2), (9, 6), (90, 3)])
def test_walks_keep_to_the_tokens_that_are_allowed(length, size):
    """As under a causal mask: row q on the tokens up to q; the first ones have no choice."""
    values, allowed = drawn(length, size)[0], np.tri(length, dtype=bool)
    attention = np.array([drawn(length, 1, seed)[1] for seed in range(length)]) * allowed
    attention /= attention.sum(1, keepdims=True)
    others = far(values, attention, allowed=allowed)
    assert not others[~allowed].any()
    for row, (own, other) in enumerate(zip(attention, others, strict=True)):
        stays(values, own, other)
        if row <= size:
            np.testing.assert_allclose(other, own, atol=1e-10)
        else:
            assert np.abs(other - own).max() > 1e-4


def test_walks_of_many_tokens_change_those_with_the_largest_weights(monkeypatch):
    values = drawn(120, 2)[0]
    attention = np.array([drawn(120, 1, seed)[1] for seed in range(5)])
    others = far(values, attention)
    places = 2 * 3 + 64
    for own, other in zip(attention, others, strict=True):
        stays(values, own, other)
        changed = own != other
        assert changed.sum() <= places and own[changed].min() >= np.sort(own)[-places]
        limit = alternatives(values, own)
        assert 0.5 * limit.tvd < np.abs(other - own).sum() / 2 <= limit.bound + 1e-9
    monkeypatch.setattr("attnfaith.interventions.polytope.NUMBERS_AT_ONCE", 1)
    np.testing.assert_allclose(far(values, attention), others, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "attention", "message"),
    [
        ([[1.0]], [0.5, 0.5], "give"),
        (np.zeros((0, 2)), [], "at least 1"),
        ([[1.0], [2.0]], [0.5, 0.6], "sum to 1"),
        ([[1.0], [2.0]], [np.nan, 1.0], "non-negative"),
        ([[1.0], [np.inf]], [0.5, 0.5], "NaN or infinite"),
    ],
)
def test_what_is_no_attention_over_values(values, attention, message):
    with pytest.raises(ValueError, match=message):
        alternatives(values, attention)
