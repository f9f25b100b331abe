"""Remove and retrain: does a model learn less from texts without the words that a measure ranks first?

Source: Hooker et al. (2019), A Benchmark for Interpretability Methods in Deep Neural Networks; on words, with a summary over
shares: Madsen et al. (2022), Evaluating the Faithfulness of Importance Measures in NLP by Recursively Masking.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..pages import analysis
from ..shared import as_table


RANDOM, NOTHING = "random", "none"
PAGES = {
    "roar": {"data": "{dataset}", "encoder": "{encoder}", "measure": "{measure}", "share": "{share}", "seed": "{seed}"}
    | {"accuracy": "{accuracy}"},
    "roar_summary": {"measure": "{measure}", "seeds": "{n_seeds}", "loss": "{loss}"}
    | {"least": "{loss_min}", "largest": "{loss_max}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "roar" and "roar_summary", see the functions `roar` and `summary`, as the page shows them, too."""
    return analysis(cells, PAGES, {"roar": roar, "roar_summary": lambda cells: summary(roar(cells))})


@as_table
def roar(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row for each trained model: dataset, encoder, alignment, projection, measure ("none" with share 0: texts as they
    are), share, seed, n (measured texts with a label), accuracy and macro F1.
    """
    for cell in cells:
        removal = cell.settings["recipe"]["data"].get("removal") or {"by": NOTHING, "share": 0.0}
        scored = classification_scores(cell.probs, cell.labels)
        f1 = [value for name, value in scored.items() if name.startswith("f1_class_")]
        row = {name: getattr(cell.identity, name) for name in ("dataset", "encoder", "alignment", "projection")}
        row |= {"measure": removal["by"], "share": removal["share"], "seed": cell.identity.seed, "n": scored["n_scored"]}
        yield row | {"accuracy": scored["accuracy"], "macro_f1": float(np.mean(f1))}


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """How much more accuracy each measure costs than random words: one row per measure.

    loss: mean over shares of accuracy without random words - accuracy without those of the measure, positive where the
    measure knows better than chance; mean over seeds, with the least and the largest. n_seeds: seeds of which all shares are
    there.
    """
    wide = rows[rows["measure"] != NOTHING].pivot_table(index=["seed", "share"], columns="measure", values="accuracy")
    if RANDOM not in wide:
        return pd.DataFrame()
    losses = wide.drop(columns=RANDOM).rsub(wide[RANDOM], axis=0).groupby("seed").agg(lambda part: part.mean(skipna=False))
    names = {"count": "n_seeds", "mean": "loss", "min": "loss_min", "max": "loss_max"}
    return losses.agg([*names]).T.rename(columns=names).astype({"n_seeds": int}).rename_axis("measure").reset_index()
