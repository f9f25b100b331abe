"""Rationales in ERASER's exchange format (DeYoung et al., 2020): JSON lines and the documents that they refer to.

A folder holds <split>.jsonl, an annotation a line, and the documents, docs.jsonl. A document has a sentence a line, of
tokens between blanks; spans [start_token, end_token) count its tokens from 0. Results, one line for each annotation, are the
input of ERASER's own evaluation.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from attnfaith.support.errors import DatasetError, counted, excerpt
from attnfaith.support.files import write_atomically


def write_annotations(folder: str | os.PathLike, split: str, rows: Sequence[Mapping]) -> Path:
    """Write a split as annotations, and its documents into docs.jsonl with those of other splits. Returns the file's path.

    rows: {"instance_id", "text", "label", "rationale"} and perhaps "text_pair"; words stand between blanks, sentences on
    lines, and each longest run of marked words is an evidence, all in one group.

    Raises DatasetError, before anything is written, for a rationale that is not one 0 or 1 for each word, a repeated id, and
    a document of that id with another text.
    """
    path, store = Path(folder) / f"{split}.jsonl", Path(folder) / "docs.jsonl"
    try:
        lines = store.read_text(encoding="utf-8").splitlines() if store.is_file() else []
        documents = {document["docid"]: document["document"] for document in map(json.loads, lines)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{store} cannot be read: {excerpt(error)}") from error
    annotations = []
    for row in rows:
        name, marks = row["instance_id"], list(row["rationale"])
        # divided at blanks and line ends only: a no-break space is part of a token
        sentences = [[token for token in line.strip().split(" ") if token] for line in row["text"].split("\n")]
        words = [token for sentence in sentences for token in sentence]
        text = "\n".join(" ".join(sentence) for sentence in sentences if sentence)
        if len(marks) != len(words) or not set(marks) <= {0, 1}:
            raise DatasetError(
                f"row {name!r}: a rationale is one 0 or 1 for each of its {counted(len(words), 'word')}; {marks} was given."
            )
        if documents.setdefault(name, text) != text:
            raise DatasetError(f"row {name!r}: {store} holds another text of that id: write to another folder.")
        evidence = [{"docid": name, **span, "text": " ".join(words[slice(*span.values())])} for span in _spans(marks)]
        line = {"annotation_id": name, "classification": row["label"], "docids": [name], "query_type": None}
        annotations.append(line | {"evidences": [evidence] if evidence else [], "query": row.get("text_pair", "")})
    _check_unique(annotations, path)
    _write(store, [{"docid": name, "document": text} for name, text in documents.items()])
    return _write(path, annotations)


def write_results(path: str | os.PathLike, rows: Sequence[Mapping]) -> Path:
    """Write results of a model for ERASER's evaluation. Returns the path.

    rows: {"instance_id", "scores" [T] or None, "chosen" [T] of 0 and 1 or None}, and perhaps "classification",
    "classification_scores" {class: p}, "thresholded_scores": a list of {"threshold",
    "comprehensiveness_classification_scores", "sufficiency_classification_scores"}, scores by class.

    Raises DatasetError, before anything is written, for scores and chosen of different lengths, chosen other than 0 and 1, a
    score that is not finite, and a repeated id.
    """
    lines = []
    for row in rows:
        name, rationale = row["instance_id"], {"docid": row["instance_id"]}
        scores, chosen = row.get("scores"), row.get("chosen")
        if scores is not None:
            rationale["soft_rationale_predictions"] = [float(score) for score in scores]
            if not np.isfinite(rationale["soft_rationale_predictions"]).all():
                raise DatasetError(f"row {name!r}: scores must be finite numbers; leave out a text without them.")
        if chosen is not None:
            if not set(chosen) <= {0, 1} or (scores is not None and len(chosen) != len(scores)):
                raise DatasetError(f"row {name!r}: chosen must be one 0 or 1 for each token; {list(chosen)} was given.")
            rationale["hard_rationale_predictions"] = _spans(chosen)
        keys = ("classification", "classification_scores", "thresholded_scores")
        predictions = {key: row[key] for key in keys if row.get(key) is not None}
        lines.append({"annotation_id": name, "rationales": [rationale], **predictions})
    _check_unique(lines, Path(path))
    return _write(Path(path), lines)


def _spans(marks: Sequence) -> list[dict[str, int]]:
    """The longest runs of marked tokens."""
    runs = [[place for place, _ in run] for mark, run in groupby(enumerate(marks), key=lambda pair: bool(pair[1])) if mark]
    return [{"start_token": run[0], "end_token": run[-1] + 1} for run in runs]


def _check_unique(lines: Sequence[Mapping], path: Path) -> None:
    names = [line["annotation_id"] for line in lines]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DatasetError(f"{path}: id {repeated[0]!r} comes twice; each text has one line.")


def _write(path: Path, lines: Sequence[Mapping]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    return path
