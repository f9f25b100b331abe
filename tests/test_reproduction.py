"""Recorded runs carried out again and compared; from a Hub: tests/hub/test_round_trip.py."""

import json
import math
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from safetensors.torch import load_file, save_file

from attnfaith import cli, recipes, record, reproduction, runs
from attnfaith.reproduction import EXACTLY, NOT, WITHIN
from attnfaith.support.errors import AttnfaithError


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]


def changed(folder, change):
    state = json.loads((folder / "run.json").read_text())
    change(state)
    (folder / "run.json").write_text(json.dumps(state))


LOSS = {"metric": "eval_loss", "value": 0.5}
NUMBERS = [
    ({"sizes": {"train": 300}}, {"sizes": {"train": 301}}, NOT),
    ({"sizes": {"train": 3}, "seconds": 1.0, "dataset": {"name": "sst"}}, {"dataset": {"name": "mine"}}, NOT),
    ({"epochs": 3.0}, {"epochs": 4.0}, NOT),
    ({"best": {"value": 0.5}}, {"best": {"value": 0.509}}, WITHIN),
    ({"best": {"value": 0.5}}, {"best": {"value": 0.52}}, NOT),
    ({"best": {"value": None}}, {"best": {"value": 0.1}}, NOT),
    ({"best": {"value": None}}, {}, NOT),
    ({"best": LOSS}, {"best": {**LOSS, "value": 0.52}}, WITHIN),
    ({"best": LOSS}, {"best": {**LOSS, "value": 0.53}}, NOT),
    ({"translation": {"bleu": 20.0}}, {"translation": {"bleu": 20.9}}, WITHIN),
    ({"translation": {"bleu": 20.0}}, {"translation": {"bleu": 21.1}}, NOT),
]


@pytest.mark.parametrize(("recorded", "now", "agreement"), NUMBERS)
def test_numbers_of_a_run(recorded, now, agreement):
    """A score has an absolute tolerance, a loss and a translation a relative one; names of data are not compared."""
    assert [row.agreement for row in reproduction.compare_numbers(recorded, now)][-1:] == [agreement]
    assert {row.agreement for row in reproduction.compare_numbers(recorded, recorded)} == {EXACTLY}


def with_column(table, name, values):
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


def rows_of(table, other):
    return {row.name.removeprefix("record: "): row for row in reproduction.compare_records(table, other)}


@pytest.mark.parametrize(("share", "agreement", "scale"), [(0.0, EXACTLY, 1), (0.03, WITHIN, 1e-4), (0.08, NOT, 1)])
def test_a_column_by_its_own_spread(finished, share, agreement, scale):
    """Differences of 3 % and of 8 % of the spread, whatever the column's unit; rows are matched by their ids."""
    table = record.load(finished / "record.parquet")
    scores = [row.astype(np.float64) * scale / 1e-2 for row in record.rows(table, "importance_gradient")]
    values = np.concatenate(scores)
    shift = share * np.abs(values - values.mean()).mean()
    first = with_column(table, "importance_gradient", [row.tolist() for row in scores])
    second = with_column(table, "importance_gradient", [(row + shift).tolist() for row in scores])
    rows = rows_of(first, second.take(np.random.default_rng(0).permutation(table.num_rows)))
    row = rows.pop("importance_gradient")
    assert row.agreement == agreement and row.difference == pytest.approx(shift, rel=1e-2, abs=1e-9 * scale)
    assert {other.agreement for other in rows.values()} == {EXACTLY}
    assert {"attention", "permuted_probs", "tokens", "texts"} < set(rows)


def test_records_of_other_texts_classes_and_columns(finished):
    table = record.load(finished / "record.parquet")
    swapped = rows_of(table, with_column(table, "probs", [row[::-1].tolist() for row in record.rows(table, "probs")]))
    assert swapped["probs"].agreement == NOT and swapped["probs"].recorded == pytest.approx(swapped["probs"].now)
    words = table.column("tokens").to_pylist()
    other = with_column(table, "tokens", [["other", *words[0][1:]], *words[1:]])
    rows = rows_of(table, other.slice(0, table.num_rows - 2).drop_columns(["permuted_probs"]))
    apart = {name for name, row in rows.items() if row.agreement == NOT}
    assert apart == {"texts", "permuted_probs", "tokens"} and rows["permuted_probs"].now == "missing"


