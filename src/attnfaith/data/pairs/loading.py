"""From a name or a folder to train, validation and test of sentence pairs.

A split is a `datasets.Dataset` with columns
    instance_id  str, "<set>/<split>/<row>"
    source, target  str, words one blank apart
    links        list of [source word, target word, 2 sure or 1 possible], counted from 0 (where the split has links)
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnfaith.data.cutting import draw
from attnfaith.data.in_memory import in_memory
from attnfaith.data.pairs import sequence_tasks, toy_language
from attnfaith.data.pairs.entries import PairsEntry, pairs_entry
from attnfaith.data.pairs.files import own_entry, read_pairs
from attnfaith.data.sources import ROOT_VARIABLE, check_sizes, data_root, generate, generated_revision
from attnfaith.errors import DatasetError


GENERATED_SIZES = {"train": 8000, "validation": 500, "test": 500}


@dataclass(frozen=True)
class LoadedPairs:
    """Sentence pairs as read: their entry, what was read (as `LoadedDataset.revision` says), {split: rows}, and how many
    pairs of a split were left out, for being empty or by a limit.
    """

    entry: PairsEntry
    revision: str
    splits: dict[str, "datasets.Dataset"]  # noqa: F821 (imported on use)
    left_out: dict[str, int]

    def limited(self, limits: Mapping[str, int], seed: int) -> "LoadedPairs":
        """The same with at most so many pairs of a split, drawn at random, in their order."""
        import numpy as np

        check_sizes("limits", limits)
        splits, left_out = {}, dict(self.left_out)
        for split, rows in self.splits.items():
            drawn = draw(np.arange(len(rows)), limits.get(split, len(rows)), seed, split)
            splits[split] = rows.select(drawn) if len(drawn) < len(rows) else rows
            left_out[split] = left_out.get(split, 0) + len(rows) - len(drawn)
        return LoadedPairs(self.entry, self.revision, splits, left_out)


def load_pairs(
    name: str | None = None,
    *,
    path: str | None = None,
    links_from: int = 0,
    seed: int = 0,
    root: str | os.PathLike | None = None,
    **arguments,
) -> LoadedPairs:
    """Sentence pairs of a name in `PAIRS`, or of a user's folder.

    links_from: what the links of that folder count from, 0 or 1. seed: of generated pairs. root: the data root; default the
    environment variable ATTNFAITH_DATA. arguments: of generated pairs, the knobs of the generator and sizes={"train": 8000}.

    Raises DatasetError for an unknown name or argument, files that are not there, and what they hold that cannot be used.
    """
    entry = pairs_entry(name) if path is None else own_entry(path, links_from)
    left_out = {}
    if entry.built_in:
        task = (entry.name,) if entry.name in sequence_tasks.TASKS else ()
        generator = sequence_tasks if task else toy_language
        tables = generate(entry.name, generator, task, seed, arguments, GENERATED_SIZES)
        revision = generated_revision(generator, seed, arguments)
    elif arguments:
        raise DatasetError(f"{sorted(arguments)} are arguments of generated pairs; {entry.name!r} is read, not generated.")
    else:
        tables, revision, left_out = _read(entry, data_root(root))
    splits = {split: _dataset(f"{entry.name}/{split}", rows) for split, rows in tables.items()}
    return LoadedPairs(entry, revision, splits, left_out)


def _read(entry: PairsEntry, root: Path | None) -> tuple[dict[str, list[dict]], str, dict[str, int]]:
    if root is None and not entry.own:
        raise DatasetError(f"{entry.name!r} is read from files, and {ROOT_VARIABLE} is not set. {entry.notes}")
    folder = Path(".") if entry.own else root
    digest = hashlib.sha256()
    for files in (part for parts in entry.files.values() for part in parts):
        for name in filter(None, (files.source, files.target, files.links)):
            if not (folder / name).is_file():
                raise DatasetError(f"{entry.name!r}: there is no {folder / name}. {entry.notes}")
            digest.update((folder / name).read_bytes())
    tables, left_out = {}, {}
    for split, parts in entry.files.items():
        read = [read_pairs(files, folder, own=entry.own) for files in parts]
        tables[split] = [row for rows, _ in read for row in rows]
        left_out[split] = sum(empty for _, empty in read)
    return tables, f"local-{digest.hexdigest()[:12]}", left_out


def _dataset(prefix: str, rows: list[dict]):
    import pyarrow as pa

    columns = {
        "instance_id": pa.array([f"{prefix}/{number}" for number in range(len(rows))]),
        "source": pa.array([row["source"] for row in rows]),
        "target": pa.array([row["target"] for row in rows]),
    }
    if "links" in rows[0]:
        columns["links"] = pa.array([row["links"] for row in rows], pa.list_(pa.list_(pa.int32())))
    return in_memory(pa.table(columns))
