"""Recorded runs carried out again: from a folder and from a Hub, what agrees and what is said of the rest."""

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

from attnfaith import cli, provenance, recipes, record, reproduction, runs
from attnfaith.reproduction import EXACTLY, NOT, ROUNDED, Compared, ReproductionError


TREE = {
    "name": "tiny",
    "seed": 3,
    "data": {"arguments": {"length": [4, 8], "vocabulary_size": 40, "sizes": {"train": 64, "validation": 24, "test": 24}}},
    "model": {"embedding_size": 8, "hidden_size": 8},
    "training": {"num_train_epochs": 1, "learning_rate": 0.01, "arguments": {"disable_tqdm": True}},
    "measure": {"producers": ["gradient", "permutation"]},
    "report": {"examples": 1},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a complete run; not to be changed."""
    from matplotlib.figure import Figure

    folder = tmp_path_factory.mktemp("finished") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnfaith.reporting.report.all_figures", lambda _cell: {"attention_overview": Figure(figsize=(1, 1))})
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


def test_a_run_says_where_it_comes_from(finished):
    made = runs.read_state(finished)["provenance"]
    assert made["of"] == "training" and made["seed"] == 3 and made["code"] == runs.train.TRAINING_CODE
    assert (made["commit"], made["dirty"]) == provenance.checkout()
    assert set(made["data"]["fingerprint"]) == {"train", "validation"}
    assert made["data"]["revision"] == runs.read_state(finished)["dataset"]["revision"]
    (settings,) = record.settings(record.load(finished / "record.parquet"))
    measured = settings["provenance"]
    assert measured["code"] == settings["code"] and measured["data"]["fingerprint"] == {"test": settings["data"]}
    for text in (json.dumps(made), json.dumps(measured)):
        assert str(finished.parent) not in text and os.getcwd() not in text


def test_a_model_that_older_code_trained(copied, quick_report):
    changed(copied, lambda run: run.pop("provenance"))
    recipe = recipes.load(copied / "recipe.yaml", ["--output_dir", str(copied), "--measure.producers", "[gradient_norm]"])
    runs.run(recipe, resume=True)
    assert runs.read_state(copied)["provenance"]["of"] == "measurement"


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


def test_the_card_of_a_run(finished, copied, tmp_path, capsys):
    """As it is pushed: no folder of this machine, and its provenance."""
    assert cli.main(["cards", str(finished), "--to", "someone", "--output", str(tmp_path / "cards")]) == 0
    text = (tmp_path / "cards" / "tiny.md").read_text()
    assert "attnfaith reproduce someone/tiny" in text and 'load_dataset("someone/attnfaith-records", "tiny")' in text
    assert str(finished.parent) not in text and str(tmp_path) not in text
    commit = provenance.checkout()[0]
    assert f"`{commit}" in text if commit else "| commit | not recorded |" in text
    assert (tmp_path / "cards" / "README.md").read_text().count("](tiny.md)") == 1
    assert cli.main(["cards", str(finished), str(copied), "--to", "someone", "--output", str(tmp_path / "two")]) == 2
    changed(copied, lambda run: run.update(status="trained"))
    assert cli.main(["cards", str(copied), "--to", "someone", "--output", str(tmp_path / "two")]) == 2
    assert cli.main(["cards", str(finished), "--to", "some one", "--output", str(tmp_path / "two")]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    for line, words in zip(said, ("two of the runs are called tiny", "not complete", "some one/tiny"), strict=True):
        assert words in line
    assert not (tmp_path / "two").exists()


# ------------------------------------------------------------------------------------------------ comparing


@pytest.mark.parametrize(
    ("recorded", "found", "difference", "agreement"),
    [
        (0.25, 0.25, 0.0, EXACTLY),
        (0.25, 0.2504, 0.0004, ROUNDED),
        (0.25, 0.2496, 0.0004, ROUNDED),
        (0.25, 0.2506, 0.0006, NOT),
        (3, 4, 1.0, NOT),
        (None, None, 0.0, EXACTLY),
        (None, 0.1, math.nan, NOT),
        (0.1, None, math.nan, NOT),
        ("a", "a", 0.0, EXACTLY),
        ("a", "b", math.nan, NOT),
    ],
)
def test_one_number(recorded, found, difference, agreement):
    (row,) = reproduction.compare_numbers({"sizes": {"x": recorded}}, {"sizes": {"x": found}})
    assert row.name == "sizes.x" and row.agreement == agreement
    assert row.difference == pytest.approx(difference, nan_ok=True)


def test_numbers_that_do_not_depend_on_the_recipe_are_left_out():
    run = {"sizes": {"train": 3}, "seconds": 1.0, "versions": {"torch": "2"}, "provenance": {"seed": 1}, "processes": 1}
    rows = list(reproduction.compare_numbers(run, {"sizes": {}}))
    assert rows == [Compared("sizes.train", 3, "missing", pytest.approx(math.nan, nan_ok=True), NOT)]


def with_column(table, name, values):
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


@pytest.mark.parametrize(("moved", "agreement"), [(0.0, EXACTLY), (0.0004, ROUNDED), (0.01, NOT)])
def test_records_by_their_largest_difference(finished, moved, agreement):
    table = record.load(finished / "record.parquet")
    scores = [row.astype(np.float64) for row in record.rows(table, "importance_gradient")]
    scores[5][1] += moved
    other = with_column(table, "importance_gradient", [row.tolist() for row in scores])
    order = np.random.default_rng(0).permutation(table.num_rows)  # rows are found by their ids
    rows = {row.name: row for row in reproduction.compare_records(table, other.take(order))}
    assert rows["record: importance_gradient"].agreement == agreement
    assert rows["record: importance_gradient"].difference == pytest.approx(moved, rel=1e-3, abs=1e-9)
    assert {row.agreement for name, row in rows.items() if name != "record: importance_gradient"} == {EXACTLY}
    assert {"record: attention", "record: permuted_probs", "record: tokens", "record: texts"} < set(rows)


def test_records_of_other_texts(finished):
    table = record.load(finished / "record.parquet")
    rows = {row.name: row for row in reproduction.compare_records(table, table.slice(2))}
    assert rows["record: texts"].agreement == NOT and rows["record: texts"].difference == 2
    assert rows["record: probs"].agreement == EXACTLY
    shorter = with_column(table, "tokens", [row[:-1] for row in table.column("tokens").to_pylist()])
    rows = {row.name: row for row in reproduction.compare_records(table, shorter)}
    assert rows["record: tokens"].agreement == NOT and math.isnan(rows["record: tokens"].difference)
    rows = {row.name: row for row in reproduction.compare_records(table, table.drop_columns(["permuted_probs"]))}
    assert rows["record: permuted_probs"].found == "missing"


def test_undefined_agrees_with_undefined_only():
    one = pa.array([[0.1, math.nan], [0.2]])
    assert reproduction._largest_difference(one, one) == 0
    assert math.isnan(reproduction._largest_difference(one, pa.array([[0.1, 0.3], [0.2]])))
    assert reproduction._largest_difference(pa.array([[math.inf]]), pa.array([[math.inf]])) == 0


# ---------------------------------------------------------------------------------------------- from a folder


def test_a_run_of_this_machine_comes_out_the_same(finished, tmp_path, quick_report, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", str(finished)]) == 0
    shown = capsys.readouterr().out
    folder = tmp_path / "runs" / "reproduced" / "tiny"
    with (folder / "reproduction.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["agreement"] for row in rows} == {EXACTLY} and len(rows) > 60
    assert f"{len(rows)} numbers: {len(rows)} agree exactly, 0 agree within rounding, 0 do not" in shown
    assert "record: weights (SHA-256)" in [row["name"] for row in rows]
    # the run itself is left as it was, and comparing again does not train again
    assert recipes.load(folder / "recipe.yaml").output_dir == "runs/reproduced/tiny"
    before = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    assert cli.main(["reproduce", str(finished)]) == 0
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == before


def test_what_does_not_agree_is_said(copied, tmp_path, quick_report, capsys):
    def change(run):
        run["attention_faithfulness"]["gradient"]["kendall_tau"] += 0.2
        run["best"]["value"] += 0.0003
        run["provenance"]["libraries"]["torch"] = "1.0"

    changed(copied, change)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", str(copied), "--output", str(tmp_path / "again")])
    assert stopped.value.code == 1
    shown = capsys.readouterr().out
    assert "1 agree within rounding, 1 do not" in shown
    assert "not: attention_faithfulness.gradient.kendall_tau: " in shown and "largest difference 0.2)" in shown
    assert "torch 1.0, now 2." in shown


def test_a_run_without_a_record_is_compared_by_its_numbers(copied, tmp_path, quick_report):
    (copied / "record.parquet").unlink()
    done = reproduction.reproduce(copied, tmp_path / "again")
    assert done.agrees and not [row for row in done.rows if row.name.startswith("record")]


def test_a_recipe_may_not_send_anything(copied):
    text = yaml.safe_load((copied / "recipe.yaml").read_text())
    text["training"]["arguments"] |= {"report_to": "all", "run_name": "x", "seed": 3}
    (copied / "recipe.yaml").write_text(yaml.safe_dump(text))
    assert reproduction.read(copied).recipe.training.arguments == {"disable_tqdm": True, "seed": 3}
    text["training"]["arguments"] |= {"push_to_hub": True, "hub_model_id": "a/b"}
    (copied / "recipe.yaml").write_text(yaml.safe_dump(text))
    with pytest.raises(ValueError, match="push_to_hub"):
        reproduction.read(copied)


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
        ("list", "not complete"),
    ],
)
def test_folders_that_cannot_be_reproduced(copied, tmp_path, kind, says):
    broken(copied, kind)
    with pytest.raises(ReproductionError, match=says):
        reproduction.reproduce(copied, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_no_folder_and_no_name_of_a_repository():
    with pytest.raises(ReproductionError, match="no folder, and no name"):
        reproduction.reproduce("no/such/folder")


def test_a_folder_of_another_run_is_not_touched(finished, copied, tmp_path):
    recipe = recipes.load(copied / "recipe.yaml", ["--seed", "4"])
    (copied / "recipe.yaml").write_text(recipes.dump(recipe))
    with pytest.raises(runs.RunError, match="another recipe"):
        reproduction.reproduce(finished, copied)


# ------------------------------------------------------------------------------------------------ from a Hub


PUSH = """
import sys
from huggingface_hub import HfApi
api, folder = HfApi(), sys.argv[1]
api.create_repo("alice/tiny", private=True)
card = "---\\nattnfaith:\\n  records: alice/attnfaith-records\\n  configuration: tiny\\n---\\n"
files = {"README.md": card.encode(), "recipe.yaml": folder + "/recipe.yaml", "run.json": folder + "/run.json"}
for path, content in files.items():
    api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id="alice/tiny")
