"""A recorded run carried out again, and which of its results come out the same.

What is run is the recipe, by the code that is installed here; no code and no weights of the source are used. The texts are
compared first, by their fingerprint. Another machine or number of threads rounds otherwise; training carries that on, and
the weights come out a little different. So weights are told and decide nothing; a result agrees exactly, within its
tolerance, or not. The tolerances, which the table says for each result:

* a column of the record: the difference, a mean over texts, is at most 5 % of the column's spread (its mean absolute
  deviation), or the share that `Column.tolerance` says; of values that are no numbers, at most that share of the texts has
  another one;
* correlations, overlaps, accuracies and others on a fixed scale: 0.01;
* shares of texts: 20 %, or two texts; counts of undefined ones, or of a predicted class: 5 %, or two;
* distances, losses and others without a scale of their own: 5 %, or 1e-7, the rounding of their arithmetic;
* sizes, vocabulary, epochs, tokens and labels: none.
"""

import dataclasses
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils import validate_repo_id

from attnfaith import recipes, record, runs
from attnfaith.data.fingerprint import fingerprint
from attnfaith.errors import AttnfaithError, FileError, counted, excerpt
from attnfaith.escaping import csv_text
from attnfaith.files import read_object, write_atomically
from attnfaith.locate import LocateError, card_of, configurations
from attnfaith.measurement.registry import find, names
from attnfaith.recipes import Recipe


EXACTLY, WITHIN, NOT, TOLD = "exactly", "within tolerance", "not", "told"
ROUNDING, RELATIVE, ON_A_SCALE, SHARE, FEW_TEXTS = 1e-7, 0.05, 0.01, 0.2, 2
EXACT = re.compile(r"^(dataset|translation\.(split|pairs)|sizes|truncated|vocabulary|tokenizer|pretrained|epochs)\b|\.n$")
COUNTS = re.compile(r"(_undefined|_class_\d+_n)$")
SHARES = re.compile(r"(_significant|flip_fraction|share_of_zeros)$")
SCALED = re.compile(r"kendall_tau|tie_ceiling|top_k_overlap|normalised_entropy")
# of run.json: numbers that the recipe decides; not seconds, versions and places
NUMBERS = (
    "dataset",
    "sizes",
    "truncated",
    "vocabulary",
    "tokenizer",
    "pretrained",
    "epochs",
    "best",
    "attention_faithfulness",
    "translation",
)
NAMES = (
    "dataset.name",
    "dataset.revision",
    "dataset.about.assumed",
)  # what the data are called here; their fingerprint says what they are
EXPLAINS = ("version", "commit", "dirty", "libraries", "python", "platform", "device")
TABLE = "reproduction.csv"


class ReproductionError(AttnfaithError):
    """A run that cannot be carried out again. The message says why and what to do."""


class Compared(NamedTuple):
    """One result.

    recorded, now: the number, or the mean of a column; empty of texts and labels. difference, tolerance: in the unit of the
    number (a column: means over texts; values that are no numbers: share of texts); NaN where there is none. identical:
    share of a column's values (or texts) that are the very same. largest: difference of its values. The last two decide
    nothing.
    """

    name: str
    recorded: object
    now: object
    difference: float
    tolerance: float
    agreement: str
    identical: float = math.nan
    largest: float = math.nan


class Source(NamedTuple):
    """What was recorded of a run; table is None where its record is not to be had."""

    name: str
    recipe: Recipe
    run: dict
    table: pa.Table | None


class Reproduction(NamedTuple):
    """What came of it. folder: the new run. rows: every result compared. differing: what of its provenance is another."""

    folder: Path
    rows: list[Compared]
    differing: dict[str, tuple[object, object]]

    @property
    def agrees(self) -> bool:
        """Whether every result agrees exactly or within its tolerance; the weights need not."""
        return all(row.agreement != NOT for row in self.rows)


