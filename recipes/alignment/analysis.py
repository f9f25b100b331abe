"""Word alignment by every measure, over seeds, and how well each model translates."""

from collections.abc import Sequence

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections.alignment import ANY, ATTENTION, BY_LAYER, NONE, SECTION, WHOLE

from ..shared import analysis


MODEL = ["encoder", "alignment", "projection"]
PAGES = {
    "rates": {"data": "{dataset}", "model": "{model}", "measure": "{measure}"}
    | {"seeds": "{n_seeds}", "alignment error rate": "{error_rate} ± {std}"},
    "by_layer": {"data": "{dataset}", "model": "{model}", "measure": "{measure}", "layer": "{layer}", "row": "{row}"}
    | {"alignment error rate": "{error_rate}"},
    "beside_translation": {"data": "{dataset}", "model": "{model}", "seed": "{seed}"}
    | {"BLEU": "{bleu}", "chrF": "{chrf}", "words in place": "{word_accuracy}"}
    | {"error rate, best": "{error_rate}", "of attention": "{attention_error_rate}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "beside_translation", "rates" and "by_layer", see these functions, and each as the page shows it."""
    cells = [cell for cell in cells if SECTION.applies(cell)]
    return analysis(cells, PAGES, {"beside_translation": beside_translation, "rates": rates, "by_layer": by_layer})


def rates(cells: Sequence[Cell]) -> pd.DataFrame:
    """The error rate of the reading chosen of each measure, mean over n_seeds seeds (_std over them), on the judged half."""
    groups = _named(WHOLE.frame(cells)).groupby(["dataset", "model", "measure"], as_index=False, sort=False)
    table = groups["error_rate"].agg(error_rate="mean", std="std", n_seeds="size")
    return table.sort_values(["dataset", "model", "error_rate"], kind="stable", ignore_index=True)


def by_layer(cells: Sequence[Cell]) -> pd.DataFrame:
    """The error rate of each measure by layer and row, each target word with its heaviest source word, mean over seeds."""
    table = BY_LAYER.frame(cells)
    table = _named(table[table["head"] == NONE])  # of no single head, and of measures with layers or rows
    return table.groupby(["dataset", "model", "measure", "layer", "row"], as_index=False, sort=False)["error_rate"].mean()


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """A table with the column "model": encoder, alignment and projection without what stands in brackets."""
    labels = table[MODEL].astype(str).apply(lambda column: column.str.partition("(")[0])
    return table.assign(model=labels.agg(" + ".join, axis=1))


def beside_translation(cells: Sequence[Cell]) -> pd.DataFrame:
    """How well each model translates, and how well its best reading and its attention align.

    A row for each model: bleu and chrf (0..100, of what it generates; NaN where there is no such number), word_accuracy
    (share of words in their place), translated (how many pairs); error_rate (of the reading chosen of all) and
    attention_error_rate (of the reading chosen of attention), both on the judged half of the pairs that were measured.
    """
    rows = []
    for cell in cells:
        scores = cell.settings.get("run", {}).get("translation") or {}
        rates = WHOLE.frame([cell]).set_index("measure")["error_rate"]
        row = {name: scores.get(name) for name in ("bleu", "chrf", "word_accuracy")}
        row |= {"translated": scores.get("pairs", 0), "n": len(cell)}
        rows.append(cell.heading | row | {"error_rate": rates.get(ANY), "attention_error_rate": rates.get(ATTENTION)})
    numbers = ("bleu", "chrf", "word_accuracy", "error_rate", "attention_error_rate")
    return _named(pd.DataFrame(rows).astype(dict.fromkeys(numbers, float)))
