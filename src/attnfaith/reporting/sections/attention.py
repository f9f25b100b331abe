"""Attention by itself: how evenly it is spread, and on which tokens it lies."""

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import normalised_entropy, share_of_zeros, support_size
from attnfaith.reporting.cells import Cell, per_cell, readable
from attnfaith.reporting.charts import text_chart
from attnfaith.reporting.spec import section


@per_cell
def dispersion(cell: Cell) -> dict[str, np.ndarray]:
    """How evenly scores share out a text (Meister et al. 2021, sections 3 and 4), [N] float64 each, NaN where undefined.

    For "attention" and each of the cell's measures: "entropy <scores>", entropy over its maximum, 0..1, undefined below two
    tokens and where all scores are zero; "support <scores>", tokens above zero; "zeros <scores>", share of tokens at zero,
    0..1. A text with a negative score is undefined in that measure.
    """
    values = {}
    for name in ("attention", *cell.measures):
        scores = [None if (row < 0).any() else row for row in cell.scores(name)]
        values[f"entropy {name}"] = normalised_entropy(scores)
        values[f"support {name}"] = support_size(scores)
        values[f"zeros {name}"] = share_of_zeros(scores)
    return values


DISPERSION = section(
    "dispersion",
    per_text=dispersion,
    chart=lambda cell: text_chart(
        "dispersion_by_scores",
        {readable(name): dispersion(cell)[f"entropy {name}"] for name in ("attention", *cell.measures)},
    ),
)
IMPERMISSIBLE, MARKERS = "impermissible", "markers"


@per_cell
def group_mass(cell: Cell) -> dict[str, np.ndarray]:
    """How much of attention lies on groups of tokens (Pruthi et al. 2020, section 3; Mohankumar et al. 2020, section 5.4),
    by group in lower case, [N] in 0..1.

    group_mass_<group>: NaN where a text has no token of the group, or no others. group_mass_head_max_<group>: of a model
    with many heads. group_tokens_<group>: the group's share of the tokens where the mass is defined; NaN of markers.
    group_whole_<group>: the mass over all texts with tokens, 0 where there is none of the group and 1 where there are no
    others, as published means have it.
    """
    columns = {name: cell.stacked(name) for name in ("group_mass", "group_mass_head_max") if cell.has(name)}
    shares = cell.stacked("group_mass_tokens") / np.where(cell.lengths > 0, cell.lengths, np.nan)[:, None]
    groups = cell.shared("group_mass_names")
    defined = ~np.isnan(columns["group_mass"])
    markers = np.array([name == MARKERS for name in groups])
    columns["group_tokens"] = np.where(defined & ~markers, shares, np.nan)
    columns["group_whole"] = np.where(defined, columns["group_mass"], np.minimum(shares, 1))
    return {
        f"{start}_{name.lower()}": values[:, place] for start, values in columns.items() for place, name in enumerate(groups)
    }


GROUP_MASS = section("group_mass", per_text=group_mass)
