"""Cross-attention of a translator: what it still says of target words when weights are changed, and what they could be.

Interventions: weights permuted (`cross_permuted_...`), uniform (`cross_uniform_...`), and one source word knocked out
(`knock_out_...`), that of largest weight and another, drawn at random: its weight gone from attention, or the word gone from
the source. Identifiability (`cross_identifiability_...`): per head and row, the least and the greatest weight of each source
word over all attentions that leave the head's output as it is, and the distance to a far one of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.reporting import render
from attnfaith.reporting.cells import Cell, one_cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.figures import Drawn
from attnfaith.reporting.readings import ROW_WORDS, ROWS
from attnfaith.reporting.spec import (
    MAIN,
    Case,
    Key,
    Largest,
    Mean,
    Row,
    Section,
    Share,
    Table,
    counts,
    per_cell,
    summary_cases,
)
from attnfaith.reporting.style import PALETTE, mean_in_words, own_style, titled_figure
from attnfaith.reporting.tables import short_number


if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ------------------------------------------------------------------------------------------------- interventions


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


def _mean(values: np.ndarray) -> float:
    """The mean of what is defined, NaN of nothing."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else np.nan


def _pair_numbers(own: np.ndarray, changed: np.ndarray) -> dict[str, float]:
    """Means over draws and target words of one pair. own: probabilities [G]; changed: [G] or [K, G], NaN where undefined."""
    changed = changed.astype(np.float64) if len(changed) else np.full(len(own), np.nan)  # without draws
    before = np.where(np.isnan(changed), np.nan, own.astype(np.float64))
    fallen = np.where(np.isnan(before), np.nan, changed <= FALLEN * before)
    numbers = {"probability": changed, "before": before, "drop": before - changed, "fallen": fallen}
    return {name: _mean(values) for name, values in numbers.items()}


