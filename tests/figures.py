"""Figures that cost little, for tests of what stands around them."""

import functools
import warnings
from pathlib import Path
from types import SimpleNamespace

from matplotlib.figure import Figure

from attnfaith.reporting import sections, style


drawn, rendered = sections.figures, style._rendered  # before a test puts `without_pixels` in its place


REPORT = "attnfaith.reporting.page.report.figures"
IN_A_PROCESS = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
from attnfaith.reporting.page import report
from tests.figures import one_small_figure
report.figures = one_small_figure()
"""
"""What a script of its own begins with, to write such reports."""


@functools.cache
def _empty():
    return rendered(Figure(figsize=(0.2, 0.2)), style.KINDS, 150)


@style.own_style
def without_pixels(figure, kinds, dpi):
    """What can stand in for style._rendered: a figure is laid out as for its files, which hold an empty one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.draw_without_rendering()
    return {kind: _empty()[kind] for kind in kinds}


def one_small_figure(name="dispersion_by_scores"):
    """What can stand in for REPORT: in place of the figures of agreement and dispersion a small empty one of this name."""

    def figures(cell):
        words = next(drawing for _, drawing in drawn(cell) if drawing.name == name).words(cell)
        draw = {"draw": lambda cell: Figure(figsize=(1, 1)), "words": lambda cell: words}
        yield "agreement", SimpleNamespace(name=name, **draw)
        yield from ((section, drawing) for section, drawing in drawn(cell) if section not in ("agreement", "dispersion"))

    return figures
