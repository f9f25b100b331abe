"""Finished runs as repositories of the Hub. The only file that writes to the network.

A run becomes four repositories: the metric's Space, a data set of records (one configuration per run), a data set of result
tables (one configuration per table) and the model with its card. Each is changed by one commit or not at all, and only where
it differs from what is there, so pushing again finishes what was interrupted. Where the Hub is and who asks comes from
huggingface_hub alone: HF_ENDPOINT, HF_TOKEN, `hf auth login`.
"""

import fnmatch
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, constants, get_token
from huggingface_hub.errors import (
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import enable_progress_bars, validate_repo_id
from transformers.utils.logging import disable_progress_bar

from attnfaith import record as records
from attnfaith.data.registry import DATASETS, facts
from attnfaith.errors import AttnfaithError
from attnfaith.measurement import digest_model
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.models.registration import CLASSIFIER, CONFIG, MODEL, MODEL_TYPE
from attnfaith.reporting import cards
from attnfaith.reporting.cells import CELL


RECORDS, RESULTS = "attnfaith-records", "attnfaith-results"
SHARD_BYTES = 500_000_000
CELLS = "cells.json"  # what a repository of records says of its cells, so that one more can join them
SPLIT = "results"
CHECKPOINT = "checkpoint"
CARD = "README.md"
AUTO_MAP = {
    "AutoConfig": f"configuration_{MODEL_TYPE}.{CONFIG}",
    "AutoModel": f"modeling_{MODEL_TYPE}.{MODEL}",
    "AutoModelForSequenceClassification": f"modeling_{MODEL_TYPE}.{CLASSIFIER}",
}
TRAVELS = {".json", ".py", ".safetensors"}  # what a checkpoint's folder may hold: nothing that is unpickled
SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)($|_)")  # names of variables that hold one
PLACES = {"output_dir", "base", "folder", "vectors"}  # keys whose values are paths
PASSES = {412, 429, 500, 502, 503, 504}
WAITS = (1, 4)  # seconds before the second and the third try; the client waits too, within one
PATIENCE = 60  # seconds that the Hub may ask to wait


class HubError(AttnfaithError):
    """A run that cannot be pushed, or a push that did not end. The message says what is there now and what to do."""


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
        return _bytes(self.files[CARD]).decode()

    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(_size, self.files.values()))


@dataclass(frozen=True)
class Plan:
    """What a push sends, all of it read, rendered and kept apart from the runs' folders, which may change meanwhile."""

    repos: Sequence[Repo]
    private: bool = False
    revision: str | None = None
    create_pr: bool = False
    sources: Mapping[Path, tuple] = field(default_factory=dict)
    kept: "_Copies | None" = None

    def describe(self) -> str:
        """The repositories, their files and sizes."""
        how = [word for word, said in (("private", self.private), ("as a pull request", self.create_pr)) if said]
        how += [f"branch {self.revision}"] if self.revision else []
        lines = []
        for repo in self.repos:
            shared = " (joins what is there)" if repo.role in ("records", "results") else ""
            lines.append(f"{repo.kind} {repo.repo_id}: {len(repo.files)} files, {size(repo.size())}{shared}")
            lines += [f"  {size(_size(content)):>9}  {path}" for path, content in sorted(repo.files.items())]
        lines.append(", ".join([f"{size(sum(repo.size() for repo in self.repos))} in all", *how]))
        return "\n".join(lines)

    def check_unchanged(self) -> None:
        """Raises HubError where a file of a run is no longer the one that was read."""
        _check_same(self.sources)


class _Copies:
    """A temporary folder that goes with the last that refers to it."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="attnfaith-push-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def size(count: int) -> str:
    """Bytes for reading: "812 B", "4.1 kB", "23.0 MB"."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _bytes(content: Path | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


# ------------------------------------------------------------------------------------------------------ the plan


