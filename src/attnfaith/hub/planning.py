"""What a push would send, read and rendered without asking the network."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from transformers.utils.logging import disable_progress_bar

from attnfaith import record as records
from attnfaith.data.registry import DATASETS, facts
from attnfaith.errors import excerpt
from attnfaith.files import read_object
from attnfaith.hub import checks
from attnfaith.hub.repo import CARD, CELLS, RESULTS, HubError, Plan, Repo, as_json, repo_id_of, shared_repos
from attnfaith.hub.tables import join, parquet, table_files, with_checkpoint
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME
from attnfaith.reporting import cards
from attnfaith.reporting.cells import one_cell


CONFIG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
PLACES = {"path", "gates", "output_dir", "base", "folder", "vectors", "source", "tokenizer", "pretrained"}
"""Keys whose values are paths."""


def plan(
    run: str | os.PathLike | Sequence[str | os.PathLike],
    owner: str,
    *,
    name: str | None = None,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    with_results: bool = True,
) -> Plan:
    """What pushing one or more finished runs would send; the network is not asked.

    The checkpoint of a run goes to <owner>/<name> (name: `cards.checkpoint_name` of its recipe's unless given), its record
    to <owner>/attnfaith-records, the tables of its report to <owner>/attnfaith-results unless with_results is false.
    private: new repositories are private. revision: branch, made where it is missing. create_pr: as pull requests.

    Raises HubError for a name that the Hub does not allow, and for a run that is not complete, was made by code that no
    commit holds, has a checkpoint of another kind or with other weights than were measured, is being written, or names a
    folder of this machine where others would read it; RecordError for a broken record.
    """
    folders = [Path(run)] if isinstance(run, str | os.PathLike) else [Path(folder) for folder in run]
    if name is not None and len(folders) > 1:
        raise HubError(f"--name {name} for {len(folders)} runs: a name is for one of them; leave it out")
    runs = []
    disable_progress_bar()  # of loading, which takes no time
    shared = shared_repos(owner)
    for folder in folders:
        checks.check_folder(folder)
        runs.append(_read_run(folder, owner, name, shared))
        checks.check_folder(folder)
    names = tuple(read.repo.repo_id for read in runs)
    for repo_id in names:
        if names.count(repo_id) > 1:
            raise HubError(f"two runs would be {repo_id}: push them one by one, with --name")
    record_files, cells, tables = {}, {}, {}
    for read in runs:
        record_files |= read.record_files
        cells |= read.cells
        for table_name, table in read.tables.items():
            tables.setdefault(table_name, []).append(table)
    record_files |= summary_files(shared["records_repo"], cells)
    repos = [metric_repo(owner), Repo("dataset", shared["records_repo"], record_files, "records", names)]
    if with_results:
        joined = {table_name: join(table_name, parts) for table_name, parts in tables.items()}
        repos.append(results_repo(shared["results_repo"], joined, names))
    repos += [read.repo for read in runs]
    for repo in repos:
        checks.check_places(repo, folders if repo.role != "metric" else [])
    return Plan(repos, private, revision, create_pr)


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
    paths = sorted(Path(tables).glob("*.parquet"))
    if not paths:
        raise HubError(f"{tables} holds no tables (*.parquet): make the study's tables first")
    headings = {}
    for name, run in runs.items():
        settings = records.settings(pq.read_schema(Path(run) / "record.parquet"))
        headings[repo_id_of(owner, name)] = records.Identity(**settings[0]["identity"]).heading
    results = {path.stem: with_checkpoint(pq.read_table(path, partitioning=None), headings) for path in paths}
    repo = results_repo(repo_id_of(owner, RESULTS), results, tuple(headings))
    checks.check_places(repo, runs.values())
    return Plan([repo], private, revision, create_pr)


def plan_record(table: pa.Table, repo_id: str, *, config: str = "default", private: bool = False) -> Plan:
    """What pushing a record of one model, that no run made, to the data set `repo_id` would send; the network is not asked.

    config: its configuration there; one of that name is replaced, others stay.

    Raises HubError for a name that the Hub does not allow, a record of several models, and one whose settings name a
    folder of this machine.
    """
    owner, _, name = str(repo_id).rpartition("/")
    repo_id = repo_id_of(owner, name)
    if not isinstance(config, str) or not CONFIG.fullmatch(config):
        raise HubError(f"config={excerpt(config)}: letters, digits, '-', '_' and '.', 80 at most")
    try:
        identity = one_cell(table).identity
    except ValueError as error:
        raise HubError(f"one record of one model is pushed at a time: {error}") from error
    table = records.with_settings(table, without_places(records.settings(table)))
    split = re.sub(r"\W+", "_", identity.split)
    cell = {**cards.cell_facts({}, table, model_repo=None), "split": split}
    files = {**record_file(table, config, split), **summary_files(repo_id, {config: cell})}
    repo = Repo("dataset", repo_id, files, "records")
    checks.check_places(repo)
    return Plan([repo], private)


class _Run(NamedTuple):
    """What is sent of a run: the repository of its checkpoint; the files of its records, and the facts about each of them by
    configuration; the tables of its report by name.
    """

    repo: Repo
    record_files: dict[str, bytes]
    cells: dict[str, dict]
    tables: dict[str, pa.Table]


def _read_run(folder: Path, owner: str, name: str | None, shared: Mapping[str, str]) -> _Run:
    try:
        state = read_object(folder / "run.json")
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise HubError(f"{folder} holds a run.json or recipe.yaml that cannot be read: {excerpt(error, 300)}") from error
    if not isinstance(recipe, dict) or not isinstance(recipe.get("name"), str):
        raise HubError(f"{folder / 'recipe.yaml'} is no recipe of a run: give the output_dir of one")
    checks.check_finished(folder, state)
    repo_id = repo_id_of(owner, cards.checkpoint_name(recipe["name"]) if name is None else name)
    tables = _read_records(folder, recipe, state)
    checks.check_files(folder / "model")
    files = {path.name: path.read_bytes() for path in sorted((folder / "model").iterdir())}
    digests = {path: records.settings(table)[0]["model"] for path, table in tables.items()}
    checks.check_model(folder / "model", digests)
    state = without_places(state)
    name = repo_id.partition("/")[2]
    sent, record_files, cells = [], {}, {}
    for path, table in tables.items():
        settings = without_places(records.settings(table))
        table = records.with_settings(table, settings)
        config = name if path.stem == "record" else f"{name}.{path.stem}"
        record_files |= record_file(table, config, settings[0]["identity"]["split"])
        cells[config] = cards.cell_facts(state, table, model_repo=repo_id)
        sent.append(table)
    files["config.json"] = as_json(without_places(json.loads(files["config.json"])))
    files["run.json"] = as_json(state)
    files["recipe.yaml"] = yaml.safe_dump(without_places(recipe), sort_keys=False, allow_unicode=True).encode()
    files |= _card_files(folder, repo_id, state, sent, shared)
    headings = {repo_id: records.Identity(**records.settings(sent[0])[0]["identity"]).heading}
    report = {
        path.stem: with_checkpoint(pq.read_table(path, partitioning=None), headings)
        for path in sorted((folder / "report" / "tables").glob("*.parquet"))
    }
    return _Run(Repo("model", repo_id, files, "checkpoint"), record_files, cells, report)


def _read_records(folder: Path, recipe: Mapping, state: Mapping) -> dict[Path, pa.Table]:
    """The records of a run by path, its own first. Raises HubError where one is of another run."""
    own = folder / "record.parquet"
    tables = {path: records.load(path) for path in (own, *sorted({*folder.glob("*.parquet")} - {own}))}
    for path, table in tables.items():
        if records.of_sequences(table):
            raise HubError(
                f"{folder} is a run of sentence pairs, and model cards are of classifiers: push its record alone, with "
                f"attnfaith.load({str(folder)!r}).push_to_hub(…)"
            )
        settings = records.settings(table)
        if len(settings) != 1 or not {"recipe", "model", "identity"} <= set(settings[0]):
            raise HubError(f"{path} is not the record of one run: measure the run again, or move it away")
        checks.check_committed(folder, settings[0].get("provenance") or {})
        sections = (*checks.SECTIONS, "measure") if path == own else checks.SECTIONS  # others may be measured otherwise
        checks.check_one_run(path, settings[0], recipe, state, sections)
    return tables


def _card_files(
    folder: Path, repo_id: str, state: Mapping, tables: Sequence[pa.Table], shared: Mapping[str, str]
) -> dict[str, bytes]:
    """The card of a checkpoint, its figures and evaluation results."""
    figures = folder / "report" / "figures"
    names = sorted(path.stem for path in figures.glob("*.png"))
    dataset = facts(records.settings(tables[0])[0]["recipe"]["data"])
    card = cards.model_card(state, tables, repo_id=repo_id, dataset=dataset, figures=names, **shared)
    files = {CARD: card.encode()}
    for path, figure in cards.card_figures(repo_id, names).items():
        files[path] = (figures / f"{figure}.png").read_bytes()
    files |= cards.answer_files(cards.Checkpoint(state, tables), repo_id)
    results = cards.eval_results(tables, dataset=dataset, records_repo=shared["records_repo"])
    return files | {path: text.encode() for path, text in results.items()}


def without_places(value, key: str | None = None):
    """JSON in which absolute paths, of keys that hold paths, are cut to their last part."""
    if isinstance(value, Mapping):
        return {name: without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_places(item, key) for item in value]
    if key in PLACES and isinstance(value, str) and (value.startswith("~") or os.path.isabs(value)):
        return Path(value).name
    return value


def record_file(table: pa.Table, config: str, split: str) -> dict[str, bytes]:
    """{path in the repository: content}; `Dataset.push_to_hub` would lose the settings in the schema of a record."""
    return {f"{config}/{split}-00000-of-00001.parquet": parquet(table, "zstd")}


def summary_files(repo_id: str, cells: Mapping[str, Mapping]) -> dict[str, bytes]:
    """The card of a repository of records and the facts about each of them, by configuration."""
    cells = dict(sorted(cells.items()))
    datasets = {name: facts(name) for name in {cell["dataset"] for cell in cells.values()} if name in DATASETS}
    return {CARD: cards.records_card(cells, repo_id=repo_id, datasets=datasets).encode(), CELLS: as_json(cells)}


def results_repo(repo_id: str, tables: Mapping[str, pa.Table], checkpoints: tuple[str, ...]) -> Repo:
    return Repo("dataset", repo_id, table_files(repo_id, tables), "results", checkpoints)


def metric_repo(owner: str) -> Repo:
    """The metric's Space."""
    files = {
        path.relative_to(METRIC_DIR).as_posix(): path.read_bytes()
        for path in sorted(METRIC_DIR.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return Repo("space", repo_id_of(owner, METRIC_NAME), files, "metric")
