"""A recorded run carried out again, and which of its results come out the same.

What is run is the recipe, by the code that is installed here; no code and no weights of the source are used. The texts are
compared first, by their fingerprint. Another machine or number of threads rounds otherwise; training carries that on, and
the weights come out a little different. So weights are compared and decide nothing; a result agrees exactly, within its
tolerance, or not. The tolerances, which the table has for each result:

* a column of the record: the difference, a mean over texts, is at most 5 % of the column's spread (its mean absolute
  deviation), or the share that `Column.tolerance` names; of values that are no numbers, at most that share of the texts has
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
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

from attnfaith import recipes, record, runs
from attnfaith.data.fingerprint import fingerprint
from attnfaith.locate import LocateError, card_of, configurations
from attnfaith.measurement.registry import find, names
from attnfaith.recipes import Recipe
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import csv_frame
from attnfaith.support.files import read_object, write_atomically


EXACTLY, WITHIN, NOT, TOLD = "exactly", "within tolerance", "not", "told"
ROUNDING = 1e-7
NUMBERS = (
    *("dataset", "sizes", "truncated", "vocabulary", "tokenizer", "pretrained", "epochs", "best"),
    *("attention_faithfulness", "translation"),
)
"""Of run.json: what the recipe decides; not seconds, versions and places."""
NAMES = ("dataset.name", "dataset.revision", "dataset.about.assumed")  # what the data are called here
EXACT = re.compile(r"^(dataset|translation\.(split|pairs)|sizes|truncated|vocabulary|tokenizer|pretrained|epochs)\b|\.n$")
COUNTS = re.compile(r"(_undefined|_class_\d+_n)$")
SHARES = re.compile(r"(_significant|flip_fraction|share_of_zeros)$")
SCALED = re.compile(r"kendall_tau|tie_ceiling|top_k_overlap|normalised_entropy")
TABLE = "reproduction.csv"


class ReproductionError(AttnfaithError):
    """A run that cannot be carried out again. The message names why and what to do."""


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
    repository. data_path: where the source's own data lie, if not where its recipe has them; of a run from the Hub it must
    be given, since a stranger's recipe names no file of this machine.

    Writes <output>/reproduction.csv. Raises ReproductionError where the source is no finished run or cannot be read, or the
    texts that are here are others than those it was trained and measured on, and what `runs.run` raises; all before the
    training starts.
    """
    run = _with_data(read(source, records_repo=records_repo, revision=revision), data_path, local=Path(source).is_dir())
    _check_texts(run)
    folder = Path(output) if output is not None else Path("runs") / "reproduced" / run.name
    runs.run(dataclasses.replace(run.recipe, output_dir=str(folder)), resume=True)
    state = runs.read_state(folder)
    rows = list(compare_numbers(run.run, state))
    if run.table is not None:
        rows += compare_records(run.table, record.load(folder / runs.RECORD))
    write_atomically(folder / TABLE, csv_frame(pd.DataFrame(rows, dtype=object), undefined="nan"))
    return Reproduction(folder, rows, differing(run.run, state))


# ------------------------------------------------------------------------------------------------ the source


def read(source: str | os.PathLike, *, records_repo: str | None = None, revision: str | None = None) -> Source:
    """Recipe, run.json and record of a folder or a repository. Raises ReproductionError where they cannot be had."""
    if (folder := Path(source)).is_dir():
        name, paths = folder.resolve().name, [folder / runs.RECIPE, folder / runs.STATE]
        if missing := [path.name for path in paths if not path.is_file()]:
            raise ReproductionError(f"{folder} is no run ({', '.join(missing)} missing there); give the output_dir of one")
        table = record.load(folder / runs.RECORD) if (folder / runs.RECORD).is_file() else None
    else:
        name = str(source).rpartition("/")[2]
        try:
            paths = [Path(hf_hub_download(str(source), file, revision=revision)) for file in (runs.RECIPE, runs.STATE)]
            table = _downloaded_record(str(source), records_repo, revision)
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            raise ReproductionError(
                f"{source} is no folder here and cannot be read from the Hub ({type(error).__name__}: {excerpt(error)}): it "
                f"needs {runs.RECIPE} and {runs.STATE}, and a token where it is private"
            ) from error
    state = read_object(paths[1])
    if (status := state.get("status")) != "complete":
        raise ReproductionError(f"{name} is not complete (status {status!r} in {runs.STATE}): there is nothing to compare")
    return Source(name, recipes.load(paths[0]), state, table)


def _downloaded_record(repo_id: str, records_repo: str | None, revision: str | None) -> pa.Table | None:
    """The record of a released checkpoint; None where no repository of records holds it."""
    try:
        card = card_of(hf_hub_download(repo_id, "README.md", revision=revision))
    except EntryNotFoundError:
        card = {}
    if (records_repo := records_repo or card.get("records")) is None:
        return None
    try:
        (source,) = configurations(records_repo, card.get("configuration") or repo_id.rpartition("/")[2])
    except LocateError:
        return None
    return source.load()


