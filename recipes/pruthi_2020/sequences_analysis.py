"""Pruthi et al.'s sequence tasks beside ours: how well they are done, and the attention on the words that are needed.

Source: Pruthi et al. (2020), Learning to Deceive with Attention-Based Explanations, section 3.3.
"""

from collections.abc import Iterator, Sequence

from attnfaith import record
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..pages import analysis, beside_published, only_measured, read_published


TASKS = {"copy": "sequence_copy", "reverse": "sequence_reverse", "multi30k_links": "multi30k_en_de"}
"""Our data sets, and what published.csv calls them."""
KEYS = ("dataset", "encoder", "penalty", "statistic")
NAME = "sequences_beside_published"
PAGE = {"task": "{dataset}", "model": "{encoder}", "λ": "{penalty}", "number": "{statistic}"}
PAGE |= {"measured": "{measured}", "published": "{published}", "seeds": "{n_seeds}"}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "sequences_beside_published": a row for each number that the authors published of a task that was measured.

    accuracy: the share of target words at their place in what is generated, 0..1. bleu: 0..100. impermissible_mass: the mean
    over target words, the end of the sentence among them, of the attention on linked source words, 0..1; theirs is of the
    whole test set, ours of the measured pairs. Sizes, lengths and training differ: see the recipe's note.
    """
    published = read_published(settings.published, (*KEYS, "value", "by", "source"), ["value", "penalty"])
    theirs = published[published["by"] == "authors"]
    results = {NAME: lambda cells: beside_published(theirs, cells, _measured, KEYS)}
    return analysis(cells, {NAME: PAGE}, results, {NAME: only_measured}, "sequences_made")


def _measured(cell: Cell) -> Iterator[dict]:
    of = cell.identity
    penalty = float(of.impermissible_mass)
    kind = of.projection if of.projection in ("uniform", "none") else "manipulated" if penalty else "dot"
    row = {"dataset": TASKS.get(of.dataset, of.dataset), "encoder": f"gru sequence to sequence, {kind} attention"}
    numbers = cell.settings["run"]["translation"]
    numbers = {"accuracy": numbers["word_accuracy"], "bleu": numbers["bleu"]}
    if "alignment_attention_mean" in cell.table.column_names:
        numbers["impermissible_mass"] = linked_mass(cell)
    for name, value in numbers.items():
        if value is not None:
            yield {**row, "penalty": penalty, "statistic": name, "value": value}


def linked_mass(cell: Cell) -> float:
    """The attention on linked source words, in the row that predicts a word, over all target words and the ends, 0..1."""
    weights, gold = (record.rows(cell.table, name) for name in ("alignment_attention_mean", "gold_links"))
    mass = sum(float((rows[0, 0] * (links > 0)).sum()) for rows, links in zip(weights, gold, strict=True))
    return mass / sum(len(links) + 1 for links in gold)
