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
from attnfaith.reproduction import EXACTLY, NOT, REPORTED, WITHIN
from attnfaith.support.errors import AttnfaithError
from tests.tiny_recipes import tiny_tree


pytestmark = pytest.mark.slow
TREE = tiny_tree("run", epochs=1, measure={"producers": ["gradient", "permutation"]}, report={"page": False})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a complete run; not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "tiny"
    runs.run(recipes.build({**TREE, "output_dir": str(folder)}))
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the complete run that may be changed."""
    return shutil.copytree(finished, tmp_path / "tiny")


def changed(folder, change):
    state = json.loads((folder / "run.json").read_text())
    change(state)
    (folder / "run.json").write_text(json.dumps(state))


# ------------------------------------------------------------------------------------------------ numbers and columns


@pytest.mark.parametrize(
    ("recorded", "now", "agreement"),
    [
        ({"sizes": {"train": 300}}, {"sizes": {"train": 301}}, [NOT]),
        ({"sizes": {"train": 3}, "seconds": 1.0, "dataset": {"name": "sst"}}, {"dataset": {"name": "mine"}}, [NOT]),
        ({"epochs": 3.0}, {"epochs": 4.0}, [NOT]),
        ({"best": {"value": 0.5}}, {"best": {"value": 0.509}}, [WITHIN]),
        ({"best": {"value": 0.5}}, {"best": {"value": 0.52}}, [NOT]),
        ({"best": {"value": None}}, {"best": {"value": 0.1}}, [NOT]),
        (
            {"best": {"metric": "eval_loss", "value": 0.5}},
            {"best": {"metric": "eval_loss", "value": 0.52}},
            [EXACTLY, WITHIN],
        ),
        ({"best": {"metric": "eval_loss", "value": 0.5}}, {"best": {"metric": "eval_loss", "value": 0.53}}, [EXACTLY, NOT]),
        ({"translation": {"bleu": 20.0}}, {"translation": {"bleu": 20.9}}, [WITHIN]),
        ({"translation": {"bleu": 20.0}}, {"translation": {"bleu": 21.1}}, [NOT]),
    ],
)
def test_numbers_of_a_run(recorded, now, agreement):
    """A score has an absolute tolerance, a loss and a translation a relative one; names of data are not compared."""
    assert [row.agreement for row in reproduction.compare_numbers(recorded, now)] == agreement


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
    fewer = rows_of(table, table.slice(2).drop_columns(["permuted_probs"]))
    assert (fewer["texts"].agreement, fewer["texts"].difference, fewer["probs"].agreement) == (NOT, 2, EXACTLY)
    assert fewer["permuted_probs"].now == "missing" and fewer["permuted_probs"].agreement == NOT
    words = table.column("tokens").to_pylist()
    row = rows_of(table, with_column(table, "tokens", [["other", *words[0][1:]], *words[1:]]))["tokens"]
    assert row.agreement == NOT and row.tolerance == 0


def compared(first, second, tolerance=0.05):
    return reproduction.compare_column("x", first, second, tolerance)


def test_undefined_agrees_with_undefined_and_few_texts_may_be_of_another_shape_or_value():
    column, infinite = pa.array([[0.1, math.nan], [0.2]]), pa.array([[math.inf], [1.0]])
    assert compared(column, column).agreement == compared(infinite, infinite).agreement == EXACTLY
    assert compared(column, pa.array([[0.1, 0.3], [0.2]])).agreement == NOT
    assert compared(infinite, pa.array([[2.0], [1.0]])).agreement == NOT
    values = [[float(row), 1.0] for row in range(40)]
    for count, agreement in ((1, WITHIN), (3, NOT)):  # undefined now, or a draw less
        for other in ([math.nan, 1.0], [1.0]):
            assert compared(pa.array(values), pa.array([other] * count + values[count:])).agreement == agreement
    kinds = pa.array(["a", "b"] * 20).dictionary_encode()
    for count, agreement in ((0, EXACTLY), (2, WITHIN), (3, NOT)):
        other = pa.array(["c"] * count + kinds.to_pylist()[count:]).dictionary_encode()
        assert compared(kinds, other)[3:6] == (count / 40, 0.05, agreement)
    numbers, none = pa.array([0.1, None, 0.3]), pa.array([], pa.float64())
    assert compared(none, none).agreement == EXACTLY
    assert compared(numbers, numbers)[1:] == (pytest.approx(0.2), pytest.approx(0.2), 0, pytest.approx(0.005), EXACTLY)
    assert compared(pa.array([1, None]), pa.array([1, None])).agreement == EXACTLY
    assert compared(pa.array([1, None]), pa.array([1, 2])).agreement == NOT


def test_another_training_does_not_agree_and_rounded_weights_do(finished, tmp_path):
    """Weights a millionth apart, as another machine would have them: other bits, the same results."""
    table = record.load(finished / "record.parquet")
    runs.run(recipes.load(finished / "recipe.yaml", ["--output_dir", str(tmp_path / "other"), "--seed=4"]))
    other = rows_of(table, record.load(tmp_path / "other" / "record.parquet"))
    assert {"importance_gradient", "permuted_probs", "probs"} <= {n for n, row in other.items() if row.agreement == NOT}
    rounded = shutil.copytree(finished, tmp_path / "rounded")
    path = rounded / "model" / "model.safetensors"
    save_file({name: value * (1 + 1e-6) for name, value in load_file(path).items()}, path, metadata={"format": "pt"})
    runs.measure_run(rounded, recipes.load(rounded / "recipe.yaml"))
    rows = rows_of(table, record.load(rounded / "record.parquet"))
    assert rows["weights (SHA-256)"].agreement == REPORTED and rows["importance_gradient"].agreement == WITHIN
    described = reproduction.describe(pd.DataFrame(rows.values()))
    assert " 0 do not" in described and "the weights are not the same bit for bit" in described


# ------------------------------------------------------------------------------------------------ runs


def test_a_run_of_this_machine_comes_out_the_same(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", str(finished)]) == 0
    folder = tmp_path / "runs" / "reproduced" / "tiny"
    rows = pd.read_csv(folder / "reproduction.csv")
    assert set(rows["agreement"]) == {EXACTLY} and len(rows) > 20
    printed = capsys.readouterr().out
    assert f"{len(rows)} results: {len(rows)} agree exactly, 0 agree within tolerance, 0 do not" in printed
    stamp = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    assert cli.main(["reproduce", str(finished)]) == 0
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == stamp, "compared again, not trained again"


def test_results_that_do_not_agree_are_listed(copied, tmp_path, capsys):
    def change(state):
        state["sizes"]["train"] += 2
        state["best"]["value"] += 0.003
        state["dataset"].update(revision="main", name="mine")

    changed(copied, change)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", str(copied), "--output", str(tmp_path / "again")])
    assert stopped.value.code == 1
    printed = capsys.readouterr().out
    assert "1 agree within tolerance, 1 do not" in printed
    assert re.search(r"sizes.train +66 +64 +2 +0.0\n", printed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: changed(folder, lambda state: state.update(status="trained")), "'trained'"),
        (lambda folder: changed(folder, lambda state: state["texts"].update(test="0")), "on other texts than .* in test"),
        (lambda folder: (folder / "recipe.yaml").unlink(), "no recipe at .*recipe.yaml"),
    ],
)
def test_folders_that_cannot_be_reproduced(copied, tmp_path, change, message):
    change(copied)
    with pytest.raises(AttnfaithError, match=message):
        reproduction.reproduce(copied, tmp_path / "again")
    assert not (tmp_path / "again").exists()
