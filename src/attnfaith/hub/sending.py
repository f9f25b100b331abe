"""Send the repositories of a push. Only this module of the package `hub` uses the network."""

import contextlib
import fnmatch
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HTTPError

from attnfaith.hub.contents import CELLS, CHECKPOINT, HubError, Plan, Repo, summary_files, table_files
from attnfaith.metrics.registration import METRIC_NAME
from attnfaith.support.errors import AttnfaithError, excerpt
from attnfaith.support.files import CARD, STATE, read_object


TABLES = "*/results-*.parquet"  # the result tables of a repository
MARKS = {"checkpoint": STATE, "records": CELLS, "results": TABLES, "metric": f"{METRIC_NAME}.py"}
"""Files by which a repository of an earlier push is recognised, by role."""
REPLACED = {
    "checkpoint": r"[^/]+\.(json|py|safetensors)|figures/[^/]+\.(png|svg)",
    "metric": r"[^/]+\.py",
    "results": r"[^/]+/results-[^/]+\.parquet",
    "records": "(?!)",  # see `_joined`
}
"""Files there that a push replaces, or deletes where it no longer contains them."""


def push(plan: Plan, *, api: HfApi | None = None) -> list[str]:
    """Send the repositories of a plan; return their addresses, in the plan's order.

    The model comes last, so that what its card names is there. Each repository changes by one commit or not at all; files
    that are there already are not sent. Progress is printed.

    Raises HubError before anything is sent where there is no token or it may not write, the owner is another account, or a
    repository holds files that no push wrote or is public although the plan is private; later where the Hub fails: the
    message names the repository.
    """
    api = api or HfApi()
    check(plan.repos[0].repo_id.partition("/")[0], api=api)
    for repo in plan.repos:
        with _named(repo.repo_id):
            _check_existing(api, repo, private=plan.private)
    addresses = []
    for number, repo in enumerate(plan.repos, start=1):
        print(f"[{number}/{len(plan.repos)}] {repo.describe()}", flush=True)
        with _named(repo.repo_id):
            changed = _send(api, repo, private=plan.private)
        addresses.append(f"{api.endpoint}/{'' if repo.kind == 'model' else f'{repo.kind}s/'}{repo.repo_id}")
        print(f"{'changed' if changed else 'as it was'}: {addresses[-1]}", flush=True)
    return addresses


def check(owner: str, *, api: HfApi | None = None) -> None:
    """Raise HubError where there is no token, it is invalid or may only read, or the owner is neither its user nor one of
    its organisations, and where the Hub is not reached.
    """
    api = api or HfApi()
    if not (api.token or get_token()):
        raise HubError("no access token of the Hub: log in with `hf auth login`, or set HF_TOKEN to one that may write")
    with _named("the Hub"):
        user = api.whoami()
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise HubError(f"the access token of {user['name']} may only read: make one that may write and log in with it")
    owners = [user["name"], *(organisation["name"] for organisation in user.get("orgs", ()))]
    if owner not in owners:
        raise HubError(f"{user['name']} cannot write for {owner}: push to {' or '.join(owners)}")


@contextlib.contextmanager
def _named(place: str) -> Iterator[None]:
    """Turn what huggingface_hub raises within the block into a HubError that names the place."""
    try:
        yield
    except AttnfaithError:
        raise
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise HubError(f"{place}: {excerpt(error, 300)}. What is there is kept: push again") from error


def _check_existing(api: HfApi, repo: Repo, *, private: bool) -> None:
    """Raise HubError where a repository holds files and none of an earlier push, or is public and is to be private."""
    if not api.repo_exists(repo.repo_id, repo_type=repo.kind):
        return
    info = api.repo_info(repo.repo_id, repo_type=repo.kind)
    if private and not info.private and repo.role != "metric":
        raise HubError(f"{repo.repo_id} is public already, which --private does not change: give another --name")
    paths = {sibling.rfilename for sibling in info.siblings} - {".gitattributes", CARD}
    if paths and not fnmatch.filter(paths, MARKS[repo.role]):
        files = ", ".join(sorted(paths)[:8])
        raise HubError(f"{repo.repo_id} ({repo.kind}) holds files that no push wrote ({files}): give another --name or --to")


def _send(api: HfApi, repo: Repo, *, private: bool) -> bool:
    """Bring one repository to the content of the plan; return whether it changed."""
    sdk = {"space_sdk": "gradio"} if repo.kind == "space" else {}
    api.create_repo(repo.repo_id, repo_type=repo.kind, private=private, exist_ok=True, **sdk)
    info = api.repo_info(repo.repo_id, repo_type=repo.kind)
    paths = [sibling.rfilename for sibling in info.siblings]
    files, stale = repo.files, {path for path in paths if re.fullmatch(REPLACED[repo.role], path)}
    if fnmatch.filter(paths, MARKS[repo.role]) and repo.role in ("records", "results"):
        there = api.snapshot_download(repo.repo_id, repo_type=repo.kind, revision=info.sha, allow_patterns=MARKS[repo.role])
        files, replaced = _joined(repo, Path(there), paths)
        stale |= replaced
    # from memory: a folder of files to upload would stay behind where a push is killed
    added = [CommitOperationAdd(path, content) for path, content in files.items()]
    commit = api.create_commit(
        repo.repo_id,
        [*added, *map(CommitOperationDelete, sorted(stale - set(files)))],
        commit_message=f"Push the {repo.role}",
        repo_type=repo.kind,
        parent_commit=info.sha,  # another commit meanwhile is not overwritten: the Hub answers 412
    )
    return commit.oid != info.sha


def _joined(repo: Repo, there: Path, paths: Sequence[str]) -> tuple[dict[str, bytes], set[str]]:
    """Return the files of a shared repository with the records or results of other checkpoints in it, and the paths of the
    records there that go. there: its files by which it is recognised. paths: all that it holds.
    """
    if repo.role == "records":
        old, new = read_object(there / CELLS), json.loads(repo.files[CELLS])
        models = {cell["model"] for cell in new.values()} - {None}
        remaining = {name: cell for name, cell in old.items() if cell["model"] not in models and name not in new}
        gone = {path for path in paths if path.partition("/")[0] in {*old, *new} - {*remaining}}
        return {**repo.files, **summary_files(repo.repo_id, {**remaining, **new})}, gone
    tables = {}
    for path, content in repo.files.items():
        if path != CARD:
            tables[path.partition("/")[0]] = [pq.read_table(pa.BufferReader(content))]
    own = pa.chunked_array([table[CHECKPOINT].combine_chunks() for (table,) in tables.values()], pa.string())
    for path in sorted(there.glob(TABLES)):
        table = pq.read_table(path, partitioning=None)
        remaining = table.filter(pc.invert(pc.is_in(table[CHECKPOINT], own)))
        if remaining.num_rows:
            tables.setdefault(path.parent.name, []).append(remaining)
    return table_files(repo.repo_id, tables), set()
