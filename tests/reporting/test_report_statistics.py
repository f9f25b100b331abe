"""Tests of differences against brute force and scipy, and comparisons of cells where the answer is known."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from attnfaith import record as records
from attnfaith.reporting import bootstrap_interval, holm, paired_comparison, sign_flip_test
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.comparisons import FACTORS
from attnfaith.stats import _how_often, estimate, with_interval


FEW = arrays(np.float64, st.integers(1, 8), elements=st.integers(-4, 4).map(float))


# ------------------------------------------------------------------------------------------------ sign flips


@settings(max_examples=60, deadline=None)
@given(FEW)
def test_every_pattern_of_signs(differences):
    """By brute force over the differences themselves, zeros included."""
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(differences))]
    assert sign_flip_test(differences) == np.mean(np.array(sums) >= abs(differences.sum()))


@pytest.mark.parametrize("count", [5, 10, 200])
def test_against_scipy(count):
    differences = np.random.default_rng(count).normal(0.1, 1, count)
    found = stats.permutation_test(
        (differences, np.zeros(count)), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=20000, rng=1
    )
    bound = 5 * np.sqrt(found.pvalue * (1 - found.pvalue) / 9999) if count > 13 else 1e-12
    assert sign_flip_test(differences) == pytest.approx(found.pvalue, abs=bound)


def test_the_draws_go_over_to_the_exact_test_without_a_jump():
    differences = np.random.default_rng(0).normal(0.5, 1, 13)
    more = [*differences, 1e-12]  # a fourteenth that changes nothing: drawn, not enumerated
    exact = sign_flip_test(differences)
    assert 0.01 < exact < 0.5
    assert sign_flip_test(more, draws=50_000) == pytest.approx(exact, abs=0.01)


def test_smallest_and_largest_p():
    for count in (1, 3, 6):
        assert sign_flip_test(np.full(count, 0.3)) == 2 / 2**count
    assert sign_flip_test(np.full(200, 0.3), draws=999) == 1 / 1000
    assert sign_flip_test([0.0, 0.0]) == 1 and sign_flip_test([1.0, -1.0]) == 1
    assert np.isnan(sign_flip_test([]))


@settings(max_examples=30, deadline=None)
@given(FEW, st.sampled_from([0.001, 0.1, 7.0, -1.0]))
def test_neither_unit_nor_direction_nor_order(differences, factor):
    expected = sign_flip_test(differences)
    assert sign_flip_test(differences * factor) == expected == sign_flip_test(differences[::-1])


def test_level_under_no_difference():
    """Skewed values that are exchangeable within pairs: p <= 0.1 in about a tenth of the trials."""
    generator = np.random.default_rng(3)
    trials = [sign_flip_test(np.subtract(*generator.exponential(size=(2, 20))), draws=199, seed=i) for i in range(1000)]
    share = np.mean(np.array(trials) <= 0.1)
    assert abs(share - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 1000)


# ------------------------------------------------------------------------------------------------ Holm


def test_holm_by_hand():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.02, np.nan, 0.02]), [0.04, np.nan, 0.04])
    np.testing.assert_allclose(holm([0.9, 0.6]), [1, 1])
    assert holm([]).shape == (0,) and np.isnan(holm([np.nan])).all()


P_VALUES = st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(P_VALUES, st.randoms())
def test_holm_is_the_step_down_procedure(values, random):
    adjusted = holm(values)
    known = [value for value in values if not np.isnan(value)]
    assert (np.isnan(adjusted) == np.isnan(values)).all()
    for alpha in (0.01, 0.05, 0.3):
        rejected, ordered = set(), sorted(known)
        for step, value in enumerate(ordered):
            if value * (len(known) - step) > alpha:
                break
            rejected.add(value)
        assert {v for v, a in zip(values, adjusted, strict=True) if a <= alpha} == rejected
    order = list(range(len(values)))
    random.shuffle(order)
    np.testing.assert_array_equal(holm([values[i] for i in order]), adjusted[order])


@pytest.mark.parametrize("value", [-0.1, 1.5, np.inf])
def test_holm_refuses_what_is_no_p_value(value):
    with pytest.raises(ValueError, match=r"0\.\.1; given"):
        holm([0.5, value])


def test_bootstrap_interval_against_the_normal_one():
    values = np.random.default_rng(0).normal(3, 2, 4000)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=half * 0.15)
    assert np.isnan(bootstrap_interval(values[:1])).all()


@pytest.mark.parametrize("count", [2, 7, 24, 3001])
def test_bootstrap_interval_of_medians_is_that_of_one_draw_after_another(count, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.BLOCK", 50_000)  # several parts
    values, generator = np.random.default_rng(count).normal(size=count), np.random.default_rng(5)
    medians = [np.median(values[generator.integers(0, count, count)]) for _ in range(100)]
    interval = bootstrap_interval(values, seed=5, draws=100, statistic=np.median)
    assert interval == tuple(np.quantile(medians, (0.025, 0.975)))


@pytest.mark.parametrize("most_kept", [0, 1 << 26])
@pytest.mark.parametrize("statistic", [np.mean, np.median, np.max])
def test_intervals_over_many_texts_are_those_of_one_draw_after_another(statistic, most_kept, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.BLOCK", 40_000)
    monkeypatch.setattr("attnfaith.stats.MOST_KEPT", most_kept)
    values, generator = np.random.default_rng(1).normal(size=3000), np.random.default_rng(2)
    drawn = [statistic(values[generator.integers(0, 3000, 3000)]) for _ in range(60)]
    for _ in range(2):  # drawn, and as it was kept
        interval = bootstrap_interval(values, seed=2, draws=60, statistic=statistic)
        assert interval == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))), abs=1e-12)


@pytest.mark.parametrize("cached", [1, 700, 1 << 15])
def test_a_thing_can_be_drawn_more_often_than_a_byte_counts(cached, monkeypatch):
    monkeypatch.setattr("attnfaith.stats.CACHED", cached)
    drawn = np.array([[4] * 299 + [0], [0] * 150 + [1] * 150, [*range(300)]])
    expected = [np.bincount(row, minlength=300).tolist() for row in drawn]
    assert _how_often(drawn.copy()).tolist() == expected


# ------------------------------------------------------------------------------------------------ comparisons


def cell(build_record, taus, *, order=None, drop=(), **identity):
    """A record whose attention agrees with importance as told: +1 same order, -1 reversed, None one token."""
    instances = []
    for number, tau in enumerate(taus):
        length = 1 if tau is None else 4
        attention = np.array([1.0]) if tau is None else np.array([0.1, 0.2, 0.3, 0.4])
        instances.append(
            {
                "id": f"t/{number:03d}",
                "attention": attention,
                "gradient": attention if tau != -1 else attention[::-1],
                "label": number % 2 if number % 5 else None,
                "probs": [0.2, 0.8],
                "tokens": [f"w{i}" for i in range(length)],
            }
        )
    keep = [number for number in (order if order is not None else range(len(taus))) if number not in drop]
    return build_record([instances[number] for number in keep], measures=("gradient",), **identity)


def row(table, **which):
    for name, value in which.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


TAU = "tau attention–gradient"


def test_pairs_are_matched_by_instance_id(build_record):
    """Two pairs differ by 2, one is equal, one is undefined, one instance is missing; rows stand in another order."""
    first = cell(build_record, [1, -1, -1, None, 1])
    second = cell(build_record, [1, 1, 1, 1, 1], order=[3, 1, 4, 0, 2], drop=(4,), projection="sparsemax")
    table = paired_comparison(records.concatenate([first, second]), "projection")
    found = row(table, statistic=TAU, over="instances")
    assert (found["first"], found["second"], found["seed"]) == ("softmax", "sparsemax", "0")
    assert (found["n"], found["n_left_out"]) == (3, 2)
    assert found["mean_first"] == pytest.approx(-1 / 3) and found["mean_second"] == 1
    assert found["difference"] == pytest.approx(4 / 3) and found["p_value"] == 0.5  # 2 / 2^2: one difference is 0
    # labels 0, 1, 0, 1 without the first: predicted is 1 everywhere
    right = row(table, statistic="correct", over="instances")
    assert (right["n"], right["n_left_out"], right["mean_first"], right["difference"]) == (3, 2, pytest.approx(2 / 3), 0)
    assert right["p_value"] == 1 and right["p_holm"] == 1 and found["p_holm"] == 1


def test_over_seeds_one_difference_per_seed(build_record):
    cells = []
    for seed, (before, after) in enumerate([([1, -1], [1, 1]), ([-1, -1], [1, 1]), ([-1, 1], [1, 1])]):
        cells += [cell(build_record, before, seed=seed), cell(build_record, after, seed=seed, projection="sparsemax")]
    cells.append(cell(build_record, [1, 1], seed=9))  # a seed that one level alone has
    table = paired_comparison(records.concatenate(cells), "projection")
    found = row(table, statistic=TAU, over="seeds")
    assert (found["seed"], found["n"], found["n_left_out"]) == ("all", 3, 1)
    assert found["difference"] == pytest.approx(np.mean([1, 2, 1])) and found["p_value"] == 2 / 2**3
    assert np.isnan(found["ci_low"])  # of three values
    assert sorted(table[(table["over"] == "instances") & (table["statistic"] == TAU)]["seed"]) == ["0", "1", "2"]


def test_a_seed_counts_by_the_mean_over_its_pairs(build_record):
    """Not by its median text; and every seed alike, however many texts it has."""
    seeds = {0: ([-1, -1, 1], [1, 1, 1]), 1: ([-1, 1, 1, 1, 1], [-1, -1, -1, -1, 1])}
    cells = [
        cell(build_record, taus, seed=seed, projection=projection)
        for seed, levels in seeds.items()
        for projection, taus in zip(("softmax", "sparsemax"), levels, strict=True)
    ]
    found = row(paired_comparison(records.concatenate(cells), "projection"), statistic=TAU, over="seeds")
    assert found["n"] == 2
    assert found["mean_first"] == pytest.approx((-1 / 3 + 3 / 5) / 2)
    assert found["mean_second"] == pytest.approx((1 - 3 / 5) / 2)
    assert found["difference"] == pytest.approx((4 / 3 - 6 / 5) / 2)


def test_an_interval_and_a_small_p_over_six_seeds(build_record):
    cells = [
        cell(build_record, [-1 + 2 * (number > seed), sign], seed=seed, projection=name)
        for seed in range(6)
        for number, (name, sign) in enumerate([("softmax", -1), ("sparsemax", 1)])
    ]
    found = row(paired_comparison(records.concatenate(cells), "projection"), statistic=TAU, over="seeds")
    assert found["n"] == 6 and found["p_value"] == 2 / 2**6
    assert 0.9 <= found["ci_low"] <= found["difference"] <= found["ci_high"] <= 2


def test_all_else_is_equal(build_record):
    """Data sets are never compared with one another, and three levels make three pairs."""
    cells = [
        cell(build_record, [1, -1, 1], dataset=dataset, projection=projection)
        for dataset in ("sst", "imdb")
        for projection in ("softmax", "sparsemax", "entmax(1.5)")
    ]
    table = paired_comparison(records.concatenate(cells), "projection")
    part = table[(table["statistic"] == TAU) & (table["over"] == "instances")]
    assert sorted(zip(part["dataset"], part["first"], part["second"], strict=True)) == sorted(
        (dataset, *pair)
        for dataset in ("sst", "imdb")
        for pair in [("softmax", "sparsemax"), ("softmax", "entmax(1.5)"), ("sparsemax", "entmax(1.5)")]
    )
    assert paired_comparison(records.concatenate(cells), "encoder").empty


def draw_pair(draw_record, shift=0.0, count=120):
    """Two cells of the same texts; the second's gradient follows attention the more, the larger shift is."""
    first = draw_record(count, seed=1)
    second = draw_record(count, seed=1, projection="sparsemax")
    generator = np.random.default_rng(7)
    mixed = []
    for attention in records.rows(second, "attention"):
        noise = generator.exponential(size=len(attention))
        mixed.append((shift * attention * len(attention) + (1 - shift) * noise).tolist())
    place = second.schema.get_field_index("importance_gradient")
    field = second.schema.field(place)
    first_noise = [generator.exponential(size=len(a)).tolist() for a in records.rows(first, "attention")]
    first = first.set_column(place, field, pa.array(first_noise, field.type))
    return first, second.set_column(place, field, pa.array(mixed, field.type))


