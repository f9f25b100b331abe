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
    recipe = recipes.load(folder / runs.RECIPE, untrusted=not local)
    own = recipe.data.path
    if data_path is None and own is not None and not local:
        raise ReproductionError(f"{name} was trained on {excerpt(Path(own).name)}: give it with --data.path")
    if data_path is not None:
        if own is None or Path(own).name != Path(data_path).name:  # instance ids hold it
            raise ReproductionError(f"--data.path {excerpt(data_path)}: {name} was trained on {excerpt(own)}")
        recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, path=data_path))
    table = find_record(source).load()
    _check_texts(recipe, recorded, name)
    folder = Path(output) if output is not None else Path("runs") / "reproduced" / name
    runs.run(dataclasses.replace(recipe, output_dir=str(folder)), resume=True)
    state = runs.read_state(folder)
    rows = [*compare_numbers(recorded, state), *compare_records(table, record.load(folder / runs.RECORD))]
    write_atomically(folder / TABLE, csv_frame(pd.DataFrame(rows, dtype=object), undefined="nan"))
    return Reproduction(folder, rows)


def _check_texts(recipe: Recipe, recorded: Mapping, name: str) -> None:
    """Raise ReproductionError where the texts differ from those of the source, under whatever name of the data set."""
    fingerprints, loaded = recorded.get("texts") or {}, runs.load_data(recipe)
    other = [split for split in fingerprints if fingerprints[split] != fingerprint(loaded.splits[split])]
    if other:
        revision = (recorded.get("dataset") or {}).get("revision", "unknown")
        here = f"{loaded.entry.name} ({loaded.revision})"
        raise ReproductionError(f"{name} was trained on other texts than {here} has in {', '.join(other)}: get {revision}")


# ------------------------------------------------------------------------------------------------ comparing


def compare_numbers(recorded: Mapping, now: Mapping) -> Iterator[Compared]:
    """Compare the numbers of two run.json that a recipe decides, by their dotted names."""
    old, new = (dict(_flat({name: run[name] for name in NUMBERS if name in run})) for run in (recorded, now))
    loss = str(old.get("best.metric")).endswith(("loss", "objective"))
    for name, value in old.items():
        number = isinstance(value, int | float) and isinstance(new.get(name), int | float)
        if name in NAMES:
            continue
        if not number:  # None is an undefined number
            same = name in new and new[name] == value
            yield Compared(name, value, new.get(name, "missing"), 0.0 if same else math.nan, 0.0, EXACTLY if same else NOT)
            continue
        allowed = 0.0
        if name == "best.value" and not loss:
            allowed = 0.01
        elif name == "best.value" or (name.startswith("translation.") and isinstance(value, float)):
            allowed = max(ROUNDING, 0.05 * abs(value))
        difference = abs(value - new[name])
        yield Compared(name, value, new[name], difference, allowed, _agreement(difference, allowed))


def _flat(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
    same = EXACTLY if weights[0] == weights[1] else REPORTED
    yield Compared("record: weights (SHA-256)", *weights, math.nan, math.nan, same)
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
    kind = recorded.type
    while pa.types.is_list(kind):
        kind = kind.value_type
    pairs = list(zip(recorded.to_pylist(), now.to_pylist(), strict=True))
    if not pa.types.is_floating(kind):
        share = float(np.mean([old != new for old, new in pairs])) if pairs else 0.0
        return Compared(name, "", "", share, tolerance, _agreement(share, tolerance))
    rows = [[np.array([*_leaves(part)], np.float64) for part in pair] for pair in pairs]
    like = [(old, new) for old, new in rows if old.shape == new.shape and (np.isnan(old) == np.isnan(new)).all()]
    like = [(old[~np.isnan(old)], new[~np.isnan(old)]) for old, new in like]
    with np.errstate(invalid="ignore"):  # of two infinite values
        apart = [np.where(old == new, 0.0, np.abs(old - new)).mean() for old, new in like if len(old)]
    difference = float(np.mean(apart)) if apart else 0.0
    finite = [np.concatenate([values[np.isfinite(values)] for values in side]) for side in zip(*like, strict=True)]
    means = [float(values.mean()) if len(values) else math.nan for values in finite or [[], []]]
    spread = float(np.abs(finite[0] - means[0]).mean()) if finite and len(finite[0]) else 0.0
    allowed = max(ROUNDING, tolerance * spread) if tolerance else 0.0
    agreement, others = _agreement(difference, allowed), 1 - len(like) / max(1, len(pairs))
    if pairs and others > tolerance:
        agreement, difference = NOT, math.nan
    elif pairs and others and agreement == EXACTLY:
        agreement = WITHIN
    return Compared(name, *means, difference, allowed, agreement)


def _leaves(value) -> Iterator:
    """The innermost values of nested lists."""
    for item in value if isinstance(value, list) else ():
        yield from _leaves(item)
    if not isinstance(value, list):
        yield value


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
        size = "" if math.isnan(row.difference) else f" (difference {row.difference:.3g}, tolerance {row.tolerance:.3g})"
        lines.append(f"  not: {row.name}: {excerpt(row.recorded, 40)} recorded, {excerpt(row.now, 40)} now{size}")
    lines += [f"  and {len(apart) - most} more"] if len(apart) > most else []
    if counts[REPORTED]:
        lines.append("the weights are not the same bit for bit, which does not count: other machines round differently")
    return "\n".join([*lines, f"all results: {result.folder / TABLE}"])
