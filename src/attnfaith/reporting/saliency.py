"""Attention or saliency? Every measure of a record ranked by every test of explanations that the record allows.

Tests by erasure, from `rationale_erasure` and `soft_erasure`: what the model says of the tokens that a measure ranks first,
and of the text without them. Tests against marked evidence, where the record has it: what people marked (plausibility), or,
in generated texts, what the label was made of (truth). The tests and their units are those of
`metrics.attention_faithfulness.erasure_curves` and `plausibility`.

Shapes: N instances, M measures, S shares of the tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import combinations
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.errors import AttnfaithError
from attnfaith.metrics.attention_faithfulness.erasure_curves import (
    BINS,
    aopc,
    area_under_curve,
    comprehensiveness,
    normalised_comprehensiveness,
    normalised_sufficiency,
    sufficiency,
)
from attnfaith.metrics.attention_faithfulness.plausibility import mean_share, plausibility_results, top_tokens
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.reporting.blocks import Grid, differing
from attnfaith.reporting.cells import CELL, Cell, describe, measure_label
from attnfaith.reporting.figures import PALETTE, _figure, _own_style
from attnfaith.reporting.tables import format_number
from attnfaith.stats import bootstrap_intervals, holm, sign_flip_tests, with_interval


if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEEDS = tuple(
    f"rationale_erasure_{name}" for name in ("measures", "shares", "kept_probs", "removed_probs", "whole_prob", "empty_prob")
)
SOFT = tuple(f"soft_erasure_{name}" for name in ("measures", "kept_probs", "removed_probs", "whole_prob", "empty_prob"))
FLOORS = ("random", "uniform")
ALPHA = 0.05
GENERATED = ("planted_evidence",)  # data sets whose marked tokens are what decides the label


@dataclass(frozen=True)
class Criterion:
    """label: for reading. better: 1 where large is good, -1 where small is. evidence: against marked tokens, not by
    erasure.
    """

    label: str
    better: int
    evidence: bool = False


TESTS = {
    "comprehensiveness": Criterion("comprehensiveness (AOPC)", 1),
    "sufficiency": Criterion("sufficiency (AOPC)", -1),
    "deletion_area": Criterion("deletion area", -1),
    "insertion_area": Criterion("insertion area", 1),
    "soft_comprehensiveness": Criterion("soft comprehensiveness", 1),
    "soft_sufficiency": Criterion("soft sufficiency", 1),
    "average_precision": Criterion("average precision", 1, evidence=True),
    "trapezoid_auprc": Criterion("AUPRC by trapezoids", 1, evidence=True),
    "token_f1": Criterion("token F1", 1, evidence=True),
    "span_iou_f1": Criterion("span IoU F1", 1, evidence=True),
}
TEST_COLUMNS = (
    *CELL,
    "test",
    "measure",
    "n",
    "n_undefined",
    "mean",
    "ci_low",
    "ci_high",
    "rank",
    "among_best",
    *with_interval("to_attention"),
    "to_attention_p_holm",
    *with_interval("to_random"),
    "to_random_p_holm",
)
AGREEMENT_COLUMNS = (
    *CELL,
    "first",
    "second",
    "n",
    "n_undefined",
    *with_interval("tau"),
    "n_overlap_undefined",
    *with_interval("top_k_overlap"),
    "top_k_overlap_chance",
)


def _once(make: Callable[[Cell], pd.DataFrame]) -> Callable[[Cell], pd.DataFrame]:
    """Made once for each cell: its tables, figures and sentences ask for it each."""
    known: WeakKeyDictionary[Cell, pd.DataFrame] = WeakKeyDictionary()

    @wraps(make)
    def remembered(cell: Cell) -> pd.DataFrame:
        if cell not in known:
            known[cell] = make(cell)
        return known[cell]

    return remembered


def holds(cell: Cell) -> bool:
    """Whether the cell's record holds what the tests by erasure need."""
    return set(NEEDS) <= set(cell.table.column_names)


