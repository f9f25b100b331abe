"""Send the repositories of a push. Only this module of the package `hub` uses the network."""

import contextlib
import fnmatch
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HTTPError
from huggingface_hub.utils import enable_progress_bars

from attnfaith.hub.contents import CARD, CELLS, CHECKPOINT, HubError, Plan, Repo, size, summary_files, table_files
from attnfaith.metrics.registration import METRIC_NAME
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.files import read_object


TABLES = "*/results-*.parquet"  # the result tables of a repository
MARKS = {"checkpoint": "run.json", "records": CELLS, "results": TABLES, "metric": f"{METRIC_NAME}.py"}
"""Files by which a repository of an earlier push is recognised, by role."""
REASONS = {
    401: "the Hub does not know the access token, or it has expired: log in with `hf auth login`, then push again",
    403: "the access token may not write there: use one that may, or push to another owner",
    412: "somebody else changed it at the same moment; push again",
    429: "too many requests; push again later",
}


def push(plan: Plan, *, api: HfApi | None = None) -> list[str]:
    """Send the repositories of a plan; return their addresses, or those of their pull requests, in the plan's order.

    The model comes last, so that what its card names is there. Each repository changes by one commit or not at all; files
    that are there already are not sent. Progress is printed.

    Raises HubError before anything is sent where there is no token or it may not write, the owner is another account, or a
    repository holds files that no push wrote or is public although the plan is private; later where the Hub fails: the
    message names the repository.
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
    """Check that the token may write for an owner; return the owner, for None the token's user.

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
def _explained(place: str) -> Iterator[None]:
    """Turn what huggingface_hub raises within the block into a HubError, without addresses of requests or tokens."""
    try:
        yield
    except AttnfaithError:
        raise
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # the client wraps what goes wrong with one file in a RuntimeError
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        if isinstance(cause, HfHubHTTPError):
            status = cause.response.status_code
            reason = REASONS.get(status, f"the Hub answers {status}; push again: what is there is kept")
        elif isinstance(cause, HTTPError | ConnectionError | TimeoutError):
            reason = (
                f"no connection to {constants.ENDPOINT}, or it is lost or switched off ({type(cause).__name__}); push again"
            )
        else:
            reason = excerpt(cause, 300)
        raise HubError(f"{place}: {reason}") from error


def _check_existing(api: HfApi, repo: Repo, plan: Plan) -> None:
    """Raise HubError where the push would replace files that no push wrote, or a public repository is to be private."""
    if not api.repo_exists(repo.repo_id, repo_type=repo.kind):
        return
    info = api.repo_info(repo.repo_id, repo_type=repo.kind)
    if plan.private and not info.private and repo.role != "metric":
        raise HubError(
            f"{repo.repo_id} is public already, so --private cannot keep this from being read: make it private in its "
            "settings, or give another --name"
        )
    paths = {sibling.rfilename for sibling in info.siblings} - {".gitattributes", CARD}
    replaced = sorted(path for path in paths if path in repo.files or path == ".gitignore" or _is_ours(repo, path))
    if replaced and not fnmatch.filter(paths, MARKS[repo.role]):
        raise HubError(
            f"{repo.repo_id} ({repo.kind}) holds files that no push wrote and that this push would replace: "
            f"{', '.join(replaced[:8])}: give another --name or --to, or delete them there"
        )


def _is_ours(repo: Repo, path: str) -> bool:
    """Whether a push of this role replaces a file, or deletes one that it no longer contains."""
    name = re.escape(repo.repo_id.partition("/")[2])
    patterns = {
        "checkpoint": rf"[^/]+\.(json|py|safetensors)|figures/{name}-[^/]+\.(png|svg)",
        "metric": r"[^/]+\.py",
        "results": r"[^/]+/results-[^/]+\.parquet",
    }
    return re.fullmatch(patterns.get(repo.role, "(?!)"), path) is not None


def _send(api: HfApi, repo: Repo, plan: Plan) -> tuple[str, str]:
    """Bring one repository to the content of the plan; return its address and the outcome."""
    sdk = {"space_sdk": yaml.safe_load(repo.card.split("---")[1])["sdk"]} if repo.kind == "space" else {}
    api.create_repo(repo.repo_id, repo_type=repo.kind, private=plan.private, exist_ok=True, **sdk)
    if plan.revision and not plan.create_pr:
        api.create_branch(repo.repo_id, branch=plan.revision, repo_type=repo.kind, exist_ok=True)
    info = api.repo_info(repo.repo_id, repo_type=repo.kind, revision=plan.revision)
    files, stale = _joined_files(api, repo, [sibling.rfilename for sibling in info.siblings], info.sha)
    # from memory: a folder of files to upload would stay behind where a push is killed
    added = [CommitOperationAdd(path, content) for path, content in files.items()]
    commit = api.create_commit(
        repo.repo_id,
        [*added, *map(CommitOperationDelete, sorted(stale - set(files)))],
        commit_message=f"Push the {repo.role}" + "".join(f" of {name}" for name in repo.checkpoints[:1]),
        repo_type=repo.kind,
        revision=plan.revision,
        create_pr=plan.create_pr,
        parent_commit=info.sha,  # another commit meanwhile is not overwritten: the Hub answers 412
    )
    address = f"{api.endpoint}/{'' if repo.kind == 'model' else f'{repo.kind}s/'}{repo.repo_id}"
    address += f"/tree/{plan.revision}" if plan.revision else ""
    if commit.oid == info.sha:
        return address, "as it was"
    return (commit.pr_url, "offered") if commit.pr_url else (address, "changed")


def _joined_files(api: HfApi, repo: Repo, paths: list[str], sha: str) -> tuple[dict[str, bytes], set[str]]:
    """Return the pushed files that a repository is to hold, and the paths there that they replace.

    paths: of the repository at the commit `sha`. Records and results of other checkpoints there are kept.
    """
    ours = {path for path in paths if _is_ours(repo, path)}
    if repo.role == "results" and ours:
        return _join_results(api, repo, sha), ours
    if repo.role != "records":
        return dict(repo.files), ours
    old = {}
    if CELLS in paths:
        old = read_object(api.hf_hub_download(repo.repo_id, CELLS, repo_type=repo.kind, revision=sha))
    new = json.loads(repo.files[CELLS])
    remaining = {name: cell for name, cell in old.items() if cell["model"] not in repo.checkpoints and name not in new}
    configs = {*old, *new} - {*remaining}
    summary = summary_files(repo.repo_id, {**remaining, **new})
    return {**repo.files, **summary}, {path for path in paths if path.partition("/")[0] in configs}


def _join_results(api: HfApi, repo: Repo, sha: str) -> dict[str, bytes]:
    """The tables with the rows of other checkpoints that the repository holds."""
    files = {path: content for path, content in repo.files.items() if path != CARD}
    tables = {path.partition("/")[0]: [pq.read_table(pa.BufferReader(content))] for path, content in files.items()}
    folder = api.snapshot_download(repo.repo_id, repo_type=repo.kind, revision=sha, allow_patterns=TABLES)
    for path in sorted(Path(folder).glob(TABLES)):
        table = pq.read_table(path, partitioning=None)
        remaining = table.filter(pc.invert(pc.is_in(table[CHECKPOINT], pa.array(repo.checkpoints, pa.string()))))
        if remaining.num_rows:
            tables.setdefault(path.parent.name, []).append(remaining)
    return table_files(repo.repo_id, tables)
