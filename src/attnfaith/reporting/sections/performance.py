"""How well a cell classifies, on which texts, and how concentrated its attention is."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attnfaith.metrics.attention_faithfulness.divergences import normalised_entropy
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.spec import MOST_CLASSES, Row, section, statistic, table
from attnfaith.stats import mean
from attnfaith.support.errors import counted


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """correct: 1 where the predicted class is the gold label, 0 where not; NaN without a label."""
    return {"correct": np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels)}


def _rows(cell: Cell) -> Iterator[Row]:
    scores = classification_scores(cell.probs, cell.labels)
    weights = [row.astype(np.float64) for row in cell.attention if len(row)]
    entropy = normalised_entropy(weights)
    yield {
        "n": len(cell),
        "n_without_label": scores["n_unscored"],
        "n_truncated": int(cell.column("truncated").sum()),
        "n_empty": int((cell.lengths == 0).sum()),
        "accuracy": scores["accuracy"],
        "roc_auc": scores["roc_auc"],
        "length_mean": float(cell.lengths.mean()),
        "length_median": float(np.median(cell.lengths)),
        "max_attention": mean([row.max() for row in weights]),
        "support_share": mean([np.mean(row > 0) for row in weights]),
        "normalised_entropy": mean(entropy[~np.isnan(entropy)]),
        "n_entropy_undefined": len(cell) - int((~np.isnan(entropy)).sum()),
        **{name: scores[name] for start in ("f1_class_", "support_class_") for name in scores if name.startswith(start)},
    }


TABLE = table("performance", rows=_rows)
"""One row per cell. accuracy, roc_auc, f1_class_<c>: over instances with a gold label, in 0..1, as `classification_scores`
defines them; support_class_<c>: instances of the gold class. length_mean, length_median: attendable tokens. Means over
instances with tokens: max_attention, the largest weight; support_share, the share of tokens with a weight above zero;
normalised_entropy, entropy / log T, undefined below two tokens.
"""


def selected_by(run: Mapping, class_names: Sequence[str]) -> str:
    """The metric of validation that a run's checkpoint was chosen by, with the name of its class; "" of an untrained run."""
    metric = run.get("best", {"metric": ""})["metric"].removeprefix("eval_")
    return statistic(metric, TABLE.across, tuple(class_names)) if metric.startswith("f1_class_") else metric


def accuracy_in_words(cell: Cell) -> str:
    """ "accuracy 0.75 (F1 of bad: 0.67, of good: 0.80)", over how many texts where some have no label; "" of none."""
    scores, count = classification_scores(cell.probs, cell.labels), cell.probs.shape[1]
    if not scores["n_scored"]:
        return ""
    names = cell.class_names or [f"class {number}" for number in range(count)]
    values = [(name, scores[f"f1_class_{number}"]) for number, name in enumerate(names if count <= MOST_CLASSES else [])]
    f1 = ", ".join(f"of {name}: {value:.2f}" for name, value in values if not np.isnan(value))
    over = f" over {counted(scores['n_scored'])} with a label" if scores["n_unscored"] else ""
    return f"accuracy {scores['accuracy']:.2f}{f' (F1 {f1})' if f1 else ''}{over}"


SECTION = section("performance", per_text=per_text, tables=(TABLE,))
