"""Pruthi et al.'s sequence tasks beside ours: how well they are done, and the attention on the words that are needed.

Source: Pruthi et al. (2020), Learning to Deceive with Attention-Based Explanations, section 3.3.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from attnfaith import record
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.published import join_published, read_published


TASKS = {
    "copy": "sequence_copy",
    "reverse": "sequence_reverse",
    "bigram_flip": "bigram_flip",
    "multi30k_links": "multi30k_en_de",
}
"""Our data sets, and what published.csv calls them."""
CASE = ("dataset", "encoder", "penalty")
KEYS = (*CASE, "statistic")
PUBLISHED = (*KEYS, "value", "by", "source")
STATISTICS = ("accuracy", "bleu", "impermissible_mass")


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "sequences_beside_published" and "sequences", see the functions of these names. Raises StudyError for published
    numbers that are none.
    """
    published = read_published(settings.published, PUBLISHED, ["value", "penalty"]) if settings.published else None
    if published is None or not cells:
        return Analysis()
    measured = over_seeds(cells)
    return Analysis({"sequences_beside_published": beside_published(measured, published), "sequences": sequences(measured)})


def beside_published(measured: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """A row for each published number of a task that was measured: our mean over n_seeds seeds, and the difference.

    accuracy: the share of target words at their place in what is generated, 0..1. bleu: 0..100. impermissible_mass: the mean
    over target words, the end of the sentence among them, of the attention on linked source words, 0..1; theirs is of the
    whole test set, ours of the measured pairs. Sizes, lengths and training differ: see the recipe's note.
    """
    published = published[published["dataset"].isin(set(measured["dataset"]))]
    published = published[[*KEYS, "value", "by", "source"]]
    joined = join_published(published, measured, list(KEYS))
    return joined[[*KEYS, "published", "measured", "difference", "n_seeds", "by", "source"]]


def sequences(measured: pd.DataFrame) -> pd.DataFrame:
    """A row for each kind of model that was measured: its numbers, mean over n_seeds seeds. NaN: there is no attention."""
    wide = measured.pivot(index=list(CASE), columns="statistic", values="measured").reindex(columns=STATISTICS)
    wide["n_seeds"] = measured.groupby(list(CASE))["n_seeds"].max()
    return wide.reset_index()


def over_seeds(cells: Sequence[Cell]) -> pd.DataFrame:
    """The mean of each number over seeds, and how many there are."""
    rows = pd.DataFrame([row for cell in cells for row in _measured(cell)])
    return rows.groupby(list(KEYS), as_index=False)["value"].agg(measured="mean", n_seeds="size")


def _measured(cell: Cell) -> Iterator[dict]:
    of = cell.identity
    penalty = float(of.impermissible_mass)
    kind = of.projection if of.projection in ("uniform", "none") else "manipulated" if penalty else "dot"
    known = {
        "dataset": TASKS.get(of.dataset, of.dataset),
        "encoder": f"gru sequence to sequence, {kind} attention",
        "penalty": penalty,
    }
    scores = cell.settings["run"]["translation"]
    yield {**known, "statistic": "accuracy", "value": scores["word_accuracy"]}
    if scores["bleu"] is not None:
        yield {**known, "statistic": "bleu", "value": scores["bleu"]}
    if "alignment_attention_mean" in cell.table.column_names:
        yield {**known, "statistic": "impermissible_mass", "value": linked_mass(cell)}


def linked_mass(cell: Cell) -> float:
    """The attention on linked source words, in the row that predicts a word, over all target words and the ends, 0..1."""
    weights, gold = (record.rows(cell.table, name) for name in ("alignment_attention_mean", "gold_links"))
    mass = sum(float((rows[0, 0] * (links > 0)).sum()) for rows, links in zip(weights, gold, strict=True))
    return mass / sum(len(links) + 1 for links in gold)
