"""A recorded run carried out again and compared with its record.

The recipe is run by the code that is installed here; no code and no weights of the source are used. The texts are compared
first, by their fingerprint. Another machine or number of threads rounds differently, and training amplifies that, so weights
are compared and do not count. A result agrees exactly, within its tolerance, or not. The tolerances:

* a column of the record: the difference, a mean over texts, is at most 5 % of the column's spread (its mean absolute
  deviation), or the share that `Column.tolerance` names; of values that are no numbers, at most that share of the texts has
  another one;
* the score that the checkpoint was selected by: 0.01, of losses 5 %; scores of translations: 5 %;
* sizes, vocabulary, epochs, tokens and labels: none.
"""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from attnfaith import recipes, record, runs
from attnfaith.data.fingerprint import fingerprint
from attnfaith.measurement.registry import find, names
from attnfaith.recipes import Recipe
from attnfaith.record.lookup import find_record, run_on_hub
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import csv_frame
from attnfaith.support.files import write_atomically


EXACTLY, WITHIN, NOT, REPORTED = "exactly", "within tolerance", "not", "reported"
ROUNDING = 1e-7
NUMBERS = ("dataset", "sizes", "truncated", "vocabulary", "tokenizer", "pretrained", "epochs", "best", "translation")
"""The keys of run.json that the recipe decides; not seconds, versions and places."""
NAMES = ("dataset.name", "dataset.revision", "dataset.about.assumed")  # names of the data on this machine
TABLE = "reproduction.csv"


class ReproductionError(AttnfaithError):
    """A run that cannot be carried out again. The message names the reason and what to do."""


class Compared(NamedTuple):
    """One result.

    recorded, now: the number, or the mean of a column; empty for texts and labels. difference, tolerance: in the unit of the
    number (a column: means over texts; values that are no numbers: share of texts); NaN where there is none.
    """

    name: str
    recorded: object
    now: object
    difference: float
    tolerance: float
    agreement: str


class Reproduction(NamedTuple):
    """The outcome. folder: the new run. rows: every result compared. differing: provenance that differs, {name: (recorded,
    now)}.
    """

    folder: Path
    rows: list[Compared]
    differing: dict[str, tuple[object, object]]

    @property
    def agrees(self) -> bool:
        """Whether every result agrees exactly or within its tolerance; the weights need not."""
        return all(row.agreement != NOT for row in self.rows)


def reproduce(
    source: str | os.PathLike, output: str | os.PathLike | None = None, *, data_path: str | None = None
) -> Reproduction:
    """Train and measure a recorded run anew, and compare the results.

    source: the folder of a finished run, or the id of its model repository on the Hub, whose card names its record. output:
    folder of the new run, by default runs/reproduced/<name>; a reproduction that was stopped there goes on, a finished one
    is compared again. data_path: the place of the source's own data, if not that of its recipe; of a run from the Hub it
    must be given, since a recipe from the Hub must not name a file of this machine.

    Writes <output>/reproduction.csv. Raises, before the training starts, ReproductionError where the source is no finished
    run or was trained on other texts, NotFoundError and RecordError where it cannot be read, and what `runs.run` raises.
    """
    local = Path(source).is_dir()
    folder = Path(source) if local else run_on_hub(str(source))
    name = folder.resolve().name if local else str(source).rpartition("/")[2]
    missing = [path for path in (runs.RECIPE, runs.STATE) if not (folder / path).is_file()]
    if missing:
        raise ReproductionError(f"{folder} is no run ({', '.join(missing)} missing there); give the output_dir of one")
    recorded = runs.read_state(folder)
    status = recorded.get("status")
    if status != "complete":
        raise ReproductionError(f"{name} is not complete (status {status!r} in {runs.STATE}): there is nothing to compare")
    recipe = _with_data(recipes.load(folder / runs.RECIPE, untrusted=not local), name, data_path, local=local)
    table = find_record(source).load()
    _check_texts(recipe, recorded, name)
    folder = Path(output) if output is not None else Path("runs") / "reproduced" / name
    runs.run(dataclasses.replace(recipe, output_dir=str(folder)), resume=True)
    state = runs.read_state(folder)
    rows = [*compare_numbers(recorded, state), *compare_records(table, record.load(folder / runs.RECORD))]
    write_atomically(folder / TABLE, csv_frame(pd.DataFrame(rows, dtype=object), undefined="nan"))
    return Reproduction(folder, rows, differing(recorded, state))


