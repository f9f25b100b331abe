"""What other attention maps change, from a record's `map_permuted_probs` and `map_uniform_probs`.

Per text: the total variation distance (TVD, 0..1) between the prediction and the prediction when the weights on tokens are
permuted in all heads of some layers, its median over the draws, and the share of draws that change the decision; and both
for uniform rows. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import stacked
from attnfaith.reporting.sections.permutation import changes
from attnfaith.reporting.spec import MAIN, Case, Classes, Key, Mean, Median, Section, Share, Table, counts, per_cell


PERMUTED, UNIFORM = "map_permuted_probs", "map_uniform_probs"
LABELS = {"map_permutation": "permuted", "map_uniform": "uniform"}


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """map_permutation_tvd and map_permutation_flips, as those of `permutation`; map_uniform_tvd and map_uniform_flips."""
    numbers, names = {}, cell.table.column_names
    if PERMUTED in names:
        numbers |= dict(zip(("map_permutation_tvd", "map_permutation_flips"), changes(cell, PERMUTED), strict=True))
    if UNIFORM in names:
        own, other, short = cell.probs, stacked(cell, UNIFORM), cell.lengths < 2
        for name, distance in (("tvd", total_variation_distance), ("flips", decision_flips)):
            numbers[f"map_uniform_{name}"] = np.where(short, np.nan, distance(own, other))
    return numbers


def _cases(cell: Cell) -> Iterator[Case]:
    values = per_text(cell)
    for name in LABELS:
        if f"{name}_tvd" in values:
            yield Case({"tvd": values[f"{name}_tvd"], "flips": values[f"{name}_flips"]}, {"maps": name})


TABLE = Table(
    name="map_interventions",
    cases=_cases,
    by=(Key("maps", "attention maps", lambda row: LABELS[row["maps"]]), Classes()),
    columns=(
        *counts("tvd"),
        Mean("tvd_mean", "mean TVD [95 % interval]", of="tvd", interval=MAIN),
        Median("tvd_median", "median", of="tvd"),
        Share("share_below_0.05", "share below .05", of="tvd", below=0.05),
        Share("share_below_0.01", "share below .01", of="tvd", below=0.01),
        Mean("flip_share", "flip the decision", of="flips"),
    ),
    caption="Other attention maps",
    note="Total variation distance between the prediction and the prediction with other attention maps, all that follows "
    "them computed anew: 0 no change, 1 another decision with certainty. Permuted: the weights on tokens in another order, "
    "the same in all rows and heads of the changed layers; the median over the draws. Uniform: each row divides what it "
    "gives tokens equally. Undefined: texts of fewer than two tokens; they are in no mean.",
)
WORDS = {"map_permutation": "Permuting the weights on tokens", "map_uniform": "Dividing weight equally among tokens"}


def _sentences(cell: Cell) -> list[str]:
    said, values = [], per_text(cell)
    for name, doing in WORDS.items():
        if f"{name}_tvd" not in values:
            continue
        tvd, flips = (values[f"{name}_{number}"] for number in ("tvd", "flips"))
        defined = ~np.isnan(tvd)
        if not defined.any():
            said.append(f"No text has two tokens, so attention maps stay as they are ({len(cell):,} undefined).")
            continue
        median = "a median" if name == "map_permutation" else "a"
        text = (
            f"{doing} in all heads of the changed layers moves the prediction by {median} total variation distance of "
            f"{tvd[defined].mean():.3f} on average over {counted(defined.sum())}, in {(tvd[defined] < 0.05).mean():.0%} of "
            f"them by less than 0.05, and changes {flips[defined].mean():.1%} of the decisions."
        )
        left_out = int((~defined).sum())
        said.append(text + (f" Left out for want of two tokens: {left_out:,}." if left_out else ""))
    return said


SECTION = Section(
    name="map_interventions",
    source="Jain & Wallace (2019), section 4.2.1, for one attention; here for the maps of a stack of layers",
    place=51,
    chapter="interventions",
    needs=("probs", "attention"),
    one_of=(PERMUTED, UNIFORM),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
