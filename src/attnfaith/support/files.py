"""The atomic writer, the lock of a folder, and the names of files in the folder of a run."""

import contextlib
import errno
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from attnfaith.support.errors import AttnfaithError, FileError, cut, excerpt


RECIPE, STATE, RECORD, CARD = "recipe.yaml", "run.json", "record.parquet", "README.md"
MODEL, CHECKPOINT = "model", ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
"""Names in the folder of a run: its files, the folder of its model and the files of a checkpoint of this package."""
LOCK = ".lock"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# what only the user can mend: a full or broken disk, no right to write, a name that is too long or another kind of file's
REFUSALS = (*NO_ROOM, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG)
REFUSALS += (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
# the same in exceptions of safetensors, tokenizers and torch
NO_ROOM_IN_WORDS = (*map(os.strerror, NO_ROOM), "PytorchStreamWriter failed", "iostream error", "unexpected pos ")


@contextlib.contextmanager
def refusals(work: str, *, place: bool = False) -> Iterator[None]:
    """Turn a refusal of the system, such as a full disk, into a FileError. work: what fails then ("train stopped").

    place: whether it names a path that the user chose, which any OSError is about. Any other is a fault of the package and
    goes on.
    """
    try:
        yield
    except (AttnfaithError, Timeout):
        raise
    except Exception as error:
        refused = getattr(error, "errno", None) in REFUSALS or any(words in str(error) for words in NO_ROOM_IN_WORDS)
        if not refused and not (place and isinstance(error, OSError)):
            raise
        raise FileError(f"{work}: {excerpt(error, 300)}; is the disk full, or the place not yours?") from error


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path in the same folder to write to; renamed to `path` when the block ends, removed when it fails.

    `path` is the old file or the whole new one at any moment, also after a loss of power. Raises FileError where it cannot
    be written; the old file then stays.
    """
    path = Path(path)
    with refusals(f"{cut(os.fspath(path), 300)} cannot be written", place=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        try:
            yield Path(name)
            sync(name)  # the content is on the disk before the name is
            os.chmod(name, 0o644)  # mkstemp makes files that only their owner can read
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)


def sync(*paths: str | os.PathLike) -> None:
    """Wait until files are on the disk, before they or their folder get their name."""
    for path in paths:
        with open(path, "rb+") as stream:
            os.fsync(stream.fileno())


def write_atomically(path: str | os.PathLike, content: bytes | str) -> Path:
    """Write `content` (a text as UTF-8) whole or not at all; returns the path. Raises FileError as `atomic_path` does."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def read_object(path: str | os.PathLike) -> dict:
    """Return the keys and values in a JSON file. Raises FileError where it cannot be read or holds anything else."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds {excerpt(content)}, not keys and values")
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or excerpt(error)
        raise FileError(f"{cut(os.fspath(path), 300)} cannot be read as JSON: {reason}") from error
    return content


@contextlib.contextmanager
def folder_lock(folder: str | os.PathLike, work: str) -> Iterator[None]:
    """Hold a folder for one process; the system frees it with the process, however that ends.

    work: what holds it, for the message of another process ("a training"). Raises FileError where another process holds it.
    """
    lock = FileLock(Path(folder) / LOCK)
    holder = Path(f"{lock.lock_file}.holder")
    try:
        with refusals(f"{cut(os.fspath(folder), 300)} cannot be locked", place=True):
            holder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
    except Timeout as error:
        name = holder.read_text(encoding="utf-8") if holder.is_file() else "another process"
        raise FileError(f"{folder} is in use by {name}: wait for it, stop it, or give another folder") from error
    try:
        holder.write_text(f"{work}, process {os.getpid()} on {platform.node()}", encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def is_locked(folder: str | os.PathLike) -> bool:
    """Whether a process holds the folder; makes no file."""
    path = Path(folder) / LOCK
    try:
        with FileLock(path).acquire(timeout=0) if path.is_file() else contextlib.nullcontext():
            return False
    except (Timeout, OSError):
        return True
