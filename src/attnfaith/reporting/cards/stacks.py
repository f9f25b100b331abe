"""What cards say of models whose layers and heads all have attention: what is shown is a summary of many maps."""

import numpy as np

from attnfaith.record import Identity
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import map_adversary, map_interventions, marker_attention


def is_stack(identity: Identity) -> bool:
    """Whether what is shown was made of the maps of layers and heads."""
    return identity.model == "self_attention" and identity.reduction is not None


def numbers(cell: Cell, small: float) -> dict[str, tuple]:
    """What a record says of such a model: key -> group, label, values [N], and perhaps what they are against and a note.

    small: a change of the prediction (TVD) that is one.
    """
    given: dict[str, tuple] = {}
    if marker_attention.SECTION.applies(cell):
        values = marker_attention.per_text(cell)["marker_attention"]
        given["marker_attention"] = ("concentration", "share of what is shown that lies on markers", values)
    if map_interventions.PERMUTED in cell.table.column_names:
        changed = map_interventions.per_text(cell)
        distance, start = changed["map_permutation_tvd"], "weights shuffled in all heads of the changed layers: "
        less = np.where(np.isnan(distance), np.nan, distance < small)
        group, flips = "other attention maps", changed["map_permutation_flips"]
        given["shuffled.tvd"] = (group, f"{start}median change of the prediction (TVD)", distance)
        given["shuffled.small"] = (group, f"{start}texts that move by less than {small:g}", less)
        given["shuffled.flips"] = (group, f"{start}share of draws that change the decision", flips)
    if map_adversary.SECTION.applies(cell):
        label = "attention of other maps that keep the prediction: its largest found distance from the model’s (JSD in nats)"
        distance = map_adversary.per_text(cell)["map_adversary_jsd"]
        given["adversary.jsd"] = ("other attention maps", label, distance, np.log(2), "at most ln 2 = 0.693")
    return given


def seeing(identity: Identity, unit: str) -> tuple[str, str]:
    """What such attention may be looked at for, and why, in words."""
    if identity.reduction != "mean":
        what = f"to see what {identity.reduction} makes of the attention of all layers and heads at a text’s {unit}s"
        reason = (
            f"That is how the weights were made: {identity.reduction} takes heads as their mean and values as all alike."
        )
    else:
        layers = {"last": "the last layer", "all": "all layers"}
        place = layers.get(identity.reduction_layers, f"layer {identity.reduction_layers}")
        if identity.reduction_head is not None:
            place = f"head {identity.reduction_head} of {place}"
        what = f"to see how attention in {place} weights the states at a text’s {unit}s"
        mean = "" if identity.reduction_head is not None else "as the mean of its heads, "
        reason = f"That is what attention there is, {mean}in the rows that the prediction depends on."
    return what, (
        f"{reason} A state behind the first layer holds more than its own {unit}, and values, feed-forward layers and "
        "residual connections act beside attention."
    )
