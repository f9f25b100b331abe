import math

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.measurement.registry import find
from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence
from attnfaith.reporting import render
from attnfaith.reporting.cells import CELL, one_cell
from attnfaith.reporting.sections import adversary
from tests.sections import check_section


def tables(cells):
    return render.frames(adversary.SECTION, cells)


def said(cell):
    return render.sentences(adversary.SECTION, cell)


def with_columns(table, declared, values):
    for name, column in declared.items():
        kind = column.arrow_type()
        if pa.types.is_dictionary(kind):
            array = pa.array(values[name], pa.string()).dictionary_encode()
        else:
            array = pa.array([np.asarray(row).tolist() for row in values[name]], kind)
        table = table.append_column(column.field(name), array)
    records.validate(table)
    return table


def jsd(x, y):
    return float(jensen_shannon_divergence([x], [y])[0])


def two_texts(build_record, *, exact=True, search=True, certainty="exact"):
    """Three texts: an exact maximum, one where the search found nothing within .01, and one of a single token."""
    own = [[0.5, 0.3, 0.2], [0.1, 0.9], [1.0]]
    probs = [[0.2, 0.8], [0.7, 0.3], [0.4, 0.6]]
    table = build_record([{"attention": a, "probs": p} for a, p in zip(own, probs, strict=True)])
    searched = {
        "adversary_search_attention": [[[0, 1, 0], [0, 0, 1]], [[1, 0], [0.5, 0.5]], []],
        # the text's restarts move its prediction by 0.005 and 0.2, by 0.015 and 0.04
        "adversary_search_probs": [[[0.205, 0.795], [0.4, 0.6]], [[0.685, 0.315], [0.66, 0.34]], []],
    }
    stored = {
        "adversary_exact_epsilon": [[0.05, 0.01], [0.05, 0.01], []],
        "adversary_exact_attention": [[[0, 0, 1], [0, 0, 1]], [[1, 0], [0.2, 0.8]], []],
        "adversary_exact_probs": [[[0.24, 0.76], [0.21, 0.79]], [[0.65, 0.35], [0.69, 0.31]], []],
        "adversary_exact_jsd": [
            [jsd([0, 0, 1], own[0])] * 2,
            [jsd([1, 0], own[1]), jsd([0.2, 0.8], own[1])],
            [],
        ],
        "adversary_exact_bound": [[0.69, 0.68], [0.67, 0.66], []],
        "adversary_exact_one_token": [[2, 0], [1, 1], []],
        "adversary_exact_certainty": [certainty, certainty, "undefined"],
    }
    if search:
        table = with_columns(table, find("adversary_search").columns, searched)
    if exact:
        table = with_columns(table, find("adversary_exact").columns, stored)
    return table, own, stored


@pytest.fixture
def drawn(draw_record):
    """A cell of many texts with both ways, and numbers that hang together: the exact one is never below the search."""

    def make(count=60, **identity):
        table = draw_record(count, measures=(), **identity)
        generator = np.random.default_rng(1)
        cell = one_cell(table)
        results = {name: [] for name in (*find("adversary_search").columns, *find("adversary_exact").columns)}
        for attention, probs in zip(cell.attention, cell.probs, strict=True):
            length = len(attention)
            some = length > 1
            restarts = generator.dirichlet(np.ones(length), 5) if some else np.zeros((0, length))
            last = np.eye(length)[[attention.argmin()] * 2] if some else np.zeros((0, length))
            furthest = jensen_shannon_divergence(list(last), [attention] * len(last))
            values = (
                *(restarts, np.tile(probs, (len(restarts), 1)), [0.01, 0.05] if some else []),
                *(last, np.tile(probs, (len(last), 1)), furthest, furthest, [1, 2] if some else []),
                "exact" if some else "undefined",
            )
            for name, value in zip(results, values, strict=True):
                results[name].append(value)
        return with_columns(table, {**find("adversary_search").columns, **find("adversary_exact").columns}, results)

    return make


def test_the_largest_feasible_restart_counts(build_record):
    table, own, stored = two_texts(build_record)
    results = adversary.per_text(one_cell(table))
    first = jsd([0, 1, 0], own[0])
    np.testing.assert_allclose(results["adversary_search_0.01"], [first, 0, np.nan])
    np.testing.assert_allclose(results["adversary_search_0.05"], [first, jsd([1, 0], own[1]), np.nan])
    np.testing.assert_allclose(
        results["adversary_exact_0.05"], [row[0] for row in stored["adversary_exact_jsd"][:2]] + [np.nan]
    )
    np.testing.assert_allclose(
        results["adversary_exact_0.01"], [row[1] for row in stored["adversary_exact_jsd"][:2]] + [np.nan]
    )


