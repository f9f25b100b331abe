"""Files in the form of their first publication: rows by hand, the copy on the Hub, and lines that are broken."""

import pyarrow as pa
import pytest

from attnfaith.data import babi
from attnfaith.data.original_formats import babi_table, read_babi, read_csv, read_news_questions
from attnfaith.data.registry import DATASETS
from attnfaith.errors import DatasetError


BABI, NEWS, YELP, YAHOO = (DATASETS[name] for name in ("babi_qa_2", "cnn_qa", "yelp", "yahoo_answers"))

STORIES = (
    "1 Mary went to the office.\n"
    "2 John got the milk there.\n"
    "3 Where is Mary? \toffice\t1\n"
    "4 Mary moved to the hallway.\n"
    "5 Where was Mary before the hallway?\toffice\t4 1\n"
    "1 John ran.\n"
    "2 Where is John?\tgarden\t1\n"
)


@pytest.fixture
def file(tmp_path):
    def written(text, name="part.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


# ------------------------------------------------------------------------------------------------------ bAbI


def test_babi_by_hand(file):
    assert read_babi([file(STORIES)], BABI) == {
        "text": [
            "Mary went to the office . John got the milk there .",
            "Mary went to the office . John got the milk there . Mary moved to the hallway .",
            "John ran .",
        ],
        "text_pair": ["Where is Mary ?", "Where was Mary before the hallway ?", "Where is John ?"],
        "label": ["office", "office", "garden"],
        "rationale": [[1] * 6 + [0] * 6, [1] * 6 + [0] * 6 + [1] * 6, [1] * 3],
    }


def test_babi_files_of_a_split_follow_one_another(file):
    whole = read_babi([file(STORIES * 2)], BABI)
    assert read_babi([file(STORIES, "a.txt"), file(STORIES, "b.txt")], BABI) == whole
    assert read_babi([file(STORIES.replace("\n", "\r\n") * 2)], BABI) == whole
    assert read_babi([file((STORIES * 2).rstrip("\n"))], BABI) == whole


@pytest.mark.parametrize("as_list", [False, True])
def test_babi_copy_on_the_hub_gives_the_same_rows(file, as_list):
    stories = []
    for line in STORIES.splitlines():
        number, _, rest = line.partition(" ")
        text, answer, facts = [*rest.split("\t"), "", ""][:3]
        if number == "1":
            stories.append([])
        stories[-1].append(
            {"id": number, "type": int("\t" in rest), "text": text, "supporting_ids": facts.split(), "answer": answer}
        )
    if not as_list:
        stories = [{key: [line[key] for line in story] for key in story[0]} for story in stories]
    table = pa.table({"story": stories})
    assert babi_table(table, BABI, "train") == read_babi([file(STORIES)], BABI)


def test_babi_table_of_other_columns():
    with pytest.raises(DatasetError, match=r"'babi_qa_2' needs a column 'story'; its test split has \['text'\]"):
        babi_table(pa.table({"text": ["a"]}), BABI, "test")


@pytest.mark.parametrize("task", [1, 2, 3])
def test_babi_reads_back_generated_stories(file, task):
    """Second route: the built-in stories written in the published form, with their own marks of evidence."""
    rows = babi.generate(task, 20, seed=3)
    lines = []
    for row in rows:
        start, facts, sentences = 0, [], row["text"].removesuffix(" .").split(" . ")
        for number, sentence in enumerate(sentences, start=1):
            lines.append(f"{number} {sentence}.")
            if row["rationale"][start]:
                facts.append(str(number))
            start += len(sentence.split()) + 1
        answer = babi.LOCATIONS[row["label"]]
        lines.append(f"{len(sentences) + 1} {row['text_pair'].removesuffix(' ?')}?\t{answer}\t{' '.join(facts)}")
    read = read_babi([file("\n".join(lines))], BABI)
    for column in ("text", "text_pair", "rationale"):
        assert read[column] == [row[column] for row in rows]
    assert read["label"] == [babi.LOCATIONS[row["label"]] for row in rows]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Mary ran.", "neither 'number statement.' nor"),
        ("", "neither 'number statement.' nor"),
        ("4 Where is Mary?\toffice", "neither 'number statement.' nor"),
        ("4 Where is Mary?\toffice\t1\t2", "neither 'number statement.' nor"),
        ("-4 Mary ran.", "neither 'number statement.' nor"),
        ("5 Mary ran.", "the number 5 follows 3; lines of a story are counted from 1"),
        ("3 Mary ran.", "the number 3 follows 3"),
        ("4 Mary ran", r"a statement ends in '\.'; 'Mary ran'"),
        (
            "4 Where is Mary? office 1",
            r"a statement ends in '\.'; 'Where is Mary\? office 1'; a question has tabs before its",
        ),
        ("4 Where is Mary\toffice\t1", r"a question ends in '\?'; 'Where is Mary'"),
        ("4 Where is Mary?\t \t1", "the question has no answer"),
        ("4 Where is Mary?\toffice\t1 3", "the supporting numbers '1 3' are not all among its statements 1 2"),
        ("4 Where is Mary?\toffice\t9", "the supporting numbers '9' are not all"),
        ("4 Where is Mary?\toffice\t", "the supporting numbers '' are not all"),
        ("1 Where is Mary?\toffice\t1", "the supporting numbers '1' are not all among its statements "),
        ("9" * 5000 + " Mary ran.", "neither 'number statement.' nor"),
    ],
)
def test_broken_lines_of_babi(file, line, message):
    path = file("".join(STORIES.splitlines(keepends=True)[:3]) + line + "\n1 Mary ran.\n")
    with pytest.raises(DatasetError, match=rf"part\.txt, line 4: {message}"):
        read_babi([path], BABI)


