"""Pairs of sentences: how well a translator predicts the target, its attention to markers, its predictions when its
cross-attention is changed, and what that attention could be. Numbers are means over the target words of a pair.
"""

from collections.abc import Sequence

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import SURE
from attnfaith.reporting.cells import Cell, per_cell
from attnfaith.reporting.sections.alignment import ROWS
from attnfaith.reporting.spec import section
from attnfaith.stats import mean


def _means(rows: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of the defined numbers of each row, [N] float64; NaN without any."""
    return np.array([mean(row[~np.isnan(row)].astype(np.float64)) for row in rows])


def _by_layer(name: str, pairs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Means of a number of N pairs, [L, 2] each, of layers and rows: of the row that predicts the word over layers, and of
    each layer and row.
    """
    numbers = np.stack(pairs).astype(np.float64)
    places = [(layer, place) for layer in range(numbers.shape[1]) for place in range(len(ROWS))]
    each = {f"{name} layer {layer}, {ROWS[place]}": numbers[:, layer, place] for layer, place in places}
    return {name: numbers[:, :, 0].mean(axis=1), **each}


@per_cell
def sentence_pairs(cell: Cell) -> dict[str, np.ndarray]:
    """target_probability: the mean over the target words of a pair of the probability of each, [N]; source_words,
    target_words, truncated; with gold links their numbers, sure_links and possible_links.
    """
    links = cell.rows("gold_links") if cell.has("gold_links") else []
    values = {
        "target_probability": np.array([row.mean() for row in cell.rows("target_probs")], np.float64),
        "source_words": cell.lengths.astype(float),
        "target_words": records.list_lengths(cell.table.column("target_tokens").combine_chunks()).astype(float),
        "truncated": cell.column("truncated"),
        "sure_links": np.array([(row == SURE).sum() for row in links], float),
        "possible_links": np.array([((row > 0) & (row != SURE)).sum() for row in links], float),
    }
    return {name: numbers for name, numbers in values.items() if len(numbers)}


SENTENCE_PAIRS = section("sentence_pairs", per_text=sentence_pairs)
ALIGNMENT_MARKERS = section(
    "alignment_markers",
    # [N] in 0..1, means over heads and target words
    per_text=lambda cell: _by_layer("marker_mass", [row.mean(axis=(1, 3)) for row in cell.rows("alignment_marker_mass")]),
)


WAYS = {
    "permutation": ("cross_permuted_probs", "cross_permuted_tvd"),
    "uniform": ("cross_uniform_probs", "cross_uniform_tvd"),
    "best_weight": ("knock_out_probs", "knock_out_tvd"),
    "other_weight": ("knock_out_other_probs", "knock_out_other_tvd"),
    "best_word": ("knock_out_removed_probs", ""),
    "other_word": ("knock_out_other_removed_probs", ""),
}
"""Changes of the model's input or attention: the columns of probabilities and of distances, "" without."""
LAYERS = ("cross_uniform_layer_probs", "cross_uniform_layer_tvd")


@per_cell
def cross_interventions(cell: Cell) -> dict[str, np.ndarray]:
    """For each way that the cell holds, cross_<way>_probability_drop, _probability, _before (of the same target words) and,
    where it has distances, _tvd, [N] each: means over draws and target words of a pair; NaN where none is defined. Of
    uniform layers "cross_uniform_probability_drop layer 0" and "cross_uniform_tvd layer 0".
    """
    own, numbers = [row.astype(np.float64) for row in cell.rows("target_probs")], {}
    for way, (probs, tvd) in WAYS.items():
        if not cell.has(probs):
            continue
        start, changed, before = f"cross_{way}", cell.rows(probs), []
        for after, row in zip(changed, own, strict=True):
            before.append(np.where(np.isnan(after), np.nan, row) if len(after) else after)
        numbers[f"{start}_probability"], numbers[f"{start}_before"] = _means(changed), _means(before)
        numbers[f"{start}_probability_drop"] = numbers[f"{start}_before"] - numbers[f"{start}_probability"]
        if tvd:
            numbers[f"{start}_tvd"] = _means(cell.rows(tvd))
    if cell.has(*LAYERS):
        probs, distances = (cell.rows(name) for name in LAYERS)
        for layer in range(distances[0].shape[0]):
            drops = [before - after[layer] for before, after in zip(own, probs, strict=True)]
            numbers[f"cross_uniform_probability_drop layer {layer}"] = _means(drops)
            numbers[f"cross_uniform_tvd layer {layer}"] = _means([row[layer] for row in distances])
    return numbers


CROSS_INTERVENTIONS = section("cross_interventions", per_text=cross_interventions)


IDENTIFIABILITY = "cross_identifiability_"
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps


@per_cell
def cross_identifiability(cell: Cell) -> dict[str, np.ndarray]:
    """cross_identifiability_<number>, [N] each, of the rows that predict target words, means over layers, heads and target
    words; and by layer and row, "cross_identifiability_width layer 0, predicting". width: of the interval of a weight. With
    attention top, low and high: the largest weight of each target word and the ends of its interval; zero: share of these
    that could be 0.
    """
    lows, highs = (cell.rows(IDENTIFIABILITY + name) for name in ("low", "high"))
    pairs = {"width": [(high - low).mean(axis=(1, 3, 4)) for low, high in zip(lows, highs, strict=True)]}
    if cell.has("alignment_attention"):
        for low, high, own in zip(lows, highs, cell.rows("alignment_attention"), strict=True):
            place = own.argmax(axis=-1)[..., None]
            top, least, most = (np.take_along_axis(array, place, -1)[..., 0] for array in (own, low, high))
            for name, values in {"top": top, "low": least, "high": most, "zero": least < DETERMINED}.items():
                pairs.setdefault(name, []).append(values.mean(axis=(1, 3)))
    return {key: values for name in pairs for key, values in _by_layer(IDENTIFIABILITY + name, pairs[name]).items()}


CROSS_IDENTIFIABILITY = section("cross_identifiability", per_text=cross_identifiability)
