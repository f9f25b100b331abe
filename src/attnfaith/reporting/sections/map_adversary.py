"""How far what is shown can be moved while the prediction stays, from a record's `map_adversary_...` columns.

Per text: the Jensen-Shannon divergence (JSD, nats) of the furthest attention that a search met, a lower bound of what there
is, and the change of the prediction (TVD) that it came with. Undefined for a text of fewer than two tokens.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.record import rows
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.spec import (
    MAIN,
    Case,
    Classes,
    Largest,
    Mean,
    Median,
    Section,
    Sentence,
    Share,
    Table,
    counts,
    per_cell,
)


HALFWAY = np.log(2) / 2


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """map_adversary_jsd, nats, and map_adversary_change, TVD of the prediction, as recorded; map_adversary_tvd, the total
    variation distance of the two attentions.
    """
    numbers = {f"map_adversary_{name}": column(cell, f"map_adversary_{name}") for name in ("jsd", "change")}
    furthest = rows(cell.table, "map_adversary_attention")
    distances = total_variation_distance(cell.attention, furthest)
    return numbers | {"map_adversary_tvd": np.where(np.isnan(numbers["map_adversary_jsd"]), np.nan, distances)}


def _cases(cell: Cell) -> Iterator[Case]:
    yield Case({name.removeprefix("map_adversary_"): values for name, values in per_text(cell).items()})


TABLE = Table(
    name="map_adversary",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("jsd"),
        Mean("jsd_mean", "mean JSD reached [95 % interval]", of="jsd", interval=MAIN),
        Median("jsd_median", "median", of="jsd"),
        Share("share_above_half", "more than half of ln 2", of="jsd", above=HALFWAY),
        Mean("tvd_mean", "mean TVD of attentions", of="tvd"),
        Mean("change_mean", "mean change of the prediction", of="change"),
        Largest("change_max", "largest", of="change"),
    ),
    caption="Adversarial attention maps",
    note="Jensen–Shannon divergence (nats, at most 0.693) between the attention that is shown and what would be shown under "
    "other maps that keep the prediction within the epsilon of the search; and the change of the prediction that was "
    "measured. A search met them: others may be further. Undefined: texts of fewer than two tokens.",
)
SECTION = Section(
    name="map_adversary",
    source="Jain & Wallace (2019), section 4.2.2, for one attention; here for the maps of a stack of layers",
    place=61,
    chapter="interventions",
    needs=("probs", "attention", "map_adversary_attention", "map_adversary_jsd", "map_adversary_change"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=Sentence(
        TABLE,
        text="Other attention maps were met that would show an attention {row[jsd_mean]:.3f} nats away on average over "
        "{texts}{interval}, at most 0.693, and change the prediction by no more than {row[change_max]:.3f} (total "
        "variation distance); others may be further.",
        left_out="Left out for want of two tokens: {row[n_undefined]:,}.",
        nothing="No text has two tokens, so there is no other attention ({row[n_undefined]:,} undefined).",
    ),
)