@per_cell
def by_way(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """{way: {probability, before (of the same target words), drop, fallen, tvd}}, [N] each, means over draws and target
    words of a pair; NaN where none is defined. tvd only of a way that has it.
    """
    own = records.rows(cell.table, "target_probs")
    numbers = {}
    for way in ways(cell):
        pairs = [_pair_numbers(*probs) for probs in zip(own, records.rows(cell.table, way.probs), strict=True)]
        numbers[way.name] = {name: np.array([pair[name] for pair in pairs]) for name in pairs[0]}
        if way.tvd:
            numbers[way.name]["tvd"] = np.array([_mean(row) for row in records.rows(cell.table, way.tvd)], np.float64)
    return numbers


def cross_interventions(cell: Cell) -> dict[str, np.ndarray]:
    """Of each way its drop, <way>_probability_drop, and its distance, <way>_tvd, [N]."""
    numbers = {}
    for name, values in by_way(cell).items():
        numbers[f"cross_{name}_probability_drop"] = values["drop"]
        if "tvd" in values:
            numbers[f"cross_{name}_tvd"] = values["tvd"]
    return numbers


LABELS = {way.name: way.label for way in WAYS}
INTERVENTIONS_TABLE = Table(
    name="cross_interventions",
    cases=summary_cases(by_way, "way"),
    by=(Key("way", "change", lambda row: LABELS[row["way"]]),),
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


UNIFORM_BY_LAYER = Table(
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


def _drop_words(cell: Cell) -> tuple[str, str]:
    known = by_way(cell)
    parts = "; ".join(f"{way.label}: {mean_in_words(known[way.name]['drop'])}" for way in ways(cell))
    caption = "A point for each pair of sentences, the line at their mean; to the right: target words become less probable."
    return f"Fall of the probability of target words. {parts}.", caption


def _intervention_sentences(cell: Cell) -> list[str]:
    rows = {row["way"]: row for row in render.rows(INTERVENTIONS_TABLE, cell)}
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


CROSS_INTERVENTIONS = Section(
    name="cross_interventions",
    source="after Jain & Wallace (2019), sections 4.2.1 and 4.1",
    place=8,
    chapter="interventions",
    needs=("target_tokens", "target_probs"),
    one_of=tuple(way.probs for way in WAYS),
    uses=("cross_permuted_*", "cross_uniform_*", "knock_out_*"),
    per_text=cross_interventions,
    compared=True,
    tables=(INTERVENTIONS_TABLE, UNIFORM_BY_LAYER),
    figures=(Drawn("cross_interventions", figure=drops, describe=_drop_words),),
    sentences=_intervention_sentences,
)


# ----------------------------------------------------------------------------------------------- identifiability


IDENTIFIABILITY = "cross_identifiability_"
ATTENTION = "alignment_attention"
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps


@per_cell
def _identifiability(cell: Cell) -> list[dict[str, np.ndarray]]:
    """Of each pair [L, 2] each: tvd and width (of the interval of a weight), means over heads, target words and source
    words; top, low and high: the largest weight of each target word and the ends of its interval; zero: share of these that
    could be 0. Those of the largest weight only with attention.
    """
    names = ["tvd", "low", "high"]
    parts = [records.rows(cell.table, IDENTIFIABILITY + name) for name in names]
    weights = records.rows(cell.table, ATTENTION) if ATTENTION in cell.table.column_names else [None] * len(cell)
    pairs = []
    for tvd, low, high, own in zip(*parts, weights, strict=True):
        values = {"tvd": tvd.mean(axis=(1, 3)), "width": (high - low).mean(axis=(1, 3, 4))}
        if own is not None:
            place = own.argmax(axis=-1)[..., None]
            top, least, most = (np.take_along_axis(array, place, -1)[..., 0] for array in (own, low, high))
            values |= {"top": top, "low": least, "high": most, "zero": (least < DETERMINED).astype(float)}
            values |= {name: values[name].mean(axis=(1, 3)) for name in ("top", "low", "high", "zero")}
        pairs.append({name: value.astype(np.float64) for name, value in values.items()})
    return pairs


def cross_identifiability(cell: Cell) -> dict[str, np.ndarray]:
    """cross_identifiability_tvd: of the rows that predict target words, the mean over layers, heads and target words,
    [N].
    """
    return {f"{IDENTIFIABILITY}tvd": np.array([values["tvd"][:, 0].mean() for values in _identifiability(cell)])}


def _identifiability_cases(cell: Cell) -> Iterator[Case]:
    pairs = _identifiability(cell)
    for layer in range(pairs[0]["tvd"].shape[0]):
        for number, row in enumerate(ROWS):
            values = {name: np.array([pair[name][layer, number] for pair in pairs]) for name in pairs[0]}
            yield Case(values, {"layer": str(layer), "row": row})


def _change_cases(cell: Cell) -> Iterator[Case]:
    names = [name for name in ("change", "change_double") if IDENTIFIABILITY + name in cell.table.column_names]
    yield Case({name: column(cell, IDENTIFIABILITY + name) for name in names})


def _short(name: str) -> Callable[[Row], str]:
    """What a page writes of a number that may be small; a dash where it is undefined."""
    return lambda row: "–" if np.isnan(row[name]) else short_number(row[name])


IDENTIFIABILITY_TABLE = Table(
    name="cross_identifiability",
    cases=_identifiability_cases,
    by=(Key("layer", "layer"), Key("row", "row", lambda row: ROW_WORDS[row["row"]])),
    columns=(
        *counts("tvd", "pairs"),
        Mean("tvd_mean", "mean TVD reached [95 % interval]", of="tvd", interval=MAIN),
        Share("share_determined", "only one attention", of="tvd", interval=None, below=DETERMINED),
        Mean("width_mean", "width of a weight’s interval", of="width", interval=None),
        Mean("weight_mean", "largest weight", of="top", interval=None, optional=True),
        Mean("low_mean", "could be from", of="low", interval=None, optional=True),
        Mean("high_mean", "to", of="high", interval=None, optional=True),
        Mean("share_low_zero", "could be 0", of="zero", interval=None, optional=True),
    ),
    caption="Identifiability of cross-attention",
    note="Other attentions that leave the output of a head as it is, so that no prediction changes; tokens of source words "
    "exchange weights, markers keep theirs. TVD reached: total variation distance between a row and a far one of these, 0 "
    "the same; means over heads and target words of a pair, then over pairs. Only one attention: pairs whose rows are all "
    "determined. Largest weight: of each target word’s heaviest source word, and the ends of its interval; could be 0: "
    "share of these that need no weight at all. A head with values of d numbers determines attention over d + 1 tokens at "
    "most.",
)
CHANGE_TABLE = Table(
    name="cross_identifiability_change",
    cases=_change_cases,
    columns=(
        *counts("change", "pairs"),
        Largest("change_max", "largest change of a log probability", _short("change_max"), of="change"),
        Largest("change_double_max", "in float64", _short("change_double_max"), of="change_double"),
    ),
    caption="All rows replaced at once",
    note="When every row of all heads and layers has its far alternative: the largest change of the log probability of a "
    "target token, in nats. It is rounding, not an effect.",
)


def _identifiability_sentences(cell: Cell) -> list[str]:
    known = _identifiability(cell)
    tvd = np.mean([values["tvd"][:, 0].mean() for values in known])
    said = f"The rows that predict target words could be others, at a total variation distance of {tvd:.3f} on average, and "
    said += "nothing in the model would notice"
    if "top" in known[0]:
        top, low, high = (np.mean([values[name][:, 0].mean() for values in known]) for name in ("top", "low", "high"))
        said += (
            f"; the largest weight of a target word, {top:.2f} on average, could be anything from {low:.2f} to {high:.2f}"
        )
    return [f"{said}."] if tvd > DETERMINED else ["In every row that predicts a target word attention is the only one."]


CROSS_IDENTIFIABILITY = Section(
    name="cross_identifiability",
    source="after Brunner et al. (2020), section 3",
    place=9,
    chapter="interventions",
    needs=("target_tokens", *(IDENTIFIABILITY + name for name in ("low", "high", "tvd", "change"))),
    uses=(f"{IDENTIFIABILITY}*", ATTENTION),
    per_text=cross_identifiability,
    compared=True,
    tables=(IDENTIFIABILITY_TABLE, CHANGE_TABLE),
    sentences=_identifiability_sentences,
)
