"""Own data: columns, classes and splits by the stated rules, what is left out counted, and bad input in one clear line."""

import csv
import json
import random

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data import own_data
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.own_data import read_own, read_texts
from attnfaith.data.registry import SPLITS, entry_of, facts
from attnfaith.errors import DatasetError
from attnfaith.recipes import Data


TOPICS = ("Kultur", "Politik", "Sport")


def table(n=60, topics=TOPICS):
    """n rows, every class alike often; texts differ."""
    return [(f"Satz {row} über {topics[row % len(topics)]}, schön", topics[row % len(topics)]) for row in range(n)]


@pytest.fixture
def write(tmp_path):
    def make(rows, name="reviews.csv", head=("text", "label")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([head, *rows])
        return str(path)

    return make


def read(path, **keys):
    section = Data(path=path, **keys)
    return read_own(section).limited(section.limits)


def texts(loaded):
    return {split: list(loaded.splits[split]["text"]) for split in SPLITS}


def test_a_file_is_read_mapped_and_cut(write):
    rows = table()
    loaded = read(write(rows))
    assert loaded.label_names == list(TOPICS) and loaded.entry.name == "reviews" and loaded.entry.own
    assert {split: len(loaded.splits[split]) for split in SPLITS} == {"train": 42, "validation": 9, "test": 9}
    place = {name: int(name.rpartition("/")[2]) for split in SPLITS for name in loaded.splits[split]["instance_id"]}
    assert sorted(place.values()) == list(range(60)) and all(name.startswith("reviews/reviews.csv/") for name in place)
    for split in SPLITS:
        for row in loaded.splits[split]:
            assert (row["text"], TOPICS[row["label"]]) == rows[place[row["instance_id"]]]
        assert np.bincount(loaded.splits[split]["label"]).tolist() == [len(loaded.splits[split]) // 3] * 3
    assert loaded.about["classes"]["Sport"] == {"train": 14, "validation": 3, "test": 3}
    assert loaded.about["words"]["test"] == [6, 6, 6, 6, 6]  # the comma is one
    assert loaded.revision.startswith("local-") and len(loaded.vocabulary_texts) == 42


def test_the_cut_depends_on_its_seed_and_shares_alone(write):
    path = write(table())
    first = texts(read(path))
    assert texts(read(path, seed=5)) == first  # that draws limits
    assert texts(read(path, split_seed=1)) != first
    sizes = {split: len(rows) for split, rows in texts(read(path, validation_share=0.3, test_share=0.1)).items()}
    assert sizes == {"train": 36, "validation": 18, "test": 6}


def test_one_text_is_in_one_split(write):
    random.seed(0)
    rows = [(f"Text {number}", TOPICS[number % 3]) for number in range(30)]
    rows += [(f"  TEXT   {number} ", TOPICS[number % 3]) for number in range(0, 30, 2)] + [("text 7", "Kultur")]
    random.shuffle(rows)
    loaded = read(write(rows))
    keys = {split: {" ".join(text.split()).lower() for text in of_split} for split, of_split in texts(loaded).items()}
    assert len(set.union(*keys.values())) == 30 == sum(map(len, keys.values()))
    assert (loaded.about["repeated"], loaded.about["two_labels"]) == (16, 1)


def test_pairs_with_one_first_text_stay_together(write):
    rows = [(f"Premise {row // 3}", f"hypothesis {row}", TOPICS[row % 3]) for row in range(60)]
    loaded = read(write(rows, head=("p", "h", "gold")), text="p", text_pair="h", label="gold")
    firsts = [set(of_split) for of_split in texts(loaded).values()]
    assert loaded.entry.pair and sum(map(len, firsts)) == len(set.union(*firsts)) == 20
    assert loaded.splits["train"]["text_pair"][0].startswith("hypothesis")
    with pytest.raises(DatasetError, match="too few texts .*there are 2, and at least 3 different texts"):
        read(write(rows[:6], head=("p", "h", "gold")), text="p", text_pair="h", label="gold")


def test_rows_left_out_are_counted(write):
    rows = [*table(), ("kein Label", ""), ("auch keins", "  "), ("", "Sport"), (" \n", "Sport")]
    loaded = read(write(rows))
    assert loaded.dropped["source"] == {"no_label": 2, "no_text": 2} and loaded.about["rows"] == 64
    assert sum(map(len, loaded.splits.values())) == 60


def test_words_that_pandas_takes_for_missing_are_texts_and_classes(write):
    rows = [(f"{word} {row}" if row else word, ("NA", "null", "None")[row % 3]) for row in range(9) for word in ["NA"]]
    loaded = read(write([*rows, ("null", "None"), ("nan", "null")]))
    assert loaded.label_names == ["NA", "None", "null"] and loaded.about["rows"] == 11
    assert {"NA", "null", "nan"} <= {text for of_split in texts(loaded).values() for text in of_split}
    assert "'NA', 'None', 'null' is taken for a class" in loaded.about["assumed"][0]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "-1"], ["-1", "9", "10"]),
        (["1.0", "2", "1", "2.0"], ["1", "2"]),
        (["007", "010"], ["007", "010"]),
        (["true", "false"], ["false", "true"]),
        (["b ", " a"], ["a", "b"]),
        (["1", "one"], ["1", "one"]),
        (["Ä", "Z", "a"], ["Z", "a", "Ä"]),
    ],
)
def test_names_of_classes_in_a_csv(write, labels, names):
    assert read(write([(f"t {row}", labels[row % len(labels)]) for row in range(24)])).label_names == names


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([10, 9], ["9", "10"]),
        ([1.0, 2.0, None, float("nan")], ["1", "2"]),
        ([True, False], ["false", "true"]),
        ([1, "x", True], ["1", "true", "x"]),
    ],
)
def test_names_of_classes_of_other_types(tmp_path, labels, names):
    lines = [json.dumps({"text": row, "label": labels[row % len(labels)]}) for row in range(24)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    loaded = read(str(tmp_path / "a.jsonl"))
    assert loaded.label_names == names and loaded.splits["train"]["text"][0].isdigit()
    if len(labels) < 4 and len({type(label) for label in labels}) == 1:
        pq.write_table(
            pa.table({"text": [f"t{row}" for row in range(24)], "label": labels * (24 // len(labels))}),
            tmp_path / "a.parquet",
        )
        assert read(str(tmp_path / "a.parquet")).label_names == names


def test_columns_without_the_usual_names(write):
    rows = table()
    for head in (("Text", "LABEL"), ("text", "topic"), ("review", "label")):
        loaded = read(write(rows, head=head))
        said = " ".join(loaded.about["assumed"])
        assert loaded.about["columns"] == dict(zip(("text", "label"), head, strict=True))
        assert all((f"is read from the column {name!r}" in said) == (name not in ("text", "label")) for name in head)
    said = read(write(rows, head=("text", "labels")))
    assert said.about["columns"]["label"] == "labels" and "'labels'" in said.about["assumed"][-1]
    both = read(write([(*row, "x") for row in rows], head=("text", "label", "label_ids"))).about
    assert both["columns"]["label"] == "label" and "not read from the column 'label_ids'" in both["assumed"][-1]
    three = [(number, *row) for number, row in enumerate(rows)]
    assert read(write(three, head=("id", "review", "topic")), text="review", label="topic").label_names == list(TOPICS)
    for head, keys, says in (
        (("id", "review", "topic"), {}, "no column 'text'; it has 'id', 'review', 'topic': name the one .* --data.text"),
        (("id", "review", "topic"), {"text": "review"}, "no column 'label'; .* --data.label"),
        (("id", "text", "topic"), {}, "no column 'label'"),
        (("id", "text", "label"), {"text": "txt"}, r"no column 'txt'; did you mean 'text'"),
        (("id", "text", "label"), {"text": "label", "label": "label"}, "named for two"),
    ):
        with pytest.raises(DatasetError, match=says):
            read(write(three, head=head), **keys)
    with pytest.raises(DatasetError, match="no column 'text'; it has 'review', 'topic'"):
        read(write(rows, head=("review", "topic")))


def test_the_content_decides_the_revision(write):
    rows = table()
    one, again = read(write(rows)), read(write(rows, name="other/reviews.csv"))
    other = read(write([*rows, ("x", "Sport")]))
    assert one.revision == again.revision != other.revision
    assert [fingerprint(one.splits[split]) for split in SPLITS] == [fingerprint(again.splits[split]) for split in SPLITS]


def test_published_splits_stay_and_test_is_untouched(write, tmp_path):
    rows = table(40)
    write(rows[:30] + rows[32:36], name="mine/train.csv")
    write(rows[28:36], name="mine/dev.csv")
    write(rows[33:40] + [("neu", "Neu")], name="mine/test-00000-of-00001.csv")
    loaded = read(str(tmp_path / "mine"))
    assert texts(loaded)["test"] == [text for text, _ in rows[33:40]]
    assert texts(loaded)["validation"] == [text for text, _ in rows[28:33]]
    assert texts(loaded)["train"] == [text for text, _ in rows[:28]]
    assert loaded.dropped["source"] == {"label_not_in_training": 1, "also_in_test": 6, "also_in_validation": 3}
    assert loaded.splits["test"]["instance_id"][0] == "mine/test-00000-of-00001.csv/0"
    assert loaded.entry.name == "mine" and "as published" in loaded.about["splits"]


def test_missing_splits_are_cut_from_train(write, tmp_path):
    write(table(60), name="mine/train.csv")
    write(table(9)[:0] + [(f"neu {row}", TOPICS[row % 3]) for row in range(9)], name="mine/test.tsv.csv")
    loaded = read(str(tmp_path / "mine"))
    assert {split: len(loaded.splits[split]) for split in SPLITS} == {"train": 51, "validation": 9, "test": 9}
    assert "15% validation" in loaded.about["splits"] and "15% test" not in loaded.about["splits"]
    write([(text, "") for text, _ in table(9)], name="mine/test.tsv.csv")  # as GLUE publishes its test
    loaded = read(str(tmp_path / "mine"))
    assert len(loaded.splits["test"]) == 9 and "test: no row has text and label" in loaded.about["assumed"][0]


def test_a_folder_without_splits(write, tmp_path):
    write(table(), name="mine/reviews.csv")
    write(table(), name="mine/trains.csv")
    with pytest.raises(DatasetError, match="mine has no train split.*It holds reviews.csv, trains.csv"):
        read(str(tmp_path / "mine"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="It holds no file"):
        read(str(tmp_path / "empty"))
    write(table(9), name="same/train.csv")
    write(table(9), name="same/test.csv")
    with pytest.raises(DatasetError, match="every text of the train split is in test too"):
        read(str(tmp_path / "same"))


def test_limits_are_drawn_while_the_file_is_read(write, monkeypatch):
    path = write(table(3000))
    limits = {"train": 70, "validation": 15, "test": 15}
    drawn = []
    monkeypatch.setattr(own_data, "draw_rows", lambda rows, n, seed: drawn.append(n) or draw_rows(rows, n, seed))
    loaded = read(path, limits=limits)
    assert drawn == [110] and {split: len(loaded.splits[split]) for split in SPLITS} == limits
    assert loaded.about["rows"] == 3000 and loaded.dropped["source"]["limit"] == 2890
    assert texts(read(path, limits=limits)) == texts(loaded) != texts(read(path, limits=limits, seed=1))
    assert len(read(path, limits={"train": 70}).splits["test"]) == 450  # nothing bounds what is read


draw_rows = own_data.draw_rows


def test_limits_of_published_splits(write, tmp_path):
    write(table(100), name="mine/train.csv")
    write([(f"neu {row}", TOPICS[row % 3]) for row in range(50)], name="mine/test.csv")
    loaded = read(str(tmp_path / "mine"), limits={"train": 50, "validation": 6, "test": 10})
    assert {split: len(loaded.splits[split]) for split in SPLITS} == {"train": 50, "validation": 6, "test": 10}
    assert loaded.dropped["source"]["limit"] == 40 + (100 - 65)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "reviews.* has columns and no rows"),
        ([("a", "x")], "1 label, all 'x'; a classifier needs two classes"),
        ([(f"t{row}", "x") for row in range(50)], "50 labels, all 'x'"),
        ([(f"t{row}", "") for row in range(50)], "none of 50 rows can be used: 50 have no label in column 'label'"),
        ([("", "x") for row in range(50)], "none of 50 rows can be used: 0 have no label .*, 50 no text in 'text'"),
        (table(50, ("a", "b"))[:4], "'a' has 2, the class 'b' has 2, and at least 3 different texts are needed"),
        ([("t", "a"), ("T", "a"), ("t ", "a"), *table(30, ("b", "c"))], "the class 'a' has 1, and at least 3"),
        ([(f"t{row}", f"free text {row}") for row in range(50)], "50 different values in 50 rows, so it holds no classes"),
        ([(f"t{row}", f"{row % 3}.5") for row in range(50)], "holds numbers such as 0.5, which are no classes"),
    ],
)
def test_what_cannot_be_learned_from(write, rows, says):
    with pytest.raises(DatasetError, match=says) as refusal:
        read(write(rows))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("words", [{"impermissible_words": ["film"]}, {"impermissible": "marks"}])
def test_texts_to_measure_that_are_no_texts(tmp_path, words):
    """Marks of words are asked of each text while it is read, before anybody looks what it is."""
    for number, values in enumerate((["a film", None], [b"a film", b"b"])):
        pq.write_table(pa.table({"text": values, "marks": [[0, 0], [0]]}), tmp_path / f"{number}.parquet")
        data = Data(path=str(tmp_path / f"{number}.parquet"), **words)
        with pytest.raises(DatasetError, match=f"row {1 - number} of column 'text' is .*, no string: give a text"):
            read_texts(data, "train")


def test_a_file_that_is_a_link_to_itself(tmp_path):
    (tmp_path / "a.csv").symlink_to("a.csv")
    with pytest.raises(DatasetError, match="no file at .*a.csv"):
        read_own(Data(path=str(tmp_path / "a.csv")))


def test_labels_of_types_that_are_no_classes(tmp_path):
    for label in (0.5, [1], {"a": 1}, float("inf")):
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": f"t{row}", "label": label}) for row in range(9)))
        with pytest.raises(DatasetError, match="is no class|none of 9 rows"):  # JSON writes no infinity
            read(str(tmp_path / "a.jsonl"))


def test_a_column_of_free_text_is_not_read_on(write, monkeypatch):
    monkeypatch.setattr(own_data, "MOST_VALUES", 20)
    with pytest.raises(DatasetError, match="column 'label' has more than 20 different values"):
        read(write([(f"t{row}", f"value {row}") for row in range(50)]))


def test_many_classes_are_asked_about(write):
    rows = [(f"t{row} {number}", f"class {number}") for number in range(101) for row in range(4)]
    assert "label has 101 classes; is it" in read(write(rows)).about["assumed"][0]


def test_one_entry_for_registry_and_own(write):
    assert entry_of("sst").name == entry_of(Data(name="sst")).name == entry_of({"name": "sst"}).name == "sst"
    assert entry_of(Data()).name == "planted_evidence"
    own = entry_of(Data(path="../some/reviews.csv.gz", text_pair="q"))
    assert (own.name, own.pair, own.own, own.preprocessing) == ("reviews", True, True, "words")
    assert entry_of(Data(path="sst.csv")).name == "own_sst"  # not the registry's
    assert entry_of(Data(hub_id="owner/name", config="de")).name == "owner/name"
    assert facts(Data(path="reviews.csv"))["hub_id"] is None and facts(Data(hub_id="o/n"))["hub_id"] == "o/n"


class Builder:
    """What `load_dataset_builder` gives."""

    hash = "c0ffee"

    def __init__(self, splits):
        self.splits = splits

    def download_and_prepare(self):
        pass

    def as_dataset(self):
        return self.splits


def hub(monkeypatch, **splits):
    asked = []
    made = Builder(datasets.DatasetDict(splits))
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *where, **how: asked.append((where, how)) or made)
    return asked


def test_a_data_set_of_the_hub(monkeypatch):
    features = datasets.Features(sentence=datasets.Value("string"), label=datasets.ClassLabel(names=["weg", "pos", "neg"]))
    rows = {"sentence": [f"t{row}" for row in range(40)], "label": [1 + row % 2 for row in range(40)]}
    train = datasets.Dataset.from_dict(rows, features)
    test = datasets.Dataset.from_dict({"sentence": ["a", "b"], "label": [-1, -1]}, features)
    asked = hub(monkeypatch, train=train, validation_matched=train, test=test)
    section = Data(hub_id="owner/name", revision="v1", config="de", text="sentence")
    loaded = read_own(section).limited()
    assert asked == [(("owner/name", "de"), {"revision": "v1"})] and loaded.revision == "c0ffee"
    assert loaded.label_names == ["pos", "neg"]  # in the publisher's order; a class without texts is none
    assert {split: len(loaded.splits[split]) for split in SPLITS} == {"train": 28, "validation": 6, "test": 6}
    assert loaded.splits["test"]["instance_id"][0].startswith("owner/name/train/")
    limits = {"train": 10, "validation": 2, "test": 2}
    small = Data(hub_id="owner/name", text="sentence", limits=limits)
    assert sum(map(len, read_own(small).limited(limits).splits.values())) == 14
    with pytest.raises(DatasetError, match="owner/name has no column 'sentense'; did you mean 'sentence'"):
        read_own(Data(hub_id="owner/name", text="sentense"))
    hub(monkeypatch, all=train)
    with pytest.raises(DatasetError, match="owner/name at main has no train split; it has all"):
        read_own(Data(hub_id="owner/name", text="sentence"))
