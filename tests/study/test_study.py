"""Studies run by Snakemake: what waits for what, what is stopped or killed and goes on, and the results."""

import json
import os
import re
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
from attnfaith.study import execute, plan, results
from attnfaith.support.errors import AttnfaithError, FileError
from attnfaith.support.files import is_locked
from tests.records import draw
from tests.study.test_plan import BASE, GUIDED, JAIN_WALLACE, TINY


pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DATA = {"arguments": {"sizes": {"train": 40, "validation": 20, "test": 12}}}


@pytest.fixture(autouse=True, scope="module")
def _environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        yield


def write_study(folder, *blocks, **keys):
    """Write a study of blocks on a tiny recipe; return its path and its folder of runs."""
    tree = {**TINY, "data": DATA, "training": {"num_train_epochs": 1, "use_cpu": True}}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tree))
    tree = {"output_dir": str(folder / "runs"), "results": str(folder / "results"), "tables": ["performance", "agreement"]}
    tree["blocks"] = [{"recipe": str(folder / "tiny.yaml"), **block} for block in blocks]
    (folder / "study.yaml").write_text(yaml.safe_dump(tree | keys))
    return folder / "study.yaml", folder / "runs"


def study(path, *options):
    COMMANDS["study"]([str(path), *options])


def cells_of(path):
    return results.cells_table(execute.prepare(plan.read_study(path)))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A study of which one cell failed and another waits for it: its path, its folder of runs and the error."""
    broken = {**BASE, "set": {"data.vectors": "nowhere.vec"}, "grid": {"seed": [1]}}
    blocks = broken, {**BASE, "grid": {"seed": [2]}}, GUIDED
    path, runs = write_study(tmp_path_factory.mktemp("ran"), *blocks, **JAIN_WALLACE)
    with pytest.raises(StudyError) as error:
        study(path, "--cores", "2")
    return path, runs, str(error.value)


@pytest.mark.gate
def test_a_failed_cell_stops_nothing_else(ran, capsys):
    path, _, error = ran
    assert error.startswith("1 cell failed: ['base-1']; 1 cell not run: ['guided-1']; logs lie beside the cells")
    cells = cells_of(path)
    assert cells["n"].fillna(0).tolist() == [0, 5, 0, 12] and "nowhere.vec" in cells["reason"][0]
    assert cells[["cell", "block", "status"]].to_numpy().tolist() == [
        ["base-1", "base", "failed"],
        ["base-2", "base", "complete"],
        ["guided-1", "guided", "not run"],
        ["guided-2", "guided", "complete"],
    ]
    content = json.loads((path.parent / "results" / "made.json").read_text())
    assert content["cells"] == {"planned": 4, "complete": 2} and content["made_by"][0]["cells"] == 2

    stamps = {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")}
    study(path, "--status")
    study(path, "--only", "guided-2", "--status")
    assert {entry: entry.stat().st_mtime_ns for entry in path.parent.rglob("*")} == stamps, "nothing is written"
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "status complete failed not run all" and "all 2 1 1 4" in lines
    assert lines[-2:] == ["guided-1 not run: it needs base-1", "no study is at work there"]


@pytest.mark.gate
def test_tables_are_made_again_from_the_records_without_torch(ran):
    path, runs, _ = ran
    stamp = (runs / "base-2" / "record.parquet").stat().st_mtime_ns
    tables = {file: file.read_bytes() for file in (path.parent / "results").glob("*.csv")}
    assert {"performance.csv", "agreement.csv", "side_by_side.csv"} <= {file.name for file in tables}
    assert (path.parent / "results" / "side_by_side.md").read_text().startswith("| data | encoder |"), "as the page shows it"
    for file in tables:
        file.unlink()
    code = "import sys\nfrom attnfaith.cli import main\nmain(['study', *sys.argv[1:]])\nprint('torch' in sys.modules)"
    words = [sys.executable, "-c", code, str(path), "--only", "guided-2"]  # nothing is left to run
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stdout + done.stderr
    assert {file: file.read_bytes() for file in tables} == tables
    assert (runs / "base-2" / "record.parquet").stat().st_mtime_ns == stamp

    place = runs / "base-2" / "record.parquet"
    whole, table = place.read_bytes(), record.load(place)
    record.save(record.with_settings(table, [record.settings(table)[0] | {"version": "0.0.1"}]), place)
    with pytest.raises(record.RecordError, match=r"0\.0.*--mix-versions"):
        study(path, "--tables")
    study(path, "--tables", "--mix-versions")
    place.write_bytes(whole)


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
    state = json.loads((runs / "guided-2" / "run.json").read_text())
    state["base"]["weights (SHA-256)"] = "those of a base that was trained anew"
    (runs / "guided-2" / "run.json").write_text(json.dumps(state))
    assert not plan.complete(guided.whole_recipe)


def test_each_gpu_that_may_be_used_has_one_cell_at_a_time(monkeypatch, tmp_path):
    path, runs = write_study(tmp_path, {"grid": {"seed": [1, 2, 3]}})
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7")
    with pytest.raises(StudyError, match="3 cells not run"):
        study(path, "--", "--dry-run")
    planned = json.loads((runs / ".study" / "plan.json").read_text())
    gpus = [cell["command"][:2] for cell in planned["cells"].values()]
    assert gpus == [["env", f"CUDA_VISIBLE_DEVICES={name}"] for name in ("4", "GPU-7", "4")]
    for words, count, expected in (("2,GPU-5a", 2, ["2", "GPU-5a"]), ("", 0, []), ("-1", 0, []), (None, 2, ["0", "1"])):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if words is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", words)
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        assert execute.available_gpus() == expected


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


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.gate
def test_a_stopped_and_a_killed_study_go_on_and_nothing_is_run_twice(tmp_path):
    slow = {"name": "slow", "set": {"num_train_epochs": 120, "seed": 5}, "after": ["quick"]}
    path, _ = write_study(tmp_path, {"name": "quick"}, slow)
    words = [str(path), "--limit", "5", "--set", "learning_rate=0.001", "--cores", "1"]
    runs = Path(plan.trial(plan.read_study(path), ["learning_rate=0.001", "measure.limit=5"]).output_dir)
    processes = []

    def launch():
        with open(tmp_path / "log", "w") as log:
            command = [sys.executable, "-m", "attnfaith", "study", *words]
            processes.append(psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        return processes[-1]

    def at_work(process):
        """The engine and its cell, once the slow cell trains and has a checkpoint."""
        wait_for(lambda: is_locked(runs / "slow") and [*runs.glob("slow/checkpoints/*/trainer_state.json")])
        processes.extend(process.children(recursive=True))
        return processes[processes.index(process) + 1 :]

    try:
        process = launch()
        below = at_work(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130 and len(below) > 1 and all(map(gone, below))
        stamp = (runs / "quick" / "run.json").stat().st_mtime_ns

        process = launch()
        cell = next(child for child in at_work(process) if "train" in child.cmdline())  # it may have children, such as git
        with pytest.raises(FileError, match="is in use by a study"):
            study(*words)
        process.kill()
        process.wait()
        assert not gone(cell), "the cell is still at work"
        process = launch()  # the lock went with its holder, and the cell is waited for
        assert process.wait(300) == 0, (tmp_path / "log").read_text()
        assert (runs / "quick" / "run.json").stat().st_mtime_ns == stamp
        assert (runs / "slow.log").read_text().count("'epoch': '120'") > 0 and not [*runs.glob("*/checkpoints")]
        assert len(pd.read_csv(runs / "results" / "performance.csv")) == 2
    finally:
        for process in processes:
            if not gone(process):
                process.kill()


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
        (folders[name] / "run.json").write_text('{"seconds": 1.5}')
    (folders["a 1"] / "report").mkdir()
    (folders["a 1"] / "report" / "index.html").write_text("a report")
    rows = [(name, "x", "complete", 20, "") for name in folders]
    rows.append(("<b>broken</b>", "x", "failed", None, "it has <script> & no texts"))
    cells = pd.DataFrame(rows, columns=["cell", "block", "status", "n", "reason"]).astype({"n": "Int64"})
    planned = plan.Study("runs", "papers/first/results", [plan.Block("a.yaml")], tables=["agreement"])
    page = results.write_results(planned, cells, folders)
    assert json.loads((page.parent / "made.json").read_text())["seconds"] == 4.5
    html = page.read_text()
    links = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert "Complete: 3 of 4 cells. 1 failed. Data sets: sst. Seeds: 1, 2." in html
    assert [link for link in links if not (page.parent / unquote(link)).is_file()] == []
    assert [link for link in links if link.endswith("report/index.html")] == ["../../../runs/a%201/report/index.html"]
    with pytest.raises(record.RecordError, match="cells 'a' and 'b' have one identity"):
        results.write_results(planned, cells, {"a": folders["a 1"], "b": folders["a 1"]})
