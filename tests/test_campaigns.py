"""One attempt of each campaign."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.gate
def test_a_killed_command_and_a_full_disk_do_no_harm(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.campaigns", "--count", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row[1:] for row in rows[1:]] == [[name, "1", "0"] for name in ("train", "measure", "report", "push")] * 2
