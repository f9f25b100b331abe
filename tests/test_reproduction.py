"""Recorded runs carried out again, from a folder and from a Hub, and compared."""

import csv
import json
import math
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import yaml

from attnfaith import cli, recipes, record, reproduction, runs
from attnfaith.reproduction import EXACTLY, NOT, REPORTED, WITHIN
from attnfaith.support import provenance
from attnfaith.support.errors import AttnfaithError
from tests.tiny_recipes import tiny_tree


pytestmark = pytest.mark.slow


TREE = tiny_tree("run", epochs=1, measure={"producers": ["gradient", "permutation"]})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a complete run; not to be changed."""
    from tests.figures import REPORT, one_small_figure

    folder = tmp_path_factory.mktemp("finished") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, one_small_figure())
        runs.run(recipes.build({**TREE, "output_dir": str(folder)}))
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the complete run that may be changed."""
    shutil.copytree(finished, tmp_path / "tiny")
    return tmp_path / "tiny"


def changed(folder, change):
    run = json.loads((folder / "run.json").read_text())
    change(run)
    (folder / "run.json").write_text(json.dumps(run))


# ------------------------------------------------------------------------------------------- what is recorded


def test_a_training_that_goes_on_with_other_code_says_so(tmp_path, quick_report, monkeypatch):
    recipe = recipes.build({**TREE, "output_dir": str(tmp_path / "run")})

    def stops(*_arguments, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("attnfaith.runs.train.make_trainer", stops)
        with pytest.raises(KeyboardInterrupt):
            runs.run(recipe)
    changed(tmp_path / "run", lambda run: run["provenance"].update(commit="another"))
    runs.run(recipe, resume=True)
    made = runs.read_state(tmp_path / "run")["provenance"]
    assert made["begun"] == {"commit": "another"} and made["commit"] == provenance.checkout()[0]


# ------------------------------------------------------------------------------------------------ comparing


@pytest.mark.parametrize(
    ("name", "recorded", "now", "agreement"),
    [
        ("sizes.x", 300, 301, NOT),
        ("vocabulary", 3000, 3001, NOT),
        ("epochs", 3.0, 4.0, NOT),
        ("best.value", 0.5, 0.509, WITHIN),
        ("best.value", 0.5, 0.52, NOT),
        ("best.value", None, None, EXACTLY),
        ("best.value", None, 0.1, NOT),
        ("best.metric", "a", "a", EXACTLY),
        ("best.metric", "a", "b", NOT),
        ("translation.bleu", 20.0, 20.9, WITHIN),
        ("translation.bleu", 20.0, 21.1, NOT),
        ("translation.pairs", 100, 101, NOT),
    ],
)
def test_one_number(name, recorded, now, agreement):
    section, _, key = name.partition(".")
    old, new = ({section: {key: value} if key else value} for value in (recorded, now))
    (row,) = reproduction.compare_numbers(old, new)
    assert (row.name, row.agreement) == (name, agreement)


def test_a_loss_has_a_relative_tolerance():
    for now, agreement in ((0.52, WITHIN), (0.53, NOT)):
        old, new = ({"best": {"metric": "eval_loss", "value": value}} for value in (0.5, now))
        assert [row.agreement for row in reproduction.compare_numbers(old, new)] == [EXACTLY, agreement]


def test_numbers_that_do_not_depend_on_the_recipe_are_left_out():
    run = {"sizes": {"train": 3}, "seconds": 1.0, "versions": {"torch": "2"}, "provenance": {"seed": 1}, "processes": 1}
    run["dataset"] = {"name": "sst", "revision": "main"}  # what the data are called
    (row,) = reproduction.compare_numbers(run, {"sizes": {}, "dataset": {"name": "mine", "revision": "local-1"}})
    assert row[:3] == ("sizes.train", 3, "missing") and row.agreement == NOT


def with_column(table, name, values):
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize(("share", "agreement"), [(0.0, EXACTLY), (0.03, WITHIN), (0.08, NOT)])
def test_a_column_by_its_own_spread(finished, share, agreement, scale):
    """Differences of 3 % and of 8 % of the spread, whatever the column's unit."""
    table = record.load(finished / "record.parquet")
    scores = [row.astype(np.float64) * scale / 1e-2 for row in record.rows(table, "importance_gradient")]
    values = np.concatenate(scores)
    shift = share * np.abs(values - values.mean()).mean()
    one = with_column(table, "importance_gradient", [row.tolist() for row in scores])
    other = with_column(table, "importance_gradient", [(row + shift).tolist() for row in scores])
    order = np.random.default_rng(0).permutation(table.num_rows)  # rows are matched by their ids
    rows = {row.name: row for row in reproduction.compare_records(one, other.take(order))}
    assert rows["record: importance_gradient"].agreement == agreement
    assert rows["record: importance_gradient"].difference == pytest.approx(shift, rel=1e-2, abs=1e-9 * scale)
    assert {row.agreement for name, row in rows.items() if name != "record: importance_gradient"} == {EXACTLY}
    assert {"record: attention", "record: permuted_probs", "record: tokens", "record: texts"} < set(rows)
    if share == 0:
        assert rows["record: importance_gradient"].identical == 1 and rows["record: importance_gradient"].largest == 0


def test_classes_that_are_swapped_do_not_agree(finished):
    table = record.load(finished / "record.parquet")
    swapped = with_column(table, "probs", [row[::-1].tolist() for row in record.rows(table, "probs")])
    rows = {row.name: row for row in reproduction.compare_records(table, swapped)}
    assert rows["record: probs"].agreement == NOT  # though mean and spread of the column are the same
    assert rows["record: probs"].recorded == pytest.approx(rows["record: probs"].now)


def test_records_of_other_texts(finished):
    table = record.load(finished / "record.parquet")
    rows = {row.name: row for row in reproduction.compare_records(table, table.slice(2))}
    assert rows["record: texts"].agreement == NOT and rows["record: texts"].difference == 2
    assert rows["record: probs"].agreement == EXACTLY
    words = table.column("tokens").to_pylist()
    for changed_words in ([row[:-1] for row in words], [["other", *words[0][1:]], *words[1:]]):
        rows = {row.name: row for row in reproduction.compare_records(table, with_column(table, "tokens", changed_words))}
        assert rows["record: tokens"].agreement == NOT and rows["record: tokens"].tolerance == 0
    labels = [1 - table.column("label")[0].as_py(), *table.column("label").to_pylist()[1:]]
    rows = {row.name: row for row in reproduction.compare_records(table, with_column(table, "label", labels))}
    assert rows["record: label"].agreement == NOT and rows["record: label"].difference == pytest.approx(1 / table.num_rows)
    rows = {row.name: row for row in reproduction.compare_records(table, table.drop_columns(["permuted_probs"]))}
    assert rows["record: permuted_probs"].now == "missing" and rows["record: permuted_probs"].agreement == NOT


def compared(one, other, tolerance=0.05):
    return reproduction.compare_column("x", one, other, tolerance)


def test_undefined_agrees_with_undefined_only():
    one = pa.array([[0.1, math.nan], [0.2]])
    assert compared(one, one)[3:6:2] == (0.0, EXACTLY)
    assert compared(one, pa.array([[0.1, 0.3], [0.2]])).agreement == NOT
    assert compared(pa.array([[math.inf], [1.0]]), pa.array([[math.inf], [1.0]])).agreement == EXACTLY
    assert compared(pa.array([[math.inf], [1.0]]), pa.array([[2.0], [1.0]])).agreement == NOT


def test_few_texts_of_another_shape_are_within_the_tolerance():
    """Of 40 texts one is undefined now, or has a draw less; of three that is another result."""
    values = [[float(row), 1.0] for row in range(40)]
    for count, agreement in ((1, WITHIN), (3, NOT)):
        for other in ([math.nan, 1.0], [1.0]):
            assert compared(pa.array(values), pa.array([other] * count + values[count:])).agreement == agreement


def test_values_that_are_no_numbers_by_the_share_of_texts():
    kinds = pa.array(["a", "b"] * 20).dictionary_encode()
    for count, agreement in ((0, EXACTLY), (2, WITHIN), (3, NOT)):
        other = pa.array(["c"] * count + kinds.to_pylist()[count:]).dictionary_encode()
        assert compared(kinds, other)[3:6] == (count / 40, 0.05, agreement)
    places = pa.array([[1, 2], [3], []] * 10)
    assert compared(places, places).agreement == EXACTLY
    assert compared(places, pa.array([[2, 1], [3], []] * 10)).difference == pytest.approx(1 / 3)
    assert compared(pa.array([1, None]), pa.array([1, None])).agreement == EXACTLY
    assert compared(pa.array([1, None]), pa.array([1, 2])).agreement == NOT


def test_weights_are_told_and_decide_nothing(finished):
    table = record.load(finished / "record.parquet")
    (made,) = record.settings(table)
    other = record.with_settings(table, [{**made, "model": "0" * 64}])
    rows = list(reproduction.compare_records(table, other))
    (weights,) = (row for row in rows if "weights" in row.name)
    assert weights.agreement == REPORTED
    done = reproduction.Reproduction(finished, rows, {})
    assert done.agrees and "the weights are not the same bit for bit" in reproduction.describe(done)


def test_another_training_does_not_agree(finished, tmp_path, quick_report):
    """A real difference is seen, in the record and in the numbers of run.json."""
    recipe = recipes.load(finished / "recipe.yaml", ["--output_dir", str(tmp_path / "other"), "--seed=4"])
    runs.run(recipe)
    table, other = (record.load(folder / "record.parquet") for folder in (finished, tmp_path / "other"))
    apart = {row.name for row in reproduction.compare_records(table, other) if row.agreement == NOT}
    assert {"record: importance_gradient", "record: permuted_probs", "record: probs"} <= apart
    numbers = reproduction.compare_numbers(runs.read_state(finished), runs.read_state(tmp_path / "other"))
    assert [row for row in numbers if row.agreement == NOT]


def test_weights_that_rounding_changed_agree(finished, tmp_path, quick_report):
    """Weights a millionth apart, as another machine would have them, measured anew: other bits, the same results."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(finished, tmp_path / "other")
    path = tmp_path / "other" / "model" / "model.safetensors"
    save_file({name: value * (1 + 1e-6) for name, value in load_file(path).items()}, path, metadata={"format": "pt"})
    runs.measure_run(tmp_path / "other", recipes.load(tmp_path / "other" / "recipe.yaml"))
    table, other = (record.load(folder / "record.parquet") for folder in (finished, tmp_path / "other"))
    rows = list(reproduction.compare_records(table, other))
    rows += reproduction.compare_numbers(runs.read_state(finished), runs.read_state(tmp_path / "other"))
    agreements = {row.name: row.agreement for row in rows}
    assert agreements["record: weights (SHA-256)"] == REPORTED and agreements["record: importance_gradient"] == WITHIN
    assert NOT not in agreements.values()


# ---------------------------------------------------------------------------------------------- from a folder


def test_a_run_of_this_machine_comes_out_the_same(finished, tmp_path, quick_report, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", str(finished)]) == 0
    shown = capsys.readouterr().out
    folder = tmp_path / "runs" / "reproduced" / "tiny"
    with (folder / "reproduction.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["agreement"] for row in rows} == {EXACTLY} and len(rows) > 20
    assert f"{len(rows)} results: {len(rows)} agree exactly, 0 agree within tolerance, 0 do not" in shown
    assert {row["name"]: row["tolerance"] for row in rows}["sizes.train"] == "0.0"
    assert "record: weights (SHA-256)" in [row["name"] for row in rows]
    # the run itself is left as it was, and comparing again does not train again
    assert recipes.load(folder / "recipe.yaml").output_dir == "runs/reproduced/tiny"
    before = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    assert cli.main(["reproduce", str(finished)]) == 0
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_what_does_not_agree_is_said(copied, tmp_path, quick_report, capsys):
    def change(run):
        run["sizes"]["train"] += 2
        run["best"]["value"] += 0.003
        run["provenance"]["libraries"]["torch"] = "1.0"

    changed(copied, change)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", str(copied), "--output", str(tmp_path / "again")])
    assert stopped.value.code == 1
    shown = capsys.readouterr().out
    assert "1 agree within tolerance, 1 do not" in shown
    assert "not: sizes.train: 66 recorded, 64 now (difference 2, tolerance 0)" in shown
    assert "torch 1.0, now 2." in shown


def test_other_texts_are_said_first(copied, tmp_path, quick_report, monkeypatch, capsys):
    """Before a model is trained on them; what the data set is called here decides nothing."""
    changed(copied, lambda run: run["texts"].update(test="0" * 12))
    monkeypatch.setattr(runs.train, "train", lambda *_given: pytest.fail("trained"))
    assert cli.main(["reproduce", str(copied), "--output", str(tmp_path / "again")]) == 2
    said = capsys.readouterr().err
    assert "tiny was trained on other texts than planted_evidence gives here in test" in said
    assert "test 24 recorded, 24 here" in said and not (tmp_path / "again").exists()


def test_another_name_of_the_same_texts_is_no_matter(copied, tmp_path, quick_report):
    def change(run):
        run["dataset"].update(revision="main", name="mine")

    changed(copied, change)
    done = reproduction.reproduce(copied, tmp_path / "again")
    assert done.agrees and done.differing["data"][0] == "main"


@pytest.mark.parametrize("name", ["report_to", "push_to_hub"])
def test_a_recipe_may_not_send_anything(copied, name):
    text = yaml.safe_load((copied / "recipe.yaml").read_text())
    text["training"]["arguments"][name] = "all"
    (copied / "recipe.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(recipes.RecipeError, match=rf"recipe.yaml: .*training.arguments.{name}"):
        reproduction.reproduce(copied)


def broken(folder, kind):
    if kind == "unfinished":
        changed(folder, lambda run: run.update(status="trained"))
    elif kind == "no recipe":
        (folder / "recipe.yaml").unlink()
    elif kind == "no JSON":
        (folder / "run.json").write_text("{")
    elif kind == "list":
        (folder / "run.json").write_text("[]")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("unfinished", "'trained'"),
        ("no recipe", "recipe.yaml missing"),
        ("no JSON", "cannot be read"),
        ("list", "it holds .., not keys and values"),
    ],
)
def test_folders_that_cannot_be_reproduced(copied, tmp_path, kind, says):
    broken(copied, kind)
    with pytest.raises(AttnfaithError, match=says):
        reproduction.reproduce(copied, tmp_path / "again")
    assert not (tmp_path / "again").exists()


# ------------------------------------------------------------------------------------------------ from a Hub


PUSH = """
import sys
from huggingface_hub import HfApi
api, folder = HfApi(), sys.argv[1]
api.create_repo("alice/tiny", private=True)
api.upload_folder(repo_id="alice/tiny", folder_path=folder + "/model")
card = "---\\nattnfaith:\\n  records: alice/attnfaith-records\\n  configuration: tiny\\n---\\n"
files = {"README.md": card.encode(), "recipe.yaml": folder + "/recipe.yaml", "run.json": folder + "/run.json"}
for path, content in files.items():
    api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id="alice/tiny")
