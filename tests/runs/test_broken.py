"""Folders of runs with files that are cut off, empty, swapped or gone: one line that names the file, and nothing lost."""

import json
import shutil

import pytest

from attnfaith import cli


pytestmark = pytest.mark.slow


TINY = """
name: tiny
output_dir: {}
seed: 3
data: {{arguments: {{length: [4, 8], vocabulary_size: 40, sizes: {{train: 40, validation: 16, test: 12}}}}}}
model: {{embedding_size: 8, hidden_size: 8}}
training: {{num_train_epochs: 1, learning_rate: 1e-2, arguments: {{disable_tqdm: true}}}}
measure: {{producers: [gradient]}}
report: {{examples: 1}}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    from tests.figures import REPORT, one_small_figure

    root = tmp_path_factory.mktemp("broken")
    (root / "tiny.yaml").write_text(TINY.format(root / "run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REPORT, one_small_figure())
        assert cli.main(["train", "--config", str(root / "tiny.yaml")]) == 0
    return root / "run"


@pytest.fixture
def run(finished, tmp_path, monkeypatch, quick_report):
    """A copy of a finished run in the folder "run" of the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNFAITH_TRACEBACK", raising=False)
    shutil.copytree(finished, tmp_path / "run")
    text = (tmp_path / "run" / "recipe.yaml").read_text().replace(str(finished), "run")
    (tmp_path / "run" / "recipe.yaml").write_text(text)
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    state["provenance"]["dirty"] = False  # else nothing more of it is read to be pushed
    (tmp_path / "run" / "run.json").write_text(json.dumps(state))
    return tmp_path / "run"


BROKEN = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "[]": lambda content: b"[]",
    "null": lambda content: b"null",
    "{}": lambda content: b"{}",
    "whole lines": lambda content: content[: content.rfind(b"\n", 0, len(content) // 2) + 1],
    "deep": lambda content: b"[" * 2000,
    "no text": lambda content: b"\xff\xfe" + content,
}
COMMANDS = {
    "measure": ["measure", "run", "--output", "new.parquet"],
    "resume": ["train", "--config", "run/recipe.yaml", "--resume_from_checkpoint", "--measure.limit", "5"],
    "report": ["report", "run"],
    "cards": ["cards", "run", "--to", "me"],
    "push": ["push", "run", "--to", "me", "--dry-run"],
}
READ = {
    "run.json": ["measure", "resume", "cards", "push"],
    "recipe.yaml": ["measure", "resume", "report", "cards", "push"],
    "model/config.json": ["measure"],
    "model/model.safetensors": ["measure"],
    "model/tokenizer.json": ["measure"],
    "record.parquet": ["report", "push"],
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("name", READ)
def test_a_broken_file_is_one_line(run, name, how, capfd):
    (run / name).write_bytes(BROKEN[how]((run / name).read_bytes()))
    if name == "recipe.yaml" and how in ("cut off", "whole lines"):
        return  # what is left may be another recipe: what writes it writes it whole
    for command in READ[name]:
        assert cli.main(COMMANDS[command]) == 2, command
        error = capfd.readouterr().err
        (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(line) <= 600 and "Traceback" not in error
        assert name.partition("/")[0] in line or name.rpartition("/")[2] in line, line
        assert not (run.parent / "new.parquet").exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "model.safetensors", "config.json"])
def test_a_file_of_the_model_that_is_gone(run, name, capfd):
    (run / "model" / name).unlink()
    assert cli.main(COMMANDS["measure"]) == 2
    assert f"error: run/model lacks {name}" in capfd.readouterr().err


def test_a_run_that_does_not_tell_how_it_was_trained(run, capfd):
    (run / "run.json").write_text(json.dumps({"status": "complete", "versions": {}}))
    assert cli.main(COMMANDS["measure"]) == 2
    assert "run.json lacks dataset, sizes, vocabulary" in capfd.readouterr().err


def test_a_run_is_measured_on_the_device_that_is_named_or_not_at_all(run, capfd):
    before = (run / "record.parquet").read_bytes()
    assert cli.main(["measure", "run", "--device", "nowhere"]) == 2
    assert "device" in capfd.readouterr().err.partition("error: ")[2]
    assert (run / "record.parquet").read_bytes() == before
