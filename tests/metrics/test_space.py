"""The page of the metric's Space, without gradio: what it reads and computes, and the folder that goes to the Hub."""

import json
import math
import shutil
import subprocess
import sys
from importlib.metadata import version

import numpy as np
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


def test_typed_columns():
    results, by_text = app.answer(True, json.dumps(ATTENTION), json.dumps(IMPORTANCE), "", None, " ")
    np.testing.assert_allclose(by_text["kendall_tau"], TAU)
    values = dict(results.itertuples(index=False))
    assert values["n"] == 4 and values["kendall_tau"] == pytest.approx(np.nanmean(TAU))
    sparse = "[[0.0, 0.4, 0.6]]", "[[1, 2, 3]]", "", "", ""
    with pytest.raises(ValueError, match="mask"):
        app.answer(False, *sparse)
    assert len(app.answer(True, *sparse)[1]) == 1


def test_front_matter_and_requirements(repository):
    matter = yaml.safe_load((METRIC_DIR / "README.md").read_text(encoding="utf-8").split("---", 2)[1])
    assert matter["sdk"] == "gradio" and (METRIC_DIR / matter["app_file"]).is_file()
    assert len(matter["short_description"]) <= 60 and {"evaluate", "metric"} <= set(matter["tags"])
    lines = (METRIC_DIR / "requirements.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert set(pins) == {"datasets", "evaluate", "gradio", "numpy", "pandas", "pyarrow", "scikit-learn", "scipy"}
    assert pins.pop("gradio") == matter["sdk_version"]
    constraints = dict(line.split("==") for line in (repository / "constraints.txt").read_text().split())
    assert all(constraints[name] == pin == version(name) for name, pin in pins.items())


def test_the_page_runs_as_a_script(tmp_path):
    """As a Space runs it: by its file, in a folder of any name, and not as a part of a package."""
    folder = shutil.copytree(METRIC_DIR, tmp_path / "my.space", ignore=shutil.ignore_patterns("__pycache__"))
    call = "page['answer'](False, '[[0.5, 0.5]]', '', '', '', '')[1].to_dict()"
    program = f"import runpy\npage = runpy.run_path('app.py')\nprint({call})"
    process = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert "'support_size': {0: 2.0}" in process.stdout, process.stderr
