"""What permuting attention changed, from a record's `permuted_probs`.

Per text: the total variation distance (TVD, 0..1) between the prediction and the prediction under each permutation, and its
median over the draws; and the share of draws that change the decision. Undefined for a text of fewer than two tokens, which
has no draws.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.figures import Violins
from attnfaith.reporting.spec import (
    MAIN,
    WEIGHT_BINS,
    WEIGHT_EDGES,
    Bins,
    Case,
    Classes,
    Mean,
    Median,
    Section,
    Sentence,
    Share,
    Table,
    counts,
    largest_weights,
    per_cell,
)


BLOCK = 1 << 18  # probabilities compared at a time


@per_cell
def changes(cell: Cell, column: str) -> tuple[np.ndarray, np.ndarray]:
    """How far the predictions [K][C] in a column lie from the cell's own: per text [N] float64, NaN without draws, the
    median TVD over the draws and the share of draws with another decision, both 0..1.
    """
    draws = records.rows(cell.table, column)
    counts = np.array([len(drawn) for drawn in draws])
    medians, flips = np.full((2, len(cell)), np.nan)
    for number in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == number)
        parts = -(-len(rows) * number * cell.probs.shape[1] // BLOCK)
        for part in np.array_split(rows, min(len(rows), parts)):
            others, own = np.concatenate([draws[row] for row in part]), np.repeat(cell.probs[part], number, axis=0)
            medians[part] = np.median(total_variation_distance(own, others).reshape(-1, number), axis=1)
            flips[part] = decision_flips(own, others).reshape(-1, number).mean(axis=1)
    return medians, flips


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """permutation_tvd, the median TVD over the draws, and permutation_flips, the share of draws that change the decision."""
    return dict(zip(("permutation_tvd", "permutation_flips"), changes(cell, "permuted_probs"), strict=True))


def _cases(cell: Cell) -> Iterator[Case]:
    yield Case({**per_text(cell), "largest_weight": largest_weights(cell)})


_MEAN = Mean("tvd_mean", "mean TVD [95 % interval]", of="permutation_tvd", interval=MAIN)
WHOLE = Table(
    name="permutation",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("permutation_tvd"),
        _MEAN,
        Median("tvd_median", "median", of="permutation_tvd"),
        Share("share_below_0.05", "share below .05", of="permutation_tvd", below=0.05),
        Share("share_below_0.01", "share below .01", of="permutation_tvd", below=0.01),
        Mean("flip_share", "draws that flip the decision", of="permutation_flips"),
    ),
    caption="Permuted attention",
    note="Per text, the median over random permutations of its attention weights of the total variation distance between "
    "the prediction and the prediction then: 0 no change, 1 another decision with certainty. Undefined: texts of fewer than "
    "two tokens; they are in no mean.",
)
BINNED = Table(
    name="permutation_by_max_attention",
    cases=_cases,
    by=(Classes(), Bins("max_attention", "largest weight", of="largest_weight", edges=WEIGHT_EDGES, labels=WEIGHT_BINS)),
    columns=(*counts("permutation_tvd"), _MEAN),
    caption="Permuted attention by largest weight",
    note="The same, by the largest attention weight of the text. A text without tokens is in no row.",
    page_rows=lambda df: df[df["n"] + df["n_undefined"] > 0],
)
FIGURE = Violins(
    "permutation_by_max_attention",
    of="permutation_tvd",
    title="Permuted attention",
    ylabel="median change of the prediction (TVD)",
    nothing="no text has two tokens to permute",
    alt="Violins of the median change of the prediction per text, by largest attention weight.",
    caption="How far the prediction moves when the weights of a text are permuted, by how much weight one token has.",
)
SECTION = Section(
    name="permutation",
    source="Jain & Wallace (2019), section 4.2.1",
    place=50,
    chapter="interventions",
    needs=("permuted_probs", "probs", "attention"),
    per_text=per_text,
    compared=True,
    tables=(WHOLE, BINNED),
    figures=(FIGURE,),
    sentences=Sentence(
        WHOLE,
        text="Permuting the attention weights of a text moves its prediction by a median total variation distance of "
        "{row[tvd_mean]:.3f} on average over {texts}{interval}; in {row[share_below_0.05]:.0%} of them by "
        "less than 0.05. {row[flip_share]:.1%} of the permutations change the decision.",
        left_out="Left out because there is nothing to permute: {row[n_undefined]:,}.",
        nothing="No text has two tokens, so attention could not be permuted ({row[n_undefined]:,} undefined).",
    ),
)
