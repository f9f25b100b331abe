"""What pushing runs would send, read and rendered without asking the network."""

import itertools
import json
import math
import os
import shutil
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
from attnfaith.files import TemporaryFolder, read_object
from attnfaith.hub.checks import check_clean, check_finished, check_model, check_one_run, refuse_places, stamps_of
from attnfaith.hub.repo import (
    CARD,
    CELLS,
    RESULTS,
    HubError,
    Plan,
    Repo,
    as_json,
    bytes_of,
    check_same,
    repo_id_of,
    shared_repos,
    stamp_of,
)
from attnfaith.hub.tables import joined, repo_of_results, with_checkpoint
from attnfaith.metrics.registration import METRIC_DIR, METRIC_NAME
from attnfaith.reporting import cards


SHARD_BYTES = 500_000_000
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
    shard_bytes: int = SHARD_BYTES,
) -> Plan:
    """What pushing one or more finished runs would send; the network is not asked.

    The checkpoint of a run goes to <owner>/<name> (name: `cards.checkpoint_name` of its recipe's unless given), its record
    to <owner>/attnfaith-records, the tables of its report to <owner>/attnfaith-results unless with_results is false.
    private: new repositories are private. revision: branch, made where it is missing. create_pr: as pull requests.
    shard_bytes: largest file of a record.

    Raises HubError for a name that the Hub does not allow, and for a run that is not complete, was made by code that no
    commit holds, has a checkpoint of another kind or with other weights than were measured, changes while it is read, or
    names a folder of this machine where others would read it; RecordError for a broken record.
    """
    folders = [Path(run)] if isinstance(run, str | os.PathLike) else [Path(one) for one in run]
    if name is not None and len(folders) > 1:
        raise HubError(f"--name {name} for {len(folders)} runs: a name is for one of them; leave it out")
    kept = TemporaryFolder()
    read, sources = [], {}
    disable_progress_bar()  # of loading, which takes no time; sending keeps its own
    for number, folder in enumerate(folders):
        before = stamps_of(folder)
        one = _read(folder, owner, name, kept.path / str(number), shard_bytes)
        check_same(before)
        sources |= before
        read.append(one)
    names = [one.repo_id for one in read]
    if twice := sorted({repo_id for repo_id in names if names.count(repo_id) > 1}):
        raise HubError(f"two runs would be {twice[0]}: push them one by one, with --name")
    shared = shared_repos(owner)
    records_repo, results_repo = shared["records_repo"], shared["results_repo"]
    repos = [metric_repo(owner), _records_repo(records_repo, read)]
    if with_results:
        tables = joined([_report_tables(one) for one in read])
        repos.append(repo_of_results(results_repo, tables, tuple(names)))
    repos += [_model_repo(one, records_repo, results_repo) for one in read]
    for repo in repos:
        refuse_places(repo, folders if repo.role != "metric" else [])
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
    sources = {path: stamp_of(path) for path in sorted(folder.glob("*.parquet"))}
    if not sources:
        raise HubError(f"{folder} holds no tables (*.parquet): make the study's tables first")
    identities = {}
    for name, run in runs.items():
        made = (pq.read_schema(Path(run) / "record.parquet").metadata or {}).get(b"attnfaith", b"[]")
        identities[repo_id_of(owner, name)] = records.Identity(**json.loads(made)[0]["identity"]).heading
    results = {path.stem: with_checkpoint(pq.read_table(path, partitioning=None), identities) for path in sources}
    repo = repo_of_results(repo_id_of(owner, RESULTS), results, tuple(identities))
    refuse_places(repo, runs.values())
    return Plan([repo], private, revision, create_pr, sources)


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
    def data(self) -> dict:
        """The data section of its recipe."""
        return records.settings(next(iter(self.tables.values())))[0]["recipe"]["data"]

    @property
    def heading(self) -> dict:
        return records.Identity(**records.settings(next(iter(self.tables.values())))[0]["identity"]).heading


