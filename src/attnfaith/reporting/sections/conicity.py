"""How alike the states of a text's tokens are, from a record's `conicity_*`: 0..1 per text, undefined below two tokens."""

from collections.abc import Iterator

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.spec import MAIN, Case, Classes, Mean, Median, Section, Sentence, Table, counts


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """conicity_absolute and conicity_signed of each text."""
    return {name: column(cell, name) for name in ("conicity_absolute", "conicity_signed")}


def _cases(cell: Cell) -> Iterator[Case]:
    values = per_text(cell)
    lengths = np.where(np.isnan(values["conicity_absolute"]), np.nan, cell.lengths)
    yield Case({**values, "orthogonal": 1 / np.sqrt(lengths)})


TABLE = Table(
    name="conicity",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("conicity_absolute"),
        Mean("absolute_mean", "absolute cosine [95 % interval]", of="conicity_absolute", interval=MAIN),
        Median("absolute_median", "median", of="conicity_absolute"),
        Mean("signed_mean", "signed cosine", of="conicity_signed"),
        Mean("orthogonal_mean", "of as many orthogonal states", of="orthogonal", interval=None),
    ),
    caption="Conicity of states",
    note="Mean over the tokens of a text of the cosine between a token’s state and the mean of all, by its size (as in the "
    "code of Mohankumar et al.) and with its sign; markers and padding are left out. 1: all states point one way, so that "
    "other weights give nearly the same sum. It is never 0 of few tokens: n orthogonal states of one length have 1/√n, the "
    "last column. Undefined: texts of fewer than two tokens; they are in no mean.",
)
SECTION = Section(
    name="conicity",
    source="Mohankumar et al. (2020), section 3.1",
    place=46,
    needs=("conicity_absolute", "conicity_signed", "probs", "attention"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=Sentence(
        TABLE,
        text="The conicity of a text’s states is {row[absolute_mean]:.2f}{interval} on average over {texts}; as "
        "many orthogonal states would have {row[orthogonal_mean]:.2f}. At 1 all point one way, and other weights would give "
        "nearly the same sum. It says nothing of which weights are right.",
        left_out="Left out because they have fewer than two tokens: {row[n_undefined]:,}.",
        nothing="No text has two tokens, so none has a conicity ({row[n_undefined]:,} undefined).",
    ),
)
