"""A fine-tuned encoder: every measure of importance by every test that takes tokens away, and what attention could be.

All intervals are over training seeds and texts (`shared.summary`). What a study has depends on what its cells hold.
Shapes: S seeds, N texts.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.erasure_curves import aopc, falls
from attnfaith.reporting import sections
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.sections import adversary, changes, saliency
from attnfaith.stats import holm

from ..pages import INTERVAL, analysis, join_published, read_published
from ..shared import ANY, CORRECT, Models, answer, as_table, first, heading, kinds, pick, rows_of, summary, values, verdict


PUBLISHED = ("dataset", "model", "measure", "published_measure", "test", "value", "definition", "source")
TESTS = {"aopc_removed": 1, "aopc_kept": -1, "accuracy_removed": -1, "accuracy_kept": 1, "sign_violated": -1}
"""Test -> 1 where large is good, -1 where small is."""
BOUNDS = dict.fromkeys(("average_precision", "accuracy_removed", "accuracy_kept", "sign_violated"), (0.0, 1.0))
"""Test -> the range that no interval leaves."""
BETTER, WORSE = "better", "worse"
Results = Callable[[Cell], dict[str, dict[str, np.ndarray]]]
PAGES = {
    "measures_published": {"test": "{test}", "theirs": "{published_measure}", "ours": "{measure}"}
    | {"published": "{published}", "measured": "{measured}", "difference": "{difference}", "definition": "{definition}"},
    "measures_ranking": {"test": "{test}", "measure": "{measure}", "mean [95 %]": INTERVAL, "rival": "{rival}"}
    | {"less the rival": "{to_rival} [{to_rival_ci_low}, {to_rival_ci_high}]", "verdict": "{verdict}"},
    "signs": {"test": "{test}", "measure": "{measure}", "with its sign − by size [95 %]": INTERVAL, "verdict": "{verdict}"},
    "reach": {"projection": "{projection}", "seeds": "{n_seeds}", "quantity": "{quantity}", "mean [95 %]": INTERVAL},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "measures_ranking", "signs", "reach" and "measures_published", see the functions, and each as the page shows it."""
    published = read_published(settings.published, PUBLISHED, ["value"])
    groups = [models for models in kinds(cells) if saliency.SECTION.applies(first(models))]
    ranked = ranking(groups, per_text)
    results = {"measures_ranking": lambda _: ranked, "signs": lambda _: signs(groups), "reach": reach}
    return analysis(cells, PAGES, results | {"measures_published": lambda _: beside_published(published, ranked)})


def by_name(models: Models, test: str, results: Results) -> dict[str, np.ndarray]:
    """The results of a test by measure, {measure: [S, N]}."""
    names = results(first(models))[test]
    return {name: values(models, lambda cell, name=name: results(cell)[test].get(name)) for name in names}


@as_table
def ranking(groups: Sequence[Models], results: Results, better: Mapping[str, int] = TESTS) -> pd.DataFrame:
    """A row for each kind of model, test and measure: its mean, and its difference to the rival that is named beforehand
    (`saliency.RIVALS`), with interval, p_value and p_holm, corrected for the measures of the test. verdict: "better" or
    "worse" than the rival, else "cannot be told". There are no ranks: of many measures the first looks better than it is.

    results: {test: {measure: [N]}} of a cell. better: test to 1 where large is good, -1 where small is.
    """
    for models in groups:
        for test in results(first(models)):
            numbers = by_name(models, test, results)
            rival = saliency.rival(numbers)
            part = []
            for name, own in numbers.items():
                other = numbers[rival] if rival and rival != name else np.full_like(own, np.nan)
                gap = answer(own - other)
                row = heading(models) | {"test": test, "measure": name, "rival": rival or ""}
                row |= summary(own, BOUNDS.get(test, ANY))
                row |= {"to_rival": gap["mean"], "to_rival_ci_low": gap["ci_low"], "to_rival_ci_high": gap["ci_high"]}
                part.append(row | {"p_value": gap["p_value"]})
            for row, p_holm in zip(part, holm([row["p_value"] for row in part]), strict=True):
                word = verdict(better[test] * row["to_rival"], p_holm, row["n_seeds"], BETTER, WORSE)
                yield row | {"p_holm": p_holm, "verdict": word}


