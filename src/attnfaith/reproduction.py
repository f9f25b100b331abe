"""A recorded run carried out again, and which of its numbers come out the same.

What is run is the recipe, by the code that is installed here; no code and no weights of the source are used. A number agrees
exactly, within rounding (the three decimals that tables and cards print: a difference of at most 0.0005), or not.
"""

import csv
import dataclasses
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from huggingface_hub import HfApi, ModelCard, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils import validate_repo_id

from attnfaith import recipes, record, runs
from attnfaith.errors import AttnfaithError
from attnfaith.files import write_atomically
from attnfaith.recipes import Recipe


EXACTLY, ROUNDED, NOT = "exactly", "within rounding", "not"
ROUNDING = 0.0005
# of run.json: numbers that the recipe decides; not seconds, versions and places
NUMBERS = ("dataset", "sizes", "truncated", "vocabulary", "epochs", "best", "attention_faithfulness")
EXPLAINS = ("version", "code", "commit", "dirty", "libraries", "python", "platform", "device")
REACHES_OUT = ("report_to", "run_name")  # training arguments that have no part in the numbers
TABLE = "reproduction.csv"


class ReproductionError(AttnfaithError):
    """A run that cannot be carried out again. The message says why and what to do."""


class Compared(NamedTuple):
    """One number, or one column of the record: recorded, found, the difference (NaN where they are no numbers), verdict."""

    name: str
    recorded: object
    found: object
    difference: float
    agreement: str


class Source(NamedTuple):
    """What was recorded of a run; table is None where its record is not to be had."""

    name: str
    recipe: Recipe
    run: dict
    table: pa.Table | None


class Reproduction(NamedTuple):
    """What came of it. folder: the new run. rows: every number compared. differing: what of its provenance is another."""

    folder: Path
    rows: list[Compared]
    differing: dict[str, tuple[object, object]]

    @property
    def agrees(self) -> bool:
        """Whether every number agrees exactly or within rounding."""
        return all(row.agreement != NOT for row in self.rows)


def reproduce(
    source: str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    records_repo: str | None = None,
    revision: str | None = None,
) -> Reproduction:
    """Train and measure anew what `source` records, and compare.

    source: the folder of a finished run, or the id of its model repository on the Hub. output: folder of the new run, by
    default runs/reproduced/<name>; a reproduction that was stopped there goes on, a finished one is compared again.
    records_repo: data set repository of the record, by default the one that the model's card names. revision: of the model
    repository.

    Writes <output>/reproduction.csv. Raises ReproductionError where the source is no finished run or cannot be read, and
    what `runs.run` raises; all before the training starts.
    """
    source = read(source, records_repo=records_repo, revision=revision)
    folder = Path(output) if output is not None else Path("runs") / "reproduced" / source.name
    recipe = dataclasses.replace(source.recipe, output_dir=str(folder))
    runs.run(recipe, resume=True)
    state = runs.read_state(folder)
    rows = list(compare_numbers(source.run, state))
    if source.table is not None:
        rows += compare_records(source.table, record.load(folder / runs.RECORD))
    done = Reproduction(folder, rows, differing(source.run, state))
    _write(done)
    return done


# ------------------------------------------------------------------------------------------------ the source


def read(source: str | os.PathLike, *, records_repo: str | None = None, revision: str | None = None) -> Source:
    """Recipe, run.json and record of a folder or a repository. Raises ReproductionError where they cannot be had."""
    folder = Path(source)
    if folder.is_dir():
        found = {name: folder / name for name in (runs.RECIPE, runs.STATE)}
        if missing := [name for name, path in found.items() if not path.is_file()]:
            raise ReproductionError(f"{folder} is no run ({', '.join(missing)} missing there); give the output_dir of one")
        table = record.load(folder / runs.RECORD) if (folder / runs.RECORD).is_file() else None
        return _source(folder.resolve().name, found, table)
    try:
        validate_repo_id(str(source))
    except ValueError as error:
        raise ReproductionError(f"{source} is no folder, and no name of a repository on the Hub: {error}") from error
    repo_id = str(source)
    try:
        found = {name: Path(hf_hub_download(repo_id, name, revision=revision)) for name in (runs.RECIPE, runs.STATE)}
        table = _downloaded_record(repo_id, records_repo, revision)
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError, HfHubHTTPError, OSError) as error:
        said = " ".join(str(error).split())
        raise ReproductionError(
            f"{repo_id} is no folder here and cannot be read from the Hub ({type(error).__name__}: {said[:200]}): it needs "
            f"{runs.RECIPE} and {runs.STATE}, and a token where it is private"
        ) from error
    return _source(repo_id.rpartition("/")[2], found, table)


