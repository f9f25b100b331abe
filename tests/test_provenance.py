"""What is recorded of where a model comes from, and what never is."""

import getpass
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_a_clean_checkout(git):
    package, run = git
    assert state(package) == (run("rev-parse", "HEAD"), False)


@pytest.mark.parametrize("change", ["edited", "new", "deleted"])
def test_files_of_the_package_that_no_commit_holds(git, change):
    package, run = git
    if change == "edited":
        (package / "__init__.py").write_text("x = 1")
    elif change == "new":
        (package / "measure.py").write_text("")  # a producer is found because its file is there
    else:
        (package / "other.py").write_text("")
        run("add", ".")
        run("commit", "-qm", "second")
        (package / "other.py").unlink()
    assert state(package) == (run("rev-parse", "HEAD"), True)


def test_files_beside_the_package_do_not_count(git):
    package, _ = git
    (package.parents[1] / "notes.txt").write_text("")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_text("")
    assert state(package)[1] is False


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


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["/opt/venv/bin/attnfaith", "measure", "runs/a"], "attnfaith measure runs/a"),
        (["/srv/me/recipes/train.py", "--seed", "3"], "train.py --seed 3"),
        (["recipes/train.py", "--output_dir", "/srv/me/out"], "recipes/train.py --output_dir out"),
        (["x", "--output_dir=/srv/me/out"], "x --output_dir=out"),
        (["x", "--base", "~/runs/base"], "x --base base"),
        (["x", "--note", "two words"], "x --note 'two words'"),
        (["x", "--note", "it's"], "x --note 'it'\"'\"'s'"),
        (["x", "--hub_token", "abcdef"], "x --hub_token ***"),
        (["x", "--training.arguments.hub_token=abcdef", "-v"], "x --training.arguments.hub_token=*** -v"),
        (["x", "--token", "--seed", "3"], "x --token --seed 3"),
        (["x", "hf_abcdefgh"], "x ***"),
        (["x", "--note", "mine is hf_abcdefgh"], "x --note 'mine is ***'"),
        (["x", "--api-key", "k"], "x --api-key ***"),
        (
            ["x", "--training.arguments", "{hub_token: abcdef, seed: 3}"],
            "x --training.arguments '{hub_token: ***, seed: 3}'",
        ),
        (["x", "--note", "mine is planted-token"], "x --note 'mine is ***'"),
        (["x", "--measure.batch_tokens", "512"], "x --measure.batch_tokens 512"),
        (["x", "--data.vectors", "/srv/my files/v.txt"], "x --data.vectors v.txt"),
        (["x", "--data.arguments", "{a: /srv/me/v.txt, b: ~/w}"], "x --data.arguments '{a: v.txt, b: w}'"),
        (["x", "--note", "see https://example.org/a/b and 1/2"], "x --note 'see https://example.org/a/b and 1/2'"),
    ],
)
def test_the_command(arguments, shown, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "planted-token")
    assert provenance.command_line(arguments) == shown


def test_paths_below_the_working_directory_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = provenance.command_line([str(tmp_path / "recipes" / "train.py"), "--output_dir", str(tmp_path / "runs" / "a")])
    assert found == "recipes/train.py --output_dir runs/a"


def test_nothing_names_a_person_a_place_or_a_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_planted12345")
    monkeypatch.setattr(sys, "argv", [f"{Path.home()}/bin/x", "--token", "hf_planted12345", "--dir", f"{Path.home()}/d/e"])
    found = provenance.collect("0123456789ab", seed=3, data={"revision": "r"}, device="cpu")
    text = json.dumps(found)
    places = (str(Path(attnfaith.__file__).parent), os.getcwd(), sys.prefix, platform.node(), "planted", "/d/e")
    assert not [word for word in places if word and len(word) > 2 and word in text]
    assert getpass.getuser() not in text.replace("/", " ").split()
    assert found["code"] == "0123456789ab" and found["seed"] == 3 and found["data"] == {"revision": "r"}
    assert found["version"] == attnfaith.__version__ and found["python"] == platform.python_version()


def test_libraries():
    found = provenance.libraries()
    import numpy
    import torch

    assert found["torch"] == torch.__version__ and found["numpy"] == numpy.__version__
    assert list(found) == [name for name in provenance.LIBRARIES if name in found]
