"""The data that a figure shows, read off its marks: what a reader needs to draw it anew, or to check it.

A row for each point, corner, bar, cell of an image or written number, in the units of its axes. It is read from the figure
itself, so it is what was drawn and nothing else; the numbers per text stand in the record.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd


if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

COLUMNS = ("panel", "title", "mark", "part", "series", "colour", "x", "y", "width", "height", "value", "text")
NAMES = ("x_name", "y_name")


def drawn_data(figure: "Figure") -> pd.DataFrame:
    """What the axes of a figure hold, in the order of drawing: columns COLUMNS and NAMES.

    panel: number of the axes, from 0; title: what stands over it, or beside it. mark: "line" (points in order), "points",
    "area" (corners of an outline), "bar" (x, y: lower left corner), "image" (x: column, y: row), or "text". part: which
    mark of its kind in the panel. series: its name in a legend, "" without one. colour: its first, #rrggbb. NaN where a
    mark has no such number, and where a line runs along the whole axis. x_name, y_name: the word at that place of an axis
    of words, "" on an axis of numbers.
    """
    rows = [row for number, axes in enumerate(figure.axes) for row in _of_axes(number, axes)]
    return pd.DataFrame(rows, columns=[*COLUMNS, *NAMES])


def _of_axes(number: int, axes: "Axes") -> Iterator[dict[str, object]]:
    title = next(filter(None, (axes.get_title(loc="left"), axes.get_title(), axes.get_ylabel())), "")
    x_name, y_name = _words_at(axes.xaxis), _words_at(axes.yaxis)
    counts: dict[str, int] = {}
    for mark, artist, points in _marks(axes):
        part = counts[mark] = counts.get(mark, -1) + 1
        label = str(artist.get_label())
        heading = {"panel": number, "title": " ".join(title.split()), "mark": mark, "part": part}
        heading |= {"series": "" if label.startswith("_") else " ".join(label.split()), "colour": _colour(artist)}
        for point in points:
            yield {**heading, "text": "", **point, "x_name": x_name(point["x"]), "y_name": y_name(point["y"])}


def _marks(axes: "Axes") -> Iterator[tuple[str, "Artist", list[dict[str, object]]]]:
    """Every mark in the coordinates of the data, with its points; marks of legends and the like are no data."""
    from matplotlib.collections import LineCollection, PathCollection

    for line in axes.lines:
        yield "line", line, _points(axes, line.get_transform(), line.get_xydata())
    for collection in axes.collections:
        if isinstance(collection, PathCollection):
            yield "points", collection, _points(axes, collection.get_offset_transform(), collection.get_offsets())
            continue
        mark = "line" if isinstance(collection, LineCollection) else "area"
        for path in collection.get_paths():
            yield mark, collection, _points(axes, collection.get_transform(), path.vertices)
    for patch in axes.patches:
        inside = patch.get_transform().contains_branch(axes.transData)
        if inside and hasattr(patch, "get_x"):
            names = ("x", "y", "width", "height")
            yield "bar", patch, [{name: float(getattr(patch, f"get_{name}")()) for name in names}]
        elif inside:
            corners = patch.get_patch_transform().transform(patch.get_path().vertices)
            yield "area", patch, _points(axes, patch.get_data_transform(), corners)
    for image in axes.images:
        cells = np.ma.filled(np.ma.asarray(image.get_array(), np.float64), np.nan)
        if cells.ndim == 2:
            yield "image", image, [{"x": x, "y": y, "value": value} for (y, x), value in np.ndenumerate(cells)]
    for text in axes.texts:
        points = _points(axes, text.get_transform(), np.array([text.get_position()], np.float64))
        yield "text", text, [{**point, "text": text.get_text()} for point in points]


def _points(axes: "Axes", transform: "Transform", points: np.ndarray) -> list[dict[str, object]]:
    """Points as data, without a coordinate that is not; none where neither is."""
    along_x, along_y = transform.contains_branch_seperately(axes.transData)
    rows = np.where([along_x, along_y], np.ma.filled(np.ma.asarray(points, np.float64), np.nan), np.nan)
    return [{"x": x, "y": y} for x, y in rows.tolist() if not (np.isnan(x) and np.isnan(y))]


def _colour(artist: "Artist") -> str:
    from matplotlib.colors import to_hex

    for name in ("get_color", "get_facecolor", "get_edgecolor"):
        colours = getattr(artist, name, lambda: None)()
        if isinstance(colours, str) or colours is not None and len(colours):
            first = colours[0] if not isinstance(colours, str) and np.ndim(colours) == 2 else colours
            return to_hex(first)
    return ""


def _words_at(axis: "Axis") -> Callable[[float], str]:
    """The word at a place of an axis whose ticks are words: the nearest, within half the distance of two."""
    from matplotlib.ticker import FixedLocator

    locator, names = axis.get_major_locator(), {}
    if isinstance(locator, FixedLocator):
        written = axis.get_major_formatter().format_ticks(locator())
        names = {float(tick): name.replace(r"\$", "$") for tick, name in zip(locator(), written, strict=True) if name}
    if not names or all(_is_number(name) for name in names.values()):
        return lambda place: ""
    places = np.array(sorted(names))
    reach = min((after - before for before, after in pairwise(places)), default=1.0) / 2

    def word(place: float) -> str:
        nearest = places[np.argmin(np.abs(places - place))]
        return " ".join(names[nearest].split()) if abs(nearest - place) < reach else ""

    return word


def _is_number(name: str) -> bool:
    try:
        float(name.replace("−", "-").rstrip("%"))
    except ValueError:
        return False
    return True