def reproduce(
    source: str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    records_repo: str | None = None,
    revision: str | None = None,
    data_path: str | None = None,
) -> Reproduction:
    """Train and measure anew what `source` records, and compare.

    source: the folder of a finished run, or the id of its model repository on the Hub. output: folder of the new run, by
    default runs/reproduced/<name>; a reproduction that was stopped there goes on, a finished one is compared again.
    records_repo: data set repository of the record, by default the one that the model's card names. revision: of the model
    repository. data_path: where the source's own data lie, if not where its recipe says; of a run from the Hub it must be
    given, since a stranger's recipe names no file of this machine.

    Writes <output>/reproduction.csv. Raises ReproductionError where the source is no finished run or cannot be read, or the
    texts that are here are others than those it was trained and measured on, and what `runs.run` raises; all before the
    training starts.
    """
    local = Path(source).is_dir()
    source = _with_data(read(source, records_repo=records_repo, revision=revision), data_path, local=local)
    _check_texts(source)
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
        paths = {name: folder / name for name in (runs.RECIPE, runs.STATE)}
        if missing := [name for name, path in paths.items() if not path.is_file()]:
            raise ReproductionError(f"{folder} is no run ({', '.join(missing)} missing there); give the output_dir of one")
        table = record.load(folder / runs.RECORD) if (folder / runs.RECORD).is_file() else None
        return _source(folder.resolve().name, paths, table)
    try:
        validate_repo_id(str(source))
    except ValueError as error:
        raise ReproductionError(f"{source} is no folder, and no name of a repository on the Hub: {error}") from error
    repo_id = str(source)
    try:
        paths = {name: Path(hf_hub_download(repo_id, name, revision=revision)) for name in (runs.RECIPE, runs.STATE)}
        table = _downloaded_record(repo_id, records_repo, revision)
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError, HfHubHTTPError, OSError) as error:
        said = " ".join(str(error).split())
        raise ReproductionError(
            f"{repo_id} is no folder here and cannot be read from the Hub ({type(error).__name__}: {said[:200]}): it needs "
            f"{runs.RECIPE} and {runs.STATE}, and a token where it is private"
        ) from error
    return _source(repo_id.rpartition("/")[2], paths, table)


def _source(name: str, paths: Mapping[str, Path], table: pa.Table | None) -> Source:
    try:
        run = read_object(paths[runs.STATE])
    except FileError as error:
        raise ReproductionError(f"{name} is no run that can be made again: {error}") from error
    if run.get("status") != "complete":
        said = excerpt(run.get("status"))
        raise ReproductionError(f"{name} is not complete ({runs.STATE} says {said}): there are no numbers to compare")
    return Source(name, recipes.load(paths[runs.RECIPE]), run, table)


def _downloaded_record(repo_id: str, records_repo: str | None, revision: str | None) -> pa.Table | None:
    """The record of a released checkpoint; None where no repository of records holds it."""
    try:
        said = card_of(hf_hub_download(repo_id, "README.md", revision=revision))
    except EntryNotFoundError:
        said = {}
    records_repo = records_repo or said.get("records")
    if records_repo is None:
        return None
    try:
        (source,) = configurations(records_repo, said.get("configuration") or repo_id.rpartition("/")[2])
    except LocateError:
        return None
    return source.load()


def _with_data(source: Source, path: str | None, *, local: bool) -> Source:
    """The source with its own data at this path. Raises ReproductionError where it has none, or they must be named."""
    data, recorded = source.recipe.data, (source.run.get("dataset") or {}).get("revision", "unknown")
    if path is None and (local or data.path is None):
        return source
    if data.path is None:
        raise ReproductionError(f"--data.path {excerpt(path)}: {source.name} was not made of a file; leave it out")
    name = Path(data.path).name
    if path is None:
        raise ReproductionError(
            f"{source.name} was made of its owner's {excerpt(name)} ({recorded}), which is not published: if you have it, "
            "say where with --data.path"
        )
    if Path(path).name != name:
        raise ReproductionError(
            f"--data.path {excerpt(path)}: rows are known by their file, so it must be called {excerpt(name)}"
        )
    data = dataclasses.replace(data, path=path)
    return source._replace(recipe=dataclasses.replace(source.recipe, data=data))


def _check_texts(source: Source) -> None:
    """Raise ReproductionError where the texts are others than those of the source; what the data set is called is no matter.

    Of a run whose texts were not fingerprinted, the columns of its record tell.
    """
    recorded = source.run.get("texts") or {}
    if not recorded:
        return
    pairs = source.recipe.model.type is not None
    loaded = runs.load_pairs(source.recipe) if pairs else runs.load_data(source.recipe, recorded=source.run)
    present = {split: fingerprint(rows) for split, rows in loaded.splits.items()}
    if other := [split for split in recorded if recorded[split] != present.get(split)]:
        sizes = source.run.get("sizes") or {}
        counts = ", ".join(f"{split} {sizes.get(split, '?')} recorded, {len(loaded.splits[split])} here" for split in other)
        raise ReproductionError(
            f"{source.name} was made of other texts: those of {', '.join(other)} are not the ones that "
            f"{loaded.entry.name} gives here (texts: {counts}; read here: {loaded.revision}, then: "
            f"{(source.run.get('dataset') or {}).get('revision', 'unknown')}): get the data set that it was made of"
        )


