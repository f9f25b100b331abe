"""Tiny cells of the studies under recipes/, whose numbers are known."""

from dataclasses import asdict, replace
from functools import cache
from importlib import import_module

import numpy as np

from attnfaith import record as records
from attnfaith.measurement.registry import find
from attnfaith.recipes import folder as shipped
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import Cell, split_cells
from tests import records as built
from tests.deception import model
from tests.identities import columns_of, typed
from tests.records import draw, draw_sparse
from tests.sections import appended
from tests.sequence_records import aligned


NAN, SEEDS = np.nan, (1, 2, 3, 4, 5)
SHARES = (0.1, 0.5)  # of the tokens that tests of erasure take away


def cell_of(identity, rows, kinds=None, settings=None) -> Cell:
    """Return a cell of rows, dictionaries with attention and probs at least; kinds: the columns of the other names."""
    columns: dict[str, list] = {}
    for number, row in enumerate(rows):
        values = {"instance_id": f"t/{number}", **columns_of(identity), "tokens": ["w"] * len(row["attention"])}
        for name, value in (values | {"label": 1, "truncated": False} | row).items():
            columns.setdefault(name, []).append(value)
    table = records.build(columns, kinds or {})
    return split_cells(table if settings is None else records.with_settings(table, settings))[0]


def erased_cell(identity, falls, texts=30, noise=0.03, more=None, kinds=None) -> Cell:
    """Return a cell in which taking away what a measure ranks first costs `falls` {measure: fall} of a probability of .95,
    and leaving nothing else costs as much less than .7; more: columns with one value for all texts.
    """
    names, sizes = list(falls), np.array([*falls.values()])[:, None]
    rows = []
    for number in range(texts):
        random = np.random.default_rng([number, identity.seed, *identity.dataset.encode(), *identity.projection.encode()])
        removed, left = noise * random.normal(size=(2, len(names), len(SHARES)))
        row = {
            "probs": [0.05, 0.95],
            "attention": random.dirichlet(np.ones(6)),
            "rationale_erasure_measures": names,
            "rationale_erasure_shares": list(SHARES),
            "rationale_erasure_removed_probs": np.clip(0.95 - sizes + removed, 0, 1),
            "rationale_erasure_kept_probs": np.clip(0.25 + sizes + left, 0, 1),
            "rationale_erasure_whole_prob": 0.95,
            "rationale_erasure_empty_prob": 0.2,
        }
        scored = [name for name in names if name != "attention" and not name.startswith(records.ABSOLUTE)]
        row |= {f"importance_{name}": random.normal(size=6) for name in scored}
        rows.append(row | (more or {}))
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    declared = {f"importance_{name}": records.Column(("T",)) for name in scored}
    for name in (name for name in rows[0] if name.startswith("rationale_erasure")):
        kind = "string" if name.endswith("measures") else "float64"
        declared[name] = records.Column(axes.get(name.removeprefix("rationale_erasure_"), ()), kind)
    return cell_of(identity, rows, declared | (kinds or {}))


# ------------------------------------------------------------------------------------------------ by study


def translation_cell(seed, head=0, scores=None) -> Cell:
    """A translator of which one head of the second layer follows the links. scores: of its translations."""
    table = aligned(12, layers=2, heads=2, where=(1, head, 1), seed=seed, dataset="rwth_de_en")
    identity = asdict(split_cells(table)[0].identity)
    return split_cells(records.with_settings(table, [{"identity": identity, "run": {"translation": scores}}]))[0]


IDENTIFIED = {
    **{f"identifiability_{name}": 0.1 for name in ("tvd", "bound", "support", "top_attention", "top_low")},
    **{"identifiability_logit_change": 0.0, "identifiability_certainty": "exact", "identifiability_low": np.zeros(6)},
    **{"identifiability_high": np.ones(6), "identifiability_attention": np.full(6, 1 / 6)},
}
SIGNED = {"attention": 0.3, "absolute_signed": 0.3, "signed": 0.6, "random": 0.1}


