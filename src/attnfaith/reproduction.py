"""A recorded run carried out again and compared with its record.

The recipe is run by the code that is installed here; no code and no weights of the source are used. The texts must have the
same fingerprint. Another machine or number of threads rounds differently, and training amplifies that, so weights are
compared and do not count. The tolerances:

* a column of the record: the difference, a mean over texts, is at most 5 % of the column's spread (its mean absolute
  deviation), or the share that `Column.tolerance` names; at most that share differs in words or undefined values;
* the score that the checkpoint was selected by: 0.01, of losses 5 %; scores of translations: 5 %;
* sizes, vocabulary, epochs, tokens and labels: none.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from attnfaith import recipes, record, runs
from attnfaith.data.fingerprint import fingerprint
from attnfaith.record.lookup import find_record, run_on_hub
from attnfaith.stats import mean
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import csv_frame
from attnfaith.support.files import RECIPE, RECORD, write_atomically


EXACTLY, WITHIN, NOT, REPORTED = "exactly", "within tolerance", "not", "reported"
ROUNDING = 1e-7
NUMBERS = ("dataset", "sizes", "truncated", "vocabulary", "tokenizer", "pretrained", "epochs", "best", "translation")
"""The keys of run.json that the recipe decides; not seconds, versions and places."""
NAMES = ("dataset.name", "dataset.revision", "dataset.about.assumed")  # names of the data on this machine
TABLE = "reproduction.csv"
MOST = 20  # results that do not agree, in `describe`


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


def reproduce(
    source: str | os.PathLike, output: str | os.PathLike | None = None, *, data_path: str | None = None
) -> tuple[Path, pd.DataFrame]:
    """Train and measure a recorded run anew, and compare the results. Return the folder of the new run and a row for each
    result (`Compared`), which reproduction.csv in that folder holds too.

    source: the folder of a finished run, or the id of its model repository on the Hub, whose card names its record. output:
    folder of the new run, by default runs/reproduced/<name>; a reproduction that was stopped there goes on, a finished one
    is compared again. data_path: the place of the source's own data, if not that of its recipe; of a run from the Hub it
    must be given, since a recipe from the Hub must not name a file of this machine.

    Raises, before the training starts, ReproductionError where the source is no finished run or was trained on other texts,
    NotFoundError and RecordError where it cannot be read, and what `runs.run` raises.
    """
    local = Path(source).is_dir()
    folder = Path(source) if local else run_on_hub(str(source))
    name = folder.resolve().name if local else str(source).rpartition("/")[2]
    recorded = runs.read_state(folder)
    if recorded.get("status") != "complete":
        raise ReproductionError(f"{name} is not complete ({recorded.get('status')!r}): there is nothing to compare")
    recipe = recipes.load(folder / RECIPE, untrusted=not local)
    own = recipe.data.path
    if data_path is not None:
        if own is None or Path(own).name != Path(data_path).name:  # instance ids hold it
            raise ReproductionError(f"--data.path {excerpt(data_path)}: {name} was trained on {excerpt(own)}")
        recipe = replace(recipe, data=replace(recipe.data, path=data_path))
    elif own is not None and not local:
        raise ReproductionError(f"{name} was trained on {excerpt(Path(own).name)}: give it with --data.path")
    table, loaded = find_record(source).load(), runs.load_data(recipe)
    digests = recorded.get("texts") or {}
    other = [split for split, digest in digests.items() if digest != fingerprint(loaded.splits[split])]
    if other:
        theirs, here = (recorded.get("dataset") or {}).get("revision", "unknown"), f"{loaded.entry.name} ({loaded.revision})"
        raise ReproductionError(f"{name} was trained on other texts than {here} has in {', '.join(other)}: get {theirs}")
    folder = Path(output) if output is not None else Path("runs") / "reproduced" / name
    runs.run(replace(recipe, output_dir=str(folder)), resume=True)
    rows = [*compare_numbers(recorded, runs.read_state(folder)), *compare_records(table, record.load(folder / RECORD))]
    compared = pd.DataFrame(rows, dtype=object)
    write_atomically(folder / TABLE, csv_frame(compared, undefined="nan"))
    return folder, compared


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """Compare the numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (recipes.flat({name: run[name] for name in NUMBERS if name in run}) for run in (recorded, now))
    loss = str(old.get("best.metric")).endswith(("loss", "objective"))
    for name, value in old.items():
        other, tolerance = new.get(name, "missing"), 0.0
        if name in NAMES:
            continue
        if not isinstance(value, int | float) or not isinstance(other, int | float):  # None is an undefined number
            difference = 0.0 if value == other else np.nan
        else:
            difference = abs(value - other)
            if name == "best.value" and not loss:
                tolerance = 0.01
            elif name == "best.value" or (name.startswith("translation.") and isinstance(value, float)):
                tolerance = max(ROUNDING, 0.05 * abs(value))
        yield Compared(name, value, other, difference, tolerance, _agreement(difference, tolerance))


