"""Studies on the real engine: cells of a grid, what waits for what, resumable runs, tables beside published numbers."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from attnfaith import recipes, record
from attnfaith.cli import COMMANDS
from attnfaith.reporting.analysis import StudyError
from attnfaith.study import cell as cell_process
from attnfaith.study import command, execute, plan, results
from attnfaith.support.errors import AttnfaithError, FileError
from tests.figures import IN_A_PROCESS


pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]
ANALYSES = {path.parent.name: str(path) for path in ROOT.glob("recipes/*/analysis.py")}
JAIN_WALLACE, TAUS = ANALYSES["jain_wallace_2019"], str(ROOT / "recipes/jain_wallace_2019/published.csv")
PYTHON, TRAIN = sys.executable, plan.TRAIN  # the real ones: a stand-in may be in their place
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
from attnfaith.support.files import folder_lock
from attnfaith.record import model_fields, training_fields

again = "--remeasure" in sys.argv
recipe = recipes.load(sys.argv[2], [word for word in sys.argv[4:] if word != "--remeasure"])
folder = Path(recipe.output_dir)
folder.mkdir(parents=True, exist_ok=True)
(folder / "recipe.yaml").write_text(recipes.dump(recipe))
(folder / "environment.json").write_text(json.dumps({**os.environ, "pid": os.getpid(), "parent": os.getppid()}))
with open(folder / "starts", "a") as starts:
    starts.write("x")
title = recipe.report.title or ""
lock = folder_lock(folder, "a run")
lock.__enter__()
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
state = {"status": "complete", "seconds": 7.5}
if base := recipe.objective.base:
    digest = record.settings(record.load(Path(base) / "record.parquet"))[0]["model"]
    state["base"] = {"weights (SHA-256)": digest}
(folder / "run.json").write_text(json.dumps(state))
"""


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


def study(path, *options):
    COMMANDS["study"]([str(path), *options])


