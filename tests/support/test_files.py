"""Files that are whole or not there and refusals of the system in words."""

import errno
import os

import pytest

from attnfaith.support import files
from attnfaith.support.errors import FileError


def test_what_is_written_meanwhile_is_replaced(tmp_path):
    with files.atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("first")
        files.write_atomically(tmp_path / "a", "second")
        assert (tmp_path / "a").read_text() == "second"
    assert (tmp_path / "a").read_text() == "first" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        RuntimeError("[enforce fail at inline_container.cc:626] . PytorchStreamWriter failed writing file data/3"),
        RuntimeError("basic_ios::clear: iostream error"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        Exception("No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_an_error_of_the_user_whoever_raises_it(error):
    with pytest.raises(FileError, match="train stopped"), files.refusals("train"):
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