def test_table_by_hand(build_record):
    table, own, stored = two_texts(build_record)
    df = tables([one_cell(table)])["adversary"]
    assert df.columns[: len(CELL)].tolist() == list(CELL) and set(adversary.TABLE.headings) <= set(df.columns)
    assert len(df) == 2 * 2 * 3  # methods, epsilons, "overall" and two predicted classes
    row = df[(df["method"] == "search") & (df["epsilon"] == 0.01) & (df["class"] == "overall")].iloc[0]
    reached, most = jsd([0, 1, 0], own[0]), [values[1] for values in stored["adversary_exact_jsd"][:2]]
    assert (row["n"], row["n_undefined"], row["n_nothing_found"]) == (2, 1, 1)
    assert row["jsd_mean"] == pytest.approx(reached / 2) and row["jsd_std"] == pytest.approx(reached / 2)
    assert row["share_feasible"] == pytest.approx((1 / 2 + 0) / 2)
    assert row["gap_mean"] == pytest.approx(np.mean(most) - reached / 2)
    assert row["share_of_exact"] == pytest.approx(reached / most[0] / 2)
    assert np.isnan(row["bound_mean"]) and np.isnan(row["share_one_token"])
    row = df[(df["method"] == "exact") & (df["epsilon"] == 0.01) & (df["class"] == "overall")].iloc[0]
    assert row["bound_mean"] == pytest.approx(0.67) and row["share_one_token"] == 0.5
    assert (row["share_exact"], row["share_bounded"], row["share_lower_bound"]) == (1, 0, 0)
    assert np.isnan(row["gap_mean"]) and np.isnan(row["share_feasible"])
    row = df[(df["method"] == "exact") & (df["epsilon"] == 0.05) & (df["class"] == "overall")].iloc[0]
    assert 0.4 < max(values[0] for values in stored["adversary_exact_jsd"][:2]) < 0.6 and row["share_above_0.6"] == 0
    single = df[(df["class"] == "1") & (df["method"] == "search") & (df["epsilon"] == 0.05)].iloc[0]
    assert (single["n"], single["n_undefined"]) == (1, 1) and np.isnan(single["ci_low"])


def test_a_text_that_nothing_can_move_has_no_share_reached():
    """An exact maximum of 0 is in the mean gap, not in the share of it that the search reaches."""
    nothing = np.full(2, np.nan)
    way = adversary.Way("search", 0.01, np.array([0.0, 0.3]), nothing, nothing, np.ones(2), np.full(2, ""))
    row = adversary._numbers(way, {0.01: np.array([0.0, 0.6])}, np.ones(2, bool))
    assert row["gap_mean"] == pytest.approx(0.15) and row["share_of_exact"] == pytest.approx(0.5)


@pytest.mark.parametrize(("exact", "search"), [(True, False), (False, True), (False, False)])
def test_one_way_alone_or_none(exact, search, build_record):
    table, _, _ = two_texts(build_record, exact=exact, search=search)
    cell = one_cell(table)
    results = tables([cell])
    if not exact and not search:
        assert results == {} and said(cell) == []
        assert render.grids(adversary.SECTION, results, [cell]) == []
        return
    assert set(results["adversary"]["method"]) == {"exact" if exact else "search"}
    assert results["adversary"]["gap_mean"].isna().all()
    (grid,) = render.grids(adversary.SECTION, results, [cell])
    assert all(len(row) == len(grid.columns) for row in grid.rows)
    assert ("at least" in said(cell)[0]) == search


def test_the_figure(drawn):
    cell = one_cell(drawn())
    panels = adversary.SECTION.figure.draw(cell).axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert [title.partition(":")[0] for title in titles] == ["exact, ε = 0.01", "search, restarts within 0.01"]
    mean = np.nanmean(adversary.per_text(cell)["adversary_exact_0.01"])
    assert f"mean {mean:.3f}, n = 58 (2 undefined)" in titles[0]
    assert panels[0].get_xlim() == (0, pytest.approx(math.log(2)))


def test_a_cell_without_a_defined_text(build_record):
    table = build_record([{"attention": [1.0]}, {"attention": []}])
    empty = {"adversary_search_attention": [[], []], "adversary_search_probs": [[], []]}
    cell = one_cell(with_columns(table, find("adversary_search").columns, empty))
    row = tables([cell])["adversary"].iloc[0]
    assert (row["n"], row["n_undefined"], row["n_nothing_found"]) == (0, 2, 0) and np.isnan(row["jsd_mean"])
    assert "2 undefined" in said(cell)[0]
    render.grids(adversary.SECTION, tables([cell]), [cell])


def test_the_contract_of_sections(build_record):
    check_section(adversary.SECTION, one_cell(two_texts(build_record)[0]))
