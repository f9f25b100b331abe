"""ERASER's JSON lines: what is written is read again, and what is broken names its file and line."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnfaith.data.eraser import read_annotations, read_results, write_annotations, write_results
from attnfaith.errors import DatasetError
from attnfaith.metrics.attention_faithfulness.plausibility import spans


WORDS = st.lists(st.text(st.characters(categories=["L", "P"]), min_size=1, max_size=4), max_size=12)


def annotation(**changes):
    return {
        "annotation_id": "a",
        "classification": "POS",
        "docids": ["d"],
        "evidences": [[{"docid": "d", "start_token": 1, "end_token": 3, "text": "b c", "start_sentence": 0}]],
        "query": "what is it",
        "query_type": None,
        **changes,
    }


def folder_with(folder, *annotations, document="a b c\nd e\n"):
    (folder / "docs").mkdir()
    (folder / "docs" / "d").write_text(document, encoding="utf-8")
    (folder / "val.jsonl").write_text("".join(json.dumps(one) + "\n" for one in annotations), encoding="utf-8")
    return folder


def span(start, stop, **more):
    return {"docid": "d", "start_token": start, "end_token": stop, "text": "", **more}


def test_a_file_as_the_benchmark_has_it(tmp_path):
    (row,) = read_annotations(folder_with(tmp_path, annotation()), "val")
    assert row == {
        "instance_id": "a",
        "text": "a b c\nd e",
        "text_pair": "what is it",
        "label": "POS",
        "rationale": [0, 1, 1, 0, 0],
    }


def test_tokens_lie_between_blanks_alone(tmp_path):
    """Spans count tokens as the benchmark cuts them: a no-break space is part of one, two blanks are one gap."""
    (row,) = read_annotations(folder_with(tmp_path, annotation(), document="a b\u00a0c  d\n\n e\n"), "val")
    assert row["text"] == "a b\u00a0c d\ne" and row["rationale"] == [0, 1, 1, 0]


def test_overlapping_spans_and_groups_mark_their_union(tmp_path):
    evidences = [[span(0, 2), span(1, 3)], [span(1, 2)], [span(4, 5)]]
    (row,) = read_annotations(folder_with(tmp_path, annotation(evidences=evidences)), "val")
    assert row["rationale"] == [1, 1, 1, 0, 1]


@pytest.mark.parametrize(("evidences", "marks"), [([], [0] * 5), ([[]], [0] * 5), ([[span(0, 5)]], [1] * 5)])
def test_nothing_and_everything_marked(tmp_path, evidences, marks):
    (row,) = read_annotations(folder_with(tmp_path, annotation(evidences=evidences)), "val")
    assert row["rationale"] == marks


def test_without_evidence_or_documents_the_id_names_the_document(tmp_path):
    (row,) = read_annotations(folder_with(tmp_path, annotation(annotation_id="d", evidences=[], docids=None)), "val")
    assert row["text"] == "a b c\nd e"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evidences": [[span(3, 6)]]}, r"the span \[3, 6\) is empty or lies outside its 5 tokens"),
        ({"evidences": [[span(-1, 2)]]}, r"the span \[-1, 2\)"),
        ({"evidences": [[span(2, 2)]]}, r"the span \[2, 2\) is empty"),
        ({"evidences": [[span("1", 2)]]}, "'start_token' must be a whole number; '1' was given"),
        ({"evidences": [[span(0, 1), span(0, 1, docid="e")]]}, r"evidence lies in 2 documents \['d', 'e'\]"),
        ({"evidences": [[span(0, 1, docid="e")]]}, "no document 'e' in"),
        ({"evidences": [[span(0, 1, docid="../val.jsonl")]]}, r"no document '../val.jsonl' in"),
        ({"evidences": [[span(True, 2)]]}, "'start_token' must be a whole number; True"),
        ({"evidences": [], "docids": 3}, "'docids' must be a list of texts; 3 was given"),
        ({"evidences": [], "docids": [["d"]]}, "'docids' must be a list of texts"),
        ({"evidences": [[span(0, 1, docid="x" * 300)]]}, "the document 'x{118}… cannot be read"),
        ({"evidences": None}, "'evidences' must be a list; None"),
        ({"evidences": [["a"]]}, "evidences must be lists of objects; 'a'"),
        ({"annotation_id": 3}, "'annotation_id' must be a text; 3"),
        ({"classification": None}, "'classification' must be a text"),
    ],
)
def test_broken_annotations(tmp_path, changes, message):
    folder_with(tmp_path, annotation(annotation_id="good"), annotation(**changes))
    with pytest.raises(DatasetError, match=r"val.jsonl, line 2: .*" + message):
        read_annotations(tmp_path, "val")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{\n", "line 1: no JSON"),
        ('{"a":' * 100_000, "line 1: no JSON"),
        ("[1]\n", "line 1: a line is one object"),
        ("\xff", "cannot be read"),
    ],
)
def test_broken_files(tmp_path, text, message):
    folder_with(tmp_path)
    (tmp_path / "val.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(DatasetError, match=message):
        read_annotations(tmp_path, "val")
    with pytest.raises(DatasetError, match=r"test.jsonl cannot be read"):
        read_annotations(tmp_path, "test")


def test_a_document_that_is_no_text(tmp_path):
    folder_with(tmp_path, annotation())
    (tmp_path / "docs" / "d").write_bytes(b"caf\xe9")
    with pytest.raises(DatasetError, match="line 1: the document 'd' cannot be read: 'utf-8' codec"):
        read_annotations(tmp_path, "val")


def test_an_id_twice(tmp_path):
    with pytest.raises(DatasetError, match="id 'a' comes twice"):
        read_annotations(folder_with(tmp_path, annotation(), annotation()), "val")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(WORDS, min_size=1, max_size=4))
def test_written_and_read_again(tmp_path, data, texts):
    rows = [
        {
            "instance_id": f"{len(list(tmp_path.iterdir()))}-{number}",
            "text": "\n".join(" ".join(line) for line in (words[:3], words[3:]) if line),
            "text_pair": "",
            "label": "NEG",
            "rationale": data.draw(st.lists(st.integers(0, 1), min_size=len(words), max_size=len(words))),
        }
        for number, words in enumerate(texts)
    ]
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    path = write_annotations(folder, "train", rows)
    assert read_annotations(folder, "train") == rows
    for line, row in zip(path.read_text().splitlines(), rows, strict=True):
        found = [(e["start_token"], e["end_token"]) for group in json.loads(line)["evidences"] for e in group]
        assert found == [tuple(one) for one in spans(row["rationale"]).tolist()]


def test_splits_share_the_documents(tmp_path):
    row = {"instance_id": "x", "text": "a b", "label": "POS", "rationale": [0, 1], "text_pair": "q"}
    write_annotations(tmp_path, "train", [row])
    write_annotations(tmp_path, "test", [{**row, "instance_id": "y"}, row])
    assert [one["instance_id"] for one in read_annotations(tmp_path, "test")] == ["y", "x"]
    with pytest.raises(DatasetError, match="holds another text of that id"):
        write_annotations(tmp_path, "val", [{**row, "text": "a c"}])
    assert not (tmp_path / "val.jsonl").exists()


@pytest.mark.parametrize("marks", [[1], [1, 0, 0], [0, 2]])
def test_rationales_that_do_not_fit_are_not_written(tmp_path, marks):
    with pytest.raises(DatasetError, match="one 0 or 1 for each of its 2 words"):
        write_annotations(tmp_path / "new", "val", [{"instance_id": "x", "text": "a b", "label": "P", "rationale": marks}])
    assert not (tmp_path / "new").exists()


def test_results_there_and_back(tmp_path):
    rows = [
        {
            "instance_id": "x",
            "scores": [0.5, -1.0, 2.0],
            "chosen": [1, 0, 1],
            "classification": "POS",
            "classification_scores": {"POS": 0.9, "NEG": 0.1},
        },
        {"instance_id": "y", "scores": None, "chosen": None, "classification": None, "classification_scores": None},
    ]
    path = write_results(tmp_path / "deep" / "results.jsonl", rows)
    assert read_results(path, {"x": 3, "y": 0}) == rows
    first = json.loads(path.read_text().splitlines()[0])["rationales"][0]
    assert first["hard_rationale_predictions"] == [{"start_token": 0, "end_token": 1}, {"start_token": 2, "end_token": 3}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"scores": [1.0], "chosen": [1, 0]}, "row 'x': chosen must be one 0 or 1 for each token"),
        ({"chosen": [1, 3]}, "row 'x': chosen must be"),
        ({"scores": [1.0, np.nan]}, "row 'x': scores must be finite"),
        ({"scores": [np.inf]}, "row 'x': scores must be finite"),
    ],
)
def test_results_that_make_no_sense(tmp_path, row, message):
    with pytest.raises(DatasetError, match=message):
        write_results(tmp_path / "r.jsonl", [{"instance_id": "x", **row}])
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    ("changes", "lengths", "message"),
    [
        ({}, {"b": 3}, "there is no text of id 'a'"),
        ({}, {"a": 4}, "3 scores for a text of 4 tokens"),
        (
            {"rationales": [{"hard_rationale_predictions": [span(1, 9)]}]},
            {"a": 3},
            r"span \[1, 9\) is empty or lies outside",
        ),
        ({"rationales": [{}, {}]}, {"a": 3}, "rationales in 2 documents"),
        ({"rationales": None}, {"a": 3}, "'rationales' must be a list"),
        ({"rationales": ["b c"]}, {"a": 3}, "rationales must be objects; 'b c' was given"),
        ({"rationales": [{"soft_rationale_predictions": 3}]}, {"a": 3}, "'soft_rationale_predictions' must be a list; 3"),
        ({"rationales": [{"soft_rationale_predictions": [1, "2", 3]}]}, {"a": 3}, "scores must be numbers"),
        ({"rationales": [{"hard_rationale_predictions": [3]}]}, {"a": 3}, "a span must be an object .* 3 was given"),
    ],
)
def test_results_that_do_not_fit(tmp_path, changes, lengths, message):
    given = {"annotation_id": "a", "rationales": [{"docid": "a", "soft_rationale_predictions": [1, 2, 3]}], **changes}
    (tmp_path / "r.jsonl").write_text(json.dumps(given))
    with pytest.raises(DatasetError, match=r"r.jsonl, line 1: .*" + message):
        read_results(tmp_path / "r.jsonl", lengths)
