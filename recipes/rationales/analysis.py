"""What models that read a selection select, over seeds and texts, beside attention that is cut to the same budget.

The seeds of one kind of model read the same texts: every number is a mean over seeds and texts, with an interval over both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import leakage, performance, selection, selection_budgets
from attnfaith.reporting.spec import Case, per_cell
from attnfaith.stats import LEVEL, UNKNOWN, Estimate, holm, over_seeds_and_texts


ATTENTION, OWN = "attention", "own"
UNTOLD, ONE_SEED, UNDEFINED = "cannot be told", "one seed", "undefined"
KINDS = {"n_evidence": "two words apart", "redundancy": "three words, each enough", "needs_context": "a pair of words"}
USUAL = {"n_evidence": 1, "redundancy": 1, "needs_context": False}
"""Knobs of the generator that make another kind of evidence, and what they are where one word decides."""
GENERATED, ONE_WORD = "planted_evidence", "one word"
FAMILY = ["dataset", "evidence"]
SEEDS = Mapping[int, Cell]
"""The models that differ in their seed alone."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "models", "budgets", "places": see the functions of these names."""
    if not cells:
        return Analysis()
    groups = seeds_of(cells)
    return Analysis({"models": models(groups), "budgets": budgets(groups), "places": places(groups)})


def seeds_of(cells: Sequence[Cell]) -> list[SEEDS]:
    """The cells of each kind of model, {seed: cell}, in order of first appearance."""
    groups: dict[object, dict[int, Cell]] = {}
    for cell in cells:
        groups.setdefault(replace(cell.identity, seed=0), {})[cell.identity.seed] = cell
    return list(groups.values())


def models(groups: Sequence[SEEDS]) -> pd.DataFrame:
    """What each kind of model says of texts: accuracy; "auprc_<scores>", the average precision of attention and of each
    measure against marked tokens, where attention is what a selector gives tokens, if there is one; and of those that select
    every number of the section "selection".

    mean: over the n_texts texts that have the number, summed over seeds, and then over the n_seeds seeds with two or more of
    them; n_undefined: texts that have it not, all seeds. ci_low, ci_high: 95 % over seeds and texts, of one seed over texts.
    """
    rows = []
    for group in groups:
        numbers = {"accuracy": lambda cell: performance.per_text(cell)["correct"]}
        first = next(iter(group.values()))
        if "rationale" in first.table.column_names:
            numbers |= {f"auprc_{name}": precision_of(name) for name in (ATTENTION, *first.measures)}
        if selection.SECTION.applies(first):
            names = selection.per_text(first)
            numbers |= {name: lambda cell, name=name: selection.per_text(cell)[name] for name in names}
        rows += [heading(group) | {"statistic": name} | summary(values(group, of)) for name, of in numbers.items()]
    return pd.DataFrame(rows)


def budgets(groups: Sequence[SEEDS]) -> pd.DataFrame:
    """The section "selection_budgets": what tokens that a score ranks first say alone, and what all others do.

    size "own": as many tokens as the model selects itself. scores "attention": of a model that selects, what its selector
    gives tokens. difference, diff_low, diff_high, p_value: of a selector's scores less the attention of the model that reads
    all, cut to the same share; same texts and seeds. p_holm: by Holm for all of these of one kind of texts. verdict:
    "higher" or "lower" where it is at most .05, else "cannot be told"; one seed has none. A selector that aims at a share in
    training is compared at that share alone.
    """
    rows = []
    for group in groups:
        plain = next((other for other in groups if kind_of(other) == kind_of(group) and not selects(other)), None)
        for key in tabulated(group):
            size, scores = key
            compared = plain is not None and selects(group) and scores == ATTENTION and size != OWN
            for name in of_sizes(next(iter(group.values())))[key]:
                of = of_size(key, name)
                row = heading(group) | {"size": size, "scores": scores, "statistic": name} | summary(values(group, of))
                rows.append(row | (difference(group, plain, of) if compared else {}))
    table = pd.DataFrame(rows)
    if "p_value" in table:
        table["p_holm"] = table.groupby(FAMILY)["p_value"].transform(holm)
        table["verdict"] = [verdict(row) for row in table.to_dict("records")]
    return table


