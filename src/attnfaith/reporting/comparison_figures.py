"""Figures of what models of several kinds differ in, of tables and not of one cell."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from attnfaith.reporting.blocks import short_names
from attnfaith.reporting.pairings import KEYS
from attnfaith.reporting.style import PALETTE, QUIET_COLOUR, TEXT_COLOUR, own_style, titled_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = ("o", "D", "s", "^", "v", "P", "X")
PANEL, COLUMN = 2.1, 1.25
"""Width of a panel of intervals, and of a column of tiles, in inches."""
LETTERS_AN_INCH = 10
TILES = {"better": "#b3d7f0", "worse": "#f6c9a8", "cannot be told": "#f2f2f2"}
"""Colours of verdicts; the sign of the number says the same."""


def panels_of(table: pd.DataFrame, without: Sequence[str] = ("objective",)) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each kind of model under the shortest name that tells it from the others, in order of first appearance.

    without: columns of KEYS that name no kind.
    """
    keys = [name for name in KEYS if name not in without]
    parts = [part for _, part in table.groupby(keys, sort=False, dropna=False)]
    return list(zip(short_names([part.iloc[0] for part in parts], keys), parts, strict=True))


def _head(axes: "Axes", name: str, width: float) -> None:
    """The name over a panel of this width in inches, in as many lines as it needs; a dollar sign starts no formula."""
    axes.set_title("\n".join(textwrap.wrap(name, int(width * LETTERS_AN_INCH))), parse_math=False)


@own_style
def forest(table: pd.DataFrame, title: str, subject: str, note: str) -> "Figure":
    """The AUC of every test with its interval, a panel for each kind of model, a colour and a mark for each penalty.

    table: rows of all seeds of `uncovered_table`, of one data set. Full: of all texts; hollow: of texts matched by
    confidence. A test that a panel lacks has an empty line there. Controls stand below the line.
    """
    panels = panels_of(table)
    order = table.drop_duplicates("test")
    order = pd.concat([order[order["kind"] == "test"], order[order["kind"] == "control"]])
    lines = {name: place for place, name in enumerate(order["test"])}
    penalties = {name: place for place, name in enumerate(table["objective"].unique())}
    count = int(table["n_deceiving"].max() / max(1, table["n_seeds"].max()))
    figure = titled_figure(title, None, 3.4 + PANEL * len(panels), 2.0 + 0.3 * len(lines), subject=subject, count=count)
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for panel, (name, part) in zip(axes, panels, strict=True):
        _frame(panel, name, order, int((order["kind"] == "test").sum()))
        for row in part.to_dict("records"):
            number = penalties[row["objective"]]
            shift = (number - (len(penalties) - 1) / 2) * 0.4 / max(1, len(penalties) - 1)
            _interval(panel, row, "", lines[row["test"]] + shift - 0.08, number)
            _interval(panel, row, "matched_", lines[row["test"]] + shift + 0.08, number)
    handles = [
        axes[0].plot([], [], MARKERS[place % len(MARKERS)], color=PALETTE[place % len(PALETTE)], label=_penalty(name))[0]
        for name, place in penalties.items()
    ]
    handles.append(
        axes[0].plot([], [], "o", color=QUIET_COLOUR, markerfacecolor="white", label="hollow: matched by confidence")[0]
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=1 + len(panels), title=note, labelspacing=0.8)
    return figure


def _penalty(objective: str) -> str:
    return objective.removeprefix("classification(").removesuffix(")").replace("$", r"\$")


def _frame(axes: "Axes", name: str, order: pd.DataFrame, tests: int) -> None:
    _head(axes, name, PANEL)
    axes.set_yticks(range(len(order)), [label.replace("$", r"\$") for label in order["label"]])
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
    axes.set_xlabel("AUC")
    axes.axvline(0.5, color="#777777", linewidth=1)
    axes.axhline(tests - 0.5, color="#999999", linewidth=1, linestyle=":")
    axes.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)


def _interval(axes: "Axes", row: Mapping, start: str, place: float, number: int) -> None:
    colour, value = PALETTE[number % len(PALETTE)], row[f"{start}auc"]
    if pd.isna(value):
        return
    axes.hlines(place, row[f"{start}ci_low"], row[f"{start}ci_high"], color=colour, linewidth=1.4, alpha=0.8)
    face = "white" if start else colour
    mark = MARKERS[number % len(MARKERS)]
    axes.plot([value], [place], mark, markersize=5, color=colour, markerfacecolor=face, markeredgewidth=1.2)


@own_style
def tiles(table: pd.DataFrame, title: str, subject: str, note: str) -> "Figure":
    """What each intervention changes in each test: a line for each test, a column for each intervention, a panel for each
    kind of plain model. In a tile the difference, its colour the verdict. table: of `interventions_table`, one data set.
    """
    panels = panels_of(table, ("objective", "projection"))
    order = table.drop_duplicates("test")
    lines = {name: place for place, name in enumerate(order["test"])}
    widths = [part["intervention"].nunique() for _, part in panels]
    count = int((table["n_texts"] / table["n_seeds"].clip(lower=1)).max())
    figure = titled_figure(title, None, 3.6 + COLUMN * sum(widths), 2.4 + 0.3 * len(lines), subject=subject, count=count)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False, width_ratios=widths)[0]
    for panel, (name, part) in zip(axes, panels, strict=True):
        columns = {intervention: place for place, intervention in enumerate(part["intervention"].unique())}
        _head(panel, name, COLUMN * len(columns))
        panel.set_xlim(-0.5, len(columns) - 0.5)
        panel.set_ylim(len(lines) - 0.5, -0.5)
        panel.set_xticks(range(len(columns)), [name.replace("$", r"\$") for name in columns], rotation=35, ha="right")
        panel.set_yticks(range(len(lines)), [label.replace("$", r"\$") for label in order["label"]])
        panel.tick_params(length=0)
        for side in panel.spines.values():
            side.set_visible(False)
        for row in part.to_dict("records"):
            if not pd.isna(row["difference"]):
                _tile(panel, row, columns[row["intervention"]], lines[row["test"]])
    figure.supxlabel(note, fontsize=10, color=QUIET_COLOUR)
    return figure


def _tile(axes: "Axes", row: Mapping, column: int, line: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((column - 0.48, line - 0.46), 0.96, 0.92, facecolor=TILES.get(row["verdict"], "white"), linewidth=0)
    )
    told = row["verdict"] in ("better", "worse")
    text = f"{row['difference']:+.3f}".replace("-", "−")
    weight, colour = ("bold", TEXT_COLOUR) if told else ("normal", QUIET_COLOUR)
    axes.text(column, line, text, ha="center", va="center", fontsize=9, fontweight=weight, color=colour)
