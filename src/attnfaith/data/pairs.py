"""Sentence pairs with links between their words: generated, from the registry, and from a user's own files.

A split is a `datasets.Dataset` with the columns
    instance_id  str, "<set>/<split>/<row>"
    source, target  str, words one blank apart
    links        list of [source word, target word, 2 sure or 1 possible], counted from 0 (where the split has links)

A folder holds train.src, train.trg and perhaps train.align (or .talp), one sentence a line, its words between blanks or
tabs; the same of validation (valid, val, dev) and test. Links of a pair are a line: `i-j` is a sure link from word i to
target word j, `ipj` (or `i?j`) a possible one (the formats of fast_align, Dyer et al. 2013, and of the TALP alignments,
Lambert et al. 2005). Words are counted from 0 or from 1; no file says which.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from attnfaith.data import translation_tasks
from attnfaith.data.generators import generated
from attnfaith.data.in_memory import in_memory
from attnfaith.data.loading import ROOT_VARIABLE, LoadedDataset, data_root
from attnfaith.data.registry import SPLIT_NAMES, SPLITS, DatasetEntry, pairs_entry
from attnfaith.metrics.attention_faithfulness import alignment_error_rate
from attnfaith.metrics.attention_faithfulness.columns import InputError
from attnfaith.support.errors import DatasetError, excerpt


SIZES = {"train": 8000, "validation": 500, "test": 500}
"""Rows of generated pairs where the arguments name no other sizes."""
ENDINGS = {"source": (".src",), "target": (".trg",), "links": (".align", ".talp")}


def load_pairs(
    name: str | None = None,
    *,
    path: str | None = None,
    links_from: int = 0,
    seed: int = 0,
    root: str | os.PathLike | None = None,
    **arguments,
) -> LoadedDataset:
    """Load sentence pairs by a name in `PAIRS`, or from a user's folder.

    links_from: what the links of that folder count from, 0 or 1. seed: of generated pairs and limits. root: the data root;
    default the environment variable ATTNFAITH_DATA. arguments: of generated pairs, the arguments of the generator and
    sizes={"train": 8000}.

    Raises DatasetError for an unknown name or argument, missing files, and unusable content.
    """
    dropped = {split: {} for split in SPLITS}
    if path is None:
        entry = pairs_entry(name)
    else:
        own = Path(path).resolve().name
        entry = DatasetEntry(own, f"own data, {own}", folder=path, gold="of the user's files", own=True)
    if entry.built_in:
        generator = translation_tasks.toy_language
        if name in translation_tasks.SEQUENCES:
            generator = partial(translation_tasks.sequences, name)
        tables, revision = generated(generator, translation_tasks.VERSION, seed, arguments, SIZES)
    elif arguments:
        raise DatasetError(f"{sorted(arguments)} are arguments of generated pairs; {entry.name!r} is read, not generated.")
    else:
        tables, revision, dropped = _read(entry, links_from, data_root(root))
    splits = {}
    for split, rows in tables.items():
        named = [{"instance_id": f"{entry.name}/{split}/{number}", **row} for number, row in enumerate(rows)]
        splits[split] = in_memory(pa.Table.from_pylist(named))
    return LoadedDataset(splits, entry, seed, revision, dropped)


def _read(entry: DatasetEntry, first: int, root: Path | None) -> tuple[dict[str, list[dict]], str, dict[str, dict]]:
    """The rows of a folder by split, the revision, and the numbers of pairs that are left out."""
    if root is None and not entry.own:
        raise DatasetError(f"{entry.name!r} is read from files, and {ROOT_VARIABLE} is not set. {entry.notes}")
    folder = Path(entry.folder) if entry.own else root / entry.folder
    digest, tables, dropped = hashlib.sha256(), {}, {}
    for split in SPLITS:
        lines = {}
        for kind, endings in ENDINGS.items():
            listed = sorted(path for path in folder.glob("*") if path.suffix in endings)
            paths = [path for path in listed if SPLIT_NAMES.get(path.name.partition(".")[0]) == split]
            if len(paths) > 1:
                raise DatasetError(f"{folder} has {' and '.join(path.name for path in paths[:2])}: leave one of them")
            if paths:
                digest.update(paths[0].read_bytes())
                lines[kind] = _lines(paths[0])
            elif kind != "links":
                raise DatasetError(
                    f"data.path={excerpt(str(folder))} has no {split}{endings[0]}: sentence pairs are a folder with "
                    "train.src, train.trg, train.align (where there are links), and the same of validation and test. "
                    f"{entry.notes}"
                )
        if len(set(map(len, lines.values()))) > 1:
            counts = ", ".join(f"{kind} {len(part):,}" for kind, part in lines.items())
            raise DatasetError(f"{folder}: the files of a split have one line a pair, and those of {split} have {counts}")
        columns = {side: [" ".join(line.split()) for line in lines[side]] for side in ("source", "target")}
        if "links" in lines:
            sizes = ([len(line.split()) for line in side] for side in columns.values())
            columns["links"] = read_links(lines["links"], *sizes, first=first, name=f"{split} of {folder}")
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        tables[split] = [row for row in rows if row["source"] and row["target"]]
        dropped[split] = {"empty": len(rows) - len(tables[split])}
        if not tables[split]:
            raise DatasetError(f"{folder} has no sentences of {split}")
    return tables, f"local-{digest.hexdigest()[:12]}", dropped


def _lines(path: Path) -> list[str]:
    """The lines of a file, in which blanks other than space and tab become visible marks: aligners do not divide there."""
    try:
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as UTF-8 text: {excerpt(error)}") from error
    return [re.sub(r"[^\S \t]", "\u2423", line.rstrip("\r")) for line in lines]


def read_links(
    lines: Sequence[str], sources: Sequence[int], targets: Sequence[int], *, first: int = 0, name: str = "links"
) -> list[list[list[int]]]:
    """Read [[source, target, 2 sure or 1 possible]] from each line, counted from 0, in order and without repeats.

    sources, targets: numbers of words of the sentences. first: what the lines count from, 0 or 1. name: of the links, for
    messages.

    Raises DatasetError, with the row, for a malformed link, and for a word that the sentence does not have.
    """
    try:
        lengths = {"source": sources, "target": targets}
        return [links.tolist() for links in alignment_error_rate.read_links(lines, name, start=first, lengths=lengths)]
    except InputError as error:
        raise DatasetError(str(error)) from error