def places(groups: Sequence[SEEDS]) -> pd.DataFrame:
    """The section "leakage": whether the gold label, or the predicted class, is told by which places are selected.

    places, lengths, majority: accuracy from the places selected, from the length alone and by the commonest class.
    difference: places less lengths, with diff_low and diff_high over seeds and texts. p_least, p_most: of the permutation
    tests of single seeds; told: in how many of n_seeds the p-value, by Holm for all models and seeds of a kind of texts, is
    at most .05. Over all kinds at once the least p-value that so many permutations can give would never be told.
    """
    rows, tests = [], []
    for group in filter(selects, groups):
        for case in (leakage.LABEL, leakage.PREDICTION):
            numbers = {
                name: values(group, lambda cell, case=case, name=name: of_places(cell)[case].values[name])
                for name in ("places", "lengths", "majority")
            }
            p_values = [of_places(cell)[case].given["p_value"] for cell in group.values()]
            drawn = [one for one in p_values if not np.isnan(one)]
            gain = estimate(numbers["places"] - numbers["lengths"])
            row = heading(group) | {"of": case} | {"n_seeds": len(group), "n_texts": known(numbers["places"])}
            row |= {name: estimate(one).value for name, one in numbers.items()}
            row |= {"difference": gain.value, "diff_low": gain.ci_low, "diff_high": gain.ci_high}
            rows.append(row | {"p_least": min(drawn, default=np.nan), "p_most": max(drawn, default=np.nan)})
            tests += [(len(rows) - 1, one) for one in p_values]
    made = pd.DataFrame(rows)
    return made.assign(told=told(made, pd.DataFrame(tests, columns=["row", "p_value"]))) if rows else made


def told(rows: pd.DataFrame, tests: pd.DataFrame) -> np.ndarray:
    """In how many of its tests (their number of the row, and p-value) a row is told, int64 per row."""
    family = rows[[*FAMILY, "of"]].fillna("").agg(tuple, axis=1)
    adjusted = tests["p_value"].groupby(tests["row"].map(family)).transform(holm)
    return (adjusted <= LEVEL).groupby(tests["row"]).sum().to_numpy()


# ------------------------------------------------------------------------------------------------ kinds of models


def heading(group: SEEDS) -> dict[str, object]:
    """What names a kind of model: data set and kind of evidence, model, and the budget it was trained for or is held to."""
    of = next(iter(group.values())).identity
    dataset, evidence = kind_of(group)
    return {"dataset": dataset, "evidence": evidence, "model": model_name(of), "budget": target(group) or ""}


def kind_of(group: SEEDS) -> tuple[str, str]:
    """Data set and, of generated texts, kind of evidence."""
    cell = next(iter(group.values()))
    dataset = cell.identity.dataset
    if dataset != GENERATED:
        return dataset, ""
    knobs = USUAL | (cell.settings["recipe"]["data"].get("arguments") or {})
    return dataset, ", ".join(name for knob, name in KINDS.items() if knobs[knob] != USUAL[knob]) or ONE_WORD


def model_name(of) -> str:
    """Such as "bernoulli, moving average", "budget, transition 0.1, contiguous"; "attention" where nothing is selected."""
    if of.selection_kind is None:
        return ATTENTION
    parts = [of.selection_kind, of.selection_label]
    parts += ["moving average"] if of.selection_baseline == "moving_average" else []
    return ", ".join(filter(None, [*parts, "two-sided" if of.selection_two_sided else ""]))


def selects(group: SEEDS) -> bool:
    return next(iter(group.values())).identity.selection_kind is not None


def target(group: SEEDS) -> str | None:
    """The share that training aims at or is bound by, such as "10%"; None where it knows of none."""
    of = next(iter(group.values())).identity
    share = of.selection_target if of.selection_budget is None else of.selection_budget
    return None if share is None else f"{share:.0%}"


# ------------------------------------------------------------------------------------------------ numbers of texts


