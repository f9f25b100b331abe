"""Files that are whole or not there, refusals of the system in words, and the pins of the tests' libraries."""

import configparser
import errno
import os
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from attnfaith.support import files
from attnfaith.support.errors import FileError


ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", re.M)


def test_the_atomic_writer_replaces_what_is_written_meanwhile_and_links(tmp_path):
    (tmp_path / "other").write_text("precious")
    (tmp_path / "a").symlink_to(tmp_path / "other")
    with files.atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("first")
        files.write_atomically(tmp_path / "a", "second")
        assert (tmp_path / "a").read_text() == "second"
    assert (tmp_path / "a").read_text() == "first" and sorted(os.listdir(tmp_path)) == ["a", "other"]
    assert not (tmp_path / "a").is_symlink() and (tmp_path / "other").read_text() == "precious"


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (RuntimeError("[enforce fail at inline_container.cc:626] . PytorchStreamWriter failed writing file data/3"), True),
        (RuntimeError("basic_ios::clear: iostream error"), True),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"), True),
        (Exception("No space left on device (os error 28)"), True),
        (IsADirectoryError(errno.EISDIR, "in the place of a file"), True),
        (RuntimeError("shapes differ"), False),
        (OSError(errno.ENOENT, "none"), False),
        (FileError("said already"), False),
    ],
)
def test_a_full_disk_is_an_error_of_the_user_whoever_raises_it(error, is_full):
    with pytest.raises(FileError if is_full else type(error)) as raised, files.refusals("train stopped"):
        raise error
    assert str(raised.value).startswith("train stopped") if is_full else raised.value is error


def test_a_place_where_nothing_can_be_written_or_locked_is_an_error_of_the_user(monkeypatch):
    def refuse(*_, **__):
        raise FileNotFoundError(errno.ENOENT, "as in /proc")

    monkeypatch.setattr(files.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(files.Path, "mkdir", lambda *_, **__: None)
    with pytest.raises(FileError, match="/proc/x.html"):
        files.write_atomically("/proc/x.html", "")
    monkeypatch.setattr(files.FileLock, "acquire", refuse)
    with pytest.raises(FileError, match="/proc/run"), files.folder_lock("/proc/run", "a training"):
        pass


def test_the_lock_agrees_with_what_is_pinned_and_asked_for():
    text = (ROOT / "supply" / "test.txt").read_text(encoding="utf-8")
    locked = {canonicalize_name(name): version for name, version in ENTRY.findall(text)}
    pins = (line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    pinned = {canonicalize_name(name): version for name, version in pins}
    assert locked and locked == {name: pinned.get(name) for name in locked}
    assert len(re.findall(r"^[\w.-]+==", text, re.M)) == len(locked), "every entry has a hash"
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = setup["options.extras_require"]
    chosen = ("captum", "docs", "plots", "study", "test", "translation")
    lines = [setup["options"]["install_requires"], *(extras[name] for name in chosen)]
    asked = [Requirement(line) for line in "\n".join(lines).split("\n") if line]
    names = {canonicalize_name(requirement.name) for requirement in asked} - {"attnfaith"}
    assert names - {*locked} == {"torch"}, "torch has other hashes on each index"