def run_alone(path):
    """Every cell of a study, without an engine, in this process."""
    for cell in plan.cells(plan.read_study(path)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", list(cell.command[1:]))
            runpy.run_path(cell.command[1])


def starts(runs, *names):
    """How often each cell was begun."""
    return [len((runs / name / "starts").read_text()) for name in names]


def statuses(path):
    study = plan.read_study(path)
    table = results.cells_table(study, *command.prepare(study))
    return dict(zip(table["cell"], table["status"], strict=True))


BASE = {"name": "base", "set": {"measure.outputs": ["train", "validation"]}, "grid": {"seed": [1, 2]}}
GUIDED = {
    "name": "guided",
    "set": {"objective.kind": "guided", "objective.base": "{output_dir}/base-{seed}", "measure.producers": []},
    "grid": {"seed": [1, 2]},
    "after": ["base-{seed}"],
}


# ------------------------------------------------------------------------------------------------ the plan


def test_cells_are_the_product_of_the_grid():
    block = {"recipe": "a/sst.yaml", "set": {"bf16": True}, "grid": {"encoder": ["cnn", "average"], "seed": [1, None]}}
    planned = plan.cells({"output_dir": "runs/x", "blocks": [block]})
    assert [cell.name for cell in planned] == ["sst-cnn-1", "sst-cnn-None", "sst-average-1", "sst-average-None"]
    assert planned[1].overrides == [
        *("--report.page=false", "--bf16=true", '--encoder="cnn"', "--seed=null"),
        *('--output_dir="runs/x/sst-cnn-None"', '--name="sst-cnn-None"'),
    ]


@pytest.mark.parametrize("value", ["yes", "a #1", "1e-3", "null", "two\nlines", 'it\'s {not} "that"', "- a: b", "é", ""])
def test_a_text_of_a_study_stays_that_text(value):
    """However it would read as YAML, and whatever a shell would make of it."""
    block = {"recipe": "a/sst.yaml", "set": {"note": value.replace("{not}", "{seed}")}, "grid": {"seed": [3]}}
    (cell,) = plan.cells({"output_dir": "x", "blocks": [block]})
    recipe = recipes.parse(TINY, cell.overrides)
    assert recipe.note == value.replace("{not}", "3") and recipe.seed == 3


def test_a_value_may_name_a_key_of_the_grid():
    study = {"output_dir": "runs/x", "blocks": [{"recipe": "a.yaml", **BASE}, {"recipe": "a.yaml", **GUIDED}]}
    by_name = {cell.name: cell for cell in plan.cells(study)}
    assert list(by_name) == ["base-1", "base-2", "guided-1", "guided-2"]
    assert by_name["guided-2"].after == ["base-2"] and by_name["base-2"].after == []
    assert '--objective.base="runs/x/base-2"' in by_name["guided-2"].overrides
    assert [cell.name for cell in plan.choose([*by_name.values()], "guided-2")] == ["base-2", "guided-2"]
    with pytest.raises(recipes.RecipeError, match="--only"):
        plan.choose([*by_name.values()], "cnn")


@pytest.mark.parametrize(
    ("blocks", "keys", "message"),
    [
        ([GUIDED], {}, r"after \['base-1'\], which the study does not have"),
        ([{"grid": {"seed": [1]}, "after": ["base-{sed}"]}], {}, r"\{sed\} in .* known: seed, output_dir"),
        ([{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}], {}, r"circle.*: \['a', 'b'\]"),
        ([{"grid": {"seed": [1, 1]}}], {}, "cells of one name: .*tiny-1"),
        ([{"grid": {"seed": 1}}], {}, "block 1.grid.seed"),
        ([{"name": "../a"}], {}, "'../a' is no name for a folder"),
        ([{"grid": {"learning_rate": [0.1, 0.2]}}], {}, "cells 'tiny-0.1' and 'tiny-0.2' have the same data"),
        ([{"grid": {"sparsegen_lambda": [0.9, 1]}, "set": {"projection": "sparsegen"}}], {}, "tiny-1: .*sparsegen_lambda=1"),
        ([{"set": {"seed": "x"}}], {}, "cell tiny: .*recipe.seed='x'"),
        ([], {}, "blocks is empty"),
        ([{}], {"blcks": []}, r"study.blcks; did you mean study.blocks\?"),
        ([{}], {"tables": ["agrement"]}, r"tables \['agrement'\] are not known; choose from .*agreement"),
        ([{}], {"analysis": "nowhere.py"}, "analysis: no file at .*nowhere.py"),
        ([{}], {"published": "nowhere.csv"}, "published without analysis"),
        (
            [{}],
            {"published": TAUS, "analysis": JAIN_WALLACE, "tables": ["performance", "agreement"], "stand_ins": {"a": "x"}},
            "stand_ins: .* have published numbers",
        ),
    ],
)
def test_a_study_that_cannot_work_starts_nothing(planned, blocks, keys, message):
    path, runs = planned()
    tree = yaml.safe_load(path.read_text()) | keys
    recipe = {"recipe": str(path.parent / "tiny.yaml")}
    (path.parent / "tiny.yaml").write_text(TINY)
    tree["blocks"] = [recipe | block if isinstance(block, dict) else block for block in blocks]
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(AttnfaithError, match=message):
        study(path)
    assert not runs.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"blocks: [", b"results: a\nresults: b\n", b"output_dir: x\nblocks: []\n"])
def test_a_file_that_is_no_study(tmp_path, content):
    (tmp_path / "study.yaml").write_bytes(content)
    with pytest.raises(recipes.RecipeError, match="study.yaml"):
        plan.read_study(tmp_path / "study.yaml")


def test_what_makes_another_cell():
    """Words erased in training, the hierarchy of a model, the level that is measured: a record tells these apart."""
    kinds = ([], ["--random_erasure=0.5"], ["--hierarchy=sentence"], ["--hierarchy=sentence", "--measure.level=word"])
    wanted = {str(words): recipes.parse(TINY, words) for words in kinds}
    plan.check_distinct(wanted)
    for recipe in wanted.values():
        with pytest.raises(recipes.RecipeError, match="tables cannot tell them apart"):
            plan.check_distinct(wanted | {"again": recipe})