if len(sys.argv) > 2:
    api.create_repo("alice/attnfaith-records", repo_type="dataset", private=True)
    for name in sys.argv[2:]:
        api.upload_file(path_or_fileobj=name, path_in_repo="tiny/" + name.rpartition("/")[2],
                        repo_id="alice/attnfaith-records", repo_type="dataset")
"""

READ = """
import sys
from pathlib import Path
from attnfaith import recipes, record, reproduction, runs
source, folder = reproduction.read("alice/tiny"), Path(sys.argv[1])
rows = [*reproduction.compare_numbers(source.run, runs.read_state(folder))]
rows += reproduction.compare_records(record.load(folder / "record.parquet"), source.table)
assert source.name == "tiny" and source.recipe == recipes.load(folder / "recipe.yaml")
print(len(rows), {row.agreement for row in rows}, source.table.num_rows)
"""
COMMAND = "import sys; from attnfaith import cli; sys.exit(cli.main())"


def client(hub, home, *arguments, token="hf_alice"):
    environment = {**hub.environment(home, token=token), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=home)


@pytest.mark.slow
def test_from_a_hub(hub, finished, tmp_path):
    """Recipe, run.json and the record, in two shards, come from private repositories; a process of its own reads them."""
    home = tmp_path / "home"
    home.mkdir()
    table = record.load(finished / "record.parquet")
    shards = []
    for number, part in enumerate((table.slice(0, 10), table.slice(10))):
        shards.append(tmp_path / f"test-{number:05d}-of-00002.parquet")
        record.save(part, shards[-1])
    pushed = client(hub, home, "-c", PUSH, str(finished), *map(str, shards))
    assert pushed.returncode == 0, pushed.stderr
    read = client(hub, home, "-c", READ, str(finished))
    assert read.returncode == 0, read.stderr
    count, agreement, rows = read.stdout.replace("{'exactly'}", "exactly").split()
    assert int(count) > 60 and agreement == EXACTLY and int(rows) == table.num_rows
    refused = client(hub, tmp_path, "-c", COMMAND, "reproduce", "alice/tiny", token=None)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    assert "alice/tiny is no folder here and cannot be read from the Hub" in refused.stderr