def measures(cell: Cell) -> list[str]:
    """The names of what is tested, attention first, as the record has them; a signed measure by its size as well.

    Raises RecordError where nothing was tested, and where two instances of the cell name others: they were not measured
    together.
    """
    if "rationale_erasure_measures" not in cell.table.column_names:
        raise records.RecordError(
            f"{describe(cell.heading)}: no measure was tested by erasure; measure the model with rationale_erasure among "
            "--measure.producers"
        )
    return _same(cell, "rationale_erasure_measures")


def _same(cell: Cell, column: str) -> list:
    found = cell.table.column(column).to_pylist()
    if any(row != found[0] for row in found):
        other = next(row for row in found if row != found[0])
        raise records.RecordError(
            f"{describe(cell.heading)}: column '{column}' holds {found[0]} and {other}; one cell is measured in one way"
        )
    return found[0]


def scores(cell: Cell, only: Sequence[str] | None = None) -> dict[str, dict[str, np.ndarray]]:
    """What each test says of each measure, or of these only, {test: {measure: [N]}} in float64, NaN where undefined.

    comprehensiveness and sufficiency are AOPC over those of ERASER's five shares that were measured (over all shares where
    none was), its code's mean. The areas take every share measured, at the share of tokens that it came to. The soft forms
    are means over draws, each cut to 0..1 as in their published code: where the empty text loses next to nothing they would
    outweigh all other texts. A cell has the tests that its columns allow.

    Raises RecordError where the instances of a cell were tested by other measures or shares.
    """
    names, shares = measures(cell), np.array(_same(cell, "rationale_erasure_shares"))
    whole, empty = (_numbers(cell, f"rationale_erasure_{name}_prob") for name in ("whole", "empty"))
    kept, removed = (_stacked(cell, f"rationale_erasure_{name}_probs") for name in ("kept", "removed"))
    bins = np.isclose(shares[:, None], BINS).any(1)
    bins = bins if bins.any() else np.ones(len(shares), bool)
    counts = np.maximum(np.ceil(shares * cell.lengths[:, None] - 1e-9), 1)  # as the tokens of a share are counted
    true_shares = np.minimum(counts / np.maximum(cell.lengths, 1)[:, None], 1)
    found: dict[str, dict[str, np.ndarray]] = {name: {} for name in TESTS}
    wanted = set(names if only is None else only)
    for place, name in enumerate(names):
        if name not in wanted:
            continue
        one, other = removed[:, place], kept[:, place]
        found["comprehensiveness"][name] = aopc(comprehensiveness(whole, one[:, bins]))
        found["sufficiency"][name] = aopc(sufficiency(whole, other[:, bins]))
        found["deletion_area"][name] = area_under_curve(true_shares, one, whole, empty)
        found["insertion_area"][name] = area_under_curve(true_shares, other, empty, whole)
    if set(SOFT) <= set(cell.table.column_names):
        whole, empty = (_numbers(cell, f"soft_erasure_{name}_prob") for name in ("whole", "empty"))
        kept, removed = (_stacked(cell, f"soft_erasure_{name}_probs") for name in ("kept", "removed"))
        for place, name in enumerate(_same(cell, "soft_erasure_measures")):
            if name not in wanted:
                continue
            falls = normalised_comprehensiveness(whole, removed[:, place], empty)
            found["soft_comprehensiveness"][name] = falls.clip(0, 1).mean(1)
            found["soft_sufficiency"][name] = normalised_sufficiency(whole, kept[:, place], empty).clip(0, 1).mean(1)
    if "rationale" in cell.table.column_names:
        gold = records.rows(cell.table, "rationale")
        for name in (name for name in names if name in wanted):
            for test, values in plausibility_results(_token_scores(cell, name), gold).items():
                found[test][name] = values
    return {test: values for test, values in found.items() if values}


def _token_scores(cell: Cell, name: str) -> list[np.ndarray]:
    """Scores [T] per instance of what is tested under this name."""
    if name.startswith(records.ABSOLUTE):
        return [np.abs(row) for row in cell.scores(name.removeprefix(records.ABSOLUTE))]
    return cell.scores(name)


def _numbers(cell: Cell, column: str) -> np.ndarray:
    return cell.table.column(column).to_numpy().astype(np.float64)