def plan(
    run: str | os.PathLike | Sequence[str | os.PathLike],
    owner: str,
    *,
    name: str | None = None,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    with_results: bool = True,
    shard_bytes: int = SHARD_BYTES,
) -> Plan:
    """What pushing one or more finished runs would send; the network is not asked.

    The checkpoint of a run goes to <owner>/<name> (name: `cards.checkpoint_name` of its recipe's unless given), its record
    to <owner>/attnfaith-records, the tables of its report to <owner>/attnfaith-results unless with_results is false.
    private: new repositories are private. revision: branch, made where it is missing. create_pr: as pull requests.
    shard_bytes: largest file of a record.

    Raises HubError for a name that the Hub does not allow, and for a run that is not complete, was made by code that no
    commit holds, has a checkpoint of another kind or with other weights than were measured, changes while it is read, or
    holds an access token or a path of this machine where it would be read by others; RecordError for a broken record.
    """
    folders = [Path(run)] if isinstance(run, str | os.PathLike) else [Path(one) for one in run]
    if name is not None and len(folders) > 1:
        raise HubError(f"--name {name} for {len(folders)} runs: a name is for one of them; leave it out")
    kept = _Copies()
    read, sources = [], {}
    disable_progress_bar()  # of loading, which takes no time; sending keeps its own
    for number, folder in enumerate(folders):
        before = _stamps(folder)
        one = _read(folder, owner, name, kept.folder / str(number), shard_bytes)
        _check_same(before)
        sources |= before
        read.append(one)
    names = [one.repo_id for one in read]
    if twice := sorted({repo_id for repo_id in names if names.count(repo_id) > 1}):
        raise HubError(f"two runs would be {twice[0]}: push them one by one, with --name")
    shared = shared_repos(owner)
    records_repo, results_repo = shared["records_repo"], shared["results_repo"]
    repos = [metric_repo(owner), _records_repo(records_repo, read)]
    if with_results:
        tables = _joined([_report_tables(one) for one in read])
        repos.append(_results_repo(results_repo, tables, tuple(names)))
    repos += [_model_repo(one, records_repo, results_repo) for one in read]
    for repo in repos:
        _refuse_secrets(repo, folders if repo.role != "metric" else [])
    return Plan(repos, private, revision, create_pr, sources, kept)


def plan_results(
    tables: str | os.PathLike,
    runs: Mapping[str, str | os.PathLike],
    owner: str,
    *,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
) -> Plan:
    """What pushing the tables of a study would send: tables/*.parquet, made from the records of runs {name: folder}.

    A row that is about one of the runs names its checkpoint, <owner>/<name>; a row about several names none.
    """
    folder = Path(tables)
    sources = {path: _stamp(path) for path in sorted(folder.glob("*.parquet"))}
    if not sources:
        raise HubError(f"{folder} holds no tables (*.parquet): make the study's tables first")
    identities = {}
    for name, run in runs.items():
        made = (pq.read_schema(Path(run) / "record.parquet").metadata or {}).get(b"attnfaith", b"[]")
        identities[repo_id_of(owner, name)] = records.Identity(**json.loads(made)[0]["identity"]).heading
    found = {path.stem: _with_checkpoint(pq.read_table(path), identities) for path in sources}
    repo = _results_repo(repo_id_of(owner, RESULTS), found, tuple(identities))
    _refuse_secrets(repo, runs.values())
    return Plan([repo], private, revision, create_pr, sources)


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


class _Run(NamedTuple):
    """A run, read: where it goes, its run.json and records without paths of this machine, its files to send.

    tables: {configuration: record}, the run's own, called as its checkpoint, first.
    """

    folder: Path
    repo_id: str
    state: dict
    tables: dict[str, pa.Table]
    files: dict[str, Path | bytes]
    shards: dict[str, Path]

    @property
    def heading(self) -> dict:
        return records.Identity(**records.settings(next(iter(self.tables.values())))[0]["identity"]).heading


