"""Remove and retrain, on generated texts whose evidence is known."""

import shutil
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from accelerate import PartialState

from attnfaith import cli, recipes, runs
from attnfaith.runs.preparation import Run, check_base
from attnfaith.runs.removal import ranking, without
from recipes.roar.analysis import summary


STUDY = """
output_dir: roar
results: roar
analysis: recipes/roar/analysis.py
tables: [performance]
blocks:
  - {name: whole, recipe: run/recipe.yaml, set: {measure.producers: []}, grid: {seed: [3]}}
  - name: without
    recipe: run/recipe.yaml
    set: {measure.producers: [], data.removal.base: run, data.removal.share: 0.3}
    grid: {data.removal.by: [random, leave_one_out, lrp, absolute_lrp], seed: [3]}
"""


def test_the_first_words_become_unknown(tiny_rows):
    rows = datasets.Dataset.from_list(tiny_rows([10, 3, 0]))
    scores = {"tiny/test/0": np.arange(10.0), "tiny/test/1": np.array([1.0, 5.0, 3.0]), "tiny/test/2": np.zeros(0)}
    expected, words = ([list(row) for row in rows[name]] for name in ("input_ids", "tokens"))
    expected[0][8:11], words[0][7:] = [1, 1, 1], ["<unk>"] * 3  # ceil(.3 x 10) words, the last before the end marker
    expected[1][2], words[1][1] = 1, "<unk>"
    removed = without(rows, scores, 0.3, "<unk>", 1, seed=0)
    assert removed["input_ids"] == expected and removed["tokens"] == words


def test_the_summary_by_hand():
    rows = pd.DataFrame(
        [
            ("none", 0.0, 0, 0.9), ("random", 0.1, 0, 0.8), ("random", 0.5, 0, 0.7), ("a", 0.1, 0, 0.5), ("a", 0.5, 0, 0.5),
            ("random", 0.1, 1, 0.8), ("random", 0.5, 1, 0.6), ("a", 0.1, 1, 0.7), ("a", 0.5, 1, 0.7), ("b", 0.1, 1, 0.9),
        ],
        columns=["measure", "share", "seed", "accuracy"],
    )  # fmt: skip
    table = summary(rows).set_index("measure")
    assert table.loc["a"].to_dict() == pytest.approx({"n_seeds": 2, "loss": 0.125, "loss_min": 0.0, "loss_max": 0.25})
    assert table.loc["b", "n_seeds"] == 0 and np.isnan(table.loc["b", "loss"])  # a share is missing


@pytest.mark.slow
def test_measures_that_know_the_evidence_cost_more(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"train": 300, "validation": 60, "test": 200}
    recipe = tiny_recipe(
        data__arguments={"length": [8, 14], "vocabulary_size": 40, "sizes": sizes},
        training__num_train_epochs=5,
        model={"encoder": "average", "embedding_size": 8},
        measure__producers=["gradient"],
        report__page=False,
    )
    runs.run(recipe)
    Path("roar.yaml").write_text(STUDY)
    words = ["study", "roar.yaml", "--cores", "1"]
    assert cli.main(words) == 0
    rows, names = pd.read_csv("roar/roar.csv", keep_default_na=False), ("random", "leave_one_out", "lrp", "absolute_lrp")
    keys = [("none", 0.0, 3, 200), *((name, 0.3, 3, 200) for name in names)]
    assert [*rows[["measure", "share", "seed", "n"]].itertuples(index=False, name=None)] == keys
    accuracy = rows.set_index("measure")["accuracy"]
    assert accuracy["none"] > accuracy["random"] + 0.05 and accuracy["random"] > accuracy["leave_one_out"] + 0.1
    losses = pd.read_csv("roar/roar_summary.csv").set_index("measure")["loss"]
    assert losses["leave_one_out"] == pytest.approx(accuracy["random"] - accuracy["leave_one_out"])

    assert len([*Path("run/scores").iterdir()]) == 2 * 3, "each split is scored once by each measure, for all models"
    encoded = Run(recipe, Path("run"), PartialState()).rows("test")
    signed, sizes = (ranking(recipes.Removal(0.3, by, "run"), encoded) for by in ("lrp", "absolute_lrp"))
    assert all(np.array_equal(sizes[name], np.abs(values)) for name, values in signed.items())

    stamp = Path("roar/whole-3/record.parquet").stat().st_mtime_ns
    shutil.rmtree("roar/without-leave_one_out-3")
    assert cli.main(words) == 0, "only the missing model is trained"
    assert Path("roar/whole-3/record.parquet").stat().st_mtime_ns == stamp
    pd.testing.assert_frame_equal(pd.read_csv("roar/roar.csv", keep_default_na=False), rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model__hierarchy": "sentence"}, "data.removal=.* is only for classifiers of this package, trained for labels by"),
        ({"objective__kind": "untrained"}, "data.removal=.* is only for"),
        ({"data__removal": {"share": 0.3, "by": "gradient"}}, "data.removal.by needs data.removal.base"),
        ({"data__removal": {"share": 0.3, "by": "permutation", "base": "x"}}, "'permutation' is no measure of .*gradient"),
        ({"data__removal": {"share": 0.3, "by": "attention", "base": "x"}}, "base=x is no trained run"),
    ],
)
def test_words_that_cannot_be_removed(tiny_recipe, change, message):
    with pytest.raises((recipes.RecipeError, runs.RunError), match=message):
        check_base(tiny_recipe(**{"data__removal": {"share": 0.3}} | change))
