"""Finished runs as repositories of the Hub: `plan` reads what a push sends, without the network; `push` sends it.

A run becomes four repositories: the metric's Space, a data set of records (one configuration per run), a data set of result
tables (one configuration per table) and the model with its card. Each changes by one commit or not at all, so a push that
was interrupted is run again. huggingface_hub decides the address of the Hub and the user: HF_ENDPOINT, HF_TOKEN.
"""

import contextlib
import fnmatch
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id

from attnfaith import recipes
from attnfaith import record as records
from attnfaith.data.registry import DATASETS, facts
from attnfaith.loading import load_model
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME
from attnfaith.models import AttentionClassifierConfig, RationaleClassifierConfig
from attnfaith.reporting import cards
from attnfaith.reporting.cells import one_cell
from attnfaith.subjects import subject_of
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.files import CARD, MODEL, RECIPE, RECORD, STATE, folder_lock, read_object


RECORDS, RESULTS = "attnfaith-records", "attnfaith-results"
CELLS = "cells.json"  # the facts about each record of a repository, from which its card is written
CHECKPOINT = "checkpoint"  # the column of a result table that names what a row is about
MODEL_TYPES = (AttentionClassifierConfig.model_type, RationaleClassifierConfig.model_type)  # that are pushed here
SUFFIXES = (".json", ".py", ".safetensors")  # of the files of a checkpoint that are sent: nothing pickled
TABLES = "*/results-*.parquet"  # the result tables of a repository
KINDS = {"metric": "space", "records": "dataset", "results": "dataset", "checkpoint": "model"}
"""Role -> kind of repository."""
MARKS = {"checkpoint": STATE, "records": CELLS, "results": TABLES, "metric": f"{METRIC_NAME}.py"}
"""Role -> files by which a repository of an earlier push is recognised."""
REPLACED = {
    "checkpoint": r"[^/]+\.(json|py|safetensors)|figures/[^/]+\.(png|svg)",
    "metric": r"[^/]+\.py",
    "results": r"[^/]+/results-[^/]+\.parquet",
}
"""Role -> files there that a push replaces, or deletes where it no longer contains them; of records all of their folder."""


class HubError(AttnfaithError):
    """A run that cannot be pushed, or a push that failed. The message names what to do."""


@dataclass(frozen=True)
class Repo:
    """The content of one repository, {path in it: content}. role: see `KINDS`; in the repository, records and results of
    other checkpoints stay.
    """

    role: str
    repo_id: str
    files: Mapping[str, bytes]

    @property
    def kind(self) -> str:
        """ "model", "dataset" or "space"."""
        return KINDS[self.role]

    def describe(self) -> str:
        """The number of files and their size."""
        return f"{self.kind} {self.repo_id}: {counted(len(self.files), 'file')}, {size(self.files.values())}"


def describe(repos: Sequence[Repo], *, private: bool = False) -> str:
    """Return the repositories of a push, their files and sizes."""
    lines = []
    for repo in repos:
        lines.append(repo.describe() + (" (joins what is there)" if repo.kind == "dataset" else ""))
        lines += [f"  {size([content]):>9}  {path}" for path, content in sorted(repo.files.items())]
    total = size(content for repo in repos for content in repo.files.values())
    return "\n".join([*lines, f"{total} in all{', private' if private else ''}"])


def size(contents: Iterable[bytes]) -> str:
    """Return the size of some files as a text: "0.8 kB", "23.0 MB"."""
    count = sum(map(len, contents))
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def repo_id_of(owner: str, name: str) -> str:
    """Return <owner>/<name>. Raises HubError where the Hub does not allow it."""
    repo_id = f"{owner}/{name}"
    try:
        if not owner or not name or repo_id.count("/") != 1:
            raise HFValidationError("it must be OWNER/NAME")
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise HubError(f"{repo_id!r} is no name of a repository ({error}); give another with --name or --to") from error
    return repo_id


def shared_repos(owner: str) -> dict[str, str]:
    """Return the data sets that all checkpoints of an owner share, as `cards.write_cards` takes them."""
    return {"records_repo": repo_id_of(owner, RECORDS), "results_repo": repo_id_of(owner, RESULTS)}