def _stamp(path: Path) -> tuple:
    """What changes when a file does."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _stamps(folder: Path) -> dict[Path, tuple]:
    """The stamps of all that a push reads of a run; its folders are named too, so that a new file is seen."""
    if not (folder / "run.json").is_file() or not (folder / "recipe.yaml").is_file():
        raise HubError(f"{folder} is no run (run.json, recipe.yaml): give the output_dir of one")
    named = [folder / name for name in ("run.json", "recipe.yaml", "model", "report")] + sorted(folder.glob("*.parquet"))
    named += [path for part in ("model", "report") for path in sorted((folder / part).rglob("*"))]
    return {path: _stamp(path) for path in named if path.exists()}


def _check_same(stamps: Mapping[Path, tuple]) -> None:
    for path, stamp in stamps.items():
        try:
            same = _stamp(path) == stamp
        except OSError:
            same = False
        if not same:
            raise HubError(
                f"{path} changed while the run was pushed; a run is pushed as one: push it again when nothing writes there"
            )


def _read(folder: Path, owner: str, name: str | None, copies: Path, shard_bytes: int) -> _Run:
    try:
        state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise HubError(f"{folder} holds a run.json or recipe.yaml that cannot be read: {error}") from error
    _check_finished(folder, state)
    repo_id = repo_id_of(owner, cards.checkpoint_name(recipe["name"]) if name is None else name)
    own = folder / "record.parquet"
    paths = [own, *(path for path in sorted(folder.glob("*.parquet")) if path != own)]
    loaded = {path: records.load(path) for path in paths}
    for path, table in loaded.items():
        made = records.settings(table)
        if len(made) != 1 or not {"recipe", "model", "identity"} <= set(made[0]):
            raise HubError(f"{path} is not the record of one run: measure the run again, or move it away")
        _check_clean(folder, made[0].get("provenance") or {})
    _check_model(folder / "model", {path: records.settings(table)[0]["model"] for path, table in loaded.items()})
    copies.mkdir()
    files: dict[str, Path | bytes] = {}
    for path in sorted((folder / "model").iterdir()):
        files[path.name] = Path(shutil.copyfile(path, copies / path.name))
    config = json.loads(_bytes(files["config.json"]))
    files["config.json"] = _json(_without_places(config))
    state = _without_places(state)
    files["run.json"] = _json(state)
    files["recipe.yaml"] = yaml.safe_dump(_without_places(recipe), sort_keys=False, allow_unicode=True).encode()
    name = repo_id.partition("/")[2]
    tables, shards = {}, {}
    for path, table in loaded.items():
        made = _without_places(records.settings(table))
        config = name if path == own else f"{name}.{path.stem}"
        tables[config] = records.with_settings(table, made)
        shards |= write_shards(tables[config], copies / config, f"{config}/{made[0]['identity']['split']}", shard_bytes)
    return _Run(folder, repo_id, state, tables, files, shards)


def _check_finished(folder: Path, state: Mapping) -> None:
    if (status := state.get("status")) != "complete":
        raise HubError(
            f"{folder} is not complete (its run.json says {status!r}): finish it with --resume_from_checkpoint, then push"
        )
    provenance = state.get("provenance") or {}
    if "dirty" not in provenance:
        raise HubError(
            f"{folder} does not say which code made it, so nobody could make it again: measure it with this version "
            "(--resume_from_checkpoint --remeasure), then push"
        )
    _check_clean(folder, provenance)


def _check_clean(folder: Path, provenance: Mapping) -> None:
    """Raises HubError where no commit holds the code; of an installed package the version says which code it is."""
    for part in (provenance, provenance.get("begun") or {}):
        if part.get("dirty", False) is not False and not (part["dirty"] is None and part.get("commit") is None):
            raise HubError(
                f"{folder} was made by code with uncommitted changes, so nobody could make it again: commit them, run it "
                "anew, then push"
            )


def _check_model(folder: Path, measured: Mapping[Path, str]) -> None:
    """Raises HubError unless the folder holds a checkpoint of ours, with code and no pickle, and the weights that each
    record was measured with.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HubError(f"{folder} holds no model: its config.json cannot be read") from error
    if config.get("model_type") != MODEL_TYPE:
        raise HubError(
            f"{folder} holds a checkpoint of model type {config.get('model_type')!r}; only {MODEL_TYPE!r} is pushed here: "
            "use that model's own push_to_hub"
        )
    if strangers := sorted(path.name for path in folder.iterdir() if path.suffix not in TRAVELS or not path.is_file()):
        raise HubError(
            f"{folder} holds {strangers[0]}, which no run of ours wrote there ({', '.join(sorted(TRAVELS))} only: nothing "
            "pickled is pushed): move it away"
        )
    if config.get("auto_map") != AUTO_MAP or not all(
        (folder / f"{v.partition('.')[0]}.py").exists() for v in AUTO_MAP.values()
    ):
        raise HubError(f"{folder} lacks the code that loads it elsewhere (auto_map, *.py): save the model again")
    try:
        model = AttentionClassifierForSequenceClassification.from_pretrained(folder, use_safetensors=True)
    except Exception as error:  # transformers and safetensors raise many kinds
        raise HubError(f"{folder} cannot be loaded: {' '.join(str(error).split())[:200]}") from error
    digest = digest_model(model)
    if other := [path for path, weights in measured.items() if weights != digest]:
        raise HubError(f"{folder} has other weights than {other[0]} was measured with: measure it again, then push")


