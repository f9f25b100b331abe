"""Studies on the real engine: cells of a grid, what waits for what, resumable runs, tables beside published numbers."""

import contextlib
import importlib.util
import io
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml

from attnfaith import recipes, record
from attnfaith.errors import FileError
from attnfaith.files import folder_lock
from attnfaith.reporting.analysis import StudyError
from attnfaith.reporting.study import DEFAULT
from attnfaith.study import cell as work
from attnfaith.study import command, execute, plan, status
from tests.figures import IN_A_PROCESS


pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(f"recipes_{name}", ROOT / "recipes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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

# Stands in for `attnfaith train`: a run in a moment, which fails or hangs where the recipe's title says so.
FAKE = """
import dataclasses, json, os, sys, time
from pathlib import Path
import attnfaith
from attnfaith import recipes, record
from attnfaith.record.identity import model_fields, training_fields

again = "--remeasure" in sys.argv
recipe = recipes.load(sys.argv[2], [word for word in sys.argv[4:] if word != "--remeasure"])
folder = Path(recipe.output_dir)
folder.mkdir(parents=True, exist_ok=True)
(folder / "recipe.yaml").write_text(recipes.dump(recipe))
(folder / "environment.json").write_text(json.dumps({**os.environ, "pid": os.getpid(), "parent": os.getppid()}))
with open(folder / "starts", "a") as starts:
    starts.write("x")
title = recipe.report.title or ""
if "fail" in title:
    print("working\\nerror: it broke\\n(set ATTNFAITH_TRACEBACK=1 for the traceback)")
    sys.exit(2)
if title.startswith("wait for "):
    others = [folder.with_name(name) / "starts" for name in title.removeprefix("wait for ").split(" and ")]
    limit = time.monotonic() + 60
    while not all(other.is_file() for other in others) and time.monotonic() < limit:
        time.sleep(0.05)
if "hang" in title:
    print("epoch 1 of 8", flush=True)
    time.sleep(60)
identity = record.Identity(
    "x", "texts", "test", recipe.seed, **model_fields(recipe.model), **training_fields(recipe, recipes.load),
    attention_kind="given" if recipe.objective.kind == "guided" else "own",
)
columns = {
    "instance_id": ["a", "b"], **record.as_columns(identity, 2),
    "tokens": [["u", "v"]] * 2, "label": [0, 1], "truncated": [False] * 2,
    "probs": [[0.7, 0.3]] * 2, "attention": [[0.5, 0.5]] * 2,
    "importance_gradient": [[0.6, 0.4]] * 2, "importance_gradient_norm": [[0.1, 0.9]] * 2,
    "importance_leave_one_out": [[0.2, 0.3]] * 2, "importance_leave_one_out_hidden": [[0.3, 0.2]] * 2,
}
extra = {name: record.Column(("T",)) for name in columns if name.startswith("importance_")}
version = "0.0.1" if "old" in title and not again else attnfaith.__version__
made = {"recipe": dataclasses.asdict(recipe), "model": f"weights {recipe.seed}", "version": version}
made["columns"] = {"importance_gradient": "gradient"}
record.save(record.with_settings(record.build(columns, extra), [made]), folder / "record.parquet")
(folder / "report").mkdir(exist_ok=True)
(folder / "report" / "index.html").write_text("page")
state = {"status": "complete", "seconds": 7.5}
if base := recipe.objective.base:
    digest = record.settings(record.load(Path(base) / "record.parquet"))[0]["model"]
    state["base"] = {"weights (SHA-256)": digest}
(folder / "run.json").write_text(json.dumps(state))
"""


TRAIN = plan.TRAIN  # the real one, as the stand-in may still be in its place when a real study runs
PYTHON = sys.executable  # what studies, the engine and cells run in may be another


@pytest.fixture(scope="module")
def warm_engine(warm_attnfaith):
    """`warm_attnfaith`, having imported the engine too."""
    from tests.warm_python import start

    with start(warm_attnfaith, ["snakemake.cli"]) as executable:
        yield executable


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory, warm_engine):
    """The folder of the stand-in for training, in place for the module; it and the engine start warm."""
    folder = tmp_path_factory.mktemp("stand_in")
    (folder / "train.py").write_text(FAKE)
    (folder / "tiny.yaml").write_text(TINY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "TRAIN", (warm_engine, str(folder / "train.py")))
        patch.setattr(sys, "executable", warm_engine)
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        yield folder


def write_study(stand_in, folder, *blocks, **keys):
    """A study of blocks on a tiny recipe, run by the stand-in: (path of the study, its folder of runs)."""
    tree = {
        "output_dir": str(folder / "runs"),
        "results": str(folder / "results"),
        "tables": ["performance"],
        "blocks": [{"recipe": str(stand_in / "tiny.yaml"), **block} for block in blocks],
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(tree | keys))
    return path, folder / "runs"


@pytest.fixture
def planned(stand_in, tmp_path):
    return lambda *blocks, **keys: write_study(stand_in, tmp_path, *blocks, **keys)


