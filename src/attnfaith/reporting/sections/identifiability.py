"""How far attention is from being determined: what a record's `identifiability_...` columns say.

Per text: the total variation distance (TVD, 0..1) between the model's attention and the furthest one that was reached and
leaves what the model reads of it as it is; a bound that none exceeds; and the interval of the weight of the most attended
token. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, one_cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.figures import Drawn
from attnfaith.reporting.page.heatmap import HUES, MOST_TOKENS, Score, direction_of, visible
from attnfaith.reporting.sections.adversary import extreme_texts, weight_scores
from attnfaith.reporting.spec import (
    MAIN,
    Bins,
    Case,
    Classes,
    Key,
    Largest,
    Mean,
    Median,
    Section,
    Sentence,
    Share,
    Table,
    counts,
    per_cell,
)
from attnfaith.reporting.style import ATTENTION, PALETTE, mean_in_words, note, own_style, titled_figure


if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGIN = "identifiability_"
LAYERS = f"{BEGIN}layer_tvd"
COLUMNS = ("low", "high", "attention", "tvd", "bound", "certainty", "support", "top_attention", "top_low", "logit_change")
NUMBERS = ("tvd", "bound", "support", "top_attention", "top_low", "logit_change")
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps
LENGTHS = (16, 32, 64, 128, 256)
LENGTH_BINS = ("fewer than 16", "16 to 31", "32 to 63", "64 to 127", "128 to 255", "256 or more")
SENTENCES = 3  # on single weights of one text


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """identifiability_tvd and identifiability_bound of each text; identifiability_weight, _low, _high and _width: weight of
    its most attended token (the first of equal ones), the ends of the interval and its width.
    """
    values = {f"{BEGIN}{name}": column(cell, BEGIN + name) for name in NUMBERS}
    ends = {name: records.rows(cell.table, f"{BEGIN}{name}") for name in ("low", "high")}
    for name, rows in {"weight": cell.attention, **ends}.items():
        values[f"{BEGIN}{name}"] = np.full(len(cell), np.nan)
        for row, own in enumerate(cell.attention):
            if len(own) > 1:
                values[f"{BEGIN}{name}"][row] = rows[row][own.argmax()]
    values[f"{BEGIN}width"] = values[f"{BEGIN}high"] - values[f"{BEGIN}low"]
    return values


def _cases(cell: Cell) -> Iterator[Case]:
    values = {name.removeprefix(BEGIN): numbers for name, numbers in per_text(cell).items()}
    certainty = np.array(cell.table.column("identifiability_certainty").to_pylist(), dtype=object)
    defined = ~np.isnan(values["tvd"])
    if f"{BEGIN}logit_change_double" in cell.table.column_names:
        values["logit_change_double"] = column(cell, f"{BEGIN}logit_change_double")
    values["exact"] = np.where(defined, certainty == "exact", np.nan)
    yield Case({**values, "length": cell.lengths.astype(np.float64)})


_TVD = Mean("tvd_mean", "mean TVD reached [95 % interval]", of="tvd", interval=MAIN)
_DETERMINED = Share("share_determined", "only one attention", of="tvd", interval=None, below=DETERMINED)
WHOLE = Table(
    name="identifiability",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("tvd"),
        _TVD,
        Median("tvd_median", "median", of="tvd"),
        Mean("bound_mean", "proved bound", of="bound", interval=None),
        Mean("share_exact", "exact", of="exact", interval=None),
        _DETERMINED,
        Mean("weight_mean", "largest weight", of="weight", interval=None),
        Mean("low_mean", "could be from", of="low", interval=None),
        Mean("high_mean", "to", of="high", interval=None),
        Share("share_low_zero", "could be 0", of="low", interval=None, below=DETERMINED),
        Mean("top_attention_mean", of="top_attention", interval=None),
        Mean("top_low_mean", of="top_low", interval=None),
        Mean("support_mean", "tokens that suffice", of="support", interval=None),
        Largest("logit_change_max", "largest change of a logit", of="logit_change"),
        Largest("logit_change_double_max", "in float64", of="logit_change_double", optional=True),
    ),
    caption="Identifiability of attention",
    note="Other attentions that leave what the model reads of attention as it is, so that no prediction changes. TVD "
    "reached: total variation distance between the model’s attention and the furthest such one that was reached, 0 the "
    "same, 1 no weight in common; the proved bound: none is further; exact: texts where the two are known to meet. Only one "
    "attention: texts whose attention is determined. Largest weight: of the most attended token, and the ends of its "
    "interval, means over texts; could be 0: texts where that token needs no weight at all. Tokens that suffice: the "
    "fewest with weight in an equivalent attention that was met. Largest change of a logit: measured, when the model is "
    "given the furthest one; what is not 0 is rounding, unless the record was made with an epsilon. Undefined: texts of "
    "fewer than two tokens; they are in no mean.",
)
BY_LENGTH = Table(
    name="identifiability_by_length",
    cases=_cases,
    by=(Bins("length", "tokens", of="length", edges=LENGTHS, labels=LENGTH_BINS),),
    columns=(
        *counts("tvd"),
        _TVD,
        Mean("bound_mean", "proved bound", of="bound", interval=None),
        _DETERMINED,
        Mean("weight_mean", "largest weight", of="weight", interval=None),
        Mean("low_mean", "could be from", of="low", interval=None),
        Mean("high_mean", "to", of="high", interval=None),
    ),
    caption="Identifiability by length",
    note="The same, by the number of tokens of the text: a sum of d numbers determines attention over d + 1 tokens at most.",
    page_rows=lambda df: df[df["n"] + df["n_undefined"] > 0],
)


def _layer_cases(cell: Cell) -> Iterator[Case]:
    """A case for each layer of a model with attention maps; none of another model."""
    if LAYERS not in cell.table.column_names:
        return
    distances, counts = (records.rows(cell.table, name) for name in (LAYERS, f"{BEGIN}layer_rows"))
    for layer in range(max(map(len, distances), default=0)):
        values = {"tvd": distances, "rows": counts}
        yield Case(
            {name: np.array([one[layer] if len(one) else np.nan for one in rows], float) for name, rows in values.items()},
            {"layer": layer},
        )


BY_LAYER = Table(
    name="identifiability_by_layer",
    cases=_layer_cases,
    by=(Key("layer", "layer"),),
    columns=(
        *counts("tvd"),
        Mean("tvd_mean", "mean TVD reached [95 % interval]", of="tvd", interval=MAIN),
        Median("tvd_median", "median", of="tvd"),
        _DETERMINED,
        Mean("rows_mean", "rows replaced", of="rows", interval=None),
    ),
    caption="Identifiability by layer",
    note="Per text and layer, the total variation distance between the attention of a row and another one that leaves the "
    "output of its head as it is, mean over all heads and all rows that the logits depend on. All of them, in all layers, "
    "were replaced at once when the change of the logits was measured. Layers are counted from 0.",
)


@own_style
def by_length(record) -> "Figure":
    """The TVD reached by each text against its number of tokens; and the interval of its largest weight.

    Raises ValueError where the record holds more than one cell.
    """
    cell = one_cell(record)
    values = per_text(cell)
    figure = titled_figure("How far attention is from being determined", cell, 9.0, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    defined = ~np.isnan(values["identifiability_tvd"])
    lengths = cell.lengths[defined]
    tvd, own, low, high = (values[f"{BEGIN}{name}"][defined] for name in ("tvd", "weight", "low", "high"))
    upper.scatter(lengths, tvd, s=14, color=PALETTE[1], alpha=0.6, linewidths=0)
    upper.set_ylabel("TVD to the furthest reached")
    lower.vlines(lengths, low, high, color=PALETTE[1], alpha=0.35, linewidth=1.2)
    lower.scatter(lengths, own, s=14, color=ATTENTION, alpha=0.8, linewidths=0)
    lower.set_ylabel("largest weight and its interval")
    lower.set_xlabel("tokens of the text")
    for axes, top in ((upper, 1.0), (lower, max(high.max(initial=0.0), 1e-3))):
        axes.set_ylim(-0.02 * top, 1.02 * top)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
    if not defined.any():
        note(upper, "no text has two tokens")
    return figure


def _figure_words(cell: Cell) -> tuple[str, str]:
    values = per_text(cell)
    alt = (
        "Total variation distance to the furthest equivalent attention of each text against its number of tokens: "
        f"{mean_in_words(values['identifiability_tvd'])}; interval of its largest weight: mean width "
        f"{mean_in_words(values['identifiability_width']).removeprefix('mean ')}."
    )
    caption = (
        "Above: how far an attention that the model cannot tell from its own is away, a point for each text. Below: the "
        "largest weight of each text, and the line of all that it could be."
    )
    return alt, caption


@dataclass(frozen=True)
class Weight:
    """One token's weight, and what it could be, as the page says it."""

    token: str
    own: str
    low: str
    high: str


