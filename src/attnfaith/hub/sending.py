"""The push itself. The only file that writes to the network."""

import fnmatch
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import (
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import enable_progress_bars

from attnfaith.errors import counted
from attnfaith.files import TemporaryFolder
from attnfaith.hub.checks import OURS
from attnfaith.hub.patience import OtherContent, patiently
from attnfaith.hub.planning import records_files
from attnfaith.hub.repo import CARD, CELLS, SPLIT, HubError, Plan, Repo, bytes_of, size
from attnfaith.hub.tables import CHECKPOINT, ordered, table_files
from attnfaith.metrics.registration import METRIC_NAME


def push(plan: Plan, *, api: HfApi | None = None) -> list[str]:
    """Send what a plan holds; the addresses of the repositories, or of their pull requests, in the plan's order.

    The model comes last, so that what its card names is there. Progress is printed. Each repository changes by one commit
    or not at all; where nothing differs, nothing is sent. What passes (a busy Hub, a lost connection, somebody else's
    commit at the same time) is tried three times.

    Raises HubError before anything is sent where there is no token or it may not write, the owner is somebody else, or a
    repository holds what no run of ours wrote or is public where private was asked; later where the Hub fails or a file of
    the run changes: the message names the repository.
    """
    api = api or HfApi()
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is not True:
        enable_progress_bars()
    owner = plan.repos[0].repo_id.partition("/")[0]
    check(owner, create_pr=plan.create_pr, api=api)
    for repo in plan.repos:
        patiently(lambda repo=repo: _refuse_foreign(api, repo, plan), repo.repo_id)
    addresses = []
    for number, repo in enumerate(plan.repos, start=1):
        where = f"[{number}/{len(plan.repos)}] {repo.kind} {repo.repo_id}"
        print(f"{where}: {counted(len(repo.files), 'file')}, {size(repo.size())}", flush=True)
        address, done = patiently(lambda repo=repo: _send(api, repo, plan), repo.repo_id)
        print(f"{where}: {done}: {address}", flush=True)
        addresses.append(address)
    return addresses


def check(owner: str | None, *, create_pr: bool = False, api: HfApi | None = None) -> str:
    """Ask the Hub whether the token at hand may write for an owner; returns the owner, the token's own user for None.

    Raises HubError where there is no token, it is invalid or may only read, or the owner is neither its user nor one of its
    organisations (a pull request may go anywhere), and where the Hub is not reached.
    """
    api = api or HfApi()
    if not (api.token or get_token()):
        raise HubError("no access token of the Hub: log in with `hf auth login`, or set HF_TOKEN to one that may write")
    me = patiently(api.whoami, "the Hub")
    role = me.get("auth", {}).get("accessToken", {}).get("role")
    if role == "read":
        raise HubError(f"the access token of {me['name']} may only read: make one that may write and log in with it")
    mine = [me["name"], *(one["name"] for one in me.get("orgs", ()))]
    if owner is not None and owner not in mine and not create_pr:
        raise HubError(
            f"{me['name']} cannot write for {owner}: push to {' or '.join(mine)}, or offer it with --create-pr where the "
            "repositories are there"
        )
    return owner or me["name"]


def _refuse_foreign(api: HfApi, repo: Repo, plan: Plan) -> None:
    """Raises HubError where the repository holds what no push of ours wrote, or is public where private is asked."""
    info = _info(api, repo)
    if info is None:
        return
    if plan.private and not info.private and repo.role != "metric":
        raise HubError(
            f"{repo.repo_id} is public already, so --private cannot keep this from being read: make it private in its "
            "settings, or give another --name"
        )
    remote = _look(api, repo, info.sha)
    there = {path for path in remote.files if path not in (".gitattributes", CARD)}
    if ".gitignore" in there:
        raise HubError(f"{repo.repo_id} holds a .gitignore, by which files would be left out unsaid: delete it there first")
    marks = {"checkpoint": "config.json", "records": CELLS, "metric": f"{METRIC_NAME}.py"}
    if repo.role == "checkpoint" and "config.json" in there:
        kind = _fetch_json(api, repo, remote, "config.json").get("model_type")
        if kind not in OURS:
            raise HubError(
                f"{repo.repo_id} holds a checkpoint of model type {kind!r}, which this one would replace: give another "
                "--name"
            )
    foreign = there and repo.role in marks and marks[repo.role] not in there
    if repo.role == "results":
        foreign = [path for path in there if not fnmatch.fnmatch(path, f"*/{SPLIT}-*.parquet")]
    if foreign:
        raise HubError(
            f"{repo.repo_id} ({repo.kind}) holds files that no push of ours wrote ({', '.join(sorted(there)[:3])}): give "
            "another --name or --to"
        )


def _send(api: HfApi, repo: Repo, plan: Plan) -> tuple[str, str]:
    """Bring one repository to what the plan says; its address, and what was done."""
    info = _info(api, repo)
    if info is None:
        how = {"space_sdk": _sdk(repo)} if repo.kind == "space" else {}
        api.create_repo(repo.repo_id, repo_type=repo.kind, private=plan.private, exist_ok=True, **how)
    if plan.revision and not plan.create_pr:
        api.create_branch(repo.repo_id, branch=plan.revision, repo_type=repo.kind, exist_ok=True)
    remote = _look(api, repo, plan.revision)
    wanted, belongs = _wanted(api, repo, remote)
    changes = _changes(remote, wanted, belongs)
    if not changes:
        return _address(api, repo, plan.revision), "as it was"
    if plan.create_pr and (number := _offered(api, repo, wanted, belongs)):
        return f"{_address(api, repo, None)}/discussions/{number}", "offered already"
    plan.check_unchanged()
    made = api.create_commit(
        repo.repo_id,
        changes,
        commit_message=_title(repo),
        repo_type=repo.kind,
        revision=plan.revision,
        create_pr=plan.create_pr,
        parent_commit=remote.sha,
    )
    if plan.create_pr:
        return made.pr_url, f"{counted(len(changes), 'file')} offered"
    return _address(api, repo, plan.revision), f"{counted(len(changes), 'file')} changed"


def _title(repo: Repo) -> str:
    if repo.role in ("checkpoint", "metric"):
        return f"The {repo.role}"
    if not repo.replaces:
        return "A record"
    several = f" and {len(repo.replaces) - 1} more" if len(repo.replaces) > 1 else ""
    return f"{repo.role.capitalize()} of {repo.replaces[0]}{several}"


def _sdk(repo: Repo) -> str:
    return yaml.safe_load(repo.card.split("---")[1])["sdk"]


def _address(api: HfApi, repo: Repo, revision: str | None) -> str:
    prefix = "" if repo.kind == "model" else f"{repo.kind}s/"
    return f"{api.endpoint}/{prefix}{repo.repo_id}" + (f"/tree/{revision}" if revision else "")


def _info(api: HfApi, repo: Repo):
    """What the Hub says of a repository; None where there is none."""
    try:
        return api.repo_info(repo.repo_id, repo_type=repo.kind)
    except RepositoryNotFoundError:
        return None


class _Remote(NamedTuple):
    """A repository as it is: its commit, and the digest of each file (SHA-256 of large ones, git's SHA-1 of others)."""

    sha: str
    files: Mapping[str, str]
    large: frozenset[str]

    def holds(self, path: str, content: Path | bytes) -> bool:
        """Whether a file is there with this very content."""
        if path not in self.files:
            return False
        return _digest(content, large=path in self.large) == self.files[path]


def _digest(content: Path | bytes, *, large: bool) -> str:
    if large:
        if isinstance(content, bytes):
            return hashlib.sha256(content).hexdigest()
        with open(content, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    raw = bytes_of(content)
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()


def _look(api: HfApi, repo: Repo, revision: str | None) -> _Remote:
    try:
        sha = api.repo_info(repo.repo_id, repo_type=repo.kind, revision=revision).sha
    except RevisionNotFoundError as error:
        raise HubError(f"{repo.repo_id} has no branch {revision}: leave out --create-pr, which needs one") from error
    tree = api.list_repo_tree(repo.repo_id, recursive=True, revision=sha, repo_type=repo.kind)
    files = [entry for entry in tree if isinstance(entry, RepoFile)]
    large = frozenset(entry.path for entry in files if entry.lfs)
    return _Remote(sha, {entry.path: entry.lfs.sha256 if entry.lfs else entry.blob_id for entry in files}, large)


def _fetch(api: HfApi, repo: Repo, remote: _Remote, path: str) -> bytes:
    """A file of a repository, whole."""
    with TemporaryFolder() as folder:
        local = api.hf_hub_download(repo.repo_id, path, repo_type=repo.kind, revision=remote.sha, local_dir=folder)
        content = Path(local).read_bytes()
    if not remote.holds(path, content):
        raise OtherContent(f"{path} of {repo.repo_id} came with another content than the Hub says it has")
    return content


def _fetch_json(api: HfApi, repo: Repo, remote: _Remote, path: str) -> dict:
    try:
        content = json.loads(_fetch(api, repo, remote, path))
        if isinstance(content, dict):
            return content
    except json.JSONDecodeError:
        pass
    raise HubError(f"{path} of {repo.repo_id} is not what a push of ours wrote there: delete it there, then push again")


def _wanted(api: HfApi, repo: Repo, remote: _Remote) -> tuple[dict[str, Path | bytes], Callable[[str], bool]]:
    """All that a repository is to hold of ours, and which of the paths there are ours to delete."""
    name = repo.repo_id.partition("/")[2]
    if repo.role == "checkpoint":
        own = re.compile(rf"[^/]+(\.json|\.py|\.safetensors)|figures/{re.escape(name)}-[^/]+\.(png|svg)")
        return dict(repo.files), lambda path: own.fullmatch(path) is not None
    if repo.role == "records":
        there = _fetch_json(api, repo, remote, CELLS) if CELLS in remote.files else {}
        new = json.loads(bytes_of(repo.files[CELLS]))
        others = {name: cell for name, cell in there.items() if cell["model"] not in repo.replaces and name not in new}
        summary = records_files(repo.repo_id, {**others, **new})
        return {**repo.files, **summary}, lambda path: path.split("/")[0] in {*there, *new} - {*others} | {*new}
    if repo.role == "results":
        return _joined_results(api, repo, remote), lambda path: fnmatch.fnmatch(path, f"*/{SPLIT}-*.parquet")
    return dict(repo.files), lambda path: "/" not in path and path.endswith(".py")


def _joined_results(api: HfApi, repo: Repo, remote: _Remote) -> dict[str, bytes]:
    """The tables with the rows of other checkpoints that are there. Rows about several are those of the latest push."""
    new = {path.split("/")[0]: pq.read_table(pa.BufferReader(c)) for path, c in repo.files.items() if path != CARD}
    parts = {name: [table] for name, table in new.items()}
    for path in sorted(remote.files):
        if not fnmatch.fnmatch(path, f"*/{SPLIT}-*.parquet"):
            continue
        name = path.split("/")[0]
        there = pq.read_table(pa.BufferReader(_fetch(api, repo, remote, path)))
        if CHECKPOINT not in there.column_names:
            raise HubError(f"{path} of {repo.repo_id} is no table of ours (no column {CHECKPOINT!r}): move it away")
        owners = there.column(CHECKPOINT).to_pylist()
        stays = [name not in new if owner is None else owner not in repo.replaces for owner in owners]
        if any(stays):
            parts.setdefault(name, []).append(there.filter(pa.array(stays)))
    return table_files(repo.repo_id, {name: ordered(name, tables) for name, tables in sorted(parts.items())})


def _changes(remote: _Remote, wanted: Mapping[str, Path | bytes], belongs: Callable[[str], bool]) -> list:
    """What turns a repository into the wanted one."""
    new = [CommitOperationAdd(path, content) for path, content in wanted.items() if not remote.holds(path, content)]
    return new + [CommitOperationDelete(path) for path in sorted(remote.files) if belongs(path) and path not in wanted]


def _offered(api: HfApi, repo: Repo, wanted, belongs) -> int | None:
    """The number of a pull request that already holds what is wanted."""
    refs = api.list_repo_refs(repo.repo_id, repo_type=repo.kind, include_pull_requests=True).pull_requests or []
    numbers = sorted((int(ref.ref.rpartition("/")[2]) for ref in refs), reverse=True)
    return next((n for n in numbers if not _changes(_look(api, repo, f"refs/pr/{n}"), wanted, belongs)), None)
