"""Records of sentence pairs whose numbers are chosen or drawn, for tests of everything that reads records."""

import numpy as np

from attnfaith import record as records
from tests.identities import columns_of, identity


AXES = {
    "alignment_attention": ("L", "A", "R", "G", "T"),
    "alignment_attention_mean": ("L", "R", "G", "T"),
    "alignment_marker_mass": ("L", "A", "R", "G"),
    "alignment_norm": ("L", "R", "G", "T"),
    "alignment_occlusion": ("G", "T"),
}


def columns(pairs, *, links=None, measures=None, **fields):
    """The columns of a one-cell record of (source words, target words); links: an array (G,T) a pair; measures: {column:
    an array a pair}.
    """
    values = {name: [value] * len(pairs) for name, value in columns_of(identity(**fields)).items()}
    values["instance_id"] = [f"pairs/{number}" for number in range(len(pairs))]
    values["tokens"], values["target_tokens"] = ([list(words) for words in side] for side in zip(*pairs, strict=True))
    values["truncated"] = [False] * len(pairs)
    values["target_probs"] = [np.full(len(words), 0.5, np.float32) for words in values["target_tokens"]]
    values |= {} if links is None else {"gold_links": list(links)}
    return values | dict(measures or {})


def build(pairs, *, links=None, measures=None, **fields):
    """A record of these columns; the axes of a measure are those of AXES. Occlusion is signed, attention a share of 1."""
    shares = {name: (0.0, 1.0) for name in AXES if "attention" in name}
    extra = {
        name: records.Column(AXES[name], signed=name == "alignment_occlusion", range=shares.get(name))
        for name in measures or {}
    }
    extra |= {} if links is None else {"gold_links": records.OPTIONAL_COLUMNS["gold_links"]}
    return records.build(columns(pairs, links=links, measures=measures, **fields), extra)


SENTENCES = (
    ("wir glauben nicht , daß wir nur rosinen herauspicken sollten .", "we do not believe that we should cherry-pick ."),
    ("das stimmt nicht !", "but this is not what happens ."),
    ("die grüne katze schläft heute im garten .", "the green cat sleeps in the garden today ."),
)


def aligned(count, *, layers=3, heads=4, where=(1, 2, 1), noise=0.3, seed=0, **fields):
    """A record of sentences in which one head of one layer follows the gold links in one row, `where`, but for noise; all
    else is drawn. A third of the links are possible only.
    """
    generator = np.random.default_rng(seed)
    pairs, links, attention, markers, norms, occlusions = [], [], [], [], [], []
    for number in range(count):
        source, target = (side.split() for side in SENTENCES[number % len(SENTENCES)])
        t, g = len(source), len(target)
        own = generator.permutation(max(t, g))[:g] % t
        gold = 2 * (own[:, None] == np.arange(t)).astype(np.int64)
        gold[generator.random(g) < 0.3] //= 2
        weights = generator.dirichlet(np.full(t + 1, 0.5), (layers, heads, 2, g))
        followed = np.concatenate([gold > 0, np.zeros((g, 1))], axis=1)
        weights[where] = noise * weights[where] + (1 - noise) * followed
        pairs.append((source, target))
        links.append(gold)
        attention.append(weights[..., :t].astype(np.float32))
        markers.append(weights[..., t].astype(np.float32))
        norms.append((weights[..., :t].mean(1) * generator.uniform(0.5, 1.5, t)).astype(np.float32))
        occlusions.append((generator.normal(size=(g, t)) + 2 * (gold > 0)).astype(np.float32))
    measures = {
        "alignment_attention": attention,
        "alignment_attention_mean": [weights.mean(1) for weights in attention],
        "alignment_marker_mass": markers,
        "alignment_norm": norms,
        "alignment_occlusion": occlusions,
    }
    return build(pairs, links=links, measures=measures, seed=seed, **fields)


def draw(count, *, layers=2, heads=3, seed=0, **fields):
    """A record of sentences whose weights are all drawn."""
    return aligned(count, layers=layers, heads=heads, where=(0, 0, 0), noise=1.0, seed=seed, **fields)