def plan(run: str | os.PathLike, owner: str, *, name: str | None = None) -> list[Repo]:
    """Return the repositories that pushing a finished run would send, in memory; the network is not asked.

    The checkpoint goes to <owner>/<name> (name: `cards.checkpoint_name` of its recipe's unless given), its record to
    <owner>/attnfaith-records, the tables of its report to <owner>/attnfaith-results.

    Raises HubError for a name that the Hub does not allow, and a run that is not complete, has no report or was made by
    code that no commit holds; FileError where it is being written, ModelError and RecordError for a broken model or record.
    """
    folder, shared = Path(run), shared_repos(owner)
    if not (folder / STATE).is_file() or not (folder / RECIPE).is_file():
        raise HubError(f"{folder} is no run ({STATE}, {RECIPE}): give the output_dir of one")
    with folder_lock(folder, "a push"):
        state, recipe = read_object(folder / STATE), recipes.load(folder / RECIPE)
        if state.get("status") != "complete":
            raise HubError(f"{folder} is {state.get('status')!r}, not complete: finish it with --resume_from_checkpoint")
        _check_committed(folder, state.get("provenance"))
        if not (folder / "report" / "tables").is_dir():
            raise HubError(f"{folder} has no report, whose tables are pushed too: attnfaith report {folder} writes it")
        repo_id = repo_id_of(owner, cards.checkpoint_name(recipe.name) if name is None else name)
        table, state = _read_record(folder), cards.public(state)
        files = {path.name: path.read_bytes() for path in sorted(folder.glob(f"{MODEL}/*")) if path.suffix in SUFFIXES}
        files["config.json"] = as_json(cards.public(json.loads(files["config.json"])))
        files[STATE] = as_json(state)
        files[RECIPE] = recipes.dump(recipes.build(cards.public(asdict(recipe)))).encode()
        dataset = facts(records.settings(table)[0]["recipe"]["data"])
        files |= cards.model_card(state, [table], repo_id, dataset, **shared)
        cell = cards.cell_facts(state, table, model_repo=repo_id)
        tables = {}
        for path in sorted((folder / "report" / "tables").glob("*.parquet")):
            part = records.plain(pq.read_table(path, partitioning=None))  # no dictionaries and notes, in which pushes differ
            tables[path.stem] = [part.add_column(0, CHECKPOINT, pa.array([repo_id] * part.num_rows, pa.string()))]
    paths = [path for path in METRIC_DIR.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    metric = {path.relative_to(METRIC_DIR).as_posix(): path.read_bytes() for path in paths}
    return [
        Repo("metric", repo_id_of(owner, METRIC_NAME), metric),
        _record_repo(shared["records_repo"], repo_id.partition("/")[2], table, cell),
        Repo("results", shared["results_repo"], table_files(shared["results_repo"], tables)),
        Repo("checkpoint", repo_id, files),
    ]


def plan_record(table: pa.Table, repo_id: str, *, config: str = "default") -> list[Repo]:
    """Return what pushing a record of one model to the data set `repo_id` would send; the network is not asked.

    config: its configuration there; one of that name is replaced, others stay. Raises HubError for a name that the Hub does
    not allow.
    """
    owner, _, name = str(repo_id).rpartition("/")
    repo_id = repo_id_of(owner, name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", str(config)):
        raise HubError(f"config={excerpt(config)}: letters, digits, '-', '_' and '.', 80 at most")
    split = re.sub(r"\W+", "_", one_cell(table).identity.split)
    table = records.with_settings(table, cards.public(records.settings(table)))
    cell = {**cards.cell_facts({}, table, model_repo=None), "split": split}
    return [_record_repo(repo_id, config, table, cell)]


def _check_committed(folder: Path, provenance: Mapping | None) -> None:
    """Raise HubError where no commit holds the code; an installed package, without a commit, is named by its version."""
    provenance = provenance or {}
    installed = provenance.get("version") and provenance.get("commit") is None and provenance.get("dirty") is None
    if provenance.get("dirty") is not False and not installed:
        raise HubError(f"{folder} was made by unknown code or uncommitted changes: commit them, run it anew, then push")


def _read_record(folder: Path) -> pa.Table:
    """The record of a run without local places. Raises HubError unless it is one of this very model, of this package."""
    table = records.load(folder / RECORD)
    settings = records.settings(table)
    if records.of_sequences(table):
        raise HubError(f"{folder} is a run of sentence pairs: push its record, attnfaith.load(RUN).push_to_hub(NAME)")
    if len(settings) != 1 or not {"recipe", "model", "identity"} <= set(settings[0]):
        raise HubError(f"{folder / RECORD} is not the record of one run: measure the run again")
    _check_committed(folder, settings[0].get("provenance"))
    model = load_model(folder / MODEL)
    if model.config.model_type not in MODEL_TYPES:
        raise HubError(f"{folder} holds a {model.config.model_type}: push it with that model's own push_to_hub")
    if subject_of(model).digest() != settings[0]["model"]:
        raise HubError(f"{folder} has other weights than {RECORD} was measured with: measure it again, then push")
    return records.with_settings(table, cards.public(settings))


def as_json(value) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def parquet(table: pa.Table) -> bytes:
    """Return the content of a parquet file; `Dataset.push_to_hub` would lose the settings in the schema of a record."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue().to_pybytes()


def _record_repo(repo_id: str, config: str, table: pa.Table, cell: Mapping) -> Repo:
    """A record as a configuration of a repository, with its card. cell: the facts about it."""
    path = f"{config}/{cell['split']}-00000-of-00001.parquet"
    return Repo("records", repo_id, {path: parquet(table), **_summary_files(repo_id, {config: cell})})


def _summary_files(repo_id: str, cells: Mapping[str, Mapping]) -> dict[str, bytes]:
    """The card of a repository of records and the facts about each of them, by configuration."""
    cells = dict(sorted(cells.items()))
    datasets = {name: facts(name) for name in {cell["dataset"] for cell in cells.values()} if name in DATASETS}
    return {CARD: cards.records_card(cells, repo_id=repo_id, datasets=datasets).encode(), CELLS: as_json(cells)}


def table_files(repo_id: str, tables: Mapping[str, Sequence[pa.Table]]) -> dict[str, bytes]:
    """Return the files of a repository of result tables, each joined from its parts, the card included."""
    files, shapes = {}, {}
    for name, parts in sorted(tables.items()):
        try:  # columns that only some parts have are null in the others' rows
            table = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
        except pa.ArrowException as error:
            raise HubError(f"a column of the table {name!r} that is there has another type ({error}): delete it") from error
        table = table.sort_by([(CHECKPOINT, "ascending")])  # stable
        files[f"{name}/results-00000-of-00001.parquet"] = parquet(table)
        shapes[name] = {"rows": table.num_rows, "columns": table.column_names}
    return {**files, CARD: cards.results_card(shapes, repo_id=repo_id).encode()}


def push(repos: Sequence[Repo], *, private: bool = False, api: HfApi | None = None) -> list[str]:
    """Send the repositories of a plan; return their addresses, in the plan's order.

    The model comes last, so that what its card names is there. Each repository changes by one commit or not at all. private:
    new ones are.

    Raises HubError before anything is sent where the user may not write there (`check`), or a repository holds files that no
    push wrote or is public and is to be private; later where the Hub fails.
    """
    api = api or HfApi()
    check(repos[0].repo_id.partition("/")[0], api=api)
    for repo in repos:
        with _named(repo.repo_id):
            _check_existing(api, repo, private=private)
    addresses = []
    for number, repo in enumerate(repos, start=1):
        print(f"[{number}/{len(repos)}] {repo.describe()}", flush=True)
        with _named(repo.repo_id):
            changed = _send(api, repo, private=private)
        addresses.append(f"{api.endpoint}/{'' if repo.kind == 'model' else f'{repo.kind}s/'}{repo.repo_id}")
        print(f"{'changed' if changed else 'as it was'}: {addresses[-1]}", flush=True)
    return addresses


def check(owner: str, *, api: HfApi | None = None) -> None:
    """Raise HubError where there is no token, it is invalid or may only read, or the owner is neither its user nor one of
    its organisations, and where the Hub is not reached.
    """
    with _named("the Hub"):
        user = (api or HfApi()).whoami()
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
    paths = sorted({sibling.rfilename for sibling in info.siblings} - {".gitattributes", CARD})
    if paths and not fnmatch.filter(paths, MARKS[repo.role]):
        files = ", ".join(paths[:8])
        raise HubError(f"{repo.repo_id} ({repo.kind}) holds files that no push wrote ({files}): give another --name or --to")


def _send(api: HfApi, repo: Repo, *, private: bool) -> bool:
    """Bring one repository to the content of the plan; return whether it changed."""
    where, sdk = {"repo_id": repo.repo_id, "repo_type": repo.kind}, {"space_sdk": "gradio"} if repo.kind == "space" else {}
    api.create_repo(**where, private=private, exist_ok=True, **sdk)
    info = api.repo_info(**where)
    files, paths = repo.files, [sibling.rfilename for sibling in info.siblings]
    if repo.kind == "dataset" and fnmatch.filter(paths, MARKS[repo.role]):
        there = api.snapshot_download(**where, revision=info.sha, allow_patterns=MARKS[repo.role])
        files = _joined(repo, Path(there))
    if repo.role == "records":
        stale = {path for path in paths if path.partition("/")[0] in json.loads(repo.files[CELLS])}
    else:
        stale = {path for path in paths if re.fullmatch(REPLACED[repo.role], path)}
    # from memory: a folder of files to upload would stay behind where a push is killed
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    operations += map(CommitOperationDelete, sorted(stale - {*files}))
    message = f"Push the {repo.role}"  # onto the commit that was read: after another one meanwhile the Hub answers 412
    commit = api.create_commit(**where, operations=operations, commit_message=message, parent_commit=info.sha)
    return commit.oid != info.sha


def _joined(repo: Repo, there: Path) -> dict[str, bytes]:
    """The files of a shared repository, with the records or results of other checkpoints that lie `there`."""
    if repo.role == "records":
        cells = {**read_object(there / CELLS), **json.loads(repo.files[CELLS])}
        return {**repo.files, **_summary_files(repo.repo_id, cells)}
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
    return table_files(repo.repo_id, tables)
