"""Attention or saliency? Every measure of a record ranked by every test of explanations that the record allows.

The tests and their numbers per text are those of `reporting.explanation_tests`. Shapes: N instances, M measures.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.explanation_tests import NEEDS, SOFT, TESTS, measures, scores
from attnfaith.reporting.figures import Drawn
from attnfaith.reporting.render import frame
from attnfaith.reporting.spec import Case, Column, Key, Section, Table, per_cell
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.reporting.tables import format_number
from attnfaith.stats import bootstrap_intervals, holm, sign_flip_tests, with_interval


if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOORS = ("random", "uniform")
ALPHA = 0.05
GENERATED = ("planted_evidence", "counting")  # data sets whose marked tokens are what decides the label


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """What the tests by erasure say of attention: "comprehensiveness of attention", ..."""
    results = scores(cell, ["attention"])
    return {f"{test} of attention": of["attention"] for test, of in results.items() if not TESTS[test].evidence}


# ------------------------------------------------------------------------------------------------- tables


def _test_cases(cell: Cell) -> Iterator[Case]:
    for test, values in scores(cell).items():
        names, columns = list(values), np.stack(list(values.values()), axis=1)
        good = TESTS[test].better * columns
        defined = (~np.isnan(columns)).sum(0)
        means = np.array(
            [column[~np.isnan(column)].mean() if count else np.nan for column, count in zip(columns.T, defined, strict=True)]
        )
        oriented = TESTS[test].better * means
        summaries = {
            "n": defined,
            "n_undefined": len(columns) - defined,
            "mean": means,
            **dict(zip(("ci_low", "ci_high"), bootstrap_intervals(columns).T, strict=True)),
            "rank": pd.Series(-oriented).rank(method="min").to_numpy(),
            "among_best": _among_best(good, oriented),
        }
        for other in ("attention", "random"):
            summaries |= _against(good, names, other)
        for place, name in enumerate(names):
            given = {key: column[place] for key, column in summaries.items()}
            yield Case(keys={"test": test, "measure": name}, given=given)


def _among_best(good: np.ndarray, means: np.ndarray) -> np.ndarray:
    """1 where a column [N, M], large being good, is not significantly below the one of largest mean; NaN without a mean."""
    if np.isnan(means).all():
        return means
    best = int(np.nanargmax(means))
    differences = good - good[:, [best]]
    p_values = sign_flip_tests(differences)
    p_values[best] = np.nan  # not a test
    worse = (holm(p_values) <= ALPHA) & (np.nan_to_num(_means(differences)) < 0)
    return np.where(np.isnan(means), np.nan, ~worse)


def _against(good: np.ndarray, names: Sequence[str], other: str) -> dict[str, np.ndarray]:
    """Paired differences of columns [N, M] to one of them, as the table has them; NaN of itself, or where it is absent."""
    keys = (*with_interval(f"to_{other}"), f"to_{other}_p_holm")
    if other not in names:
        return {key: np.full(len(names), np.nan) for key in keys}
    differences = good - good[:, [names.index(other)]]
    differences[:, names.index(other)] = np.nan
    numbers = (_means(differences), *bootstrap_intervals(differences).T, holm(sign_flip_tests(differences)))
    return dict(zip(keys, numbers, strict=True))


def _means(columns: np.ndarray) -> np.ndarray:
    counts = (~np.isnan(columns)).sum(0)
    return np.divide(np.nansum(columns, axis=0), counts, out=np.full(columns.shape[1], np.nan), where=counts > 0)


def _agreement_cases(cell: Cell) -> Iterator[Case]:
    names = ["attention", *(name for name in cell.measures if not name.endswith("_hidden"))]
    given = {name: cell.scores(name) for name in names}
    # ranks from 1: above 0, so that no token is left out as if it had no weight, and no two scores fall together
    ranks = {name: [rankdata(row, "dense") for row in rows] for name, rows in given.items()}
    pairs = list(combinations(names, 2))
    if not pairs:
        return
    taus = np.stack([cell.tau(*pair) for pair in pairs], axis=1)
    overlaps = [top_k_overlap(ranks[first], given[second]) for first, second in pairs]
    shared = np.stack([overlap for overlap, _ in overlaps], axis=1)
    bounds, shared_bounds = bootstrap_intervals(taus), bootstrap_intervals(shared)
    means, shared_means = _means(taus), _means(shared)
    for place, (first, second) in enumerate(pairs):
        defined = int((~np.isnan(taus[:, place])).sum())
        summary = {
            "n": defined,
            "n_undefined": len(cell) - defined,
            **dict(zip(with_interval("tau"), (means[place], *bounds[place]), strict=True)),
            "n_overlap_undefined": int(np.isnan(shared[:, place]).sum()),
            **dict(zip(with_interval("top_k_overlap"), (shared_means[place], *shared_bounds[place]), strict=True)),
            "top_k_overlap_chance": _means(overlaps[place][1][:, None])[0],
        }
        yield Case(keys={"first": first, "second": second}, given=summary)


def how_many(counts: Iterable[int]) -> str:
    """The least and the largest number of texts of some tests, in words; of those without any the cell itself speaks."""
    known = [count for count in counts if count] or [0]
    return f"{min(known):,}" if min(known) == max(known) else f"{min(known):,} to {max(known):,}"


def tests_grid(df: pd.DataFrame, stem: str = "tables/saliency_tests") -> Grid:
    """Measures down, tests across: mean and rank, and a star on those among the best."""
    keys, tests = differing(df, CELL), list(dict.fromkeys(df["test"]))
    rows = []
    for identity, part in df.groupby(list(CELL), sort=False, dropna=False):
        named = dict(zip(CELL, identity, strict=True))
        for name, of_measure in part.groupby("measure", sort=False):
            by_test = {row["test"]: row for row in of_measure.to_dict("records")}
            cells = [_tested(by_test.get(test)) for test in tests]
            texts = how_many(row["n"] for row in by_test.values())
            rows.append((*(str(named[key]) for key in keys), measure_label(name), texts, *cells))
    heads = [f"{TESTS[test].label} {'↑' if TESTS[test].better > 0 else '↓'}" for test in tests]
    note = (
        "Mean over texts, and in brackets the rank. * among the best: not worse than the best measure of the column "
        "(paired sign-flip test over texts, Holm’s correction over measures, p ≤ 0.05). ↑ large is good, ↓ small is good. "
        "AOPC: mean over ERASER’s shares of tokens. Erasure shows a model texts unlike those it was trained on. Against "
        "marked evidence a measure is plausible, which is not to say that the model used it. A signed measure tells "
        "evidence for the predicted class from evidence against it, which attention cannot; “absolute” is the same by "
        "size alone. "
        "Texts where a test is undefined are in no mean."
    )
    columns = (*keys, "measure", "texts", *heads)
    return Grid("Which measure tells what the model used?", columns, tuple(rows), len(keys) + 1, note, stem)


def _tested(row: Mapping | None) -> str:
    if row is None or np.isnan(row["mean"]):
        return "undefined"
    return f"{format_number(row['mean'])} ({row['rank']:.0f}){'*' if row['among_best'] == 1 else ''}"


def agreement_grid(df: pd.DataFrame, stem: str = "tables/saliency_agreement") -> Grid:
    """Mean tau-b of every two measures, above the diagonal; the overlap of their first fifths below."""
    keys = differing(df, CELL)
    names = list(dict.fromkeys([*df["first"], *df["second"]]))
    rows = []
    for identity, part in df.groupby(list(CELL), sort=False, dropna=False):
        named = dict(zip(CELL, identity, strict=True))
        pairs = {(row["first"], row["second"]): row for row in part.to_dict("records")}
        for first in names:
            line = [
                format_number(pairs[first, second]["tau"])
                if (first, second) in pairs
                else format_number(pairs[second, first]["top_k_overlap"])
                if (second, first) in pairs
                else "—"
                for second in names
            ]
            rows.append((*(str(named[key]) for key in keys), measure_label(first), *line))
    note = (
        "Above the diagonal: mean Kendall’s τ-b of the two rankings of a text. Below: mean share of the fifth of tokens "
        "that one ranks first which the other ranks first, too."
    )
    columns = (*keys, "measure", *map(measure_label, names))
    return Grid("Agreement of all measures", columns, tuple(rows), len(keys) + 1, note, stem)


def _columns(names: Iterable[str]) -> tuple[Column, ...]:
    return tuple(map(Column, names))


TESTS_TABLE = Table(
    name="saliency_tests",
    cases=_test_cases,
    by=(Key("test"), Key("measure")),
    columns=_columns(
        (
            *("n", "n_undefined", "mean", "ci_low", "ci_high", "rank", "among_best"),
            *(*with_interval("to_attention"), "to_attention_p_holm"),
            *(*with_interval("to_random"), "to_random_p_holm"),
        )
    ),
    grid=lambda df, _: tests_grid(df),
)
"""One row per cell x test x measure. n: texts where the test is defined for the measure; n_undefined: the others. mean,
ci_low, ci_high: over these texts, with a 95 % bootstrap interval. rank: 1 is best. to_attention, to_random: mean paired
difference to attention, or to random scores, over the texts where both are defined, positive where the measure is the better
one whether large or small is good, with its interval; <name>_p_holm: p of `sign_flip_test`, corrected by Holm over the
measures of that cell and test. among_best: 1 where the measure is not worse than the best one at p <= 0.05, so corrected; 0
where it is; NaN where it is undefined.
"""
AGREEMENT_TABLE = Table(
    name="saliency_agreement",
    cases=_agreement_cases,
    by=(Key("first"), Key("second")),
    columns=_columns(
        (
            *("n", "n_undefined", *with_interval("tau")),
            *("n_overlap_undefined", *with_interval("top_k_overlap"), "top_k_overlap_chance"),
        )
    ),
    grid=lambda df, _: agreement_grid(df),
)
"""One row per cell and two measures. tau: mean Kendall tau-b of their scores; top_k_overlap: mean share of the fifth of
tokens that one ranks first which the other ranks first, too, and what chance gives; n and n_undefined are of tau.
"""


# ------------------------------------------------------------------------------------------------- advice


@dataclass(frozen=True)
class Advice:
    """What the tests of one cell recommend.

    measure: the one that is among the best in most tests, of equals the one of better mean rank; None where none beats
    random scores in most tests. tests: how many count: those by erasure, and in generated texts average precision against
    the evidence. wins, attention_wins: in how many the measure, and attention, is among the best. attention_loses: in how
    many attention is significantly worse than the measure.
    """

    measure: str | None
    tests: int
    wins: int
    attention_wins: int
    attention_loses: int


def counted_tests(cell: Cell, table: pd.DataFrame) -> list[str]:
    """The tests that say something of the model: by erasure, and where the evidence is known for sure, against that."""
    truth = ("average_precision",) if cell.heading["dataset"] in GENERATED else ()
    return [test for test in dict.fromkeys(table["test"]) if not TESTS[test].evidence or test in truth]


def advise(cell: Cell) -> Advice:
    """Which measure a developer should show for the cell's model. Floors are never recommended."""
    table = frame(TESTS_TABLE, [cell])
    tests = counted_tests(cell, table)
    table = table[table["test"].isin(tests)]
    wins = table.groupby("measure", sort=False)["among_best"].sum()
    attention_wins = int(wins.get("attention", 0))
    beaten = (table["to_random"] > 0) & (table["to_random_p_holm"] <= ALPHA)
    if table["measure"].eq("random").any():
        share = beaten.groupby(table["measure"], sort=False).mean()
        candidates = [name for name in wins.index if name not in FLOORS and share[name] > 0.5]
    else:
        candidates = [name for name in wins.index if name not in FLOORS]
    if not candidates:
        return Advice(None, len(tests), 0, attention_wins, 0)
    ranks = table.groupby("measure", sort=False)["rank"].mean()
    best = min(candidates, key=lambda name: (-wins[name], ranks[name]))
    loses = (
        0
        if best == "attention"
        else int(((table["measure"] == best) & (table["to_attention"] > 0) & (table["to_attention_p_holm"] <= ALPHA)).sum())
    )
    return Advice(best, len(tests), int(wins[best]), attention_wins, loses)


