"""bAbI's stories of the Hub as questions: rows by hand, and stories that are broken."""

import pyarrow as pa
import pytest

from attnfaith.data.sources import questions
from attnfaith.errors import DatasetError


STATEMENT = {"id": "1", "type": 0, "text": "Mary ran.", "supporting_ids": [], "answer": ""}
QUESTION = {"id": "2", "type": 1, "text": "Where is Mary? ", "supporting_ids": ["1"], "answer": "office"}
STORIES = [
    [
        {**STATEMENT, "text": "Mary went to the office."},
        {**STATEMENT, "id": "2", "text": "John got the milk there."},
        {**QUESTION, "id": "3"},
        {**STATEMENT, "id": "4", "text": "Mary moved to the hallway."},
        {**QUESTION, "id": "5", "text": "Where was Mary before the hallway?", "supporting_ids": ["4", "1"]},
    ],
    [{**STATEMENT, "text": "John ran."}, {**QUESTION, "text": "Where is John?", "answer": "garden"}],
]


@pytest.mark.parametrize("as_list", [False, True])
def test_rows_by_hand(as_list):
    of_lists = [{key: [line[key] for line in story] for key in story[0]} for story in STORIES]
    assert questions(pa.table({"story": STORIES if as_list else of_lists}), "set").to_pydict() == {
        "text": [
            "Mary went to the office . John got the milk there .",
            "Mary went to the office . John got the milk there . Mary moved to the hallway .",
            "John ran .",
        ],
        "text_pair": ["Where is Mary ?", "Where was Mary before the hallway ?", "Where is John ?"],
        "label": ["office", "office", "garden"],
        "rationale": [[1] * 6 + [0] * 6, [1] * 6 + [0] * 6 + [1] * 6, [1] * 3],
    }


@pytest.mark.parametrize(
    "story",
    [
        None,
        [STATEMENT, {**QUESTION, "answer": ""}],
        [STATEMENT, {**QUESTION, "supporting_ids": ["1", "3"]}],
        [STATEMENT, {**QUESTION, "supporting_ids": []}],
        [{**STATEMENT, "text": None}],
        [{"id": "1", "type": 0}],
    ],
)
def test_a_story_of_another_form_names_its_row(story):
    with pytest.raises(DatasetError, match="set, row 0: a story is a list of lines"):
        questions(pa.table({"story": [story]}), "set")
    with pytest.raises(DatasetError, match="'story'"):
        questions(pa.table({"text": ["a"]}), "set")