def _read(folder: Path, owner: str, name: str | None, copies: Path, shard_bytes: int) -> _Run:
    try:
        state = read_object(folder / "run.json")
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        said = excerpt(error, 300)
        raise HubError(f"{folder} holds a run.json or recipe.yaml that cannot be read: {said}") from error
    if not isinstance(recipe, dict) or not isinstance(recipe.get("name"), str):
        raise HubError(f"{folder / 'recipe.yaml'} is no recipe of a run: give the output_dir of one")
    check_finished(folder, state)
    repo_id = repo_id_of(owner, cards.checkpoint_name(recipe["name"]) if name is None else name)
    own = folder / "record.parquet"
    paths = [own, *(path for path in sorted(folder.glob("*.parquet")) if path != own)]
    loaded = {path: records.load(path) for path in paths}
    for path, table in loaded.items():
        if records.of_sequences(table):
            raise HubError(
                f"{folder} is a run of sentence pairs, and model cards are of classifiers: push its record alone, with "
                f"attnfaith.load({str(folder)!r}).push_to_hub(…)"
            )
        made = records.settings(table)
        if len(made) != 1 or not {"recipe", "model", "identity"} <= set(made[0]):
            raise HubError(f"{path} is not the record of one run: measure the run again, or move it away")
        check_clean(folder, made[0].get("provenance") or {})
    check_one_run(folder, recipe, state, {path: records.settings(table)[0] for path, table in loaded.items()})
    check_model(folder / "model", {path: records.settings(table)[0]["model"] for path, table in loaded.items()})
    copies.mkdir()
    files: dict[str, Path | bytes] = {}
    for path in sorted((folder / "model").iterdir()):
        files[path.name] = Path(shutil.copyfile(path, copies / path.name))
    config = json.loads(bytes_of(files["config.json"]))
    files["config.json"] = as_json(without_places(config))
    state = without_places(state)
    files["run.json"] = as_json(state)
    files["recipe.yaml"] = yaml.safe_dump(without_places(recipe), sort_keys=False, allow_unicode=True).encode()
    name = repo_id.partition("/")[2]
    tables, shards = {}, {}
    for path, table in loaded.items():
        made = without_places(records.settings(table))
        config = name if path == own else f"{name}.{path.stem}"
        tables[config] = records.with_settings(table, made)
        shards |= write_shards(tables[config], copies / config, f"{config}/{made[0]['identity']['split']}", shard_bytes)
    return _Run(folder, repo_id, state, tables, files, shards)


def without_places(value, key: str | None = None):
    """JSON in which absolute paths, of keys that hold paths, are cut to their last part."""
    if isinstance(value, Mapping):
        return {name: without_places(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [without_places(item, key) for item in value]
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
        shards = {}
        for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
            path = folder / f"{Path(prefix).name}-{number:05d}-of-{count:05d}.parquet"
            pq.write_table(table.slice(start, stop - start), path, compression="zstd")
            shards[f"{Path(prefix).parent}/{path.name}"] = path
        largest = max(path.stat().st_size for path in shards.values())
        if largest <= limit or count >= table.num_rows:
            return shards
        count = min(table.num_rows, max(count + 1, math.ceil(count * largest / limit)))


def _records_repo(repo_id: str, runs: Sequence[_Run]) -> Repo:
    cells = {
        config: cards.cell_facts(run.state, table, model_repo=run.repo_id)
        for run in runs
        for config, table in run.tables.items()
    }
    shards = {path: file for run in runs for path, file in run.shards.items()}
    return Repo(
        "dataset", repo_id, {**shards, **records_files(repo_id, cells)}, "records", tuple(run.repo_id for run in runs)
    )


def records_files(repo_id: str, cells: Mapping[str, Mapping]) -> dict[str, bytes]:
    """Card and list of the cells of a repository of records."""
    cells = dict(sorted(cells.items()))
    known = {name: facts(name) for name in {cell["dataset"] for cell in cells.values()} if name in DATASETS}
    return {CARD: cards.records_card(cells, repo_id=repo_id, datasets=known).encode(), CELLS: as_json(cells)}


def _model_repo(run: _Run, records_repo: str, results_repo: str) -> Repo:
    figures = run.folder / "report" / "figures"
    at_hand = sorted(path.stem for path in figures.glob("*.png"))
    dataset = facts(run.data)
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
    files |= cards.answer_files(cards.Checkpoint(run.state, list(run.tables.values())), run.repo_id)
    for path, text in cards.eval_results(list(run.tables.values()), dataset=dataset, records_repo=records_repo).items():
        files[path] = text.encode()
    return Repo("model", run.repo_id, files, "checkpoint")


def metric_repo(owner: str) -> Repo:
    """The metric's Space."""
    files = {
        path.relative_to(METRIC_DIR).as_posix(): path.read_bytes()
        for path in sorted(METRIC_DIR.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return Repo("space", repo_id_of(owner, METRIC_NAME), files, "metric")


def _report_tables(run: _Run) -> dict[str, pa.Table]:
    paths = sorted((run.folder / "report" / "tables").glob("*.parquet"))
    return {path.stem: with_checkpoint(pq.read_table(path, partitioning=None), {run.repo_id: run.heading}) for path in paths}