# ------------------------------------------------------------------------------------------------ comparing


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """The numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (dict(_flat({name: run[name] for name in NUMBERS if name in run})) for run in (recorded, now))
    for name in (name for name in old if name not in NAMES):
        if name not in new:
            yield Compared(name, old[name], "missing", math.nan, math.nan, NOT)
            continue
        texts = old.get(f"{name.rpartition('.')[0]}.n")
        yield _compare(name, old[name], new[name], _tolerance(name, old[name], old.get("best.metric"), texts))


def _flat(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _tolerance(name: str, recorded: object, selected_by: object = None, texts: object = None) -> float:
    """How far the number of this name may be from the recorded one, in its own unit: the rules of this module's text."""
    if not _is_number(recorded) or EXACT.search(name):
        return 0.0
    if COUNTS.search(name):
        return max(FEW_TEXTS, RELATIVE * recorded)
    if SHARES.search(name):
        return max(FEW_TEXTS / texts if texts else 0.0, SHARE * abs(recorded))
    if SCALED.search(name) or (name == "best.value" and not str(selected_by).endswith(("loss", "objective"))):
        return ON_A_SCALE
    return max(ROUNDING, RELATIVE * abs(recorded))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compare(name: str, recorded: object, now: object, tolerance: float) -> Compared:
    if _is_number(recorded) and _is_number(now):
        difference = abs(recorded - now)
        return Compared(name, recorded, now, difference, tolerance, _verdict(difference, tolerance))
    same = recorded == now  # None is an undefined number
    return Compared(name, recorded, now, 0.0 if same else math.nan, tolerance, EXACTLY if same else NOT)


def _verdict(difference: float, tolerance: float) -> str:
    return EXACTLY if difference == 0 else WITHIN if difference <= tolerance else NOT


