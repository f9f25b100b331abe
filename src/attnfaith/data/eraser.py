"""Rationales in ERASER's exchange format (DeYoung et al., 2020): JSON lines, beside the documents that they point into.

A folder holds <split>.jsonl, an annotation a line, and the documents: docs.jsonl, or a folder docs with a file each. A
document is sentences on lines of their own, of tokens between blanks; spans [start_token, end_token) count its tokens from
0. What a model makes of the annotations are results, one line each, which ERASER's own evaluation reads.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attnfaith.errors import DatasetError, excerpt
from attnfaith.files import write_atomically


DOCUMENTS = "docs.jsonl"


def read_annotations(folder: str | os.PathLike, split: str) -> list[dict]:
    """The instances of one split: rows {"instance_id", "text", "text_pair", "label", "rationale"} in the order of the file.

    text: the tokens of the document, one blank between two, its sentences on lines of their own. text_pair: the query.
    label: the class by its name. rationale: one 0 or 1 per token, 1 on those that any evidence of any group holds; spans
    that overlap mark their union, and an annotation without evidence marks nothing.

    Raises DatasetError, with file and line, for a line that is no annotation, a span that is empty or reaches beyond its
    document, a document that is not there, and evidence in several documents, which one rationale cannot hold.
    """
    folder = Path(folder)
    documents, rows = _Documents(folder), []
    for place, given in _lines(folder / f"{split}.jsonl"):
        name = _field(given, "annotation_id", str, place)
        spans = []
        for group in _field(given, "evidences", list, place):
            for evidence in group if isinstance(group, list) else [group]:
                if not isinstance(evidence, dict):
                    raise DatasetError(f"{place}: evidences must be lists of objects; {evidence!r} was given.")
                spans.append((_field(evidence, "docid", str, place), evidence))
        named = given.get("docids") or [name]
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise DatasetError(f"{place}: 'docids' must be a list of texts; {excerpt(named)} was given.")
        owners = sorted({owner for owner, _ in spans} or set(named))
        if len(owners) != 1:
            raise DatasetError(f"{place}: the evidence lies in {len(owners)} documents {owners}; one text holds one.")
        text = documents.text(owners[0], place)
        marks = _marks([evidence for _, evidence in spans], len(_tokens(text)), place)
        rows.append(
            {
                "instance_id": name,
                "text": text,
                "text_pair": _field(given, "query", str, place),
                "label": _field(given, "classification", str, place),
                "rationale": marks,
            }
        )
    _check_unique([row["instance_id"] for row in rows], folder / f"{split}.jsonl")
    return rows


def write_annotations(folder: str | os.PathLike, split: str, rows: Sequence[Mapping]) -> Path:
    """Write one split as annotations, its documents into docs.jsonl beside those of other splits; returns the file's path.

    rows: {"instance_id", "text", "label", "rationale"} and "text_pair" where there is one; words lie between blanks,
    sentences on lines, and each longest run of marked words is an evidence, all in one group. Reading it again gives the
    same rows.

    Raises DatasetError, before anything is written, for a rationale of another length than its text or of anything but 0
    and 1, an id that comes twice, or a document of that id with another text.
    """
    folder = Path(folder)
    documents, lines = _known(folder), []
    for row in rows:
        name, words, text = row["instance_id"], _tokens(row["text"]), _plain(row["text"])
        place, marks = f"row {name!r}", list(row["rationale"])
        if len(marks) != len(words) or not set(marks) <= {0, 1}:
            raise DatasetError(f"{place}: a rationale is one 0 or 1 for each of its {len(words)} words; {marks} was given.")
        if documents.setdefault(name, text) != text:
            raise DatasetError(f"{place}: {folder / DOCUMENTS} holds another text of that id: write to another folder.")
        group = [
            {"docid": name, "start_token": start, "end_token": stop, "text": " ".join(words[start:stop])}
            for start, stop in _spans(marks)
        ]
        lines.append(
            {
                "annotation_id": name,
                "classification": row["label"],
                "docids": [name],
                "evidences": [group] if group else [],
                "query": row.get("text_pair", ""),
                "query_type": None,
            }
        )
    path = folder / f"{split}.jsonl"
    _check_unique([line["annotation_id"] for line in lines], path)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / DOCUMENTS, [{"docid": name, "document": text} for name, text in documents.items()])
    _write(path, lines)
    return path


def read_results(path: str | os.PathLike, lengths: Mapping[str, int]) -> list[dict]:
    """What a model made of annotations: rows {"instance_id", "scores", "chosen", "classification", "classification_scores"}.

    lengths: instance id -> tokens of its text. scores: one number per token, None where the file has none. chosen: one 0 or
    1 per token, 1 in any span; None without spans. classification, its scores by class: None where absent.

    Raises DatasetError, with file and line, for a line that is no result, an id that `lengths` does not know, rationales in
    several documents, scores of another number than tokens, and spans that are empty or reach beyond the text.
    """
    rows = []
    for place, given in _lines(Path(path)):
        name = _field(given, "annotation_id", str, place)
        if name not in lengths:
            raise DatasetError(f"{place}: there is no text of id {name!r}; the results are of other texts.")
        rationales = _field(given, "rationales", list, place)
        if len(rationales) > 1:
            raise DatasetError(f"{place}: rationales in {len(rationales)} documents; one text holds one.")
        rationale = rationales[0] if rationales else {}
        if not isinstance(rationale, dict):
            raise DatasetError(f"{place}: rationales must be objects; {excerpt(rationale)} was given.")
        scores, spans = (
            _field(rationale, key, list, place) if rationale.get(key) is not None else None
            for key in ("soft_rationale_predictions", "hard_rationale_predictions")
        )
        if not all(isinstance(score, int | float) and not isinstance(score, bool) for score in scores or ()):
            raise DatasetError(f"{place}: scores must be numbers; {excerpt(scores)} was given.")
        if scores is not None and len(scores) != lengths[name]:
            raise DatasetError(f"{place}: {len(scores)} scores for a text of {lengths[name]} tokens.")
        rows.append(
            {
                "instance_id": name,
                "scores": scores,
                "chosen": None if spans is None else _marks(spans, lengths[name], place),
                "classification": given.get("classification"),
                "classification_scores": given.get("classification_scores"),
            }
        )
    _check_unique([row["instance_id"] for row in rows], Path(path))
    return rows


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
        known = {key: row[key] for key in more if row.get(key) is not None}
        lines.append({"annotation_id": name, "rationales": [rationale], **known})
    path = Path(path)
    _check_unique([line["annotation_id"] for line in lines], path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, lines)
    return path


class _Documents:
    """The documents of a folder, those in a folder of their own read when they are asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.texts = _known(folder)

    def text(self, name: str, place: str) -> str:
        text = self.texts.get(name)
        path = self.folder / "docs" / name
        try:
            if text is None and path.parent == self.folder / "docs" and path.is_file():
                text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"{place}: the document {excerpt(name)} cannot be read: {excerpt(error)}.") from error
        if text is None:
            raise DatasetError(
                f"{place}: no document {excerpt(name)} in {self.folder / DOCUMENTS} or {self.folder / 'docs'}."
            )
        return _plain(text)


