"""The numbers of a model's card, each a mean over texts."""

import numpy as np

from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting import sections
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.render import rows
from attnfaith.reporting.sections import plausibility


TAU = "tau attention–"
FURTHEST = "distance (JSD in nats, at most 0.693) of the furthest attention that keeps the prediction"
SHUFFLED = "prediction under shuffled weights: "
NUMBERS = {
    "correct": ("accuracy", "accuracy"),
    "entropy attention": ("normalised_entropy", "entropy of attention over its maximum; 1: all tokens alike"),
    "zeros attention": ("share_of_zeros", "share of a text’s tokens without weight"),
    "marker_attention": ("marker_attention", "share of attention that lies on markers"),
    "group_mass_impermissible": ("group_mass", "share of attention on words that it should not need"),
    "permutation_tvd": ("tvd", f"{SHUFFLED}median change (TVD)"),
    "permutation_flips": ("flip_fraction", f"{SHUFFLED}share of draws with another decision"),
    "random_support_tvd": ("tvd", f"{SHUFFLED}median change (TVD)"),
    "random_support_flips": ("flip_fraction", f"{SHUFFLED}share of draws with another decision"),
    "map_permutation_tvd": ("tvd", f"{SHUFFLED}median change (TVD), in all heads"),
    "map_permutation_flips": ("flip_fraction", f"{SHUFFLED}share of draws with another decision, in all heads"),
    "adversary_exact_*": ("jsd", FURTHEST),
    "adversary_search_*": ("jsd", f"{FURTHEST}, as far as a search finds"),
    "map_adversary_jsd": ("jsd", f"{FURTHEST}, as far as a search of maps finds"),
}
"""{number per text: (its name in metadata, in words)}; of several with one name the first that the record holds."""


def card_numbers(cell: Cell) -> dict[str, dict]:
    """The numbers of a cell's card by their name in metadata, with the measure that attention is compared with after a dot:
    "kendall_tau.gradient". Each is a row of the table `summary` with a label; NaN undefined.
    """
    summary = {name: row for section in sections.of_cell(cell) for name, row in section.summary(cell).items()}
    numbers: dict[str, dict] = {}
    for quantity, (metric, label) in NUMBERS.items():
        start, is_pattern, _ = quantity.partition("*")
        names = [name for name in summary if name.startswith(start) and name[-1].isdigit()] if is_pattern else [quantity]
        for name in sorted(names, key=lambda name: float(name.removeprefix(start)) if is_pattern else 0)[:1]:
            within = f" within {name.removeprefix(start)}" if is_pattern else ""
            if name in summary:
                numbers.setdefault(metric, {**summary[name], "label": label + within})
        if quantity == "correct":
            scores = classification_scores(cell.probs, cell.labels)
            counts = {"n": scores["n_scored"], "n_undefined": scores["n_unscored"], "ci_low": np.nan, "ci_high": np.nan}
            numbers["roc_auc"] = {"label": "area under the ROC curve", "mean": scores["roc_auc"], **counts}
            taus = {name.removeprefix(TAU): row for name, row in summary.items() if name.startswith(TAU)}
            for measure, row in taus.items():
                label = f"Kendall’s τ of attention and {measure_label(measure)}"
                numbers[f"kendall_tau.{measure}"] = {**row, "label": label}
    for row in rows(cell, plausibility.TABLE) if plausibility.SECTION.applies(cell) else []:
        if row["scores"] == "attention":
            label = "average precision of attention against the marked tokens"
            label += "" if np.isnan(row["random_baseline"]) else f" (chance {row['random_baseline']:.3f})"
            numbers["rationale_auprc"] = {**row, "mean": row["auprc_mean"], "label": label}
    return numbers