def tuned_cell(seed=0, falls=SIGNED, **how) -> Cell:
    """A fine-tuned encoder, measured by tests of erasure and by identifiability."""
    axes = dict.fromkeys(("low", "high", "attention"), ("T",))
    kinds = dict.fromkeys(IDENTIFIED, "float64") | {"identifiability_certainty": "string"}
    columns = {name: records.Column(axes.get(name.partition("_")[2], ()), kind) for name, kind in kinds.items()}
    return erased_cell(typed(seed=seed), falls, more=IDENTIFIED, kinds=columns, **how)


def saliency_cell(*falls, **identity) -> Cell:
    return erased_cell(typed(**identity), dict(zip(("attention", "good", "random"), falls or (0.3, 0.6, 0.1), strict=True)))


PARTS = {
    "integrated_gradients_residual": [-0.2, 0.0, -0.01, 0.0],
    "integrated_gradients_steps": [540, 20, 60, 20],
    "lrp_residual": [2.0, 1.0, 0.0, NAN],
    "lrp_unaccounted": [0.4, 0.0, 0.0, NAN],
}


def parts_cell() -> Cell:
    """Parts that sum to 2, 2, 4 and to what cannot be divided by: of 2.2 and 2 and 4.01 and 0."""
    texts = [{"attention": [0.5, 0.5], "integrated_gradients": row} for row in ([1, 1], [3, -1], [2, 2], [1, -1])]
    for text, relevance in zip(texts, ([1, 1], [1, 2], [0, 4], [NAN, 1]), strict=True):
        text["lrp"] = relevance
    table = built.build(texts, measures=("integrated_gradients", "lrp"))
    return split_cells(built.with_columns(table, PARTS, dict.fromkeys(PARTS, ())))[0]


def twins(seeds=SEEDS, weight=0.0, **changed) -> list[Cell]:
    """Plain models, and the same seeds changed."""
    return [model(seed) for seed in seeds] + [model(seed, weight, **changed) for seed in seeds]


def drawn(**identity) -> Cell:
    return split_cells(draw(12, **identity))[0]


def attacked(**identity) -> Cell:
    """Drawn texts of whose attention the exact adversary moves .2 nats."""
    columns = {"epsilon": [[0.01]] * 12, "jsd": [[0.2]] * 12, "bound": [[0.2]] * 12, "one_token": [[1]] * 12}
    columns = {f"adversary_exact_{name}": values for name, values in (columns | {"certainty": ["exact"] * 12}).items()}
    return split_cells(appended(draw(12, **identity), "adversary_exact", **columns))[0]


def conicity_cell(conicities, right, diversity=0.0, **identity) -> Cell:
    """Texts with these conicities, of which the first `right` are classified correctly."""
    rows = []
    for number, conicity in enumerate(conicities):
        probs = [0.1, 0.9] if number < right else [0.9, 0.1]
        rows.append(
            {"probs": probs, "attention": [0.5, 0.5], "conicity_absolute": conicity, "conicity_signed": conicity / 2}
        )
    kinds = {f"conicity_{name}": records.Column((), "float64", undefined="one token") for name in ("absolute", "signed")}
    return cell_of(replace(typed(**identity), diversity=diversity), rows, kinds)


WHOLE = {"distractors": 2, "length": [10, 30]}
BARE = {"length": [10, 30], "evidence_removed": ["train", "validation"], "distractors": 2}


def planted_cell(arguments, seed, **fields) -> Cell:
    """A model trained on texts of these arguments; one that uses the evidence attends to it."""
    (plain,) = split_cells(draw(60, seed=0, rationale=True, dataset="planted_evidence"))  # the same texts for every seed
    identity = replace(plain.identity, seed=seed, training_texts=f"{sorted(arguments.items())}", **fields)
    settings = [{"identity": asdict(identity), "recipe": {"data": {"arguments": arguments}}}]
    cell = Cell(identity, records.with_settings(plain.table, settings))
    if "evidence_removed" not in arguments:
        gold, rest = [row.copy() for row in records.rows(cell.table, "rationale")], 0.01 * (seed % 10 + 1)
        cell.attention = [(marks + rest) / (marks + rest).sum() for marks in gold]
    return cell