def _stacked(cell: Cell, column: str) -> np.ndarray:
    return np.stack(records.rows(cell.table, column)).astype(np.float64)


def eraser_annotations(cell: Cell) -> list[dict]:
    """The texts of a cell and their gold evidence as rows for `attnfaith.data.eraser.write_annotations`.

    [] where the record knows no evidence; a text without a label is left out, as ERASER has no place for it. label: the
    class by its name where the record knows it, else its number.

    Raises ValueError where the tokens are sentences, which have no evidence word by word.
    """
    if cell.words is not None:
        raise AttnfaithError("the record is of sentences, ERASER's files are of words: measure with --measure.level word")
    if "rationale" not in cell.table.column_names:
        return []
    rows = zip(cell.instance_ids, cell.table.column("tokens").to_pylist(), cell.labels, strict=True)
    queries = cell.queries or [[]] * len(cell)
    return [
        {
            "instance_id": name,
            "text": " ".join(tokens),
            "text_pair": " ".join(asked),
            "label": cell.class_names[int(label)] if cell.class_names else str(int(label)),
            "rationale": gold.astype(int).tolist(),
        }
        for (name, tokens, label), asked, gold in zip(rows, queries, records.rows(cell.table, "rationale"), strict=True)
        if not np.isnan(label) and not np.isnan(gold).any()
    ]


def eraser_rows(cell: Cell, measure: str, share: float | None = None) -> list[dict]:
    """One measure's tests as rows for `attnfaith.data.eraser.write_results`, which ERASER's own evaluation reads.

    share: of the tokens that make up the rationale; None for the mean share marked in the record, without which there is
    none. classification: the predicted class by its name where the record knows it, else its number. Of the scores by class
    those of the predicted one are there, the only one that AOPC reads. Texts where the measure is undefined are left out.

    Raises ValueError for a measure that was not tested and for a share out of range.
    """
    names = measures(cell)
    if measure not in names:
        raise AttnfaithError(f"no tests of {measure!r}; the cell holds those of {', '.join(names)}")
    values, place = _token_scores(cell, measure), names.index(measure)
    if share is None and "rationale" in cell.table.column_names:
        share = mean_share(records.rows(cell.table, "rationale"))
    chosen = [None] * len(cell) if share is None or np.isnan(share) else top_tokens(values, share)
    shares = _same(cell, "rationale_erasure_shares")
    whole = _numbers(cell, "rationale_erasure_whole_prob")
    kept, removed = (_stacked(cell, f"rationale_erasure_{name}_probs")[:, place] for name in ("kept", "removed"))
    rows = []
    for row in np.flatnonzero(~np.isnan(kept).any(1)):
        number = int(cell.predicted[row])
        name = cell.class_names[number] if cell.class_names else str(number)
        rows.append(
            {
                "instance_id": cell.instance_ids[row],
                "scores": values[row].tolist(),
                "chosen": None if chosen[row] is None else chosen[row].tolist(),
                "classification": name,
                "classification_scores": {name: float(whole[row])},
                "thresholded_scores": [
                    {
                        "threshold": float(at),
                        "comprehensiveness_classification_scores": {name: float(without)},
                        "sufficiency_classification_scores": {name: float(alone)},
                    }
                    for at, without, alone in zip(shares, removed[row], kept[row], strict=True)
                ],
            }
        )
    return rows


def instance_statistics(cell: Cell) -> dict[str, np.ndarray]:
    """What the tests by erasure say of attention, [N] float64, NaN where undefined: "comprehensiveness of attention" ..."""
    found = scores(cell, ["attention"])
    return {f"{test} of attention": of["attention"] for test, of in found.items() if not TESTS[test].evidence}