def _source(name: str, found: Mapping[str, Path], table: pa.Table | None) -> Source:
    try:
        run = json.loads(found[runs.STATE].read_text(encoding="utf-8"))
    except ValueError as error:
        raise ReproductionError(f"{name}: {runs.STATE} cannot be read: {error}") from error
    if not isinstance(run, dict) or run.get("status") != "complete":
        status = run.get("status") if isinstance(run, dict) else None
        raise ReproductionError(f"{name} is not complete ({runs.STATE} says {status!r}): there are no numbers to compare")
    recipe = recipes.load(found[runs.RECIPE])
    arguments = {key: value for key, value in recipe.training.arguments.items() if not key.startswith(REACHES_OUT)}
    return Source(
        name, dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, arguments=arguments)), run, table
    )


def _downloaded_record(repo_id: str, records_repo: str | None, revision: str | None) -> pa.Table | None:
    """The record of a released checkpoint; None where no repository of records holds it."""
    owner, _, name = repo_id.rpartition("/")
    try:
        card = ModelCard(Path(hf_hub_download(repo_id, "README.md", revision=revision)).read_text(encoding="utf-8"))
        said = card.data.get("attnfaith") or {}
    except (EntryNotFoundError, ValueError, yaml.YAMLError):
        said = {}
    records_repo = records_repo or said.get("records")
    if records_repo is None:
        return None
    config = said.get("configuration") or name
    files = HfApi().list_repo_files(records_repo, repo_type="dataset")
    shards = sorted(path for path in files if path.startswith(f"{config}/") and path.endswith(".parquet"))
    if not shards:
        return None
    return pa.concat_tables([record.load(hf_hub_download(records_repo, path, repo_type="dataset")) for path in shards])


# ------------------------------------------------------------------------------------------------ comparing


