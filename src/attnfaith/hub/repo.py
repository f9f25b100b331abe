"""What a repository is to hold, and the plan of a push."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from attnfaith.errors import AttnfaithError, counted


RECORDS, RESULTS = "attnfaith-records", "attnfaith-results"
CARD = "README.md"
CELLS = "cells.json"  # the facts about each record of a repository, from which its card is written
TABLES = "*/results-*.parquet"  # the result tables of a repository


class HubError(AttnfaithError):
    """A run that cannot be pushed, or a push that failed. The message says what to do."""


@dataclass(frozen=True)
class Repo:
    """What one repository is to hold.

    kind: "model", "dataset" or "space". files: {path in the repository: content}. role: "checkpoint",
    "records", "results" or "metric". checkpoints: those that the records or results are about; what the repository holds
    about others stays.
    """

    kind: str
    repo_id: str
    files: Mapping[str, bytes]
    role: str
    checkpoints: tuple[str, ...] = ()

    @property
    def card(self) -> str:
        """The README.md, before other runs' records or results join in."""
        return self.files[CARD].decode()

    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))


@dataclass(frozen=True)
class Plan:
    """What a push sends. All of it is in memory: the folder of a run may change meanwhile, and no temporary file is left."""

    repos: Sequence[Repo]
    private: bool = False
    revision: str | None = None
    create_pr: bool = False

    def describe(self) -> str:
        """The repositories, their files and sizes."""
        lines = []
        for repo in self.repos:
            shared = " (joins what is there)" if repo.role in ("records", "results") else ""
            lines.append(f"{repo.kind} {repo.repo_id}: {counted(len(repo.files), 'file')}, {size(repo.size())}{shared}")
            lines += [f"  {size(len(content)):>9}  {path}" for path, content in sorted(repo.files.items())]
        total = [f"{size(sum(repo.size() for repo in self.repos))} in all"]
        if self.private:
            total.append("private")
        if self.create_pr:
            total.append("as a pull request")
        if self.revision:
            total.append(f"branch {self.revision}")
        return "\n".join([*lines, ", ".join(total)])


def size(count: int) -> str:
    """Bytes for reading: "812 B", "4.1 kB", "23.0 MB"."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


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
