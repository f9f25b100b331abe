"""Folders of runs with files that are cut off, empty, swapped or gone: one line names the file, and nothing is lost."""

import json
import shutil

import pytest

from attnfaith import cli, recipes, runs
from tests.tiny_recipes import tiny_tree


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken") / "run"
    runs.run(recipes.build(tiny_tree(folder, epochs=1, report={"page": False})))
    (folder / "report" / "tables").mkdir(parents=True, exist_ok=True)  # else a push reads nothing of the run
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of a finished run in the folder "run" of the current one."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "recipe.yaml").write_text((folder / "recipe.yaml").read_text().replace(str(finished), "run"))
    state = json.loads((folder / "run.json").read_text())
    state["provenance"]["dirty"] = False  # nor if no commit holds its code
    (folder / "run.json").write_text(json.dumps(state))
    return folder


BROKEN = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "[]": lambda content: b"[]",
    "{}": lambda content: b"{}",
    "deep": lambda content: b"[" * 2000,
    "no text": lambda content: b"\xff\xfe" + content,
}
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
    "record.parquet": ["report", "push"],
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("name", READ)
def test_a_broken_file_is_one_line(run, name, kind, capfd):
    if (name, kind) == ("recipe.yaml", "cut off"):
        return  # what is left may be another recipe
    (run / name).write_bytes(BROKEN[kind]((run / name).read_bytes()))
    for command in READ[name]:
        assert cli.main(COMMANDS[command].split()) == 2, command
        error = capfd.readouterr().err
        (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(line) <= 600 and "Traceback" not in error
        assert name.partition("/")[0] in line or name.rpartition("/")[2] in line, line
        assert not (run.parent / "new.parquet").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(
            (f"model/{name}", None, f"run/model lacks {name}")
            for name in ("tokenizer.json", "model.safetensors", "config.json")
        ),
        ("run.json", '{"status": "complete", "versions": {}}', "run/run.json lacks dataset, sizes, vocabulary"),
    ],
)
def test_a_file_that_is_gone_and_a_state_without_its_training(run, name, content, message, capfd):
    (run / name).unlink() if content is None else (run / name).write_text(content)
    assert cli.main(COMMANDS["measure"].split()) == 2 and f"error: {message}" in capfd.readouterr().err