def _agreement(difference: float, tolerance: float) -> str:
    return EXACTLY if difference == 0 else WITHIN if difference <= tolerance else NOT


def compare_records(recorded: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """Compare the columns of two records, rows matched by instance id; see `Column.tolerance`. Identity columns are left
    out, as they name the run.
    """
    ids = [table.column("instance_id").combine_chunks() for table in (recorded, now)]
    places = pc.index_in(*ids)
    other = 2 * places.null_count + len(ids[1]) - len(ids[0])  # missing now, or new
    yield Compared("record: texts", *map(len, ids), float(other), 0.0, _agreement(other, 0.0))
    weights = [next(iter(record.settings(table)), {}).get("model") for table in (recorded, now)]
    same = EXACTLY if weights[0] == weights[1] else REPORTED
    yield Compared("record: weights (SHA-256)", *weights, np.nan, np.nan, same)
    recorded, aligned = recorded.filter(places.is_valid()), now.take(places.drop_null())
    for name in [name for name in recorded.column_names if name not in ("instance_id", *record.IDENTITY_COLUMNS)]:
        if name in now.column_names:
            columns = [table.column(name).combine_chunks() for table in (recorded, aligned)]
            yield compare_column(f"record: {name}", *columns, record.column_of(recorded.schema.field(name)).tolerance)
        else:
            yield Compared(f"record: {name}", "there", "missing", np.nan, np.nan, NOT)


def compare_column(name: str, recorded: pa.Array, now: pa.Array, tolerance: float) -> Compared:
    """Compare one column of matched rows. tolerance: a share of the spread, and of the texts whose values may be of another
    shape or defined elsewhere; that of the result is in the unit of the numbers.
    """
    (old, rows), (new, other_rows) = _innermost(recorded), _innermost(now)
    if not pa.types.is_floating(old.type):
        other = [before != after for before, after in zip(recorded.to_pylist(), now.to_pylist(), strict=True)]
        share = sum(other) / max(1, len(other))
        return Compared(name, "", "", share, tolerance, _agreement(share, tolerance))
    old, new = (side.cast(pa.float64()).to_numpy(zero_copy_only=False) for side in (old, new))  # None as NaN
    apart = np.bincount(rows, minlength=len(recorded)) != np.bincount(other_rows, minlength=len(recorded))
    alike, other_alike, place = old[~apart[rows]], new[~apart[other_rows]], rows[~apart[rows]]
    with np.errstate(invalid="ignore"):  # of two infinite values
        gaps = np.where(alike == other_alike, 0.0, np.abs(alike - other_alike))
    apart[place[(np.isnan(alike) != np.isnan(other_alike)) | np.isinf(gaps)]] = True
    shared = pd.Series(gaps).groupby(place).mean()[lambda means: ~apart[means.index]]  # NaN where nothing is defined
    values, others = (side[np.isfinite(side)] for side in (old, new))
    difference = float(shared.mean()) if shared.notna().any() else 0.0
    allowed = max(ROUNDING, tolerance * mean(np.abs(values - mean(values)))) if tolerance else 0.0
    agreement = _agreement(difference, allowed)
    if apart.any():
        agreement = NOT if apart.mean() > tolerance else WITHIN if agreement == EXACTLY else agreement
    return Compared(name, mean(values), mean(others), difference, allowed, agreement)


def _innermost(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The innermost values of a column of nested lists, and the row of each."""
    rows = np.arange(len(column))
    while pa.types.is_list(column.type):
        rows, column = rows[pc.list_parent_indices(column).to_numpy()], pc.list_flatten(column)
    return column, rows


def describe(compared: pd.DataFrame) -> str:
    """Return the counts and, largest first, the results that do not agree, as a text for a terminal."""
    counts = {kind: int((compared["agreement"] == kind).sum()) for kind in (EXACTLY, WITHIN, NOT, REPORTED)}
    lines = [
        f"{counted(len(compared) - counts[REPORTED], 'result')}: {counts[EXACTLY]} agree {EXACTLY}, {counts[WITHIN]} "
        f"agree {WITHIN}, {counts[NOT]} do not"
    ]
    apart = compared[compared["agreement"] == NOT].drop(columns="agreement")
    ratio = (apart["difference"] / apart["tolerance"].replace(0, np.nan)).astype(float)
    if len(apart):
        largest = apart.loc[ratio.sort_values(ascending=False, na_position="first").index]
        lines += [largest.head(MOST).to_string(index=False, max_colwidth=40)]
    lines += [f"and {len(apart) - MOST} more"] if len(apart) > MOST else []
    if counts[REPORTED]:
        lines.append("the weights are not the same bit for bit, which does not count: other machines round differently")
    return "\n".join(lines)
