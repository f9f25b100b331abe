"""Studies run by Snakemake: what waits for what, what is stopped or killed and goes on, and the results."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import psutil
import pytest
import yaml

from attnfaith import recipes, record
from attnfaith.cli import COMMANDS
from attnfaith.reporting.analysis import StudyError
from attnfaith.study import cell as cell_process
from attnfaith.study import execute, plan, results
from attnfaith.support.errors import AttnfaithError, FileError
from tests.records import draw
from tests.study.test_plan import BASE, GUIDED, JAIN_WALLACE, TINY


pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


def write_study(folder, *blocks, **keys):
    """Write a study of blocks on a tiny recipe; return its path and its folder of runs."""
    (folder / "tiny.yaml").write_text(TINY)
    tree = {"output_dir": str(folder / "runs"), "results": str(folder / "results"), "tables": ["performance"]}
    tree["blocks"] = [{"recipe": str(folder / "tiny.yaml"), **block} for block in blocks]
    (folder / "study.yaml").write_text(yaml.safe_dump(tree | keys))
    return folder / "study.yaml", folder / "runs"


@pytest.fixture(autouse=True, scope="module")
def _stand_in():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "TRAIN", STAND_IN)
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        yield


def study(path, *options):
    COMMANDS["study"]([str(path), *options])


def run_alone(path):
    """Run every cell of a study in this process, without the engine."""
    for cell in plan.cells(plan.read_study(path)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", list(cell.command[1:]))
            runpy.run_path(cell.command[1], run_name="__main__")


def starts(runs, *names):
    """Return how often each cell was begun."""
    return [len((runs / name / "starts").read_text()) for name in names]


def cells_of(path):
    return results.cells_table(execute.prepare(plan.read_study(path)))


# ------------------------------------------------------------------------------------------------ cells


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A study of which one cell failed and another waits for it: its path, its folder of runs and the error."""
    broken = {**BASE, "set": {**BASE["set"], "report.title": "fail"}, "grid": {"seed": [1]}}
    path, runs = write_study(tmp_path_factory.mktemp("ran"), broken, {**BASE, "grid": {"seed": [2]}}, GUIDED)
    with pytest.raises(StudyError) as error:
        study(path, "--cores", "2")
    return path, runs, str(error.value)


