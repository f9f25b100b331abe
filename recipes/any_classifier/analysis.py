"""Tables and figures of the studies of a fine-tuned encoder: every measure by every test, and what attention could be.

All intervals are over training seeds and texts (`attnfaith.stats.Panel`). What a study has depends on what its cells hold.
Shapes: X levels, such as measures; S seeds, N texts.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.erasure_curves import aopc, comprehensiveness, sufficiency
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import column, measures, stacked
from attnfaith.reporting.sections import identifiability, saliency, summaries
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.stats import LEVEL, Panel, drawn_p_values, holm, percentile_interval

from ..shared import KIND, UNTOLD, for_stand_ins, interval_figure, join_published, kinds, read_published


if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = ("dataset", "model", "measure", "published_measure", "test", "value", "definition", "source")
TESTS = {
    "aopc_removed": ("AOPC, first tokens taken away", 1),
    "aopc_kept": ("AOPC, only first tokens left", -1),
    "accuracy_removed": ("accuracy, first tokens taken away", -1),
    "accuracy_kept": ("accuracy, only first tokens left", 1),
    "sign_violated": ("sign violated", -1),
}
"""Test -> its label, and 1 where large is good, -1 where small is."""
COMPARED_WITH = ("attention", "random")
FEWEST_DRAWS = 1000


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """Return "quantities", "measures_ranking", "measures_pairs" and "measures_published".

    Raises StudyError for published numbers that are no such table, or stand-ins without any.
    """
    published = None
    if settings.published:
        published = for_stand_ins(read_published(settings.published, PUBLISHED, ("value",)), settings.stand_ins)
    if not cells:
        return Analysis()
    ranked, paired = rankings(cells)
    made = {"quantities": quantities(cells), "measures_ranking": ranked, "measures_pairs": paired}
    if published is not None and len(ranked):
        made["measures_published"] = beside_published(published, ranked)
    reach = [cell for cell in cells if identifiability.SECTION.applies(cell)]
    figures = {} if not len(ranked) else measures_figures(ranked, made.get("measures_published"))
    return Analysis(made, figures=figures | ({"reach": reach_figure(reach)} if reach else {}))


def groups(cells: Sequence[Cell]) -> list[tuple[dict[str, object], list[Cell]]]:
    """The cells that differ in nothing but their seed, and the labels of their kind."""
    models = [list(group.values()) for group in kinds(cells)]
    return [({name: group[0].heading[name] for name in KIND}, group) for group in models]


def panel(cells: Sequence[Cell], numbers: Sequence[Mapping[str, np.ndarray]], n_draws: int = FEWEST_DRAWS) -> Panel:
    """The numbers [N] of several cells by name, {name: [N]} each, as one panel: a level for each name of the first cell."""
    ids = sorted(set().union(*(cell.instance_ids for cell in cells)))
    values = np.full((len(numbers[0]), len(cells), len(ids)), np.nan)
    held = np.zeros(values.shape, bool)
    for seed, (cell, named) in enumerate(zip(cells, numbers, strict=True)):
        texts = np.searchsorted(ids, cell.instance_ids)
        for level, name in enumerate(numbers[0]):
            if name in named:
                values[level, seed, texts], held[level, seed, texts] = named[name], True
    return Panel(values, held, n_draws)


def summary(made: Panel, level: int) -> dict[str, float]:
    """n_seeds; n, n_undefined: texts summed over seeds; mean, ci_low, ci_high: mean over seeds of means over texts."""
    low, high = made.intervals()
    counts = {"n_seeds": int(made.n_seeds[level]), "n": int(made.n[level]), "n_undefined": int(made.n_undefined[level])}
    return counts | {"mean": made.means[level], "ci_low": low[level], "ci_high": high[level]}


def quantities(cells: Sequence[Cell]) -> pd.DataFrame:
    """Every number per text by which cells are compared (`sections.numbers`): one row per kind of model x quantity."""
    rows = []
    for heading, group in groups(cells):
        numbers = [sections.numbers(cell) for cell in group]
        made = panel(group, numbers)
        rows += [heading | {"quantity": name} | summary(made, level) for level, name in enumerate(numbers[0])]
    return pd.DataFrame(rows)


def beside_published(published: pd.DataFrame, ranked: pd.DataFrame) -> pd.DataFrame:
    """Each published number with ours of the measure that is nearest, of another model and other texts.

    definition: "the same", or how theirs differs. measured, ci_low, ci_high: of "measures_ranking"; NaN where nothing of the
    kind was measured. difference: measured - published.
    """
    measured = ranked.rename(columns={"mean": "measured"})
    names = ["dataset", "measure", "test", "projection", "n_seeds", "n", "measured", "ci_low", "ci_high"]
    theirs = published[published["dataset"].isin(measured["dataset"].unique())]
    return join_published(theirs.fillna({"measure": ""}), measured[names], ["dataset", "measure", "test"])


# ---------- every measure by every test


def per_text(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """What each of TESTS says of each measure, {test: {measure: [N]}}, NaN where undefined.

    aopc_removed, aopc_kept: fall of the probability of the predicted class when the share ranked first is taken away, and
    when nothing else is left; mean over all shares measured. accuracy_removed, accuracy_kept: share of these shares at which
    the model is right; a record knows it for two classes alone. sign_violated: `sections.sign_violations`.
    """
    made, whole = {}, column(cell, "rationale_erasure_whole_prob")
    for end, falls in (("removed", comprehensiveness), ("kept", sufficiency)):
        probs = stacked(cell, f"rationale_erasure_{end}_probs")
        named = dict(zip(measures(cell), np.moveaxis(probs, 1, 0), strict=True))
        made[f"aopc_{end}"] = {name: aopc(falls(whole, values)) for name, values in named.items()}
        if cell.probs.shape[1] == 2:
            made[f"accuracy_{end}"] = {name: _accuracy(cell, values) for name, values in named.items()}
    if summaries.SIGN_VIOLATIONS.applies(cell):
        made["sign_violated"] = {name: values["violated"] for name, values in summaries.sign_violations(cell).items()}
    return {test: made[test] for test in TESTS if test in made}


def _accuracy(cell: Cell, probs: np.ndarray) -> np.ndarray:
    """Share [N] of parts of a text at which a model of two classes is right; probs [N, parts] are of the class that it
    predicts for the whole text. The lower class wins a tie.
    """
    predicted = cell.predicted[:, None]
    decided = np.where(probs == 0.5, 0, np.where(probs > 0.5, predicted, 1 - predicted))
    right = (decided == cell.labels[:, None]).mean(axis=1)
    return np.where(np.isnan(probs).any(axis=1) | np.isnan(cell.labels), np.nan, right)


def rankings(cells: Sequence[Cell]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return "measures_ranking" and "measures_pairs" of the cells that hold tests by erasure.

    "measures_ranking", one row per kind of model x test x measure: `summary`, and rank: 1 is best. rank_low, rank_high: the
    ranks that it may have by what is shown: one more than the number of measures shown to be better, and the number of all
    measures less those shown to be worse.

    "measures_pairs", of each signed measure and its size ("absolute"), and of each measure with attention and with random
    scores. difference: first - second, paired by seed and text, with its interval; p_value of `drawn_p_values`; p_holm:
    corrected for the n_pairs pairs of measures of the test, of which these are some. verdict: the better measure where
    p_holm <= .05 and the interval is without 0, else "cannot be told". A text on which a measure of the test is undefined is
    in no pair: n_left_out, summed over seeds.
    """
    ranking, pairs = [], []
    for heading, group in groups([cell for cell in cells if saliency.SECTION.applies(cell)]):
        by_cell = [per_text(cell) for cell in group]
        for test in by_cell[0]:
            ranked, paired = _of_test(group, [values.get(test, {}) for values in by_cell], TESTS[test][1])
            ranking += [heading | {"test": test} | row for row in ranked]
            pairs += [heading | {"test": test} | row for row in paired]
    return pd.DataFrame(ranking), pd.DataFrame(pairs)