def hidden_cell(masses, right, penalty=0.0, **identity) -> Cell:
    """Texts of four tokens, one of them impermissible, with these masses; the first `right` texts are correct."""
    rows = []
    for number, mass in enumerate(masses):
        row = {"impermissible": [True, False, False, False], "attention": [mass, *[(1 - mass) / 3] * 3]}
        row["probs"] = [0.1, 0.9] if number < right else [0.9, 0.1]
        if "_permissible" not in identity["dataset"]:
            row |= {"group_mass_names": ["impermissible"], "group_mass": [mass], "group_mass_tokens": [1.0]}
            row |= {"group_mass_head_max": [min(1, 2 * mass)]} if "reduction" in identity else {}
        rows.append(row)
    groups = [name for name in rows[0] if "group" in name]
    kinds = {name: records.Column(("G",), "string" if "names" in name else "float64") for name in groups}
    kinds["impermissible"] = records.OPTIONAL_COLUMNS["impermissible"]
    return cell_of(replace(typed(**identity), impermissible_mass=penalty), rows, kinds)


def copier_cell(dataset="copy", seed=1, penalty=0.0, projection="softmax", weight=0.5, accuracy=0.9, bleu=None) -> Cell:
    """One pair of two words each, whose linked words get `weight` in the row that predicts."""
    how = {"projection": projection, "impermissible_mass": penalty, "objective": "translation"}
    identity = records.Identity(dataset, "0" * 12, "test", seed, **how)
    weights = np.full((1, 2, 2, 2), 0.25, np.float32)
    weights[0, 0] = [[weight, 0.1], [0.1, weight]]
    columns = {"instance_id": ["a"], **records.as_columns(identity, 1), "tokens": [["x", "y"]], "truncated": [False]}
    columns |= {"target_tokens": [["X", "Y"]], "target_probs": [np.array([0.5, 0.5], np.float32)]}
    kinds = {}
    if projection != "none":
        columns |= {"alignment_attention_mean": [weights], "gold_links": [np.array([[2, 0], [0, 1]])]}
        kinds = {"alignment_attention_mean": records.Column(("L", "R", "G", "T"))}
        kinds["gold_links"] = records.OPTIONAL_COLUMNS["gold_links"]
    settings = {"identity": asdict(identity), "run": {"translation": {"word_accuracy": accuracy, "bleu": bleu}}}
    return split_cells(records.with_settings(records.build(columns, kinds), [settings]))[0]


HIT = {"attention": 0.2, "hardkuma": 0.9}  # share of the texts whose marked token a model ranks first
SELECTOR = {"selection_kind": "hardkuma", "selection_threshold": 0.0, "selection_target": 0.1}
SELECTOR |= {"selection_pooling": "average", "selection_encoder": "bilstm"}
SELECTOR |= {"attention_kind": "selection", "alignment": "selector", "projection": "hardkuma"}


def hits(kind, seed, texts=30):
    return np.random.default_rng([seed, kind == "attention"]).random(texts) < HIT[kind]


def selection_cell(kind, seed, measures=()) -> Cell:
    """A model of texts of ten tokens, the first of which is marked; it ranks that first where `hits` says so, and so do
    measures.
    """
    first = hits(kind, seed)
    texts = [
        {"attention": np.eye(10)[0 if hit else 4], "gold": np.eye(10)[0], "probs": [0.2, 0.8], "label": number % 2}
        for number, hit in enumerate(first)
    ]
    texts = [text | dict.fromkeys(measures, text["attention"]) for text in texts]
    selects = kind != "attention"
    fields = SELECTOR | {"objective": "classification(selected 0.1)"} if selects else {}
    table = built.build(texts, seed=seed, measures=measures, rationale=True, encoder="bilstm", **fields)
    sizes = [0.0, 0.1, 0.2] if selects else [0.1, 0.2]
    chosen = [[text["attention"] > 0] * len(sizes) for text in texts]
    columns = {"measures": [["attention"] * len(sizes)] * len(texts), "shares": [sizes] * len(texts), "chosen": chosen}
    columns |= {
        "kept_probs": [[[0.2, 0.8]] * len(sizes)] * len(texts),
        "removed_probs": [[[0.5, 0.5]] * len(sizes)] * len(texts),
    }
    columns = {f"selection_{name}": values for name, values in columns.items()}
    if selects:
        columns |= {"selected": [row[0] for row in chosen], "selection": [text["attention"] for text in texts]}
    return split_cells(appended(table, find("selection").columns | records.OPTIONAL_COLUMNS, **columns))[0]


