"""Which class a label means: the same of every kind of input, and never a guess."""

import datasets
import pandas as pd
import pytest

from attnfaith.api.texts import read_texts
from attnfaith.support.errors import DatasetError


KINDS = ("csv", "jsonl", "frame", "dataset", "list")
SENTIMENT, ODD = ("neg", "neutral", "pos"), ("1", "2", "3")


@pytest.fixture
def read(tmp_path):
    """The class numbers of labels in a kind of input."""

    def classes(kind, labels, names, reading=None):
        texts = ["a", "b", "c"][: len(labels)]
        frame, path = pd.DataFrame({"text": texts, "label": labels}), tmp_path / f"texts.{kind}"
        if kind == "csv":
            frame.to_csv(path, index=False)
        elif kind == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        source = {"list": texts, "frame": frame, "dataset": datasets.Dataset.from_pandas(frame)}.get(kind, path)
        return read_texts(source, labels if kind == "list" else reading).labelled(names, 3)["label"][:]

    return classes


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_is_the_same_class_in_every_kind_of_input(kind, read):
    for labels in ([1, 0, 2], ["1", "0", "2"], [1.0, 0.0, 2.0], ["1.0", " 0", "2"]):
        assert read(kind, labels, SENTIMENT) == [1, 0, 2]
        with pytest.raises(DatasetError, match="labels="):
            read(kind, labels, ODD)
    assert read(kind, ["pos", "neg", "neutral"], SENTIMENT) == [2, 0, 1]
    assert read(kind, [1.0, None, 2.0], ()) == [1, None, 2] and read(kind, [True, False, True], ()) == [1, 0, 1]
    assert read(kind, [True, False, True], ("true", "false")) == [0, 1, 0]


def test_whole_numbers_are_read_as_names_or_as_ids(read):
    assert read("csv", [1, 0, 2], ODD, "ids") == [1, 0, 2] and read("csv", [3, 1, 2], ODD, "names") == [2, 0, 1]
    assert read("csv", ["same"], ("same", "same", "other")) == [0]
    for labels, reading, message in (([4, 1, 2], "names", "label 0 is '4'"), (["1", "x", "2"], "ids", "label 1 is 'x'")):
        with pytest.raises(DatasetError, match=message):
            read("csv", labels, ODD, reading)


def test_numbers_with_names_of_their_own():
    """A column of `datasets.ClassLabel` holds ids with names: it is plain where both mean the same class of the model."""

    def read(names, classes, reading=None):
        features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
        rows = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, -1]}, features)
        return read_texts(rows, reading).labelled(classes, 2)["label"][:]

    assert read(["1", "2"], ("1", "2")) == read(["neg", "pos"], ("neg", "pos")) == read(["0", "1"], ()) == [0, 1, None]
    assert read(["2", "1"], ("1", "2"), "names") == read(["pos", "neg"], ("neg", "pos")) == [1, 0, None]
    assert read(["2", "1"], ("1", "2"), "ids") == read(["no", "yes"], (), "ids") == [0, 1, None]
    for names, classes in ((["2", "1"], ("1", "2")), (["1", "2"], ("neg", "pos")), (["no", "yes"], ())):
        with pytest.raises(DatasetError, match='labels="ids"'):
            read(names, classes)
    with pytest.raises(DatasetError, match="labels='ids'"):
        read_texts(["a"], "ids")
