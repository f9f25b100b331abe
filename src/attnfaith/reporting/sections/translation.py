"""Pairs of sentences: how well a translator predicts the target, its attention to markers, its predictions when its
cross-attention is changed, and what that attention could be.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import SURE
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.links import ROWS, gold
from attnfaith.reporting.spec import Quantity, Section, per_cell, plain
from attnfaith.stats import mean


@per_cell
def sentence_pairs(cell: Cell) -> dict[str, np.ndarray]:
    """target_probability: the mean over the target words of a pair of the probability of each, [N]; source_words,
    target_words, truncated; with gold links their numbers, sure_links and possible_links.
    """
    lengths = records.list_lengths(cell.table.column("target_tokens").combine_chunks())
    values = {
        "target_probability": np.array([row.mean() for row in cell.rows("target_probs")], np.float64),
        "source_words": cell.lengths.astype(float),
        "target_words": lengths.astype(float),
        "truncated": cell.column("truncated"),
    }
    if cell.has("gold_links"):
        links = gold(cell)
        values["sure_links"] = np.array([(row == SURE).sum() for row in links], float)
        values["possible_links"] = np.array([((row > 0) & (row != SURE)).sum() for row in links], float)
    return values


SENTENCE_PAIRS = Section(
    name="sentence_pairs",
    place=3,
    needs=("target_tokens", "target_probs", "truncated"),
    uses=("gold_links",),
    per_text=sentence_pairs,
    compared=("target_probability",),
    quantities={"target_probability": Quantity("probability of a target word"), "truncated": Quantity("cut")},
    caption="Sentence pairs",
    note="Means over pairs. Probability of a target word: given the source sentence and the right target words before it, "
    "the mean over the words of a pair. Cut: share of the pairs that are longer than the model reads.",
)

MARKER_MASS = "alignment_marker_mass"


@per_cell
def alignment_markers(cell: Cell) -> dict[str, np.ndarray]:
    """The share of attention that lies on markers, [N] in 0..1, means over heads and target words of a pair: marker_mass, of
    the row that predicts the word, over layers too; and by layer and row, "marker_mass layer 0, predicting".
    """
    masses = np.stack([row.mean(axis=(1, 3)) for row in cell.rows(MARKER_MASS)]).astype(np.float64)
    values = {"marker_mass": masses[:, :, 0].mean(axis=1)}
    for layer in range(masses.shape[1]):
        values |= {f"marker_mass layer {layer}, {row}": masses[:, layer, place] for place, row in enumerate(ROWS)}
    return values


ALIGNMENT_MARKERS = Section(
    name="alignment_markers",
    place=7,
    needs=("target_tokens", MARKER_MASS),
    per_text=alignment_markers,
    compared=("marker_mass",),
    quantities={"marker_mass": Quantity("share on markers", above=0.5), "marker_mass *": Quantity("{} row", above=0.5)},
    caption="Attention to markers",
    note="The share of the attention to the source that lies on its end marker, a language code or another marker, mean "
    "over heads and target words of a pair, then over pairs. Markers are no words: what lies on them aligns with nothing, "
    "and the weights of words are not divided by the rest.",
    sentences=(
        "In the row that predicts a word, {marker_mass.mean:.0%} of the attention lies on markers and not on words"
        "{marker_mass.interval}.",
    ),
)


# ---------- interventions


WAYS = {
    "permutation": ("cross_permuted_probs", "cross_permuted_tvd", "weights permuted"),
    "uniform": ("cross_uniform_probs", "cross_uniform_tvd", "weights uniform"),
    "best_weight": ("knock_out_probs", "knock_out_tvd", "no weight on the best source word"),
    "other_weight": ("knock_out_other_probs", "knock_out_other_tvd", "no weight on another source word"),
    "best_word": ("knock_out_removed_probs", "", "best source word removed"),
    "other_word": ("knock_out_other_removed_probs", "", "another source word removed"),
}
"""Changes of the model's input or attention: the columns of probabilities and of distances, "" without, and words."""
LAYERS = ("cross_uniform_layer_probs", "cross_uniform_layer_tvd")
FALLEN = 0.5
"""A target word has fallen where its probability is at most this share of the model's own."""


