"""The commit that holds the code of a run. That no secret is recorded: tests/hub/test_hub.py."""

import os
import shutil
import subprocess

from attnfaith.support import provenance


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