def compare_records(recorded: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """The columns of two records, rows matched by instance id; see `Column.tolerance`.

    Identity columns are left out, as they name the run. The weights are told and decide nothing: another machine rounds
    otherwise.
    """
    ids = [table.column("instance_id").combine_chunks() for table in (recorded, now)]
    places = pc.index_in(ids[0], ids[1])
    missing = places.null_count
    extra = len(ids[1]) - (len(ids[0]) - missing)
    same = not missing and not extra
    yield Compared("record: texts", *map(len, ids), float(missing + extra), 0.0, EXACTLY if same else NOT)
    weights = [next(iter(record.settings(table)), {}).get("model") for table in (recorded, now)]
    yield Compared("record: weights (SHA-256)", *weights, *(math.nan,) * 2, EXACTLY if weights[0] == weights[1] else TOLD)
    known = _columns(recorded)
    kept, aligned = recorded.filter(places.is_valid()), now.take(places.drop_null())
    for name in (name for name in recorded.column_names if name not in ("instance_id", *record.IDENTITY_COLUMNS)):
        if name not in now.column_names:
            yield Compared(f"record: {name}", "there", "missing", math.nan, math.nan, NOT)
            continue
        tolerance = known.get(name, record.Column()).tolerance
        parts = (table.column(name).combine_chunks() for table in (kept, aligned))
        yield _compare_column(f"record: {name}", *parts, tolerance)


def _columns(table: pa.Table) -> dict[str, record.Column]:
    """What the producers that made a record declare."""
    reads = "pairs" if record.of_sequences(table) else "texts"
    wanted = {name for part in record.settings(table) for name in part.get("producers", ())} & set(names(reads))
    columns = {**record.common_columns(table.column_names), **record.OPTIONAL_COLUMNS}
    for name in sorted(wanted):
        columns |= find(name, reads).columns
    return columns


def _compare_column(name: str, recorded: pa.Array, now: pa.Array, tolerance: float) -> Compared:
    """One column of matched rows: `tolerance` is the column's, the compared one is in the unit of the numbers."""
    same_shape, old, new, owner = _aligned(recorded, now)
    old, new = (part.cast(part.type.value_type) if pa.types.is_dictionary(part.type) else part for part in (old, new))
    if not pa.types.is_floating(old.type):
        apart = ~same_shape
        apart[owner[~np.asarray(pc.equal(old, new).fill_null(False)) & ~_both_null(old, new)]] = True
        share = float(apart.mean()) if len(apart) else 0.0
        return Compared(name, "", "", share, tolerance, _verdict(share, tolerance), 1 - share, math.nan)
    one, two = (values.to_numpy(zero_copy_only=False).astype(np.float64) for values in (old, new))
    same_shape[owner[np.isnan(one) != np.isnan(two)]] = False
    defined = same_shape[owner] & ~np.isnan(one)
    one, two, owner = one[defined], two[defined], owner[defined]
    with np.errstate(invalid="ignore"):  # of two infinite values
        apart = np.where(one == two, 0.0, np.abs(one - two))
    identical = float((apart == 0).mean()) if len(apart) else 1.0
    largest = float(apart.max(initial=0.0))
    counts = np.bincount(owner, minlength=len(same_shape))
    per_text = np.bincount(owner, apart, minlength=len(same_shape))[counts > 0] / counts[counts > 0]
    difference = float(per_text.mean()) if len(per_text) else 0.0
    finite = one[np.isfinite(one)]
    spread = float(np.abs(finite - finite.mean()).mean()) if len(finite) else 0.0
    allowed = max(ROUNDING, tolerance * spread) if tolerance else 0.0
    verdict = _verdict(difference, allowed)
    other_shapes = 1 - float(same_shape.mean()) if len(same_shape) else 0.0
    if other_shapes > tolerance:
        verdict, difference = NOT, math.nan
    elif other_shapes:
        verdict = WITHIN if verdict == EXACTLY else verdict
    means = [float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else math.nan for values in (one, two)]
    return Compared(name, *means, difference, allowed, verdict, identical, largest)


def _aligned(one: pa.Array, other: pa.Array) -> tuple[np.ndarray, pa.Array, pa.Array, np.ndarray]:
    """The innermost values of two columns of as many texts, and the text of each; of texts whose lists have other lengths
    none, and false in the first array.
    """
    same = np.ones(len(one), bool)
    while True:
        owner, old, new = np.flatnonzero(same), one.filter(pa.array(same)), other.filter(pa.array(same))
        while pa.types.is_list(old.type) and pa.types.is_list(new.type):
            lengths = [pc.list_value_length(part).to_numpy(zero_copy_only=False) for part in (old, new)]
            if (differ := lengths[0] != lengths[1]).any():
                same[owner[differ]] = False
                break
            owner, old, new = np.repeat(owner, lengths[0]), old.flatten(), new.flatten()
        else:
            return same, old, new, owner


def _both_null(one: pa.Array, other: pa.Array) -> np.ndarray:
    return np.asarray(pc.and_(one.is_null(), other.is_null()))


def differing(recorded: Mapping, now: Mapping) -> dict[str, tuple[object, object]]:
    """What of the provenance is another, {name: (recorded, now)}; libraries by their names, None what was not recorded."""

    def said(run: Mapping) -> dict:
        known = run.get("provenance") or {}
        parts = {name: known.get(name) for name in EXPLAINS if name != "libraries"}
        libraries = known.get("libraries") or {k: v for k, v in run.get("versions", {}).items() if k != "attnfaith"}
        return parts | {"data": (run.get("dataset") or {}).get("revision"), **libraries}

    old, new = said(recorded), said(now)
    return {name: (old[name], new.get(name)) for name in old if old[name] != new.get(name)}


# ------------------------------------------------------------------------------------------------ saying it


def _write(done: Reproduction) -> None:
    write_atomically(done.folder / TABLE, csv_text([Compared._fields, *done.rows]).encode())


def describe(done: Reproduction, most: int = 20) -> str:
    """What agrees and what does not, for a terminal; what does not agree, the largest differences first."""
    counts = Counter(row.agreement for row in done.rows)
    judged = len(done.rows) - counts[TOLD]
    lines = [f"{counted(judged, 'result')}: " + ", ".join(f"{counts[kind]} agree {kind}" for kind in (EXACTLY, WITHIN))]
    lines[0] += f", {counts[NOT]} do not"
    apart = sorted((row for row in done.rows if row.agreement == NOT), key=lambda row: -_size(row))
    for row in apart[:most]:
        shown = f"{_shown(row.recorded)} recorded, {_shown(row.now)} now" if row.recorded != "" else "differs"
        size = "" if math.isnan(row.difference) else f" (difference {row.difference:.3g}, tolerance {row.tolerance:.3g})"
        lines.append(f"  not: {row.name}: {shown}{size}")
    if len(apart) > most:
        lines.append(f"  and {len(apart) - most} more")
    if counts[TOLD]:
        lines.append("the weights are not the same bit for bit, which decides nothing: other machines round otherwise")
    if done.differing:
        said = "; ".join(f"{name} {_shown(old)}, now {_shown(new)}" for name, (old, new) in done.differing.items())
        lines.append(f"differs from what is recorded: {said}")
    return "\n".join([*lines, f"all of them: {done.folder / TABLE}"])


def _size(row: Compared) -> float:
    """Difference over tolerance."""
    if math.isnan(row.difference) or not row.tolerance:
        return math.inf
    return row.difference / row.tolerance


def _shown(value: object) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:40]