def flip_cell(seed) -> Cell:
    """Three texts of four items: attention flips after two, never, and only when all weight is gone; the minimum is one."""
    record = built.build([{"attention": [0.4, 0.3, 0.2, 0.1], "probs": [0.9, 0.1], "label": 0} for _ in range(3)], seed=seed)
    orders = ("attention", "gradient", "attention_gradient")
    flips = {"size": [2.0, NAN, 4.0], "mass": [0.7, NAN, 1.0], "empty": [False, False, True]}
    columns = {f"erasure_flip_{name}_{order}": values for order in orders for name, values in flips.items()}
    columns |= {"erasure_flip_size_random": [[3.0], [NAN], [4.0]], "erasure_flip_mass_random": [[0.6], [NAN], [1.0]]}
    columns |= {"erasure_flip_empty_random": [[False], [False], [True]], "erasure_order": [[[3, 2, 1, 0]]] * 3}
    columns |= {"erasure_probs": [[[0.4, 0.6], *[[0.8, 0.2]] * 3]] * 3, "erasure_gradient": [[0.1, 0.2, 0.3, 0.4]] * 3}
    record = appended(record, "erasure", **columns)
    least = {"set": [[0], [], [0, 1, 2, 3]], "size": [1.0, NAN, 4.0], "mass": [0.4, NAN, 1.0], "empty": [False, False, True]}
    least = {f"minimal_flip_{name}": values for name, values in least.items()} | {"minimal_flip_certainty": ["exact"] * 3}
    return split_cells(appended(record, "minimal_flip_set", **least))[0]


NEAR, FROZEN = "adversarial(kl, 0.002)", "adversarial(jsd, 0.1, frozen)"
FAMILY = [{}, {"projection": "uniform"}, {"objective": NEAR}, {"objective": FROZEN}]
FAMILY += [{"encoder": "average"}, {"encoder": "average", "projection": "uniform"}]
FAMILY += [{"encoder": "average", "objective": f"guided({base})"} for base in ("bilstm+additive+softmax", NEAR)]


def texts_cell(rows, **identity) -> Cell:
    """A cell of rows (id, attention, probs, label)."""
    rows = [dict(zip(("instance_id", "attention", "probs", "label"), row, strict=True)) for row in rows]
    return cell_of(typed(**{"vectors": "random(1)", "seed": 10} | identity), rows)


def family_cell(place, seed, count=40) -> Cell:
    """One kind of FAMILY: attention and predictions are drawn, and lengths and labels follow from the text."""
    generator, texts, rows = np.random.default_rng(10 * seed + place), np.random.default_rng(0), []
    for number in range(count):
        length, label = 0 if number == 3 else int(texts.integers(1, 12)), int(texts.integers(2))
        attention = generator.dirichlet(np.full(length, 0.5)) if length else []
        rows.append((f"t/{number}", attention, generator.dirichlet([1, 1]), None if number == 5 else label))
    return texts_cell(rows, seed=seed, **FAMILY[place])


def retrained_cell(by=None, share=0.0, right=3) -> Cell:
    """Four texts, the first `right` of them correct, of a model that was trained without words."""
    rows = [{"probs": [0.1, 0.9] if number < right else [0.9, 0.1], "attention": [1.0]} for number in range(4)]
    identity, removal = typed(training_texts=f"{by}"), by and {"by": by, "share": share, "base": None}
    return cell_of(identity, rows, settings=[{"identity": asdict(identity), "recipe": {"data": {"removal": removal}}}])