def _of_test(cells: Sequence[Cell], numbers: Sequence[Mapping], better: int) -> tuple[list[dict], list[dict]]:
    names = list(numbers[0])
    of_pairs = list(combinations(range(len(names)), 2))
    whole = panel(cells, numbers, max(FEWEST_DRAWS, round(4 * len(of_pairs) / LEVEL)))
    shared = Panel(np.where(np.isnan(whole.values).any(axis=0), np.nan, whole.values), whole.held, whole.n_draws)
    made = [_difference(shared, *pair) for pair in of_pairs]
    ahead = np.zeros((len(names), len(names)), bool)  # [better, worse], as shown
    for (first, second), row, p_holm in zip(of_pairs, made, holm([row["p_value"] for row in made]), strict=True):
        winner, loser = (first, second) if better * row["difference"] > 0 else (second, first)
        ahead[winner, loser] = p_holm <= LEVEL and (row["ci_low"] > 0 or row["ci_high"] < 0)
        row |= {"p_holm": p_holm, "verdict": names[winner] if ahead[winner, loser] else UNTOLD}
    ranks = pd.Series(-better * whole.means).rank(method="min")
    ranked = []
    for place, name in enumerate(names):
        ends = {"rank_low": 1 + int(ahead[:, place].sum()), "rank_high": len(names) - int(ahead[place].sum())}
        ranked.append({"measure": name, **summary(whole, place), "rank": ranks[place], **ends})
    left_out = int(whole.held[0].sum() - shared.n[0])
    count = {"n": int(shared.n[0]), "n_left_out": left_out, "n_pairs": len(of_pairs)}
    paired = [
        {"first": names[first], "second": names[second], **count, **row}
        for (first, second), row in zip(of_pairs, made, strict=True)
        if {names[first], names[second]} & set(COMPARED_WITH)
        or names[first].removeprefix(records.ABSOLUTE) == names[second].removeprefix(records.ABSOLUTE)
    ]
    return ranked, paired


