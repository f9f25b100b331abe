"""What is recorded of where a model comes from, and what never is: command lines and environments."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import attnfaith
from attnfaith import cli, hub
from attnfaith.support import provenance


@pytest.fixture
def git(tmp_path):
    """A repository of one committed package, and a function that runs git in it."""
    package = tmp_path / "checkout" / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]

    def run(*arguments):
        command = ["git", "-C", str(tmp_path / "checkout"), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    run("init", "-q")
    (tmp_path / "checkout" / ".gitignore").write_text("__pycache__\n.venv\n")
    run("add", ".")
    run("commit", "-qm", "first")
    return package, run


def state(package):
    return provenance.checkout.__wrapped__(package)


@pytest.mark.parametrize("change", [None, "edited", "new", "deleted", "beside"])
def test_whether_a_commit_holds_the_package(git, change):
    package, run = git
    if change == "edited":
        (package / "__init__.py").write_text("x = 1")
    elif change == "new":
        (package / "measure.py").write_text("")
    elif change == "deleted":
        (package / "other.py").write_text("")
        run("add", ".")
        run("commit", "-qm", "second")
        (package / "other.py").unlink()
    elif change == "beside":  # files beside the package do not count
        (package.parents[1] / "notes.txt").write_text("")
        (package / "__pycache__").mkdir()
        (package / "__pycache__" / "x.pyc").write_text("")
    assert state(package) == (run("rev-parse", "HEAD"), change not in (None, "beside"))


def test_a_package_installed_inside_a_checkout_is_no_part_of_it(git):
    package, _ = git
    installed = package.parents[1] / ".venv" / "package"
    shutil.copytree(package, installed)
    assert state(installed) == (None, None)


def test_no_checkout_and_no_git(tmp_path, git, monkeypatch):
    package, _ = git
    assert state(tmp_path) == (None, None)
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # as a hook sets it
    assert state(package)[0] is not None
    monkeypatch.setenv("PATH", "")
    assert state(package) == (None, None)


def test_what_is_collected():
    import torch

    facts = provenance.collect(seed=3, data={"revision": "r"}, device="cpu")
    assert (facts["seed"], facts["data"], facts["device"]) == (3, {"revision": "r"}, "cpu")
    assert facts["version"] == attnfaith.__version__ and facts["python"] == platform.python_version()
    assert facts["libraries"]["torch"] == torch.__version__ and {*facts["libraries"]} <= {*provenance.LIBRARIES}


CANARY = b"c4n4ry"
RUN = """
name: tiny
data: {arguments: {length: [4, 8], vocabulary_size: 40, sizes: {train: 64, validation: 24, test: 24}}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1, learning_rate: 0.01, arguments: {disable_tqdm: true}}
measure: {producers: [gradient]}
report: {examples: 1}
"""


def unpacked(content: bytes) -> Iterator[bytes]:
    """A file's bytes; of a parquet file, whose pages are compressed, all cells and notes too."""
    yield content
    if content[:4] == b"PAR1":
        table = pq.read_table(pa.BufferReader(content))
        yield repr((table.schema.metadata, [field.metadata for field in table.schema], table.to_pydict())).encode()


@pytest.mark.slow
def test_no_token_is_in_any_byte_that_a_run_writes_or_pushes(tmp_path, monkeypatch):
    for name, value in {"HF_TOKEN": "hf_{}AbCdEfGhIjKl", "DB_PASSWORD": "{}", "https_proxy": "http://me:{}@host:9"}.items():
        monkeypatch.setenv(name, value.format(CANARY.decode()))
    monkeypatch.setattr(sys, "argv", ["attnfaith", "train", f"--token={CANARY.decode()}", "--password", CANARY.decode()])
    monkeypatch.setattr(provenance, "checkout", lambda: ("0" * 40, False))
    (tmp_path / "recipe.yaml").write_text(RUN)
    run = tmp_path / "run"
    assert cli.main(["train", "--config", str(tmp_path / "recipe.yaml"), "--output_dir", str(run)]) == 0

    plan = hub.plan(run, "a")
    pushed = {f"{repo.repo_id}/{path}": file for repo in plan.repos for path, file in repo.files.items()}
    written = {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "a/tiny/README.md" in pushed and str(run / "record.parquet") in written
    assert [name for name, file in (pushed | written).items() if any(CANARY in part for part in unpacked(file))] == []
    assert "command" not in json.loads((run / "run.json").read_text())["provenance"]