def advice_in_words(cell: Cell) -> str:
    """The advice in one sentence."""
    advice = advise(cell)
    if advice.measure is None:
        return (
            f"Show none of these measures as an explanation of this model: in most of its {advice.tests} tests none orders "
            "the tokens better than chance."
        )
    tests = f"{advice.wins} of {advice.tests} tests"
    floor = (
        "" if "random" in measures(cell) else " Whether any is better than chance is not known: measure random_scores too."
    )
    if advice.measure == "attention":
        return f"Attention serves a developer of this model: it is among the best measures in {tests}.{floor}"
    return (
        f"To see which inputs mattered to this model, use {measure_label(advice.measure)}: it is among the best measures in "
        f"{tests}, attention in {advice.attention_wins}, and it is better than attention (p ≤ {ALPHA:g}, corrected) in "
        f"{advice.attention_loses}.{floor}"
    )


# ------------------------------------------------------------------------------------------------ figures


@own_style
def tests_figure(cell: Cell) -> "Figure":
    """Mean and 95 % interval of each measure, a panel per test, the best on top; attention and the floors in colour."""
    table = frame(TESTS_TABLE, [cell])
    tests = list(dict.fromkeys(table["test"]))
    count = table["measure"].nunique()
    across = min(2, len(tests))
    down = -(-len(tests) // across)
    figure = titled_figure("Which measure tells what the model used?", cell, 10.0, down * (0.7 + 0.2 * count))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes in panels[len(tests) :]:
        axes.set_visible(False)
    for axes, test in zip(panels, tests, strict=False):
        part = table[(table["test"] == test) & table["mean"].notna()].sort_values("rank", ascending=False, kind="stable")
        for height, row in enumerate(part.to_dict("records")):
            colour = {"attention": PALETTE[0], "random": PALETTE[1], "uniform": PALETTE[1]}.get(row["measure"], PALETTE[6])
            axes.plot([row["ci_low"], row["ci_high"]], [height, height], color=colour, linewidth=1.6)
            filled = colour if row["among_best"] == 1 else "white"
            axes.plot([row["mean"]], [height], "o", color=colour, markerfacecolor=filled, markersize=5)
        axes.set_yticks(range(len(part)), map(measure_label, part["measure"]), fontsize=9)
        axes.set_title(f"{TESTS[test].label} ({'large' if TESTS[test].better > 0 else 'small'} is good)")
        axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure


@own_style
def agreement_figure(cell: Cell) -> "Figure":
    """Mean tau-b of every two measures as a heat map."""
    table = frame(AGREEMENT_TABLE, [cell])
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    matrix = np.full((len(names), len(names)), np.nan)
    for row in table.to_dict("records"):
        places = names.index(row["first"]), names.index(row["second"])
        matrix[places] = matrix[places[::-1]] = row["tau"]
    size = 1.6 + 0.5 * len(names)
    figure = titled_figure("Do the measures rank tokens alike?", cell, max(6.0, size + 1), size)
    axes = figure.add_subplot()
    shown = axes.imshow(matrix, vmin=-1, vmax=1, cmap="PuOr_r")
    for (first, second), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(second, first, f"{round(value, 2) + 0.0:.2f}", ha="center", va="center", fontsize=8, color=colour)
    labels = [*map(measure_label, names)]
    axes.set_xticks(range(len(names)), labels, rotation=60, ha="right", fontsize=9)
    axes.set_yticks(range(len(names)), labels, fontsize=9)
    figure.colorbar(shown, ax=axes, shrink=0.7, label="mean Kendall's τ-b over texts")
    return figure


def _tests_words(cell: Cell) -> tuple[str, str]:
    table = frame(TESTS_TABLE, [cell])
    firsts = table[table["rank"] == 1]
    parts = [
        f"{TESTS[row['test']].label}: {measure_label(row['measure'])} ({row['mean']:.3f})"
        for row in firsts.to_dict("records")
    ]
    alt = f"Mean of each measure by each test, with its interval. First by {'; '.join(parts)}."
    caption = (
        "Each measure by each test: mean over texts and 95 % interval, the best on top. Filled: among the best, not worse "
        "than the first at p ≤ 0.05. Blue: attention; red: random and uniform scores."
    )
    return alt, caption


def _agreement_words(cell: Cell) -> tuple[str, str]:
    table = frame(AGREEMENT_TABLE, [cell]).sort_values("tau", ascending=False, kind="stable")
    parts = [
        f"{measure_label(row['first'])} and {measure_label(row['second'])} {row['tau']:.2f}"
        for row in table.to_dict("records")
    ]
    alt = f"Heat map of the mean rank correlation of every two measures. Highest first: {'; '.join(parts[:5])}."
    return alt, "How far every two measures rank the tokens of a text alike: mean τ-b, 1 the same order, 0 no relation."


SECTION = Section(
    name="saliency",
    place=80,
    needs=(*NEEDS, "attention"),
    uses=(*SOFT, "importance_*", "rationale"),
    per_text=per_text,
    compared=True,
    tables=(TESTS_TABLE, AGREEMENT_TABLE),
    figures=(
        Drawn("saliency_tests", figure=tests_figure, describe=_tests_words),
        Drawn("saliency_agreement", figure=agreement_figure, describe=_agreement_words),
    ),
    sentences=lambda cell: [advice_in_words(cell)],
)
