"""Models that were trained to deceive: published numbers rows measured ones that are known."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from attnfaith import record as records
from attnfaith.record import with_settings
from attnfaith.reporting.analysis import Settings
from attnfaith.reporting.cells import split_cells
from recipes.pruthi_2020 import analysis, sequences_analysis
from tests.identities import columns_of, typed


SETTINGS = Settings(published=Path(analysis.__file__).with_name("published.csv"))
MASS = ("group_mass_names", "group_mass", "group_mass_tokens", "group_mass_head_max")


def cell(masses, right, heads=False, impermissible_mass=0.0, **fields):
    """A cell of texts of four tokens, one of them impermissible, with such masses; the first `right` texts are told."""
    columns = {}
    for number, mass in enumerate(masses):
        row = {
            "instance_id": str(number), **columns_of(replace(typed(**fields), impermissible_mass=impermissible_mass)),
            "tokens": ["w"] * 4, "label": 1, "truncated": False, "impermissible": [True, False, False, False],
            "probs": [0.1, 0.9] if number < right else [0.9, 0.1], "attention": [mass, *[(1 - mass) / 3] * 3],
        }  # fmt: skip
        if "_permissible" not in fields.get("dataset", ""):
            row |= {"group_mass_names": ["impermissible"], "group_mass": [mass], "group_mass_tokens": [1.0]}
            row |= {"group_mass_head_max": [min(1, 2 * mass)]} if heads else {}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    kinds = {name: records.Column(("G",), "string" if name.endswith("names") else "float64") for name in MASS}
    kinds = {name: kind for name, kind in kinds.items() if name in columns}
    return split_cells(records.build(columns, kinds | {"impermissible": records.OPTIONAL_COLUMNS["impermissible"]}))[0]


PRONOUN = [
    cell([0.2, 0.4], 2, dataset="pronoun", encoder="bilstm", impermissible_mass=0.1, seed=1),
    cell([0.4, 0.6], 1, dataset="pronoun", encoder="bilstm", impermissible_mass=0.1, seed=2),
    cell([0.9, 0.7], 2, dataset="pronoun", encoder="bilstm", seed=1),
    cell([0.0, 0.0], 1, dataset="pronoun_permissible", encoder="bilstm", seed=1),
]


def test_seeds_are_averaged_and_stand_beside_the_number_of_their_task_encoder_and_penalty():
    results = analysis.tables(PRONOUN, SETTINGS).tables
    models = results["accuracy_and_mass"].set_index(["penalty", "impermissible_removed"])
    row = models.loc[(0.1, False)]
    assert (row["accuracy"], row["n_seeds"], row["impermissible_mass_bound"]) == (0.75, 2, "below")
    assert (row["impermissible_mass"], row["impermissible_mass_published"]) == pytest.approx((0.4, 1e-8))
    honest, without = models.loc[(0.0, False)], models.loc[(0.0, True)]
    assert honest["accuracy"] == 1 and np.isnan(honest["accuracy_published"]) and honest["impermissible_mass"] == 0.8
    assert (without["accuracy"], without["accuracy_published"]) == (0.5, 0.633) and np.isnan(without["impermissible_mass"])
    assert len(results["uncovered_models"]) == 1 and results["uncovered"]["test"].is_unique


@pytest.mark.parametrize(("heads", "mass"), [("mean", 0.3), ("max", 0.6)])
def test_a_pretrained_encoder_stands_beside_bert_by_the_mean_and_by_the_head_with_most(heads, mass):
    fields = {"dataset": "sst_wiki", "encoder": "bert", "reduction": "mean", "reduction_layers": "last"}
    table = analysis.tables([cell([0.2, 0.4], 2, heads=True, **fields)], SETTINGS).tables["accuracy_and_mass"]
    (row,) = table[table["impermissible_heads"] == heads].to_dict("records")
    assert row["model"] == "bert" and row["impermissible_mass"] == pytest.approx(mass)


ATTENTION = {
    "alignment_attention_mean": records.Column(("L", "R", "G", "T")),
    "gold_links": records.OPTIONAL_COLUMNS["gold_links"],
}


def translator(dataset="copy", seed=1, penalty=0.0, projection="softmax", weight=0.5, accuracy=0.9, bleu=None):
    """A cell of one pair of two words each, whose linked words get `weight` in the row that predicts."""
    identity = records.Identity(
        dataset, "0" * 12, "test", seed, projection=projection, impermissible_mass=penalty, objective="translation"
    )
    weights = np.full((1, 2, 2, 2), 0.25, np.float32)
    weights[0, 0] = [[weight, 0.1], [0.1, weight]]
    columns = {"instance_id": ["a"], **records.as_columns(identity, 1), "tokens": [["x", "y"]], "truncated": [False]}
    columns |= {"target_tokens": [["X", "Y"]], "target_probs": [np.array([0.5, 0.5], np.float32)]}
    extra = {} if projection == "none" else ATTENTION
    if extra:
        columns |= {"alignment_attention_mean": [weights], "gold_links": [np.array([[2, 0], [0, 1]])]}
    settings = {"identity": asdict(identity), "run": {"translation": {"word_accuracy": accuracy, "bleu": bleu}}}
    return split_cells(with_settings(records.build(columns, extra), [settings]))[0]


def test_sequence_tasks_by_hand_and_beside_published_numbers():
    cells = [translator(), translator(seed=2, weight=0.7, accuracy=0.7), translator(projection="none")]
    cells += [translator(penalty=1.0, weight=0.0), translator("multi30k_links", bleu=20.0, weight=0.2)]
    results = sequences_analysis.tables(cells, SETTINGS).tables
    dot, hidden, none = (f"gru sequence to sequence, {kind} attention" for kind in ("dot", "manipulated", "none"))
    ours = results["sequences"].set_index(["dataset", "encoder", "penalty", "statistic"])["measured"]
    assert ours["sequence_copy", dot, 0.0, "accuracy"] == pytest.approx(0.8)
    mass = ours["sequence_copy", dot, 0.0, "impermissible_mass"]
    assert mass == pytest.approx((1.0 + 1.4) / 2 / 3), "the end of the sentence counts"
    assert ours["sequence_copy", hidden, 1.0, "impermissible_mass"] == 0
    assert ("sequence_copy", none, 0.0, "impermissible_mass") not in ours
    rows = results["sequences_beside_published"].set_index(["dataset", "encoder", "penalty", "statistic"])
    row = rows.loc[("sequence_copy", dot, "0.0", "accuracy")]
    assert (row["published"], row["n_seeds"]) == (0.999, 2) and row["difference"] == pytest.approx(0.8 - 0.999)
    assert rows.loc[("multi30k_en_de", dot, "0.0", "bleu"), "measured"] == 20