def _json(value) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _without_places(value, key: str | None = None):
    """JSON in which absolute paths, of keys that hold paths, are cut to their last part."""
    if isinstance(value, Mapping):
        return {name: _without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_places(item, key) for item in value]
    return _last_part(value) if key in PLACES and isinstance(value, str) else value


def _last_part(path: str) -> str:
    return Path(path).name if path.startswith("~") or os.path.isabs(path) else path


def write_shards(table: pa.Table, folder: Path, prefix: str, limit: int = SHARD_BYTES) -> dict[str, Path]:
    """Parquet files of consecutive rows, {path in the repository: file}, none above `limit` bytes unless a single row is.

    prefix: "<configuration>/<split>".
    """
    count = 1
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        bounds = [round(number * table.num_rows / count) for number in range(count + 1)]
        found = {}
        for number, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            path = folder / f"{Path(prefix).name}-{number:05d}-of-{count:05d}.parquet"
            pq.write_table(table.slice(start, stop - start), path, compression="zstd")
            found[f"{Path(prefix).parent}/{path.name}"] = path
        largest = max(path.stat().st_size for path in found.values())
        if largest <= limit or count >= table.num_rows:
            return found
        count = min(table.num_rows, max(count + 1, math.ceil(count * largest / limit)))


def _records_repo(repo_id: str, runs: Sequence[_Run]) -> Repo:
    cells = {
        config: cards.cell_facts(run.state, table, model_repo=run.repo_id)
        for run in runs
        for config, table in run.tables.items()
    }
    shards = {path: file for run in runs for path, file in run.shards.items()}
    return Repo("dataset", repo_id, {**shards, **_described(repo_id, cells)}, "records", tuple(run.repo_id for run in runs))


def _described(repo_id: str, cells: Mapping[str, Mapping]) -> dict[str, bytes]:
    """Card and list of the cells of a repository of records."""
    cells = dict(sorted(cells.items()))
    known = {name: facts(name) for name in {cell["dataset"] for cell in cells.values()} if name in DATASETS}
    return {CARD: cards.records_card(cells, repo_id=repo_id, datasets=known).encode(), CELLS: _json(cells)}


def _model_repo(run: _Run, records_repo: str, results_repo: str) -> Repo:
    figures = run.folder / "report" / "figures"
    at_hand = sorted(path.stem for path in figures.glob("*.png"))
    dataset = facts(run.heading["dataset"])
    files = dict(run.files)
    files[CARD] = cards.model_card(
        run.state,
        list(run.tables.values()),
        repo_id=run.repo_id,
        dataset=dataset,
        figures=at_hand,
        records_repo=records_repo,
        results_repo=results_repo,
    ).encode()
    for path, figure in cards.card_figures(run.repo_id, at_hand).items():
        files[path] = (figures / f"{figure}.png").read_bytes()
    for path, text in cards.eval_results(list(run.tables.values()), dataset=dataset, records_repo=records_repo).items():
        files[path] = text.encode()
    return Repo("model", run.repo_id, files, "checkpoint")