def _with_data(source: Source, path: str | None, *, local: bool) -> Source:
    """The source with its own data at this path. Raises ReproductionError where it has none, or they must be named."""
    data = source.recipe.data
    if path is None and (local or data.path is None):
        return source
    if data.path is None:
        raise ReproductionError(f"--data.path {excerpt(path)}: {source.name} was not made of a file; leave it out")
    name = Path(data.path).name
    if path is None:
        raise ReproductionError(
            f"{source.name} was made of its owner's {excerpt(name)}, which is not published: if you have it, name its place "
            "with --data.path"
        )
    if Path(path).name != name:  # instance ids hold it
        raise ReproductionError(f"--data.path {excerpt(path)}: it must be called {excerpt(name)}")
    return source._replace(recipe=dataclasses.replace(source.recipe, data=dataclasses.replace(data, path=path)))


def _check_texts(source: Source) -> None:
    """Raise ReproductionError where the texts are others than those of the source; the name of the data set is no matter.

    Of a run whose texts were not fingerprinted, the columns of its record tell.
    """
    if not (recorded := source.run.get("texts")):
        return
    loaded = runs.load_data(source.recipe, recorded=source.run)
    present = {split: fingerprint(rows) for split, rows in loaded.splits.items()}
    if other := [split for split in recorded if recorded[split] != present.get(split)]:
        sizes = source.run.get("sizes") or {}
        counts = ", ".join(f"{split} {sizes.get(split, '?')} recorded, {len(loaded.splits[split])} here" for split in other)
        raise ReproductionError(
            f"{source.name} was made of other texts: those of {', '.join(other)} are not the ones that {loaded.entry.name} "
            f"gives here (texts: {counts}; revision here {loaded.revision}, recorded "
            f"{(source.run.get('dataset') or {}).get('revision', 'unknown')}): get the data set that it was made of"
        )


# ------------------------------------------------------------------------------------------------ comparing


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """The numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (dict(_flat({name: run[name] for name in NUMBERS if name in run})) for run in (recorded, now))
    for name in (name for name in old if name not in NAMES):
        if name not in new:
            yield Compared(name, old[name], "missing", math.nan, math.nan, NOT)
        elif _is_number(old[name]) and _is_number(new[name]):
            texts = old.get(f"{name.rpartition('.')[0]}.n")
            difference, allowed = abs(old[name] - new[name]), _tolerance(name, old[name], old.get("best.metric"), texts)
            yield Compared(name, old[name], new[name], difference, allowed, _verdict(difference, allowed))
        else:  # None is an undefined number
            same = old[name] == new[name]
            yield Compared(name, old[name], new[name], 0.0 if same else math.nan, 0.0, EXACTLY if same else NOT)


def _flat(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _tolerance(name: str, recorded: float, selected_by: object, texts: object) -> float:
    """How far the number of this name may be from the recorded one, in its own unit: the rules of this module's text."""
    if EXACT.search(name):
        return 0.0
    if COUNTS.search(name):
        return max(2, 0.05 * recorded)
    if SHARES.search(name):
        return max(2 / texts if texts else 0.0, 0.2 * abs(recorded))
    if SCALED.search(name) or (name == "best.value" and not str(selected_by).endswith(("loss", "objective"))):
        return 0.01
    return max(ROUNDING, 0.05 * abs(recorded))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _verdict(difference: float, tolerance: float) -> str:
    return EXACTLY if difference == 0 else WITHIN if difference <= tolerance else NOT


