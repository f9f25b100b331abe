"""Figures that cost little, for tests of what stands around them."""

import functools
import warnings
from pathlib import Path

from matplotlib.figure import Figure

from attnfaith.reporting import render, sections, style


rendered = style._rendered  # before a test puts `without_pixels` in its place


REPORT = "attnfaith.reporting.page.report.drawings"
IN_A_PROCESS = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
from attnfaith.reporting.page import report
from tests.figures import one_small_figure
report.drawings = one_small_figure()
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


def one_small_figure(name="attention_overview"):
    """What can stand in for REPORT: in place of the figures of agreement and dispersion a small empty one of this name."""

    def drawings(cell):
        yield render.Drawing(name, Figure(figsize=(1, 1)), *sections.figure_words(cell, name))
        for section in sections.of_cell(cell):
            if section.name not in ("agreement", "dispersion"):
                yield from render.drawings(section, cell)

    return drawings