def test_a_trial_has_folders_of_its_own(planned, capfd):
    path, runs = planned({"set": {"measure.limit": 9}, "grid": {"seed": [1, 2]}})
    study(path, "--limit", "3", "--set", "learning_rate=0.5", "num_train_epochs=2", "--only", "*-2")
    (folder,) = runs.iterdir()
    assert folder.name.startswith("trial-") and (folder / "results" / "performance.csv").is_file()
    assert not (path.parent / "results").exists()
    recipe = recipes.load(folder / "tiny-2" / "recipe.yaml")
    assert (recipe.measure.limit, recipe.training.learning_rate, recipe.training.num_train_epochs) == (3, 0.5, 2)
    study(path, "--set", "num_train_epochs=2", "learning_rate=0.5", "measure.limit=3", "--tables")
    assert len([*runs.iterdir()]) == 1, "the same settings are the same trial"
    with pytest.raises(AttnfaithError, match="--set seed: the grid"):
        study(path, "--set", "seed=3")
    with pytest.raises(recipes.RecipeError, match="nonsense"):
        study(path, "--set", "nonsense=3")


# ------------------------------------------------------------------------------------------------ the machine


def test_gpus_are_those_that_may_be_used(monkeypatch, tmp_path):
    for words, expected in {"2,GPU-5a": ["2", "GPU-5a"], "": [], "-1": []}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
        assert execute.available_gpus() == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert execute.available_gpus() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: x)'\necho '  MIG 1g'\necho 'GPU 1: A (UUID: y)'\n")
    program.chmod(0o755)
    assert execute.available_gpus() == ["0", "1"]


def test_each_gpu_has_one_cell_at_a_time_and_no_cell_sees_a_launcher(planned, monkeypatch):
    launcher = {"WORLD_SIZE": "1", "RANK": "0", "MASTER_PORT": "1", "ACCELERATE_USE_CPU": "1", "OMPI_COMM_WORLD_SIZE": "1"}
    for name, value in {**launcher, "CUDA_VISIBLE_DEVICES": "4,7", "OMP_NUM_THREADS": "8", "ATTNFAITH_DATA": "data"}.items():
        monkeypatch.setenv(name, value)
    path, runs = planned({"name": "a", "set": {"report.title": "wait for a-1 and a-2"}, "grid": {"seed": [1, 2]}})
    study(path)
    seen = [json.loads((runs / f"a-{seed}" / "environment.json").read_text()) for seed in (1, 2)]
    assert {one["CUDA_VISIBLE_DEVICES"] for one in seen} == {"4", "7"}
    for one in seen:
        assert (one["OMP_NUM_THREADS"], one["ATTNFAITH_DATA"]) == ("1", "data") and not launcher.keys() & one.keys()


def test_a_cell_waits_for_a_gpu_that_is_free(tmp_path):
    assert [cell_process.own_gpu(tmp_path, ["4", "7"], 3) for _ in range(3)] == ["4", "7", "4"]  # more cells than GPUs


