"""Every measure by every test that takes tokens away, over seeds and texts: which order of measures is shown, and which not.

Shapes: X measures, S seeds, N texts, P pairs of measures.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.erasure_curves import aopc, comprehensiveness, sufficiency
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.compare import FEWEST_DRAWS, LEVEL, UNTOLD
from attnfaith.reporting.explanation_tests import TESTS, Criterion, column, measures, scores, stacked
from attnfaith.reporting.sections import saliency, sign_violations
from attnfaith.stats import Panel, drawn_p_values, holm, percentile_interval


KIND = tuple(name for name in CELL if name != "seed")
CRITERIA = {
    "aopc_removed": Criterion("AOPC, first tokens taken away", 1),
    "accuracy_removed": Criterion("accuracy, first tokens taken away", -1),
    "aopc_kept": Criterion("AOPC, only first tokens left", -1),
    "accuracy_kept": Criterion("accuracy, only first tokens left", 1),
    **{name: test for name, test in TESTS.items() if not test.evidence},
    "sign_violated": Criterion("sign violated", -1),
}
COMPARED_WITH = ("attention", "random")


def per_text(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """What each test of CRITERIA says of each measure, {test: {measure: [N]}}, NaN where undefined.

    aopc_removed, aopc_kept: fall of the probability of the predicted class when the share ranked first is taken away, and
    when nothing else is left; mean over all shares measured. accuracy_removed, accuracy_kept: share of these shares at which
    the model is right; a record knows it for two classes alone. The rest: `reporting.explanation_tests` and
    `reporting.sections.sign_violations`.
    """
    made = {name: values for name, values in scores(cell).items() if name in CRITERIA}
    whole = column(cell, "rationale_erasure_whole_prob")
    for end, falls in (("removed", comprehensiveness), ("kept", sufficiency)):
        probs = stacked(cell, f"rationale_erasure_{end}_probs")
        named = dict(zip(measures(cell), np.moveaxis(probs, 1, 0), strict=True))
        made[f"aopc_{end}"] = {name: aopc(falls(whole, values)) for name, values in named.items()}
        if cell.probs.shape[1] == 2:
            made[f"accuracy_{end}"] = {name: _accuracy(cell, values) for name, values in named.items()}
    if sign_violations.SECTION.applies(cell):
        made["sign_violated"] = {name: values["violated"] for name, values in sign_violations.violations(cell).items()}
    return {test: made[test] for test in CRITERIA if test in made}


def _accuracy(cell: Cell, probs: np.ndarray) -> np.ndarray:
    """Share [N] of parts of a text at which a model of two classes is right; probs [N, S'] are of the class that it predicts
    for the whole text. The lower class wins a tie.
    """
    predicted = cell.predicted[:, None]
    decided = np.where(probs == 0.5, 0, np.where(probs > 0.5, predicted, 1 - predicted))
    right = (decided == cell.labels[:, None]).mean(axis=1)
    return np.where(np.isnan(probs).any(axis=1) | np.isnan(cell.labels), np.nan, right)


def kinds(cells: Sequence[Cell]) -> dict[tuple, list[Cell]]:
    """The cells that differ in nothing but their seed."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.heading[name] for name in KIND), []).append(cell)
    return groups


def panel(cells: Sequence[Cell], numbers: Sequence[Mapping[str, np.ndarray]], n_draws: int = FEWEST_DRAWS) -> Panel:
    """The numbers [N] of several cells by name, {name: [N]} each, as one panel: a level for each name of the first cell."""
    ids = sorted(set().union(*(cell.instance_ids for cell in cells)))
    place = {name: number for number, name in enumerate(ids)}
    values = np.full((len(numbers[0]), len(cells), len(ids)), np.nan)
    held = np.zeros(values.shape, bool)
    for seed, (cell, named) in enumerate(zip(cells, numbers, strict=True)):
        texts = [place[name] for name in cell.instance_ids]
        for level, name in enumerate(numbers[0]):
            if name in named:
                values[level, seed, texts], held[level, seed, texts] = named[name], True
    return Panel(values, held, n_draws)


def tables(cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """ "measures_ranking" and "measures_pairs" of the cells that hold tests by erasure.

    "measures_ranking", one row per kind of model x test x measure. n_seeds. n: texts with a value, summed over seeds;
    n_undefined. mean, ci_low, ci_high: mean over seeds of means over texts, its interval over seeds and texts (`Panel`; of
    one seed over texts). rank: 1 is best. rank_low, rank_high: the ranks that it may have by what is shown: one more than
    the number of measures shown to be better, and the number of all measures less those shown to be worse.

    "measures_pairs", of each signed measure and its size ("absolute"), and of each measure with attention and with random
    scores. difference: first - second, paired by seed and text, with its interval; p_value of `drawn_p_values`; p_holm:
    corrected for the n_pairs pairs of measures of the test, of which these are some. verdict: the better measure where
    p_holm <= .05 and the interval is without 0, else "cannot be told". A text on which a measure of the test is undefined is
    in no pair: n_left_out, summed over seeds.
    """
    ranking, pairs = [], []
    for kind, group in kinds([cell for cell in cells if saliency.SECTION.applies(cell)]).items():
        heading = dict(zip(KIND, kind, strict=True))
        by_cell = [per_text(cell) for cell in group]
        for test in by_cell[0]:
            named = [of_cell.get(test, {}) for of_cell in by_cell]
            ranked, paired = _of_test(group, named, CRITERIA[test].better)
            ranking += [heading | {"test": test} | row for row in ranked]
            pairs += [heading | {"test": test} | row for row in paired]
    return {"measures_ranking": pd.DataFrame(ranking), "measures_pairs": pd.DataFrame(pairs)}


def _of_test(cells: Sequence[Cell], numbers: Sequence[Mapping], better: int) -> tuple[list[dict], list[dict]]:
    names = list(numbers[0])
    of_pairs = list(combinations(range(len(names)), 2))
    whole = panel(cells, numbers, max(FEWEST_DRAWS, round(4 * len(of_pairs) / LEVEL)))
    low, high = whole.intervals()
    shared = Panel(np.where(np.isnan(whole.values).any(axis=0), np.nan, whole.values), whole.held, whole.n_draws)
    made = [_difference(shared, *pair) for pair in of_pairs]
    p_holm = holm([row["p_value"] for row in made])
    ahead = np.zeros((len(names), len(names)), bool)  # [better, worse], as shown
    for (first, second), row, p_value in zip(of_pairs, made, p_holm, strict=True):
        shown = p_value <= LEVEL and (row["ci_low"] > 0 or row["ci_high"] < 0)
        winner, loser = (first, second) if better * row["difference"] > 0 else (second, first)
        ahead[winner, loser] = shown
        row |= {"p_holm": p_value, "verdict": names[winner] if shown else UNTOLD}
    ranks = pd.Series(-better * whole.means).rank(method="min")
    ranked = [
        {
            "measure": name,
            "n_seeds": int(whole.n_seeds[place]),
            "n": int(whole.n[place]),
            "n_undefined": int(whole.n_undefined[place]),
            "mean": whole.means[place],
            "ci_low": low[place],
            "ci_high": high[place],
            "rank": ranks[place],
            "rank_low": 1 + int(ahead[:, place].sum()),
            "rank_high": len(names) - int(ahead[place].sum()),
        }
        for place, name in enumerate(names)
    ]
    left_out = int(whole.held[0].sum() - shared.n[0])
    count = {"n": int(shared.n[0]), "n_left_out": left_out, "n_pairs": len(of_pairs)}
    paired = [
        {"first": names[first], "second": names[second], **count, **row}
        for (first, second), row in zip(of_pairs, made, strict=True)
        if {names[first], names[second]} & set(COMPARED_WITH)
        or names[second] == records.ABSOLUTE + names[first]
        or names[first] == records.ABSOLUTE + names[second]
    ]
    return ranked, paired


def _difference(shared: Panel, first: int, second: int) -> dict[str, float]:
    """first - second of two levels that are defined on the same texts: all draws are of one set of seeds and texts."""
    draws = shared.draws[first] - shared.draws[second]
    low, high = percentile_interval(draws, defined=0.5)
    enough = shared.n[first] > 1
    return {
        "difference": shared.means[first] - shared.means[second],
        "ci_low": float(low) if enough else np.nan,
        "ci_high": float(high) if enough else np.nan,
        "p_value": float(drawn_p_values(draws)) if enough else np.nan,
    }
