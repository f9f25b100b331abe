"""What a repository is to hold, and the plan of a push."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub.errors import (
    HFValidationError,
)
from huggingface_hub.utils import validate_repo_id

from attnfaith.errors import AttnfaithError, counted
from attnfaith.files import TemporaryFolder


RECORDS, RESULTS = "attnfaith-records", "attnfaith-results"
CELLS = "cells.json"  # what a repository of records says of its cells, so that one more can join them
SPLIT = "results"
CARD = "README.md"


class HubError(AttnfaithError):
    """A run that cannot be pushed, or a push that did not end. The message says what is there now and what to do."""


def stamp_of(path: Path) -> tuple:
    """What changes when a file does."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def check_same(stamps: Mapping[Path, tuple]) -> None:
    for path, stamp in stamps.items():
        try:
            same = stamp_of(path) == stamp
        except OSError:
            same = False
        if not same:
            raise HubError(
                f"{path} changed while the run was pushed; a run is pushed as one: push it again when nothing writes there"
            )


@dataclass(frozen=True)
class Repo:
    """What one repository is to hold.

    kind: "model", "dataset" or "space". files: {path in the repository: a local file, or the content}. role: "checkpoint",
    "records", "results" or "metric". Records and results are joined with those of other runs that are there.
    """

    kind: str
    repo_id: str
    files: Mapping[str, Path | bytes]
    role: str
    replaces: tuple[str, ...] = ()  # checkpoints whose records or results these are

    @property
    def card(self) -> str:
        """The README.md, before other runs' records or results join in."""
        return bytes_of(self.files[CARD]).decode()

    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(size_of, self.files.values()))


@dataclass(frozen=True)
class Plan:
    """What a push sends, all of it read, rendered and kept apart from the runs' folders, which may change meanwhile."""

    repos: Sequence[Repo]
    private: bool = False
    revision: str | None = None
    create_pr: bool = False
    sources: Mapping[Path, tuple] = field(default_factory=dict)
    kept: TemporaryFolder | None = None

    def describe(self) -> str:
        """The repositories, their files and sizes."""
        how = [word for word, said in (("private", self.private), ("as a pull request", self.create_pr)) if said]
        how += [f"branch {self.revision}"] if self.revision else []
        lines = []
        for repo in self.repos:
            shared = " (joins what is there)" if repo.role in ("records", "results") else ""
            lines.append(f"{repo.kind} {repo.repo_id}: {counted(len(repo.files), 'file')}, {size(repo.size())}{shared}")
            lines += [f"  {size(size_of(content)):>9}  {path}" for path, content in sorted(repo.files.items())]
        lines.append(", ".join([f"{size(sum(repo.size() for repo in self.repos))} in all", *how]))
        return "\n".join(lines)

    def check_unchanged(self) -> None:
        """Raises HubError where a file of a run is no longer the one that was read."""
        check_same(self.sources)


def size(count: int) -> str:
    """Bytes for reading: "812 B", "4.1 kB", "23.0 MB"."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def size_of(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def bytes_of(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def repo_id_of(owner: str, name: str) -> str:
    """<owner>/<name>. Raises HubError where the Hub does not allow it."""
    repo_id = f"{owner}/{name}"
    try:
        if not owner or not name or repo_id.count("/") != 1:
            raise HFValidationError("it must be OWNER/NAME")
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise HubError(
            f"{repo_id!r} is no name of a repository: letters, digits, '-', '_' and '.', at most 96 in all, no '--' or "
            "'..', and neither '-' nor '.' at an end; give another with --name or --to"
        ) from error
    return repo_id


def shared_repos(owner: str) -> dict[str, str]:
    """The data sets that all checkpoints of an owner share, as `cards.write_cards` takes them."""
    return {"records_repo": repo_id_of(owner, RECORDS), "results_repo": repo_id_of(owner, RESULTS)}


def as_json(value) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