def test_what_keeps_a_study_from_beginning(planned, monkeypatch):
    path, runs = planned({"name": "a"})
    for options in (["--cores", "0"], ["--tables", "--remeasure"]):
        with pytest.raises(AttnfaithError, match=options[0]):
            study(path, *options)
    with pytest.raises(StudyError, match="nothing of this study has been run"):
        study(path, "--status")
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")  # the second of several launched processes
        study(path)
    with monkeypatch.context() as patch:
        patch.setattr(execute.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(StudyError, match=r"pip install 'attnfaith\[study\]'"):
            study(path)
    monkeypatch.delattr(os, "killpg")  # Windows: a stopped study would leave its cells
    with pytest.raises(StudyError, match="attnfaith train"):
        study(path)
    assert not runs.exists()


# ------------------------------------------------------------------------------------------------ running cells


@pytest.fixture(scope="module")
def ran(stand_in, tmp_path_factory):
    """A study of which a cell failed and another waits for it: (path, folder of runs, its error)."""
    broken = {**BASE, "set": {**BASE["set"], "report.title": "fail"}, "grid": {"seed": [1]}}
    path, runs = write_study(stand_in, tmp_path_factory.mktemp("ran"), broken, {**BASE, "grid": {"seed": [2]}}, GUIDED)
    with pytest.raises(StudyError) as error:
        study(path, "--cores", "2")
    return path, runs, str(error.value)


def test_a_failed_cell_stops_nothing_else(ran):
    path, runs, error = ran
    assert error.startswith("1 cell failed: ['base-1']; 1 cell not run: ['guided-1']; logs lie beside the cells")
    assert "error: it broke" in (runs / "base-1.log").read_text() and not (runs / "guided-1").exists()
    table = pd.read_csv(path.parent / "results" / "cells.csv", keep_default_na=False)
    assert table.to_dict("records") == [
        {"cell": "base-1", "block": "base", "status": "failed", "n": "NaN", "reason": "it broke"},
        {"cell": "base-2", "block": "base", "status": "complete", "n": "2", "reason": ""},
        {"cell": "guided-1", "block": "guided", "status": "not run", "n": "NaN", "reason": "it needs base-1"},
        {"cell": "guided-2", "block": "guided", "status": "complete", "n": "2", "reason": ""},
    ]
    made = json.loads((path.parent / "results" / "made.json").read_text())
    assert made["cells"] == {"planned": 4, "complete": 2} and made["seconds"] == 15.0
    assert not list(runs.rglob("*.tmp"))


def test_status_reads_and_writes_nothing(ran, capsys):
    path, _, _ = ran
    before = {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")}
    study(path, "--status")
    assert {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")} == before
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "status complete failed not run all" and "all 2 1 1 4" in lines
    assert lines[-3:] == ["base-1 failed: it broke", "guided-1 not run: it needs base-1", "no study is at work there"]


def test_the_tables_alone_and_a_part_alone_keep_what_is_there(ran):
    path, runs, _ = ran
    table = path.parent / "results" / "cells.csv"
    before = table.read_text()
    for more in (["--tables"], ["--only", "base-2"], ["--only", "guided-2"]):
        table.unlink()
        study(path, *more)
        assert table.read_text() == before and starts(runs, "base-2", "guided-2") == [1, 1]


def test_complete_means_by_this_recipe_and_base(ran):
    path, runs, _ = ran
    _, cell, _, guided = plan.cells(plan.read_study(path))
    recipe = plan.load_recipe(cell)
    assert plan.complete(recipe)
    for override, same in (("--measure.producers=[gradient]", 0), ("--measure.seed=1", 0), ("--seed=4", 0), ("--note=x", 1)):
        assert plan.complete(recipes.load(cell.recipe, [*cell.overrides, override])) == same, override
    for name, broken in (("run.json", "measured"), ("run.json", "{"), ("run.json", ""), ("record.parquet", "PAR1")):
        whole = (runs / "base-2" / name).read_bytes()
        (runs / "base-2" / name).write_text(broken)
        assert not plan.complete(recipe)
        (runs / "base-2" / name).write_bytes(whole)
    assert plan.complete(plan.load_recipe(guided))
    state = runs / "guided-2" / "run.json"
    whole = state.read_text()
    state.write_text(whole.replace("weights 2", "others"))  # its base was trained anew
    assert not plan.complete(plan.load_recipe(guided))
    state.write_text(whole)


def test_records_of_another_version_are_told_and_measured_anew(planned):
    path, runs = planned({"name": "a"}, {"name": "b", "set": {"seed": 2, "report.title": "old"}})
    run_alone(path)
    table = path.parent / "results" / "performance.csv"
    with pytest.raises(record.RecordError, match=r"0\.0, .*--remeasure"):
        study(path)
    assert not table.exists()
    study(path, "--tables", "--mix-versions")
    assert len(pd.read_csv(table)) == 2
    table.unlink()
    whole = path.read_text()
    path.write_text(whole + "mix_versions: true\n")
    study(path, "--tables")
    assert len(pd.read_csv(table)) == 2
    path.write_text(whole)
    for _ in range(2):
        study(path, "--remeasure")
        assert starts(runs, "a", "b") == [1, 2]


def test_nothing_complete_is_nothing_to_tabulate(planned):
    path, _ = planned({"name": "a", "set": {"report.title": "fail"}})
    with pytest.raises(StudyError, match=r"nothing to tabulate; 1 cell failed: \['a'\]"):
        study(path)
    with pytest.raises(StudyError, match=r"1 cell not run: \['a'\]"):
        study(path, "--", "--no-such-option")


def test_two_cells_of_one_identity_are_refused_by_name(planned):
    path, _ = planned({"name": "a"}, {"name": "b", "set": {"data.limits": {"train": 9}}})  # only the records tell
    run_alone(path)
    with pytest.raises(record.RecordError, match="cells 'a' and 'b' have one identity"):
        study(path)


@pytest.mark.parametrize(
    ("log", "status", "reason"),
    [
        ("epoch 1\rerror: no such file\n(set X)\n", "failed", "no such file"),
        ("\r14%| 1/7 [00:01, 4.9it/s]error: the loss is nan\n(set X)\n\r14%|\n", "failed", "the loss is nan"),
        ("Traceback\n  File x\ntorch.OutOfMemoryError: 3 GiB\n", "failed", "torch.OutOfMemoryError: 3 GiB"),
        ("KeyError: 'a'\nduring that\nValueError: b\nexit", "failed", "ValueError: b"),
        ("epoch 1\n", "stopped", "epoch 1"),
        ("", "stopped", ""),
    ],
)
def test_why_a_cell_is_not_complete(planned, log, status, reason):
    path, runs = planned({"name": "a"})
    runs.mkdir()
    (runs / "a.log").write_text(log)
    settings = plan.read_study(path)
    row = results.cells_table(settings, *command.prepare(settings)).iloc[0]
    assert (row["status"], row["reason"]) == (status, reason)


# ------------------------------------------------------------------------------------- stopped, killed, started twice


@pytest.fixture
def launched(stand_in, tmp_path, warm_engine):
    """Starts studies, whose engine and cells are new processes, each a child of the one that started it, as for users."""
    processes = []

    def launch(*arguments):
        script = tmp_path / f"study-{len(processes)}.py"
        script.write_text(
            "import sys\nfrom attnfaith.cli import guarded, COMMANDS\nfrom attnfaith.study import plan\n"
            f"sys.executable = {PYTHON!r}\nplan.TRAIN = {(PYTHON, str(stand_in / 'train.py'))!r}\n"
            f"sys.exit(guarded(COMMANDS['study'], {[str(word) for word in arguments]!r}))\n"
        )
        with open(script.with_suffix(".log"), "w") as log:
            processes.append(subprocess.Popen([warm_engine, str(script)], stdout=log, stderr=subprocess.STDOUT))
        return processes[-1]

    yield launch
    for process in processes:
        process.kill()
        process.wait()


def wait_for(what, seconds=60):
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.05)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_study_leaves_no_process(hanging, number):
    path, _, process, pid = hanging
    engine = [parent.pid for parent in psutil.Process(pid).parents() if "snakemake" in parent.cmdline()]
    process.send_signal(number)
    process.wait(60)
    assert process.returncode == 130 and engine and all(map(gone, [pid, *engine]))
    assert statuses(path) == {"quick": "complete", "slow": "stopped"}


def test_one_study_at_a_time_and_a_killed_one_goes_on(hanging, launched, capsys):
    path, runs, process, pid = hanging
    with pytest.raises(FileError, match="runs.* is in use by a study"):
        study(path)
    process.kill()
    process.wait()
    assert not gone(pid)  # its cell is still there
    settings = yaml.safe_load(path.read_text())
    del settings["blocks"][1]["set"]["report.title"]
    path.write_text(yaml.safe_dump(settings))
    again = launched(path)  # the lock went with its holder, and the cell is waited for
    wait_for(lambda: (runs / "slow.log").is_file() and not (runs / "slow.log").read_text())
    time.sleep(3)
    assert starts(runs, "slow") == [1] and not gone(pid)
    os.kill(pid, signal.SIGKILL)
    assert again.wait(120) == 0
    assert starts(runs, "quick", "slow") == [1, 2]
    assert len(pd.read_csv(path.parent / "results" / "performance.csv")) == 2
    study(path, "--status")
    assert capsys.readouterr().out.endswith("no study is at work there\n")


def test_a_killed_cell_is_told_and_goes_on(hanging):
    path, runs, process, pid = hanging
    os.kill(pid, signal.SIGKILL)
    assert process.wait(60) == 2
    assert statuses(path) == {"quick": "complete", "slow": "stopped"}


# ------------------------------------------------------------------------------------------------ results


def test_tables_are_rebuilt_without_torch(planned, tmp_path):
    """With the analysis of a paper, and beside its published numbers."""
    keys = {"analysis": JAIN_WALLACE, "published": TAUS, "tables": ["performance", "agreement"]}
    path, _ = planned({"name": "a", "grid": {"projection": ["softmax", "sparsemax"], "seed": [1, 2]}}, **keys)
    run_alone(path)
    study(path)
    tables = {name: (tmp_path / "results" / f"{name}.csv").read_bytes() for name in ("performance", "side_by_side")}
    for file in (tmp_path / "results").glob("*.csv"):
        file.unlink()
    code = (
        "import sys\nfrom attnfaith.cli import main\nmain(['study', sys.argv[1], '--tables'])\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([PYTHON, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["False False"], done.stdout + done.stderr
    assert {name: (tmp_path / "results" / f"{name}.csv").read_bytes() for name in tables} == tables


def test_what_made_the_tables_is_kept_beside_them(tmp_path):
    """Two cells of one commit and one of another."""
    folders = {}
    for name, commit in {"a": "1" * 40, "b": "2" * 40, "c": "1" * 40}.items():
        folders[name] = tmp_path / name
        folders[name].mkdir()
        part = {"provenance": {"version": "1", "commit": commit, "dirty": False, "seed": 3}}
        pq.write_table(record.with_settings(pa.table({"x": [1]}), [part]), folders[name] / "record.parquet")
        (folders[name] / "run.json").write_text('{"seconds": 2.5}')
    path = results.write_provenance({"results": str(tmp_path / "results")}, 4, folders)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["cells"], content["seconds"]) == ({"planned": 4, "complete": 3}, 7.5)
    assert [(maker["cells"], maker["commit"]) for maker in content["made_by"]] == [(2, "1" * 40), (1, "2" * 40)]


def test_studies_of_the_package():
    """No two share a folder of results."""
    files = [path for path in recipes.library.folder().rglob("*.yaml") if "\nblocks:" in path.read_text("utf-8")]
    places = [plan.read_study(path)["results"] for path in files]
    assert len(set(places)) == len(places)


# ------------------------------------------------------------------------------------------------ real runs


@pytest.mark.gate
def test_a_study_runs_keeps_what_is_complete_and_says_what_failed(tmp_path, monkeypatch, warm_engine):
    assert TRAIN == (PYTHON, "-m", "attnfaith", "train")
    (tmp_path / "train.py").write_text(
        IN_A_PROCESS + "from attnfaith import cli\nsys.exit(cli.main(['train', *sys.argv[1:]]))"
    )
    monkeypatch.setattr(plan, "TRAIN", (warm_engine, str(tmp_path / "train.py")))
    monkeypatch.setattr(sys, "executable", warm_engine)
    blocks = [{"recipe": "tiny.yaml", "grid": grid} for grid in ({"seed": [1, 2]}, {"data.vectors": ["no_such"]})]
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"output_dir": "runs", "results": "results", "blocks": blocks}))
    with pytest.raises(StudyError, match="1 cell failed: \\['tiny-no_such'\\]"):
        study("study.yaml")
    assert "error: There is no vector file no_such." in (tmp_path / "runs" / "tiny-no_such.log").read_text()
    for name in ("agreement", "agreement_over_seeds", "plausibility"):
        assert set(pd.read_csv(tmp_path / "results" / f"{name}.csv")["dataset"]) == {"planted_evidence"}
    record_file = tmp_path / "runs" / "tiny-1" / "record.parquet"
    before = record_file.stat().st_mtime_ns
    with pytest.raises(StudyError, match="1 cell failed"):
        study("study.yaml")
    assert record_file.stat().st_mtime_ns == before and (tmp_path / "results" / "index.html").is_file()
