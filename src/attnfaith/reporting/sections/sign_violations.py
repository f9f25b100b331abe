"""How often the sign of a measure's first token contradicts what taking that token away does.

Per text and measure, from a record's `sign_violations_*`: 1 where the sign is violated, 0 where it is not; undefined where
the measure is, or gives every token 0. What has no sign says of its first token that it speaks for the class.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import shared, stacked
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Section, Table, counts, per_cell


@per_cell
def violations(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """{measure: {violated: 1 or 0, NaN where undefined; effect: how far the class's probability falls, -1..1}}, each [N]."""
    signs, effects = (stacked(cell, f"sign_violations_{name}") for name in ("signs", "effects"))
    violated = np.where(np.isnan(signs) | (signs == 0), np.nan, signs * effects < 0)
    names = shared(cell, "sign_violations_measures")
    return {name: {"violated": violated[:, place], "effect": effects[:, place]} for place, name in enumerate(names)}


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Whether the sign of attention, which is always plus, is violated."""
    return {"sign_violated_by_attention": violations(cell)["attention"]["violated"]}


def _cases(cell: Cell) -> Iterator[Case]:
    for name, values in violations(cell).items():
        yield Case(values, {"measure": name})


def _sentences(cell: Cell) -> list[str]:
    shares = {
        name: values["violated"][~np.isnan(values["violated"])].mean()
        for name, values in violations(cell).items()
        if not np.isnan(values["violated"]).all()
    }
    if not shares:
        return ["No measure has a first token whose sign could be violated."]
    least = min(shares, key=shares.get)
    words = f"The sign of {measure_label(least)} is contradicted by taking its first token away in {shares[least]:.0%} of "
    words += "the texts, the least of all measures"
    if least != "attention" and "attention" in shares:
        words += f"; attention, read as evidence for the class, in {shares['attention']:.0%}"
    return [f"{words}."]


TABLE = Table(
    name="sign_violations",
    cases=_cases,
    by=(Key("measure", "measure", lambda row: measure_label(row["measure"])),),
    columns=(
        *counts("violated"),
        Mean("violated_share", "sign violated [95 % interval]", of="violated", interval=MAIN),
        Mean("effect_mean", "fall of the probability", of="effect"),
    ),
    caption="Signs that are violated",
    note="Share of texts whose token of largest score is said to speak for the predicted class while the class is more "
    "probable without it, or the other way round. A measure without a sign, and “absolute”, the size of a signed one, say "
    "of every token that it speaks for the class. Undefined: every score is 0, or one is undefined; such texts are in no "
    "mean.",
)
SECTION = Section(
    name="sign_violations",
    source="Liu et al. (2022)",
    place=85,
    needs=("sign_violations_measures", "sign_violations_signs", "sign_violations_effects"),
    uses=("importance_*", "attention"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
