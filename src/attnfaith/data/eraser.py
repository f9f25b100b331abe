"""Rationales in ERASER's exchange format (DeYoung et al., 2020): JSON lines, beside the documents that they point into.

A folder holds <split>.jsonl, an annotation a line, and the documents, docs.jsonl. A
document is sentences on lines of their own, of tokens between blanks; spans [start_token, end_token) count its tokens from
0. What a model makes of the annotations are results, one line each, which ERASER's own evaluation reads.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnfaith.errors import DatasetError, counted, excerpt
from attnfaith.files import write_atomically


DOCUMENTS = "docs.jsonl"


def write_annotations(folder: str | os.PathLike, split: str, rows: Sequence[Mapping]) -> Path:
    """Write one split as annotations, its documents into docs.jsonl beside those of other splits; returns the file's path.

    rows: {"instance_id", "text", "label", "rationale"} and "text_pair" where there is one; words lie between blanks,
    sentences on lines, and each longest run of marked words is an evidence, all in one group.

    Raises DatasetError, before anything is written, for a rationale of another length than its text or of anything but 0
    and 1, an id that comes twice, or a document of that id with another text.
    """
    folder = Path(folder)
    documents, lines = _documents(folder), []
    for row in rows:
        name, words, text = row["instance_id"], _tokens(row["text"]), _plain(row["text"])
        marks = list(row["rationale"])
        if len(marks) != len(words) or not set(marks) <= {0, 1}:
            raise DatasetError(
                f"row {name!r}: a rationale is one 0 or 1 for each of its {counted(len(words), 'word')}; {marks} was given."
            )
        if documents.setdefault(name, text) != text:
            raise DatasetError(f"row {name!r}: {folder / DOCUMENTS} holds another text of that id: write to another folder.")
        evidence = [
            {"docid": name, "start_token": start, "end_token": stop, "text": " ".join(words[start:stop])}
            for start, stop in _spans(marks)
        ]
        line = {"annotation_id": name, "classification": row["label"], "docids": [name], "query_type": None}
        lines.append(line | {"evidences": [evidence] if evidence else [], "query": row.get("text_pair", "")})
    path = folder / f"{split}.jsonl"
    _check_unique([line["annotation_id"] for line in lines], path)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / DOCUMENTS, [{"docid": name, "document": text} for name, text in documents.items()])
    _write(path, lines)
    return path


def write_results(path: str | os.PathLike, rows: Sequence[Mapping]) -> Path:
    """Write what a model made of annotations, for ERASER's evaluation; returns the path.

    rows: {"instance_id", "scores" [T], "chosen" [T] of 0 and 1}, and where known "classification", "classification_scores"
    {class: p}, "thresholded_scores": a list of {"threshold", "comprehensiveness_classification_scores",
    "sufficiency_classification_scores"}, scores again by class. None of the first two is left out.

    Raises DatasetError, before anything is written, where scores and chosen differ in length or chosen is anything but 0
    and 1, a score is no finite number, or an id comes twice.
    """
    lines = []
    for row in rows:
        name, rationale = row["instance_id"], {"docid": row["instance_id"]}
        scores, chosen = row.get("scores"), row.get("chosen")
        if scores is not None:
            rationale["soft_rationale_predictions"] = [float(score) for score in scores]
            if not all(abs(score) < float("inf") for score in rationale["soft_rationale_predictions"]):
                raise DatasetError(f"row {name!r}: scores must be finite numbers; leave out a text without them.")
        if chosen is not None:
            if not {float(mark) for mark in chosen} <= {0.0, 1.0} or (scores is not None and len(chosen) != len(scores)):
                raise DatasetError(f"row {name!r}: chosen must be one 0 or 1 for each token; {list(chosen)} was given.")
            rationale["hard_rationale_predictions"] = [
                {"start_token": start, "end_token": stop} for start, stop in _spans(chosen)
            ]
        more = ("classification", "classification_scores", "thresholded_scores")
        predictions = {key: row[key] for key in more if row.get(key) is not None}
        lines.append({"annotation_id": name, "rationales": [rationale], **predictions})
    path = Path(path)
    _check_unique([line["annotation_id"] for line in lines], path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, lines)
    return path


def _tokens(text: str) -> list[str]:
    """Between blanks and line ends alone, as spans count them: a no-break space is part of a token."""
    return [token for line in text.split("\n") for token in line.strip().split(" ") if token]


def _plain(text: str) -> str:
    """The same tokens with one blank between two of a line, and no empty lines."""
    lines = (" ".join(_tokens(line)) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _documents(folder: Path) -> dict[str, str]:
    """The documents that lie in a folder already, by id. Raises DatasetError where they cannot be read."""
    path = folder / DOCUMENTS
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return {document["docid"]: document["document"] for document in map(json.loads, lines)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path} cannot be read: {excerpt(error)}") from error


def _spans(marks: Sequence) -> list[tuple[int, int]]:
    """The longest runs of marked tokens."""
    runs, start = [], None
    for place, mark in enumerate([*marks, 0]):
        if mark and start is None:
            start = place
        if not mark and start is not None:
            runs.append((start, place))
            start = None
    return runs


def _check_unique(names: Sequence[str], path: Path) -> None:
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise DatasetError(f"{path}: id {twice!r} comes twice; each text has one line.")


def _write(path: Path, lines: Sequence[Mapping]) -> None:
    write_atomically(path, "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
