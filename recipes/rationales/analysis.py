"""What models that read a selection select, over seeds and texts, beside attention that is cut to the same budget.

The seeds of one kind of model read the same texts: every number is a mean over seeds and texts, with an interval over both.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.record import Identity
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import selection
from attnfaith.stats import LEVEL, holm

from ..pages import INTERVAL, analysis
from ..shared import (
    CORRECT,
    Models,
    answer,
    as_table,
    first,
    kinds,
    paired,
    pick,
    precision_of,
    rows_of,
    summary,
    values,
    verdict,
)


ATTENTION, OWN = "attention", "own"
KINDS = {
    "n_evidence": (1, "two words apart"),
    "redundancy": (1, "three words, each enough"),
    "needs_context": (False, "a pair of words"),
}
"""Knobs of the generator that make another kind of evidence, what they are where one word decides, and the name."""
FAMILY = ["dataset", "evidence"]
RANGES = {"spans_selected": (0, np.inf), "sufficiency": (-1, 1), "comprehensiveness": (-1, 1)}
"""Ranges of statistics; all others are shares, F1 and precision, in 0..1."""
SHOWN = (
    *("accuracy", "auprc_attention", "share_selected", "marked_selected", "unmarked_correct"),
    *("correct", "sufficiency", "comprehensiveness"),
)
"""Statistics that the page shows; the CSV files have all."""
MODEL = {"data": "{dataset}", "evidence": "{evidence}", "model": "{model}", "budget": "{budget}"}
PAGES = {
    "models": MODEL | {"number": "{statistic}", "seeds": "{n_seeds}", "mean [95 %]": INTERVAL},
    "budgets": MODEL
    | {"share": "{size}", "words by": "{scores}", "number": "{statistic}", "mean [95 %]": INTERVAL}
    | {"less attention [95 %]": "{difference} [{diff_low}, {diff_high}]", "verdict": "{verdict}"},
    "places": MODEL
    | {"of": "{of}", "from the places": "{places}", "from the length": "{lengths}"}
    | {"gain [95 %]": "{difference} [{diff_low}, {diff_high}]", "told": "{told} of {n_seeds}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "models", "budgets", "places", see the functions of these names, and each as the page shows it."""
    groups = kinds(cells)
    results = {"models": models, "budgets": budgets, "places": places}
    shown = {
        "models": lambda table: table[table["statistic"].isin(SHOWN)],
        "budgets": lambda table: table[table["difference"].notna() & table["statistic"].isin(SHOWN)],
    }
    return analysis(cells, PAGES, {name: lambda _, of=of: of(groups) for name, of in results.items()}, shown)


@as_table
def models(groups: Sequence[Models]) -> pd.DataFrame:
    """Each kind of model over its texts: accuracy; "auprc_<scores>", the average precision of attention and of each measure
    against marked tokens, where attention is what a selector gives tokens, if there is one; and of those that select every
    number of the section "selection". Columns: `shared.summary`.
    """
    for group in groups:
        numbers = {"accuracy": CORRECT}
        cell = first(group)
        if cell.has("rationale"):
            numbers |= {f"auprc_{name}": precision_of(name) for name in (ATTENTION, *cell.measures)}
        if selects(group):
            numbers |= {name: pick(selection.selection, name) for name in selection.selection(cell)}
        yield from rows_of(group, numbers, heading(group), bounds)


def budgets(groups: Sequence[Models]) -> pd.DataFrame:
    """The section "selection_budgets": the prediction from the tokens that a score ranks first, and from all others.

    size "own": as many tokens as the model selects itself. scores "attention": of a model that selects, what its selector
    gives tokens. difference, diff_low, diff_high, p_value: of a selector's scores less the attention of the model that reads
    all, cut to the same share; same texts and seeds. p_holm: by Holm for all of these of one kind of texts. verdict:
    "higher" or "lower" where it is at most .05, else `shared.verdict`. A selector that aims at a share in training is
    compared at that share alone.
    """
    rows = []
    for group in groups:
        plain = next((other for other in groups if kind_of(other) == kind_of(group) and not selects(other)), {})
        for (size, scores), numbers in selection.budgets(first(group)).items():
            own = size == selection.OWN
            if not own and target(group) not in (None, size):
                continue
            pair = paired(plain, group) if selects(group) and scores == ATTENTION and not own else None
            labels = heading(group) | {"size": OWN if own else size, "scores": scores}
            key = (size, scores)
            of_size = {name: lambda cell, key=key, name=name: selection.budgets(cell)[key][name] for name in numbers}
            for row in rows_of(group, of_size, labels, bounds):
                row |= dict.fromkeys(("difference", "diff_low", "diff_high", "p_value", "diff_seeds"), np.nan)
                row["verdict"] = ""
                if pair is not None:
                    other, mine = pair.values(of_size[row["statistic"]])
                    gap = answer(mine - other)
                    row |= {"difference": gap["mean"], "diff_low": gap["ci_low"], "diff_high": gap["ci_high"]}
                    row |= {"p_value": gap["p_value"], "diff_seeds": len(mine)}
                rows.append(row)
    table = pd.DataFrame(rows)
    if not rows:
        return table
    table["p_holm"] = table.groupby(FAMILY)["p_value"].transform(holm)
    compared = table["diff_seeds"].notna()
    columns = (table.loc[compared, name] for name in ("difference", "p_holm", "diff_seeds"))
    table.loc[compared, "verdict"] = [verdict(*row, "higher", "lower") for row in zip(*columns, strict=True)]
    return table