def test_a_planted_difference_is_found_and_none_is_not(draw_record):
    differs = paired_comparison(records.concatenate(draw_pair(draw_record, 0.8)), "projection")
    found = row(differs, statistic=TAU, over="instances")
    assert found["p_holm"] < 0.01 and found["ci_low"] > 0.2 and found["n"] + found["n_left_out"] == 120
    alike = paired_comparison(records.concatenate(draw_pair(draw_record, 0.0)), "projection")
    found = row(alike, statistic=TAU, over="instances")
    assert found["p_value"] > 0.05 and found["ci_low"] < 0 < found["ci_high"]


def test_the_order_of_rows_changes_nothing_and_exchange_turns_the_sign(draw_record):
    first, second = draw_pair(draw_record, 0.3)
    table = paired_comparison(records.concatenate([first, second]), "projection")
    order = np.random.default_rng(0).permutation(first.num_rows)
    for other in (second, second.take(order)):
        again = paired_comparison(records.concatenate([first.take(order), other]), "projection")
        np.testing.assert_allclose(again.iloc[:, -9:].astype(float), table.iloc[:, -9:].astype(float), rtol=1e-12)
    turned = paired_comparison(records.concatenate([second, first]), "projection")
    np.testing.assert_allclose(turned["difference"], -table["difference"], rtol=1e-12)
    np.testing.assert_allclose(turned["p_value"], table["p_value"])


