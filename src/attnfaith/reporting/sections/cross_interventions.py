"""What the model still says of target words when cross-attention is changed, or the source word it reads most is gone.

Permuted (`cross_permuted_...`), uniform (`cross_uniform_...`), and one word knocked out (`knock_out_...`): that of largest
weight, and beside it another, drawn at random; its weight gone from attention, or the word gone from the source.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell, one_cell
from attnfaith.reporting.figures import Drawn
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Row, Section, Table, counts, per_cell
from attnfaith.reporting.style import PALETTE, mean_in_words, own_style, titled_figure


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Way:
    """One way to change what is read. probs, tvd: its columns; "" of a way without distances."""

    name: str
    label: str
    probs: str
    tvd: str = ""


WAYS = (
    Way("permutation", "weights permuted", "cross_permuted_probs", "cross_permuted_tvd"),
    Way("uniform", "weights uniform", "cross_uniform_probs", "cross_uniform_tvd"),
    Way("best_weight", "no weight on the best source word", "knock_out_probs", "knock_out_tvd"),
    Way("other_weight", "no weight on another source word", "knock_out_other_probs", "knock_out_other_tvd"),
    Way("best_word", "best source word removed", "knock_out_removed_probs"),
    Way("other_word", "another source word removed", "knock_out_other_removed_probs"),
)
LAYER_TVD, LAYER_PROBS = "cross_uniform_layer_tvd", "cross_uniform_layer_probs"
FALLEN = 0.5
"""A target word has fallen where its probability is at most this share of the model's own."""


def ways(cell: Cell) -> tuple[Way, ...]:
    """Those that the cell holds."""
    return tuple(way for way in WAYS if way.probs in cell.table.column_names)


def _mean(row: np.ndarray) -> float:
    """The mean of what is defined, NaN of nothing."""
    known = row[~np.isnan(row)]
    return float(known.mean()) if known.size else np.nan