def run_cell(cell):
    """A cell's command, without an engine, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", list(cell.command[1:]))
        runpy.run_path(cell.command[1])


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
    study = {
        "output_dir": "runs/x",
        "blocks": [{"recipe": "a/sst.yaml", "set": {"bf16": True}, "grid": {"encoder": ["cnn", "average"], "seed": [1, 2]}}],
    }
    planned = plan.cells(study)
    assert [cell.name for cell in planned] == ["sst-cnn-1", "sst-cnn-2", "sst-average-1", "sst-average-2"]
    assert planned[1].overrides == [
        "--bf16=true",
        '--encoder="cnn"',
        "--seed=2",
        '--output_dir="runs/x/sst-cnn-2"',
        '--name="sst-cnn-2"',
    ]


@pytest.mark.parametrize("value", ["yes", "a #1", "1e-3", "null", "two\nlines", 'it\'s {not} "that"', "- a: b", "é", ""])
def test_a_text_of_a_study_stays_that_text(value):
    """However it would read as YAML, and whatever a shell would make of it."""
    block = {"recipe": "a/sst.yaml", "set": {"note": value.replace("{not}", "{seed}")}, "grid": {"seed": [3]}}
    (cell,) = plan.cells({"output_dir": "x", "blocks": [block]})
    recipe = recipes.parse(TINY, cell.overrides)
    assert recipe.note == value.replace("{not}", "3") and recipe.seed == 3


@pytest.mark.parametrize("value", [1e-05, -0.0, 10**20, True, None, [1, "yes"], {"a": {"b": ["#"]}}])
def test_other_values_of_a_study_stay_what_they_are(value):
    block = {"recipe": "a/sst.yaml", "set": {"data.arguments": {"it": value}}}
    (cell,) = plan.cells({"output_dir": "x", "blocks": [block]})
    it = recipes.parse(TINY, cell.overrides).data.arguments["it"]
    assert it == value and type(it) is type(value)


def test_two_cells_of_one_name_are_refused():
    block = {"recipe": "a/sst.yaml", "grid": {"seed": [1]}}
    with pytest.raises(ValueError, match="cells of one name: \\['sst-1'\\]"):
        plan.cells({"output_dir": "x", "blocks": [block, block]})


@pytest.mark.parametrize(
    ("line", "named"),
    [("blcks: []", r"study.blcks; did you mean study.blocks\?"), ("blocks: []", r"study lacks \['results'\]")],
)
def test_unknown_and_missing_keys_of_a_study(tmp_path, line, named):
    (tmp_path / "study.yaml").write_text(f"output_dir: x\n{line}\n")
    with pytest.raises(ValueError, match=named):
        command.main([str(tmp_path / "study.yaml")])


def test_null_in_a_grid_is_yaml_null():
    study = {"output_dir": "x", "blocks": [{"recipe": "a/sst.yaml", "grid": {"early_stopping_patience": [None]}}]}
    assert "--early_stopping_patience=null" in plan.cells(study)[0].overrides


def test_a_value_may_name_a_key_of_the_grid():
    study = {"output_dir": "runs/x", "blocks": [{"recipe": "a.yaml", **BASE}, {"recipe": "a.yaml", **GUIDED}]}
    by_name = {cell.name: cell for cell in plan.cells(study)}
    assert list(by_name) == ["base-1", "base-2", "guided-1", "guided-2"]
    assert by_name["guided-2"].after == ["base-2"] and by_name["base-2"].after == []
    assert '--objective.base="runs/x/base-2"' in by_name["guided-2"].overrides
    assert '--measure.outputs=["train", "validation"]' in by_name["base-1"].overrides


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
            "tiny-1: model: sparsegen_lambda=1.* finite.* < 1",
        ),
        (
            [
                {"set": {"attention_learning_rate_factor": 10}},
                {"name": "b", "set": {"attention_learning_rate_factor": 10.0}},
            ],
            "cells 'tiny' and 'b' have the same data, split, model, objective and seed",
        ),
        ([{"grid": {"seed": []}}], r"block 1: grid.seed is \[\]; give a list of one or more values"),
        ([{"grid": {"seed": 1}}], "block 1.grid.seed=1 must be a list"),
        ([{"grid": ["seed"]}], r"block 1.grid=\['seed'\] must be keys and values"),
        (
            [{"name": "../a"}],
            r"the cell '../a' is no name for a folder: keep '/', '\{', '\}' and long values out of the name",
        ),
        (
            [{"grid": {"data.limits": [{"train": 9}]}}],
            r"is no name for a folder: keep '/', '\{', '\}' and long values out of the name",
        ),
        ([{"grid": {"learning_rate": [0.1, 0.2]}}], "cells 'tiny-0.1' and 'tiny-0.2' have the same data, split, model"),
        (
            [{"set": {"seed": "x"}}],
            "cell tiny: .*tiny.yaml with --seed, --output_dir, --name: recipe.seed='x' must be a whole",
        ),
    ],
)
def test_a_plan_that_cannot_work_starts_nothing(planned, blocks, message):
    path, runs = planned(*blocks)
    with pytest.raises(ValueError, match=message):
        command.main([str(path)])
    assert not runs.exists()


def test_a_model_trained_with_words_erased_is_another_cell():
    plain, erased = (recipes.parse(TINY, ["--random_erasure", share]) for share in ("0", "0.5"))
    plan.check_distinct({"plain": plain, "erased": erased})
    with pytest.raises(recipes.RecipeError, match="tables cannot tell them apart"):
        plan.check_distinct({"one": erased, "other": erased})


def test_a_flat_and_a_hierarchical_model_are_two_cells():
    flat, divided = (recipes.parse(TINY, ["--hierarchy", kind]) for kind in ("none", "sentence"))
    words = recipes.parse(TINY, ["--hierarchy", "sentence", "--measure.level", "word"])
    plan.check_distinct({"flat": flat, "divided": divided, "words": words})
    with pytest.raises(recipes.RecipeError, match="tables cannot tell them apart"):
        plan.check_distinct({"one": divided, "other": divided})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"tables": ["agrement"]},
            r"tables \['agrement'\] are not known; choose from sentence_pairs, .*, agreement, plausibility, performance",
        ),
        ({"tables": "agreement"}, "study.tables='agreement' must be a list"),
        ({"mix_versions": "yes"}, "study.mix_versions='yes' must be true or false"),
        ({"output_dir": None}, "study.output_dir=None must be a text"),
        ({"blocks": None}, "study.blocks=None must be a list"),
        ({"blocks": []}, "blocks is empty, so there is nothing to run"),
        ({"blocks": ["tiny.yaml"]}, "block 1 must hold keys and values, not 'tiny.yaml'"),
        ({"published": "nowhere.csv", "analysis": JAIN_WALLACE}, "published: no CSV table at nowhere.csv"),
        ({"published": "nowhere.csv"}, "published without analysis: name the analysis"),
        ({"analysis": 3}, "study.analysis=3 must be a text"),
        ({"analysis": "nowhere.py"}, "analysis: no file at .*nowhere.py; its path is read from the study file"),
        ({"published": 3}, "study.published=3 must be a text"),
        ({"stand_ins": ["sst"]}, r"study.stand_ins=\['sst'\] must be keys and values"),
        ({"stand_ins": {"a": "sst"}}, "stand_ins without published: name the CSV"),
    ],
)
def test_tables_that_cannot_be_made_are_refused_first(planned, keys, message):
    path, runs = planned({"name": "a"}, **keys)
    with pytest.raises(ValueError, match=message):
        command.main([str(path)])
    assert not runs.exists()


TAUS = "dataset,encoder,alignment,pair,class,statistic,source,value\nsst,cnn,dot,a,0,tau_mean,x,"


@pytest.mark.parametrize(
    ("analysis", "content", "message"),
    [
        (JAIN_WALLACE, b"", "no CSV table at .*No columns"),
        (JAIN_WALLACE, b"\xff\xfe\x00", "no CSV table at .*'utf-8' codec"),
        (
            JAIN_WALLACE,
            b"a,b\n1,2\n",
            r"lacks the columns \['dataset', 'encoder', .*\]; needed: dataset, encoder, alignment, pair",
        ),
        (JAIN_WALLACE, TAUS.encode() + b"high\n", "holds a value that is no number"),
        (JAIN_WALLACE, TAUS.encode() + b".5\n", "published: no CSV table at .*/taus_performance.csv"),
    ],
)
def test_published_numbers_that_cannot_be_used_are_refused_first(planned, tmp_path, analysis, content, message):
    (tmp_path / "taus.csv").write_bytes(content)
    keys = {"tables": ["performance", "agreement"], "analysis": analysis, "published": str(tmp_path / "taus.csv")}
    path, runs = planned({"name": "a"}, **keys)
    with pytest.raises(StudyError, match=message):
        command.main([str(path)])
    assert not runs.exists()


@pytest.mark.parametrize("stand_ins", [{"sst": "imdb"}, {"mine": "nowhere"}])
def test_stand_ins_of_what_is_not_published_are_refused_first(planned, stand_ins):
    keys = {"published": TAUS_OF_THE_PAPER, "analysis": JAIN_WALLACE, "tables": ["performance", "agreement"]}
    path, runs = planned({"name": "a"}, **keys, stand_ins=stand_ins)
    with pytest.raises(StudyError, match="stand_ins: .* have published numbers"):
        command.main([str(path)])
    assert not runs.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"blocks: [", b"results: a\nresults: b\n"])
def test_a_study_that_is_no_yaml(tmp_path, content):
    (tmp_path / "study.yaml").write_bytes(content)
    with pytest.raises(recipes.RecipeError, match="study.yaml is not (YAML: |UTF-8 text: )"):
        plan.read_study(tmp_path / "study.yaml")


def test_only_some_cells_and_what_they_wait_for():
    planned = plan.cells({"output_dir": "x", "blocks": [{"recipe": "a.yaml", **BASE}, {"recipe": "a.yaml", **GUIDED}]})
    assert [cell.name for cell in plan.choose(planned, "guided-2")] == ["base-2", "guided-2"]
    assert [cell.name for cell in plan.choose(planned, "base-*")] == ["base-1", "base-2"]
    assert plan.choose(planned, None) == planned
    with pytest.raises(ValueError, match="--only cnn: no cell has such a name; the study has base-1, "):
        plan.choose(planned, "cnn")


# ------------------------------------------------------------------------------------------------ the machine


def test_gpus_are_those_that_may_be_used(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5a")
    assert execute.available_gpus() == ["2", "GPU-5a"]
    for none in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)
        assert execute.available_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert execute.available_gpus() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: x)'\necho '  MIG 1g'\necho 'GPU 1: A (UUID: y)'\n")
    program.chmod(0o755)
    assert execute.available_gpus() == ["0", "1"]


def test_a_cell_does_not_see_the_launcher(monkeypatch):
    for name in (
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "MASTER_PORT",
        "ACCELERATE_USE_CPU",
        "PMI_SIZE",
        "OMPI_COMM_WORLD_SIZE",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("ATTNFAITH_DATA", "data")
    seen = work.environment("3")
    assert (seen["OMP_NUM_THREADS"], seen["ATTNFAITH_DATA"], seen["CUDA_VISIBLE_DEVICES"]) == ("1", "data", "3")
    launched = {name for name in seen if name.startswith(("ACCELERATE_", "PMI", "OMPI"))}
    assert not launched | {"WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT"} & set(seen)


def test_of_several_launched_processes_one_works(planned, monkeypatch):
    path, runs = planned({"name": "a"})
    monkeypatch.setenv("RANK", "1")
    command.main([str(path)])
    assert not runs.exists()


def test_each_gpu_has_one_cell_at_a_time(planned, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    path, runs = planned({"name": "a", "set": {"report.title": "wait for a-1 and a-2"}, "grid": {"seed": [1, 2]}})
    command.main([str(path)])
    seen = {json.loads((runs / f"a-{seed}" / "environment.json").read_text())["CUDA_VISIBLE_DEVICES"] for seed in (1, 2)}
    assert seen == {"4", "7"}


def test_a_cell_waits_for_a_gpu_that_is_free(tmp_path):
    with ExitStack() as first, ExitStack() as second:
        assert work._own_gpu(first, tmp_path, ["4", "7"], 3) == "4"
        assert work._own_gpu(second, tmp_path, ["4", "7"], 3) == "7"
        with ExitStack() as third:  # more cells than GPUs, because somebody said so
            assert work._own_gpu(third, tmp_path, ["4", "7"], 3) == "4"
        second.close()
        assert work._own_gpu(second, tmp_path, ["4", "7"], 3) == "7"
    assert work._own_gpu(ExitStack(), tmp_path, [], 2) is None


def test_without_the_engine_one_line_says_what_to_install(planned, monkeypatch):
    path, runs = planned({"name": "a"})
    monkeypatch.setattr(execute.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StudyError, match=r"pip install 'attnfaith\[study\]'"):
        command.main([str(path)])
    assert not runs.exists()


@pytest.mark.parametrize("cores", ["0", "-1"])
def test_no_cores_are_refused(planned, cores):
    path, runs = planned({"name": "a"})
    with pytest.raises(StudyError, match=f"--cores {cores}: at least 1 cell at a time"):
        command.main([str(path), "--cores", cores])
    assert not runs.exists()


# ------------------------------------------------------------------------------------------------ running cells


@pytest.fixture(scope="module")
def ran(stand_in, tmp_path_factory):
    """A study of which a cell failed and another waits for it: (path, folder of runs, what it printed, its error)."""
    broken = {**BASE, "set": {**BASE["set"], "report.title": "fail"}, "grid": {"seed": [1]}}
    folder = tmp_path_factory.mktemp("ran")
    path, runs = write_study(stand_in, folder, broken, {**BASE, "grid": {"seed": [2]}}, GUIDED)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(StudyError) as error:
        command.main([str(path), "--cores", "2"])
    return path, runs, printed.getvalue(), str(error.value)


def test_a_failed_cell_is_told_and_stops_nothing_else(ran):
    path, runs, printed, error = ran
    assert error.startswith("1 cell failed: ['base-1']; 1 cell not run: ['guided-1']; logs lie beside the cells")
    assert "base-1: FAILED: it broke;" in printed
    assert "guided-1: not run: it needs base-1" in printed and "guided-2: complete in" in printed
    assert "tables of 2 cells" in printed and "2 cells missing" in printed
    assert "error: it broke" in (runs / "base-1.log").read_text() and not (runs / "guided-1").exists()
    table = pd.read_csv(path.parent / "results" / "cells.csv", keep_default_na=False)
    assert table.to_dict("records") == [
        {"cell": "base-1", "block": "base", "status": "failed", "n": "NaN", "reason": "it broke"},
        {"cell": "base-2", "block": "base", "status": "complete", "n": "2", "reason": ""},
        {"cell": "guided-1", "block": "guided", "status": "not run", "n": "NaN", "reason": "it needs base-1"},
        {"cell": "guided-2", "block": "guided", "status": "complete", "n": "2", "reason": ""},
    ]
    assert not list(runs.rglob("*.tmp"))


def test_what_waits_runs_after_and_each_end_says_how_far_all_is(ran):
    _, runs, printed, _ = ran
    lines = printed.splitlines()
    ends = [line for line in lines if ": complete in " in line]
    assert [line.partition(":")[0] for line in ends] == ["base-2", "guided-2"]
    assert "; 1 of 4 done, " in ends[0] and "left" in ends[0] and "; 2 of 4 done, 0 running, 1 failed" in ends[1]
    assert len([line for line in lines if line.endswith(": started")]) == 3


def test_status_reads_and_writes_nothing(ran, capsys):
    path, runs, _, _ = ran
    before = {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")}
    command.main([str(path), "--status"])
    assert {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")} == before
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "base-1: FAILED: it broke",
        "2 of 4 done, 0 running, 1 failed, 1 not run",
        "no study is at work there",
    ]


def test_the_tables_alone_and_a_part_alone_know_what_failed_too(ran, capsys):
    path, runs, _, _ = ran
    table, engine = path.parent / "results" / "cells.csv", runs / ".study" / "engine.log"
    before, last = table.read_text(), engine.stat().st_mtime_ns
    for more in (["--tables"], ["--only", "base-2"], ["--only", "guided-2"]):
        table.unlink()
        command.main([str(path), *more])
        assert table.read_text() == before
    printed = capsys.readouterr().out
    assert printed.count("base-2: complete already") == 2 and "started" not in printed
    assert (runs / "base-2" / "starts").read_text() == "x" and engine.stat().st_mtime_ns == last, "no engine was started"


def test_complete_means_by_this_recipe(ran):
    path, runs, _, _ = ran
    cell = plan.cells(plan.read_study(path))[1]
    mine = plan.load_recipe(cell)
    assert plan.complete(mine)
    for override, same in (
        ("--measure.producers=[gradient]", False),
        ("--measure.seed=1", False),
        ("--seed=4", False),
        ("--note=other words", True),
    ):
        assert plan.complete(recipes.load(cell.recipe, [*cell.overrides, override])) is same, override
    state, made = runs / "base-2" / "run.json", runs / "base-2" / "record.parquet"
    whole, measured = state.read_text(), made.read_bytes()
    try:
        for broken in (whole.replace("complete", "measured"), "{", ""):
            state.write_text(broken)
            assert not plan.complete(mine)
        state.write_text(whole)
        assert plan.complete(mine)
        made.write_bytes(b"PAR1")
        assert not plan.complete(mine)
    finally:
        state.write_text(whole)
        made.write_bytes(measured)


def test_a_cell_whose_base_was_trained_anew_is_not_complete(ran):
    path, runs, _, _ = ran
    guided = plan.load_recipe(plan.cells(plan.read_study(path))[3])
    assert plan.complete(guided)
    state = runs / "guided-2" / "run.json"
    whole = state.read_text()
    state.write_text(whole.replace("weights 2", "others"))
    assert not plan.complete(guided)
    state.write_text(whole)


def test_status_of_a_study_that_never_ran(planned):
    path, runs = planned({"name": "a"})
    with pytest.raises(StudyError, match=r"no .study in .*runs: nothing of this study has been run there"):
        command.main([str(path), "--status"])
    assert not runs.exists()


def test_records_of_another_version_are_told_and_measured_anew(planned, capsys):
    path, runs = planned({"name": "a"}, {"name": "b", "set": {"seed": 2, "report.title": "old"}})
    for cell in plan.cells(plan.read_study(path)):
        run_cell(cell)
    with pytest.raises(record.RecordError, match=r"0\.0, .*--remeasure"):
        command.main([str(path)])
    assert not (path.parent / "results" / "performance.csv").exists()
    assert len(pd.read_csv(path.parent / "results" / "cells.csv")) == 2
    command.main([str(path), "--tables", "--mix-versions"])
    table = path.parent / "results" / "performance.csv"
    assert len(pd.read_csv(table)) == 2
    table.unlink()
    whole = path.read_text()
    path.write_text(whole + "mix_versions: true\n")
    command.main([str(path), "--tables"])
    assert len(pd.read_csv(table)) == 2
    path.write_text(whole)
    with pytest.raises(StudyError, match="--tables only reads records"):
        command.main([str(path), "--tables", "--remeasure"])
    capsys.readouterr()
    command.main([str(path), "--remeasure"])
    printed = capsys.readouterr().out
    assert "a: complete already" in printed and "b: complete in" in printed
    assert [(runs / name / "starts").read_text() for name in ("a", "b")] == ["x", "xx"]
    command.main([str(path), "--remeasure"])
    assert (runs / "b" / "starts").read_text() == "xx"


def test_a_cell_after_one_that_is_run_anew_is_looked_at_again(planned, capsys):
    """After it, and by a command that goes on with a run: whether that is complete depends on what its base became."""
    blocks = ({**BASE, "grid": {"seed": [1]}}, {**GUIDED, "grid": {"seed": [1]}}, {"name": "other", "set": {"seed": 7}})
    path, runs = planned(*blocks)
    for cell in plan.cells(plan.read_study(path)):
        run_cell(cell)
    path, runs = planned({**blocks[0], "set": {**BASE["set"], "measure.seed": 1}}, *blocks[1:])
    command.main([str(path)])
    printed = capsys.readouterr().out
    assert printed.index("base-1: complete in") < printed.index("guided-1: complete in")
    assert "other: complete already" in printed
    names = ("base-1", "guided-1", "other")
    assert [(runs / name / "starts").read_text() for name in names] == ["xx", "xx", "x"]


def test_nothing_complete_is_nothing_to_tabulate(planned):
    path, _ = planned({"name": "a", "set": {"report.title": "fail"}})
    with pytest.raises(StudyError, match=r"nothing to tabulate; 1 cell failed: \['a'\]"):
        command.main([str(path)])


def test_what_the_engine_refuses_is_told(planned):
    path, runs = planned({"name": "a"})
    with pytest.raises(StudyError, match=r"the engine ended before \['a'\] could start: .*no-such-option .*engine.log\)"):
        command.main([str(path), "--", "--no-such-option"])


def test_two_cells_of_one_identity_are_refused_by_name(planned):
    path, _ = planned({"name": "a"}, {"name": "b", "set": {"data.limits": {"train": 9}}})  # only the records tell
    for cell in plan.cells(plan.read_study(path)):
        run_cell(cell)
    with pytest.raises(ValueError, match="cells 'a' and 'b' have one identity .*: tables cannot tell them apart"):
        command.main([str(path)])


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
    assert work.why_failed(tmp_path / "log", code) == why


# ------------------------------------------------------------------------------------------------ how far it is


def test_a_cell_at_work(tmp_path):
    (cell,) = states(("a", "running", 100.0))
    assert status.at_work(tmp_path, cell) == "a0: 2 min  "
    (tmp_path / "a0.log").write_text("one\n10%\r20%\r")
    assert status.at_work(tmp_path, cell) == "a0: 2 min  20%"


def states(*rows):
    return [status.State(f"{block}{number}", block, *rest) for number, (block, *rest) in enumerate(rows)]


def test_time_left_is_that_of_the_block_first():
    done = [("a", "complete", 10.0), ("a", "complete", 30.0), ("b", "complete", 100.0), ("a", "failed", 1.0)]
    assert status.time_left(states(*done, ("a", "waiting")), 1) == 20
    assert status.time_left(states(*done, ("c", "waiting")), 1) == pytest.approx(140 / 3)
    running = ("b", "running", 30.0)
    assert status.time_left(states(*done, ("a", "waiting"), ("a", "waiting"), running), 1) == 20 + 20 + 70
    assert status.time_left(states(*done, ("a", "waiting"), ("a", "waiting"), running), 2) == 70  # no sooner than its last
    assert status.time_left(states(*done, ("a", "running", 90.0)), 1) == 0  # longer than expected
    assert status.time_left(states(*done), 3) == 0
    assert math.isnan(status.time_left(states(("a", "waiting"), ("a", "complete")), 1))


def test_the_lines_of_a_study(tmp_path):
    rows = [("done", "complete", 5.0)] * 3
    rows += [
        ("sweep", "running", 2.0),
        ("sweep", "failed", 1.0, "it broke"),
        ("sweep", "waiting"),
        ("last", "not run", math.nan, "x"),
    ]
    assert status.overview(states(*rows), tmp_path) == [
        "block  cells     done  running   failed  not run  waiting",
        "sweep      3                 1        1                 1",
        "last       1                                   1         ",
        "done       3        3                                    ",
        "sweep3: 2 s  ",
        "sweep4: FAILED: it broke",
        "3 of 7 done, 1 running, 1 failed, 1 not run, about 8 s left",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (89, "89 s"), (91, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_duration(seconds, shown):
    assert status.duration(seconds) == shown


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b'{"status": ', b'{"seconds": 1}', b"\xff"])
def test_an_outcome_that_cannot_be_read_is_none(tmp_path, content):
    (tmp_path / "outcome.json").write_bytes(content)
    assert work.read_outcome(tmp_path) == {}


def test_a_running_cell_that_nobody_holds_is_stopped(tmp_path):
    work.note(tmp_path, status="running", started=time.time() - 5)
    with folder_lock(tmp_path, "a cell"):
        outcome = work.read_outcome(tmp_path)
        assert outcome["status"] == "running" and 5 <= outcome["seconds"] < 60
    assert work.read_outcome(tmp_path)["status"] == "stopped"


# ------------------------------------------------------------------------------------- stopped, killed, started twice


def study_script(stand_in, *arguments):
    """Python that runs a study with the stand-in for its runs. The engine and the cells are new processes, each a child of
    the one that started it, as they are for users.
    """
    return (
        "import sys\nfrom attnfaith.cli import guarded\nfrom attnfaith.study import command, plan\n"
        f"sys.executable = {PYTHON!r}\nplan.TRAIN = {(PYTHON, str(stand_in / 'train.py'))!r}\n"
        f"sys.exit(guarded(command.main, {[str(word) for word in arguments]!r}))\n"
    )


class Launched:
    """A study in a process of its own; interrupts reach it from the background too."""

    def __init__(self, forks, folder, script):
        self.held = ExitStack()
        self.command = self.held.enter_context(forks.running([], folder, script=script))
        self.pid = self.command.pid

    def end(self):
        """Wait for it; its exit code and what it printed."""
        wait_for(lambda: gone(self.pid), 120)
        self.held.close()
        return self.command.returncode, self.command.stdout + self.command.stderr


@pytest.fixture(scope="module")
def forks(stand_in, tmp_path_factory, warm_engine):
    """Has imported what a study does."""
    from tests.forks import Forks

    recipe = f"recipes.load({str(stand_in / 'tiny.yaml')!r})"
    warm = f"from attnfaith import recipes\nfrom attnfaith.study import command\nrecipes.check_models({{'a': {recipe}}})"
    with Forks(os.environ, tmp_path_factory.mktemp("forks"), warm, warm_engine) as started:
        yield started


@pytest.fixture
def launched(forks, stand_in, tmp_path):
    """Starts studies, one after another."""
    processes = []

    def launch(*arguments):
        processes.append(Launched(forks, tmp_path, study_script(stand_in, *arguments)))
        return processes[-1]

    yield launch
    for process in processes:
        if not gone(process.pid):
            os.kill(process.pid, signal.SIGKILL)
        process.end()


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
def hanging(planned, launched):
    """A study of one quick and one hanging cell, started and at work on the latter: (path, runs, process, pid of cell)."""
    path, runs = planned({"name": "quick"}, {"name": "slow", "set": {"report.title": "hang", "seed": 5}, "after": ["quick"]})
    process = launched(path, "--cores", "1")
    log = runs / "slow.log"
    wait_for(lambda: log.is_file() and "epoch 1" in log.read_text())
    pid = json.loads((runs / "slow" / "environment.json").read_text())["pid"]
    yield path, runs, process, pid
    if not gone(pid):
        os.kill(pid, signal.SIGKILL)


def statuses(path):
    study = plan.read_study(path)
    return [status.state_of(Path(study["output_dir"]), cell).status for cell in plan.cells(study)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_study_leaves_no_process(hanging, number, capsys):
    path, runs, process, pid = hanging
    command.main([str(path), "--status"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2].startswith("slow: ") and shown[-2].endswith(" s  epoch 1 of 8")
    assert shown[-1].startswith("1 of 2 done, 1 running, 0 failed, about ")
    children = psutil.Process(process.pid).children(recursive=True)
    assert pid in [child.pid for child in children]
    os.kill(process.pid, number)
    code, printed = process.end()
    assert code == 130 and all(gone(child.pid) for child in children)
    assert "1 of 2 cells complete; the same command goes on from here" in printed
    assert statuses(path) == ["complete", "stopped"]


def test_one_study_at_a_time_and_a_killed_one_goes_on(hanging, launched, capsys):
    path, runs, process, pid = hanging
    with pytest.raises(FileError, match=rf"runs.* is in use by a study, process {process.pid} on "):
        command.main([str(path)])
    os.kill(process.pid, signal.SIGKILL)
    assert process.end()[0] == -signal.SIGKILL
    assert not gone(pid) and statuses(path) == ["complete", "running"]  # its cell is still there
    changed = yaml.safe_load(path.read_text())
    del changed["blocks"][1]["set"]["report.title"]
    path.write_text(yaml.safe_dump(changed))
    again = launched(path)  # the lock went with its holder, and the cell is waited for
    wait_for(lambda: "cells/slow/" in (runs / ".study" / "engine.log").read_text().split("quick", 1)[-1])
    time.sleep(3)
    assert (runs / "slow" / "starts").read_text() == "x" and not gone(pid)
    os.kill(pid, signal.SIGKILL)
    code, printed = again.end()
    assert code == 0 and "slow: complete in" in printed, printed
    assert (runs / "quick" / "starts").read_text() == "x" and (runs / "slow" / "starts").read_text() == "xx"
    assert len(pd.read_csv(path.parent / "results" / "performance.csv")) == 2
    command.main([str(path), "--status"])
    assert capsys.readouterr().out.endswith("2 of 2 done, 0 running, 0 failed\nno study is at work there\n")


@pytest.mark.parametrize("killed", ["cell", "its watcher"])
def test_a_killed_cell_is_told_and_goes_on(hanging, killed):
    path, runs, process, pid = hanging
    os.kill(pid if killed == "cell" else psutil.Process(pid).ppid(), signal.SIGKILL)
    code, printed = process.end()
    why = "ended by signal SIGKILL" if killed == "cell" else "killed or stopped from outside; the next call goes on with it"
    assert code == 2 and f"slow: FAILED: {why}" in printed and gone(pid)
    table = pd.read_csv(path.parent / "results" / "cells.csv", keep_default_na=False).set_index("cell")
    assert table.loc["slow"].to_dict() == {"block": "slow", "status": "failed", "n": "NaN", "reason": why}


def test_launched_by_accelerate(planned, stand_in, tmp_path, warm_engine):
    path, runs = planned({"name": "a"})
    (tmp_path / "launch.py").write_text(study_script(stand_in, path))
    command = [PYTHON, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--no_python"]
    command += [warm_engine, str(tmp_path / "launch.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    seen = json.loads((runs / "a" / "environment.json").read_text())
    assert not [name for name in seen if name.startswith("ACCELERATE_")] and seen["OMP_NUM_THREADS"] == "1"


def test_tables_are_rebuilt_without_torch(planned, tmp_path):
    """By the analysis of every paper, and with published numbers."""
    (numbers := tmp_path / "published.csv").write_text(
        "table,dataset,encoder,alignment,projection,training,statistic,mean,std,source\n"
        "6,x,bilstm,additive,softmax,,tau attention–gradient_norm,.25,.28,a table\n"
    )
    sweep = {"name": "s", "set": {"projection": "sparsegen"}, "grid": {"sparsegen_lambda": [-1, 0.5], "seed": [1, 2]}}
    own = {"analysis": MEISTER, "published": str(numbers)}
    path, runs = planned(
        {"name": "a", "grid": {"projection": ["softmax", "sparsemax"], "seed": [1, 2]}}, sweep, tables=list(DEFAULT)
    )
    for cell in plan.cells(plan.read_study(path)):
        run_cell(cell)
    command.main([str(path)])
    keys = yaml.safe_load(path.read_text())
    analyses = {
        "meister": own,
        "wiegreffe": {"analysis": WIEGREFFE_PINTER},
        "jain": {"analysis": JAIN_WALLACE, "published": TAUS_OF_THE_PAPER},
        "planted": {"analysis": PLANTED},
        "bastings": {"analysis": BASTINGS},
    }
    for name, more in analyses.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(keys | more | {"results": str(tmp_path / name)}))
    code = (
        "import sys; from pathlib import Path\nfrom attnfaith.study.command import main\n"
        f"for name in {list(analyses)!r}: main([str(Path(sys.argv[1]) / f'{{name}}.yaml'), '--tables'])\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([PYTHON, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["False False"], done.stdout + done.stderr
    table = (path.parent / "results" / "performance.csv").read_bytes()
    assert all((tmp_path / name / "performance.csv").read_bytes() == table for name in analyses)
    made = {"meister": "projections", "wiegreffe": "models_by_kind", "jain": "side_by_side"}
    assert all((tmp_path / name / f"{table}.csv").is_file() for name, table in made.items())
    assert (tmp_path / "meister" / "side_by_side.md").is_file()


# ------------------------------------------------------------------------------------------------ real runs


@pytest.mark.gate
def test_a_study_runs_keeps_what_is_complete_and_says_what_failed(tmp_path, monkeypatch, capsys, warm_engine):
    monkeypatch.chdir(ROOT)
    assert TRAIN == (PYTHON, "-m", "attnfaith", "train")
    (tmp_path / "train.py").write_text(
        IN_A_PROCESS + "from attnfaith import cli\nsys.exit(cli.main(['train', *sys.argv[1:]]))"
    )
    monkeypatch.setattr(plan, "TRAIN", (warm_engine, str(tmp_path / "train.py")))
    monkeypatch.setattr(sys, "executable", warm_engine)
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
    path = tmp_path / "study.yaml"
    path.write_text(
        f"output_dir: {tmp_path}/runs\nresults: {tmp_path}/results\n"
        f"analysis: {JAIN_WALLACE}\npublished: {tmp_path}/published.csv\n"
        "stand_ins: {planted_evidence: reviews}\n"
        f"blocks:\n- recipe: {tmp_path}/tiny.yaml\n  grid: {{encoder: [average], seed: [1, 2]}}\n"
        f"- recipe: {tmp_path}/tiny.yaml\n  grid: {{data.vectors: [no_such]}}\n"
    )
    with pytest.raises(ValueError, match="1 cell failed: \\['tiny-no_such'\\]"):
        command.main([str(path)])
    printed = capsys.readouterr().out
    assert "tables of 2 cells" in printed and "1 cell missing" in printed
    assert "error: There is no vector file no_such." in (tmp_path / "runs" / "tiny-no_such.log").read_text()

    table = pd.read_csv(tmp_path / "results" / "side_by_side.csv")
    assert len(table) == 2 and set(table["encoder"]) == {"average"}
    assert (table["published tau attention–gradient"] == 0.5).all() and (table["published_accuracy"] == 0.9).all()
    assert (table["published_for"] == "reviews").all() and (table["dataset"] == "planted_evidence").all()
    agreement = pd.read_csv(tmp_path / "results" / "agreement.csv")
    for row in table.to_dict("records"):
        same = (agreement["seed"] == row["seed"]) & (agreement["class"] == "overall")
        mean = agreement.loc[same & (agreement["pair"] == "attention–gradient"), "tau_mean"].item()
        assert row["tau attention–gradient"] == mean
    assert (tmp_path / "results" / "agreement_over_seeds.csv").is_file()
    assert (tmp_path / "results" / "plausibility.csv").is_file()

    record = tmp_path / "runs" / "tiny-average-1" / "record.parquet"
    before = record.stat().st_mtime_ns
    with pytest.raises(ValueError, match="1 cell failed"):
        command.main([str(path)])
    assert record.stat().st_mtime_ns == before