def _with_data(recipe: Recipe, name: str, path: str | None, *, local: bool) -> Recipe:
    """The recipe with its own data at this path. Raises ReproductionError where it has none, or they must be named."""
    data = recipe.data
    if path is None and (local or data.path is None):
        return recipe
    if data.path is None:
        raise ReproductionError(f"--data.path {excerpt(path)}: {name} was not trained on a file; leave it out")
    file = Path(data.path).name
    if path is None:
        raise ReproductionError(f"{name} was trained on {excerpt(file)}, which is not published: give it with --data.path")
    if Path(path).name != file:  # instance ids hold it
        raise ReproductionError(f"--data.path {excerpt(path)}: it must be called {excerpt(file)}")
    return dataclasses.replace(recipe, data=dataclasses.replace(data, path=path))


def _check_texts(recipe: Recipe, recorded: Mapping, name: str) -> None:
    """Raise ReproductionError where the texts differ from those of the source, under whatever name of the data set."""
    fingerprints = recorded.get("texts") or {}
    loaded = runs.load_data(recipe, recorded=recorded)
    here = {split: fingerprint(rows) for split, rows in loaded.splits.items()}
    other = [split for split in fingerprints if fingerprints[split] != here.get(split)]
    if other:
        sizes = recorded.get("sizes") or {}
        counts = ", ".join(f"{split} {sizes.get(split, '?')} recorded, {len(loaded.splits[split])} here" for split in other)
        revision = (recorded.get("dataset") or {}).get("revision", "unknown")
        raise ReproductionError(
            f"{name} was trained on other texts than {loaded.entry.name} gives here in {', '.join(other)} (texts: {counts}; "
            f"revision here {loaded.revision}, recorded {revision}): get the data set of that revision"
        )