def _pair(own: np.ndarray, changed: np.ndarray) -> dict[str, float]:
    """Means over draws and target words of one pair. own: probabilities [G]; changed: [G] or [K, G], NaN where undefined."""
    changed = changed.astype(np.float64) if len(changed) else np.full(len(own), np.nan)  # without draws
    before = np.where(np.isnan(changed), np.nan, own.astype(np.float64))
    fallen = np.where(np.isnan(before), np.nan, changed <= FALLEN * before)
    return plain(probability_drop=before - changed, probability=changed, before=before, fallen=fallen)


@per_cell
def cross_interventions(cell: Cell) -> dict[str, np.ndarray]:
    """For each way that the cell holds, cross_<way>_probability_drop, _probability, _before (of the same target words),
    _fallen and, where it has distances, _tvd, [N] each: means over draws and target words of a pair; NaN where none is
    defined. Of uniform layers "cross_uniform_probability_drop layer 0" and "cross_uniform_tvd layer 0".
    """
    own, numbers = cell.rows("target_probs"), {}
    for way, (probs, tvd, _) in WAYS.items():
        if not cell.has(probs):
            continue
        pairs = [_pair(*probabilities) for probabilities in zip(own, cell.rows(probs), strict=True)]
        numbers |= {f"cross_{way}_{name}": np.array([pair[name] for pair in pairs]) for name in pairs[0]}
        if tvd:
            numbers[f"cross_{way}_tvd"] = _means(cell.rows(tvd))
    if cell.has(*LAYERS):
        probs, distances = (cell.rows(name) for name in LAYERS)
        for layer in range(distances[0].shape[0]):
            drops = [before - after[layer] for before, after in zip(own, probs, strict=True)]
            numbers[f"cross_uniform_probability_drop layer {layer}"] = _means(drops)
            numbers[f"cross_uniform_tvd layer {layer}"] = _means([row[layer] for row in distances])
    return numbers


