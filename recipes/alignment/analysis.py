"""Word alignment by every measure, over seeds, and how well each model translates; and what others published of aligners and
of single layers, each with its source in `published.csv`.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.sections.alignment import ANY, ATTENTION, BY_LAYER, NONE, ROW_WORDS, SECTION, WHOLE
from attnfaith.reporting.tables import Grid

from ..pages import analysis, read_published


PUBLISHED = ("model", "measure", "layer", "row", "rule", "statistic", "value", "source")
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
    """ "beside_translation", "rates" and "by_layer", see these functions, as the page shows them; and what others published,
    "published_aligners" and "published_layers".
    """
    published = read_published(settings.published, PUBLISHED, ["value"])
    cells = [cell for cell in cells if SECTION.applies(cell)]
    own = analysis(cells, PAGES, {"beside_translation": beside_translation, "rates": rates, "by_layer": by_layer})
    return replace(own, grids={**own.grids, **published_grids(published)}) if cells else own


def published_grids(published: pd.DataFrame) -> dict[str, Grid]:
    """Published error rates: of word aligners by the rule that joins their directions, and of measures by layer and row."""
    rates = published[published["statistic"] == "error_rate"]
    of_aligner = rates["measure"] == "aligner"
    measures = rates["measure"].map({"attention_mean": "attention", "alti": "ALTI"})
    named = measures + ", the row " + rates["row"].map(ROW_WORDS)
    parts = {
        "published_aligners": ("Word aligners", rates[of_aligner].assign(name=rates["model"], column=rates["rule"])),
        "published_layers": ("Layers", rates[~of_aligner].assign(name=named, column="layer " + rates["layer"].astype(str))),
    }
    grids = {}
    for name, (caption, rows) in parts.items():
        wide = rows.pivot_table("value", "name", "column", sort=False).dropna(axis=1)
        lines = [(label, *(f"{value:.3f}".lstrip("0") for value in values)) for label, *values in wide.itertuples()]
        columns = ("", *wide.columns.str.replace("_", " "))
        grids[name] = Grid(f"{caption} (published)", columns, tuple(lines), 1)
    return grids


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