LEVELS = ("softmax", "sparsemax", "sparsegen(-3)", "sparsegen(0.5)")
SCORES = {"bleu": 31.5, "chrf": None, "word_accuracy": 0.5, "pairs": 100, "exact": 0.25, "split": "test"}
PRONOUN = {"dataset": "pronoun", "encoder": "bilstm"}
STUDIES = {
    "alignment": lambda: [translation_cell(1, scores=SCORES), translation_cell(2), translation_cell(3, head=1)],
    "any_classifier": lambda: [tuned_cell(seed) for seed in SEEDS],
    "bastings_filippova_2020": lambda: [
        saliency_cell(),
        saliency_cell(0.6, 0.3, 0.1, seed=1),
        saliency_cell(0.6, 0.3, 0.1, objective="classification(tokens erased 0.5)"),
        saliency_cell(projection="sparsemax"),
    ],
    "diffmask": lambda: [selection_cell("attention", seed, ("diffmask",)) for seed in SEEDS],
    "interventions": lambda: twins(diversity=0.5, deceit=2.0),
    "tutek_snajder_2020:interventions.analysis": lambda: twins(word_tying=0.5, word_tying_distance="norm", deceit=2.0),
    "jain_wallace_2019": lambda: [
        *(drawn(seed=seed, encoder=encoder) for seed in (1, 2) for encoder in ("bilstm", "average")),
        *(drawn(seed=1, dataset="ade"), attacked(seed=1, dataset="imdb")),
    ],
    "meister_2021": lambda: [
        *(draw_sparse(name, seed, texts=22) for name in LEVELS for seed in SEEDS),
        *(draw_sparse("sparsemax", seed, objective="untrained", relation=0.0, texts=22) for seed in SEEDS),
    ],
    "mohankumar_2020": lambda: [
        conicity_cell([0.6, 0.8], 2, encoder="lstm", seed=1),
        conicity_cell([0.8, NAN], 1, encoder="lstm", seed=2),
        conicity_cell([0.1, 0.3], 1, encoder="lstm", diversity=0.5, seed=1),
        conicity_cell([0.2, 0.2], 0, encoder="orthogonal_lstm", seed=1),
        conicity_cell([0.9, 0.9], 2, encoder="bilstm"),
    ],
    "planted_evidence": lambda: [planted_cell(texts, seed) for texts in (WHOLE, BARE) for seed in SEEDS],
    "pruthi_2020": lambda: [
        *(hidden_cell([0.2, 0.4], 2, 0.1, **PRONOUN, seed=1), hidden_cell([0.4, 0.6], 1, 0.1, **PRONOUN, seed=2)),
        hidden_cell([0.9, 0.7], 2, **PRONOUN, seed=1),
        hidden_cell([0.0, 0.0], 1, **PRONOUN | {"dataset": "pronoun_permissible"}, seed=1),
        hidden_cell([0.2, 0.4], 2, dataset="sst_wiki", encoder="bert", reduction="mean", reduction_layers="last"),
    ],
    "pruthi_2020:pruthi_2020.sequences_analysis": lambda: [
        *(copier_cell(), copier_cell(seed=2, weight=0.7, accuracy=0.7), copier_cell(projection="none")),
        *(copier_cell(penalty=1.0, weight=0.0), copier_cell("multi30k_links", bleu=20.0, weight=0.2)),
    ],
    "roar": lambda: [retrained_cell(), retrained_cell("random", 0.1, 2), retrained_cell("gradient", 0.1, 1)],
    "rationales": lambda: [selection_cell(kind, seed) for kind in HIT for seed in SEEDS],
    "serrano_smith_2019": lambda: [flip_cell(seed) for seed in SEEDS],
    "wiegreffe_pinter_2019": lambda: [family_cell(place, seed) for seed in (10, 11) for place in range(len(FAMILY))],
}
"""{folder[:module] of a study: a factory of tiny cells}; the module is the folder's own analysis unless it is named."""


def analysis_of(study):
    """The module of a study's analysis, and its settings."""
    folder, _, name = study.partition(":")
    published = shipped() / folder / "published.csv"
    settings = Settings(published=published if published.is_file() else None)
    return import_module(f"recipes.{name or f'{folder}.analysis'}"), settings


@cache
def analysed(study):
    """The cells of a study, and what its analysis makes of them."""
    module, settings = analysis_of(study)
    cells = STUDIES[study]()
    return cells, module.tables(cells, settings)
