"""What is recorded of where a model comes from, and what never is."""

import os
import platform
import shutil
import subprocess

import pytest

import attnfaith
from attnfaith import provenance


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