def test_a_failed_cell_stops_nothing_else(ran, capsys):
    path, runs, error = ran
    assert error.startswith("1 cell failed: ['base-1']; 1 cell not run: ['guided-1']; logs lie beside the cells")
    table = path.parent / "results" / "cells.csv"
    rows = pd.read_csv(table, keep_default_na=False)[["cell", "block", "status", "n", "reason"]]
    assert rows.to_numpy().tolist() == [
        ["base-1", "base", "failed", "NaN", "it broke"],
        ["base-2", "base", "complete", "2", ""],
        ["guided-1", "guided", "not run", "NaN", "it needs base-1"],
        ["guided-2", "guided", "complete", "2", ""],
    ]
    content = json.loads((path.parent / "results" / "made.json").read_text())
    assert content["cells"] == {"planned": 4, "complete": 2} and content["seconds"] == 15.0

    stamps = {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")}
    study(path, "--status")
    assert {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")} == stamps, "nothing is written"
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "status complete failed not run all" and "all 2 1 1 4" in lines
    assert lines[-3:] == ["base-1 failed: it broke", "guided-1 not run: it needs base-1", "no study is at work there"]
    before = table.read_text()
    for options in (["--tables"], ["--only", "guided-2"]):
        table.unlink()
        study(path, *options)
        assert table.read_text() == before and starts(runs, "base-2", "guided-2") == [1, 1]


def test_a_cell_is_complete_by_its_own_recipe_and_base(ran):
    path, runs, _ = ran
    _, cell, _, guided = plan.cells(plan.read_study(path))
    recipe = cell.whole_recipe
    assert plan.complete(recipe) and plan.complete(guided.whole_recipe)
    for override, same in (("--measure.producers=[gradient]", 0), ("--seed=4", 0), ("--note=x", 1)):
        assert plan.complete(recipes.load(cell.recipe, [*cell.overrides, override])) == same, override
    for name, broken in (("run.json", "{"), ("record.parquet", "PAR1")):
        whole = (runs / "base-2" / name).read_bytes()
        (runs / "base-2" / name).write_text(broken)
        assert not plan.complete(recipe)
        (runs / "base-2" / name).write_bytes(whole)
    state = runs / "guided-2" / "run.json"
    state.write_text(state.read_text().replace("weights 2", "weights of a base that was trained anew"))
    assert not plan.complete(guided.whole_recipe)


def test_records_of_another_version_are_named(tmp_path):
    path, runs = write_study(tmp_path, {"name": "a"}, {"name": "b", "set": {"seed": 2, "report.title": "old"}})
    run_alone(path)
    table = path.parent / "results" / "performance.csv"
    with pytest.raises(record.RecordError, match=r"0\.0, .*--mix-versions"):
        study(path)
    assert not table.exists()
    study(path, "--tables", "--mix-versions")
    assert len(pd.read_csv(table)) == 2
    path, _ = write_study(tmp_path, {"name": "a"}, {"name": "b", "set": {"data.limits": {"train": 9}}})
    run_alone(path)
    with pytest.raises(record.RecordError, match="cells 'a' and 'b' have one identity"):
        study(path)


def test_each_gpu_that_may_be_used_has_one_cell_at_a_time(monkeypatch, tmp_path):
    blocks = [{"name": "a", "set": {"report.title": "with b"}}, {"name": "b", "set": {"seed": 2, "report.title": "with a"}}]
    path, runs = write_study(tmp_path, *blocks)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    study(path)
    environments = [json.loads((runs / name / "environment.json").read_text()) for name in "ab"]
    assert {environment["CUDA_VISIBLE_DEVICES"] for environment in environments} == {"4", "7"}
    monkeypatch.chdir(tmp_path)
    assert [cell_process.own_gpu(["4", "7"], 3) for _ in range(3)] == ["4", "7", "4"]  # more cells than GPUs
    for words, expected in {"2,GPU-5a": ["2", "GPU-5a"], "": [], "-1": []}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
        assert execute.available_gpus() == expected
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert execute.available_gpus() == ["0", "1"]


def test_what_keeps_a_study_from_beginning(monkeypatch, tmp_path):
    path, runs = write_study(tmp_path, {"name": "a"})
    wrong = {"--cores 0": ["--cores", "0"], "nothing of this study has been run": ["--status"]}
    for message, options in {**wrong, "--only b-": ["--only", "b-*"], "--only c-": ["--tables", "--only", "c-*"]}.items():
        with pytest.raises(AttnfaithError, match=message):
            study(path, *options)
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")  # the second of several launched processes
        study(path)
    with monkeypatch.context() as patch:
        find = execute.importlib.util.find_spec
        missing = {"snakemake": lambda *_: None}
        patch.setattr(execute.importlib.util, "find_spec", lambda *words: missing.get(words[0], find)(*words))
        with pytest.raises(StudyError, match=r"pip install 'attnfaith\[study\]'"):
            study(path)
    assert not runs.exists()
    with pytest.raises(StudyError, match="nothing to tabulate"):
        study(path, "--tables")


# ------------------------------------------------------------------------------------------------ stopped and killed


def wait_for(condition, seconds=300):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.05)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def launch(tmp_path):
    """Start studies in processes of their own."""
    processes = []

    def start(*words):
        script = "import sys\nfrom attnfaith.cli import guarded, COMMANDS\nfrom attnfaith.study import plan\n"
        script += f"plan.TRAIN = {STAND_IN!r}\nsys.exit(guarded(COMMANDS['study'], sys.argv[1:]))"
        with open(tmp_path / f"{len(processes)}.log", "w") as log:
            command = [sys.executable, "-c", script, *map(str, words)]
            processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def hanging(launch, tmp_path):
    """A study that is at work on its second cell: its path, its folder of runs, its process and that of the cell."""
    slow = {"name": "slow", "set": {"report.title": "hang", "seed": 5}, "after": ["quick"]}
    path, runs = write_study(tmp_path, {"name": "quick"}, slow)
    process = launch(path, "--cores", "1")
    log = runs / "slow.log"
    wait_for(lambda: log.is_file() and "epoch 1" in log.read_text())
    pid = json.loads((runs / "slow" / "environment.json").read_text())["pid"]
    yield path, runs, process, pid
    if not gone(pid):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_study_leaves_no_process(hanging, number):
    path, _, process, pid = hanging
    engine = [parent.pid for parent in psutil.Process(pid).parents() if "snakemake" in parent.cmdline()]
    process.send_signal(number)
    process.wait(60)
    assert process.returncode == 130 and engine and all(map(gone, [pid, *engine]))
    assert cells_of(path)["status"].tolist() == ["complete", "stopped"]


def test_one_study_at_a_time_and_a_killed_study_goes_on(hanging, launch):
    path, runs, process, pid = hanging
    with pytest.raises(FileError, match="runs.* is in use by a study"):
        study(path)
    process.kill()
    process.wait()
    assert not gone(pid), "the cell is still at work"
    settings = yaml.safe_load(path.read_text())
    del settings["blocks"][1]["set"]["report.title"]
    path.write_text(yaml.safe_dump(settings))
    again = launch(path)  # the lock went with its holder, and the cell is waited for
    wait_for(lambda: (runs / "slow.log").is_file() and not (runs / "slow.log").read_text())
    time.sleep(2)
    assert starts(runs, "slow") == [1] and not gone(pid)
    os.kill(pid, signal.SIGKILL)
    assert again.wait(120) == 0 and starts(runs, "quick", "slow") == [1, 2]
    assert len(pd.read_csv(path.parent / "results" / "performance.csv")) == 2


# ------------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize(
    ("log", "status", "reason"),
    [
        ("\r14%| 1/7 [00:01, 4.9it/s]error: the loss is nan\n(set X)\n\r14%|\n", "failed", "the loss is nan"),
        ("KeyError: 'a'\nduring that\ntorch.OutOfMemoryError: 3 GiB\nexit", "failed", "torch.OutOfMemoryError: 3 GiB"),
        ("epoch 1\n", "stopped", "epoch 1"),
        ("", "stopped", ""),
    ],
)
def test_why_a_cell_is_not_complete(log, status, reason, tmp_path):
    path, runs = write_study(tmp_path, {"name": "a"})
    runs.mkdir()
    (runs / "a.log").write_text(log)
    row = cells_of(path).iloc[0]
    assert (row["status"], row["reason"]) == (status, reason)


