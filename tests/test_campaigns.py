"""A small part of the campaigns."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.gate
def test_a_few_attempts_do_no_harm(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaigns", "--small", "--only", "kill", "disk", "input"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [name for name, *_ in rows] == ["campaign", *["kill"] * 4, *["disk"] * 4, *["input"] * (len(rows) - 10), "all"]
    assert int(rows[-1][2]) == sum(int(count) for _, _, count, _ in rows[1:-1]) >= 12 and rows[-1][3] == "0"