def _tokens(text: str) -> list[str]:
    """Between blanks and line ends alone, as spans count them: a no-break space is part of a token."""
    return [token for line in text.split("\n") for token in line.strip().split(" ") if token]


def _plain(text: str) -> str:
    """The same tokens with one blank between two of a line, and no empty lines."""
    lines = (" ".join(_tokens(line)) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _known(folder: Path) -> dict[str, str]:
    path = folder / DOCUMENTS
    if not path.is_file():
        return {}
    return {_field(d, "docid", str, place): _field(d, "document", str, place) for place, d in _lines(path)}


def _lines(path: Path) -> Iterator[tuple[str, dict]]:
    """(place, object) of each line that is not empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}.") from error
    for row, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {row}"
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{place}: no JSON ({error}).") from error
        if not isinstance(given, dict):
            raise DatasetError(f"{place}: a line is one object, with annotation_id and so on; {line[:60]!r} was given.")
        yield place, given


def _field(given: Mapping, name: str, kind: type, place: str):
    if not isinstance(given.get(name), kind) or isinstance(given[name], bool):
        what = {str: "a text", list: "a list", int: "a whole number"}[kind]
        raise DatasetError(f"{place}: {name!r} must be {what}; {excerpt(given.get(name))} was given.")
    return given[name]


def _marks(spans: Sequence[Mapping], length: int, place: str) -> list[int]:
    """0/1 per token from spans, whose union is marked."""
    marks = [0] * length
    for span in spans:
        if not isinstance(span, dict):
            raise DatasetError(
                f"{place}: a span must be an object with start_token and end_token; {excerpt(span)} was given."
            )
        start, stop = (_field(span, name, int, place) for name in ("start_token", "end_token"))
        if not 0 <= start < stop <= length:
            raise DatasetError(f"{place}: the span [{start}, {stop}) is empty or lies outside its {length} tokens.")
        marks[start:stop] = [1] * (stop - start)
    return marks


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
