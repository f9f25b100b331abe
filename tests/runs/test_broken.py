"""Folders of runs with files that are cut off or no text, and a full disk: one line of error, nothing lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnfaith import cli, record
from attnfaith.support.files import read_object


pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def run(copied, tmp_path, monkeypatch):
    """A copy of a finished run in the folder "run" of the current one."""
    monkeypatch.chdir(tmp_path)
    path = copied / "recipe.yaml"
    path.write_text(path.read_text().replace(str(copied), "run"))
    return copied


COMMANDS = {
    "measure": "measure run --output new.parquet",
    "resume": "train --config run/recipe.yaml --resume_from_checkpoint --measure.limit 5",
    "report": "report run",
    "push": "push run --to me --dry-run",
}
READ = {
    "run.json": ["measure", "resume", "push"],
    "recipe.yaml": ["measure", "resume", "report", "push"],
    "model/config.json": ["measure"],
    "model/model.safetensors": ["measure"],
    "model/tokenizer.json": ["measure"],
    "record.parquet": ["report", "push", "resume"],
}


@pytest.mark.parametrize("name", READ)
def test_a_broken_file_is_one_line(run, name, capfd):
    content = (run / name).read_bytes()
    for broken in (b"\xff\xfe" + content, content[: len(content) // 2]):
        if name == "recipe.yaml" and broken in content:
            continue  # what is left may be another recipe
        (run / name).write_bytes(broken)
        for command in READ[name]:
            assert cli.main(COMMANDS[command].split()) == 2, command
            error = capfd.readouterr().err
            (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
            assert len(line) <= 600 and "Traceback" not in error
            assert name.partition("/")[0] in line or name.rpartition("/")[2] in line, line
            assert not (run.parent / "new.parquet").exists()


FULL = """
import resource, sys, tempfile
from attnfaith import cli
tempfile.gettempdir()  # which is tried by a file
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))  # Python ignores SIGXFSZ
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_full_disk_is_one_line_and_the_command_repeated_ends_well(run):
    command = "measure run --producers gradient --overwrite".split()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", FULL, *command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr, done.stderr
    assert cli.main(command) == 0 and record.load(run / "record.parquet").num_rows == 24
    assert read_object(run / "run.json")["status"] == "complete"
