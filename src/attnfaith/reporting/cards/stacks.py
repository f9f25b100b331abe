"""What cards say of models whose layers and heads all have attention: what is shown is a summary of many maps."""

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import map_adversary, map_interventions, marker_attention


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