def places(groups: Sequence[Models]) -> pd.DataFrame:
    """The section "leakage": whether the gold label, or the predicted class, can be told from which places are selected.

    places, lengths, majority: accuracy from the places selected, from the length alone and by the commonest class.
    difference: places less lengths, with diff_low and diff_high over seeds and texts. p_least, p_most: of the permutation
    tests of single seeds; told: in how many of n_seeds the p-value, by Holm for all models and seeds of a kind of texts, is
    at most .05. Over all kinds at once the least p-value that so many permutations can give would never pass.
    """
    rows, tests = [], []
    for group in filter(selects, groups):
        for label in (selection.LABEL, selection.PREDICTION):
            numbers = {
                name: values(group, lambda cell, label=label, name=name: getattr(selection.places(cell)[label], name))
                for name in ("places", "lengths", "majority")
            }
            p_values = [selection.places(cell)[label].p_value for cell in group.values()]
            gain = summary(numbers["places"] - numbers["lengths"], (-1, 1))
            row = heading(group) | {"of": label, "n_seeds": len(group), "n_texts": int((~np.isnan(numbers["places"])).sum())}
            row |= {name: summary(sides)["mean"] for name, sides in numbers.items()}
            row |= {"difference": gain["mean"], "diff_low": gain["ci_low"], "diff_high": gain["ci_high"]}
            tests += [row | {"row": len(rows), "p_value": p_value} for p_value in p_values]
            rows.append(row | {"p_least": np.fmin.reduce(p_values), "p_most": np.fmax.reduce(p_values)})
    return pd.DataFrame(rows).assign(told=tests_that_stand(pd.DataFrame(tests)) if tests else [])


def tests_that_stand(tests: pd.DataFrame) -> np.ndarray:
    """In how many of its tests each row is told, int64 per row, of tests with their `row` and p_value."""
    adjusted = tests.groupby([*FAMILY, "of"])["p_value"].transform(holm)
    return (adjusted <= LEVEL).groupby(tests["row"]).sum().to_numpy()


def bounds(name: str) -> tuple[float, float]:
    return RANGES.get(name, (0, 1))


# ---------- kinds of models


def heading(group: Models) -> dict[str, object]:
    """What names a kind of model: data set and kind of evidence, model, and the budget it was trained for or is held to."""
    dataset, evidence = kind_of(group)
    model = model_name(first(group).identity)
    return {"dataset": dataset, "evidence": evidence, "model": model, "budget": target(group) or ""}


def kind_of(group: Models) -> tuple[str, str]:
    """Data set and, of generated texts, kind of evidence."""
    cell = first(group)
    if cell.identity.dataset != "planted_evidence":
        return cell.identity.dataset, ""
    knobs = cell.settings["recipe"]["data"].get("arguments") or {}
    names = [name for knob, (usual, name) in KINDS.items() if knobs.get(knob, usual) != usual]
    return cell.identity.dataset, ", ".join(names) or "one word"


def model_name(identity: Identity) -> str:
    """Such as "bernoulli, moving average", "budget, temperature 0.1"; "attention" where nothing is selected."""
    if identity.selection_kind is None:
        return ATTENTION
    parts = [identity.selection_kind, identity.attention_label]
    parts += ["moving average"] if identity.selection_baseline == "moving_average" else []
    return ", ".join(filter(None, parts))


def selects(group: Models) -> bool:
    """Whether the model reads a selection."""
    return first(group).identity.selection_kind is not None


def target(group: Models) -> str | None:
    """The share that training aims at or is bound by, such as "10%"; None where it has none."""
    identity = first(group).identity
    share = identity.selection_target if identity.selection_budget is None else identity.selection_budget
    return None if share is None else f"{share:.0%}"
