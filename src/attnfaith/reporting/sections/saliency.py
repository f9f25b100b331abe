"""Attention or saliency? Every measure of a record by every test of explanations that the record allows.

The tests and their numbers per text are those of `reporting.explanation_tests`. Each measure is held against three: random
scores, attention, and one rival that is named before anything is measured (`RIVALS`). There is no winner: of many measures
the best by chance looks better than it is. Shapes: N instances, M measures.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.explanation_tests import NEEDS, SOFT, TESTS, measures, scores
from attnfaith.reporting.figures import grid_behind
from attnfaith.reporting.render import frame, rows
from attnfaith.reporting.spec import Drawing, Row, Section, Table, counts, main, per_cell, plain
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.reporting.tables import format_number
from attnfaith.stats import LEVEL, estimate, holm, sign_flip_tests, t_interval, with_interval


if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOORS = ("random", "uniform")
RIVALS = (f"{records.ABSOLUTE}integrated_gradients", "leave_one_out", f"{records.ABSOLUTE}gradient_x_input", "gradient")
"""What measures are held against: the first of these that a record holds, whatever its numbers are."""
GENERATED = ("planted_evidence", "counting")  # data sets whose marked tokens are what decides the label


def rival(names: Iterable[str]) -> str | None:
    """The measure that the others are held against; None where none of RIVALS was tested."""
    names = set(names)
    return next((name for name in RIVALS if name in names), None)


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """What the tests by erasure say of attention: "comprehensiveness of attention", ..."""
    results = scores(cell, ["attention"])
    return {f"{test} of attention": of["attention"] for test, of in results.items() if not TESTS[test].evidence}


# ---------- tables


def _test_rows(cell: Cell) -> Iterator[Row]:
    for test, values in scores(cell).items():
        names = list(values)
        better = TESTS[test].better
        against = {"attention": "attention", "random": "random", "rival": rival(names)}
        compared = {name: _against(values, better, other) for name, other in against.items()}
        for place, name in enumerate(names):
            row = {"test": test, "measure": name} | counts(values[name]) | main("mean", values[name])
            for columns in compared.values():
                row |= {key: numbers[place] for key, numbers in columns.items()}
            yield row | {"rival": against["rival"] or ""}


def _against(values: Mapping[str, np.ndarray], better: int, other: str | None) -> dict[str, list[float]]:
    """Paired differences of {measure: [N]} to one of them, positive where the measure is better; NaN of itself, or where it
    is absent. Columns to_<other> with interval and p-value, by Holm over the measures.
    """
    key = "to_rival" if other not in ("attention", "random") else f"to_{other}"
    names = (*with_interval(key), f"{key}_p_holm")
    if other not in values:
        return {name: [np.nan] * len(values) for name in names}
    differences = np.stack([better * (own - values[other]) for own in values.values()], axis=1)
    differences[:, list(values).index(other)] = np.nan
    estimates = [list(estimate("", column).values()) for column in differences.T]
    return dict(zip(names, [*zip(*estimates, strict=True), holm(sign_flip_tests(differences))], strict=True))


def _agreement_rows(cell: Cell) -> Iterator[Row]:
    given = {name: cell.scores(name) for name in ["attention", *(n for n in cell.measures if not n.endswith("_hidden"))]}
    # ranks from 1: above 0, so that no token is left out as if it had no weight, and no two scores fall together
    ranks = {name: [rankdata(row, "dense") for row in of_texts] for name, of_texts in given.items()}
    for first, second in combinations(given, 2):
        tau, (overlap, chance) = cell.tau(first, second), top_k_overlap(ranks[first], given[second])
        row = {"first": first, "second": second} | counts(tau) | estimate("tau", tau, interval=t_interval)
        row |= {"n_overlap_undefined": int(np.isnan(overlap).sum())} | estimate("top_k_overlap", overlap)
        yield row | plain(top_k_overlap_chance=chance)


def how_many(counts: Iterable[int]) -> str:
    """The least and the largest number of texts of some tests, in words; of those without any the cell itself speaks."""
    known = [count for count in counts if count] or [0]
    return f"{min(known):,}" if min(known) == max(known) else f"{min(known):,} to {max(known):,}"


def tests_grid(df: pd.DataFrame, stem: str = "tables/saliency_tests") -> Grid:
    """Measures down, tests across: means, with a sign where a measure is better or worse than the rival."""
    keys, tests = differing(df, CELL), list(dict.fromkeys(df["test"]))
    lines = []
    for identity, part in df.groupby(list(CELL), sort=False, dropna=False):
        named = dict(zip(CELL, identity, strict=True))
        for name, of_measure in part.groupby("measure", sort=False):
            by_test = {row["test"]: row for row in of_measure.to_dict("records")}
            texts = how_many(row["n"] for row in by_test.values())
            cells = [_tested(by_test.get(test)) for test in tests]
            lines.append((*(str(named[key]) for key in keys), measure_label(name), texts, *cells))
    heads = [f"{TESTS[test].label} {'↑' if TESTS[test].better > 0 else '↓'}" for test in tests]
    against = " or ".join(dict.fromkeys(measure_label(name) for name in df["rival"] if name)) or "no rival"
    note = (
        f"Mean over texts. + better, − worse than {against}, which was named before anything was measured (paired sign-flip "
        "test over texts, Holm’s correction over measures, p ≤ 0.05). ↑ large is good, ↓ small is good. AOPC: mean over "
        "ERASER’s shares of tokens. Erasure shows a model texts unlike those it was trained on. Against marked evidence a "
        "measure is plausible, which is not to say that the model used it. A signed measure tells evidence for the "
        "predicted class from evidence against it, which attention cannot; “absolute” is the same by size alone. Texts "
        "where a test is undefined are in no mean."
    )
    columns = (*keys, "measure", "texts", *heads)
    return Grid("Which measure tells what the model used?", columns, tuple(lines), len(keys) + 1, note, stem)


def _tested(row: Row | None) -> str:
    if row is None or np.isnan(row["mean"]):
        return "undefined"
    stands = row["to_rival_p_holm"] <= LEVEL
    return format_number(row["mean"]) + (("+" if row["to_rival"] > 0 else "−") if stands else "")


def agreement_grid(df: pd.DataFrame, stem: str = "tables/saliency_agreement") -> Grid:
    """Mean tau-b of every two measures, above the diagonal; the overlap of their first fifths below."""
    keys = differing(df, CELL)
    names = list(dict.fromkeys([*df["first"], *df["second"]]))
    lines = []
    for identity, part in df.groupby(list(CELL), sort=False, dropna=False):
        named = dict(zip(CELL, identity, strict=True))
        numbers = {(row["first"], row["second"]): row["tau"] for row in part.to_dict("records")}
        numbers |= {(row["second"], row["first"]): row["top_k_overlap"] for row in part.to_dict("records")}
        for first in names:
            line = [format_number(numbers[first, second]) if (first, second) in numbers else "—" for second in names]
            lines.append((*(str(named[key]) for key in keys), measure_label(first), *line))
    note = (
        "Above the diagonal: mean Kendall’s τ-b of the two rankings of a text. Below: mean share of the fifth of tokens "
        "that one ranks first which the other ranks first, too."
    )
    columns = (*keys, "measure", *map(measure_label, names))
    return Grid("Agreement of all measures", columns, tuple(lines), len(keys) + 1, note, stem)


TESTS_TABLE = Table(name="saliency_tests", rows=_test_rows, grid=lambda df, _: tests_grid(df))
"""One row per cell x test x measure. n: texts where the test is defined for the measure; n_undefined: the others. mean,
ci_low, ci_high: over these texts, with its 95 % interval. to_attention, to_random, to_rival: mean paired difference to
attention, to random scores, or to the rival, over the texts where both are defined, positive where the measure is the better
one whether large or small is good, with its interval; <name>_p_holm: p of `sign_flip_tests`, corrected by Holm over the
measures of that cell and test. rival: which measure that is.
"""
AGREEMENT_TABLE = Table(name="saliency_agreement", rows=_agreement_rows, grid=lambda df, _: agreement_grid(df))
"""One row per cell and two measures. tau: mean Kendall tau-b of their scores; top_k_overlap: mean share of the fifth of
tokens that one ranks first which the other ranks first, too, and what chance gives; n and n_undefined are of tau.
"""


# ---------- sentences


def counted_tests(cell: Cell, tests: Iterable[str]) -> list[str]:
    """The tests that say something of the model: by erasure, and where the evidence is known for sure, against that."""
    truth = ("average_precision",) if cell.heading["dataset"] in GENERATED else ()
    return [test for test in dict.fromkeys(tests) if not TESTS[test].evidence or test in truth]


def _sentences(cell: Cell) -> Iterator[str]:
    every = rows(TESTS_TABLE, cell)
    tests = counted_tests(cell, (row["test"] for row in every))
    mine = [row for row in every if row["measure"] == "attention" and row["test"] in tests]
    against = {
        "to_random": "random scores",
        "to_rival": measure_label(mine[0]["rival"]) if mine and mine[0]["rival"] else "",
    }
    parts = []
    for key, other in against.items():
        known = [row for row in mine if not np.isnan(row[key])]
        if known:
            stands = [row[key] for row in known if row[f"{key}_p_holm"] <= LEVEL]
            better, worse = sum(value > 0 for value in stands), sum(value < 0 for value in stands)
            parts.append(f"better than {other} in {better} of {len(known)} tests and worse in {worse}")
    if parts:
        floor = (
            ""
            if "random" in measures(cell)
            else " Whether it is better than chance is not known: measure random_scores too."
        )
        yield f"Attention is {', '.join(parts)} (p ≤ {LEVEL:g}, corrected); the others cannot be told.{floor}"


# ---------- figures


@own_style
def tests_figure(cell: Cell) -> "Figure":
    """Mean and 95 % interval of each measure, a panel per test, the best on top; attention and the floors in colour."""
    table = frame(TESTS_TABLE, [cell])
    tests = list(dict.fromkeys(table["test"]))
    across = min(2, len(tests))
    down = -(-len(tests) // across)
    height = down * (0.7 + 0.2 * table["measure"].nunique())
    figure = titled_figure("Which measure tells what the model used?", cell, 10.0, height)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes in panels[len(tests) :]:
        axes.set_visible(False)
    for axes, test in zip(panels, tests, strict=False):
        part = by_mean(table, test)[::-1]
        for place, row in enumerate(part.to_dict("records")):
            colour = {"attention": PALETTE[0], "random": PALETTE[1], "uniform": PALETTE[1]}.get(row["measure"], PALETTE[6])
            axes.plot([row["ci_low"], row["ci_high"]], [place, place], color=colour, linewidth=1.6)
            axes.plot([row["mean"]], [place], "o", color=colour, markersize=5)
        axes.set_yticks(range(len(part)), map(measure_label, part["measure"]), fontsize=9)
        axes.set_title(f"{TESTS[test].label} ({'large' if TESTS[test].better > 0 else 'small'} is good)")
        grid_behind(axes, "x")
    return figure


def by_mean(table: pd.DataFrame, test: str) -> pd.DataFrame:
    """The rows of one test that have a mean, the best first."""
    rows = table[(table["test"] == test) & table["mean"].notna()]
    return rows.sort_values("mean", ascending=TESTS[test].better < 0, kind="stable")


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
    firsts = {test: by_mean(table, test).head(1).to_dict("records") for test in dict.fromkeys(table["test"])}
    parts = [
        f"{TESTS[test].label}: {measure_label(row['measure'])} ({row['mean']:.3f})"
        for test, found in firsts.items()
        for row in found
    ]
    alt = f"Mean of each measure by each test, with its interval. Best mean: {'; '.join(parts)}."
    return (
        alt,
        "Each measure by each test: mean over texts and 95 % interval. Blue: attention; red: random and uniform scores.",
    )


def _agreement_words(cell: Cell) -> tuple[str, str]:
    table = frame(AGREEMENT_TABLE, [cell]).sort_values("tau", ascending=False, kind="stable").head(5)
    parts = [
        f"{measure_label(r['first'])} and {measure_label(r['second'])} {r['tau']:.2f}" for r in table.to_dict("records")
    ]
    alt = f"Heat map of the mean rank correlation of every two measures. Highest first: {'; '.join(parts)}."
    return alt, "How far every two measures rank the tokens of a text alike: mean τ-b, 1 the same order, 0 no relation."


def _figures(cell: Cell) -> Sequence[Drawing]:
    several = [Drawing("saliency_agreement", agreement_figure, _agreement_words)] if cell.measures else []
    return [Drawing("saliency_tests", tests_figure, _tests_words), *several]


SECTION = Section(
    name="saliency",
    place=80,
    needs=(*NEEDS, "attention"),
    uses=(*SOFT, "importance_*", "rationale"),
    per_text=per_text,
    tables=(TESTS_TABLE, AGREEMENT_TABLE),
    figures=_figures,
    sentences=_sentences,
)
