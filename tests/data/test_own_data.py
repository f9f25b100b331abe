"""Own data: files as they stand, columns, classes and splits by the stated rules, and bad input in one clear line."""

import gzip
import re
import types

import datasets
import numpy as np
import pandas as pd
import pytest

from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.own_data import check_own, read_own, read_texts
from attnfaith.data.own_files import read_file
from attnfaith.data.registry import SPLITS, entry_of, facts
from attnfaith.recipes.schema import Data
from attnfaith.support.errors import DatasetError


TOPICS = ("Kultur", "Politik", "Sport")
ROWS = [(f"Satz {row} über {TOPICS[row % 3]}, schön 🙂", TOPICS[row % 3]) for row in range(60)]


def write(path, rows=ROWS, head=("text", "label"), **options):
    """A file of any kind, by the end of its name."""
    frame = pd.DataFrame(list(rows), columns=list(head), dtype=object)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif path.suffix in (".json", ".jsonl"):
        frame.to_json(path, orient="records", lines=path.suffix == ".jsonl", force_ascii=False)
    else:
        frame.to_csv(path, index=False, **options)
    return str(path)


def read(path, **keys):
    section = Data(path=str(path), **keys)
    return read_own(section).limited(section.limits)


def sizes(loaded):
    return [len(loaded.splits[split]) for split in SPLITS]


def texts(loaded):
    return {split: list(loaded.splits[split]["text"]) for split in SPLITS}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.json", "a.jsonl", "a.parquet", "a.xlsx"])
def test_every_kind_of_file_holds_the_same_rows(tmp_path, name):
    if name.endswith("xlsx"):
        pytest.importorskip("openpyxl")
    head = ("Kommentar", "Größe der Stadt")
    rows = [("wort " * 1600, "klein"), ('er sagt "ja, gut"\nund geht 👍', "groß"), ("NA", "null"), ("007", "007")]
    path = write(tmp_path / name, rows, head, **({"sep": "\t"} if ".tsv" in name else {}))
    table = read_file(path)
    if name == "a.csv":
        frame = table.to_pandas()
        frame.to_csv(path, index=False, encoding="utf-16")
        table = read_file(path, encoding="utf-16")
    assert table.column_names == list(head)
    assert [tuple(row.values()) for row in table] == rows


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "", "No columns"),
        ("a.csv", "text,label\ngrün,1\n".encode("cp1252"), "in another encoding: give --data.encoding cp1252, or save"),
        ("a.csv", "text,label\n", "no rows"),
        ("a.csv", "text,label\na,1\nb, 2, 3\n", "line 3, saw 3.* quotation marks"),
        ("a.csv", "text,label\na,1,4\n", "header or names does not match length of data.*quotation marks"),
        ("a.csv", 'text,label\n"a,1\nb,1\n', "inside string.*--data.quotes"),
        ("a.xls", "abcd", "save a .xls as .xlsx"),
        ("a.parquet", "abc", "cannot be read"),
        ("a.csv.gz", gzip.compress(b"text,label\na,1\n" * 500, mtime=0)[:-20], "cannot be read"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b",\n', "cannot be read"),
    ],
    ids=lambda value: ascii(value)[1:30],
)
def test_files_that_cannot_be_read(tmp_path, name, content, words, capfd):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DatasetError, match=words) as refusal:
        read_file(tmp_path / name)
    assert "\n" not in str(refusal.value) and name in str(refusal.value)
    assert not capfd.readouterr().err