def agreement(first, second):
    return reproduction.compare_column("x", pa.array(first), pa.array(second), 0.05).agreement


def test_undefined_agrees_with_undefined_and_few_texts_may_be_of_another_shape_or_value():
    column, infinite = [[0.1, math.nan], [0.2]], [[math.inf], [1.0]]
    for same in (column, infinite, [], [0.1, None, 0.3], [1, None]):
        assert agreement(same, same) == EXACTLY
    for old, new in ((column, [[0.1, 0.3], [0.2]]), (infinite, [[2.0], [1.0]]), ([1, None], [1, 2])):
        assert agreement(old, new) == NOT
    values = [[float(row), 1.0] for row in range(40)]
    for count, expected in ((1, WITHIN), (3, NOT)):  # undefined now, or a draw less
        for other in ([math.nan, 1.0], [1.0]):
            assert agreement(values, [other] * count + values[count:]) == expected
    kinds = ["a", "b"] * 20
    for count, expected in ((0, EXACTLY), (2, WITHIN), (3, NOT)):
        assert agreement(kinds, ["c"] * count + kinds[count:]) == expected
    rare = [[math.nan]] * 90 + [[0.1], [0.3]] * 5
    assert agreement(rare, [[value + 0.006] for [value] in rare]) == NOT, "undefined texts do not dilute a difference"


def test_another_training_does_not_agree_and_rounded_weights_do(finished, tmp_path):
    """Weights a millionth apart, as another machine would have them: the same results."""
    table = record.load(finished / "record.parquet")
    runs.run(recipes.load(finished / "recipe.yaml", ["--output_dir", str(tmp_path / "other"), "--seed=4"]))
    other = rows_of(table, record.load(tmp_path / "other" / "record.parquet"))
    assert {"importance_gradient", "permuted_probs", "probs"} <= {n for n, row in other.items() if row.agreement == NOT}
    rounded = shutil.copytree(finished, tmp_path / "rounded")
    path = rounded / "model" / "model.safetensors"
    save_file({name: value * (1 + 1e-6) for name, value in load_file(path).items()}, path, metadata={"format": "pt"})
    runs.measure_run(rounded, recipes.load(rounded / "recipe.yaml"), overwrite=True)
    rows = rows_of(table, record.load(rounded / "record.parquet"))
    assert rows["importance_gradient"].agreement == WITHIN and NOT not in {row.agreement for row in rows.values()}


def test_a_run_comes_out_the_same_and_results_that_do_not_are_listed(copied, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", str(copied)]) == 0
    folder = tmp_path / "runs" / "reproduced" / "run"
    rows = pd.read_csv(folder / "reproduction.csv")
    assert set(rows["agreement"]) == {EXACTLY} and len(rows) > 15
    printed = capsys.readouterr().out
    assert f"{len(rows)} results: {len(rows)} agree exactly, 0 agree within tolerance, 0 do not" in printed
    stamp = (folder / "model" / "model.safetensors").stat().st_mtime_ns

    def change(state):
        state["sizes"]["train"] += 2
        state["best"]["value"] += 0.003
        state["dataset"].update(revision="main", name="mine")

    changed(copied, change)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", str(copied)])
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    assert "1 agree within tolerance, 1 do not" in printed and re.search(r"sizes.train +66 +64 ", printed)
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == stamp, "compared again, not trained again"


REFUSED = {
    "'trained'": lambda folder: changed(folder, lambda state: state.update(status="trained")),
    "on other texts than .* in test": lambda folder: changed(folder, lambda state: state["texts"].update(test="0")),
    "no recipe at .*recipe.yaml": lambda folder: (folder / "recipe.yaml").unlink(),
}


@pytest.mark.parametrize("message", REFUSED)
def test_folders_that_cannot_be_reproduced(copied, tmp_path, message):
    REFUSED[message](copied)
    with pytest.raises(AttnfaithError, match=message):
        reproduction.reproduce(copied, tmp_path / "again")
    assert not (tmp_path / "again").exists()
