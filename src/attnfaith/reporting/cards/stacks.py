"""What cards say of models whose layers and heads all have attention: what is shown is a summary of many maps."""

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections import maps, summaries


def numbers(cell: Cell, small: float) -> dict[str, tuple]:
    """What a record says of such a model: key -> group, label, values [N], and perhaps what they are against and a note.

    small: a change of the prediction (TVD) that is one.
    """
    given: dict[str, tuple] = {}
    if summaries.MARKER_ATTENTION.applies(cell):
        values = summaries.marker_attention(cell)["marker_attention"]
        given["marker_attention"] = ("concentration", "share of what is shown that lies on markers", values)
    if maps.PERMUTED in cell.table.column_names:
        changed = maps.map_interventions(cell)
        distance, start = changed["map_permutation_tvd"], "weights shuffled in all heads of the changed layers: "
        less = np.where(np.isnan(distance), np.nan, distance < small)
        group, flips = "other attention maps", changed["map_permutation_flips"]
        given["shuffled.tvd"] = (group, f"{start}median change of the prediction (TVD)", distance)
        given["shuffled.small"] = (group, f"{start}texts that move by less than {small:g}", less)
        given["shuffled.flips"] = (group, f"{start}share of draws that change the decision", flips)
    if maps.MAP_ADVERSARY.applies(cell):
        label = "attention of other maps that keep the prediction: its largest found distance from the model’s (JSD in nats)"
        distance = maps.map_adversary(cell)["map_adversary_jsd"]
        given["adversary.jsd"] = ("other attention maps", label, distance, np.log(2), "at most ln 2 = 0.693")
    return given
