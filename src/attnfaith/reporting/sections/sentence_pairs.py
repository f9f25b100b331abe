"""What a record of sentence pairs holds, how well the model foresees their target words, and what it reads of markers."""

from collections.abc import Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import SURE
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import column
from attnfaith.reporting.readings import ROW_WORDS, ROWS, gold
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Share, counts, per_cell, summary_section


@per_cell
def sentence_pairs(cell: Cell) -> dict[str, np.ndarray]:
    """target_probability: the mean over the target words of a pair of the probability of each, [N]."""
    return {"target_probability": np.array([row.mean() for row in records.rows(cell.table, "target_probs")], np.float64)}


def _pair_cases(cell: Cell) -> Iterator[Case]:
    lengths = records.list_lengths(cell.table.column("target_tokens").combine_chunks())
    values = {
        **sentence_pairs(cell),
        "source_words": cell.lengths.astype(float),
        "target_words": lengths.astype(float),
        "truncated": column(cell, "truncated"),
    }
    if "gold_links" in cell.table.column_names:
        links = gold(cell)
        values["sure"] = np.array([(row == SURE).sum() for row in links], float)
        values["possible"] = np.array([((row > 0) & (row != SURE)).sum() for row in links], float)
    yield Case(values)


SENTENCE_PAIRS = summary_section(
    "sentence_pairs",
    sentence_pairs,
    (
        *counts("target_probability", "pairs"),
        Mean("source_words", "source words", of="source_words", interval=None),
        Mean("target_words", "target words", of="target_words", interval=None),
        Mean("truncated", "cut", of="truncated", interval=None),
        Mean("probability", "probability of a target word [95 % interval]", of="target_probability", interval=MAIN),
        Mean("sure_links", "sure links", of="sure", interval=None, optional=True),
        Mean("possible_links", "possible links", of="possible", interval=None, optional=True),
    ),
    by=(),
    cases=_pair_cases,
    place=3,
    needs=("target_tokens", "target_probs", "truncated"),
    uses=("gold_links",),
    caption="Sentence pairs",
    note="Means over pairs. Probability of a target word: given the source sentence and the right target words before it, "
    "the mean over the words of a pair. Cut: share of the pairs that are longer than the model reads.",
    sentences={
        "text": "Over the sentences of {row[n]:,} pairs the model gives a target word a probability of "
        "{row[probability]:.2f}{interval} on average, when it has read the source and the right target words before it.",
        "nothing": "No pair has target words.",
    },
)

MARKER_MASS = "alignment_marker_mass"


@per_cell
def _marker_masses(cell: Cell) -> np.ndarray:
    """The share of attention that lies on markers, mean over target words and heads, [N, layers, 2]."""
    return np.stack([row.mean(axis=(1, 3)) for row in records.rows(cell.table, MARKER_MASS)]).astype(np.float64)


def alignment_markers(cell: Cell) -> dict[str, np.ndarray]:
    """marker_mass of each pair: mean over layers, heads and target words of the row that predicts the word, [N] in 0..1."""
    return {"marker_mass": _marker_masses(cell)[:, :, 0].mean(axis=1)}


def _marker_cases(cell: Cell) -> Iterator[Case]:
    masses = _marker_masses(cell)
    for layer in range(masses.shape[1]):
        for number, row in enumerate(ROWS):
            yield Case({"mass": masses[:, layer, number]}, {"layer": str(layer), "row": row})


def _marker_sentences(cell: Cell) -> list[str]:
    masses = _marker_masses(cell).mean(axis=0)[:, 0]
    most = int(masses.argmax())
    return [
        f"Of the row that predicts a word, {masses.mean():.0%} of the attention lies on markers and not on words, most in "
        f"layer {most}, {masses[most]:.0%}."
    ]


ALIGNMENT_MARKERS = summary_section(
    "alignment_markers",
    alignment_markers,
    (
        *counts("mass", "pairs"),
        Mean("mass_mean", "share on markers [95 % interval]", of="mass", interval=MAIN),
        Share("share_above_0.5", "pairs with more than half", of="mass", above=0.5),
    ),
    table="alignment_marker_mass",
    by=(Key("layer", "layer"), Key("row", "row", lambda row: ROW_WORDS[row["row"]])),
    cases=_marker_cases,
    place=7,
    needs=("target_tokens", MARKER_MASS),
    caption="Attention to markers",
    note="The share of the attention to the source that lies on its end marker, a language code or another marker, mean "
    "over heads and target words of a pair, then over pairs. Markers are no words: what lies on them aligns with nothing, "
    "and the weights of words are not divided by the rest.",
    sentences=_marker_sentences,
)
