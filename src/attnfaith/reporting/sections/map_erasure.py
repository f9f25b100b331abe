"""What erasing tokens from attention maps changed, from a record's `map_erasure_...` columns.

Per text: how far the prediction moves (TVD) without the token that has most attention, without one drawn at random, and how
many tokens are erased, in some order, until the decision first changes. Undefined for a text of fewer than two tokens.
Source: Serrano & Smith (2019), for one attention.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, total_variation_distance
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.erased_weights import RANKINGS
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.spec import MAIN, Case, Column, Count, Key, Mean, Median, Section, Share, Table, counts, per_cell


LABELS = {"random": "random order", **RANKINGS}
SCORES = {"gradient": "map_erasure_gradient", "attention_gradient": "map_erasure_attention_gradient"}


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """<ranking>: attention, gradient, attention_gradient, random (the first random order).

    map_erasure_tvd_<ranking>: how far the prediction moves without the token that it puts first, the earlier one on ties;
    map_erasure_top_flips_<ranking>: 1 where the decision changes. map_erasure_flip_fraction_<ranking>: share of tokens
    erased until the decision changes, 0..1; NaN where it never does. map_erasure_mass_<ranking>: attention on them.
    """
    probs, orders = (records.rows(cell.table, f"map_erasure_{name}") for name in ("probs", "order"))
    scores = {name: records.rows(cell.table, of) for name, of in SCORES.items()} | {"attention": cell.attention}
    defined = np.flatnonzero(cell.lengths > 1)
    numbers = {}
    for ranking in LABELS:
        tvd, flips = np.full(len(cell), np.nan), np.full(len(cell), np.nan)
        if len(defined):
            first = [orders[row][0][0] if ranking == "random" else np.argmax(scores[ranking][row]) for row in defined]
            without = np.stack([probs[row][token] for row, token in zip(defined, first, strict=True)])
            tvd[defined] = total_variation_distance(cell.probs[defined], without)
            flips[defined] = decision_flips(cell.probs[defined], without)
        size, mass = (_values(cell, f"map_erasure_flip_{part}_{ranking}") for part in ("size", "mass"))
        numbers |= {
            f"map_erasure_tvd_{ranking}": tvd,
            f"map_erasure_top_flips_{ranking}": flips,
            f"map_erasure_flip_fraction_{ranking}": size / np.maximum(cell.lengths, 1),
            f"map_erasure_mass_{ranking}": mass,
        }
    return numbers


def _values(cell: Cell, name: str) -> np.ndarray:
    """[N] float64: of a column with draws the first one, NaN without any."""
    if not name.endswith("_random"):
        return column(cell, name)
    return np.array([row[0] if len(row) else np.nan for row in records.rows(cell.table, name)], np.float64)


def _cases(cell: Cell) -> Iterator[Case]:
    asked = cell.lengths > 1
    for ranking in LABELS:
        values = {
            name: per_text(cell)[f"map_erasure_{of}_{ranking}"]
            for name, of in (("tvd", "tvd"), ("flips", "top_flips"), ("fraction", "flip_fraction"), ("mass", "mass"))
        }
        values["censored"] = np.where(asked, np.where(np.isnan(values["fraction"]), 1, values["fraction"]), np.nan)
        never = int((asked & np.isnan(values["fraction"])).sum())
        yield Case(values, {"ranking": ranking}, {"n_never": never})


TABLE = Table(
    name="map_erasure",
    cases=_cases,
    by=(Key("ranking", "erased by", lambda row: LABELS[row["ranking"]]),),
    columns=(
        *counts("tvd"),
        Mean("tvd_mean", "TVD without the first [95 % interval]", of="tvd", interval=MAIN),
        Share("share_below_0.05", "below .05", of="tvd", below=0.05),
        Mean("flip_share", "changes the decision", of="flips"),
        Column("n_never", "never"),
        Count("n_averaged", of="fraction"),
        Mean("fraction_mean", "share erased until it changes", of="fraction", dash=True),
        Median("censored_median", "censored median", of="censored", dash=True),
        Mean("mass_mean", "attention on them", of="mass", dash=True),
    ),
    caption="Tokens erased from attention maps",
    note="A token is erased where no row of the changed layers has weight on it. First: how far the prediction moves (total "
    "variation distance) without the token that the order puts first, and how often the decision changes. Then: share of a "
    "text’s tokens erased until the decision first changes, over the texts whose decision does; in the censored median with "
    "1 for those whose decision never does, whose number is under never. Undefined: texts of fewer than two tokens.",
)


def _sentences(cell: Cell) -> list[str]:
    values, asked = per_text(cell), cell.lengths > 1
    if not asked.any():
        return [f"No text has two tokens, so no token could be erased ({len(cell):,} undefined)."]
    top, other = (np.nanmean(values[f"map_erasure_tvd_{ranking}"]) for ranking in ("attention", "random"))
    said = [
        f"Without any weight on the token with most attention the prediction moves by a total variation distance of "
        f"{top:.3f} on average over {counted(asked.sum())}; without any on a token drawn at random by {other:.3f}."
    ]
    parts = []
    for ranking, label in LABELS.items():
        fraction = values[f"map_erasure_flip_fraction_{ranking}"][asked]
        by, never = "in random order" if ranking == "random" else f"by {label}", int(np.isnan(fraction).sum())
        if never == len(fraction):
            parts.append(f"{by}, no decision changes")
        else:
            parts.append(f"{by} {np.nanmean(fraction):.0%} on average" + (f" ({never:,} never change)" if never else ""))
    return [*said, f"Tokens erased one after the other until the decision changes: {'; '.join(parts)}."]


SECTION = Section(
    name="map_erasure",
    source="Serrano & Smith (2019), for one attention; here for the maps of a stack of layers",
    place=71,
    chapter="interventions",
    needs=("probs", "attention", "map_erasure_probs", "map_erasure_order", "map_erasure_flip_size_attention"),
    uses=("map_erasure_*",),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