def test_a_file_is_read_mapped_and_cut(tmp_path):
    """By its seed and shares alone: not by the seed that draws limits, nor by where the file lies."""
    path = write(tmp_path / "reviews.csv")
    loaded = read(path)
    assert loaded.label_names == list(TOPICS) and loaded.entry.name == "reviews" and loaded.entry.own
    assert sizes(loaded) == [42, 9, 9] and len(loaded.vocabulary_texts) == 42
    places = {name: int(name.rpartition("/")[2]) for split in SPLITS for name in loaded.splits[split]["instance_id"]}
    assert sorted(places.values()) == list(range(60)) and all(name.startswith("reviews/reviews.csv/") for name in places)
    for split in SPLITS:
        for row in loaded.splits[split]:
            assert (row["text"], TOPICS[row["label"]]) == ROWS[places[row["instance_id"]]]
        assert np.bincount(loaded.splits[split]["label"]).tolist() == [len(loaded.splits[split]) // 3] * 3
    assert loaded.about["classes"]["Sport"] == {"train": 14, "validation": 3, "test": 3}
    assert loaded.about["words"]["test"] == [7, 7, 7, 7, 7]  # the comma is a word
    assert texts(read(path, seed=5)) == texts(loaded) != texts(read(path, split_seed=1))
    assert sizes(read(path, validation_share=0.3, test_share=0.1)) == [36, 18, 6]
    again = read(write(tmp_path / "elsewhere" / "reviews.csv"))
    assert again.revision == loaded.revision != read(write(tmp_path / "reviews.csv", ROWS[1:])).revision
    assert fingerprint(again.splits["test"]) == fingerprint(loaded.splits["test"])


def test_a_text_and_pairs_with_one_first_text_are_in_one_split(tmp_path):
    rows = [(f"Text {number}", TOPICS[number % 3]) for number in range(30)]
    rows += [(f"  TEXT   {number} ", TOPICS[number % 3]) for number in range(0, 30, 2)] + [("text 7", "Kultur")]
    loaded = read(write(tmp_path / "a.csv", rows))
    keys = {split: {" ".join(text.split()).lower() for text in listed} for split, listed in texts(loaded).items()}
    assert len(set.union(*keys.values())) == 30 == sum(map(len, keys.values()))
    assert (loaded.about["repeated"], loaded.about["two_labels"]) == (16, 1)
    pairs, columns = [(f"Premise {row // 3}", f"hypothesis {row}", TOPICS[row % 3]) for row in range(60)], ("p", "h", "gold")
    keys = {"text": "p", "text_pair": "h", "label": "gold"}
    loaded = read(write(tmp_path / "b.csv", pairs, columns), **keys)
    firsts = [set(listed) for listed in texts(loaded).values()]
    assert loaded.entry.pair and sum(map(len, firsts)) == len(set.union(*firsts)) == 20
    assert loaded.splits["train"]["text_pair"][0].startswith("hypothesis")
    with pytest.raises(DatasetError, match="too few different texts"):
        read(write(tmp_path / "c.csv", pairs[:6], columns), **keys)


def test_published_splits_stay_and_missing_ones_are_cut_from_train(tmp_path):
    write(tmp_path / "mine" / "train.csv", ROWS[:30] + ROWS[32:36])
    write(tmp_path / "mine" / "dev.parquet", ROWS[28:36])
    write(tmp_path / "mine" / "test-00000-of-00001.csv", [*ROWS[33:40], ("neu", "Neu")])
    loaded = read(tmp_path / "mine")
    expected = {"train": ROWS[:28], "validation": ROWS[28:33], "test": ROWS[33:40]}
    assert texts(loaded) == {split: [text for text, _ in rows] for split, rows in expected.items()}
    assert loaded.dropped["source"] == {"label_not_in_training": 1, "also_in_test": 6, "also_in_validation": 3}
    assert loaded.splits["test"]["instance_id"][0] == "mine/test-00000-of-00001.csv/0"
    write(tmp_path / "other" / "train.csv")
    test = [(f"neu {row}", TOPICS[row % 3]) for row in range(9)]
    write(tmp_path / "other" / "test.csv", test)
    loaded = read(tmp_path / "other", limits={"train": 20, "validation": 6, "test": 5})
    assert sizes(loaded) == [20, 6, 5] and "15% validation" in loaded.about["splits"]
    write(tmp_path / "other" / "test.csv", [(text, "") for text, _ in test])  # as GLUE publishes its test
    loaded = read(tmp_path / "other")
    assert len(loaded.splits["test"]) == 9 and "test: no row has a label" in loaded.about["assumed"][0]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_rows_left_out_are_counted(tmp_path, name):
    """Blanks, and the null of a file that has one."""
    nothing = "" if name == "a.csv" else None
    rows = [*ROWS, ("kein Label", nothing), ("auch keins", "  "), (nothing, "Sport"), (" \n", "Sport")]
    loaded = read(write(tmp_path / name, rows))
    assert loaded.dropped["source"] == {"no_label": 2, "no_text": 2} and loaded.about["rows"] == 64
    assert sum(sizes(loaded)) == 60


@pytest.mark.parametrize(
    ("name", "labels", "names"),
    [
        ("a.csv", ["1.0", "2", "1", "2.0"], ["1", "2"]),
        ("a.csv", ["10", "9", "2"], ["2", "9", "10"]),
        ("a.csv", ["NA", "null", "None"], ["NA", "None", "null"]),
        ("a.jsonl", [1, "x", True], ["1", "true", "x"]),
        ("a.parquet", [0.0, 1.0, None], ["0", "1"]),
        ("a.parquet", [True, False], ["false", "true"]),
        ("a.csv", ["True", "FALSE"], ["false", "true"]),
    ],
)
def test_names_of_classes(tmp_path, name, labels, names):
    loaded = read(write(tmp_path / name, [(f"t {row}", labels[row % len(labels)]) for row in range(24)]))
    assert loaded.label_names == names


@pytest.mark.parametrize(
    ("head", "keys", "columns", "words"),
    [
        (("Text", "LABEL"), {}, ("Text", "LABEL"), "'Text'.*'LABEL'"),
        (("text", "Kategorie"), {}, ("text", "Kategorie"), "label is read from the column 'Kategorie'"),
        (("Kommentar", "label"), {}, ("Kommentar", "label"), "text is read from the column 'Kommentar'"),
        (("text", "label", "label_ids"), {}, ("text", "label"), ""),
        (("text", "Kategorie", "id"), {"label": "Kategorie"}, ("text", "Kategorie"), ""),
    ],
)
def test_columns_that_are_chosen(tmp_path, head, keys, columns, words):
    about = read(write(tmp_path / "a.csv", [(*row, "x")[: len(head)] for row in ROWS], head), **keys).about
    assert about["columns"] == dict(zip(("text", "label"), columns, strict=True))
    assert re.search(words, " ".join(about["assumed"]))


NUMBERED = [(number, *row) for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("head", "rows", "keys", "words"),
    [
        (("id", "review", "topic"), NUMBERED, {}, "no column 'text'; there are 'id', 'review', 'topic'.* --data.text"),
        (("id", "review", "topic"), NUMBERED, {"text": "review"}, "no column 'label'; .* --data.label"),
        (("id", "text", "Kategorie"), NUMBERED, {"label": "Kategory"}, "no column 'Kategory'; did you mean 'Kategorie'"),
        (("id", "text", "label"), NUMBERED, {"text": "label", "label": "label"}, "name one column"),
        (None, [(f"t{row}", "x") for row in range(50)], {}, "column 'label' has 50 labels, all 'x'; a classifier needs two"),
        (None, [(f"t{row}", "") for row in range(50)], {}, "column 'label' has a label in none of 50 rows"),
        (None, [(f"t{row}", f"free {row}") for row in range(1020)], {}, "1,020 different values in 1,020 rows.*data.label"),
        (None, [(f"t{row}", f"{row % 3}.5") for row in range(50)], {}, "holds numbers such as 0.5, which are no classes"),
    ],
)
def test_columns_and_labels_that_are_refused(tmp_path, head, rows, keys, words):
    path = write(tmp_path / "a.csv", rows, head or ("text", "label"))
    for read_data in (check_own, read_own):  # labels before any text is read
        with pytest.raises(DatasetError, match=words):
            read_data(Data(path=path, **keys))
    lists = write(tmp_path / "a.parquet", [(["t", str(row)], "ab"[row % 2]) for row in range(50)])
    with pytest.raises(DatasetError, match="column 'text' holds .*, no text: join words"):
        read_own(Data(path=lists))


def test_one_entry_for_registry_and_own():
    assert entry_of("sst").name == entry_of(Data(name="sst")).name == entry_of({"name": "sst"}).name == "sst"
    own = entry_of(Data(path="../some/reviews.csv.gz", text_pair="q"))
    assert (own.name, own.pair, own.own, own.preprocessing) == ("reviews", True, True, "words")
    assert entry_of(Data(path="sst.csv")).name == "own_sst"  # not the registry's
    assert entry_of(Data(hub_id="owner/name", config="de")).name == "owner/name"
    assert facts(Data(path="reviews.csv"))["hub_id"] is None and facts(Data(hub_id="o/n"))["hub_id"] == "o/n"


def test_a_data_set_of_the_hub(monkeypatch):
    calls, splits = [], {}
    builder = types.SimpleNamespace(
        hash="c0ffee", download_and_prepare=lambda: None, as_dataset=lambda: datasets.DatasetDict(splits)
    )

    def load_dataset_builder(*where, **options):
        calls.append((where, options))
        return builder

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    features = datasets.Features(sentence=datasets.Value("string"), label=datasets.ClassLabel(names=["weg", "pos", "neg"]))
    rows = {"sentence": [f"t{row}" for row in range(40)], "label": [1 + row % 2 for row in range(40)]}
    train = datasets.Dataset.from_dict(rows, features)
    test = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [-1, -1]}, features)
    splits |= {"train": train, "validation_matched": train, "test": test}
    loaded = read_own(Data(hub_id="owner/name", revision="v1", config="de", text="sentence")).limited()
    assert calls == [(("owner/name", "de"), {"revision": "v1"})] and loaded.revision == "c0ffee"
    assert loaded.label_names == ["pos", "neg"]  # in the publisher's order; a class without texts is none
    assert sizes(loaded) == [28, 6, 6]
    assert loaded.splits["test"]["instance_id"][0].startswith("owner/name/train/")
    with pytest.raises(DatasetError, match="train has no column 'sentense'; did you mean 'sentence'"):
        read_own(Data(hub_id="owner/name", text="sentense"))
    assert len(read_texts(Data(hub_id="owner/name"), "train", 5)) == 5
    with pytest.raises(DatasetError, match="no split 'dev': --split takes one of train, test"):
        read_texts(Data(hub_id="owner/name"), "dev")
    splits.pop("train")
    with pytest.raises(DatasetError, match="owner/name has no train split; it holds validation_matched, test"):
        read_own(Data(hub_id="owner/name", text="sentence"))


def test_impermissible_words(tmp_path):
    jobs = [(f"{'He' if row % 2 else 'She'}, the {row}th, works", "fm"[row % 2]) for row in range(40)]
    path, keys = write(tmp_path / "jobs.csv", jobs), {"impermissible_words": ["he", "SHE"]}
    loaded = read(path, **keys)
    for split in loaded.splits.values():
        assert split["impermissible"][:] == [[1, 0, 0, 0]] * len(split)
    assert loaded.entry.impermissible
    assert read_texts(Data(path=path, **keys), "test", 5)["impermissible"][:] == [[1, 0, 0, 0]] * 5
    removed = Data(path=path, **keys, impermissible_removed=True)
    for rows in (read_texts(removed, "test"), read_own(removed).limited().splits["train"]):
        assert all(text.startswith("the ") for text in rows["text"])
    with pytest.raises(DatasetError, match="no text of training has an impermissible word"):
        read(path, impermissible_words=["they"])