def test_broken_story_on_the_hub_names_the_row():
    line = {"id": "2", "type": 0, "text": "Mary ran.", "supporting_ids": [], "answer": ""}
    good = {**line, "id": "1"}
    stories = pa.table({"story": [[good, line], [good, {**line, "text": "Mary ran"}]]})
    with pytest.raises(DatasetError, match=r"'babi_qa_2', test split, row 1, line 2: a statement ends in '\.'; 'Mary ran'"):
        babi_table(stories, BABI, "test")
    with pytest.raises(DatasetError, match="row 1, line 2: the number 2 follows 0"):
        babi_table(pa.table({"story": [[good], [line]]}), BABI, "test")


@pytest.mark.parametrize(
    "story",
    [
        None,
        [{"id": None, "type": 0, "text": "Mary ran.", "supporting_ids": [], "answer": ""}],
        [{"id": "1", "type": 0, "text": None, "supporting_ids": [], "answer": ""}],
        [{"id": "1", "type": 0, "text": "Mary ran."}],
        [{"id": "1", "type": 1, "text": "Where?", "supporting_ids": [["1"]], "answer": "here"}],
        [{"id": "9" * 5000, "type": 0, "text": "Mary ran.", "supporting_ids": [], "answer": ""}],
        {"id": ["1"], "type": [0], "text": ["Mary ran.", "Who?"], "supporting_ids": [[]], "answer": [""]},
    ],
)
def test_a_story_of_another_form_names_its_row(story):
    with pytest.raises(DatasetError, match="'babi_qa_2', test split, row 0: a story is a list of lines, each with id"):
        babi_table(pa.table({"story": [story]}), BABI, "test")


@pytest.mark.parametrize("read", [read_babi, read_csv, read_news_questions])
def test_files_that_are_not_there(tmp_path, read):
    for path in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(DatasetError, match=f"{path} cannot be read: (Is a directory|No such file)"):
            read([path], YELP)


def test_a_file_does_not_go_on_with_the_story_of_the_last(file):
    with pytest.raises(DatasetError, match=r"b\.txt, line 1: the number 2 follows 0"):
        read_babi([file("1 Mary ran.\n", "a.txt"), file("2 Where is Mary?\toffice\t1\n", "b.txt")], BABI)


