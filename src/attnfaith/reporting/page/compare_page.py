"""Models side by side on one page: what differs, by the numbers of `reporting.compare`, and the same texts under each.

The page is one file that needs nothing else. Every sentence is put together from the numbers of the comparison.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.reporting.blocks import Grid, template
from attnfaith.reporting.cells import Cell, measure_label, name_class, quantity_label
from attnfaith.reporting.compare import UNTOLD, Comparison
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.page.chart import OTHER, Bar, Chart, svg
from attnfaith.reporting.page.heatmap import (
    HUES,
    NEGATIVE_HUE,
    OTHER_HUE,
    PAPER,
    SHORTEST_EXAMPLE,
    Example,
    example,
    shades,
)
from attnfaith.reporting.sections.agreement import reference_measure


MOST_SIDES = 4  # whose texts are shown
MOST_SHOWN = 120  # tokens of one text
MOST_NAMED = 4  # differences in the sentence
CONTENTS = [("answer", "Answer"), ("texts", "Texts"), ("tables", "Tables"), ("made", "How it was made")]


@dataclasses.dataclass(frozen=True)
class Together:
    """One text under every model. text: its rows are the measures of all models, one model after the other. predictions:
    (model, class, its probability, tau of attention and the measure beside it) each. distance: TVD of attention from that of
    the first model, of each other.
    """

    text: Example
    predictions: tuple[tuple[str, str, str, str], ...]
    distances: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Difference:
    """What the comparison says of one side against the first. chart: of rank correlations; None where there are none."""

    sentence: str
    chart: Markup | None


def comparison_page(made: Comparison, *, n_examples: int = 5) -> str:
    """The page's HTML. n_examples: texts whose attention differs most, and as many of the middle.

    Raises ReportError for n_examples below 1.
    """
    if n_examples < 1:
        raise ReportError(f"n_examples is {n_examples}; a page of a comparison shows at least 1 text")
    hues = [*enumerate((*HUES.values(), OTHER_HUE, NEGATIVE_HUE))]
    groups, measures, left = ((), (), ()) if made.cells[0].of_sequences else _texts(made, n_examples)
    return template("compare.html.j2").render(
        title=f"{' and '.join(made.sides) if len(made.sides) == 2 else f'{len(made.sides)} models'}: what differs?",
        version=__version__,
        contents=CONTENTS if groups else [part for part in CONTENTS if part[0] != "texts"],
        scripts=(),
        differences=[
            _difference(rows.to_dict("records"), made, f"chart-{place}")
            for place, (_, rows) in enumerate(made.frame.groupby("second", sort=False))
        ],
        grids=[_grid(*block) for block in made.blocks],
        notes=made.notes,
        groups=groups,
        measures=measures,
        left=left,
        themes={theme: [(place, shades(hue, theme)) for place, hue in hues] for theme in PAPER},
        paper=PAPER,
        negative=len(HUES) + 1,
    )


def _difference(rows: Sequence[Mapping], made: Comparison, key: str) -> Difference:
    """The sentence names the first MOST_NAMED differences that are told, and counts what is not."""
    first, second = made.sides[0], rows[0]["second"]
    told = [row for row in rows if row["verdict"] in ("higher", "lower")]
    named = [f"{quantity_label(row['quantity'])} is {row['verdict']} ({_with_bounds(row)})" for row in told[:MOST_NAMED]]
    said = "; ".join(named) or "no difference is told"
    more = f"; {len(told) - MOST_NAMED} more are in the table" if len(told) > MOST_NAMED else ""
    untold = sum(row["verdict"] == UNTOLD for row in rows)
    rest = (
        f" Of {len(rows)} numbers {untold} cannot be told apart, which is not to say that they are equal." if untold else ""
    )
    return Difference(f"{second} against {first}, on {made.n_texts:,} texts: {said}{more}.{rest}", _chart(rows, key))


def _with_bounds(row: Mapping) -> str:
    value, low, high = (f"{row[name]:+.3f}".replace("-", "−") for name in ("difference", "ci_low", "ci_high"))
    return f"{value} [{low}, {high}]"


def _chart(rows: Sequence[Mapping], key: str) -> Markup | None:
    bars = tuple(
        Bar(quantity_label(row["quantity"].removeprefix("tau ")), row["difference"], row["ci_low"], row["ci_high"], OTHER)
        for row in rows
        if row["quantity"].startswith("tau ") and not np.isnan(row["difference"])
    )
    if not bars:
        return None
    axis = f"Difference of τ, {rows[0]['second']} − {rows[0]['first']}"
    return svg(Chart("Which orders of tokens are more alike?", axis, bars, 0.0, 0, mark="no difference"), key)


def _grid(title: str, headings: tuple[str, ...], lines: list[tuple[str, ...]]) -> Grid:
    return Grid(title, headings, tuple(lines), 1)


# ------------------------------------------------------------------------------------------------ texts


def _texts(made: Comparison, count: int) -> tuple[tuple, tuple, tuple]:
    """(heading, texts) of each group; (hue, name) of the rows of a text; sides whose texts are not shown."""
    sides, cells = made.sides[:MOST_SIDES], made.cells[:MOST_SIDES]
    beside = _beside(cells)
    places = [{name: row for row, name in enumerate(cell.instance_ids)} for cell in cells]
    far = np.array([_furthest(cells, [place[name] for place in places]) for name in made.texts])
    lengths = np.array([cells[0].lengths[places[0][name]] for name in made.texts])
    fitting = np.flatnonzero((lengths >= SHORTEST_EXAMPLE) & ~np.isnan(far))
    fitting = fitting if len(fitting) else np.flatnonzero(~np.isnan(far))
    order = sorted(fitting, key=lambda place: (-far[place], made.texts[place]))
    most = order[:count]
    median = np.median(far[fitting]) if len(fitting) else np.nan
    rest = sorted(order[count:], key=lambda place: (abs(far[place] - median), made.texts[place]))[:count]
    names = ["attention", *([beside] if beside else [])]

    def together(chosen: Sequence[int]) -> tuple[Together, ...]:
        ids = [made.texts[place] for place in chosen]
        return tuple(_together(sides, cells, [place[name] for place in places], names) for name in ids)

    heads = ("Attention differs most", "Attention differs as in the middle of all texts")
    groups = tuple((head, together(rows)) for head, rows in zip(heads, (most, rest), strict=True) if rows)
    hues = [*HUES]
    kinds = tuple(hues.index(name) if name in hues else len(hues) for name in names)
    return groups, tuple((kind, "") for _ in sides for kind in kinds), made.sides[MOST_SIDES:]


def _beside(cells: Sequence[Cell]) -> str | None:
    """The measure that is shown beside attention: what attention of the first is held against, if all models have it."""
    name = reference_measure(cells[0])
    return name if all(name in cell.measures for cell in cells) else None


def _furthest(cells: Sequence[Cell], rows: Sequence[int]) -> float:
    """The largest TVD of a model's attention from that of the first; NaN of a text without tokens."""
    own, *others = (cell.attention[row].astype(np.float64) for cell, row in zip(cells, rows, strict=True))
    return max(float(np.abs(one - own).sum() / 2) for one in others) if len(own) else np.nan


def _together(sides: Sequence[str], cells: Sequence[Cell], rows: Sequence[int], names: Sequence[str]) -> Together:
    shown = [example(cell, row, names) for cell, row in zip(cells, rows, strict=True)]
    labels = tuple(f"{measure_label(name)}, {side}" for side in sides for name in names)
    tokens = tuple(
        dataclasses.replace(same[0], scores=tuple(score for one in same for score in one.scores))
        for same in zip(*(one.tokens for one in shown), strict=True)
    )
    predictions = []
    for side, cell, row, one in zip(sides, cells, rows, shown, strict=True):
        tau = f"{cell.tau('attention', names[1])[row]:.2f}".replace("-", "−") if len(names) > 1 else ""
        named = name_class(str(one.predicted), cell.class_names)
        predictions.append((side, named, f"{one.probability:.2f}", "undefined" if tau == "nan" else tau))
    others = zip(sides[1:], cells[1:], rows[1:], strict=True)
    far = [(side, f"{_furthest([cells[0], cell], [rows[0], row]):.2f}") for side, cell, row in others]
    text = dataclasses.replace(shown[0], measures=labels, tokens=tokens[:MOST_SHOWN])
    return Together(text, tuple(predictions), tuple(far))
