"""bAbI's stories of the Hub as questions: rows by hand, and stories that are broken."""

import pyarrow as pa
import pytest

from attnfaith.data.registry import DATASETS
from attnfaith.data.stories import rows_of_stories
from attnfaith.errors import DatasetError


BABI = DATASETS["babi_qa_2"]
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


def rows(*stories):
    return rows_of_stories(pa.table({"story": list(stories)}), BABI, "test")


@pytest.mark.parametrize("as_list", [False, True])
def test_rows_by_hand(as_list):
    of_lists = [{key: [line[key] for line in story] for key in story[0]} for story in STORIES]
    assert rows(*(STORIES if as_list else of_lists)) == {
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
    ("line", "message"),
    [
        ({**STATEMENT, "id": "5"}, "the number 5 follows 1"),
        ({**STATEMENT, "id": "2", "text": "Mary ran"}, "a statement ends in"),
        ({**QUESTION, "text": "Where is Mary"}, "a question ends in"),
        ({**QUESTION, "answer": ""}, "the question has no answer"),
        ({**QUESTION, "supporting_ids": ["1", "3"]}, "the supporting numbers '1 3'"),
        ({**QUESTION, "supporting_ids": []}, "the supporting numbers ''"),
    ],
)
def test_a_broken_line_names_its_row(line, message):
    with pytest.raises(DatasetError, match=rf"'babi_qa_2', test split, row 1, line \d: {message}"):
        rows([STATEMENT, QUESTION], [STATEMENT, line])


@pytest.mark.parametrize(
    "story",
    [
        None,
        [{**STATEMENT, "id": None}],
        [{**STATEMENT, "text": None}],
        [{"id": "1", "type": 0, "text": "Mary ran."}],
        [{**QUESTION, "supporting_ids": [["1"]]}],
        [{**STATEMENT, "id": "9" * 5000}],
        {"id": ["1"], "type": [0], "text": ["Mary ran.", "Who?"], "supporting_ids": [[]], "answer": [""]},
    ],
)
def test_a_story_of_another_form_names_its_row(story):
    with pytest.raises(DatasetError, match="'babi_qa_2', test split, row 0: a story is a list of lines"):
        rows(story)
    with pytest.raises(DatasetError, match="'story'"):
        rows_of_stories(pa.table({"text": ["a"]}), BABI, "test")
