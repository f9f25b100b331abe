"""Cells of the studies under recipes/: a small model, measured for three seeds by all that the analyses read, and
labelled as the models of each study.
"""

from dataclasses import asdict
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from attnfaith import recipes, runs
from attnfaith import record as records
from attnfaith.recipes import folder as shipped
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import Cell, one_cell
from tests.deception import model
from tests.records import of_cell, replaced
from tests.sections import appended
from tests.sequence_records import aligned
from tests.tiny_recipes import tiny_tree


SEEDS = (1, 2, 3, 4, 5)
PRODUCERS = """
gradient gradient_norm leave_one_out integrated_gradients random_scores permutation erasure adversary_exact adversary_search
minimal_flip_set identifiability rationale_erasure comprehensiveness conicity group_mass random_support
gradient_hidden_to_input selection sign_violations
""".split()


@cache
def measured(seed):
    """The record of a model of planted evidence, of 24 texts, whose deciding words are impermissible."""
    with TemporaryDirectory() as folder:
        tree = tiny_tree(folder, epochs=8, seed=seed, report={"page": False}, measure={"producers": PRODUCERS})
        runs.run(recipes.build(tree))
        record = records.load(Path(folder) / "record.parquet")
    marks = [row > 0 for row in records.rows(record, "rationale")]
    mass = [[row[own].sum()] for row, own in zip(records.rows(record, "attention"), marks, strict=True)]
    columns = {"group_mass_names": [["impermissible"]] * len(marks), "group_mass": mass}
    for name, values in (columns | {"group_mass_tokens": [[own.sum()] for own in marks]}).items():
        record = replaced(record, name, values)
    return appended(record, records.OPTIONAL_COLUMNS, impermissible=marks)


def cell(source=1, table=None, settings=None, **identity) -> Cell:
    """The measured model of seed `source` as another one. table: in place of its record. settings: of its recipe's data."""
    table = measured(source) if table is None else table
    (own,) = records.settings(table)
    table = of_cell(table, **{"seed": source, "objective": "classification"} | identity)
    recipe = own["recipe"] | {"data": own["recipe"]["data"] | (settings or {})}
    labelled = own | {"identity": asdict(one_cell(table).identity), "recipe": recipe}
    return one_cell(records.with_settings(table, [labelled]))


def family(*kinds, **identity) -> list[Cell]:
    """Models of two seeds of each kind, fields of their identity: the measured 1 and 2, of the next kind 2 and 3, ..."""
    kinds = [(place, seed, fields) for place, fields in enumerate(kinds or [{}]) for seed in (1, 2)]
    return [cell(1 + (place + seed - 1) % 3, seed=seed, **identity | fields) for place, seed, fields in kinds]


def twins(weight=0.0, **changed) -> list[Cell]:
    """Plain models of five seeds, and the same seeds changed, whose numbers are drawn (`deception.model`)."""
    return [model(seed) for seed in SEEDS] + [model(seed, weight, **changed) for seed in SEEDS]


def selecting(source, seed) -> Cell:
    """A model that selects the token it attends to most."""
    record = measured(source)
    attention = records.rows(record, "attention")
    selected = [row == row.max(initial=0) for row in attention]
    record = appended(record, records.OPTIONAL_COLUMNS, selected=selected, selection=attention)
    fields = {"selection_kind": "hardkuma", "selection_threshold": 0.0, "selection_target": 0.1}
    fields |= {"selection_pooling": "average", "selection_encoder": "bilstm"}
    return cell(source, record, seed=seed, attention_kind="selection", alignment="selector", projection="hardkuma", **fields)


def translator(seed, head=0, bleu=None, word_accuracy=0.5, **identity) -> Cell:
    """A translator of which one head of the second layer follows the links."""
    table = aligned(12, layers=2, heads=2, where=(1, head, 1), seed=seed)
    table = of_cell(table, **{"dataset": "rwth_de_en", "seed": seed} | identity)
    run = {"translation": {"bleu": bleu, "chrf": None, "word_accuracy": word_accuracy, "pairs": 100}}
    return one_cell(records.with_settings(table, [{"identity": asdict(one_cell(table).identity), "run": run}]))


ADVERSARY = {"objective": "adversarial", "adversary_divergence": "kl", "adversary_weight": 0.002}
GUIDED = {"objective": "guided", "attention_kind": "given", "encoder": "average"}
LAMBDAS = [{"projection": "sparsegen", "projection_parameter": value} for value in (-3.0, 0.5)]
BASES = ("bilstm+additive+softmax", "adversarial(kl, 0.002)")
WHOLE = {"distractors": 2, "length": [10, 30]}
BARE = {"length": [10, 30], "evidence_removed": ["train", "validation"], "distractors": 2}


def planted(source, arguments, **fields) -> Cell:
    """A model trained on texts of these arguments."""
    return cell(source, settings={"arguments": arguments}, training_texts=f"{sorted(arguments.items())}", **fields)


def gated(source) -> Cell:
    """A model with a measure called diffmask."""
    record = measured(source)
    names = [name.replace("importance_random", "importance_diffmask") for name in record.column_names]
    return cell(source, record.rename_columns(names).replace_schema_metadata(record.schema.metadata))


def without(words, share, source) -> Cell:
    return cell(source, seed=1, training_texts=f"{words}", settings={"removal": words and {"by": words, "share": share}})


STUDIES = {
    "alignment": lambda: [translator(1, bleu=31.5), translator(2), translator(3, head=1)],
    "any_classifier": lambda: family(dataset="sst"),
    "bastings_filippova_2020": lambda: family({}, {"random_erasure": 0.5}),
    "diffmask": lambda: [gated(1), gated(2)],
    "interventions": lambda: twins(diversity=0.5, deceit=2.0),
    "tutek_snajder_2020:interventions.analysis": lambda: family({}, {"word_tying": 0.5, "word_tying_distance": "norm"}),
    "jain_wallace_2019": lambda: family({}, {"encoder": "average"}, dataset="sst"),
    "meister_2021": lambda: [
        *family({}, {"projection": "sparsemax"}, *LAMBDAS, dataset="sst"),
        *family({"projection": "sparsemax", "objective": "untrained"}, dataset="sst"),
    ],
    "mohankumar_2020": lambda: family({}, {"diversity": 0.5}, dataset="sst", encoder="lstm"),
    "planted_evidence": lambda: [planted(source, texts) for texts in (WHOLE, BARE) for source in (1, 2)],
    "pruthi_2020": lambda: family({}, {"impermissible_mass": 0.1}, dataset="pronoun"),
    "pruthi_2020:pruthi_2020.sequences_analysis": lambda: [
        *(translator(seed, dataset="copy", word_accuracy=0.7 + 0.1 * seed) for seed in (1, 2)),
        translator(3, dataset="multi30k_links", bleu=20.0, impermissible_mass=1.0),
    ],
    "roar": lambda: [without(None, 0.0, 1), without("random", 0.1, 2), without("gradient", 0.1, 1)],
    "rationales": lambda: [*family(), selecting(2, seed=1), selecting(3, seed=2)],
    "serrano_smith_2019": family,
    "verdict": family,
    "wiegreffe_pinter_2019": lambda: family(
        *({}, ADVERSARY, {"projection": "uniform"}, {"encoder": "average"}, {"encoder": "average", "projection": "uniform"}),
        *(GUIDED | {"base": base} for base in BASES),
    ),
}
"""{folder[:module] of a study: a factory of its cells}; the module is the folder's own analysis unless it is named."""


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
