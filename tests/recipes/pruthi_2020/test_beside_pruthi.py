"""Published numbers of models that were trained to deceive, beside measured ones that are known."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnfaith import record as records
from attnfaith.reporting.analysis import load_analysis
from attnfaith.reporting.cells import split_cells
from tests.identities import typed


FOLDER = Path(__file__).parents[3] / "recipes" / "pruthi_2020"
analysis = load_analysis(FOLDER / "analysis.py")
MASS = ("group_mass_names", "group_mass", "group_mass_tokens", "group_mass_head_max")


def cell(masses, right, heads=False, impermissible_mass=0.0, **fields):
    """A cell of texts of four tokens, one of them impermissible, with such masses; the first `right` texts are told."""
    columns = {}
    for number, mass in enumerate(masses):
        row = {
            "instance_id": str(number), **asdict(replace(typed(**fields), impermissible_mass=impermissible_mass)),
            "tokens": ["w"] * 4, "label": 1, "truncated": False,
            "probs": [0.1, 0.9] if number < right else [0.9, 0.1], "attention": [mass, *[(1 - mass) / 3] * 3],
        }  # fmt: skip
        if "_permissible" not in fields.get("dataset", ""):
            row |= {"group_mass_names": ["impermissible"], "group_mass": [mass], "group_mass_tokens": [1.0]}
            row |= {"group_mass_head_max": [min(1, 2 * mass)]} if heads else {}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    kinds = {name: records.Column(("G",), "string" if name.endswith("names") else "float64") for name in MASS}
    return split_cells(records.build(columns, {name: kind for name, kind in kinds.items() if name in columns}))[0]


def measured(cells):
    return analysis.beside_published(cells, pd.read_csv(FOLDER / "published.csv"))


def test_seeds_are_averaged_and_stand_beside_the_number_of_their_task_encoder_and_penalty():
    cells = [
        cell([0.2, 0.4], 2, dataset="pronoun", encoder="bilstm", impermissible_mass=0.1, seed=1),
        cell([0.4, 0.6], 1, dataset="pronoun", encoder="bilstm", impermissible_mass=0.1, seed=2),
        cell([0.9, 0.9], 2, dataset="pronoun", encoder="bilstm", seed=1),
        cell([0.0, 0.0], 1, dataset="pronoun_permissible", encoder="bilstm", seed=1),
    ]
    table = measured(cells)
    assert set(table["dataset"]) == {"pronoun"}
    table = table[table["encoder"] == "bilstm"]
    hidden = table[(table["penalty"].astype(float) == 0.1) & (table["statistic"] == "impermissible_mass")]
    np.testing.assert_allclose(hidden["measured"], 0.4)
    np.testing.assert_allclose(hidden["difference"], hidden["measured"] - hidden["published"])
    assert set(hidden["n_seeds"]) == {2}
    without = table[(table["impermissible_removed"].astype(str) == "True") & (table["statistic"] == "accuracy")]
    assert len(without) and np.allclose(without["measured"], 0.5) and set(without["published"]) == {0.633}
    assert table[table["penalty"].astype(float) == 1]["measured"].isna().all()


@pytest.mark.parametrize(("heads", "mass"), [("mean", 0.3), ("max", 0.6)])
def test_a_pretrained_encoder_stands_beside_bert_by_the_mean_and_by_the_head_with_most(heads, mass):
    fields = {"dataset": "sst_wiki", "encoder": "bert", "reduction": "mean", "reduction_layers": "last"}
    table = measured([cell([0.2, 0.4], 2, heads=True, **fields)])
    rows = table[(table["impermissible_heads"] == heads) & (table["statistic"] == "impermissible_mass")]
    rows = rows[rows["penalty"].astype(float) == 0]
    assert len(rows) == 1 and set(rows["model"]) == {"bert"}
    np.testing.assert_allclose(rows["measured"], mass)


def test_every_kind_of_model_has_both_numbers_with_the_authors_where_they_have_one():
    """Of pronouns the accuracy of an honest BiLSTM is not known, and stands here all the same."""
    cells = [
        cell([0.2, 0.4], 2, dataset="pronoun", encoder="bilstm", impermissible_mass=0.1, seed=1),
        cell([0.4, 0.6], 1, dataset="pronoun", encoder="bilstm", impermissible_mass=0.1, seed=2),
        cell([0.9, 0.7], 2, dataset="pronoun", encoder="bilstm", seed=1),
        cell([0.0, 0.0], 1, dataset="pronoun_permissible", encoder="bilstm", seed=1),
        cell([0.1, 0.1], 1, dataset="sst_wiki", encoder="bilstm", impermissible_mass=0.1, seed=1),
    ]
    table = analysis.accuracy_and_mass(cells, pd.read_csv(FOLDER / "published.csv"))
    table = table.set_index(["dataset", "penalty", "impermissible_removed"])
    assert len(table) == 4
    hidden, honest = table.loc[("pronoun", 0.1, False)], table.loc[("pronoun", 0.0, False)]
    assert (hidden["accuracy"], hidden["n_seeds"], hidden["impermissible_mass_bound"]) == (0.75, 2, "below")
    np.testing.assert_allclose(hidden[["impermissible_mass", "impermissible_mass_published"]].astype(float), [0.4, 1e-8])
    assert honest["accuracy"] == 1 and np.isnan(honest["accuracy_published"]) and honest["impermissible_mass"] == 0.8
    without = table.loc[("pronoun", 0.0, True)]
    assert (without["accuracy"], without["accuracy_published"]) == (0.5, 0.633) and np.isnan(without["impermissible_mass"])
    assert table.loc[("sst_wiki", 0.1, False), "accuracy_published"] == 0.606
