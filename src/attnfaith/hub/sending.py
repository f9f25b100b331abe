"""The push itself. The only file that uses the network."""

import contextlib
import fnmatch
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled, RevisionNotFoundError
from huggingface_hub.utils import enable_progress_bars

from attnfaith.errors import FileError, counted, excerpt
from attnfaith.files import read_object
from attnfaith.hub.checks import MODEL_TYPES
from attnfaith.hub.planning import summary_files
from attnfaith.hub.repo import CARD, CELLS, TABLES, HubError, Plan, Repo, size
from attnfaith.hub.tables import CHECKPOINT, join, table_files
from attnfaith.metrics.registration import METRIC_NAME


MARKS = {"checkpoint": "config.json", "records": CELLS, "results": TABLES, "metric": f"{METRIC_NAME}.py"}
"""Files that show that a repository is one of ours, by role."""
AGAIN = "push again: what is there is kept, what is missing is sent"
REASONS = {
    400: f"the Hub refuses what was sent; {AGAIN}",
    401: "the Hub does not know the access token, or it has expired: log in with `hf auth login`, then push again",
    403: "the access token may not write there: use one that may, or push to another owner",
    404: "there is no such repository, or the access token may not see it",
    409: f"it is being made by somebody else at this moment; {AGAIN}",
    412: f"somebody else changed it at the same moment; {AGAIN}",
    429: f"the Hub asks to wait: too many requests; later, {AGAIN}",
}