@per_cell
def by_way(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """{way: {probability, before (of the same target words), drop, fallen, tvd}}, [N] each, means over draws and target
    words of a pair; NaN where none is defined. tvd only of a way that has it.
    """
    own = [row.astype(np.float64) for row in records.rows(cell.table, "target_probs")]
    made = {}
    for way in ways(cell):
        drawn = records.rows(cell.table, way.probs)  # without draws they have no target words either
        after = [row.astype(np.float64) if len(row) else np.full(len(b), np.nan) for row, b in zip(drawn, own, strict=True)]
        before = [np.where(np.isnan(changed), np.nan, row) for row, changed in zip(own, after, strict=True)]
        falls = [np.where(np.isnan(b), np.nan, a <= FALLEN * b) for a, b in zip(after, before, strict=True)]
        made[way.name] = {
            "probability": np.array([_mean(row) for row in after]),
            "before": np.array([_mean(row) for row in before]),
            "drop": np.array([_mean(b - a) for a, b in zip(after, before, strict=True)]),
            "fallen": np.array([_mean(row) for row in falls]),
        }
        if way.tvd:
            made[way.name]["tvd"] = np.array([_mean(row) for row in records.rows(cell.table, way.tvd)], np.float64)
    return made


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Of each way its drop, <way>_probability_drop, and its distance, <way>_tvd, [N]."""
    numbers = {}
    for name, values in by_way(cell).items():
        numbers[f"cross_{name}_probability_drop"] = values["drop"]
        numbers |= {f"cross_{name}_tvd": values["tvd"]} if "tvd" in values else {}
    return numbers


def _cases(cell: Cell) -> Iterator[Case]:
    known = by_way(cell)
    for way in ways(cell):
        yield Case(known[way.name], {"way": way.name})


_LABELS = {way.name: way.label for way in WAYS}
TABLE = Table(
    name="cross_interventions",
    cases=_cases,
    by=(Key("way", "change", lambda row: _LABELS[row["way"]]),),
    columns=(
        *counts("probability", "pairs"),
        Mean("probability_mean", "probability of a target word", of="probability", interval=None),
        Mean("before_mean", "before", of="before", interval=None),
        Mean("drop_mean", "it falls by [95 % interval]", of="drop", interval=MAIN),
        Mean("fallen_mean", "falls by half or more", of="fallen"),
        Mean("tvd_mean", "TVD", of="tvd", optional=True),
    ),
    caption="Changed cross-attention",
    note="Means over the target words of a pair, then over pairs. Before: the model’s own probability of the same target "
    "words. Falls by half or more: share of the target words. TVD: total variation distance between the next token’s "
    "distribution and the model’s own, 0..1. Permuted: weights dealt out anew among the source words, in all heads, rows "
    "and chosen layers alike, mean over the draws; uniform: all source words weigh the same in all heads and layers; no "
    "weight: one source word has none and the rest is divided by its sum, in all heads and layers, for one target word at a "
    "time; removed: the word is left out of the source, and the encoder reads what is left. The best source word has the "
    "largest weight, mean over heads and the layers that were asked for; another is drawn at random, since any word may be "
    "missed.",
)


def _layer_cases(cell: Cell) -> Iterator[Case]:
    if LAYER_TVD not in cell.table.column_names:
        return
    distances, probs = (records.rows(cell.table, name) for name in (LAYER_TVD, LAYER_PROBS))
    own = records.rows(cell.table, "target_probs")
    for layer in range(distances[0].shape[0]):
        drops = [_mean(before - after[layer]) for before, after in zip(own, probs, strict=True)]
        values = {"drop": np.array(drops), "tvd": np.array([_mean(row[layer]) for row in distances])}
        yield Case(values, {"layer": str(layer)})


BY_LAYER = Table(
    name="cross_uniform_by_layer",
    cases=_layer_cases,
    by=(Key("layer", "layer"),),
    columns=(
        *counts("drop", "pairs"),
        Mean("drop_mean", "probability falls by [95 % interval]", of="drop", interval=MAIN),
        Mean("tvd_mean", "TVD", of="tvd"),
    ),
    caption="Uniform cross-attention, one layer at a time",
    note="The source words weigh the same in all heads of one layer, and the other layers are as they were. Layers are "
    "counted from 0.",
)


@own_style
def drops(record) -> "Figure":
    """How far the probability of the target words of each pair falls, a line of points for each way."""
    cell = one_cell(record)
    known, own = by_way(cell), ways(cell)
    figure = titled_figure("What target words lose when cross-attention is changed", cell, 9.0, 0.6 + 0.55 * len(own))
    axes = figure.add_subplot()
    generator = np.random.default_rng(0)
    for place, way in enumerate(own):
        values = known[way.name]["drop"]
        values = values[~np.isnan(values)]
        spread = generator.uniform(-0.28, 0.28, len(values))
        colour = PALETTE[place % len(PALETTE)]
        axes.scatter(values, place + spread, s=10, color=colour, alpha=0.45, linewidths=0)
        if len(values):
            axes.plot([values.mean()] * 2, [place - 0.38, place + 0.38], color=colour, linewidth=2.2)
    axes.set_yticks(range(len(own)), [way.label for way in own])
    axes.set_ylim(len(own) - 0.4, -0.6)
    axes.axvline(0, color="#bbbbbb", linewidth=1)
    axes.set_xlabel("fall of the mean probability of a pair’s target words")
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure


def _words(cell: Cell) -> tuple[str, str]:
    known = by_way(cell)
    parts = "; ".join(f"{way.label}: {mean_in_words(known[way.name]['drop'])}" for way in ways(cell))
    caption = "A point for each pair of sentences, the line at their mean; to the right: target words become less probable."
    return f"Fall of the probability of target words. {parts}.", caption


def _sentences(cell: Cell) -> list[str]:
    rows = {row["way"]: row for row in render.rows(TABLE, cell)}
    said = []
    for name, what in (("uniform", "uniform"), ("permutation", "permuted")):
        if name in rows and rows[name]["n"]:
            row = rows[name]
            said.append(
                f"With {what} weights a target word has a probability of {row['probability_mean']:.2f} in place of "
                f"{row['before_mean']:.2f}."
            )
    for kind, what in (("weight", "loses its weight"), ("word", "is removed")):
        best, other = rows.get(f"best_{kind}"), rows.get(f"other_{kind}")
        if best and best["n"]:
            against = f", of another one by {_fall(other)}" if other and other["n"] else ""
            said.append(
                f"When the source word of largest weight {what}, a target word’s probability falls by "
                f"{_fall(best)}{against}."
            )
    return said


def _fall(row: Row) -> str:
    return f"{round(row['drop_mean'], 2) + 0.0:.2f}"  # never -0.00


SECTION = Section(
    name="cross_interventions",
    source="after Jain & Wallace (2019), sections 4.2.1 and 4.1",
    place=8,
    chapter="interventions",
    needs=("target_tokens", "target_probs"),
    one_of=tuple(way.probs for way in WAYS),
    uses=("cross_permuted_*", "cross_uniform_*", "knock_out_*"),
    per_text=per_text,
    compared=True,
    tables=(TABLE, BY_LAYER),
    figures=(Drawn("cross_interventions", figure=drops, describe=_words),),
    sentences=_sentences,
)
