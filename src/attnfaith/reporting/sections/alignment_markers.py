"""How much of the attention to a source sentence lies on markers, which align with nothing: `alignment_marker_mass`."""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.readings import ROW_WORDS, ROWS
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Section, Share, Table, counts, per_cell


COLUMN = "alignment_marker_mass"


@per_cell
def _masses(cell: Cell) -> np.ndarray:
    """The mean over target words and heads, [N, layers, 2]."""
    return np.stack([row.mean(axis=(1, 3)) for row in records.rows(cell.table, COLUMN)]).astype(np.float64)


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """marker_mass of each pair: mean over layers, heads and target words of the row that predicts the word, [N] in 0..1."""
    return {"marker_mass": _masses(cell)[:, :, 0].mean(axis=1)}


def _cases(cell: Cell) -> Iterator[Case]:
    masses = _masses(cell)
    for layer in range(masses.shape[1]):
        for number, row in enumerate(ROWS):
            yield Case({"mass": masses[:, layer, number]}, {"layer": str(layer), "row": row})


TABLE = Table(
    name="alignment_marker_mass",
    cases=_cases,
    by=(Key("layer", "layer"), Key("row", "row", lambda row: ROW_WORDS[row["row"]])),
    columns=(
        *counts("mass", "pairs"),
        Mean("mass_mean", "share on markers [95 % interval]", of="mass", interval=MAIN),
        Share("share_above_0.5", "pairs with more than half", of="mass", above=0.5),
    ),
    caption="Attention to markers",
    note="The share of the attention to the source that lies on its end marker, a language code or another marker, mean "
    "over heads and target words of a pair, then over pairs. Markers are no words: what lies on them aligns with nothing, "
    "and the weights of words are not divided by the rest.",
)


def _sentences(cell: Cell) -> list[str]:
    masses = _masses(cell).mean(axis=0)[:, 0]
    most = int(masses.argmax())
    return [
        f"Of the row that predicts a word, {masses.mean():.0%} of the attention lies on markers and not on words, most in "
        f"layer {most}, {masses[most]:.0%}."
    ]


SECTION = Section(
    name="alignment_markers",
    place=7,
    needs=("target_tokens", COLUMN),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
