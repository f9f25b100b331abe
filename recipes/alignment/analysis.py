"""Word alignment read from seed to seed, and beside what others published of word aligners and of single layers.

Sources of published numbers: `published.csv`, each with its own.
"""

from collections.abc import Sequence
from itertools import permutations

import pandas as pd

from attnfaith.record import UNKNOWN_SEED
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.sections.alignment import ANY, ATTENTION, BY_LAYER, NONE, POSITIONS, SECTION, WHOLE, readings

from ..shared import join_published, kinds, over_seeds, page_parts, read_published


KEYS = ("dataset", "measure", "layer", "row", "rule", "statistic")
RATES = ("error_rate", "precision", "recall")
MODEL = ["encoder", "alignment", "projection", "objective"]
PAGES = {
    "rates": {"data": "{dataset}", "model": "{model}", "measure": "{measure}"}
    | {"seeds": "{n_seeds}", "alignment error rate": "{error_rate} ± {std}"},
    "by_layer": {"data": "{dataset}", "model": "{model}", "measure": "{measure}", "layer": "{layer}", "row": "{row}"}
    | {"alignment error rate": "{error_rate}"},
    "beside_translation": {"data": "{dataset}", "model": "{model}", "seed": "{seed}"}
    | {"BLEU": "{bleu}", "chrF": "{chrf}", "words in place": "{word_accuracy}"}
    | {"error rate, best": "{error_rate}", "of attention": "{attention_error_rate}"},
}
ALIGNER = "aligner"
"""The measure of published numbers of word aligners, which read no model."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "carried_over", "beside_translation", "beside_published", "aligners", "rates" and "by_layer", see these functions;
    what the page shows as Markdown.
    """
    published = read_published(settings.published, (*KEYS, "model", "value", "source"), ["value"]).astype({"layer": str})
    cells = [cell for cell in cells if SECTION.applies(cell)]
    if not cells:
        return Analysis()
    chosen = WHOLE.frame(cells)
    published = published[published["dataset"].isin(set(chosen["dataset"]))]
    results = {
        "carried_over": carried_over(cells),
        "beside_translation": beside_translation(cells),
        "beside_published": beside_published(cells, published),
        "aligners": aligners(chosen, published),
        "rates": rates(chosen),
        "by_layer": by_layer(cells),
    }
    return Analysis(results, **page_parts(results, PAGES, cells))


def rates(chosen: pd.DataFrame) -> pd.DataFrame:
    """The error rate of the reading chosen of each measure, mean over n_seeds seeds (_std over them), on the judged half."""
    groups = _named(chosen).groupby(["dataset", "model", "measure"], as_index=False, sort=False)
    table = groups["error_rate"].agg(error_rate="mean", std="std", n_seeds="size")
    return table.sort_values(["dataset", "model", "error_rate"], kind="stable", ignore_index=True)


def by_layer(cells: Sequence[Cell]) -> pd.DataFrame:
    """The error rate of each measure by layer and row, each target word with its heaviest source word, mean over seeds."""
    table = _named(_layers(cells))
    return table.groupby(["dataset", "model", "measure", "layer", "row"], as_index=False, sort=False)["error_rate"].mean()


def _layers(cells: Sequence[Cell]) -> pd.DataFrame:
    """The rows of the table of layers that are no single head's, of measures with layers or rows."""
    table = BY_LAYER.frame(cells)
    return table[(table["head"] == NONE)]


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """A table with the column "model": encoder, alignment and projection without what stands in brackets."""
    labels = table[MODEL[:3]].astype(str).apply(lambda column: column.str.partition("(")[0])
    return table.assign(model=labels.agg(" + ".join, axis=1))


def carried_over(cells: Sequence[Cell]) -> pd.DataFrame:
    """Whether a reading that was chosen with the model of one seed does as well with that of another.

    A row for each measure of each pair of models that differ in their seed alone: the alignment error rate of the model of
    `seed` on the judged half, read as chosen with the model of `from_seed`; own_error_rate: read as chosen with itself.
    """
    rows = []
    for models in kinds([cell for cell in cells if cell.identity.seed != UNKNOWN_SEED]):
        for cell, other in permutations(models.values(), 2):
            mine, theirs = readings(cell), readings(other)
            judged = ~mine.chooses
            rates = mine.scores(judged)[:, 0]
            for measure in mine.measures:
                own = mine.chosen(measure)
                carried = theirs.chosen(measure) if measure in theirs.measures else None
                if measure == POSITIONS or None in (own, carried) or theirs.readings[carried] not in mine.readings:
                    continue
                reading = theirs.readings[carried]
                rate = rates[mine.readings.index(reading)]
                row = {**cell.heading, "from_seed": other.identity.seed, "measure": measure, **reading.keys}
                row |= {"n": int(judged.sum()), "error_rate": rate, "own_error_rate": rates[own]}
                rows.append(row | {"difference": rate - rates[own]})
    return pd.DataFrame(rows)


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


def beside_published(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each published number of a layer: ours, mean over n_seeds seeds of one kind of model, and the difference.

    Measured is NaN where our model has no such layer or measure. It is another model: numbers of layers need not be alike.
    """
    rows = _layers(cells).melt([*CELL, "measure", "layer", "row"], ["error_rate"], "statistic", "value")
    measured = over_seeds(rows.assign(rule="target argmax"), [*KEYS, "encoder"])
    layers = published[published["measure"] != ALIGNER].rename(columns={"model": "published_model"})
    joined = join_published(layers, measured, KEYS)
    return joined[[*KEYS, "published_model", "published", "encoder", "measured", "difference", "n_seeds", "source"]]


def aligners(chosen: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Word aligners beside the chosen readings of each kind of model, by data set: error rate, precision and recall.

    kind: "aligner", published, over all sentences; or "model", ours, mean over n_seeds seeds on the half that nothing was
    chosen on. measure: whose maps; "any_measure" the best of all where it was chosen.
    """
    theirs = published[published["measure"] == ALIGNER]
    wide = theirs.pivot(index=["dataset", "model", "rule", "source"], columns="statistic", values="value").reset_index()
    groups = chosen.groupby(["dataset", *MODEL, "measure"], as_index=False, sort=False)
    mine = groups.agg(**{rate: (rate, "mean") for rate in RATES}, n_seeds=("seed", "size"))
    mine["model"] = mine[MODEL].agg(" + ".join, axis=1)
    parts = [wide.rename(columns={"rule": "measure"}).assign(kind=ALIGNER), mine.assign(kind="model")]
    return pd.concat(parts, ignore_index=True)[["dataset", "kind", "model", "measure", *RATES, "n_seeds", "source"]]
