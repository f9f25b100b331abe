"""Published accuracy and conicity of three LSTMs beside measured ones that are known."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from attnfaith import record as records
from attnfaith.reporting.analysis import load_analysis
from attnfaith.reporting.cells import split_cells
from tests.identities import typed


FOLDER = Path(__file__).parents[3] / "recipes" / "mohankumar_2020"
analysis = load_analysis(FOLDER / "analysis.py")


def cell(conicities, right, diversity=0.0, **fields):
    columns = {}
    for number, conicity in enumerate(conicities):
        row = {
            "instance_id": str(number), **asdict(replace(typed(**fields), diversity=diversity)),
            "tokens": ["w"] * 2, "label": 1, "truncated": False,
            "probs": [0.1, 0.9] if number < right else [0.9, 0.1], "attention": [0.5, 0.5],
            "conicity_absolute": conicity, "conicity_signed": conicity / 2,
        }  # fmt: skip
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    kinds = {name: records.Column((), "float64", undefined="one token") for name in columns if name.startswith("conicity")}
    return split_cells(records.build(columns, kinds))[0]


def test_each_model_stands_beside_its_own_numbers():
    cells = [
        cell([0.6, 0.8], 2, encoder="lstm", seed=1),
        cell([0.8, np.nan], 1, encoder="lstm", seed=2),
        cell([0.1, 0.3], 1, encoder="lstm", diversity=0.5),
        cell([0.2, 0.2], 0, encoder="orthogonal_lstm"),
        cell([0.9, 0.9], 2, encoder="bilstm"),
    ]
    table = analysis.beside_published(cells, pd.read_csv(FOLDER / "published.csv"))
    assert set(table["dataset"]) == {"sst"}
    by_authors = table[table["by"] == "authors"].set_index(["model", "statistic"])
    for model, accuracy, conicity, seeds in (
        ("vanilla", 0.75, 0.75, 2),
        ("diversity", 0.5, 0.2, 1),
        ("orthogonal", 0, 0.2, 1),
    ):
        row = by_authors.loc[(model, "accuracy")]
        np.testing.assert_allclose((row["measured"], row["n_seeds"]), (accuracy, seeds))
        np.testing.assert_allclose(by_authors.loc[(model, "conicity_absolute")]["measured"], conicity)
        np.testing.assert_allclose(row["difference"], accuracy - row["published"])
    assert by_authors.loc[("vanilla", "accuracy")]["published"] == 0.8179
    assert table[table["statistic"].str.startswith("pearson")]["measured"].isna().all()
