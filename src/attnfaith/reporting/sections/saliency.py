"""Attention or saliency? Every measure of a record by every test of explanations that the record allows.

The tests and their numbers per text are those of `reporting.explanation_tests`. Each measure is held against three: random
scores, attention, and one rival that is named before anything is measured (`RIVALS`). There is no winner: of many measures
the best by chance looks better than it is. Shapes: N instances, M measures.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.reporting import explanation_tests
from attnfaith.reporting.cells import CELL, Cell, measure_label
from attnfaith.reporting.explanation_tests import NEEDS, SOFT, TESTS, measures
from attnfaith.reporting.figures import grid_behind
from attnfaith.reporting.html import Grid, differing
from attnfaith.reporting.render import frame
from attnfaith.reporting.spec import Drawing, Row, Section, Table, counts, main, per_cell, plain
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.reporting.tables import format_number
from attnfaith.stats import LEVEL, estimate, holm, sign_flip_tests, t_interval, with_interval


if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Which measure tells what the model used?"
FLOORS = ("random", "uniform")
RIVALS = (f"{records.ABSOLUTE}integrated_gradients", "leave_one_out", f"{records.ABSOLUTE}gradient_x_input", "gradient")
"""The measures that others are held against: the first of these that a record holds, whatever its numbers are."""
GENERATED = ("planted_evidence", "counting")  # data sets whose marked tokens are what decides the label


def rival(names: Iterable[str]) -> str | None:
    """The measure that the others are held against; None where none of RIVALS was tested."""
    names = set(names)
    return next((name for name in RIVALS if name in names), None)


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """The tests by erasure of attention: "comprehensiveness of attention", ..."""
    results = explanation_tests.scores(cell, ["attention"])
    return {f"{test} of attention": values["attention"] for test, values in results.items() if not TESTS[test].evidence}


# ---------- tables


def _test_rows(cell: Cell) -> Iterator[Row]:
    for test, values in explanation_tests.scores(cell).items():
        names = list(values)
        better = TESTS[test].better
        against = {"attention": "attention", "random": "random", "rival": rival(names)}
        compared = {name: differences(values, better, other) for name, other in against.items()}
        for place, name in enumerate(names):
            row = {"test": test, "measure": name} | counts(values[name]) | main("mean", values[name])
            for columns in compared.values():
                row |= {key: numbers[place] for key, numbers in columns.items()}
            yield row | {"rival": against["rival"] or ""}


def differences(values: Mapping[str, np.ndarray], better: int, other: str | None) -> dict[str, list[float]]:
    """Paired differences of {measure: [N]} to one of them, positive where the measure is better; NaN of itself, or where it
    is absent. Columns to_<other> with interval and p-value, by Holm over the measures.
    """
    key = "to_rival" if other not in ("attention", "random") else f"to_{other}"
    names = (*with_interval(key), f"{key}_p_holm")
    if other not in values:
        return {name: [np.nan] * len(values) for name in names}
    paired = np.stack([better * (own - values[other]) for own in values.values()], axis=1)
    paired[:, list(values).index(other)] = np.nan
    estimates = [list(estimate("", column).values()) for column in paired.T]
    return dict(zip(names, [*zip(*estimates, strict=True), holm(sign_flip_tests(paired))], strict=True))


def _agreement_rows(cell: Cell) -> Iterator[Row]:
    scores = {name: cell.scores(name) for name in ("attention", *cell.of_inputs.measures)}
    # ranks from 1: above 0, so that no token is left out as if it had no weight, and no two scores fall together
    ranks = {name: [rankdata(row, "dense") for row in rows] for name, rows in scores.items()}
    for first, second in combinations(scores, 2):
        tau, (overlap, chance) = cell.tau(first, second), top_k_overlap(ranks[first], scores[second])
        row = {"first": first, "second": second} | counts(tau) | estimate("tau", tau, interval=t_interval)
        row |= {"n_overlap_undefined": int(np.isnan(overlap).sum())} | estimate("top_k_overlap", overlap)
        yield row | plain(top_k_overlap_chance=chance)


def tests_grid(df: pd.DataFrame) -> Grid:
    """Measures down, tests across: means, with a sign where a measure is better or worse than the rival."""
    keys = differing(df, CELL)
    tests = dict.fromkeys(df["test"])
    against = " or ".join(dict.fromkeys(measure_label(name) for name in df["rival"] if name)) or "no rival"
    lines = []
    for head, part in df.groupby([*keys, "measure"], sort=False, dropna=False):
        by_test = {row["test"]: row for row in part.to_dict("records")}
        counts = sorted({row["n"] for row in by_test.values() if row["n"]} or {0})
        texts = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
        lines.append((*map(str, head[:-1]), measure_label(head[-1]), texts, *(_tested(by_test.get(test)) for test in tests)))
    heads = [f"{TESTS[test].label} {'↑' if TESTS[test].better > 0 else '↓'}" for test in tests]
    note = (
        f"Mean over texts. + better, − worse than {against}, which was named before anything was measured (paired sign-flip "
        "test over texts, Holm’s correction over measures, p ≤ 0.05). ↑ large is good, ↓ small is good. AOPC: mean over "
        "ERASER’s shares of tokens. Erasure shows a model texts unlike those of training. Against marked evidence a measure "
        "is plausible, which does not mean that the model used it. A signed measure tells evidence for the predicted class "
        "from evidence against it, which attention cannot; “absolute” is the same by size alone."
    )
    columns = (*keys, "measure", "texts", *heads)
    return Grid(TITLE, columns, tuple(lines), len(keys) + 1, note, "tables/saliency_tests")


def _tested(row: Row | None) -> str:
    if row is None or np.isnan(row["mean"]):
        return "undefined"
    differs = row["to_rival_p_holm"] <= LEVEL
    return format_number(row["mean"]) + (("+" if row["to_rival"] > 0 else "−") if differs else "")


def agreement_grid(df: pd.DataFrame) -> Grid:
    """Mean tau-b of every two measures, above the diagonal; the overlap of their first fifths below."""
    keys = differing(df, CELL)
    names = list(dict.fromkeys([*df["first"], *df["second"]]))
    lines = []
    for head, part in df.groupby(keys, sort=False, dropna=False) if keys else [((), df)]:
        numbers = {(row["first"], row["second"]): row["tau"] for row in part.to_dict("records")}
        numbers |= {(row["second"], row["first"]): row["top_k_overlap"] for row in part.to_dict("records")}
        for first in names:
            line = [format_number(numbers[first, second]) if (first, second) in numbers else "—" for second in names]
            lines.append((*map(str, head), measure_label(first), *line))
    note = (
        "Above the diagonal: mean Kendall’s τ-b of the two rankings of a text. Below: mean share of the fifth of tokens "
        "that one ranks first which the other ranks first, too."
    )
    columns = (*keys, "measure", *map(measure_label, names))
    return Grid("Agreement of all measures", columns, tuple(lines), len(keys) + 1, note, "tables/saliency_agreement")


TESTS_TABLE = Table(name="saliency_tests", rows=_test_rows, grid=lambda df, cells: tests_grid(df))
"""One row per cell x test x measure. n: texts where the test is defined for the measure; n_undefined: the others. mean,
ci_low, ci_high: over these texts, with its 95 % interval. to_attention, to_random, to_rival: mean paired difference to
attention, to random scores, or to the rival, over the texts where both are defined, positive where the measure is the better
one whether large or small is good, with its interval; <name>_p_holm: p of `sign_flip_tests`, corrected by Holm over the
measures of that cell and test. rival: which measure that is.
"""
AGREEMENT_TABLE = Table(name="saliency_agreement", rows=_agreement_rows, grid=lambda df, cells: agreement_grid(df))
"""One row per cell and two measures. tau: mean Kendall tau-b of their scores; top_k_overlap: mean share of the fifth of
tokens that one ranks first which the other ranks first, too, and what chance gives; n and n_undefined are of tau.
"""


# ---------- sentence


def counted_tests(cell: Cell, tests: Iterable[str]) -> list[str]:
    """The tests about the model: by erasure, and where the evidence is known for sure, against that."""
    truth = ("average_precision",) if cell.heading["dataset"] in GENERATED else ()
    return [test for test in dict.fromkeys(tests) if not TESTS[test].evidence or test in truth]


def _sentences(cell: Cell) -> Iterator[str]:
    table = frame(TESTS_TABLE, [cell])
    own = table[(table["measure"] == "attention") & table["test"].isin(counted_tests(cell, table["test"]))]
    parts = []
    for key, other in (("to_random", "random scores"), ("to_rival", measure_label("".join(own["rival"].head(1))))):
        tested = own[own[key].notna()]
        if len(tested):
            differences = tested[key][tested[f"{key}_p_holm"] <= LEVEL]
            better, worse = (differences > 0).sum(), (differences < 0).sum()
            parts.append(f"better than {other} in {better} of {len(tested)} tests and worse in {worse}")
    if parts:
        yield f"Attention is {', '.join(parts)} (p ≤ {LEVEL:g}, corrected); in the others no difference is shown."
    if parts and "random" not in measures(cell):
        yield "Whether it is better than chance is not known: measure random_scores too."


# ---------- figure


@own_style
def tests_figure(cell: Cell) -> "Figure":
    """Mean and 95 % interval of each measure, a panel per test, the best on top; attention and the floors in colour."""
    table = frame(TESTS_TABLE, [cell])
    tests = list(dict.fromkeys(table["test"]))
    across = min(2, len(tests))
    down = -(-len(tests) // across)
    height = down * (0.7 + 0.2 * table["measure"].nunique())
    figure = titled_figure(TITLE, cell, 10.0, height)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes in panels[len(tests) :]:
        axes.set_visible(False)
    for axes, test in zip(panels, tests, strict=False):
        part = by_mean(table, test)[::-1]
        for place, row in enumerate(part.to_dict("records")):
            colour = {"attention": PALETTE[0], **dict.fromkeys(FLOORS, PALETTE[1])}.get(row["measure"], PALETTE[6])
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


def _words(cell: Cell) -> tuple[str, str]:
    table = frame(TESTS_TABLE, [cell])
    best = [row for test in dict.fromkeys(table["test"]) for row in by_mean(table, test).head(1).to_dict("records")]
    parts = [f"{TESTS[row['test']].label}: {measure_label(row['measure'])} ({row['mean']:.3f})" for row in best]
    caption = "Each measure by each test: mean and 95 % interval. Blue: attention; red: random and uniform scores."
    return f"Mean of each measure by each test, with its interval. Best mean: {'; '.join(parts)}.", caption


SECTION = Section(
    name="saliency",
    place=80,
    needs=(*NEEDS, "attention"),
    uses=(*SOFT, "importance_*", "rationale"),
    per_text=per_text,
    tables=(TESTS_TABLE, AGREEMENT_TABLE),
    figure=Drawing("saliency_tests", tests_figure, _words),
    sentences=_sentences,
)