api.create_repo("alice/attnfaith-records", repo_type="dataset", private=True)
for name in sys.argv[2:]:
    api.upload_file(path_or_fileobj=name, path_in_repo="tiny/" + name.rpartition("/")[2],
                    repo_id="alice/attnfaith-records", repo_type="dataset")
"""
COMMAND = "import sys; from attnfaith import cli; sys.exit(cli.main())"


def test_from_a_hub(hub, warm_python, finished, tmp_path):
    """Recipe, run.json and the record, in two shards, come from private repositories; a process of its own reads them."""

    def client(*arguments, token="hf_alice"):
        environment = {**hub.environment(tmp_path, token=token), "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run([warm_python, *arguments], capture_output=True, text=True, env=environment, cwd=tmp_path)

    table = record.load(finished / "record.parquet")
    shards = []
    for number, part in enumerate((table.slice(0, 10), table.slice(10))):
        shards.append(tmp_path / f"test-{number:05d}-of-00002.parquet")
        record.save(part, shards[-1])
    pushed = client("-c", PUSH, str(finished), *map(str, shards))
    assert pushed.returncode == 0, pushed.stderr
    refused = client("-c", COMMAND, "reproduce", "alice/tiny", token=None)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr and "alice/tiny" in refused.stderr
    again = client("-c", COMMAND, "reproduce", "alice/tiny")
    assert again.returncode == 0, again.stderr
    assert "agree exactly, 0 agree within tolerance, 0 do not" in again.stdout
