"""Own data that say which words are impermissible, by a column or by a list of words; and bad input in one line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data.own_data import read_own, read_texts
from attnfaith.data.registry import entry_of
from attnfaith.errors import DatasetError
from attnfaith.recipes import Data, RecipeError, make_section
from attnfaith.runs.prepare import load_data, remarks


ROWS = [(f"{'He' if row % 2 else 'She'}, the {row}th, works", "fm"[row % 2], [1, 0, 0, 0]) for row in range(40)]


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
        else:
            cells = (f'"{row["text"]}",{row["label"]},"{row["hidden"]}"' for row in table)
            path.write_text("\n".join(["text,label,hidden", *cells]))
        return str(path)

    return write


def read(path, **keys):
    return read_own(Data(path=path, **keys)).limited()


@pytest.mark.parametrize("keys", [{"impermissible": "hidden"}, {"impermissible_words": ["he", "SHE"]}])
def test_a_column_and_a_list_say_the_same(file, keys):
    loaded = read(file(), **keys)
    for split in loaded.splits.values():
        assert split["impermissible"][:] == [[1, 0, 0, 0]] * len(split)
    assert loaded.entry.impermissible and len(loaded.splits["train"]) == 28
    assert loaded.about["columns"].get("impermissible") == keys.get("impermissible")


def test_marks_between_blanks_in_a_csv(tmp_path):
    path = tmp_path / "jobs.csv"
    cells = [f'"{text}",{label},1 0 0 0' for text, label, _ in ROWS]
    path.write_text("\n".join(["text,label,hidden", *cells]))
    assert read(str(path), impermissible="hidden").splits["test"]["impermissible"][0] == [1, 0, 0, 0]


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


def test_texts_with_none_and_with_nothing_else_are_said(file):
    rows = [*ROWS, ("nobody works", "f", [0, 0]), ("he", "m", [1]), ("she", "f", [1])]
    section = Data(path=file(rows), impermissible="hidden")
    said = remarks(load_data(type("Recipe", (), {"data": section})))
    assert "jobs: texts without impermissible words: 1" in said
    assert "jobs: texts of impermissible words only: 2" in said


@pytest.mark.parametrize("marks", [[1, 0], [2, 0, 0, 0]])
def test_marks_of_another_length_or_value(file, marks):
    rows = [*ROWS[:39], (*ROWS[39][:2], marks)]
    with pytest.raises(DatasetError, match="/39: impermissible must be one 0 or 1 for each of its 4 words; .* given"):
        read(file(rows), impermissible="hidden")


def test_refusals(file):
    path = file()
    with pytest.raises(DatasetError, match="has no column 'hiden'; did you mean 'hidden'"):
        read(path, impermissible="hiden")
    with pytest.raises(DatasetError, match="'jobs': no text of training has an impermissible word"):
        read(path, impermissible_words=["they"])
    with pytest.raises(DatasetError, match="the column 'text' is named for two of text, text_pair, label and impermissible"):
        read(path, text="text", impermissible="text")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"path": "a.csv", "impermissible": "m", "impermissible_words": ["he"]}, "leave one out"),
        ({"path": "a.csv", "impermissible_words": []}, "names no word"),
        ({"path": "a.csv", "impermissible_words": ["he said"]}, "'he said' is not one word"),
        ({"path": "a.csv", "impermissible_removed": True}, "do not say which words are impermissible"),
        ({"name": "sst", "impermissible": "m"}, "it is for own data"),
        ({"name": "sst", "impermissible_words": ["he"]}, "it is for own data"),
    ],
)
def test_refusals_of_recipes(keys, said):
    with pytest.raises(RecipeError, match=said):
        make_section(Data, keys, "recipe.data")


@pytest.mark.parametrize("keys", [{"impermissible": "hidden"}, {"impermissible_words": ["he", "she"]}])
def test_texts_that_a_model_is_measured_on(file, keys):
    path = file()
    assert read_texts(Data(path=path, **keys), "test", 5)["impermissible"][:] == [[1, 0, 0, 0]] * 5
    rows = read_texts(Data(path=path, **keys, impermissible_removed=True), "test")
    assert all(text.startswith("the ") for text in rows["text"])
    with pytest.raises(DatasetError, match="there is no column 'm'; there are text, label, hidden"):
        read_texts(Data(path=path, impermissible="m"), "test")


def test_measure_of_python_takes_the_column(tiny_recipe):
    import attnfaith
    from tests.small_classifiers import classifier, tokenizer

    table = pa.table({"text": ["the ships sank", "good music"], "impermissible": [[0, 1, 0], [0, 0]]})
    model = classifier("bert", max_position_embeddings=24)
    made = attnfaith.measure(model, table, tokenizer=tokenizer(), measures=[], progress=False)
    assert made.table.column("impermissible").to_pylist() == [[False, True, True, False], [False, False]]
    wrong = pa.table({"text": ["the ships sank"], "impermissible": [[0, 1]]})
    with pytest.raises(DatasetError, match="texts/0: impermissible must be one 0 or 1 for each of its 3 words; 2 values"):
        attnfaith.measure(model, wrong, tokenizer=tokenizer(), measures=[], progress=False)