@pytest.mark.parametrize("read", [read_babi, read_csv, read_news_questions])
def test_files_that_are_not_text(file, read):
    with pytest.raises(DatasetError, match=r"part\.txt is not UTF-8 text"):
        read([file(b"1,\xff\xfe caf\xe9.\n")], YELP)


# ------------------------------------------------------------------------------------------- news questions

NEWS_FILE = [
    "http://web.archive.org/a.html", "", "( @entity1 ) it 's @entity2 , says @entity1", "", "@placeholder says it", "",
    "@entity1", "", "@entity1:CNN", "@entity2:A: name", "",
]  # fmt: skip


def test_news_question_by_hand(file):
    paths = [
        file("\n".join(NEWS_FILE), "a.question"),
        file("\n".join(NEWS_FILE[:7]).replace("says it", "did"), "b.question"),
    ]
    assert read_news_questions(paths, NEWS) == {
        "text": ["( @entity1 ) it 's @entity2 , says @entity1"] * 2,
        "text_pair": ["@placeholder says it", "@placeholder did"],
        "label": ["@entity1"] * 2,
    }


@pytest.mark.parametrize(
    ("line", "text", "message"),
    [
        (1, " ", "the address of the article is missing"),
        (2, "more", "an empty line must follow the address of the article; 'more' does"),
        (3, "", "the passage is missing"),
        (4, "second paragraph", "an empty line must follow the passage; 'second paragraph' does"),
        (5, "who says it", r"the question has no @placeholder \('who says it'\)"),
        (7, "CNN", "the answer must be an entity such as @entity3; it is 'CNN'"),
        (7, "@entity1 @entity2", "the answer must be an entity"),
        (9, "@entity1 CNN", "'@entity3:name' is expected; '@entity1 CNN' was found"),
    ],
)
def test_broken_lines_of_a_news_question(file, line, text, message):
    lines = list(NEWS_FILE)
    lines[line - 1] = text
    with pytest.raises(DatasetError, match=rf"q\.question, line {line}: {message}"):
        read_news_questions([file("\n".join(lines), "q.question")], NEWS)


@pytest.mark.parametrize(
    ("kept", "line", "part"), [(0, 1, "address"), (2, 3, "passage"), (4, 5, "question"), (6, 7, "answer")]
)
def test_news_question_that_is_cut_off(file, kept, line, part):
    with pytest.raises(DatasetError, match=rf"q\.question, line {line}: the {part}.* is missing"):
        read_news_questions([file("\n".join(NEWS_FILE[:kept]), "q.question")], NEWS)


# ------------------------------------------------------------------------------------------ header-less csv


def test_csv_by_hand(file):
    text = '"1","a ""b"", c"\n5,"two\nlines"\n3,\n'
    assert read_csv([file(text)], YELP) == {"label": [0, 4, 2], "text": ['a "b", c', "two\nlines", ""]}
    assert read_csv([file("10,t,,b\n")], YAHOO) == {
        "topic": [9],
        "question_title": ["t"],
        "question_content": [""],
        "best_answer": ["b"],
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("4", r"1 fields instead of 2 \(label, text\)"),
        ("4,a,b", "3 fields instead of 2"),
        ("", "0 fields instead of 2"),
        ("label,text", r"the class 'label' is not one of 1\.\.5"),
        ("0,a", r"the class '0' is not one of 1\.\.5"),
        ("6,a", "the class '6' is not"),
        ("9" * 5000 + ",a", "the class '9{60}' is not"),
        ("2.0,a", r"the class '2\.0' is not"),
        ('3,"a" b', "',' expected after '\"'"),
    ],
)
def test_broken_lines_of_csv(file, line, message):
    """A field with a line break counts: the line is that of the file."""
    with pytest.raises(DatasetError, match=rf"part\.txt, line 4: {message}"):
        read_csv([file(f'1,a\n2,"b\nc"\n{line}\n5,e\n')], YELP)


def test_csv_that_ends_within_quotes(file):
    with pytest.raises(DatasetError, match=r"part\.txt, line 2: unexpected end of data"):
        read_csv([file('1,a\n2,"b')], YELP)
