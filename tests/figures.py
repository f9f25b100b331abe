"""Figures without pixels, for tests of what stands around them: drawn, but neither laid out nor rendered."""

from pathlib import Path


SAVE = "matplotlib.figure.Figure.savefig"
IN_A_PROCESS = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
import matplotlib.figure
from tests.figures import without_pixels
matplotlib.figure.Figure.savefig = without_pixels
"""
"""What a script of its own begins with, to write such reports."""


def without_pixels(figure, target, **_):
    """What can stand in for SAVE."""
    target.write(b"no pixels")
