"""ERASER's JSON lines: annotations with their documents, and results."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnfaith.data.eraser import write_annotations, write_results
from attnfaith.metrics.attention_faithfulness.plausibility import spans
from attnfaith.support.errors import DatasetError


WORDS = st.lists(st.text(st.characters(categories=["L", "P"]), min_size=1, max_size=4), max_size=12)
ROW = {"instance_id": "x", "text": "a b", "label": "POS", "rationale": [0, 1], "text_pair": "q"}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(WORDS, min_size=1, max_size=4))
def test_annotations(tmp_path, data, texts):
    rows = [
        {
            "instance_id": str(number),
            "text": "\n".join(" ".join(line) for line in (words[:3], words[3:]) if line),
            "label": "NEG",
            "rationale": data.draw(st.lists(st.integers(0, 1), min_size=len(words), max_size=len(words))),
        }
        for number, words in enumerate(texts)
    ]
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    path = write_annotations(folder, "train", rows)
    assert {line["docid"]: line["document"] for line in lines(folder / "docs.jsonl")} == {
        row["instance_id"]: row["text"] for row in rows
    }
    for line, row in zip(lines(path), rows, strict=True):
        ends = [(e["start_token"], e["end_token"]) for group in line["evidences"] for e in group]
        assert ends == [tuple(pair) for pair in spans(row["rationale"]).tolist()]
        assert (line["annotation_id"], line["classification"], line["query"]) == (row["instance_id"], "NEG", "")


def test_splits_share_the_documents(tmp_path):
    write_annotations(tmp_path, "train", [ROW])
    write_annotations(tmp_path, "test", [{**ROW, "instance_id": "y"}, ROW])
    assert [line["annotation_id"] for line in lines(tmp_path / "test.jsonl")] == ["y", "x"]
    assert {line["docid"] for line in lines(tmp_path / "docs.jsonl")} == {"x", "y"}
    with pytest.raises(DatasetError, match="another text of that id"):
        write_annotations(tmp_path, "val", [{**ROW, "text": "a c"}])
    assert not (tmp_path / "val.jsonl").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{**ROW, "rationale": [1]}], "row 'x': a rationale"),
        ([{**ROW, "rationale": [0, 2]}], "row 'x': a rationale"),
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
    assert rationale["hard_rationale_predictions"] == [
        {"start_token": 0, "end_token": 1},
        {"start_token": 2, "end_token": 3},
    ]
    assert second == {"annotation_id": "y", "rationales": [{"docid": "y"}]}


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({"scores": [1.0], "chosen": [1, 0]}, "chosen"),
        ({"chosen": [1, 3]}, "chosen"),
        ({"scores": [1.0, np.nan]}, "scores"),
        ({"scores": [np.inf]}, "scores"),
    ],
)
def test_results_that_make_no_sense(tmp_path, row, key):
    with pytest.raises(DatasetError, match=f"row 'x': {key}"):
        write_results(tmp_path / "r.jsonl", [{"instance_id": "x", **row}])
    assert not (tmp_path / "r.jsonl").exists()
