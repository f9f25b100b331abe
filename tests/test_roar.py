"""Remove and retrain, on generated texts whose evidence is known."""

import datasets
import numpy as np
import pandas as pd
import pytest

from attnfaith import cli, recipes, roar, runs


def test_the_first_words_become_unknown(tiny_rows):
    rows = datasets.Dataset.from_list(tiny_rows([10, 3, 0]))
    scores = {"tiny/test/0": np.arange(10.0), "tiny/test/1": np.array([1.0, 5.0, 3.0]), "tiny/test/2": np.zeros(0)}
    expected = [list(ids) for ids in rows["input_ids"]]
    expected[0][8:11] = [1, 1, 1]  # ceil(.3 x 10) words, the last of the text, before the end marker
    expected[1][2] = 1
    assert roar.without(rows, scores, 0.3, 1, 1, seed=0)["input_ids"] == expected


def test_the_summary_by_hand():
    rows = pd.DataFrame(
        [
            ("none", 0.0, 0, 0.9), ("random", 0.1, 0, 0.8), ("random", 0.5, 0, 0.7), ("a", 0.1, 0, 0.5), ("a", 0.5, 0, 0.5),
            ("random", 0.1, 1, 0.8), ("random", 0.5, 1, 0.6), ("a", 0.1, 1, 0.7), ("a", 0.5, 1, 0.7), ("b", 0.1, 1, 0.9),
        ],
        columns=["measure", "share", "seed", "accuracy"],
    )  # fmt: skip
    table = roar.summary(rows).set_index("measure")
    assert table.loc["a"].to_dict() == pytest.approx({"n_seeds": 2, "loss": 0.125, "loss_min": 0.0, "loss_max": 0.25})
    assert table.loc["b", "n_seeds"] == 0 and np.isnan(table.loc["b", "loss"])  # a share is missing


@pytest.mark.slow
def test_measures_that_know_the_evidence_cost_more(tiny_recipe, tmp_path, monkeypatch):
    sizes = {"train": 300, "validation": 60, "test": 200}
    recipe = tiny_recipe(
        data__arguments={"length": [8, 14], "vocabulary_size": 40, "sizes": sizes},
        training__num_train_epochs=5,
        model={"encoder": "average", "embedding_size": 8},
        measure__producers=["gradient"],
        report__page=False,
    )
    runs.run(recipe)
    run, output = tmp_path / "run", tmp_path / "roar"
    rows = roar.roar(run, output, ["leave_one_out"], (0.3,), [3])
    keys = [("none", 0.0, 3, 200), ("random", 0.3, 3, 200), ("leave_one_out", 0.3, 3, 200)]
    assert [*rows[["measure", "share", "seed", "n"]].itertuples(index=False, name=None)] == keys
    accuracy = rows.set_index("measure")["accuracy"]
    assert accuracy["none"] > accuracy["random"] + 0.05 and accuracy["random"] > accuracy["leave_one_out"] + 0.1
    summary = pd.read_csv(output / "roar_summary.csv").set_index("measure")
    assert summary.loc["leave_one_out", "loss"] == pytest.approx(accuracy["random"] - accuracy["leave_one_out"])

    removed, retrained, without = [], [], roar.without
    monkeypatch.setattr(roar, "without", lambda rows, scores, **how: removed.append(scores) or without(rows, scores, **how))
    result = {"n": 1, "accuracy": 0.5, "macro_f1": 0.5}
    monkeypatch.setattr(roar, "_retrain", lambda recipe, *_: retrained.append(recipe.seed) or result)
    again = roar.roar(run, output, ["leave_one_out"], (0.3,), [3, 4])  # only the missing models are trained
    assert retrained == [4, 4, 4] and len(again) == 6
    pd.testing.assert_frame_equal(again[:3], rows, check_dtype=False)
    with pytest.raises(recipes.RecipeError, match="scores of another model, other texts or other measures"):
        roar.roar(run, output, ["gradient"], (0.3,), [3])

    words = ["roar", str(run), "--output", str(tmp_path / "signed"), "--measures", "lrp", "--shares", "0.5"]
    removed.clear()
    assert cli.main(words) == 0
    assert pd.read_csv(tmp_path / "signed" / roar.ROWS)["measure"].tolist() == ["none", "random", "lrp", "absolute_lrp"]
    signed, sizes = removed[6], removed[9]  # of the training split, which is changed first
    assert all(np.array_equal(sizes[name], np.abs(values)) for name, values in signed.items())


@pytest.mark.parametrize(
    ("change", "names", "message"),
    [
        ({"model__hierarchy": "sentence"}, ["attention"], "give another run"),
        ({"objective__kind": "untrained"}, ["attention"], "objective.kind='untrained'"),
        ({}, ["permutation"], r"no measure of inputs is called \['permutation'\]; choose from attention, .*gradient"),
    ],
)
def test_runs_and_measures_that_are_refused(tiny_recipe, change, names, message):
    with pytest.raises(recipes.RecipeError, match=message):
        roar.check(tiny_recipe(**change), names)
