"""ERASER's JSON lines: annotations with their documents, and results."""

import json

import numpy as np
import pytest

from attnfaith.data.eraser import write_annotations, write_results
from attnfaith.support.errors import DatasetError


ROW = {"instance_id": "x", "text": "a b\nc", "label": "POS", "rationale": [0, 1, 1], "text_pair": "q"}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_annotations(tmp_path):
    """Spans count the tokens of the document; splits share the documents."""
    path = write_annotations(tmp_path, "train", [ROW, {**ROW, "instance_id": "y", "rationale": [1, 0, 1]}])
    first, second = lines(path)
    (evidence,) = first["evidences"][0]
    assert evidence == {"docid": "x", "start_token": 1, "end_token": 3, "text": "b c"}
    assert [(part["start_token"], part["end_token"]) for part in second["evidences"][0]] == [(0, 1), (2, 3)]
    assert (first["annotation_id"], first["classification"], first["query"]) == ("x", "POS", "q")
    write_annotations(tmp_path, "test", [{**ROW, "instance_id": "z", "rationale": [0, 0, 0]}, ROW])
    assert [line["evidences"] == [] for line in lines(tmp_path / "test.jsonl")] == [True, False]
    assert {line["docid"]: line["document"] for line in lines(tmp_path / "docs.jsonl")} == dict.fromkeys("xyz", "a b\nc")
    with pytest.raises(DatasetError, match="another text of that id"):
        write_annotations(tmp_path, "val", [{**ROW, "text": "a c d"}])
    assert not (tmp_path / "val.jsonl").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{**ROW, "rationale": [1]}], "row 'x': a rationale"),
        ([{**ROW, "rationale": [0, 2, 0]}], "row 'x': a rationale"),
        ([ROW, ROW], "'x' comes twice"),
    ],
)
def test_annotations_that_are_not_written(tmp_path, rows, message):
    with pytest.raises(DatasetError, match=message):
        write_annotations(tmp_path / "new", "val", rows)
    assert not (tmp_path / "new").exists()
    (tmp_path / "docs.jsonl").write_text("{")
    with pytest.raises(DatasetError, match="docs.jsonl"):
        write_annotations(tmp_path, "val", [ROW])


def test_results(tmp_path):
    scores = {"POS": 0.9, "NEG": 0.1}
    rows = [
        {"instance_id": "x", "scores": [0.5, -1.0, 2.0], "chosen": [1, 0, 1], "classification_scores": scores},
        {"instance_id": "y", "scores": None, "chosen": None, "classification": None},
    ]
    first, second = lines(write_results(tmp_path / "deep" / "results.jsonl", rows))
    (rationale,) = first["rationales"]
    assert rationale["soft_rationale_predictions"] == [0.5, -1.0, 2.0] and first["classification_scores"] == scores
    spans = [(span["start_token"], span["end_token"]) for span in rationale["hard_rationale_predictions"]]
    assert spans == [(0, 1), (2, 3)]
    assert second == {"annotation_id": "y", "rationales": [{"docid": "y"}]}
    for key, row in (
        ("chosen", {"scores": [1.0], "chosen": [1, 0]}),
        ("chosen", {"chosen": [1, 3]}),
        ("scores", {"scores": [1.0, np.nan]}),
    ):
        with pytest.raises(DatasetError, match=f"row 'x': {key}"):
            write_results(tmp_path / "r.jsonl", [{"instance_id": "x", **row}])
    assert not (tmp_path / "r.jsonl").exists()
