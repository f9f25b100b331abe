"""Attention or saliency? Every measure of a record by every test of explanations that the record allows.

The tests and their numbers per text are those of `reporting.explanation_tests`. Each measure is held against three: random
scores, attention, and one rival that is named before anything is measured (`RIVALS`). There is no winner: of many measures
the best by chance looks better than it is. Shapes: N instances, M measures.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from attnfaith import record as records
from attnfaith.reporting import explanation_tests
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import NEEDS, TESTS
from attnfaith.reporting.spec import Row, Section, Table, counts, main, per_cell
from attnfaith.reporting.tables import format_number
from attnfaith.stats import estimate, holm, sign_flip_tests, with_interval


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


def _test_rows(cell: Cell) -> Iterator[Row]:
    for test, values in explanation_tests.scores(cell).items():
        better = TESTS[test].better
        against = {"attention": "attention", "random": "random", "rival": rival(values)}
        compared = {name: differences(values, better, other) for name, other in against.items()}
        for place, name in enumerate(values):
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


def _difference(key: str):
    """A difference with its p-value; a dash where there is none."""

    def words(row: Row) -> str:
        return "–" if np.isnan(row[key]) else f"{format_number(row[key])} (p {row[f'{key}_p_holm']:.3f})"

    return words


TESTS_TABLE = Table(
    name="saliency_tests",
    rows=_test_rows,
    heads=2,
    headings={
        "test": ("test", lambda row: f"{TESTS[row['test']].label} {'↑' if TESTS[row['test']].better > 0 else '↓'}"),
        "measure": ("measure", lambda row: measure_label(row["measure"])),
        "n": "texts",
        "n_undefined": "undefined",
        "mean": "mean [95 % interval]",
        "to_attention": ("better than attention by", _difference("to_attention")),
        "to_random": ("than random scores", _difference("to_random")),
        "to_rival": ("than the rival", _difference("to_rival")),
        "rival": ("rival", lambda row: measure_label(row["rival"])),
    },
    caption="Which measure tells what the model used?",
    note="Means over texts; ↑ large is good, ↓ small is good. Differences are positive where the measure is the better one, "
    "with p of a paired sign-flip test over texts, by Holm over measures; the rival was named before anything was measured. "
    "AOPC: mean over ERASER’s shares of tokens. Erasure shows a model texts unlike those of training. Against marked "
    "evidence a measure is plausible, which does not mean that the model used it. A signed measure tells evidence for the "
    "predicted class from evidence against it, which attention cannot; “absolute” is the same by size alone.",
)
"""One row per cell x test x measure. n: texts where the test is defined for the measure; n_undefined: the others. mean,
ci_low, ci_high: over these texts, with its 95 % interval. to_attention, to_random, to_rival: mean paired difference to
attention, to random scores, or to the rival, over the texts where both are defined, positive where the measure is the better
one whether large or small is good, with its interval; <name>_p_holm: p of `sign_flip_tests`, corrected by Holm over the
measures of that cell and test. rival: which measure that is.
"""


SECTION = Section(
    name="saliency",
    place=80,
    needs=(*NEEDS, "attention"),
    uses=("rationale_erasure_*_prob", "soft_erasure_*_prob"),
    per_text=per_text,
    tables=(TESTS_TABLE,),
)
