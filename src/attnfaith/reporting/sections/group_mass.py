"""How much of attention lies on groups of tokens, from a record's `group_mass_*`: 0..1 per text and group.

Undefined where a text has no token of the group, or no other. The published means are over all texts: 0 where there is none
and 1 where there is no other; they stand in a column of their own.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.errors import counted
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import shared, stacked
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Median, Section, Share, Table, counts, per_cell


HEADS = "group_mass_head_max"
LABELS = {"impermissible": "impermissible tokens"}
IMPERMISSIBLE, MARKERS = "impermissible", "markers"


@per_cell
def by_group(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """{group: {mass; whole, the same of all texts that have tokens; tokens, their share of the text's, where the mass is
    defined; of markers NaN; head_max, of a model with many heads}}, each [N] in 0..1, NaN where undefined.
    """
    names = shared(cell, "group_mass_names")
    values = {"mass": stacked(cell, "group_mass"), "tokens": stacked(cell, "group_mass_tokens")}
    if HEADS in cell.table.column_names:
        values["head_max"] = stacked(cell, HEADS)
    groups = {name: {of: column[:, place] for of, column in values.items()} for place, name in enumerate(names)}
    lengths = np.where(cell.lengths > 0, cell.lengths, np.nan)
    for name, of_group in groups.items():
        shares = of_group["tokens"] / lengths
        of_group["whole"] = np.where(np.isnan(of_group["mass"]), np.minimum(shares, 1), of_group["mass"])  # all or nothing
        of_group["tokens"] = np.where(np.isnan(of_group["mass"]) | (name == MARKERS), np.nan, shares)
    return groups


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """group_mass_<group in lower case> of each text, and of many heads group_mass_head_max_<group>."""
    groups = by_group(cell)
    numbers = {f"group_mass_{name.lower()}": of_group["mass"] for name, of_group in groups.items()}
    return numbers | {f"{HEADS}_{name.lower()}": one["head_max"] for name, one in groups.items() if "head_max" in one}


def _cases(cell: Cell) -> Iterator[Case]:
    for name, values in by_group(cell).items():
        yield Case(values, {"group": name})


TABLE = Table(
    name="group_mass",
    cases=_cases,
    by=(Key("group", "tokens", lambda row: LABELS.get(row["group"], row["group"])),),
    columns=(
        *counts("mass"),
        Mean("mass_mean", "share of attention [95 % interval]", of="mass", interval=MAIN),
        Median("mass_median", "median", of="mass"),
        Share("share_above_0.5", "texts with more than half", of="mass", above=0.5),
        Mean("head_max_mean", "in the head with most", of="head_max", optional=True),
        Mean("tokens_mean", "share of tokens", of="tokens", interval=None, dash=True),
        Mean("whole_mean", "of attention, all texts", of="whole"),
    ),
    caption="Attention on groups of tokens",
    note="Sum of the weights on the tokens of a group, mean over the texts that have such tokens and others; undefined: the "
    "rest. All texts: 0 where there is no such token and 1 where there is no other, as published means have it. Of a model "
    "with many heads it is a share of the whole rows, of which markers take a part; the head with most: of each text, the "
    "one of those shown whose mass is largest. Groups overlap. Parts of speech are a tagger’s estimate.",
    page_rows=lambda df: df[df["n"] > 0],
)


def _sentences(cell: Cell) -> list[str]:
    said = []
    for row in render.rows(TABLE, cell):
        name = LABELS.get(row["group"], row["group"])
        if row["group"] not in (IMPERMISSIBLE, "punctuation"):
            continue
        if not row["n"]:
            said.append(f"No text has both {name} and other tokens, so that attention could choose between them.")
            continue
        interval = render.interval_in_words(row)
        words = f"On average {row['mass_mean']:.1%} of the attention lies on {name}{interval}, which are "
        words += f"{row['tokens_mean']:.1%} of the tokens of {counted(row['n'])}"
        if "head_max_mean" in row:
            words += f"; {row['head_max_mean']:.1%} in the head that has most there"
        said.append(f"{words}.")
        if row["group"] == IMPERMISSIBLE:
            said.append(
                "Little attention on them does not say that the model does without them: it may be trained to hide them."
            )
    return said


SECTION = Section(
    name="group_mass",
    source="Pruthi et al. (2020), section 3; Mohankumar et al. (2020), section 5.4",
    place=47,
    needs=("group_mass_names", "group_mass", "group_mass_tokens", "attention"),
    uses=(HEADS,),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
