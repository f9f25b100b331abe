"""A recorded run carried out again and compared with its record.

The recipe is run by the code that is installed here; no code and no weights of the source are used. The texts must have the
same fingerprint. Another machine or number of threads rounds differently, and training amplifies that, so weights are not
compared. The tolerances:

* a column of the record: the difference, a mean over texts, is at most 5 % of the column's spread (its mean absolute
  deviation), or the share that `Column.tolerance` names; at most that share differs in words or undefined values;
* the score that the checkpoint was selected by: 0.01, of losses 5 %; scores of translations: 5 %;
* sizes, vocabulary, epochs, tokens and labels: none.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
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
from attnfaith.support.files import RECIPE, RECORD, STATE, read_object, write_atomically


EXACTLY, WITHIN, NOT = "exactly", "within tolerance", "not"
ROUNDING = 1e-7
NUMBERS = ("dataset", "sizes", "vocabulary", "pretrained", "epochs", "best", "translation")
"""The keys of run.json that the recipe decides; not seconds, versions and places."""
NAMES = ("dataset.name", "dataset.revision", "dataset.about.assumed")  # names of the data on this machine
TABLE = "reproduction.csv"


class ReproductionError(AttnfaithError):
    """A run that cannot be carried out again. The message names the reason and what to do."""


class Compared(NamedTuple):
    """One result.

    recorded, now: the number, or the mean of a column; NaN for texts and labels. difference: of a column the mean over texts
    that of each text's values. apart: the share of texts that cannot be compared, as a word, the shape or what is undefined
    is another; 1 for another word or count. tolerance: for the difference.
    """

    name: str
    recorded: object
    now: object
    difference: float
    apart: float
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
    recorded = read_object(folder / STATE)
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
    table, loaded = record.load(find_record(source)), runs.load_data(recipe).limited(recipe.data.limits)
    other = [split for split, digest in recorded["texts"].items() if digest != fingerprint(loaded.splits[split])]
    if other:
        theirs, here = recorded["dataset"].get("revision", "unknown"), f"{loaded.entry.name} ({loaded.revision})"
        raise ReproductionError(f"{name} was trained on other texts than {here} has in {', '.join(other)}: get {theirs}")
    folder = Path(output) if output is not None else Path("runs") / "reproduced" / name
    runs.run(replace(recipe, output_dir=str(folder)), resume=True)
    rows = [*compare_numbers(recorded, read_object(folder / STATE)), *compare_records(table, record.load(folder / RECORD))]
    compared = pd.DataFrame(rows, dtype=object)
    write_atomically(folder / TABLE, csv_frame(compared, undefined="nan"))
    return folder, compared


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """Compare the numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (recipes.flat({name: run[name] for name in NUMBERS if name in run}) for run in (recorded, now))
    loss = str(old.get("best.metric")).endswith(("loss", "objective"))
    for name, value in old.items():
        other, tolerance = new.get(name, "missing"), 0.0
        if isinstance(value, float) and name.startswith(("best.value", "translation.")):
            tolerance = 0.01 if name == "best.value" and not loss else 0.05 * abs(value)
        if name not in NAMES:
            yield _compared(name, value, other, [_gap(value, other)], tolerance)


def compare_records(recorded: pa.Table, now: pa.Table) -> Iterator[Compared]:
    """Compare the columns of two records, rows matched by instance id; see `Column.tolerance`. Identity columns are left
    out, as they name the run.
    """
    ids = [table.column("instance_id").combine_chunks() for table in (recorded, now)]
    places = pc.index_in(*ids)
    same = places.null_count == 0 and len(ids[0]) == len(ids[1])
    yield _compared("record: texts", len(ids[0]), len(ids[1]), [0.0 if same else np.inf], 0.0)
    recorded, aligned = recorded.filter(places.is_valid()), now.take(places.drop_null())
    for name in [name for name in recorded.column_names if name not in ("instance_id", *record.IDENTITY_COLUMNS)]:
        if name in now.column_names:
            columns = [table.column(name).combine_chunks() for table in (recorded, aligned)]
            yield compare_column(f"record: {name}", *columns, record.column_of(recorded.schema.field(name)).tolerance)
        else:
            yield _compared(f"record: {name}", "there", "missing", [np.inf], 0.0)


def compare_column(name: str, recorded: pa.Array, now: pa.Array, tolerance: float) -> Compared:
    """Compare one column of matched rows. tolerance: a share of the spread, and of the texts that may be apart."""
    old, new = _numbers(recorded), _numbers(now)
    gaps = [_gap(before.as_py(), after.as_py()) for before, after in zip(recorded, now, strict=True)]
    allowed = max(ROUNDING, tolerance * mean(np.abs(old - mean(old)))) if tolerance else 0.0
    return _compared(name, mean(old), mean(new), gaps, allowed, tolerance)


def _numbers(column: pa.Array) -> np.ndarray:
    """The finite numbers in a column of nested lists; none in one of words."""
    while pa.types.is_list(column.type):
        column = column.flatten()
    values = column.drop_null().to_numpy(zero_copy_only=False) if pa.types.is_floating(column.type) else np.empty(0)
    return values[np.isfinite(values)].astype(np.float64)


def _gap(old: object, new: object) -> float:
    """The mean difference of two nested lists of numbers: NaN if all are undefined in both, infinite if they cannot be
    compared.
    """
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        gaps = list(map(_gap, old, new))
        return mean([gap for gap in gaps if not math.isnan(gap)])
    if isinstance(old, float) and isinstance(new, float):
        if math.isnan(old) and math.isnan(new):
            return math.nan
        if math.isfinite(old) and math.isfinite(new):
            return abs(old - new)
    return 0.0 if old == new else math.inf


def _compared(name: str, recorded, now, gaps: Sequence[float], tolerance: float, share: float = 0.0) -> Compared:
    """One result. gaps: `_gap` of each text. share: of the texts that may be apart."""
    gaps = np.array(gaps)
    apart, defined = mean(np.isinf(gaps)), gaps[np.isfinite(gaps)]
    difference = mean(defined) if len(defined) else 0.0
    agreement = NOT if difference > tolerance or apart > share else WITHIN if difference or apart > 0 else EXACTLY
    return Compared(name, recorded, now, difference, apart, tolerance, agreement)


def describe(compared: pd.DataFrame) -> str:
    """Return the counts and the results that do not agree, as a text for a terminal."""
    counts = compared["agreement"].value_counts().reindex([EXACTLY, WITHIN, NOT], fill_value=0)
    text = f"{counted(len(compared), 'result')}: {{}} agree {EXACTLY}, {{}} agree {WITHIN}, {{}} do not".format(*counts)
    differing = compared[compared["agreement"] == NOT].drop(columns="agreement")
    if len(differing):
        text += f"\n{differing.to_string(index=False, max_rows=20, max_colwidth=40)}"
    return text
