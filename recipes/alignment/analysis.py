"""What the weights between two sentences say of who translates whom: by reading, from seed to seed, and beside what others
published of word aligners and of single layers.

Sources of published numbers: `published.csv`, each with its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from attnfaith.record import UNKNOWN_SEED
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import CELL, Cell
from attnfaith.reporting.published import join_published, read_published
from attnfaith.reporting.readings import ATTENTION, POSITIONS, readings
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections.alignment import ANY, BY_LAYER, SECTION, WHOLE


KEYS = ("dataset", "measure", "layer", "row", "rule", "statistic")
PUBLISHED = (*KEYS, "model", "value", "source")
ALIGNER = "aligner"
"""The measure of published numbers of word aligners, which read no model."""


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "chosen_readings", "carried_over", "beside_translation", and with published numbers "beside_published" and
    "aligners", see the functions of these names. Raises StudyError for published numbers that are none.
    """
    published = read_published(settings.published, PUBLISHED, ["value"]) if settings.published else None
    cells = [cell for cell in cells if SECTION.applies(cell)]
    if not cells:
        return Analysis()
    made = {"chosen_readings": frame(WHOLE, cells), "carried_over": carried_over(cells)}
    made["beside_translation"] = beside_translation(cells)
    if published is not None:
        published = published.astype({"layer": str})
        made |= {"beside_published": beside_published(cells, published), "aligners": aligners(cells, published)}
    return Analysis(made)


def carried_over(cells: Sequence[Cell]) -> pd.DataFrame:
    """Whether a reading that was chosen with the model of one seed does as well with that of another.

    A row for each measure of each pair of models that differ in their seed alone: the alignment error rate of the model of
    `seed` on the judged half, read as chosen with the model of `from_seed`; own_error_rate: read as chosen with itself.
    """
    rows = []
    for group in _by_kind(cells):
        known = {cell: readings(cell) for cell in group}
        for cell, other in ((cell, other) for cell in group for other in group if cell is not other):
            for measure in known[cell].measures:
                if measure == POSITIONS or measure not in known[other].measures:
                    continue
                own, given = known[cell].chosen(measure), known[other].chosen(measure)
                if own is None or given is None:
                    continue
                reading = known[other].readings[given]
                if reading not in known[cell].readings:
                    continue
                scores = known[cell].scores(~known[cell].chooses)[:, 0]
                rate = scores[known[cell].readings.index(reading)]
                rows.append(
                    {
                        **cell.heading,
                        "from_seed": other.heading["seed"],
                        "measure": measure,
                        **reading.keys,
                        "n": int((~known[cell].chooses).sum()),
                        "error_rate": rate,
                        "own_error_rate": scores[own],
                        "difference": rate - scores[own],
                    }
                )
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
        rates = frame(WHOLE, [cell]).set_index("measure")["error_rate"]
        row = {
            name: float("nan") if scores.get(name) is None else scores[name] for name in ("bleu", "chrf", "word_accuracy")
        }
        row |= {"translated": scores.get("pairs", 0), "n": len(cell)}
        row |= {"error_rate": rates.get(ANY), "attention_error_rate": rates.get(ATTENTION)}
        rows.append({**cell.heading, **row})
    return pd.DataFrame(rows).astype({"error_rate": float, "attention_error_rate": float})


def beside_published(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """A row for each published number of a layer of a data set that was measured: ours, mean over n_seeds seeds of one kind
    of model, and the difference. Measured is NaN where our model has no such layer or measure. Another model, so that
    numbers of layers need not be alike.
    """
    layers = published[published["measure"] != ALIGNER]
    measured = _of_layers(cells)
    layers = layers[layers["dataset"].isin(set(measured["dataset"]))].rename(columns={"model": "published_model"})
    joined = join_published(layers, measured, list(KEYS))
    return joined[[*KEYS, "published_model", "published", "encoder", "measured", "difference", "n_seeds", "source"]]


def _of_layers(cells: Sequence[Cell]) -> pd.DataFrame:
    rows = frame(BY_LAYER, cells).melt([*CELL, "measure", "layer", "row"], ["error_rate"], "statistic", "value")
    rows["rule"] = "target argmax"
    return rows.groupby([*KEYS, "encoder"], as_index=False)["value"].agg(measured="mean", n_seeds="size")


def aligners(cells: Sequence[Cell], published: pd.DataFrame) -> pd.DataFrame:
    """Word aligners beside the chosen readings of each kind of model, by data set: error rate, precision and recall.

    kind: "aligner", published, over all sentences; or "model", ours, mean over n_seeds seeds on the half that nothing was
    chosen on. measure: what is read; "any_measure" the best of all where it was chosen.
    """
    theirs = published[published["measure"] == ALIGNER]
    ours = frame(WHOLE, cells)
    theirs = theirs[theirs["dataset"].isin(set(ours["dataset"]))]
    wide = theirs.pivot(index=["dataset", "model", "rule", "source"], columns="statistic", values="value").reset_index()
    wide = wide.rename(columns={"rule": "measure"}).assign(kind="aligner")
    keys = ["dataset", "encoder", "alignment", "projection", "objective", "measure"]
    mine = ours.groupby(keys, as_index=False, sort=False).agg(
        error_rate=("error_rate", "mean"),
        precision=("precision", "mean"),
        recall=("recall", "mean"),
        n_seeds=("seed", "size"),
    )
    mine["model"] = mine[["encoder", "alignment", "projection", "objective"]].agg(" + ".join, axis=1)
    joined = pd.concat([wide, mine.assign(kind="model")], ignore_index=True)
    return joined[["dataset", "kind", "model", "measure", "error_rate", "precision", "recall", "n_seeds", "source"]]


def _by_kind(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Cells that differ in their seed alone, together; those of unknown seed stand alone."""
    groups: dict = {}
    for cell in cells:
        if cell.identity.seed != UNKNOWN_SEED:
            groups.setdefault(replace(cell.identity, seed=0), []).append(cell)
    yield from groups.values()