def push(plan: Plan, *, api: HfApi | None = None) -> list[str]:
    """Send what a plan holds; the addresses of the repositories, or of their pull requests, in the plan's order.

    The model comes last, so that what its card names is there. Each repository changes by one commit or not at all; files
    that are there already are not sent. Progress is printed.

    Raises HubError before anything is sent where there is no token or it may not write, the owner is somebody else, or a
    repository holds what no run of ours wrote or is public where private was asked; later where the Hub fails: the message
    names the repository.
    """
    api = api or HfApi()
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is not True:
        enable_progress_bars()  # a plan disables them
    check(plan.repos[0].repo_id.partition("/")[0], create_pr=plan.create_pr, api=api)
    for repo in plan.repos:
        with _explained(repo.repo_id):
            _check_existing(api, repo, plan)
    addresses = []
    for number, repo in enumerate(plan.repos, start=1):
        where = f"[{number}/{len(plan.repos)}] {repo.kind} {repo.repo_id}"
        print(f"{where}: {counted(len(repo.files), 'file')}, {size(repo.size())}", flush=True)
        with _explained(repo.repo_id):
            address, outcome = _send(api, repo, plan)
        print(f"{where}: {outcome}: {address}", flush=True)
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
    with _explained("the Hub"):
        user = api.whoami()
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise HubError(f"the access token of {user['name']} may only read: make one that may write and log in with it")
    owners = [user["name"], *(organisation["name"] for organisation in user.get("orgs", ()))]
    if owner is not None and owner not in owners and not create_pr:
        raise HubError(
            f"{user['name']} cannot write for {owner}: push to {' or '.join(owners)}, or offer it with --create-pr where "
            "the repositories are there"
        )
    return owner or user["name"]


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what huggingface_hub raises within the block into a HubError, without addresses of requests or tokens."""
    try:
        yield
    except HubError:
        raise
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # the client wraps what goes wrong with one file in a RuntimeError
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise HubError(f"{what}: {_reason(cause)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it, then push again"
    if isinstance(error, RevisionNotFoundError):
        return "it has no such branch: leave out --create-pr, which needs one"
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return REASONS.get(status, f"the Hub fails ({status}); later, {AGAIN}")
    if isinstance(error, HTTPError | ConnectionError | TimeoutError):
        return f"no connection to {constants.ENDPOINT}, or it was lost ({type(error).__name__}); {AGAIN}"
    if isinstance(error, json.JSONDecodeError):
        return f"the Hub fails (its answer is no JSON); later, {AGAIN}"
    return excerpt(error, 300)


def _check_existing(api: HfApi, repo: Repo, plan: Plan) -> None:
    """Raise HubError where the repository is there and is not one of ours, or is public where private is asked."""
    if not api.repo_exists(repo.repo_id, repo_type=repo.kind):
        return
    info = api.repo_info(repo.repo_id, repo_type=repo.kind)
    if plan.private and not info.private and repo.role != "metric":
        raise HubError(
            f"{repo.repo_id} is public already, so --private cannot keep this from being read: make it private in its "
            "settings, or give another --name"
        )
    paths = {sibling.rfilename for sibling in info.siblings} - {".gitattributes", CARD}
    if ".gitignore" in paths:
        raise HubError(f"{repo.repo_id} holds a .gitignore, by which the Hub leaves out files: delete it there first")
    if paths and not fnmatch.filter(paths, MARKS[repo.role]):
        raise HubError(
            f"{repo.repo_id} ({repo.kind}) holds files that no push of ours wrote ({', '.join(sorted(paths)[:3])}): give "
            "another --name or --to"
        )
    if repo.role == "checkpoint" and paths:
        model_type = _read_json(api, repo, "config.json", info.sha).get("model_type")
        if model_type not in MODEL_TYPES:
            raise HubError(
                f"{repo.repo_id} holds a checkpoint of model type {model_type!r}, which this one would replace: give "
                "another --name"
            )


def _send(api: HfApi, repo: Repo, plan: Plan) -> tuple[str, str]:
    """Bring one repository to what the plan says; its address, and what was done."""
    sdk = {"space_sdk": yaml.safe_load(repo.card.split("---")[1])["sdk"]} if repo.kind == "space" else {}
    api.create_repo(repo.repo_id, repo_type=repo.kind, private=plan.private, exist_ok=True, **sdk)
    if plan.revision and not plan.create_pr:
        api.create_branch(repo.repo_id, branch=plan.revision, repo_type=repo.kind, exist_ok=True)
    info = api.repo_info(repo.repo_id, repo_type=repo.kind, revision=plan.revision)
    paths = [sibling.rfilename for sibling in info.siblings]
    files, replaced = _with_others(api, repo, paths, info.sha)
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    operations += [CommitOperationDelete(path) for path in sorted(replaced - set(files))]
    commit = api.create_commit(
        repo.repo_id,
        operations,
        commit_message=_title(repo),
        repo_type=repo.kind,
        revision=plan.revision,
        create_pr=plan.create_pr,
        parent_commit=info.sha,  # a commit of somebody else meanwhile is not overwritten: the Hub answers 412
    )
    address = f"{api.endpoint}/{'' if repo.kind == 'model' else f'{repo.kind}s/'}{repo.repo_id}"
    address += f"/tree/{plan.revision}" if plan.revision else ""
    if commit.oid == info.sha:
        return address, "as it was"
    return (commit.pr_url, "offered") if commit.pr_url else (address, "changed")


def _title(repo: Repo) -> str:
    if repo.role in ("checkpoint", "metric"):
        return f"The {repo.role}"
    if not repo.checkpoints:
        return "A record"
    more = f" and {len(repo.checkpoints) - 1} more" if len(repo.checkpoints) > 1 else ""
    return f"{repo.role.capitalize()} of {repo.checkpoints[0]}{more}"


def _with_others(api: HfApi, repo: Repo, paths: Iterable[str], sha: str) -> tuple[dict[str, bytes], set[str]]:
    """All files that a repository is to hold of ours, and the paths there that they replace.

    paths: what the repository holds at the commit `sha`. Records and results of other checkpoints there are kept.
    """
    if repo.role == "checkpoint":
        name = re.escape(repo.repo_id.partition("/")[2])
        ours = re.compile(rf"[^/]+\.(json|py|safetensors)|figures/{name}-[^/]+\.(png|svg)")
        return dict(repo.files), {path for path in paths if ours.fullmatch(path)}
    if repo.role == "metric":
        return dict(repo.files), {path for path in paths if "/" not in path and path.endswith(".py")}
    if repo.role == "results":
        there = set(fnmatch.filter(paths, TABLES))
        return _join_results(api, repo, sha) if there else dict(repo.files), there
    there = _read_json(api, repo, CELLS, sha) if CELLS in paths else {}
    new = json.loads(repo.files[CELLS])
    others = {name: cell for name, cell in there.items() if cell["model"] not in repo.checkpoints and name not in new}
    configs = {*there, *new} - {*others}
    summary = summary_files(repo.repo_id, {**others, **new})
    return {**repo.files, **summary}, {path for path in paths if path.partition("/")[0] in configs}


def _join_results(api: HfApi, repo: Repo, sha: str) -> dict[str, bytes]:
    """The tables with the rows of other checkpoints that are there. Rows about several are those of the latest push."""
    tables = {}
    for path, content in repo.files.items():
        if path != CARD:
            tables[path.partition("/")[0]] = [pq.read_table(pa.BufferReader(content))]
    new = set(tables)
    folder = api.snapshot_download(repo.repo_id, repo_type=repo.kind, revision=sha, allow_patterns=TABLES)
    for path in sorted(Path(folder).glob(TABLES)):
        table, name = pq.read_table(path, partitioning=None), path.parent.name
        if CHECKPOINT not in table.column_names:
            raise HubError(f"{name}/{path.name} of {repo.repo_id} has no column {CHECKPOINT!r}: move it away")
        ours = pc.is_in(table[CHECKPOINT], pa.array(repo.checkpoints, pa.string()))
        about_several = pc.is_null(table[CHECKPOINT])
        others = table.filter(pc.invert(pc.or_(ours, about_several) if name in new else ours))
        if others.num_rows:
            tables.setdefault(name, []).append(others)
    return table_files(repo.repo_id, {name: join(name, parts) for name, parts in tables.items()})


def _read_json(api: HfApi, repo: Repo, path: str, sha: str) -> dict:
    local = api.hf_hub_download(repo.repo_id, path, repo_type=repo.kind, revision=sha)
    try:
        return read_object(local)
    except FileError as error:
        raise HubError(
            f"{path} of {repo.repo_id} is not what a push of ours wrote there: delete it there, then push again"
        ) from error
