"""What cards say of words that a model should not need: how much attention shows of them, and what it says without them."""

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import summaries


GROUP = "words that it should not need"


def numbers(cell: Cell) -> dict[str, tuple]:
    """What a record says: key -> group, label, values [N]."""
    given: dict[str, tuple] = {}
    if summaries.GROUP_MASS.applies(cell):
        groups = summaries.group_mass(cell)
        labels = {"impermissible": (GROUP, "impermissible words"), "punctuation": ("concentration", "punctuation")}
        for name in labels.keys() & groups:
            group, words = labels[name]
            given[f"mass.{name}"] = (group, f"share of attention on {words}", groups[name]["mass"])
            if name == summaries.IMPERMISSIBLE and "head_max" in groups[name]:
                given[f"head_max.{name}"] = (group, f"share on {words} in the head with most", groups[name]["head_max"])
    if summaries.VALUE_NORM_SHARE.applies(cell):
        values = summaries.value_norm_share(cell)["value_norm_share"]
        given["value_norm_share"] = (GROUP, "share of impermissible words in the length of what attention weighs", values)
    if summaries.PERMISSIBLE_ONLY.applies(cell):
        without = summaries.permissible_only(cell)
        given["permissible.flips"] = (GROUP, "decision changes without them", without["permissible_only_flips"])
        given["permissible.lost"] = (GROUP, "accuracy lost without them", without["permissible_only_accuracy_lost"])
    if summaries.CONICITY.applies(cell):
        values = summaries.conicity(cell)["conicity_absolute"]
        given["conicity"] = ("concentration", "conicity of states (absolute cosine; 1: all point one way)", values)
    return given
