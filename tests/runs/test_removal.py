"""Remove and retrain, on generated texts whose evidence is known."""

from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from accelerate import PartialState

from attnfaith import record, runs
from attnfaith.runs.preparation import Run, check_readings
from attnfaith.runs.removal import ranking, without
from attnfaith.support.errors import AttnfaithError
from recipes.roar.analysis import summary
from tests.runs.test_runs import variant


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
def test_a_measure_that_knows_the_evidence_costs_more(tiny_recipe, tmp_path):
    base = tiny_recipe(
        data__arguments={"length": [8, 14], "vocabulary_size": 40, "sizes": {"train": 300, "validation": 60, "test": 200}},
        training__num_train_epochs=5,
        model={"encoder": "average", "embedding_size": 8},
        measure__producers=[],
        report__page=False,
    )
    runs.run(base)
    accuracy, texts = {}, set()
    for by in ("none", "random", "leave_one_out"):
        removal = [f"--data.removal={{by: {by}, share: 0.3, base: {base.output_dir}}}"] if by != "none" else []
        recipe = variant(base, f"--output_dir={tmp_path / by}", *removal)
        runs.run(recipe)
        table = record.load(tmp_path / by / "record.parquet")
        accuracy[by] = np.mean([row.argmax() for row in record.rows(table, "probs")] == table.column("label").to_numpy())
        texts |= {table.column(name)[0].as_py() for name in ("texts", "training_texts")}
    assert accuracy["none"] > accuracy["random"] + 0.05 and accuracy["random"] > accuracy["leave_one_out"] + 0.1
    assert len(texts) == 6, "a record tells what is left of texts from all of them"

    work = Run(recipe, Path(recipe.output_dir), PartialState(cpu=True))
    encoded = Run(base, Path(base.output_dir), PartialState(cpu=True)).rows("test")
    assert len([*(tmp_path / "run" / "scores").iterdir()]) == 3, "each split is scored once, for all models"
    signed, sizes = {}, {}
    for by, scores in (("lrp", signed), ("absolute_lrp", sizes)):
        work.recipe = variant(recipe, f"--data.removal.by={by}")
        scores.update(ranking(work, encoded))
    assert all(np.array_equal(sizes[name], np.abs(values)) for name, values in signed.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model__hierarchy": "sentence"}, "data.removal=.* is only for classifiers of this package, trained for labels by"),
        ({"data__removal": {"share": 0.3, "by": "gradient"}}, "data.removal.by needs data.removal.base"),
        (
            {"data__removal": {"share": 0.3, "by": "permutation", "base": "x"}},
            "data.removal.by='permutation' ranks no words",
        ),
        ({"data__removal": {"share": 0.3, "by": "absolute_gradient_norm", "base": "x"}}, "ranks no words"),
        ({"data__removal": {"share": 0.3, "by": "gradeint", "base": "x"}}, "gradient"),
        ({"data__removal": {"share": 0.3, "by": "attention", "base": "x"}}, "base=x is no trained run"),
    ],
)
def test_words_that_cannot_be_removed(tiny_recipe, change, message):
    with pytest.raises(AttnfaithError, match=message):
        check_readings(tiny_recipe(**{"data__removal": {"share": 0.3}} | change))