def test_the_family_is_corrected_together(draw_record):
    table = paired_comparison(records.concatenate(draw_pair(draw_record, 0.3)), "projection")
    for _, members in table.groupby("over"):
        np.testing.assert_allclose(members["p_holm"], holm(members["p_value"]))
    assert (table["p_holm"] >= table["p_value"]).all()


@pytest.mark.parametrize("factor", ["seed", "dataset", "instance_id", "colour"])
def test_what_cannot_be_compared(build_record, factor):
    with pytest.raises(ValueError, match=f"factor='{factor}'.*{FACTORS[0]}"):
        paired_comparison(cell(build_record, [1, -1]), factor)


def test_two_cells_of_one_identity(build_record):
    (one,) = split_cells(cell(build_record, [1, -1]))
    with pytest.raises(ValueError, match="two cells are of one identity.*softmax.*seed 0"):
        paired_comparison([one, one], "projection")


def test_an_estimate_has_the_interval_of_its_own_statistic():
    values = np.array([0.0, 0.0, 0.0, 1.0, 9.0])
    mean, median = estimate("x", values), estimate("x", values, np.median)
    assert list(mean) == list(with_interval("x")) == ["x", "x_ci_low", "x_ci_high"]
    assert (mean["x"], median["x"]) == (2.0, 0.0)
    assert 0 <= mean["x_ci_low"] < 2 < mean["x_ci_high"] <= 9
    assert (median["x_ci_low"], median["x_ci_high"]) == (0.0, 9.0)  # three in five draws at least must be 9 for that end
    assert estimate("share", np.array([True, False]))["share"] == 0.5
    assert estimate("x", np.array([3.0]))["x"] == 3.0 and np.isnan(estimate("x", np.array([3.0]))["x_ci_low"])
    assert np.isnan(list(estimate("x", np.array([])).values())).all()
