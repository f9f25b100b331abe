"""Sentence pairs with links between their words: generated, from the registry, and from a user's own files.

A split is a `datasets.Dataset` with the columns
    instance_id  str, "<set>/<split>/<row>"
    source, target  str, words one blank apart
    links        list of [source word, target word, 2 sure or 1 possible], counted from 0 (where the split has links)

Files hold one sentence a line, its words between blanks or tabs, and the links of a pair on a line: `i-j` is a sure link
from source word i to target word j, `ipj` (or `i?j`) a possible one (the formats of fast_align, Dyer et al. 2013, and of the
TALP alignments, Lambert et al. 2005). Words are counted from 0 or from 1; no file says which.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from attnfaith.data import translation_tasks
from attnfaith.data.generators import check_sizes, generate_splits, generated_revision
from attnfaith.data.in_memory import in_memory
from attnfaith.data.registry import read_entries
from attnfaith.data.sources import ROOT_VARIABLE, data_root, draw
from attnfaith.support.errors import DatasetError, cut, excerpt, nearest


SIZES = {"train": 8000, "validation": 500, "test": 500}
"""Rows of generated pairs where the arguments name no other sizes."""


@dataclass(frozen=True)
class PairFiles:
    """The files of one split, or of a part of it.

    source, target, links: below the data root; links "" where there are none. first: what links count from, 0 or 1.
    swapped: the set's source is the target of the files. lower: read in lower case.
    """

    source: str
    target: str
    links: str = ""
    first: int = 0
    swapped: bool = False
    lower: bool = False


@dataclass(frozen=True)
class PairsEntry:
    """One set of sentence pairs. gold: what its links are. files: by split, none for generated pairs. own: a user's."""

    name: str
    citation: str
    gold: str
    files: Mapping[str, tuple[PairFiles, ...]] = field(default_factory=dict)
    built_in: bool = False
    own: bool = False
    licence: str = ""
    notes: str = ""


PAIRS = read_entries(Path(__file__).with_name("pairs.yaml"), PairsEntry)
"""The sets of sentence pairs that recipes name."""


def pairs_entry(name: str | None) -> PairsEntry:
    """Return the entry of a set of sentence pairs. DatasetError, with the nearest name, for an unknown one."""
    if name in PAIRS:
        return PAIRS[name]
    raise DatasetError(f"{excerpt(name)} is no set of sentence pairs{nearest(name, PAIRS)}; or give data.path")


# ------------------------------------------------------------------------------------------------ loading


@dataclass(frozen=True)
class LoadedPairs:
    """Sentence pairs as read.

    splits: {split: rows}. seed: draws limits. revision: as `LoadedDataset.revision`. left_out: by split, the number of pairs
    that are empty or beyond a limit.
    """

    splits: dict[str, "datasets.Dataset"]  # noqa: F821 (imported on use)
    entry: PairsEntry
    seed: int
    revision: str
    left_out: dict[str, int]

    def limited(self, limits: Mapping[str, int]) -> "LoadedPairs":
        """The same pairs with at most so many of a split, drawn at random, in their order."""
        check_sizes("limits", limits)
        splits, left_out = {}, dict(self.left_out)
        for split, rows in self.splits.items():
            drawn = draw(np.arange(len(rows)), limits.get(split, len(rows)), self.seed, split)
            splits[split] = rows.select(drawn) if len(drawn) < len(rows) else rows
            left_out[split] = left_out.get(split, 0) + len(rows) - len(drawn)
        return replace(self, splits=splits, left_out=left_out)


def load_pairs(
    name: str | None = None,
    *,
    path: str | None = None,
    links_from: int = 0,
    seed: int = 0,
    root: str | os.PathLike | None = None,
    **arguments,
) -> LoadedPairs:
    """Load sentence pairs by a name in `PAIRS`, or from a user's folder.

    links_from: what the links of that folder count from, 0 or 1. seed: of generated pairs and limits. root: the data root;
    default the environment variable ATTNFAITH_DATA. arguments: of generated pairs, the arguments of the generator and
    sizes={"train": 8000}.

    Raises DatasetError for an unknown name or argument, missing files, and unusable content.
    """
    entry = pairs_entry(name) if path is None else _own_entry(Path(path), links_from)
    left_out = {}
    if entry.built_in:
        task = (name,) if name in translation_tasks.SEQUENCES else ()
        generator = translation_tasks.sequences if task else translation_tasks.toy_language
        tables = generate_splits(name, generator, task, seed, arguments, SIZES)
        revision = generated_revision(translation_tasks.VERSION, seed, arguments)
    elif arguments:
        raise DatasetError(f"{sorted(arguments)} are arguments of generated pairs; {entry.name!r} is read, not generated.")
    else:
        tables, revision, left_out = _read(entry, data_root(root))
    splits = {split: _dataset(f"{entry.name}/{split}", rows) for split, rows in tables.items()}
    return LoadedPairs(splits, entry, seed, revision, left_out)


def _dataset(prefix: str, rows: list[dict]):
    import pyarrow as pa

    columns = {"instance_id": pa.array([f"{prefix}/{number}" for number in range(len(rows))])}
    columns |= {side: pa.array([row[side] for row in rows]) for side in ("source", "target")}
    if "links" in rows[0]:
        columns["links"] = pa.array([row["links"] for row in rows], pa.list_(pa.list_(pa.int32())))
    return in_memory(pa.table(columns))


# ------------------------------------------------------------------------------------------------ files