# ------------------------------------------------------------------------------------------------ comparing


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """Compare the numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (dict(_flat({name: run[name] for name in NUMBERS if name in run})) for run in (recorded, now))
    for name in (name for name in old if name not in NAMES):
        if name not in new:
            yield Compared(name, old[name], "missing", math.nan, math.nan, NOT)
        elif _is_number(old[name]) and _is_number(new[name]):
            difference, allowed = abs(old[name] - new[name]), _tolerance(name, old[name], str(old.get("best.metric")))
            yield Compared(name, old[name], new[name], difference, allowed, _agreement(difference, allowed))
        else:  # None is an undefined number
            same = old[name] == new[name]
            yield Compared(name, old[name], new[name], 0.0 if same else math.nan, 0.0, EXACTLY if same else NOT)


def _flat(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _tolerance(name: str, recorded: float, selected_by: str) -> float:
    """The largest difference from a recorded number with which it agrees, in its own unit."""
    if name == "best.value" and not selected_by.endswith(("loss", "objective")):
        return 0.01
    is_score = name == "best.value" or (name.startswith("translation.") and isinstance(recorded, float))
    return max(ROUNDING, 0.05 * abs(recorded)) if is_score else 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _agreement(difference: float, tolerance: float) -> str:
    return EXACTLY if difference == 0 else WITHIN if difference <= tolerance else NOT


def compare_records(recorded: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """Compare the columns of two records, rows matched by instance id; see `Column.tolerance`. Identity columns are left
    out, as they name the run.
    """
    ids = [table.column("instance_id").combine_chunks() for table in (recorded, now)]
    places = pc.index_in(*ids)
    other = 2 * places.null_count + len(ids[1]) - len(ids[0])  # missing now, or new
    yield Compared("record: texts", *map(len, ids), float(other), 0.0, NOT if other else EXACTLY)
    settings = record.settings(recorded)
    weights = [next(iter(record.settings(table)), {}).get("model") for table in (recorded, now)]
    yield Compared(
        "record: weights (SHA-256)", *weights, *(math.nan,) * 2, EXACTLY if weights[0] == weights[1] else REPORTED
    )
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
    """Compare one column of matched rows. tolerance: a share of the spread; that of the result is in the unit of the
    numbers.
    """
    same_shape, old, new, owner = _aligned(recorded, now)
    old, new = (part.cast(part.type.value_type) if pa.types.is_dictionary(part.type) else part for part in (old, new))
    if not pa.types.is_floating(old.type):
        equal = pc.or_(pc.equal(old, new).fill_null(False), pc.and_(old.is_null(), new.is_null()))
        same_shape[owner[~np.asarray(equal)]] = False
        share = float((~same_shape).mean()) if len(same_shape) else 0.0
        return Compared(name, "", "", share, tolerance, _agreement(share, tolerance))
    old, new = (values.to_numpy(zero_copy_only=False).astype(np.float64) for values in (old, new))
    same_shape[owner[np.isnan(old) != np.isnan(new)]] = False
    defined = same_shape[owner] & ~np.isnan(old)
    old, new, owner = old[defined], new[defined], owner[defined]
    with np.errstate(invalid="ignore"):  # of two infinite values
        apart = np.where(old == new, 0.0, np.abs(old - new))
    difference = float(pd.Series(apart).groupby(owner).mean().mean()) if len(apart) else 0.0
    finite = old[np.isfinite(old)]
    spread = float(np.abs(finite - finite.mean()).mean()) if len(finite) else 0.0
    allowed = max(ROUNDING, tolerance * spread) if tolerance else 0.0
    agreement = _agreement(difference, allowed)
    other_shapes = 1 - float(same_shape.mean()) if len(same_shape) else 0.0
    if other_shapes > tolerance:
        agreement, difference = NOT, math.nan
    elif other_shapes and agreement == EXACTLY:
        agreement = WITHIN
    means = [float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else math.nan for values in (old, new)]
    return Compared(name, *means, difference, allowed, agreement)


def _aligned(recorded: pa.Array, now: pa.Array) -> tuple[np.ndarray, pa.Array, pa.Array, np.ndarray]:
    """Flatten two columns of nested lists: (whether a text's lists have the same lengths in both, the innermost values of
    such texts in each column, the text of each value).
    """
    same = np.ones(len(recorded), bool)
    while True:
        owner, old, new = np.flatnonzero(same), recorded.filter(pa.array(same)), now.filter(pa.array(same))
        while pa.types.is_list(old.type) and pa.types.is_list(new.type):
            lengths = [pc.list_value_length(part).to_numpy(zero_copy_only=False) for part in (old, new)]
            if (differ := lengths[0] != lengths[1]).any():
                same[owner[differ]] = False
                break
            owner, old, new = np.repeat(owner, lengths[0]), old.flatten(), new.flatten()
        else:
            return same, old, new, owner


def differing(recorded: Mapping, now: Mapping) -> dict[str, tuple[object, object]]:
    """Return the provenance that differs, {name: (recorded, now)}; libraries by their names, None where not recorded."""

    def facts(run: Mapping) -> dict:
        provenance = run.get("provenance") or {}
        parts = {name: provenance.get(name) for name in ("version", "commit", "dirty", "python", "platform", "device")}
        return {**parts, "data": (run.get("dataset") or {}).get("revision"), **(provenance.get("libraries") or {})}

    old, new = facts(recorded), facts(now)
    return {name: (old[name], new.get(name)) for name in old if old[name] != new.get(name)}


def describe(result: Reproduction, most: int = 20) -> str:
    """Return the counts and, largest first, the results that do not agree, as a text for a terminal."""
    counts = Counter(row.agreement for row in result.rows)
    lines = [
        f"{counted(len(result.rows) - counts[REPORTED], 'result')}: {counts[EXACTLY]} agree {EXACTLY}, {counts[WITHIN]} "
        f"agree {WITHIN}, {counts[NOT]} do not"
    ]
    apart = [row for row in result.rows if row.agreement == NOT]
    sizes = {row: row.difference / row.tolerance if row.tolerance and row.difference >= 0 else math.inf for row in apart}
    for row in sorted(apart, key=sizes.get, reverse=True)[:most]:
        values = f"{_text(row.recorded)} recorded, {_text(row.now)} now" if row.recorded != "" else "differs"
        size = "" if math.isnan(row.difference) else f" (difference {row.difference:.3g}, tolerance {row.tolerance:.3g})"
        lines.append(f"  not: {row.name}: {values}{size}")
    lines += [f"  and {len(apart) - most} more"] if len(apart) > most else []
    if counts[REPORTED]:
        lines.append("the weights are not the same bit for bit, which does not count: other machines round differently")
    if result.differing:
        facts = "; ".join(f"{name} {_text(old)}, now {_text(new)}" for name, (old, new) in result.differing.items())
        lines.append(f"differs from the recorded provenance: {facts}")
    return "\n".join([*lines, f"all results: {result.folder / TABLE}"])


def _text(value: object) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:40]
