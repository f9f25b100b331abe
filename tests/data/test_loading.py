"""Published data: a contract over every data set on tiny files of its layout, cuts by hand, and broken files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data.loading import load_splits
from attnfaith.data.registry import DATASETS, SPLITS
from attnfaith.data.tokenization import build_tokenizer, encode, normalizer_of, split_words
from attnfaith.support.errors import DatasetError


def text_of(n):
    return " ".join(["w"] * n)


def parquet(folder, split, **columns):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{split}.parquet")


def publish(entry, root, splits=SPLITS, n=40):
    """A data set of the registry in the form that its entry describes: texts of several lengths, and all labels."""
    folder = root / entry.folder
    for split in splits:
        choices = {column: names[:1] for column, names in entry.columns.items()}
        words = [[f"{split}{row}", "is", f"here{row % 3}"] for row in range(n)]
        words = [text + ["w"] * ((entry.min_length or 0) + row % 5) for row, text in enumerate(words)]
        columns = {name: list(map(" ".join, words)) for name in choices["text"]}
        columns |= {name: ["what ?"] * n for name in choices.get("text_pair", ())}
        published = [row % entry.published_labels for row in range(n)]
        if entry.no_label is not None:
            published[0] = entry.no_label
        columns[choices["label"][0]] = published
        columns |= {name: [[1, *[0] * (len(text) - 1)] for text in words] for name in choices.get("impermissible", ())}
        if entry.rationale:
            columns[entry.rationale[0]] = [[[0, 1]]] * n
        parquet(folder, split, **columns)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_contract(name, root):
    """What holds for every data set of the registry, and so for a new entry at once."""
    entry = DATASETS[name]
    if not entry.built_in:
        publish(entry, root)
    loaded = load_splits(name, root=root)
    assert tuple(loaded.splits) == SPLITS
    ids = [i for rows in loaded.splits.values() for i in rows["instance_id"]]
    assert len(ids) == len(set(ids)) and all(i.startswith(f"{name}/") for i in ids)
    assert set(loaded.dropped) == {"source", *SPLITS}
    assert len(set(loaded.label_names)) == len(loaded.label_names) >= 2
    optional = {"text_pair": entry.pair, "rationale": entry.rationale, "impermissible": entry.impermissible}
    columns = {"instance_id", "text", "label", *(column for column, present in optional.items() if present)}
    for rows in loaded.splits.values():
        assert len(rows) > 0 and set(rows.column_names) == columns
        assert set(rows["label"]) <= set(range(len(loaded.label_names)))
        lengths = [len(words) for words in split_words(rows["text"], normalizer_of(entry.preprocessing))]
        assert entry.min_length is None or min(lengths) > entry.min_length
        assert entry.max_length is None or max(lengths) < entry.max_length
        for marks in ("rationale", "impermissible"):
            assert marks not in columns or [len(values) for values in rows[marks]] == lengths
    again = load_splits(name, root=root)
    assert again.revision == loaded.revision
    assert {s: r.to_dict() for s, r in again.splits.items()} == {s: r.to_dict() for s, r in loaded.splits.items()}
    tokenizer = build_tokenizer(loaded.vocabulary_texts, preprocessing=entry.preprocessing, pair=entry.pair)
    encoded = encode(loaded.splits["train"], tokenizer)
    assert sum(encoded["n_unknown"]) == 0 and encoded["labels"][:] == loaded.splits["train"]["label"][:]


def test_filters_limits_and_revision_by_hand(root, monkeypatch):
    """Rows have the numbers of the published file; the vocabulary is that before the filter; nothing is written."""
    for split, lengths in {"train": [5, 6, 7, 9, 9], "validation": [6, 8], "test": [2, 6, 7, 8]}.items():
        labels = [row % 2 for row in range(len(lengths))]
        parquet(root / "SetFit/sst2", split, text=[text_of(n) + " ." for n in lengths], label=labels)
    before = sorted(root.rglob("*"))
    loaded = load_splits("sst", root=root)
    assert sorted(root.rglob("*")) == before
    assert loaded.splits["test"]["instance_id"][:] == ["sst/test/1", "sst/test/2"]
    assert loaded.splits["train"]["label"][:] == [1, 0] and len(loaded.vocabulary_texts) == 5
    assert loaded.dropped == {
        "source": {},
        "train": {"too_short": 1, "longest": 2},  # both of the longest
        "validation": {"too_short": 0, "longest": 1},
        "test": {"too_short": 1, "longest": 1},
    }
    for split in SPLITS:
        parquet(root / "SetFit/sst2", split, text=[text_of(6 + i % 5) for i in range(300)], label=[0, 1] * 150)
    monkeypatch.setenv("ATTNFAITH_DATA", str(root))
    first, other = (load_splits("sst", seed=seed, limits={"train": 50, "test": 10_000}) for seed in (1, 2))
    assert first.revision.startswith("local-") and first.revision != loaded.revision
    rows = [int(name.split("/")[2]) for name in first.splits["train"]["instance_id"]]
    assert len(rows) == 50 and rows == sorted(rows) and rows[-1] > 200, "the head is not a random subset"
    assert first.dropped["train"] == {"too_short": 0, "longest": 60, "limit": 190} and len(first.splits["test"]) == 240
    assert first.vocabulary_texts == first.splits["train"]["text"][:] != other.splits["train"]["text"][:]
    assert first.splits["test"].to_dict() == other.splits["test"].to_dict()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"rationale_spans": [[[1, 2], [4, 6]], []]}, [[0, 1, 0, 0, 1, 1], [0]]),
        ({"rationale": [[0, 1, 0, 0, 1, 1], [0]]}, [[0, 1, 0, 0, 1, 1], [0]]),
        # of passages the first place; a passage that is not there marks nothing
        ({"evidences": [["Dull film", "quite dull", "absent", ""], []]}, [[0, 1, 1, 0, 1, 1], [0]]),
    ],
)
def test_rationales_from_spans_marks_and_quotes(root, columns, expected):
    for split in SPLITS:
        texts = {"review": ["a dull film .\nquite dull", "fine"], "label": [0, 1]}
        parquet(root / "eraser-benchmark/movie_rationales", split, **texts, **columns)
    assert load_splits("movie_reviews", root=root).splits["test"]["rationale"][:] == expected


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sst", {"limits": {"dev": 5}}, "limits names the split 'dev'; there are train, validation, test"),
        ("sst", {"limits": {"train": 0}}, r"limits\['train'\] must be a positive number of rows; 0"),
        ("planted_evidence", {"lenght": (1, 2)}, r"lenght=.*Unexpected keyword argument; the arguments are sizes, length"),
        ("sst", {"length": (1, 2)}, r"\['length'\] are arguments of generated data; 'sst' is read"),
        ("ssst", {}, "'ssst'; did you mean 'sst'"),
        ("sst", {}, "Cannot read 'sst': the data set SetFit/sst2 at .* set ATTNFAITH_DATA"),
        ("mimic_anemia", {}, "'mimic_anemia' is read from .*mimic/anemia.*csv, jsonl or parquet"),
        ("sst", {"impermissible_removed": True}, "impermissible words: take occupation, pronoun, sst_wiki"),
    ],
)
def test_arguments_that_are_refused(root, name, arguments, message):
    with pytest.raises(DatasetError, match=message):
        load_splits(name, root=root, **arguments)


GOOD = {"text": [text_of(6), text_of(7)], "label": [0, 1]}
MARKED = {"text": ["a b", "c d"], "label": [0, 1]}


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("sst", {**GOOD, "label": [0, 2]}, r"'sst', .* split, row 1: the label 2 is no whole number 0\.\.1"),
        ("sst", {**GOOD, "label": [0.0, 0.5]}, r"row 1: the label 0\.5 is no whole number 0\.\.1"),
        ("sst", {**GOOD, "text": [text_of(6), None]}, "row 1: column 'text' has no text"),
        ("sst", {"text": [text_of(3)], "label": [0]}, "length filter of 'sst' leaves no row"),
        ("sst", {"sentence": ["a"], "label": [0]}, r"needs a column 'text' \(text\); it has \['sentence', 'la"),
        ("movie_reviews", {**MARKED, "rationale": [[0, 1, 1], [0, 1]]}, "0: a rationale is one 0 or 1"),
        ("movie_reviews", {**MARKED, "rationale_spans": [[], [[1, 3]]]}, r"/1: the evidence \[1, 3\) lies outside its 2"),
        ("pronoun", {**MARKED, "impermissible": [[1, 0], [1]]}, "/1: impermissible must be one 0 or 1 for each of its 2"),
        ("pronoun", {**MARKED, "impermissible": [[0, 0], [0, 0]]}, "no text of training has an impermissible word"),
    ],
)
def test_rows_that_are_refused(root, name, columns, message):
    for split in SPLITS:
        parquet(root / DATASETS[name].folder, split, **columns)
    with pytest.raises(DatasetError, match=message):
        load_splits(name, root=root)


def test_impermissible_words_are_removed_and_training_is_cut_from_validation(root):
    rows = {
        "text": [f"She is\u00a0w{row} ." for row in range(10)],
        "label": [0, 1] * 5,
        "impermissible": [[1, 0, 0, 0]] * 10,
    }
    for split in ("validation", "test"):
        parquet(root / "deceptive/occupation-classification", split, **rows)
        parquet(root / "deceptive/pronoun", split, **rows)
    with pytest.raises(DatasetError, match="'pronoun' has no train split"):
        load_splits("pronoun", root=root)
    whole, rest = (load_splits("occupation", root=root, impermissible_removed=removed) for removed in (False, True))
    assert [len(rest.splits[split]) for split in SPLITS] == [8, 2, 10]
    assert {name.split("/")[1] for name in whole.splits["train"]["instance_id"]} == {"validation"}
    assert rest.entry.name == "occupation_permissible" and not rest.entry.impermissible and whole.entry.impermissible
    assert rest.splits["test"]["text"][0] == "is w0 ." and "She" not in " ".join(rest.vocabulary_texts)
    assert rest.splits["test"]["instance_id"][:] == whole.splits["test"]["instance_id"][:]
    assert "impermissible" not in rest.splits["test"].column_names
