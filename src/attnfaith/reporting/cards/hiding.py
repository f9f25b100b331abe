"""What cards say of words that a model should not need: how much attention shows of them, and what it says without them."""

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
