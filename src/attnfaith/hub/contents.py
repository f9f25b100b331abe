"""The content of a push, read and rendered without the network."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub.errors import HFValidationError
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
PLACES = {"path", "gates", "output_dir", "base", "folder", "vectors", "source", "tokenizer", "pretrained"}
"""Keys whose values are paths."""


class HubError(AttnfaithError):
    """A run that cannot be pushed, or a push that failed. The message names what to do."""


@dataclass(frozen=True)
class Repo:
    """The content of one repository.

    kind: "model", "dataset" or "space". files: {path in the repository: content}. role: "checkpoint", "metric", "records" or
    "results"; records and results of other checkpoints in the repository stay.
    """

    kind: str
    repo_id: str
    files: Mapping[str, bytes]
    role: str

    def describe(self) -> str:
        """The number of files and their size."""
        return f"{self.kind} {self.repo_id}: {counted(len(self.files), 'file')}, {size(self.files)}"


@dataclass(frozen=True)
class Plan:
    """The repositories of a push. All of it is in memory: the folder of a run may change meanwhile."""

    repos: Sequence[Repo]
    private: bool = False

    def describe(self) -> str:
        """The repositories, their files and sizes."""
        lines = []
        for repo in self.repos:
            lines.append(repo.describe() + (" (joins what is there)" if repo.role in ("records", "results") else ""))
            lines += [f"  {size({path: content}):>9}  {path}" for path, content in sorted(repo.files.items())]
        total = size(*(repo.files for repo in self.repos))
        return "\n".join([*lines, f"{total} in all{', private' if self.private else ''}"])


def size(*files: Mapping[str, bytes]) -> str:
    """Return the size of some files as a text: "0.8 kB", "23.0 MB"."""
    count = sum(len(content) for part in files for content in part.values())
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


# ------------------------------------------------------------------------------------------------ plans


def plan(run: str | os.PathLike, owner: str, *, name: str | None = None, private: bool = False) -> Plan:
    """Return what pushing a finished run would send; the network is not asked.

    The checkpoint goes to <owner>/<name> (name: `cards.checkpoint_name` of its recipe's unless given), its record to
    <owner>/attnfaith-records, the tables of its report to <owner>/attnfaith-results. private: new repositories are.

    Raises HubError for a name that the Hub does not allow, and for a run that is not complete or has no report, was made by
    code that no commit holds, or has a checkpoint of another kind or with other weights than were measured; FileError where
    it is being written, ModelError and RecordError where its model or record is broken.
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
        table, state = _read_record(folder), without_places(state)
        files = {path.name: path.read_bytes() for path in sorted(folder.glob(f"{MODEL}/*")) if path.suffix in SUFFIXES}
        files["config.json"] = as_json(without_places(json.loads(files["config.json"])))
        files[STATE] = as_json(state)
        files[RECIPE] = recipes.dump(recipes.build(without_places(asdict(recipe)))).encode()
        dataset = facts(records.settings(table)[0]["recipe"]["data"])
        files |= cards.model_card(state, [table], repo_id, dataset, **shared)
        cell = cards.cell_facts(state, table, model_repo=repo_id)
        record_files = _record_files(shared["records_repo"], repo_id.partition("/")[2], table, cell)
        results = _read_results(folder / "report" / "tables", repo_id)
    paths = [path for path in METRIC_DIR.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    metric = {path.relative_to(METRIC_DIR).as_posix(): path.read_bytes() for path in paths}
    repos = [
        Repo("space", repo_id_of(owner, METRIC_NAME), metric, "metric"),
        Repo("dataset", shared["records_repo"], record_files, "records"),
        Repo("dataset", shared["results_repo"], table_files(shared["results_repo"], results), "results"),
        Repo("model", repo_id, files, "checkpoint"),
    ]
    return Plan(repos, private)


def plan_record(table: pa.Table, repo_id: str, *, config: str = "default", private: bool = False) -> Plan:
    """Return what pushing a record of one model to the data set `repo_id` would send; the network is not asked.

    config: its configuration there; one of that name is replaced, others stay. Raises HubError for a name that the Hub does
    not allow and a record of several models.
    """
    owner, _, name = str(repo_id).rpartition("/")
    repo_id = repo_id_of(owner, name)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", str(config)):
        raise HubError(f"config={excerpt(config)}: letters, digits, '-', '_' and '.', 80 at most")
    try:
        identity = one_cell(table).identity
    except ValueError as error:
        raise HubError(f"one record of one model is pushed at a time: {error}") from error
    table = records.with_settings(table, without_places(records.settings(table)))
    cell = {**cards.cell_facts({}, table, model_repo=None), "split": re.sub(r"\W+", "_", identity.split)}
    files = _record_files(repo_id, config, table, cell)
    return Plan([Repo("dataset", repo_id, files, "records")], private)


def _check_committed(folder: Path, provenance: Mapping | None) -> None:
    """Raise HubError where no commit holds the code; an installed package, without a commit, is named by its version."""
    provenance = provenance or {}
    installed = provenance.get("version") and provenance.get("commit") is None and provenance.get("dirty") is None
    if provenance.get("dirty") is not False and not installed:
        raise HubError(f"{folder} was made by unknown code or uncommitted changes: commit them, run it anew, then push")


def _read_record(folder: Path) -> pa.Table:
    """The record of a run without local places. Raises HubError for one that is not that of one run, and unless the model
    has a type of this package and the weights that were measured.
    """
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
    return records.with_settings(table, without_places(settings))


def _read_results(folder: Path, checkpoint: str) -> dict[str, list[pa.Table]]:
    """The result tables of a run's report, with a first column that names the checkpoint."""
    tables = {}
    for path in sorted(folder.glob("*.parquet")):
        table = records.plain(pq.read_table(path, partitioning=None))  # no dictionaries and notes, in which pushes differ
        tables[path.stem] = [table.add_column(0, CHECKPOINT, pa.array([checkpoint] * table.num_rows, pa.string()))]
    return tables


def without_places(value, key: str | None = None):
    """Return JSON whose absolute paths, in keys that hold paths, are cut to their last part."""
    if isinstance(value, Mapping):
        return {name: without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_places(item, key) for item in value]
    if key in PLACES and isinstance(value, str) and (value.startswith("~") or os.path.isabs(value)):
        return Path(value).name
    return value


# ------------------------------------------------------------------------------------------------ files


def as_json(value) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def parquet(table: pa.Table) -> bytes:
    """Return the content of a parquet file; `Dataset.push_to_hub` would lose the settings in the schema of a record."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue().to_pybytes()


def _record_files(repo_id: str, config: str, table: pa.Table, cell: Mapping) -> dict[str, bytes]:
    """A record as a configuration of a repository, with its card. cell: the facts about it."""
    return {f"{config}/{cell['split']}-00000-of-00001.parquet": parquet(table), **summary_files(repo_id, {config: cell})}


def summary_files(repo_id: str, cells: Mapping[str, Mapping]) -> dict[str, bytes]:
    """Return the card of a repository of records and the facts about each of them, by configuration."""
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
