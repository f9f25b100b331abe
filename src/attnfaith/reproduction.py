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

import math
import os
from collections import Counter
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
from attnfaith.measurement.registry import find, names
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


class Reproduction(NamedTuple):
    """The outcome. folder: the new run. rows: every result compared."""

    folder: Path
    rows: list[Compared]

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
    write_atomically(folder / TABLE, csv_frame(pd.DataFrame(rows, dtype=object), undefined="nan"))
    return Reproduction(folder, rows)


# ------------------------------------------------------------------------------------------------ comparing


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """Compare the numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (dict(_leaves({name: run[name] for name in NUMBERS if name in run})) for run in (recorded, now))
    loss = str(old.get("best.metric")).endswith(("loss", "objective"))
    for name in [name for name in old if name not in NAMES]:
        value, other = old[name], new.get(name, "missing")
        if isinstance(value, int | float) and isinstance(other, int | float):
            tolerance = 0.0
            if name == "best.value" and not loss:
                tolerance = 0.01
            elif name == "best.value" or (name.startswith("translation.") and isinstance(value, float)):
                tolerance = max(ROUNDING, 0.05 * abs(value))
            difference = abs(value - other)
            yield Compared(name, value, other, difference, tolerance, _agreement(difference, tolerance))
        else:  # None is an undefined number
            difference = 0.0 if value == other else math.nan
            yield Compared(name, value, other, difference, 0.0, _agreement(difference, 0.0))


def _leaves(tree, prefix: str = "") -> Iterator[tuple[str, object]]:
    """The innermost values of nested dictionaries with their dotted names."""
    for key, value in tree.items():
        yield from _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]


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
    yield Compared("record: weights (SHA-256)", *weights, math.nan, math.nan, same)
    reads = "pairs" if record.of_sequences(recorded) else "texts"
    declared = {**record.common_columns(recorded.column_names), **record.OPTIONAL_COLUMNS}
    producers = {name for part in record.settings(recorded) for name in part.get("producers", ())}
    for name in sorted(producers & {*names(reads)}):
        declared |= find(name, reads).columns
    recorded, aligned = recorded.filter(places.is_valid()), now.take(places.drop_null())
    for name in [name for name in recorded.column_names if name not in ("instance_id", *record.IDENTITY_COLUMNS)]:
        if name in now.column_names:
            columns = [table.column(name).combine_chunks() for table in (recorded, aligned)]
            yield compare_column(f"record: {name}", *columns, declared.get(name, record.Column()).tolerance)
        else:
            yield Compared(f"record: {name}", "there", "missing", math.nan, math.nan, NOT)


def compare_column(name: str, recorded: pa.Array, now: pa.Array, tolerance: float) -> Compared:
    """Compare one column of matched rows. tolerance: a share of the spread; that of the result is in the unit of the
    numbers.
    """
    kind = recorded.type
    while pa.types.is_list(kind):
        kind = kind.value_type
    if not pa.types.is_floating(kind):
        other = [old != new for old, new in zip(recorded.to_pylist(), now.to_pylist(), strict=True)]
        share = float(np.mean(other)) if other else 0.0
        return Compared(name, "", "", share, tolerance, _agreement(share, tolerance))
    pairs = list(zip(map(_innermost, recorded.to_pylist()), map(_innermost, now.to_pylist()), strict=True))
    like = [(old, new) for old, new in pairs if old.shape == new.shape and (np.isnan(old) == np.isnan(new)).all()]
    others = 1 - len(like) / max(1, len(pairs))
    with np.errstate(invalid="ignore"):  # of two infinite values
        gaps = [np.where(old == new, 0.0, np.abs(old - new)) for old, new in like if not np.isnan(old).all()]
    difference = float(np.mean([np.nanmean(gap) for gap in gaps])) if gaps else 0.0
    sides = [np.concatenate([np.zeros(0), *(pair[place] for pair in like)]) for place in (0, 1)]
    finite = [values[np.isfinite(values)] for values in sides]
    means = [mean(values) for values in finite]
    allowed = max(ROUNDING, tolerance * mean(np.abs(finite[0] - means[0]))) if tolerance else 0.0
    agreement = _agreement(difference, allowed)
    if others > tolerance:
        agreement, difference = NOT, math.nan
    elif others and agreement == EXACTLY:
        agreement = WITHIN
    return Compared(name, *means, difference, allowed, agreement)


def _innermost(row) -> np.ndarray:
    """The innermost numbers of nested lists, float64; None as NaN."""
    while isinstance(row, list) and any(isinstance(item, list) for item in row):
        row = [inner for item in row for inner in (item if isinstance(item, list) else [item])]
    return np.array(row, np.float64)


def describe(result: Reproduction) -> str:
    """Return the counts and, largest first, the results that do not agree, as a text for a terminal."""
    counts = Counter(row.agreement for row in result.rows)
    lines = [
        f"{counted(len(result.rows) - counts[REPORTED], 'result')}: {counts[EXACTLY]} agree {EXACTLY}, {counts[WITHIN]} "
        f"agree {WITHIN}, {counts[NOT]} do not"
    ]
    apart = [row for row in result.rows if row.agreement == NOT]
    apart.sort(key=lambda row: row.difference / row.tolerance if row.tolerance and row.difference >= 0 else math.inf)
    for row in apart[: -MOST - 1 : -1]:
        size = "" if math.isnan(row.difference) else f" (difference {row.difference:.3g}, tolerance {row.tolerance:.3g})"
        lines.append(f"  not: {row.name}: {excerpt(row.recorded, 40)} recorded, {excerpt(row.now, 40)} now{size}")
    lines += [f"  and {len(apart) - MOST} more"] if len(apart) > MOST else []
    if counts[REPORTED]:
        lines.append("the weights are not the same bit for bit, which does not count: other machines round differently")
    return "\n".join([*lines, f"all results: {result.folder / TABLE}"])
