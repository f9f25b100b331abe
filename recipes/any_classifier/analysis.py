"""Tables and figures of the studies of a fine-tuned encoder: every measure by every test, and what attention could be.

All intervals are over training seeds and texts (`shared.estimate`). What a study has depends on what its cells hold.
Shapes: S seeds, N texts.
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
from attnfaith.reporting.sections import changes, identifiability, saliency
from attnfaith.reporting.style import PALETTE, own_style, titled_figure
from attnfaith.stats import holm

from ..shared import (
    KIND,
    estimate,
    for_stand_ins,
    interval_figure,
    join_published,
    kinds,
    read_published,
    summary,
    values,
    verdict,
)


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
Numbers = Mapping[str, np.ndarray]


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


def stacked_by_name(cells: Sequence[Cell], numbers: Sequence[Numbers]) -> dict[str, np.ndarray]:
    """The numbers [N] of several cells by name, {name: [N]} each, as {name: [S, N]} over the texts that one of them read."""
    named = {cell.identity.seed: (cell, of) for cell, of in zip(cells, numbers, strict=True)}
    models = {seed: cell for seed, (cell, _) in named.items()}
    by_cell = {id(cell): of for cell, of in named.values()}
    return {name: values(models, lambda cell, name=name: by_cell[id(cell)].get(name)) for name in numbers[0]}


def quantities(cells: Sequence[Cell]) -> pd.DataFrame:
    """Every number per text by which cells are compared (`sections.numbers`): one row per kind of model x quantity."""
    rows = []
    for heading, group in groups(cells):
        by_name = stacked_by_name(group, [sections.numbers(cell) for cell in group])
        rows += [heading | {"quantity": name} | counted(numbers) for name, numbers in by_name.items()]
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
        made[f"aopc_{end}"] = {name: aopc(falls(whole, numbers)) for name, numbers in named.items()}
        if cell.probs.shape[1] == 2:
            made[f"accuracy_{end}"] = {name: _accuracy(cell, numbers) for name, numbers in named.items()}
    if changes.SIGN_VIOLATIONS.applies(cell):
        made["sign_violated"] = {name: of["violated"] for name, of in changes.sign_violations(cell).items()}
    return {test: made[test] for test in TESTS if test in made}


def _accuracy(cell: Cell, probs: np.ndarray) -> np.ndarray:
    """Share [N] of parts of a text at which a model of two classes is right; probs [N, parts] are of the class that it
    predicts for the whole text. The lower class wins a tie.
    """
    predicted = cell.predicted[:, None]
    decided = np.where(probs == 0.5, 0, np.where(probs > 0.5, predicted, 1 - predicted))
    right = (decided == cell.labels[:, None]).mean(axis=1)
    return np.where(np.isnan(probs).any(axis=1) | np.isnan(cell.labels), np.nan, right)


def counted(numbers: np.ndarray) -> dict[str, float]:
    """`shared.summary`; n: texts summed over seeds."""
    return {"n" if name == "n_texts" else name: value for name, value in summary(numbers).items()}


def against(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    """difference: first - second, paired by seed and text, with its interval and p_value over seeds and texts."""
    return dict(zip(("difference", "ci_low", "ci_high", "p_value"), estimate(first - second), strict=True))


def rankings(cells: Sequence[Cell]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return "measures_ranking" and "measures_pairs" of the cells that hold tests by erasure.

    "measures_ranking", one row per kind of model x test x measure: its mean, and its difference to the one rival that is
    named beforehand (`saliency.RIVALS`), with interval, p_value and p_holm, corrected for the measures of the test. verdict:
    "better" or "worse" than the rival, else "cannot be told", which is not "equal". There are no ranks: of many measures the
    first one by chance looks better than it is.

    "measures_pairs", of each signed measure and its size ("absolute"), and of each measure with attention and with random
    scores; p_holm: corrected for the n_pairs pairs of the test. verdict: the better measure. A text on which a measure of
    the test is undefined is in no pair: n_left_out, summed over seeds.
    """
    ranking, pairs = [], []
    for heading, group in groups([cell for cell in cells if saliency.SECTION.applies(cell)]):
        by_cell = [per_text(cell) for cell in group]
        for test in by_cell[0]:
            by_name = stacked_by_name(group, [of.get(test, {}) for of in by_cell])
            ranking += [heading | {"test": test} | row for row in _beside_rival(by_name, TESTS[test][1])]
            pairs += [heading | {"test": test} | row for row in _pairs(by_name, TESTS[test][1])]
    return pd.DataFrame(ranking), pd.DataFrame(pairs)


def _beside_rival(by_name: Numbers, better: int) -> list[dict]:
    rival = saliency.rival(by_name)
    rows = [
        {"measure": name, **counted(numbers), "rival": rival or "", **_of_rival(numbers, by_name.get(rival), name == rival)}
        for name, numbers in by_name.items()
    ]
    for row, p_holm in zip(rows, holm([row["rival_p_value"] for row in rows]), strict=True):
        told = verdict(better * row["to_rival"], p_holm, row["n_seeds"], "better", "worse")
        row |= {"rival_p_holm": p_holm, "verdict": told}
    return rows


def _of_rival(numbers: np.ndarray, other: np.ndarray | None, same: bool) -> dict[str, float]:
    difference = (
        against(numbers, other) if other is not None and not same else dict.fromkeys(("value", "low", "high", "p"), np.nan)
    )
    return dict(zip(("to_rival", "to_rival_ci_low", "to_rival_ci_high", "rival_p_value"), difference.values(), strict=True))


def _pairs(by_name: Numbers, better: int) -> list[dict]:
    undefined = np.isnan(list(by_name.values())).any(axis=0)
    read = ~np.isnan(list(by_name.values())).all(axis=0)
    shared = {name: np.where(undefined, np.nan, numbers) for name, numbers in by_name.items()}
    chosen = [
        (first, second)
        for first, second in combinations(shared, 2)
        if {first, second} & set(COMPARED_WITH)
        or first.removeprefix(records.ABSOLUTE) == second.removeprefix(records.ABSOLUTE)
    ]
    count = {"n": int((~undefined).sum()), "n_left_out": int((read & undefined).sum()), "n_pairs": len(chosen)}
    rows = [
        {"first": first, "second": second, **count, **against(shared[first], shared[second])} for first, second in chosen
    ]
    for row, p_holm in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
        told = verdict(better * row["difference"], p_holm, len(next(iter(by_name.values()))), row["first"], row["second"])
        row |= {"p_holm": p_holm, "verdict": told}
    return rows


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
        layers = [{layer: of["tvd"] for layer, of in identifiability.by_layer(cell).items()} for cell in group]
        if layers[0]:
            estimates = [estimate(numbers) for numbers in stacked_by_name(group, layers).values()]
            places = np.arange(len(estimates))
            below.plot(places, [each.value for each in estimates], marker="o", **look)
            below.vlines(places, [each.ci_low for each in estimates], [each.ci_high for each in estimates], **look)
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
