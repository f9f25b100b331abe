"""A long measurement in shards: over processes, resumable at any moment, and one record at the end."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from numbers import Integral
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from tqdm.auto import tqdm

from attnfaith import record
from attnfaith.errors import FileError, excerpt
from attnfaith.files import read_object, write_atomically
from attnfaith.measurement.registry import MeasurementError


BATCH_INSTANCES = 64


def batches(lengths: np.ndarray, batch_tokens: int, instances: int = BATCH_INSTANCES) -> list[np.ndarray]:
    """Row numbers in batches of similar length: at most `batch_tokens` padded tokens, or a single longer text.

    Raises MeasurementError where batch_tokens is no whole number of 1 or more.
    """
    if not isinstance(batch_tokens, Integral) or isinstance(batch_tokens, bool) or batch_tokens < 1:
        raise MeasurementError(f"batch_tokens={excerpt(batch_tokens)}: a whole number, 1 or more")
    order = np.argsort(lengths, kind="stable")
    cut, start = [], 0
    for stop in range(1, len(order) + 1):
        full = stop - start == instances
        if stop == len(order) or full or lengths[order[stop]] * (stop + 1 - start) > batch_tokens:
            cut.append(order[start:stop])
            start = stop
    return cut


def in_shards(batches: list[np.ndarray], shard_instances: int) -> list[list[np.ndarray]]:
    """Batches in shards of at most so many instances, or a single larger batch."""
    shards, count = [[]], 0
    for batch in batches:
        if shards[-1] and count + len(batch) > shard_instances:
            shards.append([])
            count = 0
        shards[-1].append(batch)
        count += len(batch)
    return shards


def carry_out(
    output: str | os.PathLike | None,
    plan: dict,
    shards: list[list[np.ndarray]],
    measured: Callable[[np.ndarray], dict[str, list]],
    extra: Mapping[str, record.Column],
    *,
    settings: Mapping | None = None,
    discard: bool = False,
    unit: str = "text",
    progress: bool = True,
) -> Path | pa.Table:
    """Measure what is missing of a plan, and write its record; returns its path. Without output nothing is written, and the
    record itself is returned.

    plan: what tells this measurement from any other, as JSON has it; "columns" and "version" say of which code it is.
    measured: the columns of the rows that a batch of a shard names. extra: the columns that are not common. settings: what
    else to keep in the record. discard: delete shards of another measurement that lie there. unit: what a row is called.

    Under `accelerate launch` each process takes every n-th shard. Raises MeasurementError where shards of another
    measurement lie there and are not to be discarded.
    """
    state = PartialState(cpu=not torch.cuda.is_available())
    settings = [{**plan, **(settings or {})}]
    rows = pa.array(np.argsort(np.concatenate([batch for shard in shards for batch in shard]), kind="stable"))
    bar_of = partial(
        tqdm,
        desc=f"measuring {plan['identity']['dataset']} {plan['identity']['split']}",
        unit=unit,
        disable=not (progress and state.is_main_process),
    )

    def table_of(batches: list[np.ndarray], bar: tqdm) -> pa.Table:
        parts = []
        for batch in batches:
            parts.append(measured(batch))
            bar.update(len(batch))
        return record.build({name: list(chain.from_iterable(part[name] for part in parts)) for name in parts[0]}, extra)

    if output is None:
        batches = [batch for shard in shards for batch in shard]
        with bar_of(total=sum(map(len, batches))) as bar:
            return record.with_settings(table_of(batches, bar).take(rows), settings)
    output, mine = Path(output), range(state.process_index, len(shards), state.num_processes)
    folder = _folder_of(output)
    paths = [folder / f"{number:05d}.parquet" for number in range(len(shards))]
    if state.is_main_process:
        _prepare(folder, plan, discard)
    state.wait_for_everyone()
    with bar_of(total=sum(len(batch) for number in mine for batch in shards[number])) as bar:
        for number in mine:
            count = sum(map(len, shards[number]))
            if _is_whole(paths[number], count):
                bar.update(count)
            else:
                record.save(table_of(shards[number], bar), paths[number])
    state.wait_for_everyone()
    if state.is_main_process:
        table = pa.concat_tables(map(record.load, paths)).unify_dictionaries().combine_chunks()
        record.save(record.with_settings(table.take(rows), settings), output)
        shutil.rmtree(folder)
    state.wait_for_everyone()
    return output


def _prepare(folder: Path, plan: dict, discard: bool) -> None:
    """Make the folder of the shards, or take what lies there of this very measurement."""
    path = folder / "plan.json"
    if path.exists():
        try:
            planned = read_object(path)
        except FileError as error:
            if not discard:
                raise MeasurementError(f"{error}; delete the folder to start anew") from error
            planned = {}
        changed = sorted(key for key in {*plan, *planned} if plan.get(key) != planned.get(key))
        if not changed:
            return
        other = [key for key in changed if key not in ("columns", "version")]
        if other and not discard:
            raise MeasurementError(
                f"{folder} holds part of another measurement (different: {', '.join(other)}); "
                "finish that one, or delete the folder to start anew"
            )
    # shards of other code, or without a plan, left when the folder was being deleted: nobody can finish those
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_atomically(path, json.dumps(plan, indent=1))


def delete_finished(output: str | os.PathLike) -> None:
    """Delete the shards of the record at `output` that a kill, which came after the record was whole, left beside it.

    Those of another measurement stay: it may be gone on with.
    """
    folder = _folder_of(Path(output))
    try:
        planned = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        (settings,) = record.settings(record.load(output))
        finished = all(settings.get(key) == value for key, value in planned.items())
    except FileNotFoundError:
        finished = True  # while they were deleted
    except (ValueError, AttributeError, record.RecordError):
        finished = False
    if finished:
        shutil.rmtree(folder, ignore_errors=True)


def _folder_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.shards")


def _is_whole(path: Path, count: int) -> bool:
    try:
        return path.exists() and record.load(path).num_rows == count
    except record.RecordError:
        return False  # left by a crash of the machine: measure it again
