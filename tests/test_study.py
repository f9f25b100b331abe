"""The study script: cells of a grid, what waits for what, resumable runs, tables beside published numbers."""

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from attnfaith import recipes, record
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.study import DEFAULT


ROOT = Path(__file__).resolve().parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(f"recipes_{name}", ROOT / "recipes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


study = script("study")
JAIN_WALLACE, WIEGREFFE_PINTER, MEISTER, PLANTED, BASTINGS = (
    str(ROOT / "recipes" / paper / "analysis.py")
    for paper in (
        "jain_wallace_2019",
        "wiegreffe_pinter_2019",
        "meister_2021",
        "planted_evidence",
        "bastings_filippova_2020",
    )
)
TAUS_OF_THE_PAPER = str(ROOT / "recipes/jain_wallace_2019/published.csv")
TINY = """
name: tiny
output_dir: unused
data:
  name: planted_evidence
  arguments: {sizes: {train: 40, validation: 20, test: 12}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1}
measure: {producers: [gradient, leave_one_out]}
report: {examples: 1}
"""

# Stands in for recipes/train.py: a run in a moment, which fails or hangs where the recipe's title says so.
FAKE = """
import dataclasses, json, os, sys, time
from pathlib import Path
import attnfaith
from attnfaith import recipes, record

again = "--remeasure" in sys.argv
recipe = recipes.load(sys.argv[2], [word for word in sys.argv[4:] if word != "--remeasure"])
folder = Path(recipe.output_dir)
folder.mkdir(parents=True, exist_ok=True)
(folder / "environment.json").write_text(json.dumps({**os.environ, "pid": os.getpid(), "parent": os.getppid()}))
with open(folder / "starts", "a") as starts:
    starts.write("x")
title = recipe.report.title or ""
if "fail" in title:
    print("working\\nerror: it broke\\n(set ATTNFAITH_TRACEBACK=1 for the traceback)")
    sys.exit(2)
if "hang" in title:
    print("epoch 1 of 8", flush=True)
    time.sleep(60)
model = recipe.model
named = f"sparsegen({model.sparsegen_lambda:g})" if model.projection == "sparsegen" else model.projection
columns = {
    "instance_id": ["a", "b"], "dataset": ["x"] * 2, "revision": ["r"] * 2, "split": ["test"] * 2,
    "encoder": [model.encoder] * 2, "alignment": [model.alignment] * 2, "projection": [named] * 2,
    "vectors": ["none"] * 2, "objective": [recipe.objective.kind] * 2, "seed": [recipe.seed] * 2,
    "tokens": [["u", "v"]] * 2, "label": [0, 1], "truncated": [False] * 2,
    "probs": [[0.7, 0.3]] * 2, "attention": [[0.5, 0.5]] * 2,
    "importance_gradient": [[0.6, 0.4]] * 2, "importance_gradient_norm": [[0.1, 0.9]] * 2,
    "importance_leave_one_out": [[0.2, 0.3]] * 2, "importance_leave_one_out_hidden": [[0.3, 0.2]] * 2,
}
extra = {name: record.Column(("T",)) for name in columns if name.startswith("importance_")}
code = "000000000000" if "old" in title and not again else record.code_digest()
made = [{"recipe": dataclasses.asdict(recipe), "model": f"weights {recipe.seed}", "code": code}]
made[0]["version"] = attnfaith.__version__
record.save(record.with_settings(record.build(columns, extra), made), folder / "record.parquet")
(folder / "report").mkdir(exist_ok=True)
(folder / "report" / "index.html").write_text("page")
state = {"status": "complete", "seconds": 7.5}
if base := recipe.objective.base:
    digest = record.settings(record.load(Path(base) / "record.parquet"))[0]["model"]
    state["base"] = {"weights (SHA-256)": digest}
(folder / "run.json").write_text(json.dumps(state))
"""


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A study of blocks on a tiny recipe, run by the stand-in: (path of the study, its folder of runs)."""
    (tmp_path / "train.py").write_text(FAKE)
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.setattr(study, "TRAIN", tmp_path / "train.py")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))

    def make(*blocks, **keys):
        tree = {
            "output_dir": str(tmp_path / "runs"),
            "results": str(tmp_path / "results"),
            "tables": ["performance"],
            "blocks": [{"recipe": str(tmp_path / "tiny.yaml"), **block} for block in blocks],
        }
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(tree | keys))
        return path, tmp_path / "runs"

    return make


BASE = {"name": "base", "set": {"measure.outputs": ["train", "validation"]}, "grid": {"seed": [1, 2]}}
GUIDED = {
    "name": "guided",
    "set": {
        "objective.kind": "guided",
        "objective.base": "{output_dir}/base-{seed}",
        "measure.producers": [],
    },
    "grid": {"seed": [1, 2]},
    "after": ["base-{seed}"],
}


# ------------------------------------------------------------------------------------------------ the plan


def test_cells_are_the_product_of_the_grid():
    plan = {
        "output_dir": "runs/x",
        "blocks": [{"recipe": "a/sst.yaml", "set": {"bf16": True}, "grid": {"encoder": ["cnn", "average"], "seed": [1, 2]}}],
    }
    found = study.cells(plan)
    assert [cell.name for cell in found] == ["sst-cnn-1", "sst-cnn-2", "sst-average-1", "sst-average-2"]
    assert found[1].overrides == [
        "--bf16=True",
        "--encoder=cnn",
        "--seed=2",
        "--output_dir=runs/x/sst-cnn-2",
        "--name=sst-cnn-2",
    ]


def test_two_cells_of_one_name_are_refused():
    block = {"recipe": "a/sst.yaml", "grid": {"seed": [1]}}
    with pytest.raises(ValueError, match="cells of one name: \\['sst-1'\\]"):
        study.cells({"output_dir": "x", "blocks": [block, block]})


def test_unknown_key_of_a_study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("output_dir: x\nblcks: []\n")
    with pytest.raises(ValueError, match="unknown keys \\['blcks'\\]"):
        study.main(["--config", str(path)])


def test_missing_key_of_a_study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("output_dir: x\nblocks: []\n")
    with pytest.raises(ValueError, match="lacks \\['results'\\]"):
        study.main(["--config", str(path)])


def test_null_in_a_grid_is_yaml_null():
    plan = {"output_dir": "x", "blocks": [{"recipe": "a/sst.yaml", "grid": {"early_stopping_patience": [None]}}]}
    assert "--early_stopping_patience=null" in study.cells(plan)[0].overrides


def test_a_value_may_name_a_key_of_the_grid():
    plan = {"output_dir": "runs/x", "blocks": [{"recipe": "a.yaml", **BASE}, {"recipe": "a.yaml", **GUIDED}]}
    found = {cell.name: cell for cell in study.cells(plan)}
    assert list(found) == ["base-1", "base-2", "guided-1", "guided-2"]
    assert found["guided-2"].after == ("base-2",) and found["base-2"].after == ()
    assert "--objective.base=runs/x/base-2" in found["guided-2"].overrides
    assert '--measure.outputs=["train", "validation"]' in found["base-1"].overrides


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([GUIDED], r"cell guided-1 is after \['base-1'\], which the study does not have"),
        (
            [{"grid": {"seed": [1]}, "after": ["base-{sed}"]}],
            r"\{sed\} in 'base-\{sed\}' is no key .* known: seed, output_dir",
        ),
        ([{"set": {"note": "{x}"}}], r"block 1, set: \{x\} in '\{x\}' is no key"),
        ([{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}], r"in a circle.*: \['a', 'b'\]"),
        ([{"name": "a", "after": ["a"]}], r"in a circle.*: \['a'\]"),
        ([{"grid": {"seed": [1, 1]}}], r"block 1: grid.seed is \[1, 1\]: 1 is there twice; give each value once"),
        ([{"grid": {"sparsegen_lambda": [0.5, 0, -1, -0.0]}}], r"\[0.5, 0, -1, -0.0\]: -0.0 is there twice"),
        (
            [
                {"set": {"projection": "sparsegen"}, "grid": {"sparsegen_lambda": [0.5, 0]}},
                {"name": "b", "set": {"projection": "sparsemax"}},
            ],
            r"cells 'tiny-0' and 'b' are one model under two names: sparsegen\(0\) and sparsemax attend alike; leave one",
        ),
        (
            [
                {"name": "a", "set": {"projection": "softmax"}},
                {"set": {"projection": "entmax"}, "grid": {"entmax_alpha": [2, 1.0]}},
            ],
            r"cells 'a' and 'tiny-1.0' are one model under two names: softmax and entmax\(1\)",
        ),
        (
            [{"name": "a", "set": {"projection": "entmax", "entmax_alpha": 1.5}}, {"set": {"projection": "entmax15"}}],
            r"entmax\(1.5\) and entmax15 attend alike",
        ),
        (
            [{"set": {"projection": "sparsegen"}, "grid": {"sparsegen_lambda": [0.9, 1]}}],
            "cell tiny-1: model.sparsegen_lambda=1: sparsegen needs a finite lambda < 1",
        ),
        (
            [
                {"set": {"attention_learning_rate_factor": 10}},
                {"name": "b", "set": {"attention_learning_rate_factor": 10.0}},
            ],
            "cells 'tiny' and 'b' have the same data, split, model, objective and seed",
        ),
        ([{"grid": {"seed": []}}], r"block 1: grid.seed is \[\]; give a list of one or more values"),
        ([{"grid": {"seed": 1}}], "block 1: grid.seed is 1; give a list"),
        ([{"grid": {"encoder": "cnn"}}], "block 1: grid.encoder is 'cnn'; give a list"),
        ([{"grid": ["seed"]}], r"block 1: grid is \['seed'\]; it must be keys and values"),
        ([{"set": None}], "block 1: set is None; it must be keys and values"),
        ([{"name": "a"}, {"after": "a"}], "block 2: after is 'a'; it must be a list"),
        ([{"name": 3}], "block 1: name is 3; it must be a text"),
        ([{"recipe": None}], "block 1: recipe is None; it must be a text"),
        ([{"name": "../a"}], r"the cell '../a' is no name for a folder: keep '/' out"),
        ([{"grid": {"data.vectors": ["a/b"]}}], r"the cell 'tiny-a/b' is no name for a folder"),
        ([{"grid": {"learning_rate": [0.1, 0.2]}}], "cells 'tiny-0.1' and 'tiny-0.2' have the same data, split, model"),
        ([{"gird": {}}], r"block 1: unknown keys \['gird'\]; known: recipe, name, set, grid, after"),
        ([{"set": {"encoderr": "cnn"}}], "cell tiny: unknown option --encoderr; did you mean --encoder"),
        ([{"set": {"seed": "x"}}], "cell tiny: recipe.seed='x' is a str"),
    ],
)
def test_a_plan_that_cannot_work_starts_nothing(planned, blocks, message):
    path, runs = planned(*blocks)
    with pytest.raises(ValueError, match=message):
        study.main(["--config", str(path)])
    assert not runs.exists()


def test_a_model_trained_with_words_erased_is_another_cell():
    plain, erased = (recipes.parse(TINY, ["--random_erasure", share]) for share in ("0", "0.5"))
    study.check_distinct({"plain": plain, "erased": erased})
    with pytest.raises(recipes.RecipeError, match="tables cannot tell them apart"):
        study.check_distinct({"one": erased, "other": erased})


def test_a_flat_and_a_hierarchical_model_are_two_cells():
    flat, divided = (recipes.parse(TINY, ["--hierarchy", kind]) for kind in ("none", "sentence"))
    words = recipes.parse(TINY, ["--hierarchy", "sentence", "--measure.level", "word"])
    study.check_distinct({"flat": flat, "divided": divided, "words": words})
    with pytest.raises(recipes.RecipeError, match="tables cannot tell them apart"):
        study.check_distinct({"one": divided, "other": divided})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tables": ["agrement"]}, r"tables \['agrement'\] are not known; choose from performance, agreement"),
        ({"compare": ["sed"]}, r"compare \['sed'\]: cells can be compared by encoder"),
        ({"tables": "agreement"}, "tables is 'agreement'; it must be a list"),
        ({"compare": None}, "compare is None; it must be a list"),
        ({"mix_versions": "yes"}, "mix_versions is 'yes'; it must be true or false"),
        ({"output_dir": None}, "output_dir is None; it must be a text"),
        ({"blocks": None}, "blocks is None; it must be a list"),
        ({"blocks": []}, "blocks is empty, so there is nothing to run"),
        ({"blocks": ["tiny.yaml"]}, "block 1 is 'tiny.yaml'; it must hold keys and values: recipe, name"),
        ({"published": "nowhere.csv", "analysis": JAIN_WALLACE}, "published: no file at nowhere.csv"),
        ({"published": "nowhere.csv"}, "published without analysis: name the analysis"),
        ({"analysis": 3}, "analysis is 3; it must be a text"),
        ({"analysis": "nowhere.py"}, "analysis: no file at .*nowhere.py; its path is read from the study file"),
        ({"published": 3}, "published is 3; it must be a text"),
        ({"stand_ins": ["sst"]}, r"stand_ins is \['sst'\]; it must be keys and values"),
        ({"stand_ins": {"a": "sst"}}, "stand_ins without published: name the CSV"),
        ({"published": TAUS_OF_THE_PAPER, "analysis": JAIN_WALLACE}, r"stands beside the tables \['agreement'\]"),
    ],
)
def test_tables_that_cannot_be_made_are_refused_first(planned, keys, message):
    path, runs = planned({"name": "a"}, **keys)
    with pytest.raises(ValueError, match=message):
        study.main(["--config", str(path)])
    assert not runs.exists()


TAUS = "dataset,encoder,alignment,pair,class,statistic,source,value\nsst,cnn,dot,a,0,tau_mean,x,"


@pytest.mark.parametrize(
    ("analysis", "content", "message"),
    [
        (JAIN_WALLACE, b"", "is no CSV table: No columns"),
        (JAIN_WALLACE, b"\xff\xfe\x00", "is no CSV table: 'utf-8' codec"),
        (
            JAIN_WALLACE,
            b"a,b\n1,2\n",
            r"lacks the columns \['dataset', 'encoder', .*\]; needed: dataset, encoder, alignment, pair",
        ),
        (WIEGREFFE_PINTER, b"model,value\nx,1\n", r"lacks the columns \['dataset', 'encoder', 'statistic', 'source'\]"),
        (JAIN_WALLACE, TAUS.encode() + b"high\n", "holds a value that is no number"),
        (JAIN_WALLACE, TAUS.encode() + b".5\n", "published: no file at .*/taus_performance.csv"),
    ],
)
def test_published_numbers_that_cannot_be_used_are_refused_first(planned, tmp_path, analysis, content, message):
    (tmp_path / "taus.csv").write_bytes(content)
    keys = {"tables": ["performance", "agreement"], "analysis": analysis, "published": str(tmp_path / "taus.csv")}
    path, runs = planned({"name": "a"}, **keys)
    with pytest.raises(StudyError, match=message):
        study.main(["--config", str(path)])
    assert not runs.exists()


@pytest.mark.parametrize("stand_ins", [{"sst": "imdb"}, {"mine": "nowhere"}])
def test_stand_ins_of_what_is_not_published_are_refused_first(planned, stand_ins):
    keys = {"published": TAUS_OF_THE_PAPER, "analysis": JAIN_WALLACE, "tables": ["performance", "agreement"]}
    path, runs = planned({"name": "a"}, **keys, stand_ins=stand_ins)
    with pytest.raises(StudyError, match=r"stand_ins: .*; give a data set without published numbers, and one that"):
        study.main(["--config", str(path)])
    assert not runs.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"blocks: [", b"results: a\nresults: b\n"])
def test_a_study_that_is_no_yaml(tmp_path, content):
    (tmp_path / "study.yaml").write_bytes(content)
    with pytest.raises(recipes.RecipeError, match="study.yaml is not YAML: "):
        study.read_study(tmp_path / "study.yaml")


def test_only_some_cells_and_what_they_wait_for():
    plan = study.cells({"output_dir": "x", "blocks": [{"recipe": "a.yaml", **BASE}, {"recipe": "a.yaml", **GUIDED}]})
    assert [cell.name for cell in study.choose(plan, "guided-2")] == ["base-2", "guided-2"]
    assert [cell.name for cell in study.choose(plan, "base-*")] == ["base-1", "base-2"]
    assert study.choose(plan, None) == plan
    with pytest.raises(ValueError, match="--only cnn: no cell has such a name; the study has base-1, "):
        study.choose(plan, "cnn")


# ------------------------------------------------------------------------------------------------ the machine


def test_gpus_are_those_that_may_be_used(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5a")
    assert study.gpus() == ["2", "GPU-5a"]
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert study.gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert study.gpus() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: x)'\necho '  MIG 1g'\necho 'GPU 1: A (UUID: y)'\n")
    program.chmod(0o755)
    assert study.gpus() == ["0", "1"]


def test_a_cell_does_not_see_the_launcher(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT", "ACCELERATE_USE_CPU", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("ATTNFAITH_DATA", "data")
    found = study.environment("3")
    assert (found["OMP_NUM_THREADS"], found["ATTNFAITH_DATA"], found["CUDA_VISIBLE_DEVICES"]) == ("1", "data", "3")
    assert not {name for name in found if name.startswith("ACCELERATE_")} | {"WORLD_SIZE", "RANK", "LOCAL_RANK"} & set(found)


def test_of_several_launched_processes_one_works(planned, monkeypatch):
    path, runs = planned({"name": "a"})
    monkeypatch.setenv("RANK", "1")
    study.main(["--config", str(path)])
    assert not runs.exists()


def test_each_gpu_has_one_cell_at_a_time(planned, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    path, runs = planned({"name": "a", "grid": {"seed": [1, 2]}})
    study.main(["--config", str(path)])
    seen = {json.loads((runs / f"a-{seed}" / "environment.json").read_text())["CUDA_VISIBLE_DEVICES"] for seed in (1, 2)}
    assert seen == {"4", "7"}


# ------------------------------------------------------------------------------------------------ running cells


def test_what_waits_runs_after_and_complete_cells_are_kept(planned, capsys):
    path, runs = planned(GUIDED, BASE)
    study.main(["--config", str(path), "--workers", "2"])
    printed = capsys.readouterr().out.splitlines()
    ends = [line for line in printed if ": complete in " in line]
    assert len(ends) == 4 and all(f"; {number} of 4 done, " in line for number, line in enumerate(ends, start=1))
    names = [line.partition(":")[0] for line in ends]
    assert all(names.index(f"base-{seed}") < names.index(f"guided-{seed}") for seed in (1, 2))
    assert "left" in ends[0] and ends[3].endswith("; 4 of 4 done, 0 running, 0 failed")
    assert len([line for line in printed if line.endswith(": started")]) == 4

    study.main(["--config", str(path)])
    printed = capsys.readouterr().out
    assert printed.count("complete already") == 4 and "started" not in printed
    assert (runs / "base-1" / "starts").read_text() == "x"


def test_a_failed_cell_is_told_and_stops_nothing_else(planned, capsys):
    broken = {**BASE, "set": {**BASE["set"], "report.title": "fail"}, "grid": {"seed": [1]}}
    path, runs = planned(broken, {**BASE, "grid": {"seed": [2]}}, GUIDED)
    message = r"1 cells failed: \['base-1'\]; 1 cells not run: \['guided-1'\]; logs lie beside the cells"
    with pytest.raises(ValueError, match=message):
        study.main(["--config", str(path), "--workers", "1"])
    printed = capsys.readouterr().out
    assert "base-1: FAILED: it broke;" in printed
    assert "guided-1: not run: it needs base-1" in printed and "guided-2: complete in" in printed
    assert "tables of 2 cells" in printed and "2 cells are missing" in printed
    assert "error: it broke" in (runs / "base-1.log").read_text() and not (runs / "guided-1").exists()

    kept = pd.read_csv(runs / "progress.csv", keep_default_na=False).set_index("cell")
    assert kept["status"].to_dict() == {
        "base-1": "failed",
        "base-2": "complete",
        "guided-1": "not run",
        "guided-2": "complete",
    }
    assert kept.loc["base-1", "why"] == "it broke" and kept.loc["guided-1", "why"] == "it needs base-1"
    assert kept["block"].to_list() == ["base", "base", "guided", "guided"] and kept.loc["guided-1", "seconds"] == ""
    found = pd.read_csv(path.parent / "results" / "cells.csv", keep_default_na=False)
    assert found.to_dict("records") == [
        {"cell": "base-1", "block": "base", "status": "failed", "n": "NaN", "reason": "it broke"},
        {"cell": "base-2", "block": "base", "status": "complete", "n": "2", "reason": ""},
        {"cell": "guided-1", "block": "guided", "status": "not run", "n": "NaN", "reason": "it needs base-1"},
        {"cell": "guided-2", "block": "guided", "status": "complete", "n": "2", "reason": ""},
    ]
    for run in runs.iterdir():
        assert run.suffix != ".tmp"

    capsys.readouterr()
    before = {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")}
    study.main(["--config", str(path), "--status"])
    assert {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")} == before
    printed = capsys.readouterr().out.splitlines()
    assert printed[-3:] == [
        "base-1: FAILED: it broke",
        "2 of 4 done, 0 running, 1 failed, 1 not run",
        "no study is at work there",
    ]
    # the tables alone know what failed, too
    study.main(["--config", str(path), "--tables"])
    assert (path.parent / "results" / "cells.csv").read_text() == found.to_csv(index=False, lineterminator="\n")
    # a part of the study leaves what is known of the rest
    study.main(["--config", str(path), "--only", "base-2"])
    again = pd.read_csv(runs / "progress.csv", keep_default_na=False).set_index("cell")
    assert again["status"].to_dict() == kept["status"].to_dict() and again.loc["base-2", "seconds"] == "7.5"


def test_status_of_a_study_that_never_ran(planned):
    path, runs = planned({"name": "a"})
    with pytest.raises(ValueError, match=r"no progress.csv in .*runs: nothing of this study has been run there"):
        study.main(["--config", str(path), "--status"])
    assert not runs.exists()


def test_records_of_other_code_are_told_and_measured_anew(planned, capsys):
    path, runs = planned({"name": "a"}, {"name": "b", "set": {"seed": 2, "report.title": "old"}})
    message = (
        r"different code: 1 by version \S+, code [0-9a-f]{12}; 1 by version \S+, code 0{12}: --remeasure measures anew what "
        r"other code measured, --mix-versions takes all as they are"
    )
    with pytest.raises(record.RecordError, match=message):
        study.main(["--config", str(path)])
    assert not (path.parent / "results" / "performance.csv").exists()
    assert len(pd.read_csv(path.parent / "results" / "cells.csv")) == 2
    study.main(["--config", str(path), "--tables", "--mix-versions"])
    table = path.parent / "results" / "performance.csv"
    assert len(pd.read_csv(table)) == 2
    table.unlink()
    whole = path.read_text()
    path.write_text(whole + "mix_versions: true\n")
    study.main(["--config", str(path), "--tables"])
    assert len(pd.read_csv(table)) == 2
    path.write_text(whole)
    with pytest.raises(ValueError, match="--tables only reads records"):
        study.main(["--config", str(path), "--tables", "--remeasure"])
    capsys.readouterr()
    study.main(["--config", str(path), "--remeasure"])
    printed = capsys.readouterr().out
    assert "a: complete already" in printed and "b: complete in" in printed
    assert [(runs / name / "starts").read_text() for name in ("a", "b")] == ["x", "xx"]
    study.main(["--config", str(path), "--remeasure"])
    assert (runs / "b" / "starts").read_text() == "xx"


def test_nothing_complete_is_nothing_to_tabulate(planned):
    path, _ = planned({"name": "a", "set": {"report.title": "fail"}})
    with pytest.raises(ValueError, match=r"nothing to tabulate; 1 cells failed: \['a'\]"):
        study.main(["--config", str(path)])


def test_complete_means_by_this_recipe(planned):
    path, runs = planned({"name": "a"})
    study.main(["--config", str(path)])
    cell = study.cells(study.read_study(path))[0]
    mine = study.load_recipe(cell)
    assert study.complete(mine)
    for override, same in (
        ("--measure.producers=[gradient]", False),
        ("--measure.seed=1", False),
        ("--seed=4", False),
        ("--note=other words", True),
    ):
        assert study.complete(recipes.load(cell.recipe, [*cell.overrides, override])) is same, override
    state = runs / "a" / "run.json"
    whole = state.read_text()
    for broken in (whole.replace("complete", "measured"), "{", ""):
        state.write_text(broken)
        assert not study.complete(mine)
    state.write_text(whole)
    assert study.complete(mine)
    (runs / "a" / "record.parquet").write_bytes(b"PAR1")
    assert not study.complete(mine)


def test_a_cell_whose_base_was_trained_anew_is_not_complete(planned):
    path, runs = planned({**BASE, "grid": {"seed": [1]}}, {**GUIDED, "grid": {"seed": [1]}})
    study.main(["--config", str(path)])
    guided = study.load_recipe(study.cells(study.read_study(path))[1])
    assert study.complete(guided)
    state = json.loads((runs / "guided-1" / "run.json").read_text())
    state["base"]["weights (SHA-256)"] = "others"
    (runs / "guided-1" / "run.json").write_text(json.dumps(state))
    assert not study.complete(guided)


def test_two_cells_of_one_identity_are_refused_by_name(planned):
    path, _ = planned({"name": "a"}, {"name": "b", "set": {"data.limits": {"train": 9}}})  # only the records tell
    with pytest.raises(ValueError, match="cells 'a' and 'b' have the same dataset, "):
        study.main(["--config", str(path)])


@pytest.mark.parametrize(
    ("log", "code", "why"),
    [
        ("epoch 1\rerror: no such file\n(set X)\n", 2, "no such file"),
        (
            "\r14%| 1/7 [00:00<00:01, 4.9it/s]error: the loss is nan\n(set X)\n\r14%| 1/7 [00:00<00:01]\n",
            2,
            "the loss is nan",
        ),
        ("Traceback\n  File x\ntorch.OutOfMemoryError: 3 GiB\n", 1, "torch.OutOfMemoryError: 3 GiB"),
        ("KeyError: 'a'\nduring that\nValueError: b\nexit", 1, "ValueError: b"),
        ("epoch 1\n", -9, "ended by signal SIGKILL"),
        ("epoch 1\n", 3, "epoch 1"),
        ("", 3, "exit code 3, and its log is empty"),
    ],
)
def test_why_a_cell_failed(tmp_path, log, code, why):
    (tmp_path / "log").write_text(log)
    assert study.why_failed(tmp_path / "log", code) == why


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


def test_a_terminal_shows_live_lines():
    terminal = Terminal()
    display = study.Display(terminal)
    display.draw(["a: 1 s, training  epoch 1", "1 of 2"])
    display.draw(["a: 2 s, training  epoch 2", "1 of 2"])
    assert terminal.text.count("\x1b[2A\x1b[J") == 1, "the second drawing takes the place of the first"
    display.say("1/2 a: complete")
    assert terminal.text.endswith("\x1b[2A\x1b[J1/2 a: complete\n")
    display.erase()
    assert terminal.text.endswith("complete\n"), "nothing is drawn, nothing is erased"


def test_a_cell_at_work(tmp_path):
    assert study.at_work(tmp_path / "a", 100) == "a: 2 min, at work  "
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text('{"status": "started"}')
    (tmp_path / "a.log").write_text("one\n10%\r20%\r")
    assert study.at_work(tmp_path / "a", 30) == "a: 30 s, training  20%"


def entries(*rows):
    return [study.Entry(f"{block}{number}", block, *rest) for number, (block, *rest) in enumerate(rows)]


def test_time_left_is_that_of_the_block_first():
    done = [("a", "complete", 10.0), ("a", "complete", 30.0), ("b", "complete", 100.0), ("a", "failed", 1.0)]
    assert study.time_left(entries(*done, ("a", "waiting")), 1) == 20
    assert study.time_left(entries(*done, ("c", "waiting")), 1) == pytest.approx(140 / 3)
    running = ("b", "running", 30.0)
    assert study.time_left(entries(*done, ("a", "waiting"), ("a", "waiting"), running), 1) == 20 + 20 + 70
    assert study.time_left(entries(*done, ("a", "waiting"), ("a", "waiting"), running), 2) == 70  # no sooner than its last
    assert study.time_left(entries(*done, ("a", "running", 90.0)), 1) == 0  # longer than expected
    assert study.time_left(entries(*done), 3) == 0
    assert math.isnan(study.time_left(entries(("a", "waiting"), ("a", "complete")), 1))


def test_the_table_of_a_study_fits(tmp_path):
    rows = [("done", "complete", 5.0)] * 3
    rows += [
        ("sweep", "running", 2.0),
        ("sweep", "failed", 1.0, "it broke"),
        ("sweep", "waiting"),
        ("last", "not run", 0, "x"),
    ]
    found = study.overview(entries(*rows), tmp_path, 2, 20)
    assert found == [
        "block  cells     done  running   failed  not run  waiting",
        "sweep      3                 1        1                 1",
        "last       1                                   1         ",
        "done       3        3                                    ",
        "sweep3: 2 s, at work  ",
        "sweep4: FAILED: it broke",
        "3 of 7 done, 1 running, 1 failed, 1 not run, about 5 s left",
    ]
    many = entries(*rows, *[(f"block {number}", "waiting") for number in range(30)], *[("f", "failed", 1.0, "no")] * 9)
    seen = []
    for height in (1, 2, 3, 5, 8, 12, 24):
        lines = study.overview(many, tmp_path, 2, height)
        assert len(lines) <= height and lines[-1].startswith("3 of 46 done, 1 running, 10 failed")
        seen += lines
    assert any(line.endswith("more blocks") for line in seen) and any(line.endswith("more failed") for line in seen)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (89, "89 s"), (91, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_duration(seconds, shown):
    assert study.duration(seconds) == shown


@pytest.mark.parametrize(
    "content", [b"", b"cell,block\na,b\n", b"cell,block,status,seconds,why\na,b,complete,x,y\n", b"\xff"]
)
def test_a_progress_file_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / "progress.csv").write_bytes(content)
    assert study.read_progress(tmp_path) == []


# ------------------------------------------------------------------------------------- stopped, killed, started twice


def launch(path, *extra, command=(sys.executable,)):
    """The study in a process of its own, with the stand-in for its runs."""
    code = (
        "import runpy, sys, importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('study', {str(ROOT / 'recipes' / 'study.py')!r})\n"
        "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
        f"module.TRAIN = {str(path.parent / 'train.py')!r}\n"
        "from attnfaith.cli import guarded\nsys.exit(guarded(module.main))\n"
    )
    (path.parent / "launch.py").write_text(code)
    return subprocess.Popen(
        [*command, str(path.parent / "launch.py"), "--config", str(path), *extra],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(what, seconds=60):
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.05)


def gone(pid):
    """Whether a process has ended, read or unread by its parent.

    A process whose first thread has ended and another not yet is unread ("Z") too and holds its files still, the lock of
    the study among them.
    """
    try:
        first = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return first and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


@pytest.fixture
def hanging(planned):
    """A study of one quick and one hanging cell, started and at work on the latter: (path, runs, process, pid of cell)."""
    path, runs = planned({"name": "quick"}, {"name": "slow", "set": {"report.title": "hang", "seed": 5}})
    process = launch(path, "--workers", "1")
    log = runs / "slow.log"
    wait_for(lambda: log.is_file() and "epoch 1" in log.read_text())
    pid = json.loads((runs / "slow" / "environment.json").read_text())["pid"]
    yield path, runs, process, pid
    for number in (process.pid, pid):
        if not gone(number):
            os.kill(number, signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_study_leaves_no_process(hanging, number, capsys):
    path, runs, process, pid = hanging
    study.main(["--config", str(path), "--status"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2].startswith("slow: ") and shown[-2].endswith("at work  epoch 1 of 8")
    assert shown[-1].startswith("1 of 2 done, 1 running, 0 failed, about ")
    process.send_signal(number)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and gone(pid)
    assert "1 of 2 cells complete; the same command goes on from here" in printed
    assert [entry.status for entry in study.read_progress(runs)] == ["complete", "stopped"]


@pytest.mark.slow
def test_one_study_at_a_time_and_a_killed_one_goes_on(hanging, capsys):
    path, runs, process, pid = hanging
    with pytest.raises(ValueError, match=rf"a study is at work in .*runs \(process {process.pid} on "):
        study.main(["--config", str(path)])
    process.kill()
    process.wait()
    with pytest.raises(ValueError, match="a study is at work in .*or cells it left running"):
        study.main(["--config", str(path)])  # its cell is still there
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: gone(pid))
    assert [entry.status for entry in study.read_progress(runs)] == ["complete", "running"]  # as it was left
    study.main(["--config", str(path), "--status"])
    assert capsys.readouterr().out.endswith("1 of 2 done, 0 running, 0 failed, 1 stopped\nno study is at work there\n")
    changed = yaml.safe_load(path.read_text())
    del changed["blocks"][1]["set"]["report.title"]
    path.write_text(yaml.safe_dump(changed))
    study.main(["--config", str(path)])  # the lock went with its holders
    assert (runs / "quick" / "starts").read_text() == "x" and (runs / "slow" / "starts").read_text() == "xx"
    assert len(pd.read_csv(path.parent / "results" / "performance.csv")) == 2


@pytest.mark.slow
def test_launched_by_accelerate(planned):
    path, runs = planned({"name": "a"})
    command = (str(Path(sys.executable).with_name("accelerate")), "launch", "--cpu", "--num_processes", "1")
    process = launch(path, command=command)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    seen = json.loads((runs / "a" / "environment.json").read_text())
    assert not [name for name in seen if name.startswith("ACCELERATE_")] and seen["OMP_NUM_THREADS"] == "1"


@pytest.mark.slow
def test_tables_are_rebuilt_without_torch(planned, tmp_path):
    """By the analysis of every paper, and with published numbers."""
    (numbers := tmp_path / "published.csv").write_text(
        "table,dataset,encoder,alignment,projection,training,statistic,mean,std,source\n"
        "6,x,bilstm,additive,softmax,,tau attention–gradient_norm,.25,.28,a table\n"
    )
    sweep = {"name": "s", "set": {"projection": "sparsegen"}, "grid": {"sparsegen_lambda": [-1, 0.5], "seed": [1, 2]}}
    own = {"analysis": MEISTER, "published": str(numbers)}
    path, runs = planned(
        {"name": "a", "grid": {"projection": ["softmax", "sparsemax"], "seed": [1, 2]}}, sweep, tables=list(DEFAULT), **own
    )
    study.main(["--config", str(path)])
    plan = {key: value for key, value in yaml.safe_load(path.read_text()).items() if key not in own}
    analyses = {
        "meister": own,
        "wiegreffe": {"analysis": WIEGREFFE_PINTER},
        "jain": {"analysis": JAIN_WALLACE, "published": TAUS_OF_THE_PAPER},
        "planted": {"analysis": PLANTED},
        "bastings": {"analysis": BASTINGS},
    }
    for name, keys in analyses.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(plan | keys | {"results": str(tmp_path / name)}))
    code = (
        "import sys; from pathlib import Path\n"
        f"import runpy\nmain = runpy.run_path({str(ROOT / 'recipes' / 'study.py')!r})['main']\n"
        f"for name in {list(analyses)!r}: main(['--config', str(Path(sys.argv[1]) / f'{{name}}.yaml'), '--tables'])\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["False False"], done.stdout + done.stderr
    table = (path.parent / "results" / "performance.csv").read_bytes()
    assert all((tmp_path / name / "performance.csv").read_bytes() == table for name in analyses)
    made = {"meister": "meister_table6", "wiegreffe": "models", "jain": "side_by_side"}
    assert all((tmp_path / name / f"{table}.csv").is_file() for name, table in made.items())
    assert (tmp_path / "meister" / "summary.md").is_file()


# ------------------------------------------------------------------------------------------------ real runs


@pytest.mark.slow
def test_a_study_runs_keeps_what_is_complete_and_says_what_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "tiny.yaml").write_text(TINY)
    published = pd.DataFrame(
        {
            "dataset": ["reviews"] * 2,
            "encoder": ["average", "bilstm"],
            "alignment": ["additive"] * 2,
            "pair": ["attention–gradient"] * 2,
            "class": ["overall"] * 2,
            "statistic": ["tau_mean"] * 2,
            "value": [0.5, 0.25],
            "source": ["a table"] * 2,
        }
    )
    published.to_csv(tmp_path / "published.csv", index=False)
    scores = published[["dataset", "encoder", "alignment", "source"]].assign(
        published_accuracy=[0.9, 0.8], published_roc_auc=[0.95, 0.85]
    )
    scores.to_csv(tmp_path / "published_performance.csv", index=False)
    plan = tmp_path / "study.yaml"
    plan.write_text(
        f"output_dir: {tmp_path}/runs\nresults: {tmp_path}/results\n"
        f"analysis: {JAIN_WALLACE}\npublished: {tmp_path}/published.csv\n"
        "stand_ins: {planted_evidence: reviews}\n"
        f"blocks:\n- recipe: {tmp_path}/tiny.yaml\n  grid: {{encoder: [average], seed: [1, 2]}}\n"
        f"- recipe: {tmp_path}/tiny.yaml\n  grid: {{encoder: [no_such]}}\n"
    )
    with pytest.raises(ValueError, match="1 cells failed: \\['tiny-no_such'\\]"):
        study.main(["--config", str(plan)])
    printed = capsys.readouterr().out
    assert "tables of 2 cells" in printed and "1 cells are missing" in printed
    assert "encoder='no_such' is not known" in (tmp_path / "runs" / "tiny-no_such.log").read_text()

    table = pd.read_csv(tmp_path / "results" / "side_by_side.csv")
    assert len(table) == 2 and set(table["encoder"]) == {"average"}
    assert (table["published tau attention–gradient"] == 0.5).all() and (table["published_accuracy"] == 0.9).all()
    assert (table["published_for"] == "reviews").all() and (table["dataset"] == "planted_evidence").all()
    beside = pd.read_csv(tmp_path / "results" / "beside_published.csv")
    assert beside.loc[beside["encoder"] == "bilstm", "measured"].isna().all()
    assert beside.loc[beside["dataset"] == "reviews", "measured"].isna().all()
    agreement = pd.read_csv(tmp_path / "results" / "agreement.csv")
    for row in table.to_dict("records"):
        same = (agreement["seed"] == row["seed"]) & (agreement["class"] == "overall")
        mean = agreement.loc[same & (agreement["pair"] == "attention–gradient"), "tau_mean"].item()
        assert row["tau attention–gradient"] == mean
    assert (tmp_path / "results" / "agreement_over_seeds.csv").is_file()
    assert (tmp_path / "results" / "plausibility.csv").is_file()

    record = tmp_path / "runs" / "tiny-average-1" / "record.parquet"
    before = record.stat().st_mtime_ns
    with pytest.raises(ValueError, match="1 cells failed"):
        study.main(["--config", str(plan)])
    assert record.stat().st_mtime_ns == before


@pytest.mark.slow
def test_the_naive_twin_gives_the_same_numbers():
    rows = script("benchmark").measure_length(3, 1)
    assert [row["step"] for row in rows] == [
        "evaluation",
        "gradient",
        "gradient of states in inputs",
        "leave-one-out, inputs",
        "leave-one-out, hidden",
        "Kendall with p-value",
        "read-out, for all experiments",
        "permutation, 100 draws",
        "adversary, search",
        "adversary, exact",
        "erasure, all orders",
        "minimal flip set",
        "training step",
    ]
    assert all(row["ms_per_text"] > 0 and row["naive_twin_ms_per_text"] > 0 for row in rows)


@pytest.fixture
def small_benchmark(monkeypatch):
    module = script("benchmark")
    monkeypatch.setattr(module, "STORIES", 6)
    monkeypatch.setattr(module, "DOCUMENTS", 5)
    return module


def test_the_naive_twins_of_pairs_and_documents_give_the_same_numbers(small_benchmark):
    rows = small_benchmark.measure_stories(10, 1) + small_benchmark.measure_documents(3, 4, 1)
    pairs, documents = "story of 8 to 12 words, question of 8", "2 to 4 sentences of 2 to 6 words"
    assert [[row[name] for name in ("step", "shape", "tokens", "texts", "naive_twin_texts")] for row in rows] == [
        ["leave-one-out, story and question", pairs, 10, 6, 6],
        ["training step, story and question", pairs, 10, 6, 6],
        ["leave-one-out of sentences, HAN", documents, 12, 5, 5],
        ["training step, HAN", documents, 12, 5, 5],
    ]
    assert all(row["ms_per_text"] > 0 and row["naive_twin_ms_per_text"] > 0 for row in rows)


def rotated(values):
    return [row.roll(1) for row in values]


@pytest.mark.parametrize(
    ("place", "wrong", "step"),
    [
        ("NaivePairTwin.read_question", lambda state: state * 0, "training step, story and question"),
        ("naive_leave_one_out", rotated, "leave-one-out, story and question"),
        ("NaiveDocumentTwin.read", lambda logits: logits * 0, "training step, HAN"),
        ("naive_leave_one_out_sentences", rotated, "leave-one-out of sentences, HAN"),
    ],
)
def test_nothing_is_timed_of_pairs_and_documents_whose_twin_differs(small_benchmark, monkeypatch, place, wrong, step):
    *owner, name = place.split(".")
    owner = getattr(small_benchmark, owner[0]) if owner else small_benchmark
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: wrong(right(*given)))
    monkeypatch.setattr(small_benchmark, "timed", lambda *given: {})
    with pytest.raises(ValueError, match=f"^{step}: ours and the naive twin differ by"):
        small_benchmark.measure_stories(10, 1)
        small_benchmark.measure_documents(3, 4, 1)


def test_the_benchmark_refuses_twins_that_differ():
    with pytest.raises(ValueError, match="gradient: ours and the naive twin differ by 1.0e-01"):
        script("benchmark").same([[0.1]], [[0.2]], "gradient")
