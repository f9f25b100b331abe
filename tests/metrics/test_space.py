"""The page of the metric's Space, without gradio: what it reads and computes, and the folder that goes to the Hub."""

import json
import math
import shutil
import subprocess
import unicodedata
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from attnfaith.metrics.attention_faithfulness import app
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME


pytestmark = pytest.mark.slow  # evaluate is loaded


ATTENTION = [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [], [0.4, 0.1, 0.1, 0.4]]
IMPORTANCE = [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3], [], [5.0, 1.0, 2.0, 4.0]]
TOKENS = [["a", "b", "c"], ["d", "e", "f"], [], ["g", "h", "i", "j"]]
COLUMNS = {"attention": ATTENTION, "importance": IMPORTANCE, "tokens": TOKENS}
# by hand: 2 of 3 pairs agree; 2 of 2 that are untied in attention, of 3; 4 of 4 that are, of 6
TAU = [1 / 3, 2 / math.sqrt(2 * 3), math.nan, 4 / math.sqrt(4 * 6)]


@pytest.fixture(scope="module", autouse=True)
def _offline(evaluate):
    """Every computation below is without network, in caches of its own."""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0.1 0.9\n1", [[0.1, 0.9], [1]]),
        (" 0.1, 0.9 \n\n\t1 0", [[0.1, 0.9], [], [1, 0]]),
        ("[[0.1, 0.9], [], null]", [[0.1, 0.9], [], None]),
        ("-1e-3 inf", [[-1e-3, math.inf]]),
        ("7", [[7]]),
    ],
)
def test_typed_rows(text, rows):
    assert app.rows_of(text) == rows


def test_what_is_no_number_is_refused():
    with pytest.raises(ValueError, match="half"):
        app.rows_of("0.5 half")


@pytest.fixture(params=["parquet", "json", "jsonl", "csv"])
def file(request, tmp_path):
    path = tmp_path / f"given.{request.param}"
    objects = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    if request.param == "parquet":
        pq.write_table(pa.table(COLUMNS), path)
    elif request.param == "csv":
        lines = [";".join(" ".join(map(str, cell)) for cell in one.values()).replace(";", ",") for one in objects]
        path.write_text("\n".join([",".join(COLUMNS), *lines]))
    else:
        path.write_text(json.dumps(objects) if request.param == "json" else "\n".join(map(json.dumps, objects)))
    return path


def test_files(file):
    columns, measures = app.columns_of_file(file)
    assert columns == COLUMNS and measures == ["importance"]
    results, tau = app.answer(columns)
    np.testing.assert_allclose(tau, TAU)
    assert results["n"] == 4 and results["kendall_tau"] == pytest.approx(np.nanmean(TAU))


def test_a_measure_of_several_is_chosen(tmp_path):
    path = tmp_path / "record.parquet"
    pq.write_table(pa.table({"attention": ATTENTION, "importance_a": IMPORTANCE, "importance_b": ATTENTION}), path)
    assert app.columns_of_file(path)[0]["importance"] == IMPORTANCE
    columns, measures = app.columns_of_file(path, "importance_b")
    assert columns["importance"] == ATTENTION and measures == ["importance_a", "importance_b"]


@pytest.mark.parametrize(("name", "text"), [("a.pkl", "x"), ("a.csv", "a,b\n1,2"), ("a.json", "[1"), ("a.parquet", "PAR1")])
def test_files_that_cannot_be_used(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises((ValueError, OSError)):
        app.columns_of_file(tmp_path / name)


def test_too_many_values_are_refused(monkeypatch):
    monkeypatch.setattr(app, "MOST_VALUES", 3)
    with pytest.raises(ValueError, match="more than 3 values"):
        app.answer(COLUMNS)


def front_matter():
    return yaml.safe_load((METRIC_DIR / "README.md").read_text(encoding="utf-8").split("---", 2)[1])


def test_front_matter_of_a_space():
    found = front_matter()
    assert found["sdk"] == "gradio" and (METRIC_DIR / found["app_file"]).is_file()
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {found["colorFrom"], found["colorTo"]} <= colours
    assert len(found["emoji"]) == 1 and unicodedata.category(found["emoji"]) == "So"
    assert len(found["short_description"]) <= 60
    assert "evaluate" in found["tags"] and "metric" in found["tags"]


def test_requirements_are_what_was_tried(repository):
    lines = (METRIC_DIR / "requirements.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert set(pins) == {"datasets", "evaluate", "gradio", "numpy", "pandas", "pyarrow", "scipy"}
    assert pins.pop("gradio") == front_matter()["sdk_version"]
    constraints = dict(line.split("==") for line in (repository / "constraints.txt").read_text().split())
    assert pins == {name: constraints[name] for name in pins}
    assert all(version(name) == pin for name, pin in pins.items())


def test_the_metric_loads_from_a_folder_of_any_name(evaluate, tmp_path):
    """A Space is checked out under a name of its own, and the page beside the script is no part of the metric."""
    folder = shutil.copytree(METRIC_DIR, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    metric = evaluate.load(str(folder / f"{METRIC_NAME}.py"))
    assert metric.compute(attention=ATTENTION, importance=IMPORTANCE)["kendall_tau"] == pytest.approx(np.nanmean(TAU))


def test_the_page_runs_as_a_script(tmp_path, warm_python):
    """As a Space runs it: by its file, in a folder of any name, and not as a part of a package."""
    folder = shutil.copytree(METRIC_DIR, tmp_path / "my.space", ignore=shutil.ignore_patterns("__pycache__"))
    pq.write_table(pa.table({"attention": [[0.5, 0.5]], "importance": [[1.0, 2.0]]}), tmp_path / "two.parquet")
    program = "import runpy\npage = runpy.run_path('app.py')\nprint(page['columns_of_file']('../two.parquet'))"
    done = subprocess.run([warm_python, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.stdout.strip() == "({'attention': [[0.5, 0.5]], 'importance': [[1.0, 2.0]]}, ['importance'])", done.stderr