def tables(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Of the cells that were tested; none without such a cell.

    "saliency_tests", one row per cell x test x measure. n: texts where the test is defined for the measure; n_undefined: the
    others. mean, ci_low, ci_high: over these texts, with a 95 % bootstrap interval. rank: 1 is best. to_attention,
    to_random: mean paired difference to attention, or to random scores, over the texts where both are defined, positive
    where the measure is the better one whether large or small is good, with its interval; <name>_p_holm: p of
    `sign_flip_test`, corrected by Holm over the measures of that cell and test. among_best: 1 where the measure is not worse
    than the best one at p <= 0.05, so corrected; 0 where it is; NaN where it is undefined.

    "saliency_agreement", one row per cell and two measures. tau: mean Kendall tau-b of their scores; top_k_overlap: mean
    share of the fifth of tokens that one ranks first which the other ranks first, too, and what chance gives; n and
    n_undefined are of tau.
    """
    cells = [cell for cell in cells if holds(cell)]
    if not cells:
        return {}
    return {
        "saliency_tests": pd.concat([_tests(cell) for cell in cells], ignore_index=True),
        "saliency_agreement": pd.concat([_agreement(cell) for cell in cells], ignore_index=True),
    }


@_once
def _tests(cell: Cell) -> pd.DataFrame:
    rows = []
    for test, values in scores(cell).items():
        names, columns = list(values), np.stack(list(values.values()), axis=1)
        good = TESTS[test].better * columns
        defined = (~np.isnan(columns)).sum(0)
        means = np.array(
            [column[~np.isnan(column)].mean() if count else np.nan for column, count in zip(columns.T, defined, strict=True)]
        )
        oriented = TESTS[test].better * means
        described = {
            "n": defined,
            "n_undefined": len(columns) - defined,
            "mean": means,
            **dict(zip(("ci_low", "ci_high"), bootstrap_intervals(columns).T, strict=True)),
            "rank": pd.Series(-oriented).rank(method="min").to_numpy(),
            "among_best": _among_best(good, oriented),
        }
        for other in ("attention", "random"):
            described |= _against(good, names, other)
        rows += [
            {**cell.heading, "test": test, "measure": name, **{key: column[place] for key, column in described.items()}}
            for place, name in enumerate(names)
        ]
    return pd.DataFrame(rows, columns=list(TEST_COLUMNS))


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
    found = (_means(differences), *bootstrap_intervals(differences).T, holm(sign_flip_tests(differences)))
    return dict(zip(keys, found, strict=True))


def _means(columns: np.ndarray) -> np.ndarray:
    counts = (~np.isnan(columns)).sum(0)
    return np.divide(np.nansum(columns, axis=0), counts, out=np.full(columns.shape[1], np.nan), where=counts > 0)


@_once
def _agreement(cell: Cell) -> pd.DataFrame:
    names = ["attention", *(name for name in cell.measures if not name.endswith("_hidden"))]
    given = {name: cell.scores(name) for name in names}
    # above 0, so that no token is left out as if it had no weight; the order stays
    raised = {name: [row - row.min() + 1.0 if len(row) else row for row in rows] for name, rows in given.items()}
    pairs = list(combinations(names, 2))
    taus = np.stack([cell.tau(*pair) for pair in pairs], axis=1) if pairs else np.empty((len(cell), 0))
    overlaps = [top_k_overlap(raised[first], given[second]) for first, second in pairs]
    rows = []
    bounds = bootstrap_intervals(taus)
    shared = np.stack([found for found, _ in overlaps], axis=1) if pairs else taus
    shared_bounds = bootstrap_intervals(shared)
    for place, (first, second) in enumerate(pairs):
        defined = int((~np.isnan(taus[:, place])).sum())
        chance = overlaps[place][1]
        rows.append(
            {
                **cell.heading,
                "first": first,
                "second": second,
                "n": defined,
                "n_undefined": len(cell) - defined,
                **dict(zip(with_interval("tau"), (_means(taus)[place], *bounds[place]), strict=True)),
                "n_overlap_undefined": int(np.isnan(shared[:, place]).sum()),
                **dict(zip(with_interval("top_k_overlap"), (_means(shared)[place], *shared_bounds[place]), strict=True)),
                "top_k_overlap_chance": _means(chance[:, None])[0],
            }
        )
    return pd.DataFrame(rows, columns=list(AGREEMENT_COLUMNS))


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
    table = _tests(cell)
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
    found = advise(cell)
    if found.measure is None:
        return (
            f"Show none of these measures as an explanation of this model: in most of its {found.tests} tests none orders "
            "the tokens better than chance."
        )
    tests = f"{found.wins} of {found.tests} tests"
    floor = (
        "" if "random" in measures(cell) else " Whether any is better than chance is not known: measure random_scores too."
    )
    if found.measure == "attention":
        return f"Attention serves a developer of this model: it is among the best measures in {tests}.{floor}"
    return (
        f"To see which inputs mattered to this model, use {measure_label(found.measure)}: it is among the best measures in "
        f"{tests}, attention in {found.attention_wins}, and it is better than attention (p ≤ {ALPHA:g}, corrected) in "
        f"{found.attention_loses}.{floor}"
    )


def sentences(cell: Cell) -> list[str]:
    """What the numbers say."""
    return [advice_in_words(cell)]


def grids(tables: Mapping[str, pd.DataFrame]) -> list[Grid]:
    """What the page shows of its tables: measures down, tests across, and the agreement of measures as a matrix."""
    if "saliency_tests" not in tables:
        return []
    return [tests_grid(tables["saliency_tests"]), agreement_grid(tables["saliency_agreement"])]


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
            found = {row["test"]: row for row in of_measure.to_dict("records")}
            cells = [_tested(found.get(test)) for test in tests]
            texts = how_many(row["n"] for row in found.values())
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
        found = {(row["first"], row["second"]): row for row in part.to_dict("records")}
        for first in names:
            line = [
                format_number(found[first, second]["tau"])
                if (first, second) in found
                else format_number(found[second, first]["top_k_overlap"])
                if (second, first) in found
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


def figures(cell: Cell) -> "dict[str, Figure]":
    """The tests, a panel each, and the matrix of agreement."""
    return {"saliency_tests": tests_figure(cell), "saliency_agreement": agreement_figure(cell)}


@_own_style
def tests_figure(cell: Cell) -> "Figure":
    """Mean and 95 % interval of each measure, a panel per test, the best on top; attention and the floors in colour."""
    table = _tests(cell)
    tests = list(dict.fromkeys(table["test"]))
    count = table["measure"].nunique()
    across = min(2, len(tests))
    down = -(-len(tests) // across)
    figure = _figure("Which measure tells what the model used?", cell, 10.0, down * (0.7 + 0.2 * count))
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


@_own_style
def agreement_figure(cell: Cell) -> "Figure":
    """Mean tau-b of every two measures as a heat map."""
    table = _agreement(cell)
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    matrix = np.full((len(names), len(names)), np.nan)
    for row in table.to_dict("records"):
        places = names.index(row["first"]), names.index(row["second"])
        matrix[places] = matrix[places[::-1]] = row["tau"]
    size = 1.6 + 0.5 * len(names)
    figure = _figure("Do the measures rank tokens alike?", cell, max(6.0, size + 1), size)
    axes = figure.add_subplot()
    shown = axes.imshow(matrix, vmin=-1, vmax=1, cmap="PuOr_r")
    for (first, second), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(second, first, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    labels = [*map(measure_label, names)]
    axes.set_xticks(range(len(names)), labels, rotation=60, ha="right", fontsize=9)
    axes.set_yticks(range(len(names)), labels, fontsize=9)
    figure.colorbar(shown, ax=axes, shrink=0.7, label="mean Kendall's τ-b over texts")
    return figure


def describe_figure(cell: Cell, name: str) -> tuple[str, str]:
    """Alternative text and caption."""
    if name == "saliency_agreement":
        table = _agreement(cell).sort_values("tau", ascending=False, kind="stable")
        parts = [
            f"{measure_label(row['first'])} and {measure_label(row['second'])} {row['tau']:.2f}"
            for row in table.to_dict("records")
        ]
        alt = f"Heat map of the mean rank correlation of every two measures. Highest first: {'; '.join(parts[:5])}."
        return alt, "How far every two measures rank the tokens of a text alike: mean τ-b, 1 the same order, 0 no relation."
    table = _tests(cell)
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
