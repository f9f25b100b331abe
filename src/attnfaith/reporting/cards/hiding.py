"""What cards say of words that a model should not need: how much attention shows of them, and what it says without them."""

from collections.abc import Mapping

import numpy as np

from attnfaith.errors import counted
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import conicity, group_mass, permissible_only, value_norm_share


GROUP = "words that it should not need"


def numbers(cell: Cell) -> dict[str, tuple]:
    """What a record says: key -> group, label, values [N]."""
    given: dict[str, tuple] = {}
    if group_mass.SECTION.applies(cell):
        groups = group_mass.by_group(cell)
        labels = {"impermissible": (GROUP, "impermissible words"), "punctuation": ("concentration", "punctuation")}
        for name in labels.keys() & groups:
            group, words = labels[name]
            given[f"mass.{name}"] = (group, f"share of attention on {words}", groups[name]["mass"])
            if name == group_mass.IMPERMISSIBLE and "head_max" in groups[name]:
                given[f"head_max.{name}"] = (group, f"share on {words} in the head with most", groups[name]["head_max"])
    if value_norm_share.SECTION.applies(cell):
        values = value_norm_share.per_text(cell)["value_norm_share"]
        given["value_norm_share"] = (GROUP, "share of impermissible words in the length of what attention weighs", values)
    if permissible_only.SECTION.applies(cell):
        without = permissible_only.per_text(cell)
        given["permissible.flips"] = (GROUP, "decision changes without them", without["permissible_only_flips"])
        given["permissible.lost"] = (GROUP, "accuracy lost without them", without["permissible_only_accuracy_lost"])
    if conicity.SECTION.applies(cell):
        values = conicity.per_text(cell)["conicity_absolute"]
        given["conicity"] = ("concentration", "conicity of states (absolute cosine; 1: all point one way)", values)
    return given


def audit(known: Mapping, percent, in_words) -> str:
    """A sentence of the numbers on impermissible words, "" of none; they come as `Checkpoint.numbers` has them.

    percent: of a share its words. in_words: of a number and such a function those with its interval.
    """
    mass, flips = (known.get(key) for key in ("mass.impermissible", "permissible.flips"))
    parts = []
    if mass is not None and not np.isnan(mass.value):
        parts.append(f"of its attention {in_words(mass, percent)} lies on words that are marked so")
    if flips is not None and not np.isnan(flips.value):
        parts.append(f"without them it decides otherwise in {in_words(flips, percent)} of {counted(flips.n)}")
    return f" Here {', and '.join(parts)}." if parts else ""