def metric_repo(owner: str) -> Repo:
    """The metric's Space."""
    found = {
        path.relative_to(METRIC_DIR).as_posix(): path.read_bytes()
        for path in sorted(METRIC_DIR.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return Repo("space", repo_id_of(owner, METRIC_NAME), found, "metric")


# ----------------------------------------------------------------------------------------------- result tables


def _report_tables(run: _Run) -> dict[str, pa.Table]:
    found = sorted((run.folder / "report" / "tables").glob("*.parquet"))
    return {path.stem: _with_checkpoint(pq.read_table(path), {run.repo_id: run.heading}) for path in found}


def _with_checkpoint(table: pa.Table, identities: Mapping[str, Mapping]) -> pa.Table:
    """The table with a first column that names the one checkpoint a row is about; null where there are several, or none."""
    table = _plain(table)
    known = [name for name in CELL if name in table.column_names]
    rows = table.select(known).to_pylist()
    owners = []
    for row in rows:
        same = [repo_id for repo_id, identity in identities.items() if all(_same(row[k], identity[k]) for k in known)]
        owners.append(same[0] if known and len(same) == 1 else None)
    return table.add_column(0, CHECKPOINT, pa.array(owners, pa.string()))


def _same(one, other) -> bool:
    return str(one) == str(other)


def _plain(table: pa.Table) -> pa.Table:
    """Without dictionaries and pandas' notes, so that tables of several pushes join."""
    arrays = [
        pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(arrays, names=table.column_names)


def _joined(parts: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """The tables of several runs, rows of one table below each other."""
    found: dict[str, list[pa.Table]] = {}
    for part in parts:
        for name, table in part.items():
            found.setdefault(name, []).append(table)
    return {name: _ordered(name, tables) for name, tables in sorted(found.items())}


def _ordered(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """One table of the rows of all, sorted by checkpoint; columns that only some have are null in the others' rows."""
    try:
        joined = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise HubError(
            f"the table {name!r} that is there holds a column of another type, so this one cannot join it ({error}): push "
            "again the runs that made it, or delete it there"
        ) from error
    owners = joined.column(CHECKPOINT).to_pylist()
    places = sorted(range(len(owners)), key=lambda place: (owners[place] is None, owners[place] or ""))
    return joined.take(places)


def _results_repo(repo_id: str, tables: Mapping[str, pa.Table], checkpoints: tuple[str, ...]) -> Repo:
    return Repo("dataset", repo_id, _table_files(repo_id, tables), "results", checkpoints)


def _table_files(repo_id: str, tables: Mapping[str, pa.Table]) -> dict[str, bytes]:
    files = {}
    for name, table in tables.items():
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        files[_table_path(name)] = buffer.getvalue().to_pybytes()
    said = {name: {"rows": table.num_rows, "columns": table.column_names} for name, table in sorted(tables.items())}
    return {**files, CARD: cards.results_card(said, repo_id=repo_id).encode()}


def _table_path(name: str) -> str:
    return f"{name}/{SPLIT}-00000-of-00001.parquet"


# ----------------------------------------------------------------------------------------------------- secrets


def _refuse_secrets(repo: Repo, folders: Iterable[str | os.PathLike]) -> None:
    """Raises HubError where a file holds an access token, or names a folder of this machine."""
    secrets = {value: f"${name}" for name, value in os.environ.items() if SECRET.search(name)}
    secrets |= {token: "the Hub's access token"} if (token := get_token()) else {}
    places = {str(Path.home()), *(str(Path(folder).resolve()) for folder in folders)}
    for path, content in repo.files.items():
        if path.endswith((".safetensors", ".png")):
            continue
        found = _bytes(content)
        for value, source in secrets.items():
            if len(value) >= 8 and value.encode() in found:
                raise HubError(f"{path} of {repo.repo_id} would hold the value of {source}: take it out of the recipe")
        if re.search(rb"\bhf_[A-Za-z0-9]{30,}\b", found):
            raise HubError(f"{path} of {repo.repo_id} would hold an access token of the Hub: take it out of the recipe")
        if place := next((place for place in sorted(places) if len(place) > 1 and f"{place}/".encode() in found), None):
            raise HubError(
                f"{path} of {repo.repo_id} would name {place}, a folder of this machine: name it relatively in the recipe"
            )


# ---------------------------------------------------------------------------------------------------- the push


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
    found = _bytes(content)
    return hashlib.sha1(b"blob %d\0" % len(found) + found).hexdigest()


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
        _patiently(lambda repo=repo: _refuse_foreign(api, repo, plan), repo.repo_id)
    addresses = []
    for number, repo in enumerate(plan.repos, start=1):
        where = f"[{number}/{len(plan.repos)}] {repo.kind} {repo.repo_id}"
        print(f"{where}: {len(repo.files)} files, {size(repo.size())}", flush=True)
        address, done = _patiently(lambda repo=repo: _send(api, repo, plan), repo.repo_id)
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
    me = _patiently(api.whoami, "the Hub")
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
    found = {path for path in remote.files if path not in (".gitattributes", CARD)}
    if ".gitignore" in found:
        raise HubError(f"{repo.repo_id} holds a .gitignore, by which files would be left out unsaid: delete it there first")
    marks = {"checkpoint": "config.json", "records": CELLS, "metric": f"{METRIC_NAME}.py"}
    if repo.role == "checkpoint" and "config.json" in found:
        kind = _fetch_json(api, repo, remote, "config.json").get("model_type")
        if kind != MODEL_TYPE:
            raise HubError(
                f"{repo.repo_id} holds a checkpoint of model type {kind!r}, which this one would replace: give another "
                "--name"
            )
    foreign = found and repo.role in marks and marks[repo.role] not in found
    if repo.role == "results":
        foreign = [path for path in found if not fnmatch.fnmatch(path, f"*/{SPLIT}-*.parquet")]
    if foreign:
        raise HubError(
            f"{repo.repo_id} ({repo.kind}) holds files that no push of ours wrote ({', '.join(sorted(found)[:3])}): give "
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
        return made.pr_url, f"{len(changes)} files offered"
    return _address(api, repo, plan.revision), f"{len(changes)} files changed"


def _title(repo: Repo) -> str:
    if repo.role in ("checkpoint", "metric"):
        return f"The {repo.role}"
    several = f" and {len(repo.replaces) - 1} more" if len(repo.replaces) > 1 else ""
    return f"{repo.role.capitalize()} of {repo.replaces[0]}{several}"


class _OtherContent(OSError):
    """A file came, but not as the Hub says it is."""


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
    with tempfile.TemporaryDirectory() as folder:
        local = api.hf_hub_download(repo.repo_id, path, repo_type=repo.kind, revision=remote.sha, local_dir=folder)
        content = Path(local).read_bytes()
    if not remote.holds(path, content):
        raise _OtherContent(f"{path} of {repo.repo_id} came with another content than the Hub says it has")
    return content


def _fetch_json(api: HfApi, repo: Repo, remote: _Remote, path: str) -> dict:
    try:
        found = json.loads(_fetch(api, repo, remote, path))
        if isinstance(found, dict):
            return found
    except json.JSONDecodeError:
        pass
    raise HubError(f"{path} of {repo.repo_id} is not what a push of ours wrote there: delete it there, then push again")


def _wanted(api: HfApi, repo: Repo, remote: _Remote) -> tuple[dict[str, Path | bytes], Callable[[str], bool]]:
    """All that a repository is to hold of ours, and which of the paths there are ours to delete."""
    name = repo.repo_id.partition("/")[2]
    if repo.role == "checkpoint":
        own = re.compile(rf"[^/]+(\.json|\.py|\.safetensors)|figures/{re.escape(name)}-[^/]+\.png")
        return dict(repo.files), lambda path: own.fullmatch(path) is not None
    if repo.role == "records":
        there = _fetch_json(api, repo, remote, CELLS) if CELLS in remote.files else {}
        others = {name: cell for name, cell in there.items() if cell["model"] not in repo.replaces}
        new = json.loads(_bytes(repo.files[CELLS]))
        described = _described(repo.repo_id, {**others, **new})
        return {**repo.files, **described}, lambda path: path.split("/")[0] in {*there, *new} - {*others} | {*new}
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
    return _table_files(repo.repo_id, {name: _ordered(name, tables) for name, tables in sorted(parts.items())})


def _changes(remote: _Remote, wanted: Mapping[str, Path | bytes], belongs: Callable[[str], bool]) -> list:
    """What turns a repository into the wanted one."""
    new = [CommitOperationAdd(path, content) for path, content in wanted.items() if not remote.holds(path, content)]
    return new + [CommitOperationDelete(path) for path in sorted(remote.files) if belongs(path) and path not in wanted]


def _offered(api: HfApi, repo: Repo, wanted, belongs) -> int | None:
    """The number of a pull request that already holds what is wanted."""
    refs = api.list_repo_refs(repo.repo_id, repo_type=repo.kind, include_pull_requests=True).pull_requests or []
    numbers = sorted((int(ref.ref.rpartition("/")[2]) for ref in refs), reverse=True)
    return next((n for n in numbers if not _changes(_look(api, repo, f"refs/pr/{n}"), wanted, belongs)), None)


# -------------------------------------------------------------------------------------------------- what fails


def _patiently(step: Callable, what: str):
    """The step's result; what passes is tried again. Raises HubError, in words, for what does not."""
    for wait in (*WAITS, None):
        try:
            return step()
        except HubError:
            raise
        except (HTTPError, OSError, ValueError, RuntimeError) as raised:
            # the client wraps what goes wrong with one file
            error = raised.__cause__ if isinstance(raised, RuntimeError) and raised.__cause__ else raised
            asked = _asked_to_wait(error)
            if wait is None or not _passes(error) or asked > PATIENCE:
                raise HubError(f"{what}: {_reason(error)}") from error
            print(f"{what}: {_reason(error)}; trying again in {max(asked, wait):g} s", flush=True)
            time.sleep(max(asked, wait))


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _passes(error: Exception) -> bool:
    if isinstance(error, OfflineModeIsEnabled):
        return False
    if (status := _status(error)) is not None:
        return status in PASSES
    return isinstance(error, HTTPError | ConnectionError | TimeoutError | json.JSONDecodeError | _OtherContent)


def _asked_to_wait(error: Exception) -> float:
    """Seconds, from the answer's Retry-After; 0 where it asks nothing."""
    found = getattr(getattr(error, "response", None), "headers", {}).get("Retry-After", "")
    return float(found) if found.isdigit() else 0.0


def _reason(error: Exception) -> str:
    """One line for a user, without addresses or tokens."""
    status, again = _status(error), "push again: what is there is kept, what is missing is sent"
    said = {
        400: f"the Hub refuses what was sent; {again}",
        401: "the Hub does not know the access token, or it has expired: log in with `hf auth login`, then push again",
        403: "the access token may not write there: use one that may, or push to another owner",
        404: "there is no such repository, or the access token may not see it",
        409: f"it is being made by somebody else at this moment; {again}",
        412: f"somebody else changed it at the same moment; {again}",
        429: f"the Hub asks to wait{_for(error)}: too many requests; later, {again}",
    }
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it, then push again"
    if status is not None:
        return said.get(status, f"the Hub fails ({status}); later, {again}")
    if isinstance(error, _OtherContent):
        return f"{error}; {again}"
    if isinstance(error, json.JSONDecodeError):
        return f"the Hub fails (an answer that is none); later, {again}"
    if isinstance(error, HTTPError | ConnectionError | TimeoutError):
        return f"no connection to {constants.ENDPOINT}, or it was lost ({type(error).__name__}); {again}"
    return " ".join(str(error).split())


def _for(error: Exception) -> str:
    return f" {asked:g} s" if (asked := _asked_to_wait(error)) else ""
