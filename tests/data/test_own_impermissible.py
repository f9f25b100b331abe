"""Own data that say which words are impermissible, by a column or by a list of words; and bad input in one line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import attnfaith
from attnfaith.data.own_data import read_own, read_texts
from attnfaith.data.registry import entry_of
from attnfaith.errors import DatasetError
from attnfaith.recipes import Data, RecipeError, make_section
from attnfaith.runs.prepare import load_data, remarks
from tests.small_classifiers import classifier, tokenizer


ROWS = [(f"{'He' if row % 2 else 'She'}, the {row}th, works", "fm"[row % 2], [1, 0, 0, 0]) for row in range(40)]
WAYS = [{"impermissible": "hidden"}, {"impermissible_words": ["he", "SHE"]}]


@pytest.fixture(params=["csv", "jsonl", "parquet"])
def file(request, tmp_path):
    """A file of each kind with the same rows and marks."""

    def write(rows=ROWS):
        path = tmp_path / f"jobs.{request.param}"
        table = [{"text": text, "label": label, "hidden": marks} for text, label, marks in rows]
        if request.param == "jsonl":
            path.write_text("\n".join(map(json.dumps, table)))
        elif request.param == "parquet":
            pq.write_table(pa.Table.from_pylist(table), path)
        else:  # by turns "[1, 0]" and "1 0"
            marks = [
                str(row["hidden"]) if number % 2 else " ".join(map(str, row["hidden"])) for number, row in enumerate(table)
            ]
            cells = (f'"{row["text"]}",{row["label"]},"{mark}"' for row, mark in zip(table, marks, strict=True))
            path.write_text("\n".join(["text,label,hidden", *cells]))
        return str(path)

    return write


def read(path, **keys):
    return read_own(Data(path=path, **keys)).limited()


@pytest.mark.parametrize("keys", WAYS)
def test_a_column_and_a_list_say_the_same(file, keys):
    path = file()
    loaded = read(path, **keys)
    for split in loaded.splits.values():
        assert split["impermissible"][:] == [[1, 0, 0, 0]] * len(split)
    assert loaded.entry.impermissible and len(loaded.splits["train"]) == 28
    assert loaded.about["columns"].get("impermissible") == keys.get("impermissible")
    assert read_texts(Data(path=path, **keys), "test", 5)["impermissible"][:] == [[1, 0, 0, 0]] * 5
    rows = read_texts(Data(path=path, **keys, impermissible_removed=True), "test")
    assert all(text.startswith("the ") for text in rows["text"])


def test_a_column_of_marks_is_not_taken_for_text_or_label(tmp_path):
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(json.dumps({"review": text, "label": label, "m": marks}) for text, label, marks in ROWS))
    assert read(str(path), impermissible="m").about["columns"] == {"text": "review", "label": "label", "impermissible": "m"}


def test_texts_without_the_words(file):
    section = Data(path=file(), impermissible="hidden", impermissible_removed=True)
    loaded = load_data(type("Recipe", (), {"data": section}))
    assert loaded.entry.name == entry_of(section).name == "jobs_permissible"
    assert "impermissible" not in loaded.splits["train"].column_names
    assert all(text.startswith("the ") for text in loaded.splits["train"]["text"])


def test_texts_with_none_and_with_nothing_else_are_counted(file):
    rows = [*ROWS, ("nobody works", "f", [0, 0]), ("he", "m", [1]), ("she", "f", [1])]
    section = Data(path=file(rows), impermissible="hidden")
    lines = remarks(load_data(type("Recipe", (), {"data": section})))
    assert "jobs: texts without impermissible words: 1" in lines
    assert "jobs: texts of impermissible words only: 2" in lines


@pytest.mark.parametrize(
    ("keys", "marks", "message"),
    [
        ({"impermissible": "hidden"}, [1, 0], "/39: impermissible must be one 0 or 1 for each of its 4 words"),
        ({"impermissible": "hidden"}, [2, 0, 0, 0], "/39: impermissible must be"),
        ({"impermissible": "hiden"}, [1, 0, 0, 0], "no column 'hiden'; did you mean 'hidden'"),
        ({"impermissible_words": ["they"]}, [1, 0, 0, 0], "no text of training has an impermissible word"),
        ({"text": "text", "impermissible": "text"}, [1, 0, 0, 0], "the column 'text' is named for two"),
    ],
)
def test_refusals(file, keys, marks, message):
    with pytest.raises(DatasetError, match=message):
        read(file([*ROWS[:39], (*ROWS[39][:2], marks)]), **keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": "a.csv", "impermissible": "m", "impermissible_words": ["he"]}, "leave one out"),
        ({"path": "a.csv", "impermissible_words": []}, "names no word"),
        ({"path": "a.csv", "impermissible_words": ["he said"]}, "'he said' is not one word"),
        ({"path": "a.csv", "impermissible_removed": True}, "do not say which words are impermissible"),
        ({"name": "sst", "impermissible": "m"}, "it is for own data"),
    ],
)
def test_refusals_of_recipes(keys, message):
    with pytest.raises(RecipeError, match=message):
        make_section(Data, keys, "recipe.data")


def test_measure_of_python_takes_the_column():
    table = pa.table({"text": ["the ships sank", "good music"], "impermissible": [[0, 1, 0], [0, 0]]})
    model = classifier("bert", max_position_embeddings=24)
    record = attnfaith.measure(model, table, tokenizer=tokenizer(), measures=[], progress=False)
    assert record.table.column("impermissible").to_pylist() == [[False, True, True, False], [False, False]]
    wrong = pa.table({"text": ["the ships sank"], "impermissible": [[0, 1]]})
    with pytest.raises(DatasetError, match="texts/0: impermissible must be one 0 or 1 for each of its 3 words"):
        attnfaith.measure(model, wrong, tokenizer=tokenizer(), measures=[], progress=False)
