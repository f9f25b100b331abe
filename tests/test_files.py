"""Files that are whole or not there, temporary ones that go, whoever is killed, and refusals of the system in words."""

import errno
import os
import signal
import tempfile

import pytest

from attnfaith import files
from attnfaith.errors import FileError


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The system's temporary folder."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def killed_within(act):
    """Run a function in a process that is killed where it calls what it is given."""
    child = os.fork()
    if child == 0:
        try:
            act(lambda: os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path):
    path = tmp_path / "a[1].json"
    path.write_text("old")

    def write(kill):
        with files.atomic_path(path) as half:
            half.write_text("ha")
            kill()

    killed_within(write)
    assert path.read_text() == "old" and len(os.listdir(tmp_path)) == 2
    others = [".a[1].json.tmp", ".b.json.abcdefgh.tmp", ".a[1].json.ABCDEFGH.tmp"]
    for name in others:
        (tmp_path / name).write_text("of others")
    with files.atomic_path(path) as one:
        one.write_text("one")
        files.write_atomically(path, "other")  # does not take away what is being written
        assert path.read_text() == "other"
    assert path.read_text() == "one" and sorted(os.listdir(tmp_path)) == sorted([*others, path.name])


def test_a_temporary_folder_goes_at_the_end_or_with_the_next(temporary):
    with files.TemporaryFolder() as folder:
        (folder / "part").write_text("x")
        assert folder.parent == temporary
    assert not folder.exists()
    held = files.TemporaryFolder()

    def leave(kill):
        mine = files.TemporaryFolder()
        (mine.path / "part").write_text("x")
        kill()

    killed_within(leave)
    assert len(os.listdir(temporary)) == 2
    (temporary / "elsewhere").mkdir()
    (temporary / f"{files.TEMPORARY}link").symlink_to(temporary / "elsewhere")
    with files.TemporaryFolder() as folder:
        assert {*os.listdir(temporary)} == {held.path.name, folder.name, "elsewhere", f"{files.TEMPORARY}link"}
    assert not os.listdir(temporary / "elsewhere"), "nothing is written where a link leads"
    path = held.path
    del held
    assert not path.exists()


@pytest.mark.parametrize("made", ["mkdtemp", "mkstemp"])
def test_another_process_takes_a_temporary_name_for_one_that_was_left(temporary, monkeypatch, made):
    """It comes between the making and the lock; then another is made."""
    make, names = getattr(tempfile, made), []

    def make_and_lose(**how):
        names.append(made_one := make(**how))
        if len(names) == 1:
            os.rmdir(made_one) if made == "mkdtemp" else os.unlink(made_one[1])
        return made_one

    monkeypatch.setattr(files.tempfile, made, make_and_lose)
    if made == "mkdtemp":
        with files.TemporaryFolder() as folder:
            assert folder.is_dir() and folder.stat().st_mode & 0o777 == 0o700
    else:
        files.write_atomically(temporary / "a", "whole")
        assert (temporary / "a").read_text() == "whole"
    assert os.listdir(temporary) == (["a"] if made == "mkstemp" else [])


def test_no_room_for_temporary_files_is_one_error(temporary):
    temporary.rmdir()
    with pytest.raises(FileError, match=r"temporary cannot be used for temporary files: No such file or directory"):
        files.TemporaryFolder()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EFBIG, os.strerror(errno.EFBIG)),
        RuntimeError("[enforce fail at inline_container.cc:626] . PytorchStreamWriter failed writing file data/3"),
        RuntimeError("basic_ios::clear: iostream error"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        Exception("No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_an_error_of_the_user_whoever_says_it(error):
    with pytest.raises(FileError, match="train stopped: "), files.refusals("train"):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), OSError(errno.ENOENT, "none"), FileError("said already")])
def test_other_errors_go_on_as_they_are(error):
    with pytest.raises(type(error)) as raised, files.refusals("train"):
        raise error
    assert raised.value is error


def test_a_file_that_is_a_link_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "other").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    files.write_atomically(tmp_path / "file", "new")
    assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "other").read_text() == "precious"