def compare_records(recorded: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """The columns of two records, rows matched by instance id; see `Column.tolerance`. Identity columns are left out, as
    they name the run.
    """
    ids = [table.column("instance_id").combine_chunks() for table in (recorded, now)]
    places = pc.index_in(*ids)
    other = 2 * places.null_count + len(ids[1]) - len(ids[0])  # missing now, or new
    yield Compared("record: texts", *map(len, ids), float(other), 0.0, NOT if other else EXACTLY)
    settings = record.settings(recorded)
    weights = [next(iter(record.settings(table)), {}).get("model") for table in (recorded, now)]
    yield Compared("record: weights (SHA-256)", *weights, *(math.nan,) * 2, EXACTLY if weights[0] == weights[1] else TOLD)
    reads = "pairs" if record.of_sequences(recorded) else "texts"
    declared = {**record.common_columns(recorded.column_names), **record.OPTIONAL_COLUMNS}
    for name in sorted({name for part in settings for name in part.get("producers", ())} & {*names(reads)}):
        declared |= find(name, reads).columns
    recorded, aligned = recorded.filter(places.is_valid()), now.take(places.drop_null())
    for name in (name for name in recorded.column_names if name not in ("instance_id", *record.IDENTITY_COLUMNS)):
        if name not in now.column_names:
            yield Compared(f"record: {name}", "there", "missing", math.nan, math.nan, NOT)
        else:
            columns = [table.column(name).combine_chunks() for table in (recorded, aligned)]
            yield compare_column(f"record: {name}", *columns, declared.get(name, record.Column()).tolerance)


def compare_column(name: str, recorded: pa.Array, now: pa.Array, tolerance: float) -> Compared:
    """One column of matched rows: `tolerance` is the column's, the compared one is in the unit of the numbers."""
    same_shape, old, new, owner = _aligned(recorded, now)
    old, new = (part.cast(part.type.value_type) if pa.types.is_dictionary(part.type) else part for part in (old, new))
    if not pa.types.is_floating(old.type):
        equal = pc.or_(pc.equal(old, new).fill_null(False), pc.and_(old.is_null(), new.is_null()))
        same_shape[owner[~np.asarray(equal)]] = False
        share = float((~same_shape).mean()) if len(same_shape) else 0.0
        return Compared(name, "", "", share, tolerance, _verdict(share, tolerance), 1 - share, math.nan)
    one, two = (values.to_numpy(zero_copy_only=False).astype(np.float64) for values in (old, new))
    same_shape[owner[np.isnan(one) != np.isnan(two)]] = False
    defined = same_shape[owner] & ~np.isnan(one)
    one, two, owner = one[defined], two[defined], owner[defined]
    with np.errstate(invalid="ignore"):  # of two infinite values
        apart = np.where(one == two, 0.0, np.abs(one - two))
    difference = float(pd.Series(apart).groupby(owner).mean().mean()) if len(apart) else 0.0
    finite = one[np.isfinite(one)]
    spread = float(np.abs(finite - finite.mean()).mean()) if len(finite) else 0.0
    allowed = max(ROUNDING, tolerance * spread) if tolerance else 0.0
    agreement = _verdict(difference, allowed)
    other_shapes = 1 - float(same_shape.mean()) if len(same_shape) else 0.0
    if other_shapes > tolerance:
        agreement, difference = NOT, math.nan
    elif other_shapes and agreement == EXACTLY:
        agreement = WITHIN
    means = [float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else math.nan for values in (one, two)]
    identical = float((apart == 0).mean()) if len(apart) else 1.0
    return Compared(name, *means, difference, allowed, agreement, identical, float(apart.max(initial=0.0)))


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


def differing(recorded: Mapping, now: Mapping) -> dict[str, tuple[object, object]]:
    """What of the provenance is another, {name: (recorded, now)}; libraries by their names, None what was not recorded."""

    def facts(run: Mapping) -> dict:
        made = run.get("provenance") or {}
        parts = {name: made.get(name) for name in ("version", "commit", "dirty", "python", "platform", "device")}
        return {**parts, "data": (run.get("dataset") or {}).get("revision"), **(made.get("libraries") or {})}

    old, new = facts(recorded), facts(now)
    return {name: (old[name], new.get(name)) for name in old if old[name] != new.get(name)}


def describe(done: Reproduction, most: int = 20) -> str:
    """What agrees and what does not, for a terminal; what does not agree, the largest differences first."""
    counts = Counter(row.agreement for row in done.rows)
    lines = [
        f"{counted(len(done.rows) - counts[TOLD], 'result')}: {counts[EXACTLY]} agree {EXACTLY}, {counts[WITHIN]} agree "
        f"{WITHIN}, {counts[NOT]} do not"
    ]
    apart = [row for row in done.rows if row.agreement == NOT]
    sizes = {row: row.difference / row.tolerance if row.tolerance and row.difference >= 0 else math.inf for row in apart}
    for row in sorted(apart, key=sizes.get, reverse=True)[:most]:
        shown = f"{_shown(row.recorded)} recorded, {_shown(row.now)} now" if row.recorded != "" else "differs"
        size = "" if math.isnan(row.difference) else f" (difference {row.difference:.3g}, tolerance {row.tolerance:.3g})"
        lines.append(f"  not: {row.name}: {shown}{size}")
    if len(apart) > most:
        lines.append(f"  and {len(apart) - most} more")
    if counts[TOLD]:
        lines.append("the weights are not the same bit for bit, which decides nothing: other machines round otherwise")
    if done.differing:
        facts = "; ".join(f"{name} {_shown(old)}, now {_shown(new)}" for name, (old, new) in done.differing.items())
        lines.append(f"differs from what is recorded: {facts}")
    return "\n".join([*lines, f"all of them: {done.folder / TABLE}"])


def _shown(value: object) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:40]
