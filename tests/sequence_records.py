"""Records of sentence pairs whose numbers are given or drawn, for tests of what is made from records."""

from dataclasses import asdict

import numpy as np

from attnfaith import record as records
from tests.identities import typed


AXES = {
    "alignment_attention": ("L", "A", "R", "G", "T"),
    "alignment_attention_mean": ("L", "R", "G", "T"),
    "alignment_marker_mass": ("L", "A", "R", "G"),
    "alignment_norm": ("L", "R", "G", "T"),
    "alignment_occlusion": ("G", "T"),
}


def columns(pairs, *, links=None, measures=None, **identity):
    """The columns of a one-cell record of (source words, target words); links: an array (G,T) a pair; measures: {column:
    an array a pair}.
    """
    made = {name: [value] * len(pairs) for name, value in asdict(typed(**identity)).items()}
    made["instance_id"] = [f"pairs/{number}" for number in range(len(pairs))]
    made["tokens"], made["target_tokens"] = ([list(words) for words in side] for side in zip(*pairs, strict=True))
    made["truncated"] = [False] * len(pairs)
    made["target_probs"] = [np.full(len(words), 0.5, np.float32) for words in made["target_tokens"]]
    made |= {} if links is None else {"gold_links": list(links)}
    return made | dict(measures or {})


def build(pairs, *, links=None, measures=None, **identity):
    """A record of these columns; the axes of a measure are those of AXES."""
    extra = {name: records.Column(AXES[name]) for name in measures or {}}
    extra |= {} if links is None else {"gold_links": records.OPTIONAL_COLUMNS["gold_links"]}
    return records.build(columns(pairs, links=links, measures=measures, **identity), extra)


def draw(count, *, layers=2, heads=3, seed=0, **identity):
    """A record of random sentences with every column of AXES, and a sure link for each target word."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 7, (count, 2))
    pairs = [([f"s{i}" for i in range(t)], [f"t{i}" for i in range(g)]) for g, t in lengths]
    links, measures = [], {name: [] for name in AXES}
    for g, t in lengths:
        links.append(2 * (generator.integers(0, t, (g, 1)) == np.arange(t)).astype(np.int64))
        weights = generator.dirichlet(np.ones(t + 1), (layers, heads, 2, g)).astype(np.float32)
        measures["alignment_attention"].append(weights[..., :t])
        measures["alignment_attention_mean"].append(weights[..., :t].mean(1))
        measures["alignment_marker_mass"].append(weights[..., t])
        measures["alignment_norm"].append(generator.random((layers, 2, g, t), np.float32))
        measures["alignment_occlusion"].append(generator.normal(size=(g, t)).astype(np.float32))
    return build(pairs, links=links, measures=measures, seed=seed, **identity)
