"""Jain & Wallace's numbers beside ours: agreement of attention with importance, permuted and adversarial attention.

Two files hold published numbers: the study's `published` (tau by pair, class and statistic) and, beside it, one of the same
name with the ending _performance (accuracy and ROC-AUC of each model).

Source: Jain & Wallace (2019), Attention is not Explanation.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import adversary, changes

from ..pages import INTERVAL, analysis, read_published
from ..shared import CORRECT, Number, answer, as_table, heading, kinds, row_of, twins, values


FACTORS = ["dataset", "encoder", "alignment"]
TAUS = (*FACTORS, "pair", "class", "statistic", "value", "source")
PAIRS = {
    "attention–gradient": ("attention", "gradient"),
    "attention–leave_one_out": ("attention", "leave_one_out"),
    "gradient–leave_one_out": ("gradient", "leave_one_out"),
}
EPSILON = 0.01  # the paper's
MODEL = {"data": "{dataset}", "encoder": "{encoder}", "vectors": "{vectors}", "seeds": "{n_seeds}"}
PAGES = {
    "side_by_side": MODEL
    | {"accuracy": "{accuracy} ± {accuracy_std} / {published_accuracy}"}
    | {f"τ {pair}": f"{{tau {pair}}} ± {{tau {pair}_std}} / {{published tau {pair}}}" for pair in PAIRS},
    "differences": {"vectors": "{vectors}", "τ": "{pair}", "models": "{n_models}", "measured − published": "{mean}"}
    | {"mean size": "{mean_size}", "Pearson's r": "{pearson}"},
    "reach": MODEL
    | {"permuted: TVD": "{tvd}", "permuted: decisions changed": "{flips}"}
    | {"JSD, search": "{search} ± {search_std}", "JSD, exact": "{exact} ± {exact_std}", "one token": "{one_token}"},
    "questions": {"question": "{question}", "data": "{dataset}", "vectors": "{vectors}", "seeds": "{n_seeds}"}
    | {"difference [95 %]": INTERVAL, "verdict": "{verdict}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "side_by_side", "differences", "reach" and "questions", see the functions of these names, and the page's of each."""
    taus = read_published(settings.published, TAUS, ["value"])
    scores = read_published(settings.published.with_name(f"{settings.published.stem}_performance.csv"), [*FACTORS, "source"])
    results = {
        "side_by_side": lambda cells: side_by_side(cells, scores, taus),
        "differences": lambda cells: differences(side_by_side(cells, scores, taus)),
        "reach": reach,
        "questions": questions,
    }
    return analysis(cells, PAGES, results)


def tau(pair: str) -> Number:
    """Kendall's tau-b of each text; None of a cell without a measure of the pair."""
    names = PAIRS[pair]
    return lambda cell: cell.tau(*names) if {*names} <= {"attention", *cell.measures} else None


def side_by_side(cells: Sequence[Cell], scores: pd.DataFrame, taus: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of model: accuracy and mean tau of each pair over seeds and texts, with the interval and the
    standard deviation over seeds (_std), and what is published (NaN where nothing is).
    """
    numbers = {"accuracy": CORRECT, **{f"tau {pair}": tau(pair) for pair in PAIRS}}
    rows = [row_of(models, numbers, lambda name: (0, 1) if name == "accuracy" else (-1, 1)) for models in kinds(cells)]
    table = pd.DataFrame(rows).merge(scores.drop(columns="source"), how="left", on=FACTORS)
    overall = taus[(taus["class"] == "overall") & (taus["statistic"] == "tau_mean")]
    for pair in PAIRS:
        theirs = overall.loc[overall["pair"] == pair, [*FACTORS, "value"]]
        table = table.merge(theirs.rename(columns={"value": f"published tau {pair}"}), how="left", on=FACTORS)
    return table.sort_values([*FACTORS, "vectors"], ignore_index=True)


@as_table
def differences(table: pd.DataFrame) -> pd.DataFrame:
    """How far measured tau lies from published tau, over the n_models kinds of model that have both, for each kind of word
    vectors: the mean signed difference, the mean of its size, and Pearson's correlation (NaN below five models).
    """
    for vectors, part in table.groupby(table["vectors"].str.partition("(")[0]):
        for pair in PAIRS:
            both = part[[f"tau {pair}", f"published tau {pair}"]].dropna().to_numpy()
            gaps = both[:, 0] - both[:, 1]
            row = {"vectors": vectors, "pair": pair, "n_models": len(both), "mean": gaps.mean() if len(both) else np.nan}
            row |= {"mean_size": np.abs(gaps).mean() if len(both) else np.nan}
            yield row | {"pearson": np.corrcoef(both.T)[0, 1] if len(both) > 4 else np.nan}


def reach(cells: Sequence[Cell]) -> pd.DataFrame:
    """How far attention can go while the prediction stays, of the cells with adversaries, means over seeds and texts.

    tvd, flips: the median change of the prediction over permutations, and the share of them that change the decision.
    search, exact: the epsilon-max JSD (nats) at EPSILON. one_token: share of texts in which one token can have all
    the weight.
    """
    numbers = {"tvd": permuted(0), "flips": permuted(1), "search": furthest("search"), "exact": furthest("exact")}
    numbers["one_token"] = furthest("exact", lambda way: way.more["one_token"])
    return pd.DataFrame([row_of(models, numbers) for models in kinds([cell for cell in cells if adversary.ways(cell)])])


def questions(cells: Sequence[Cell]) -> pd.DataFrame:
    """The paper's claims as differences of numbers per text, a row for each kind of model or pair of kinds, with the 95 %
    interval over seeds and texts and a verdict (`shared.verdict`).
    """
    rows = []
    for models in kinds(cells):
        own, both = (values(models, tau(pair)) for pair in ("attention–gradient", "gradient–leave_one_out"))
        exact, search = (values(models, furthest(method)) for method in ("exact", "search"))
        gaps = {"gradient and leave-one-out agree better with each other": both - own}
        gaps["the exact attention lies beyond the search's"] = exact - search
        row = heading(models)
        rows += [row | {"question": f"{name} ({row['encoder']})"} | answer(numbers) for name, numbers in gaps.items()]
    for pair in twins(cells, lambda identity: replace(identity, encoder="bilstm")):
        with_encoder, without = pair.values(tau("attention–gradient"))
        question = f"attention agrees better with the gradient under {pair.heading['encoder']} than under bilstm"
        rows.append(pair.heading | {"question": question} | answer(without - with_encoder))
    table = pd.DataFrame(rows)
    return table[table["mean"].notna()].sort_values(["question", "dataset"], kind="stable", ignore_index=True)


def permuted(place: int) -> Number:
    """The median TVD of permuted attention (0), or the share of permutations that change the decision (1)."""
    name = "permuted_probs"
    return lambda cell: changes.changes(cell, name)[place] if name in cell.table.column_names else None


def furthest(method: str, number: Callable[[adversary.Way], np.ndarray] = lambda way: way.jsd) -> Number:
    """The epsilon-max JSD in nats, by "search" or "exact", at EPSILON, or another number of that way."""

    def of_cell(cell: Cell) -> np.ndarray | None:
        ways = [way for way in adversary.ways(cell) if (way.method, way.epsilon) == (method, EPSILON)]
        return number(ways[0]) if ways else None

    return of_cell