@as_table
def signs(groups: Sequence[Models]) -> pd.DataFrame:
    """Of each measure with a sign, the number of each test less that of its size alone; verdict: which is better."""
    for models in groups:
        for test in per_text(first(models)):
            numbers = by_name(models, test, per_text)
            for name in [name for name in numbers if records.ABSOLUTE + name in numbers]:
                words = (BETTER, WORSE) if TESTS[test] > 0 else (WORSE, BETTER)
                gap = answer(numbers[name] - numbers[records.ABSOLUTE + name], *words)
                yield heading(models) | {"test": test, "measure": name} | gap


@as_table
def reach(cells: Sequence[Cell]) -> pd.DataFrame:
    """Accuracy, and every number of the section "identifiability", of each kind of model that has it."""
    for models in kinds([cell for cell in cells if adversary.IDENTIFIABILITY.applies(cell)]):
        names = [name for name in sections.numbers(first(models)) if name.startswith(adversary.BEGIN)]
        numbers = {"accuracy": CORRECT, **{name: pick(sections.numbers, name) for name in names}}
        yield from rows_of(models, numbers, heading(models), lambda name: ANY, "quantity")


def beside_published(published: pd.DataFrame, ranked: pd.DataFrame) -> pd.DataFrame:
    """Each published number with ours of the measure that is nearest, of another model and other texts.

    definition: "the same", or how theirs differs. measured, ci_low, ci_high: of "measures_ranking"; NaN where nothing of the
    kind was measured. difference: measured - published.
    """
    measured = ranked.rename(columns={"mean": "measured"})
    names = ["dataset", "measure", "test", "projection", "n_seeds", "n_texts", "measured", "ci_low", "ci_high"]
    theirs = published[published["dataset"].isin(measured["dataset"].unique())]
    return join_published(theirs.fillna({"measure": ""}), measured[names], ["dataset", "measure", "test"])


@per_cell
def per_text(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """The results of all TESTS by measure, {test: {measure: [N]}}, NaN where undefined.

    aopc_removed, aopc_kept: fall of the probability of the predicted class when the share ranked first is taken away, and
    when nothing else is left; mean over all shares measured. accuracy_removed, accuracy_kept: share of these shares at which
    the model is right; a record knows it for two classes alone. sign_violated: `sections.sign_violations`.
    """
    results, whole = {}, cell.column("rationale_erasure_whole_prob")
    for end in ("removed", "kept"):
        probs = cell.stacked(f"rationale_erasure_{end}_probs")
        named = dict(zip(saliency.measures(cell), np.moveaxis(probs, 1, 0), strict=True))
        results[f"aopc_{end}"] = {name: aopc(falls(whole, numbers)) for name, numbers in named.items()}
        if cell.probs.shape[1] == 2:
            results[f"accuracy_{end}"] = {name: _accuracy(cell, numbers) for name, numbers in named.items()}
    if changes.SIGN_VIOLATIONS.applies(cell):
        numbers, start = changes.sign_violations(cell), "sign_violated_by_"
        results["sign_violated"] = {name[len(start) :]: of for name, of in numbers.items() if name.startswith(start)}
    return {test: results[test] for test in TESTS if test in results}


def _accuracy(cell: Cell, probs: np.ndarray) -> np.ndarray:
    """Share [N] of parts of a text at which a model of two classes is right; probs [N, parts] are of the class that it
    predicts for the whole text. The lower class wins a tie.
    """
    predicted = cell.predicted[:, None]
    decided = np.where(probs == 0.5, 0, np.where(probs > 0.5, predicted, 1 - predicted))
    right = (decided == cell.labels[:, None]).mean(axis=1)
    return np.where(np.isnan(probs).any(axis=1) | np.isnan(cell.labels), np.nan, right)
