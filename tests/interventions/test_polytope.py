"""The polytope of attentions with one weighted sum: by hand, by enumeration, and by linear programmes one at a time."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.interventions import polytope
from attnfaith.interventions.polytope import Part, Polytope, equations, of_parts


def drawn(length, size, seed=0, sharpness=1.5):
    """Values (T,d) and attention (T,)."""
    generator = np.random.default_rng(seed)
    scores = np.exp(generator.normal(size=length) * sharpness)
    return generator.normal(size=(length, size)), scores / scores.sum()


def alternatives(values, attention, **options):
    part = Polytope(np.array(attention), equations(np.asarray(values)))
    return of_parts([Part(part, np.arange(len(attention)), 1.0)], np.zeros(len(attention)), **options)


def vertices(values, attention):
    """All of them (n,T), by every set of places that could be the support."""
    matrix = np.vstack([values.T, np.ones(len(values))])
    sums = matrix @ attention
    rank = np.linalg.matrix_rank(matrix)
    corners = []
    for places in itertools.combinations(range(len(values)), rank):
        part = matrix[:, places]
        weights = np.linalg.lstsq(part, sums, rcond=None)[0]
        if np.abs(part @ weights - sums).max() < 1e-9 and weights.min() > -1e-10:
            vertex = np.zeros(len(values))
            vertex[list(places)] = weights.clip(0)
            corners.append(vertex)
    return np.array(corners)


def stays(values, attention, other, atol=1e-12):
    assert (other >= 0).all()
    assert other.sum() == pytest.approx(1, abs=atol)
    np.testing.assert_allclose(values.T @ other, values.T @ attention, atol=atol * max(1, np.abs(values).max()))


def test_three_tokens_by_hand():
    """0 x1 + 1 x2 + 2 x3 = 1: x = (s, 1 - 2 s, s), s in 0..1/2."""
    limits = alternatives([[0.0], [1.0], [2.0]], [0.2, 0.6, 0.2])
    np.testing.assert_allclose(limits.low, [0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(limits.high, [0.5, 1, 0.5], atol=1e-12)
    np.testing.assert_allclose(limits.attention, [0.5, 0, 0.5], atol=1e-12)
    assert (limits.tvd, limits.bound, limits.top_mass) == pytest.approx((0.6, 0.6, 0))
    assert (limits.support, limits.certainty) == (1, "exact")


@pytest.mark.parametrize(("length", "size"), [(1, 3), (2, 1), (5, 12)])
def test_no_more_tokens_than_equations_is_one_attention(length, size, monkeypatch):
    """By rank: no linear programme is asked."""
    monkeypatch.delattr(polytope, "highspy")
    values, attention = drawn(length, size)
    limits = alternatives(values, attention)
    for same in (limits.low, limits.high, limits.attention):
        np.testing.assert_allclose(same, attention, atol=1e-15)
    assert (limits.tvd, limits.bound, limits.support, limits.certainty) == (0, 0, length, "exact")
    assert len(equations(values)) == length


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("length", "size"), [(6, 1), (7, 4), (9, 5), (11, 3)])
def test_against_all_vertices(length, size, seed):
    """Intervals, the furthest with its proof, the least mass of the top tokens, the smallest support."""
    values, attention = drawn(length, size, seed)
    corners = vertices(values, attention)
    limits = alternatives(values, attention, top=2, nodes=10_000)
    np.testing.assert_allclose(limits.low, corners.min(0), atol=1e-8)
    np.testing.assert_allclose(limits.high, corners.max(0), atol=1e-8)
    distances = np.abs(corners - attention).sum(1) / 2
    assert limits.certainty == "exact" and limits.gap < 1e-9
    assert limits.tvd == pytest.approx(distances.max(), abs=2e-6)
    assert limits.bound >= distances.max() - 2e-6
    assert limits.top_mass == pytest.approx(corners[:, np.argsort(-attention)[:2]].sum(1).min(), abs=1e-8)
    assert size + 1 >= limits.support >= (corners > 1e-9).sum(1).min()
    stays(values, attention, limits.attention)


@pytest.mark.parametrize(("length", "size"), [(14, 3), (12, 9)])
def test_a_bound_holds_whatever_the_solver_did(length, size):
    """It meets the optimum; and prices that are wrong make it worse, never wrong."""
    values, attention = drawn(length, size, seed=4)
    programmes = Polytope(attention, equations(values))
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
                changeColsCost=lambda *arguments: None,
                setOptionValue=lambda *arguments: None,
                run=lambda: None,
                getModelStatus=right.getModelStatus,
                getSolution=lambda wrong=wrong: wrong,
            )
            assert programmes.minimise(costs)[1] <= optimum + 1e-9
        programmes.solver = right


INSTANCES = st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(0, 10**6), st.floats(0.1, 3), st.integers(0, 3))


@settings(max_examples=60)
@given(INSTANCES)
def test_properties(instance):
    """low <= a <= high; alternatives change nothing; the order and linear maps of the values are nothing."""
    length, size, seed, sharpness, zeros = instance
    values, attention = drawn(length, size, seed, sharpness)
    attention[1 : 1 + min(zeros, length - 1)] = 0
    attention /= attention.sum()
    limits = alternatives(values, attention, top=2)
    assert (limits.low >= 0).all() and (limits.low <= attention + 1e-15).all() and (attention <= limits.high + 1e-15).all()
    assert limits.gap < 1e-8 and 0 <= limits.tvd <= limits.bound <= 1 + 1e-9
    assert (np.abs(limits.attention - attention) <= np.maximum(limits.high - attention, attention - limits.low) + 1e-8).all()
    stays(values, attention, limits.attention, 1e-10)
    assert 1 <= limits.support <= max(len(equations(values)), (attention > 1e-9).sum())
    assert limits.top_mass <= np.sort(attention)[::-1][:2].sum() + 1e-12

    generator = np.random.default_rng(seed)
    order, mixing = generator.permutation(length), np.eye(size) + 0.3 * generator.normal(size=(size, size))
    if np.linalg.cond(mixing) < 100:
        other = alternatives((values @ mixing)[order] - 5.0, attention[order], top=2)
        np.testing.assert_allclose(other.low, limits.low[order], atol=1e-7)
        np.testing.assert_allclose(other.high, limits.high[order], atol=1e-7)