def compare_numbers(recorded: Mapping, found: Mapping) -> Iterator[Compared]:
    """The numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (dict(_flat({name: run[name] for name in NUMBERS if name in run})) for run in (recorded, found))
    for name in old:
        if name not in new:
            yield Compared(name, old[name], "missing", math.nan, NOT)
            continue
        yield _compare(name, old[name], new[name])


def _flat(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _compare(name: str, recorded: object, found: object) -> Compared:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (recorded, found)):
        difference = abs(recorded - found)
        return Compared(name, recorded, found, difference, _verdict(difference))
    same = recorded == found  # None is an undefined number
    return Compared(name, recorded, found, 0.0 if same else math.nan, EXACTLY if same else NOT)


def _verdict(difference: float) -> str:
    return EXACTLY if difference == 0 else ROUNDED if difference <= ROUNDING else NOT


def compare_records(recorded: pa.Table, found: pa.Table) -> Iterator[Compared]:
    """The columns of two records, rows matched by instance id: the largest absolute difference of each.

    Identity columns are left out, as they name the run. Undefined (NaN) agrees with undefined only.
    """
    ids = [table.column("instance_id").combine_chunks() for table in (recorded, found)]
    places = pc.index_in(ids[0], ids[1])
    missing = places.null_count
    extra = len(ids[1]) - (len(ids[0]) - missing)
    same = not missing and not extra
    yield Compared("record: texts", len(ids[0]), len(ids[1]), float(missing + extra), EXACTLY if same else NOT)
    weights = [next(iter(record.settings(table)), {}).get("model") for table in (recorded, found)]
    yield _compare("record: weights (SHA-256)", *weights)
    kept = recorded.filter(places.is_valid())
    aligned = found.take(places.drop_null())
    for name in (name for name in recorded.column_names if name not in ("instance_id", *record.IDENTITY_COLUMNS)):
        if name not in found.column_names:
            yield Compared(f"record: {name}", "there", "missing", math.nan, NOT)
            continue
        difference = _largest_difference(kept.column(name).combine_chunks(), aligned.column(name).combine_chunks())
        verdict = NOT if math.isnan(difference) else _verdict(difference)
        yield Compared(f"record: {name}", "", "", difference, verdict)


def _largest_difference(one: pa.Array, other: pa.Array) -> float:
    """Of all values, however they are nested; NaN where shapes, texts or undefined places differ."""
    while pa.types.is_list(one.type) and pa.types.is_list(other.type):
        if not pc.list_value_length(one).equals(pc.list_value_length(other)):
            return math.nan
        one, other = one.flatten(), other.flatten()
    if not pa.types.is_floating(one.type):
        return 0.0 if one.to_pylist() == other.to_pylist() else math.nan
    values = [array.to_numpy(zero_copy_only=False).astype(np.float64) for array in (one, other)]
    undefined = [np.isnan(array) for array in values]
    if not np.array_equal(*undefined):
        return math.nan
    with np.errstate(invalid="ignore"):
        differences = np.where(values[0] == values[1], 0.0, np.abs(values[0] - values[1]))[~undefined[0]]
    return float(differences.max()) if differences.size else 0.0


def differing(recorded: Mapping, found: Mapping) -> dict[str, tuple[object, object]]:
    """What of the provenance is another, {name: (recorded, found)}; libraries by their names, None what was not recorded."""

    def said(run: Mapping) -> dict:
        known = run.get("provenance") or {}
        parts = {name: known.get(name) for name in EXPLAINS if name != "libraries"}
        libraries = known.get("libraries") or {k: v for k, v in run.get("versions", {}).items() if k != "attnfaith"}
        parts |= {f"data of {split}": value for split, value in ((known.get("data") or {}).get("fingerprint") or {}).items()}
        return parts | {"data": (run.get("dataset") or {}).get("revision"), **libraries}

    old, new = said(recorded), said(found)
    return {name: (old[name], new.get(name)) for name in old if old[name] != new.get(name)}


# ------------------------------------------------------------------------------------------------ saying it


def _write(done: Reproduction) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Compared._fields)
    writer.writerows(done.rows)
    write_atomically(done.folder / TABLE, text.getvalue().encode())


def describe(done: Reproduction, most: int = 20) -> str:
    """What agrees and what does not, for a terminal; the numbers that do not agree, the largest differences first."""
    counts = Counter(row.agreement for row in done.rows)
    lines = [f"{len(done.rows)} numbers: " + ", ".join(f"{counts[kind]} agree {kind}" for kind in (EXACTLY, ROUNDED))]
    lines[0] += f", {counts[NOT]} do not"
    apart = sorted((row for row in done.rows if row.agreement == NOT), key=lambda row: -_size(row))
    for row in apart[:most]:
        shown = f"{_shown(row.recorded)} recorded, {_shown(row.found)} now" if row.recorded != "" else "differs"
        size = "" if math.isnan(row.difference) else f" (largest difference {row.difference:.3g})"
        lines.append(f"  not: {row.name}: {shown}{size}")
    if len(apart) > most:
        lines.append(f"  and {len(apart) - most} more")
    if done.differing:
        said = "; ".join(f"{name} {_shown(old)}, now {_shown(new)}" for name, (old, new) in done.differing.items())
        lines.append(f"differs from what is recorded: {said}")
    return "\n".join([*lines, f"all of them: {done.folder / TABLE}"])


def _size(row: Compared) -> float:
    return math.inf if math.isnan(row.difference) else row.difference


def _shown(value: object) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:40]