def _own_entry(folder: Path, first: int) -> PairsEntry:
    """The entry of a user's folder. DatasetError where a side of a split is missing or has two files."""
    if not folder.is_dir():
        raise DatasetError(
            f"data.path={excerpt(str(folder))} {'is a file' if folder.is_file() else 'does not exist'}: sentence pairs are "
            "a folder with train.src, train.trg, train.align (where there are links), and the same of validation and test"
        )
    files = {}
    for split, names in {"train": ["train"], "validation": ["validation", "valid", "dev"], "test": ["test"]}.items():
        parts = []
        for endings in ((".src",), (".trg",), (".align", ".talp")):
            paths = sorted(p for p in folder.iterdir() if p.name.partition(".")[0] in names and p.suffix in endings)
            if len(paths) > 1:
                raise DatasetError(f"{folder} has {' and '.join(path.name for path in paths[:2])}: leave one of them")
            if not paths and endings[0] != ".align":
                raise DatasetError(f"data.path={excerpt(str(folder))} has no {split}{endings[0]}")
            parts.append(str(paths[0]) if paths else "")
        files[split] = (PairFiles(*parts, first=first),)
    name = folder.resolve().name
    return PairsEntry(name, f"own data, {name}", "of the user's files", files, own=True)


def _read(entry: PairsEntry, root: Path | None) -> tuple[dict[str, list[dict]], str, dict[str, int]]:
    if root is None and not entry.own:
        raise DatasetError(f"{entry.name!r} is read from files, and {ROOT_VARIABLE} is not set. {entry.notes}")
    folder = Path(".") if entry.own else root
    digest, tables, left_out = hashlib.sha256(), {}, {}
    for split, parts in entry.files.items():
        tables[split], left_out[split] = [], 0
        for files in parts:
            for name in filter(None, (files.source, files.target, files.links)):
                if not (folder / name).is_file():
                    raise DatasetError(f"{entry.name!r}: there is no {folder / name}. {entry.notes}")
                digest.update((folder / name).read_bytes())
            rows, empty = _read_pairs(files, folder, own=entry.own)
            tables[split] += rows
            left_out[split] += empty
    return tables, f"local-{digest.hexdigest()[:12]}", left_out


def _read_pairs(files: PairFiles, root: Path, *, own: bool) -> tuple[list[dict], int]:
    """The rows of a split, and the number of pairs without words, which are left out; in a user's own files an error."""
    paths = {"source": root / files.source, "target": root / files.target}
    if files.links:
        paths["links"] = root / files.links
    lines = {kind: _lines(path) for kind, path in paths.items()}
    if len({len(part) for part in lines.values()}) > 1:
        counts = ", ".join(f"{paths[kind].name} {len(part):,}" for kind, part in lines.items())
        raise DatasetError(f"{paths['source'].parent}: the files of a split have one line a pair, and these have {counts}")
    rows = []
    for number, (source, target) in enumerate(zip(lines["source"], lines["target"], strict=True)):
        words = {"source": source.split(), "target": target.split()}
        empty = [side for side, sentence in words.items() if not sentence]
        if empty:
            if own:
                raise DatasetError(
                    f"{paths[empty[0]]}, line {number + 1}: the sentence is empty; leave the pair out of all files"
                )
            continue
        row = {side: " ".join(sentence) for side, sentence in words.items()}
        if files.links:
            place = f"{paths['links']}, line {number + 1}"
            sizes = len(words["source"]), len(words["target"])
            links = read_links(lines["links"][number], *sizes, first=files.first, place=place)
            row["links"] = list(map(list, links))
        if files.swapped:
            row |= {"source": row["target"], "target": row["source"]}
            row["links"] = sorted([target, source, strength] for source, target, strength in row.get("links", ()))
        if files.lower:
            row |= {side: row[side].lower() for side in words}
        rows.append(row)
    if not rows:
        raise DatasetError(f"{paths['source']} has no sentences")
    return rows, len(lines["source"]) - len(rows)


def _lines(path: Path) -> list[str]:
    """The lines of a file, in which blanks other than space and tab become visible marks: aligners do not divide there."""
    try:
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read as UTF-8 text: {excerpt(error)}") from error
    return [re.sub(r"[^\S \t]", "\u2423", line.rstrip("\r")) for line in lines]


# ------------------------------------------------------------------------------------------------ links


def read_links(line: str, sources: int, targets: int, *, first: int = 0, place: str = "links") -> list[tuple[int, int, int]]:
    """Read [(source, target, 2 sure or 1 possible)] from a line, counted from 0, in order and without repeats (sure wins).

    sources, targets: numbers of words T and G of the sentences. first: what the line counts from, 0 or 1. place: where the
    line stands, for messages.

    Raises DatasetError for a malformed link, and for a word that the sentence does not have.
    """
    if first not in (0, 1):
        raise DatasetError(f"links_from={excerpt(first)}: words are counted from 0 or from 1")
    strengths: dict[tuple[int, int], int] = {}
    for written in line.split():
        match = re.fullmatch(r"(\d{1,6})([-p?])(\d{1,6})", written)
        if match is None:
            raise DatasetError(f"{place}: {excerpt(written)} is no link; write 3-4 (sure) or 3p4 (possible)")
        link = int(match[1]) - first, int(match[3]) - first
        for number, words, side in zip(link, (sources, targets), ("source", "target"), strict=True):
            if 0 <= number < words:
                continue
            reason = "the links belong to other sentences, or to words that were divided otherwise"
            if number < 0:
                reason = "the links count from 0, so give links_from=0"
            elif number == words and first == 0:
                reason = "if the links count from 1, give links_from=1"
            raise DatasetError(
                f"{place}: the link {cut(written, 20)} names {side} word {number + first}, and the {side} sentence has "
                f"{words} words, counted from {first}: {reason}"
            )
        strengths[link] = max(2 if match[2] == "-" else 1, strengths.get(link, 0))
    return [(*link, strength) for link, strength in sorted(strengths.items())]
