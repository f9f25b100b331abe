"""Finished runs as repositories of the Hub: `plan` reads what a push sends, without the network; `push` sends it.

A run becomes three repositories: the metric's Space, a data set of records and the model with its card. In the data set each
run has a folder: its record, the tables of its report and `cell.json`, the facts from which the card of all is written. Each
repository changes by one commit or not at all, so a push that was interrupted is run again. huggingface_hub decides the
address of the Hub and the user: HF_ENDPOINT, HF_TOKEN.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
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


RECORDS = "attnfaith-records"
CELL = "cell.json"
MODEL_TYPES = (AttentionClassifierConfig.model_type, RationaleClassifierConfig.model_type)  # that are pushed here
SUFFIXES = (".json", ".py", ".safetensors")  # of the files of a checkpoint that are sent: nothing pickled


class HubError(AttnfaithError):
    """A run that cannot be pushed, or a push that failed. The message names what to do."""


@dataclass(frozen=True)
class Repo:
    """The content of one repository, {path in it: content}.

    kind: "model", "dataset" or "space". replaced: a regular expression of the files there that a push replaces, or deletes
    where it no longer contains them. Others stay.
    """

    kind: str
    repo_id: str
    files: Mapping[str, bytes]
    replaced: str

    def __str__(self) -> str:
        size = sum(map(len, self.files.values()))
        return f"{self.kind} {self.repo_id}: {counted(len(self.files), 'file')}, {size / 1e6:,.1f} MB"

    def listing(self) -> str:
        """Return its files and their sizes, as a text for a terminal."""
        lines = [f"  {len(content) / 1e3:>9,.1f} kB  {path}" for path, content in sorted(self.files.items())]
        return "\n".join([str(self), *lines])


def repo_id_of(owner: str, name: str) -> str:
    """Return <owner>/<name>. Raises HubError where the Hub does not allow it."""
    repo_id = f"{owner}/{name}"
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise HubError(f"{repo_id!r} is no name of a repository ({error}); give another with --name or --to") from error
    return repo_id


def plan(run: str | os.PathLike, owner: str, *, name: str | None = None) -> list[Repo]:
    """Return the repositories that pushing a finished run would send, in memory; the network is not asked.

    The checkpoint goes to <owner>/<name> (name: `cards.checkpoint_name` of its recipe's unless given), its record and the
    tables of its report to <owner>/attnfaith-records.

    Raises RecipeError where there is no run, HubError for a name that the Hub does not allow, and a run that is not
    complete, has no report or was made by code that no commit holds; FileError where it is being written, ModelError and
    RecordError for a broken model or record.
    """
    folder, records_repo = Path(run), repo_id_of(owner, RECORDS)
    recipe = recipes.load(folder / RECIPE)
    with folder_lock(folder, "a push"):
        state = read_object(folder / STATE)
        if state.get("status") != "complete":
            raise HubError(f"{folder} is {state.get('status')!r}, not complete: finish it with --resume_from_checkpoint")
        _check_committed(folder, state.get("provenance"))
        table, state = _read_record(folder), cards.public(state)
        tables = {f"tables/{path.name}": path.read_bytes() for path in (folder / "report" / "tables").glob("*.csv")}
        if not tables:
            raise HubError(f"{folder} has no report, whose tables are pushed too: attnfaith report {folder} writes it")
        repo_id = repo_id_of(owner, cards.checkpoint_name(recipe.name) if name is None else name)
        files = {path.name: path.read_bytes() for path in folder.glob(f"{MODEL}/*") if path.suffix in SUFFIXES}
    files["config.json"] = as_json(cards.public(json.loads(files["config.json"])))
    files[STATE] = as_json(state)
    files[RECIPE] = recipes.dump(recipes.build(cards.public(asdict(recipe)))).encode()
    dataset = facts(records.settings(table)[0]["recipe"]["data"])
    files |= cards.model_card(state, [table], repo_id, dataset, records_repo=records_repo)
    cell = cards.cell_facts(state, table, model_repo=repo_id)
    metric = {path.name: path.read_bytes() for path in METRIC_DIR.iterdir() if path.is_file()}
    return [
        Repo("space", repo_id_of(owner, METRIC_NAME), metric, r"[^/]+\.py"),
        _record_repo(records_repo, repo_id.partition("/")[2], table, cell, tables),
        Repo("model", repo_id, files, r"[^/]+\.(json|py|safetensors)|figures/[^/]+\.(png|svg)"),
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
    return [_record_repo(repo_id, config, table, {**cards.cell_facts({}, table, model_repo=None), "split": split}, {})]


def _check_committed(folder: Path, provenance: Mapping | None) -> None:
    """Raise HubError where no commit holds the code; an installed package, without a commit, is named by its version."""
    provenance = provenance or {}
    installed = provenance.get("version") and provenance.get("commit") is None and provenance.get("dirty") is None
    if provenance.get("dirty") is not False and not installed:
        raise HubError(f"{folder} was made by unknown code or uncommitted changes: commit them, run it anew, then push")


def _read_record(folder: Path) -> pa.Table:
    """The record of a run without local places. Raises HubError unless it is one of this very model, of this package."""
    table = records.load(folder / RECORD)
    if records.of_sequences(table):
        raise HubError(f"{folder} is a run of sentence pairs: push its record, attnfaith.load(RUN).push_to_hub(NAME)")
    (settings,) = records.settings(table)
    _check_committed(folder, settings.get("provenance"))
    model = load_model(folder / MODEL)
    if model.config.model_type not in MODEL_TYPES:
        raise HubError(f"{folder} holds a {model.config.model_type}: push it with that model's own push_to_hub")
    if subject_of(model).digest() != settings["model"]:
        raise HubError(f"{folder} has other weights than {RECORD} was measured with: measure it again, then push")
    return records.with_settings(table, cards.public([settings]))


def as_json(value) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _record_repo(repo_id: str, config: str, table: pa.Table, cell: Mapping, tables: Mapping[str, bytes]) -> Repo:
    """A record as a configuration of a repository, with its tables and card. cell: the facts about it."""
    buffer = pa.BufferOutputStream()  # `Dataset.push_to_hub` would lose the settings in the schema
    pq.write_table(table, buffer, compression="zstd")
    content = {f"{cell['split']}-00000-of-00001.parquet": buffer.getvalue().to_pybytes(), CELL: as_json(cell), **tables}
    files = {f"{config}/{path}": file for path, file in content.items()}
    return Repo("dataset", repo_id, {**files, CARD: _records_card(repo_id, files)}, f"{re.escape(config)}/.+")


def _records_card(repo_id: str, files: Mapping[str, bytes]) -> bytes:
    """The card of a data set of records with these files: the facts about each are in <configuration>/cell.json."""
    cells = {
        path.partition("/")[0]: json.loads(content) for path, content in sorted(files.items()) if path.endswith(f"/{CELL}")
    }
    datasets = {name: facts(name) for name in {cell["dataset"] for cell in cells.values()} if name in DATASETS}
    return cards.records_card(cells, repo_id=repo_id, datasets=datasets).encode()


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
    for repo in repos:
        print(repo, flush=True)
        with _named(repo.repo_id):
            addresses.append(_send(api, repo, private=private))
    return addresses


def check(owner: str, *, api: HfApi | None = None) -> None:
    """Raise HubError where there is no valid token, the owner is neither its user nor one of its organisations, and where
    the Hub is not reached.
    """
    with _named("the Hub"):
        user = (api or HfApi()).whoami()
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
        raise HubError(f"{place}: {excerpt(error, 300).rstrip('.')}. What is there is kept: push again") from error


def _check_existing(api: HfApi, repo: Repo, *, private: bool) -> None:
    """Raise HubError where a repository holds files and no card of a push, or is public and is to be private."""
    if not api.repo_exists(repo.repo_id, repo_type=repo.kind):
        return
    info = api.repo_info(repo.repo_id, repo_type=repo.kind)
    if private and not info.private and repo.kind != "space":
        raise HubError(f"{repo.repo_id} is public: make it private on the Hub, or push without --private")
    paths = sorted({sibling.rfilename for sibling in info.siblings} - {".gitattributes", CARD})
    if paths and cards.TAG not in info.tags:
        files = ", ".join(paths[:8])
        raise HubError(f"{repo.repo_id} ({repo.kind}) holds files that no push wrote ({files}): give another --name or --to")


def _send(api: HfApi, repo: Repo, *, private: bool) -> str:
    """Bring one repository to the content of the plan; return its address."""
    where, files = {"repo_id": repo.repo_id, "repo_type": repo.kind}, dict(repo.files)
    address = api.create_repo(**where, private=private, exist_ok=True, space_sdk="gradio" if repo.kind == "space" else None)
    info = api.repo_info(**where)
    if repo.kind == "dataset":
        there = Path(api.snapshot_download(**where, revision=info.sha, allow_patterns=f"*/{CELL}"))
        others = {path.relative_to(there).as_posix(): path.read_bytes() for path in there.glob(f"*/{CELL}")}
        files[CARD] = _records_card(repo.repo_id, {**others, **files})
    paths = [sibling.rfilename for sibling in info.siblings]
    stale = [path for path in paths if path not in files and re.fullmatch(repo.replaced, path)]
    # from memory: a folder of files to upload would stay behind where a push is killed
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    operations += map(CommitOperationDelete, stale)
    # onto the commit that was read: after another one meanwhile the Hub answers 412
    commit = api.create_commit(**where, operations=operations, commit_message="Push a run", parent_commit=info.sha)
    print(f"{'as it was' if commit.oid == info.sha else 'changed'}: {address}", flush=True)
    return str(address)