def precision_of(scores: str) -> Callable[[Cell], np.ndarray]:
    return lambda cell: average_precision(cell.scores(scores), records.rows(cell.table, "rationale"))


@per_cell
def of_sizes(cell: Cell) -> dict[tuple[str, str], Mapping[str, np.ndarray]]:
    """The numbers of each size and each score, {(size, scores): {name: [N]}}."""
    cases = selection_budgets.TABLE.cases(cell)
    own = selection_budgets.OWN
    return {(OWN if case.keys["size"] == own else case.keys["size"], case.keys["scores"]): case.values for case in cases}


def tabulated(group: SEEDS) -> list[tuple[str, str]]:
    """Sizes and scores of the table: as many tokens as are selected, and the share of the training, else all shares."""
    made = of_sizes(next(iter(group.values())))
    return [(size, scores) for size, scores in made if size == OWN or target(group) in (None, size)]


def of_size(key: tuple[str, str], name: str) -> Callable[[Cell], np.ndarray | None]:
    return lambda cell: of_sizes(cell).get(key, {}).get(name)


@per_cell
def of_places(cell: Cell) -> dict[str, Case]:
    """What places tell, by what is told."""
    return {case.keys["of"]: case for case in leakage.TABLE.cases(cell)}


def values(group: SEEDS, of: Callable[[Cell], np.ndarray | None], texts: Sequence[str] | None = None) -> np.ndarray:
    """A number of each text, [S,N] float64, NaN where a model has none; texts: their ids, else all of the group's."""
    texts = sorted({name for cell in group.values() for name in cell.instance_ids}) if texts is None else texts
    table = np.full((len(group), len(texts)), np.nan)
    for row, cell in zip(table, group.values(), strict=True):
        given = of(cell)
        if given is not None:
            row[np.searchsorted(texts, cell.instance_ids)] = given
    return table


def estimate(numbers: np.ndarray) -> Estimate:
    """Of numbers [S,N] with NaN: the mean of the seeds' means; seeds with less than two numbers are left out."""
    defined = ~np.isnan(numbers)
    some = np.flatnonzero(defined.sum(1) >= 2)
    if not len(some):
        return UNKNOWN
    totals, counts = np.where(defined, numbers, 0)[some], defined[some].sum(1, keepdims=True)
    left_out = (totals.sum(1, keepdims=True) - totals) / (counts - defined[some])
    return over_seeds_and_texts(totals.sum(1) / counts[:, 0], left_out.mean(0))


def known(numbers: np.ndarray) -> int:
    return int((~np.isnan(numbers)).sum())


def summary(numbers: np.ndarray) -> dict[str, float]:
    made = estimate(numbers)
    return {
        "n_seeds": int(((~np.isnan(numbers)).sum(1) >= 2).sum()),
        "n_texts": known(numbers),
        "n_undefined": int(np.isnan(numbers).sum()),
        "mean": made.value,
        "ci_low": made.ci_low,
        "ci_high": made.ci_high,
    }


def difference(group: SEEDS, plain: SEEDS, of: Callable[[Cell], np.ndarray | None]) -> dict[str, float]:
    """Of the seeds and texts that both have: the first's number less the second's."""
    seeds = sorted(set(group) & set(plain))
    one, other = ({seed: side[seed] for seed in seeds} for side in (group, plain))
    texts = sorted({name for cell in (*one.values(), *other.values()) for name in cell.instance_ids})
    made = estimate(values(one, of, texts) - values(other, of, texts))
    return {
        "difference": made.value,
        "diff_low": made.ci_low,
        "diff_high": made.ci_high,
        "p_value": made.p_value,
        "diff_seeds": len(seeds),
    }


def verdict(row: Mapping[str, object]) -> str:
    """ "" where nothing is compared."""
    if not row["diff_seeds"] >= 1:
        return ""
    if np.isnan(row["difference"]):
        return UNDEFINED
    if row["diff_seeds"] < 2:
        return ONE_SEED
    if row["p_holm"] > LEVEL:
        return UNTOLD
    return "higher" if row["difference"] > 0 else "lower"