def _difference(shared: Panel, first: int, second: int) -> dict[str, float]:
    """first - second of two levels that are defined on the same texts: all draws are of one set of seeds and texts."""
    draws = shared.draws[first] - shared.draws[second]
    low, high, p_value = [*map(float, percentile_interval(draws, defined=0.5)), float(drawn_p_values(draws))]
    if shared.n[first] < 2:
        low = high = p_value = np.nan
    return {"difference": shared.means[first] - shared.means[second], "ci_low": low, "ci_high": high, "p_value": p_value}


def measures_figures(ranked: pd.DataFrame, published: pd.DataFrame | None) -> "dict[str, Figure]":
    """A figure of each kind of model in "measures_ranking", named after its data set and numbered beyond the first.

    Each measure by the tests of AOPC and accuracy, a panel each, with its sign and by its size alone on one line; the best
    AOPC on top; beside them the published number of the same definition.
    """
    drawn: dict[str, Figure] = {}
    for _, rows in ranked.groupby(list(KIND), sort=False, dropna=False):
        row = rows.iloc[0]
        rows = rows[rows["test"] != "sign_violated"].assign(value=rows["mean"], stands=True)
        plain = rows["measure"].str.removeprefix(records.ABSOLUTE)
        rows = rows.assign(
            label=plain, series=np.where(rows["measure"] == plain, "with its sign, if any", "by its size alone")
        )
        if published is not None:
            theirs = published[(published["dataset"] == row["dataset"]) & (published["definition"] == "the same")]
            theirs = theirs[theirs["measure"].isin(plain)].assign(value=theirs["published"], ci_low=np.nan, ci_high=np.nan)
            rows = pd.concat([rows, theirs.assign(label=theirs["measure"], series="published", stands=False)])
        best = rows[rows["test"] == "aopc_removed"].groupby("label")["mean"].max().sort_values(ascending=False)
        rows = rows.sort_values("label", key=lambda labels, best=best: labels.map([*best.index].index), kind="stable")
        rows = rows.assign(label=rows["label"].map(measure_label))
        parts = [(f"{TESTS[test][0]} ({'large' if TESTS[test][1] > 0 else 'small'} is good)", rows[rows["test"] == test])
                 for test in TESTS if test in set(rows["test"])]  # fmt: skip
        subject = f"{row['dataset']} ({row['split']}) · {row['encoder']} + {row['projection']} · seeds: {row['n_seeds']}"
        count = int(ranked["n"].max() // max(row["n_seeds"], 1))
        several = sum(name.startswith(f"{row['dataset']}-measures") for name in drawn)
        name = f"{row['dataset']}-measures{f'-{several + 1}' if several else ''}"
        drawn[name] = interval_figure(parts, "Which tokens decide?", subject, count)
    return drawn


# ---------- what attention could be


@own_style
def reach_figure(cells: Sequence[Cell]) -> "Figure":
    """How far away another attention is that leaves the model's output as it is: a column for each data set, a colour for
    each projection. Above, the share of texts at each distance (TVD), all seeds together; in the middle, by length, the mean
    of each range of lengths of at least five texts; below, by layer, with 95 % intervals over seeds and texts.
    """
    models = groups(cells)
    datasets, projections = (list(dict.fromkeys(cell.heading[name] for cell in cells)) for name in ("dataset", "projection"))
    colours = dict(zip(projections, PALETTE, strict=False))
    distances = [
        np.concatenate([identifiability.per_text(cell)["identifiability_tvd"] for cell in group]) for _, group in models
    ]
    bins = np.linspace(0, max([0.1, *(np.nanmax(tvd) for tvd in distances if not np.isnan(tvd).all())]), 26)
    seeds = ", ".join(map(str, sorted({cell.heading["seed"] for cell in cells})))
    subject = f"{', '.join(datasets)} · {' and '.join(projections)} · seeds {seeds}"
    title, width = "How far attention is from being determined", 3.6 * max(2, len(datasets)) + 0.6
    figure = titled_figure(title, None, width, 7.6, subject=subject, count=sum(map(len, cells)))
    panels = figure.subplots(3, len(datasets), squeeze=False, sharey="row")
    for (heading, group), tvd in zip(models, distances, strict=True):
        above, middle, below = panels[:, datasets.index(heading["dataset"])]
        above.set_title(heading["dataset"])
        look = {"color": colours[heading["projection"]], "linewidth": 1.6}
        lengths = np.concatenate([cell.lengths for cell in group])[~np.isnan(tvd)]
        tvd = tvd[~np.isnan(tvd)]
        if len(tvd):
            above.hist(tvd, bins, weights=np.full(len(tvd), 1 / len(tvd)), histtype="step", **look)
        number = np.digitize(lengths, identifiability.LENGTHS)
        parts = [number == place for place in np.unique(number) if (number == place).sum() >= 5]
        middle.plot([np.median(lengths[part]) for part in parts], [tvd[part].mean() for part in parts], marker="o", **look)
        layers = [_by_layer(cell) for cell in group]
        if layers[0]:
            by_layer = panel(group, layers)
            places = np.arange(len(by_layer.means))
            below.plot(places, by_layer.means, marker="o", **look)
            below.vlines(places, *by_layer.intervals(), **look)
            below.set_xticks(places)
    names = (("TVD of a text", "share of texts"), ("tokens of the text", "mean TVD"), ("layer, from 0", "mean TVD of a row"))
    for axes, (below, beside) in zip(panels, names, strict=True):
        axes[0].set_ylabel(beside)
        for one in axes:
            one.set_xlabel(below)
            one.set_ylim(bottom=0)
    handles = [panels[0, 0].plot([], [], color=colour, linewidth=3, label=name)[0] for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=9)
    return figure


def _by_layer(cell: Cell) -> dict[str, np.ndarray]:
    """The mean TVD of the rows of each layer, [N], by the layer's number; {} for a model without attention maps."""
    if identifiability.LAYERS not in cell.table.column_names:
        return {}
    rows = records.rows(cell.table, identifiability.LAYERS)
    count = max(map(len, rows), default=0)
    return {str(layer): np.array([row[layer] if len(row) else np.nan for row in rows], float) for layer in range(count)}
