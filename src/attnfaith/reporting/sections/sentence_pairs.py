"""What a record of sentence pairs holds: how many, how long, and how well the model foresees their target words."""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import SURE
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.readings import gold
from attnfaith.reporting.spec import MAIN, Case, Mean, Section, Sentence, Table, counts, per_cell


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """target_probability: the mean over the target words of a pair of the probability of each, [N]."""
    return {"target_probability": np.array([row.mean() for row in records.rows(cell.table, "target_probs")], np.float64)}


def _cases(cell: Cell) -> Iterator[Case]:
    lengths = records.list_lengths(cell.table.column("target_tokens").combine_chunks())
    values = {**per_text(cell), "source_words": cell.lengths.astype(float), "target_words": lengths.astype(float)}
    values["truncated"] = cell.table.column("truncated").to_numpy().astype(float)
    if "gold_links" in cell.table.column_names:
        links = gold(cell)
        values["sure"] = np.array([(row == SURE).sum() for row in links], float)
        values["possible"] = np.array([((row > 0) & (row != SURE)).sum() for row in links], float)
    yield Case(values)


TABLE = Table(
    name="sentence_pairs",
    cases=_cases,
    columns=(
        *counts("target_probability", "pairs"),
        Mean("source_words", "source words", of="source_words", interval=None),
        Mean("target_words", "target words", of="target_words", interval=None),
        Mean("truncated", "cut", of="truncated", interval=None),
        Mean("probability", "probability of a target word [95 % interval]", of="target_probability", interval=MAIN),
        Mean("sure_links", "sure links", of="sure", interval=None, optional=True),
        Mean("possible_links", "possible links", of="possible", interval=None, optional=True),
    ),
    caption="Sentence pairs",
    note="Means over pairs. Probability of a target word: given the source sentence and the right target words before it, "
    "the mean over the words of a pair. Cut: share of the pairs that are longer than the "
    "model reads.",
)
SECTION = Section(
    name="sentence_pairs",
    place=3,
    needs=("target_tokens", "target_probs"),
    uses=("gold_links",),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=Sentence(
        TABLE,
        text="Over the sentences of {row[n]:,} pairs the model gives a target word a probability of "
        "{row[probability]:.2f}{interval} on average, when it has read the source and the right target words before it.",
        nothing="No pair has target words.",
    ),
)
