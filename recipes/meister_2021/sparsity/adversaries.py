"""Adversaries, as their objective names them."""

import re

import numpy as np

from attnfaith.reporting.cells import Cell


def is_adversary(cell: Cell) -> bool:
    return str(cell.heading["objective"]).startswith("adversarial(")


def adversary_settings(name: str) -> dict[str, object]:
    """Weight, divergence and whether only attention was free, of an adversary's objective; NaN and "" for other models."""
    settings = re.fullmatch(r"adversarial\((\w+), ([^,)]+)(.*)\)", name)
    if not settings:
        return {"weight": np.nan, "divergence": "", "frozen": ""}
    return {"weight": float(settings[2]), "divergence": settings[1], "frozen": "yes" if "frozen" in settings[3] else "no"}