@dataclass(frozen=True)
class Alternative:
    """One text with its own attention and another, as the page shows it."""

    instance_id: str
    sentences: tuple[Weight, ...]
    distance: str
    known: str
    tokens: tuple[tuple[str, tuple[Score, Score]], ...]
    length: int
    direction: str


def _part(cell: Cell, n_examples: int) -> str:
    """Texts with what their largest weights could be, as safe HTML; "" where attention is determined in all of them.

    Shown are the texts with the widest intervals of the most attended token. Equal ones: by instance id.
    """
    width, tvd = (per_text(cell)[f"{BEGIN}{name}"] for name in ("width", "tvd"))
    chosen, rule = extreme_texts(cell, tvd > DETERMINED, width, n_examples)
    if not chosen:
        return ""
    rule += " whose largest weight has the widest interval: the extremes, not a sample."
    return template("identifiability.html.j2").render(
        rule=rule,
        texts=[_alternative(cell, row) for row in chosen],
        hues=(list(HUES).index("attention"), len(HUES)),
        of_sentences=cell.words is not None,
    )


def _alternative(cell: Cell, row: int) -> Alternative:
    part, own = cell.table.slice(row, 1), cell.attention[row]
    low, high, other = (records.rows(part, f"{BEGIN}{name}")[0] for name in ("low", "high", "attention"))
    tokens = [visible(token) for token in part.column("tokens")[0].as_py()]
    largest = np.argsort(-own, kind="stable")[:SENTENCES]
    exact = part.column("identifiability_certainty")[0].as_py() == "exact"
    return Alternative(
        instance_id=visible(cell.instance_ids[row]),
        sentences=tuple(Weight(tokens[place], *(f"{v[place]:.2f}" for v in (own, low, high))) for place in largest),
        distance=f"{per_text(cell)[f'{BEGIN}tvd'][row]:.3f}",
        known=", the largest there is" if exact else f"; none is above {per_text(cell)[f'{BEGIN}bound'][row]:.3f}",
        tokens=tuple(
            zip(tokens, zip(weight_scores(own, "attention"), weight_scores(other, "alternative"), strict=True), strict=True)
        )[:MOST_TOKENS],
        length=len(own),
        direction=direction_of(tokens),
    )


SECTION = Section(
    name="identifiability",
    source="after Brunner et al. (2020), section 3",
    place=65,
    chapter="interventions",
    needs=("probs", "attention", *(f"{BEGIN}{name}" for name in COLUMNS)),
    uses=(f"{BEGIN}layer_*", f"{BEGIN}logit_change_double"),
    per_text=per_text,
    compared=True,
    tables=(WHOLE, BY_LENGTH, BY_LAYER),
    figures=(Drawn("identifiability_by_length", figure=by_length, describe=_figure_words),),
    sentences=Sentence(
        WHOLE,
        text="The weight of a text’s most attended token is {row[weight_mean]:.2f} on average over {texts}; it "
        "could be anything from {row[low_mean]:.2f} to {row[high_mean]:.2f} and nothing in the model would notice. An "
        "attention at a total variation distance of {row[tvd_mean]:.3f}{interval} or more from the model’s own leaves what "
        "it reads as it is; in {row[share_determined]:.0%} of the texts there is only one attention.",
        left_out="Left out because they have fewer than two tokens: {row[n_undefined]:,}.",
        nothing="No text has two tokens, so attention could not be anything else ({row[n_undefined]:,} undefined).",
    ),
    part=_part,
)