def test_the_page_links_its_files_and_escapes_its_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {}
    for name, fields in {"a 1": {"seed": 1}, "a-2": {"seed": 2}, "b-1": {"seed": 1, "encoder": "cnn"}}.items():
        folders[name] = Path("runs") / name
        folders[name].mkdir(parents=True)
        record.save(draw(20, **fields), folders[name] / "record.parquet")
        (folders[name] / "run.json").write_text("{}")
    (folders["a 1"] / "report").mkdir()
    (folders["a 1"] / "report" / "index.html").write_text("a report")
    rows = [(name, "x", "complete", 20, "") for name in folders]
    rows.append(("<b>broken</b>", "x", "failed", None, "it has <script> & no texts"))
    cells = pd.DataFrame(rows, columns=["cell", "block", "status", "n", "reason"]).astype({"n": "Int64"})
    planned = plan.Study("runs", "papers/first/results", [plan.Block("a.yaml")], tables=["agreement"])
    page = results.write_results(planned, cells, folders)
    html = page.read_text()
    links = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert "Complete: 3 of 4 cells. 1 failed. Data sets: sst. Seeds: 1, 2." in html
    assert [link for link in links if not (page.parent / unquote(link)).is_file()] == []
    assert [link for link in links if link.endswith("report/index.html")] == ["../../../runs/a%201/report/index.html"]
    assert "<script>" not in html and "<b>broken" not in html and "it has &lt;script&gt; &amp; no texts" in html
    assert re.search(r"\| bilstm \| (\S+ ± \S+) \|", (page.parent / "wide" / "agreement.md").read_text())[1] in html


@pytest.mark.gate
def test_a_study_of_real_runs_and_its_tables_without_torch(tmp_path, monkeypatch):
    """With the analysis of a paper, beside its published numbers; a second call runs nothing."""
    monkeypatch.setattr(plan, "TRAIN", (sys.executable, "-m", "attnfaith", "train"))
    data = {"data.arguments": {"sizes": {"train": 40, "validation": 20, "test": 12}}, "num_train_epochs": 1}
    keys = {**JAIN_WALLACE, "tables": ["performance", "agreement"]}
    path, runs = write_study(tmp_path, {"set": data, "grid": {"seed": [1, 2]}}, **keys)
    study(path)
    assert (tmp_path / "results" / "index.html").is_file()
    stamp = (runs / "tiny-1" / "record.parquet").stat().st_mtime_ns
    tables = {file: file.read_bytes() for file in (tmp_path / "results").glob("*.csv")}
    assert {"performance.csv", "agreement.csv", "side_by_side.csv"} <= {file.name for file in tables}
    for file in tables:
        file.unlink()
    code = "import sys\nfrom attnfaith.cli import main\nmain(['study', sys.argv[1]])\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stdout + done.stderr
    assert {file: file.read_bytes() for file in tables} == tables
    assert (runs / "tiny-1" / "record.parquet").stat().st_mtime_ns == stamp
