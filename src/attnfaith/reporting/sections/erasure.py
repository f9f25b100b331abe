"""Changes of the prediction when attention weights are erased, from the columns of `erasure` and `minimal_flip_set`.

i*, r: the weight that a ranking puts first, the earlier one on ties, and a random other one; p without a weight is the
prediction with it set to 0 and the rest renormalised. Several weights are removed by decreasing rank until the decision
first changes. Undefined for a text of fewer than two tokens. N: texts of a cell. Source: Serrano & Smith (2019).
"""

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import decision_flips, jensen_shannon_divergence
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.charts import Chart, text_chart
from attnfaith.reporting.spec import Quantity, Section


RANKINGS = {"attention": "attention", "gradient": "gradient", "attention_gradient": "attention × gradient"}
ORDERS = {"random": "random order", **RANKINGS}


@per_cell
def single_weight(cell: Cell, ranking: str) -> dict[str, np.ndarray]:
    """The test of one weight against a random other one, of the first random order of the record, for one of RANKINGS,
    numbers per text as `per_text` describes.
    """
    probs, gradients, orders = (cell.rows(f"erasure_{name}") for name in ("probs", "gradient", "order"))
    without_top, without_random = [None] * len(cell), [None] * len(cell)
    for row in np.flatnonzero(cell.lengths > 1):
        weights, order = cell.attention[row].astype(np.float64), orders[row][0]
        scores = {"attention": weights, "gradient": gradients[row], "attention_gradient": weights * gradients[row]}
        top = int(scores[ranking].argmax())
        without_top[row], without_random[row] = probs[row][top], probs[row][order[0] if order[0] != top else order[1]]
    top, other = (jensen_shannon_divergence(cell.probs, without) for without in (without_top, without_random))
    flips, random_flips = (decision_flips(cell.probs, without) for without in (without_top, without_random))
    return {
        "delta_jsd": top - other,
        "top_flips": flips,
        "random_flips": random_flips,
        "only_top": flips * (1 - random_flips),
        "only_random": random_flips * (1 - flips),
    }


def removal(cell: Cell, start: str, end: str) -> dict[str, np.ndarray]:
    """Where the decision first changes, from the columns <start>size<end>, …, numbers per text as `per_text` describes."""
    size, mass, empty = (first_draws(cell, f"{start}{part}{end}") for part in ("size", "mass", "empty"))
    defined = cell.lengths > 1
    numbers = {"fraction": size / np.maximum(cell.lengths, 1), "never": np.isnan(size), "empty": empty, "mass": mass}
    return {name: np.where(defined, values, np.nan) for name, values in numbers.items()}


def first_draws(cell: Cell, name: str) -> np.ndarray:
    """A column as [N] float64: the first draw of those with draws, NaN without any."""
    if name.endswith("_random"):
        return np.array([row[0] if len(row) else np.nan for row in cell.rows(name)], dtype=np.float64)
    return cell.column(name)


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """Numbers by ranking (attention, gradient, attention_gradient), NaN below two tokens.

    erasure_delta_jsd_<ranking>: JSD(p, p without i*) - JSD(p, p without r), nats. erasure_top_flips_ and _random_flips_: if
    the decision changes without i*, without r; _only_top_, _only_random_: and not without the other.

    And of "random", the first random order: erasure_flip_fraction_<ranking>, share of tokens removed until the decision
    changes, 0..1, NaN where it never does (erasure_flip_never_); erasure_flip_empty_, whether it changes only when no weight
    is left; erasure_flip_mass_, attention removed. With the smallest set in the record, minimal_flip_fraction, _never,
    _empty and _mass of it, _exact, whether it is proved the smallest, and erasure_flip_ratio_<ranking>: tokens removed over
    the smallest number that is enough, >= 1.
    """
    numbers, minimum = {}, removal(cell, "minimal_flip_", "") if cell.has("minimal_flip_size") else {}
    for ranking in RANKINGS:
        numbers |= {f"erasure_{name}_{ranking}": values for name, values in single_weight(cell, ranking).items()}
    for ranking in ORDERS:
        parts = removal(cell, "erasure_flip_", f"_{ranking}")
        if minimum:
            parts["ratio"] = parts["fraction"] / minimum["fraction"]
        numbers |= {f"erasure_flip_{name}_{ranking}": values for name, values in parts.items()}
    if minimum:
        minimum["exact"] = cell.is_exact("minimal_flip", cell.lengths > 1)
        numbers |= {f"minimal_flip_{name}": values for name, values in minimum.items()}
    return numbers


def removed(cell: Cell) -> Chart:
    """The share of weights that is removed of each text until the decision changes, by the order of removal."""
    labels = {f"erasure_flip_fraction_{name}": label for name, label in ORDERS.items()}
    labels["minimal_flip_fraction"] = "smallest set"
    return text_chart(
        name="erasure_multi_weight",
        title="Weights removed until the decision changes",
        axis="Share of the text’s tokens removed",
        values={labels[name]: values for name, values in per_text(cell).items() if name in labels},
        why="Weights are set to 0 by decreasing rank, the rest renormalised, until the decision first changes: the fewer, "
        "the better the ranking knows what the decision rests on. Texts whose decision never changes are not drawn.",
    )


SECTION = Section(
    name="erasure",
    place=70,
    chapter="interventions",
    needs=("probs", "attention", "erasure_probs", "erasure_gradient", "erasure_order", "erasure_flip_size_attention"),
    uses=("erasure_*", "minimal_flip_*"),
    per_text=per_text,
    compared=("erasure_delta_jsd_*", "erasure_flip_fraction_*", "erasure_flip_ratio_*", "minimal_flip_fraction"),
    quantities={"erasure_delta_jsd_*": Quantity("JSD without i* − without r, i* by {}", below=0)},
    caption="Erased attention weights",
    note="One weight: how much further the prediction moves (Jensen–Shannon divergence, nats) without the weight that a "
    "ranking puts first (i*) than without a random other one (r), and whether the decision changes. Several: weights set "
    "to 0 by decreasing rank, the rest renormalised, until the decision first changes; shares are over texts whose decision "
    "changes. Undefined: texts of fewer than two tokens.",
    chart=removed,
    lead=("erasure_only_top_attention", "erasure_only_random_attention", "erasure_flip_fraction_attention"),
)
