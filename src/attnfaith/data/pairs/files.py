"""Sentence pairs from files: one sentence a line, its words between blanks, and their links line by line.

A folder of a user's own holds for each of train, validation (or dev) and test one file that ends in .src, one in .trg and,
if there are links, one in .align or .talp: `train.src` or `train.en-de.src` alike.

Words are divided at blanks and tabs alone, as the tools do whose links these are. Any other blank, such as one that does not
break, is read as the visible mark for one, so that it stays a word, or a part of one, wherever texts are divided later.
"""

import re
from pathlib import Path

from attnfaith.data.pairs.entries import PairFiles, PairsEntry
from attnfaith.data.pairs.links import read_links
from attnfaith.errors import DatasetError, excerpt


SPLIT_NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
OTHER_BLANK, SHOWN_BLANK = re.compile(r"[^\S \t]"), "\u2423"
KINDS = {"source": (".src",), "target": (".trg",), "links": (".align", ".talp")}


def own_entry(path: str, first: int) -> PairsEntry:
    """The entry of a user's folder. first: what its links count from.

    Raises DatasetError where it is no folder, lacks a split or one side of it, or has two files for the same.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is a file" if folder.is_file() else "does not exist"
        raise DatasetError(
            f"data.path={excerpt(path)} {what}: sentence pairs are a folder with train.src, train.trg, train.align (where "
            "there are links), and the same of validation and test"
        )
    files = {}
    for split, names in SPLIT_NAMES.items():
        parts = {kind: _only(folder, names, endings) for kind, endings in KINDS.items()}
        for kind in ("source", "target"):
            if parts[kind] is None:
                raise DatasetError(
                    f"data.path={excerpt(path)} has no {names[0]}{KINDS[kind][0]}, the {kind} sentences of {split}"
                )
        files[split] = (PairFiles(parts["source"], parts["target"], parts["links"] or "", first),)
    return PairsEntry(folder.resolve().name, f"own data, {folder.resolve().name}", "of the user's files", files, own=True)


def _only(folder: Path, names: tuple[str, ...], endings: tuple[str, ...]) -> str | None:
    """The one file of a folder that starts with a name, up to a dot, and has an ending; None where there is none."""
    having = [path for path in sorted(folder.iterdir()) if path.name.partition(".")[0] in names and path.suffix in endings]
    if len(having) > 1:
        raise DatasetError(f"{folder} has {' and '.join(path.name for path in having[:2])}: leave one of them")
    return str(having[0]) if having else None


def read_pairs(files: PairFiles, root: Path, *, own: bool = True) -> tuple[list[dict], int]:
    """Rows {"source": str, "target": str, "links": [[source, target, 2 or 1]]} of a split, words one blank apart, without
    links where the files have none; and how many pairs without words were left out, of files that are not a user's own.

    Raises DatasetError, with file and line, for files of unequal numbers of lines, an empty sentence of a user's own, and
    what `read_links` refuses.
    """
    paths = {"source": root / files.source, "target": root / files.target}
    if files.links:
        paths["links"] = root / files.links
    lines = {kind: _lines(path) for kind, path in paths.items()}
    if len({len(listed) for listed in lines.values()}) > 1:
        counts = ", ".join(f"{paths[kind].name} {len(listed):,}" for kind, listed in lines.items())
        raise DatasetError(f"{paths['source'].parent}: the files of a split have one line a pair, and these have {counts}")
    rows, empty = [], 0
    for number, (source, target) in enumerate(zip(lines["source"], lines["target"], strict=True)):
        words = {"source": source.split(), "target": target.split()}
        if bare := [side for side, sentence in words.items() if not sentence]:
            if own:
                raise DatasetError(
                    f"{paths[bare[0]]}, line {number + 1}: the sentence is empty; leave the pair out of all files"
                )
            empty += 1
            continue
        row = {side: " ".join(sentence) for side, sentence in words.items()}
        if files.links:
            place = f"{paths['links']}, line {number + 1}"
            links = read_links(
                lines["links"][number], len(words["source"]), len(words["target"]), first=files.first, place=place
            )
            row["links"] = [list(link) for link in links]
        if files.swapped:
            row |= {"source": row["target"], "target": row["source"]}
            row["links"] = sorted([target, source, strength] for source, target, strength in row.get("links", ()))
        if files.lower:
            row |= {side: row[side].lower() for side in words}
        rows.append(row)
    if not rows:
        raise DatasetError(f"{paths['source']} has no sentences")
    return rows, empty


def _lines(path: Path) -> list[str]:
    try:
        # at line feeds alone: a sentence may hold other characters that splitlines() divides at
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    return [OTHER_BLANK.sub(SHOWN_BLANK, line.rstrip("\r")) for line in lines]