def _means(rows: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of the defined numbers of each row, [N] float64; NaN without any."""
    return np.array([mean(row[~np.isnan(row)].astype(np.float64)) for row in rows])


LABELS = {
    "probability_drop": "fall of a target word’s probability",
    "probability": "probability of a target word",
    "before": "the model’s own probability",
    "fallen": "words that fall by half or more",
    "tvd": "TVD",
}
CROSS_INTERVENTIONS = Section(
    name="cross_interventions",
    source="after Jain & Wallace (2019), sections 4.2.1 and 4.1",
    place=8,
    chapter="interventions",
    needs=("target_tokens", "target_probs"),
    one_of=tuple(probs for probs, *_ in WAYS.values()),
    uses=("cross_permuted_*", "cross_uniform_*", "knock_out_*"),
    per_text=cross_interventions,
    compared=("*_probability_drop", "*_tvd"),
    quantities={
        f"cross_{way}_{name}": Quantity(f"{label}, {words}")
        for way, (*_, words) in WAYS.items()
        for name, label in LABELS.items()
    }
    | {f"cross_uniform_{name} *": Quantity(f"{LABELS[name]}, uniform in {{}}") for name in ("probability_drop", "tvd")},
    caption="Changed cross-attention",
    note="Means over the target words of a pair, then over pairs. The model’s own probability: of the same target "
    "words. Falls by half or more: share of the target words. TVD: total variation distance between the next token’s "
    "distribution and the model’s own, 0..1. Permuted: weights dealt out anew among the source words, in all heads, rows "
    "and chosen layers alike, mean over the draws; uniform: all source words weigh the same in all heads and layers; no "
    "weight: one source word has none and the rest is divided by its sum, in all heads and layers, for one target word at a "
    "time; removed: the word is left out of the source, and the encoder reads what is left. The best source word has the "
    "largest weight, mean over heads and the layers that were asked for; another is drawn at random, since any word may be "
    "missed.",
    sentences=(
        "With uniform weights a target word has a probability of {cross_uniform_probability.mean:.2f} in place of "
        "{cross_uniform_before.mean:.2f}.",
        "With permuted weights a target word has a probability of {cross_permutation_probability.mean:.2f} in place of "
        "{cross_permutation_before.mean:.2f}.",
        "When the source word of largest weight loses its weight, a target word’s probability falls by "
        "{cross_best_weight_probability_drop.mean:.2f}, of another one by {cross_other_weight_probability_drop.mean:.2f}.",
        "When the source word of largest weight is removed, a target word’s probability falls by "
        "{cross_best_word_probability_drop.mean:.2f}, of another one by {cross_other_word_probability_drop.mean:.2f}.",
    ),
)


# ---------- identifiability


IDENTIFIABILITY = "cross_identifiability_"
ATTENTION = "alignment_attention"
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps


@per_cell
def cross_identifiability(cell: Cell) -> dict[str, np.ndarray]:
    """cross_identifiability_<number>, [N] each, of the rows that predict target words, means over layers, heads and target
    words; and by layer and row, "cross_identifiability_width layer 0, predicting". width: of the interval
    of a weight. With attention top, low and high: the largest weight of
    each target word and the ends of its interval; zero: share of these that could be 0.
    """
    weights = cell.rows(ATTENTION) if cell.has(ATTENTION) else [None] * len(cell)
    parts = (cell.rows(IDENTIFIABILITY + name) for name in ("low", "high"))
    pairs = []
    for low, high, own in zip(*parts, weights, strict=True):
        values = {"width": (high - low).mean(axis=(1, 3, 4))}
        if own is not None:
            place = own.argmax(axis=-1)[..., None]
            top, least, most = (np.take_along_axis(array, place, -1)[..., 0] for array in (own, low, high))
            at_largest = {"top": top, "low": least, "high": most, "zero": (least < DETERMINED).astype(float)}
            values |= {name: value.mean(axis=(1, 3)) for name, value in at_largest.items()}
        pairs.append(values)
    stacked = {name: np.stack([values[name] for values in pairs]).astype(np.float64) for name in pairs[0]}  # [N, L, 2]
    numbers = {name: values[:, :, 0].mean(axis=1) for name, values in stacked.items()}
    numbers |= {
        f"{name} layer {layer}, {row}": values[:, layer, place]
        for name, values in stacked.items()
        for layer in range(values.shape[1])
        for place, row in enumerate(ROWS)
    }
    return {IDENTIFIABILITY + name: values for name, values in numbers.items()}


def _identifiability_sentences(cell: Cell) -> Iterator[str]:
    means = {name.removeprefix(IDENTIFIABILITY): values.mean() for name, values in cross_identifiability(cell).items()}
    if means["width"] <= DETERMINED:
        yield "In every row that predicts a target word attention is the only one."
        return
    yield (
        f"In the rows that predict target words the weight of a source word lies in an interval of {means['width']:.3f} on "
        "average, and nothing in the model would notice where."
    )
    if "top" in means:
        yield (
            f"The largest weight of a target word, {means['top']:.2f} on average, could be anything from {means['low']:.2f} "
            f"to {means['high']:.2f}."
        )


IDENTIFIED = {
    "width": Quantity("width of a weight’s interval {}", below=DETERMINED),
    "top": Quantity("largest weight {}"),
    "low": Quantity("the least it could be {}"),
    "high": Quantity("the most it could be {}"),
    "zero": Quantity("could be 0 {}"),
}
CROSS_IDENTIFIABILITY = Section(
    name="cross_identifiability",
    source="after Brunner et al. (2020), section 3",
    place=9,
    chapter="interventions",
    needs=("target_tokens", *(IDENTIFIABILITY + name for name in ("low", "high"))),
    uses=(f"{IDENTIFIABILITY}*", ATTENTION),
    per_text=cross_identifiability,
    compared=(f"{IDENTIFIABILITY}width",),
    quantities={IDENTIFIABILITY + name + end: quantity for name, quantity in IDENTIFIED.items() for end in ("", " *")},
    caption="Identifiability of cross-attention",
    note="Other attentions that leave the output of a head as it is, so that no prediction changes; tokens of source words "
    "exchange weights, markers keep theirs. Width: of the interval that a weight could lie in, mean over source words, "
    "heads and target words of a pair, then over pairs. Below: pairs whose rows are all determined. Largest weight: of each "
    "target word’s heaviest source word, and the ends of its interval; could be 0: share of these that need no weight at "
    "all. A head with values of d numbers determines attention over d + 1 tokens at most.",
    sentences=_identifiability_sentences,
)
