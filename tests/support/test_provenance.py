"""What is recorded of where a model comes from, and what never is: command lines and environments."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from attnfaith import cli, hub
from attnfaith.support import provenance
from tests.tiny_recipes import tiny_tree


CHANGES = [
    ("notes.txt", "", False),
    ("src/package/__init__.py", "x = 1", True),
    ("src/package/measure.py", "", True),
    ("src/package/__init__.py", None, True),
    ("src/package/__pycache__/x.pyc", "", False),
]


def test_whether_a_commit_holds_the_package(tmp_path, monkeypatch):
    root, state = tmp_path / "checkout", provenance.checkout.__wrapped__
    package = root / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (root / ".gitignore").write_text("__pycache__\n.venv\n")
    command = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

    def git(*words):
        return subprocess.run([*command, *words], check=True, capture_output=True, text=True, env=environment).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD")
    for name, content, dirty in CHANGES:
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.unlink() if content is None else path.write_text(content)
        assert state(package) == (head, dirty), name
        git("reset", "-q", "--hard")
        git("clean", "-qfd")
    installed = shutil.copytree(package, root / ".venv" / "package")
    assert state(installed) == state(tmp_path) == (None, None), "part of no checkout"
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # as a hook sets it
    assert state(package)[0] == head
    monkeypatch.setenv("PATH", "")
    assert state(package) == (None, None)


CANARY = b"c4n4ry"


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
    run = tmp_path / "run"
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny_tree(run, epochs=1, measure={"producers": ["gradient"]})))
    assert cli.main(["train", "--config", str(tmp_path / "recipe.yaml")]) == 0
    plan = hub.plan(run, "a")
    pushed = {f"{repo.repo_id}/{path}": file for repo in plan for path, file in repo.files.items()}
    written = {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "a/tiny/README.md" in pushed and str(run / "record.parquet") in written
    assert [name for name, file in (pushed | written).items() if any(CANARY in part for part in unpacked(file))] == []
    assert "command" not in json.loads((run / "run.json").read_text())["provenance"]
