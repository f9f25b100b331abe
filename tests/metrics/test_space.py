"""The page of the metric's Space, without gradio: what it reads and computes, and the folder that goes to the Hub."""

import json
import math
import shutil
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
import yaml

from attnfaith.metrics.attention_faithfulness import app
from attnfaith.metrics.registration import METRIC_DIR


pytestmark = pytest.mark.slow  # evaluate is loaded


ATTENTION = [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0], [], [0.4, 0.1, 0.1, 0.4]]
IMPORTANCE = [[1.0, 3.0, 2.0], [0.1, 0.2, 0.3], [], [5.0, 1.0, 2.0, 4.0]]
# by hand: 2 of 3 pairs agree; 2 of 2 that are untied in attention, of 3; 4 of 4 that are, of 6
TAU = [1 / 3, 2 / math.sqrt(2 * 3), math.nan, 4 / math.sqrt(4 * 6)]


@pytest.fixture(scope="module", autouse=True)
def _offline(evaluate):
    """Every computation below is without network, in caches of its own."""


@pytest.mark.parametrize("kind", ["parquet", "json", "jsonl", "csv"])
def test_tables(kind, tmp_path):
    path = tmp_path / f"table.{kind}"
    tokens = [["a", "b", "c"], ["d", "e", "f"], [], ["g", "h", "i", "j"]]
    frame = pd.DataFrame({"tokens": tokens, "attention": ATTENTION, "importance_a": IMPORTANCE, "importance_b": ATTENTION})
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "csv":
        frame.assign(tokens="words").to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=kind == "jsonl")
    results, by_text = app.answer(app.columns_of_table(path))
    np.testing.assert_allclose(by_text["kendall_tau"], TAU)
    values = dict(results.itertuples(index=False))
    assert values["n"] == 4 and values["kendall_tau"] == pytest.approx(np.nanmean(TAU))
    assert [list(row) for row in app.columns_of_table(path, "importance_b")["importance"]] == ATTENTION
    with pytest.raises(ValueError, match="importance_c"):
        app.columns_of_table(path, "importance_c")


def test_typed_columns():
    columns = app.columns_of_texts(json.dumps(ATTENTION), json.dumps(IMPORTANCE), "", None, " ")
    assert columns == {"attention": ATTENTION, "importance": IMPORTANCE}
    sparse = app.columns_of_texts("[[0.0, 0.4, 0.6]]", "[[1, 2, 3]]", "", "", "")
    with pytest.raises(ValueError, match="mask"):
        app.answer(sparse)
    assert len(app.answer(sparse, zeros_are_tokens=True)[1]) == 1


def test_front_matter_and_requirements(repository):
    matter = yaml.safe_load((METRIC_DIR / "README.md").read_text(encoding="utf-8").split("---", 2)[1])
    assert matter["sdk"] == "gradio" and (METRIC_DIR / matter["app_file"]).is_file()
    assert len(matter["short_description"]) <= 60 and {"evaluate", "metric"} <= set(matter["tags"])
    lines = (METRIC_DIR / "requirements.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert set(pins) == {"datasets", "evaluate", "gradio", "numpy", "pandas", "pyarrow", "scipy"}
    assert pins.pop("gradio") == matter["sdk_version"]
    constraints = dict(line.split("==") for line in (repository / "constraints.txt").read_text().split())
    assert all(constraints[name] == pin == version(name) for name, pin in pins.items())


def test_the_page_runs_as_a_script(tmp_path):
    """As a Space runs it: by its file, in a folder of any name, and not as a part of a package."""
    folder = shutil.copytree(METRIC_DIR, tmp_path / "my.space", ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import runpy\npage = runpy.run_path('app.py')\nprint(page['answer']({'attention': [[0.5, 0.5]]})[1].to_dict())"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert "'support_size': {0: 2.0}" in process.stdout, process.stderr
