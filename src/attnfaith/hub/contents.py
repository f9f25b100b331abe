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
from transformers.utils.logging import disable_progress_bar

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
from attnfaith.support.files import folder_lock, read_object


RECORDS, RESULTS = "attnfaith-records", "attnfaith-results"
CARD = "README.md"
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

    kind: "model", "dataset" or "space". files: {path in the repository: content}. role: "checkpoint", "records", "results"
    or "metric". checkpoints: those that the records or results are about; records and results of others there stay.
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
    """The repositories of a push. All of it is in memory: the folder of a run may change meanwhile."""

    repos: Sequence[Repo]
    private: bool = False

    def describe(self) -> str:
        """The repositories, their files and sizes."""
        lines = []
        for repo in self.repos:
            shared = " (joins what is there)" if repo.role in ("records", "results") else ""
            lines.append(f"{repo.kind} {repo.repo_id}: {counted(len(repo.files), 'file')}, {size(repo.size())}{shared}")
            lines += [f"  {size(len(content)):>9}  {path}" for path, content in sorted(repo.files.items())]
        total = size(sum(repo.size() for repo in self.repos))
        return "\n".join([*lines, f"{total} in all{', private' if self.private else ''}"])


def size(count: float) -> str:
    """Return a number of bytes as a text: "812 B", "4.1 kB", "23.0 MB"."""
    for unit, factor in {"MB": 1e6, "kB": 1e3}.items():
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


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
    disable_progress_bar()  # of loading, which takes no time
    if not (folder / "run.json").is_file() or not (folder / "recipe.yaml").is_file():
        raise HubError(f"{folder} is no run (run.json, recipe.yaml): give the output_dir of one")
    with folder_lock(folder, "a push"):
        state, recipe = read_object(folder / "run.json"), recipes.load(folder / "recipe.yaml")
        if state.get("status") != "complete":
            status = state.get("status")
            raise HubError(f"{folder} is not complete ({status!r} in run.json): finish it with --resume_from_checkpoint")
        _check_committed(folder, state.get("provenance"))
        if not (folder / "report" / "tables").is_dir():
            raise HubError(f"{folder} has no report, whose tables are pushed too: attnfaith report {folder} writes it")
        repo_id = repo_id_of(owner, cards.checkpoint_name(recipe.name) if name is None else name)
        tables = _read_records(folder)
        _check_model(folder / "model", tables)
        state = without_places(state)
        files = {path.name: path.read_bytes() for path in sorted(folder.glob("model/*")) if path.suffix in SUFFIXES}
        files["config.json"] = as_json(without_places(json.loads(files["config.json"])))
        files["run.json"] = as_json(state)
        files["recipe.yaml"] = recipes.dump(recipes.build(without_places(asdict(recipe)))).encode()
        dataset = facts(records.settings(next(iter(tables.values())))[0]["recipe"]["data"])
        files |= cards.model_card(state, [*tables.values()], repo_id, dataset, **shared)
        record_files, cells = {}, {}
        for path, table in tables.items():
            config = repo_id.partition("/")[2] + ("" if path.stem == "record" else f".{path.stem}")
            record_files |= record_file(table, config, records.settings(table)[0]["identity"]["split"])
            cells[config] = cards.cell_facts(state, table, model_repo=repo_id)
        record_files |= summary_files(shared["records_repo"], cells)
        results = _results(folder / "report" / "tables", repo_id)
    repos = [
        Repo("space", repo_id_of(owner, METRIC_NAME), folder_files(METRIC_DIR), "metric"),
        Repo("dataset", shared["records_repo"], record_files, "records", (repo_id,)),
        Repo("dataset", shared["results_repo"], table_files(shared["results_repo"], results), "results", (repo_id,)),
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
    split = re.sub(r"\W+", "_", identity.split)
    cell = {**cards.cell_facts({}, table, model_repo=None), "split": split}
    files = {**record_file(table, config, split), **summary_files(repo_id, {config: cell})}
    return Plan([Repo("dataset", repo_id, files, "records")], private)


# ------------------------------------------------------------------------------------------------ a run


def _check_committed(folder: Path, provenance: Mapping | None) -> None:
    """Raise HubError where no commit holds the code; an installed package, without a commit, is named by its version."""
    provenance = provenance or {}
    installed = provenance.get("version") and provenance.get("commit") is None and provenance.get("dirty") is None
    if provenance.get("dirty") is not False and not installed:
        raise HubError(f"{folder} was made by unknown code or uncommitted changes: commit them, run it anew, then push")


def _read_records(folder: Path) -> dict[Path, pa.Table]:
    """The records of a run by path, its own first, without local places."""
    own = folder / "record.parquet"
    tables = {}
    for path in (own, *sorted({*folder.glob("*.parquet")} - {own})):
        table = records.load(path)
        settings = records.settings(table)
        if records.of_sequences(table):
            raise HubError(f"{folder} is a run of sentence pairs: push its record, attnfaith.load(RUN).push_to_hub(NAME)")
        if len(settings) != 1 or not {"recipe", "model", "identity"} <= set(settings[0]):
            raise HubError(f"{path} is not the record of one run: measure the run again, or move it away")
        _check_committed(folder, settings[0].get("provenance"))
        tables[path] = records.with_settings(table, without_places(settings))
    return tables


def _check_model(folder: Path, tables: Mapping[Path, pa.Table]) -> None:
    """Raise HubError unless a checkpoint has a model type of this package and the weights of every record."""
    model = load_model(folder)
    if model.config.model_type not in MODEL_TYPES:
        raise HubError(f"{folder} holds a {model.config.model_type}: push it with that model's own push_to_hub")
    digest = subject_of(model).digest()
    other = [path for path, table in tables.items() if records.settings(table)[0]["model"] != digest]
    if other:
        raise HubError(f"{folder} has other weights than {other[0]} was measured with: measure it again, then push")


def without_places(value, key: str | None = None):
    """Return JSON whose absolute paths, in keys that hold paths, are cut to their last part."""
    if isinstance(value, Mapping):
        return {name: without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_places(item, key) for item in value]
    if key in PLACES and isinstance(value, str) and (value.startswith("~") or os.path.isabs(value)):
        return Path(value).name
    return value


def folder_files(folder: Path) -> dict[str, bytes]:
    """{path: content} of the files below a folder, without bytecode."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# ------------------------------------------------------------------------------------------------ records and tables


def as_json(value) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def parquet(table: pa.Table) -> bytes:
    """Return the content of a parquet file."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue().to_pybytes()


def record_file(table: pa.Table, config: str, split: str) -> dict[str, bytes]:
    """Return {path in the repository: content}; `Dataset.push_to_hub` would lose the settings in the schema of a record."""
    return {f"{config}/{split}-00000-of-00001.parquet": parquet(table)}


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


def _results(folder: Path, checkpoint: str) -> dict[str, list[pa.Table]]:
    """The result tables of a run's report, with a first column that names the checkpoint."""
    tables = {}
    for path in sorted(folder.glob("*.parquet")):
        table = records.plain(pq.read_table(path, partitioning=None))  # no dictionaries and notes, in which pushes differ
        tables[path.stem] = [table.add_column(0, CHECKPOINT, pa.array([checkpoint] * table.num_rows, pa.string()))]
    return tables
