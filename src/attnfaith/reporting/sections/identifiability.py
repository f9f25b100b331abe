"""How far attention is from being determined, from the columns of `identifiability`.

Per text: the total variation distance (TVD, 0..1) between the model's attention and the furthest other one that was reached
and changes nothing in what the model reads; a bound that none exceeds; and the interval of the weight of the most attended
token. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.figures import grid_behind
from attnfaith.reporting.render import interval_in_words, left_out
from attnfaith.reporting.spec import Drawing, Quantity, Section, per_cell
from attnfaith.reporting.style import ATTENTION, PALETTE, mean_in_words, note, own_style, titled_figure
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGIN = "identifiability_"
NUMBERS = ("tvd", "bound", "support", "top_attention", "top_low", "logit_change")
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """identifiability_tvd and _bound of each text, _exact: whether they meet; _weight, _low, _high and _width: weight of its
    most attended token (the first of equal ones), the ends of the interval and its width; _support: the fewest tokens with
    weight that suffice.
    """
    values = {name: cell.column(BEGIN + name) for name in NUMBERS}
    certainty = np.array(cell.table.column(f"{BEGIN}certainty").to_pylist(), dtype=object)
    values["exact"] = np.where(np.isnan(values["tvd"]), np.nan, certainty == "exact")
    columns = {"weight": cell.attention, "low": cell.rows(f"{BEGIN}low"), "high": cell.rows(f"{BEGIN}high")}
    for name, rows in columns.items():
        pairs = zip(rows, cell.attention, strict=True)
        values[name] = np.array([row[own.argmax()] if len(own) > 1 else np.nan for row, own in pairs], np.float64)
    values["width"] = values["high"] - values["low"]
    return {BEGIN + name: numbers for name, numbers in values.items()}


@own_style
def by_length(cell: Cell) -> "Figure":
    """The TVD reached by each text against its number of tokens; and the interval of its largest weight."""
    values = per_text(cell)
    figure = titled_figure("How far attention is from being determined", cell, 9.0, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    defined = ~np.isnan(values[f"{BEGIN}tvd"])
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
    overall = (row for row in SECTION.summary(cell) if row["class"] == "overall")
    rows = {row["quantity"].removeprefix(BEGIN): row for row in overall}
    tvd = rows["tvd"]
    if not tvd["n"]:
        yield f"No text has two tokens, so attention could not be anything else ({tvd['n_undefined']:,} undefined)."
        return
    yield (
        f"The weight of a text’s most attended token is {rows['weight']['mean']:.2f} on average over {counted(tvd['n'])}; "
        f"it could be anything from {rows['low']['mean']:.2f} to {rows['high']['mean']:.2f} and nothing in the model would "
        f"notice. An attention at a total variation distance of {tvd['mean']:.3f}{interval_in_words(tvd)} or more from the "
        f"model’s own changes nothing in what it reads; in {tvd['share_beyond']:.0%} of the texts there is only one "
        f"attention.{left_out(tvd['n_undefined'])}"
    )
    largest = np.nanmax(per_text(cell)[f"{BEGIN}logit_change"])
    yield f"Under the furthest attention reached no logit changes by more than {largest:.1e}."


SECTION = Section(
    name="identifiability",
    source="after Brunner et al. (2020), section 3",
    place=65,
    chapter="interventions",
    needs=("probs", "attention", *(BEGIN + name for name in (*NUMBERS, "low", "high", "attention", "certainty"))),
    per_text=per_text,
    compared=(*(BEGIN + name for name in (*NUMBERS, "weight", "low", "high", "width")),),
    by_class=True,
    quantities={
        f"{BEGIN}tvd": Quantity("TVD reached (determined: below)", below=DETERMINED),
        f"{BEGIN}bound": Quantity("proved bound of the TVD"),
        f"{BEGIN}exact": Quantity("reached and bound meet"),
        f"{BEGIN}weight": Quantity("largest weight"),
        f"{BEGIN}low": Quantity("the least it could be", below=DETERMINED),
        f"{BEGIN}high": Quantity("the most it could be"),
        f"{BEGIN}width": Quantity("width of its interval"),
        f"{BEGIN}top_attention": Quantity("largest weight of the furthest attention"),
        f"{BEGIN}top_low": Quantity("the least that the largest weight could be"),
        f"{BEGIN}support": Quantity("tokens that suffice"),
        f"{BEGIN}logit_change": Quantity("largest change of a logit"),
    },
    caption="Identifiability of attention",
    note="Other attentions that change nothing in what the model reads of attention, so that no prediction changes. TVD "
    "reached: total variation distance to the furthest one that was reached, 1 no weight in common; none is further than "
    "the proved bound. Largest weight: of the most attended token, and the ends of its interval. Tokens that suffice: the "
    "fewest with weight in an equivalent attention that was met. Change of a logit: measured under the furthest one; it is "
    "rounding. Undefined: texts of fewer than two tokens.",
    figure=Drawing("identifiability_by_length", by_length, _figure_words),
    sentences=_sentences,
)
