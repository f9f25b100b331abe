"""How far attention is from being determined: what a record's `identifiability_...` columns say.

Per text: the total variation distance (TVD, 0..1) between the model's attention and the furthest one that was reached and
leaves what the model reads of it as it is; a bound that none exceeds; and the interval of the weight of the most attended
token. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.blocks import CLASS_COLUMN
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.figures import grid_behind
from attnfaith.reporting.render import interval_in_words, rows
from attnfaith.reporting.spec import Drawing, Row, Section, Table, bin_of, counts, main, per_cell, plain, share
from attnfaith.reporting.style import ATTENTION, PALETTE, mean_in_words, note, own_style, titled_figure
from attnfaith.stats import estimate


if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGIN = "identifiability_"
LAYERS = f"{BEGIN}layer_tvd"
COLUMNS = ("low", "high", "attention", "tvd", "bound", "certainty", "support", "top_attention", "top_low", "logit_change")
NUMBERS = ("tvd", "bound", "support", "top_attention", "top_low", "logit_change")
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps
LENGTHS = (16, 32, 64, 128, 256)
LENGTH_BINS = ("fewer than 16", "16 to 31", "32 to 63", "64 to 127", "128 to 255", "256 or more")


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """identifiability_tvd and identifiability_bound of each text; identifiability_weight, _low, _high and _width: weight of
    its most attended token (the first of equal ones), the ends of the interval and its width.
    """
    values = {f"{BEGIN}{name}": column(cell, BEGIN + name) for name in NUMBERS}
    ends = {name: records.rows(cell.table, f"{BEGIN}{name}") for name in ("low", "high")}
    for name, of_texts in {"weight": cell.attention, **ends}.items():
        values[f"{BEGIN}{name}"] = np.full(len(cell), np.nan)
        for row, own in enumerate(cell.attention):
            if len(own) > 1:
                values[f"{BEGIN}{name}"][row] = of_texts[row][own.argmax()]
    values[f"{BEGIN}width"] = values[f"{BEGIN}high"] - values[f"{BEGIN}low"]
    return values


# ---------- tables


@per_cell
def _values(cell: Cell) -> dict[str, np.ndarray]:
    """The numbers that tables summarise, by their names without a start."""
    values = {name.removeprefix(BEGIN): numbers for name, numbers in per_text(cell).items()}
    certainty = np.array(cell.table.column("identifiability_certainty").to_pylist(), dtype=object)
    values["exact"] = np.where(np.isnan(values["tvd"]), np.nan, certainty == "exact")
    if f"{BEGIN}logit_change_double" in cell.table.column_names:
        values["logit_change_double"] = column(cell, f"{BEGIN}logit_change_double")
    return values


def _reach(tvd: np.ndarray) -> dict[str, float]:
    return counts(tvd) | main("tvd_mean", tvd)


def _weights(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    numbers = {"bound_mean": values["bound"], "share_determined": share(values["tvd"], below=DETERMINED)}
    return plain(**numbers, weight_mean=values["weight"], low_mean=values["low"], high_mean=values["high"])


def _largest(values: np.ndarray) -> float:
    return float(np.fmax.reduce(values, initial=-np.inf)) if not np.isnan(values).all() else np.nan


def _rows(cell: Cell) -> Iterator[Row]:
    for label, members in cell.classes:
        values = {name: numbers[members] for name, numbers in _values(cell).items()}
        row = {"class": label} | _reach(values["tvd"]) | estimate("tvd_median", values["tvd"], np.median) | _weights(values)
        row |= plain(share_exact=values["exact"], share_low_zero=share(values["low"], below=DETERMINED))
        row |= plain(
            top_attention_mean=values["top_attention"], top_low_mean=values["top_low"], support_mean=values["support"]
        )
        changes = (name for name in ("logit_change", "logit_change_double") if name in values)
        yield row | {f"{name}_max": _largest(values[name]) for name in changes}


def _length_rows(cell: Cell) -> Iterator[Row]:
    place = bin_of(cell.lengths.astype(np.float64), LENGTHS)
    for number, label in enumerate(LENGTH_BINS):
        values = {name: numbers[place == number] for name, numbers in _values(cell).items()}
        yield {"tokens": label} | _reach(values["tvd"]) | _weights(values)


def _layer_rows(cell: Cell) -> Iterator[Row]:
    """A row for each layer of a model with attention maps; none of another model."""
    for layer, values in by_layer(cell).items():
        row = {"layer": layer} | _reach(values["tvd"]) | estimate("tvd_median", values["tvd"], np.median)
        yield row | plain(share_determined=share(values["tvd"], below=DETERMINED), rows_mean=values["rows"])


@per_cell
def by_layer(cell: Cell) -> dict[str, dict[str, np.ndarray]]:
    """Of each layer of attention maps tvd, the mean of its rows in a text, and rows, how many of them were replaced, [N]."""
    if LAYERS not in cell.table.column_names:
        return {}
    both = {"tvd": records.rows(cell.table, LAYERS), "rows": records.rows(cell.table, f"{BEGIN}layer_rows")}
    count = max(map(len, both["tvd"]), default=0)
    return {
        str(layer): {name: np.array([row[layer] if len(row) else np.nan for row in of], float) for name, of in both.items()}
        for layer in range(count)
    }


REACHED = {"n": "texts", "n_undefined": "undefined", "tvd_mean": "mean TVD reached [95 % interval]"}
WEIGHTS = {
    "bound_mean": "proved bound",
    "share_determined": "only one attention",
    "weight_mean": "largest weight",
    "low_mean": "could be from",
    "high_mean": "to",
}
WHOLE = Table(
    name="identifiability",
    rows=_rows,
    shown={
        "class": CLASS_COLUMN,
        **REACHED,
        "tvd_median": "median",
        **WEIGHTS,
        "share_exact": "exact",
        "share_low_zero": "could be 0",
        "support_mean": "tokens that suffice",
        "logit_change_max": "largest change of a logit",
        "logit_change_double_max": "in float64",
    },
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
    rows=_length_rows,
    shown={"tokens": "tokens", **REACHED, **WEIGHTS},
    caption="Identifiability by length",
    note="The same, by the number of tokens of the text: a sum of d numbers determines attention over d + 1 tokens at most.",
    page_rows=lambda df: df[df["n"] + df["n_undefined"] > 0],
)
BY_LAYER = Table(
    name="identifiability_by_layer",
    rows=_layer_rows,
    shown={
        "layer": "layer",
        **REACHED,
        "tvd_median": "median",
        "share_determined": "only one attention",
        "rows_mean": "rows replaced",
    },
    caption="Identifiability by layer",
    note="Per text and layer, the total variation distance between the attention of a row and another one that leaves the "
    "output of its head as it is, mean over all heads and all rows that the logits depend on. All of them, in all layers, "
    "were replaced at once when the change of the logits was measured. Layers are counted from 0.",
)


# ---------- figure and sentences


@own_style
def by_length(cell: Cell) -> "Figure":
    """The TVD reached by each text against its number of tokens; and the interval of its largest weight."""
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
        grid_behind(axes, "y").set_ylim(-0.02 * top, 1.02 * top)
    if not defined.any():
        note(upper, "no text has two tokens")
    return figure


def _figure_words(cell: Cell) -> tuple[str, str]:
    tvd, width = (mean_in_words(per_text(cell)[f"{BEGIN}{name}"]) for name in ("tvd", "width"))
    alt = (
        "Total variation distance to the furthest equivalent attention of each text against its number of tokens: "
        f"{tvd}; width of the interval of its largest weight: {width}."
    )
    caption = (
        "Above: how far an attention that the model cannot tell from its own is away, a point for each text. Below: the "
        "largest weight of each text, and the line of all that it could be."
    )
    return alt, caption


def _sentences(cell: Cell) -> Iterator[str]:
    row = rows(WHOLE, cell)[0]
    if not row["n"]:
        yield f"No text has two tokens, so attention could not be anything else ({row['n_undefined']:,} undefined)."
        return
    left_out = f" Left out because they have fewer than two tokens: {row['n_undefined']:,}." if row["n_undefined"] else ""
    yield (
        f"The weight of a text’s most attended token is {row['weight_mean']:.2f} on average over {row['n']:,} texts; it "
        f"could be anything from {row['low_mean']:.2f} to {row['high_mean']:.2f} and nothing in the model would notice. An "
        f"attention at a total variation distance of {row['tvd_mean']:.3f}{interval_in_words(row)} or more from the model’s "
        f"own leaves what it reads as it is; in {row['share_determined']:.0%} of the texts there is only one attention."
        f"{left_out}"
    )


SECTION = Section(
    name="identifiability",
    source="after Brunner et al. (2020), section 3",
    place=65,
    chapter="interventions",
    needs=("probs", "attention", *(f"{BEGIN}{name}" for name in COLUMNS)),
    uses=(f"{BEGIN}layer_*", f"{BEGIN}logit_change_double"),
    per_text=per_text,
    tables=(WHOLE, BY_LENGTH, BY_LAYER),
    figures=(Drawing("identifiability_by_length", by_length, _figure_words),),
    sentences=_sentences,
)
