"""Loading, on tiny hand-made files laid out like each published data set."""

import hashlib
import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data.loading import load_splits, read_source
from attnfaith.data.registry import DATASETS, SPLITS
from attnfaith.data.tokenization import build_tokenizer, encode, split_words
from attnfaith.errors import DatasetError


def text_of(n, mark="w"):
    return " ".join([mark] * n)


def parquet(folder, split, **columns):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{split}.parquet")


def csv(folder, split, lines):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.csv").write_text("text,label\n" + "".join(line + "\n" for line in lines))


def jsonl(folder, split, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# Each function writes one data set in its published form and returns the sizes expected of its splits.


def publish_sst(folder):
    for split, lengths in {"train": [5, 6, 7, 9, 9], "validation": [6, 8], "test": [2, 6, 7, 8]}.items():
        labels = [i % 2 for i in range(len(lengths))]
        parquet(
            folder,
            split,
            text=[text_of(n) + " ." for n in lengths],
            label=labels,
            label_text=[("negative", "positive")[i] for i in labels],
        )
    return {"train": 2, "validation": 1, "test": 2}


def publish_imdb(folder):
    for split in ("train", "test"):
        # of every five reviews one is too short and one too long
        lengths = [6, 7, 50, 399, 400] * 10
        parquet(folder, split, text=[text_of(n) + "!" for n in lengths], label=[i % 2 for i in range(50)])
    return None


def publish_adr(folder):
    csv(folder, "train", [f"{text_of(6 + i)},{i % 2}" for i in range(20)])
    csv(folder, "test", [f"{text_of(5)},0", f"{text_of(99)},1", f"{text_of(100)},1", '"a, b c d e",0'])
    return {"train": 17, "validation": 3, "test": 2}


def publish_ade(folder):
    sentences = [text_of(6, f"w{i}") for i in range(40)]
    parquet(folder, "train", text=sentences + sentences[:10] * 3, label=[i % 2 for i in range(40)] + [0, 1] * 15)
    return None


def publish_20news(folder):
    for split, n in {"train": 60, "test": 40}.items():
        labels = [(8, 9, 10, 11)[i % 4] for i in range(n)]
        parquet(folder, split, text=[text_of(10, f"{split}{i}") for i in range(n)], label=labels, label_text=["x"] * n)
    return {"train": 32, "validation": 8, "test": 10}


def publish_ag_news(folder):
    for split in ("train", "test"):
        lengths = [4, 9, 5, 9, 6, 9, 7, 9] * 5 + [3, 20]
        parquet(folder, split, text=[text_of(n) for n in lengths], label=[0, 1, 2, 3] * 10 + [0, 2])
    return None


def publish_mimic_diabetes(folder):
    for split in SPLITS:
        jsonl(folder, split, [{"text": text_of(n), "label": n % 2} for n in (6, 7, 3999, 4000)])
    return {"train": 2, "validation": 2, "test": 2}


def publish_mimic_anemia(folder):
    for split in SPLITS:
        parquet(folder, split, text=[text_of(n) for n in (3, 7, 3999, 4000, 3)], label=[0, 1, 0, 1, 0])
    return {"train": 2, "validation": 2, "test": 2}


def publish_movie_reviews(folder):
    for split in SPLITS:
        parquet(
            folder,
            split,
            annotation_id=["negR_1.txt", "posR_2.txt"],
            text=["a dull film .\nquite dull", "fine"],
            label=[0, 1],
            rationale_spans=pa.array([[[1, 2], [4, 6]], []], pa.list_(pa.list_(pa.int32()))),
            evidences=pa.array([["dull", "quite dull"], []], pa.list_(pa.string())),
        )
    return {"train": 2, "validation": 2, "test": 2}


def publish_snli(folder):
    for split, labels in {"train": [0, 1, 2, -1], "validation": [2, -1], "test": [1, 0]}.items():
        n = len(labels)
        parquet(folder, split, premise=[text_of(3 + i) for i in range(n)], hypothesis=["A cat."] * n, label=labels)
    return {"train": 3, "validation": 1, "test": 2}


STORY = ("id", "type", "text", "supporting_ids", "answer")


def story(first, second, name):
    """Two stories with three questions, as the Hub has them."""
    lines = [
        (0, f"{first} went to the office.", [], ""),
        (0, f"{second} got the milk there.", [], ""),
        (1, f"Where is {first}? ", ["1"], "office"),
        (0, f"{first} moved to the hallway.", [], ""),
        (1, f"Where is {first}?", ["4", "1"], "hallway"),
    ]
    more = [(0, f"{second} went back to the garden.", [], ""), (1, f"Where is {second}? ", ["1"], name)]
    parts = [[(str(number), *line) for number, line in enumerate(part, start=1)] for part in (lines, more)]
    return [dict(zip(STORY, map(list, zip(*part, strict=True)), strict=True)) for part in parts]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def stories(n, garden="garden"):
    """2n stories, no two the same, with 3n questions."""
    return [part for i in range(n) for part in story(f"Mary{i}", f"John{i}", garden)]


def publish_babi_qa(folder, entry):
    for split, n in {"train": 4, "validation": 1, "test": 2}.items():
        if split != "validation" or entry.name.endswith("_valid"):
            parquet(folder / entry.hub_data_dir / split, "0000", story=stories(n))
    parquet(folder / "en-10k-qa10" / "train", "0000", other=[1])
    return {"train": 12, "validation": 3, "test": 6} if entry.name.endswith("_valid") else None


def publish_questions(folder):
    for split, n in {"train": 4, "validation": 1, "test": 2}.items():
        rows = [
            (f"( @entity{i} ) it saw @entity10 , @entity{i} 's friend", "@placeholder saw it", f"@entity{i}")
            for i in range(n)
        ]
        jsonl(folder, split, [dict(zip(("passage", "question", "answer"), row, strict=True)) for row in rows])
    return {"train": 4, "validation": 1, "test": 2}


def publish_reviews(folder, entry):
    (texts,), (label,) = entry.columns["text"], entry.columns["label"]
    for split in ("train", "test"):
        labels = [i % entry.published_labels for i in range(20)]
        parquet(folder, split, **{label: labels}, **dict.fromkeys(texts, ['Is "8/10" good, or\\nbad?'] * 20))
    return {"train": 18, "validation": 2, "test": 20}


def publish_imdb_10(folder):
    reviews = [{"rating": 1 + i % 10, "review": f"So {i} of 10.", "user": "u", "title": "t"} for i in range(50)]
    write(folder / "data.json", json.dumps(reviews))
    return {"train": 40, "validation": 5, "test": 5}


def publish_deceptive(folder):
    for split in SPLITS:
        parquet(
            folder,
            split,
            text=["She is a Surgeon .", "Mr. X\u00a0went"],
            label=[1, 0],
            impermissible=pa.array([[1, 0, 0, 0, 0], [1, 0, 0]], pa.list_(pa.int8())),
        )
    return {"train": 2, "validation": 2, "test": 2}


PUBLISH = {
    "sst": publish_sst,
    "imdb": publish_imdb,
    "adr": publish_adr,
    "ade": publish_ade,
    "20news_sports": publish_20news,
    "ag_news": publish_ag_news,
    "mimic_diabetes": publish_mimic_diabetes,
    "mimic_anemia": publish_mimic_anemia,
    "movie_reviews": publish_movie_reviews,
    "snli": publish_snli,
    "cnn_qa": publish_questions,
    "daily_mail_qa": publish_questions,
    "imdb_10": publish_imdb_10,
    **{name: partial(publish_reviews, entry=DATASETS[name]) for name in ("yelp", "amazon", "yahoo_answers")},
    **{name: publish_deceptive for name, entry in DATASETS.items() if entry.impermissible},
    **{name: partial(publish_babi_qa, entry=entry) for name, entry in DATASETS.items() if name.startswith("babi_qa_")},
}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def test_every_read_data_set_has_a_layout_here():
    assert set(PUBLISH) == {name for name, entry in DATASETS.items() if not entry.built_in}


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_contract(name, root):
    """What holds for every data set of the registry, and so for a new one at once."""
    expected = PUBLISH[name](root / DATASETS[name].folder) if name in PUBLISH else None
    loaded = load_splits(name, root=root)
    assert tuple(loaded.splits) == SPLITS
    if expected is not None:
        assert {split: len(rows) for split, rows in loaded.splits.items()} == expected
    ids = [i for rows in loaded.splits.values() for i in rows["instance_id"]]
    assert len(ids) == len(set(ids)) and all(i.startswith(f"{name}/") for i in ids)
    assert set(loaded.dropped) == {"source", *SPLITS}
    entry = loaded.entry
    columns = {"instance_id", "text", "label"} | ({"text_pair"} if entry.pair else set())
    columns |= {"rationale"} if entry.rationale else set()
    columns |= {"impermissible"} & set(entry.columns)
    columns |= {"candidates"} if entry.candidates else set()
    assert len(set(loaded.label_names)) == len(loaded.label_names) >= 2
    assert set(loaded.empty_pair) == (set(SPLITS) if entry.pair else set())
    for split, rows in loaded.splits.items():
        assert len(rows) > 0
        assert set(rows.column_names) == columns
        assert rows.features["label"].dtype == "int64"
        assert set(rows["label"]) <= set(range(len(loaded.label_names)))
        lengths = [len(split) for split in split_words(rows["text"], entry.preprocessing)]
        assert loaded.empty[split] == lengths.count(0)
        assert entry.min_length is None or min(lengths) > entry.min_length
        assert entry.max_length is None or max(lengths) < entry.max_length
        if entry.rationale:
            assert [len(marks) for marks in rows["rationale"]] == lengths
        if "impermissible" in columns:
            assert [len(marks) for marks in rows["impermissible"]] == lengths
        if entry.candidates:
            assert all(label in found for label, found in zip(rows["label"], rows["candidates"], strict=True))
    again = load_splits(name, root=root)
    assert again.revision == loaded.revision
    assert {s: r.to_dict() for s, r in again.splits.items()} == {s: r.to_dict() for s, r in loaded.splits.items()}
    # and it goes through the tokenizer
    tokenizer = build_tokenizer(loaded.vocabulary_texts, preprocessing=entry.preprocessing, pair=entry.pair)
    encoded = encode(loaded.splits["train"], tokenizer)
    assert sum(encoded["n_unknown"]) == 0
    assert encoded["labels"][:] == loaded.splits["train"]["label"][:]
    assert columns - set(encoded.column_names) <= {"text", "text_pair", "label"}


def test_sst_keeps_row_numbers_and_counts_what_it_drops(root):
    publish_sst(root / "SetFit/sst2")
    loaded = load_splits("sst", root=root)
    assert loaded.splits["test"]["instance_id"][:] == ["sst/test/1", "sst/test/2"]
    assert loaded.splits["train"]["label"][:] == [1, 0]
    assert loaded.dropped == {
        "source": {},
        "train": {"too_short": 1, "longest": 2},  # both of the longest
        "validation": {"too_short": 0, "longest": 1},
        "test": {"too_short": 1, "longest": 1},
    }
    assert loaded.label_names == ["negative", "positive"]
    assert loaded.revision.startswith("local-")
    assert len(loaded.vocabulary_texts) == 5  # before the filter


def test_imdb_holds_out_a_fifth_and_draws_a_fifth(root):
    publish_imdb(root / "stanfordnlp/imdb")
    loaded = load_splits("imdb", root=root)
    kept = {split: len(rows) + sum(loaded.dropped[split].values()) for split, rows in loaded.splits.items()}
    assert kept == {"train": 40, "validation": 10, "test": 10}
    assert loaded.dropped["source"] == {"not_drawn": 40}
    assert {i.split("/")[1] for i in loaded.splits["validation"]["instance_id"]} == {"train"}
    assert {i.split("/")[1] for i in loaded.splits["test"]["instance_id"]} == {"test"}
    assert len(loaded.vocabulary_texts) == 40


def test_ade_has_no_sentence_in_two_splits(root):
    publish_ade(root / "ade-benchmark-corpus/ade_corpus_v2")
    loaded = load_splits("ade", root=root)
    texts = {split: set(rows["text"]) for split, rows in loaded.splits.items()}
    assert sum(map(len, texts.values())) == 40 == len(set.union(*texts.values()))
    assert [len(texts[split]) for split in SPLITS] == [27, 5, 8]
    # ten sentences are repeated thrice: five under one label, five under both
    rows = sum(len(split) for split in loaded.splits.values())
    assert loaded.dropped["source"] == {"repeated": 70 - rows}
    pairs = {(t, y) for split in loaded.splits.values() for t, y in zip(split["text"], split["label"], strict=True)}
    assert len(pairs) == rows


def test_20news_pools_and_maps_labels(root):
    publish_20news(root / "SetFit/20_newsgroups")
    loaded = load_splits("20news_sports", root=root)
    assert loaded.dropped["source"] == {"other_label": 50}
    for rows in loaded.splits.values():
        assert {i.split("/")[1] for i in rows["instance_id"]} == {"train", "test"}
        for instance_id, label in zip(rows["instance_id"], rows["label"], strict=True):
            assert label == {1: 0, 2: 1}[int(instance_id.split("/")[2]) % 4]


def test_ag_news_drops_the_extremes_of_each_split(root):
    publish_ag_news(root / "fancyzhx/ag_news")
    loaded = load_splits("ag_news", root=root)
    assert loaded.dropped["source"] == {"other_label": 40}
    assert loaded.dropped["test"] == {"shortest": 1, "longest": 1}
    assert set(map(len, map(str.split, loaded.splits["test"]["text"]))) == {4, 5, 6, 7}
    assert sorted(set(loaded.splits["test"]["label"])) == [0, 1]


def test_adr_uses_a_validation_file_if_there_is_one(root):
    publish_adr(root / "adr")
    csv(root / "adr", "validation", [f"{text_of(7)},0"])
    loaded = load_splits("adr", root=root)
    assert loaded.splits["validation"]["instance_id"][:] == ["adr/validation/0"]
    assert len(loaded.splits["train"]) == 20


def test_movie_rationales_from_spans(root):
    publish_movie_reviews(root / "eraser-benchmark/movie_rationales")
    rows = load_splits("movie_reviews", root=root).splits["test"]
    assert rows["rationale"][:] == [[0, 1, 0, 0, 1, 1], [0]]


def test_movie_rationales_from_quotes(root):
    """The form on the Hub: column review, and passages instead of spans; a passage that is not there marks nothing."""
    for split in SPLITS:
        parquet(
            root / "eraser-benchmark/movie_rationales",
            split,
            review=["a dull film .\nquite dull", "fine"],
            label=[0, 1],
            evidences=pa.array([["Dull film", "quite dull", "absent", ""], []], pa.list_(pa.string())),
        )
    rows = load_splits("movie_reviews", root=root).splits["test"]
    assert rows["rationale"][:] == [[0, 1, 1, 0, 1, 1], [0]]


@pytest.mark.parametrize("marks", [[0, 1, 1, 0], [0], [0, 2]])
def test_marks_that_do_not_fit_the_text(root, marks):
    for split in SPLITS:
        parquet(root / "eraser-benchmark/movie_rationales", split, text=["a b"], label=[0], rationale=[marks])
    with pytest.raises(
        DatasetError,
        match=r"movie_reviews/(train|validation|test)/0: a rationale is one 0 or 1 for each of its 2 words; given: \d value",
    ):
        load_splits("movie_reviews", root=root)


def test_movie_rationale_outside_the_text(root):
    folder = root / "eraser-benchmark/movie_rationales"
    publish_movie_reviews(folder)
    parquet(folder, "test", text=["one two"], label=[0], rationale_spans=[[[1, 3]]])
    with pytest.raises(DatasetError, match=r"movie_reviews/test/0: the evidence \[1, 3\) lies outside its 2 words"):
        load_splits("movie_reviews", root=root)


def test_empty_texts_are_kept_and_counted(root):
    folder = root / "eraser-benchmark/movie_rationales"
    for split in SPLITS:
        parquet(folder, split, text=["", " \n", "w"], label=[0, 1, 1], rationale_spans=[[], [], [[0, 1]]])
    loaded = load_splits("movie_reviews", root=root)
    assert loaded.empty == {"train": 2, "validation": 2, "test": 2}
    assert len(loaded.splits["train"]) == 3
    tokenizer = build_tokenizer(loaded.vocabulary_texts, preprocessing="whitespace")
    encoded = encode(loaded.splits["test"], tokenizer)
    assert encoded["tokens"][:] == [[], [], ["w"]] and encoded["rationale"][:] == [[], [], [1]]


def test_snli_leaves_out_what_has_no_label(root):
    publish_snli(root / "stanfordnlp/snli")
    loaded = load_splits("snli", root=root)
    assert loaded.dropped["source"] == {"no_label": 2}
    assert loaded.splits["train"]["label"][:] == [0, 1, 2]
    assert loaded.splits["train"]["instance_id"][:] == [f"snli/train/{row}" for row in (0, 1, 2)]
    assert loaded.splits["test"]["text_pair"][:] == ["A cat.", "A cat."]
    assert loaded.label_names == ["entailment", "neutral", "contradiction"]
    assert len(loaded.vocabulary_texts) == 6


def test_snli_without_a_validation_split_holds_one_out(root):
    folder = root / "stanfordnlp/snli"
    for split in ("train", "test"):
        parquet(folder, split, premise=[f"a{i}" for i in range(20)], hypothesis=["b"] * 20, label=[0] * 20)
    loaded = load_splits("snli", root=root)
    assert [len(loaded.splits[split]) for split in SPLITS] == [18, 2, 20]


def test_a_premise_is_held_out_with_all_its_hypotheses(root):
    folder = root / "stanfordnlp/snli"
    for split in ("train", "test"):
        parquet(folder, split, premise=[f"a {i // 2}" for i in range(40)] * 2, hypothesis=["b"] * 80, label=[0] * 80)
    loaded = load_splits("snli", root=root)
    train, validation = (set(loaded.splits[split]["text"]) for split in ("train", "validation"))
    assert len(validation) == 2 and len(train) == 18 and not train & validation
    assert len(loaded.splits["validation"]) == 8


def test_questions_of_one_story_stay_together(root):
    publish_babi_qa(root / "facebook/babi_qa", DATASETS["babi_qa_1"])
    parquet(root / "facebook/babi_qa/en-10k-qa1/train", "0000", story=stories(30))
    loaded = load_splits("babi_qa_1", root=root)
    train, validation = ([text.split()[0] for text in loaded.splits[split]["text"]] for split in ("train", "validation"))
    assert not set(train) & set(validation) and len(set(validation)) == 9
    assert len(train) + len(validation) == 90


def test_empty_questions_are_kept_and_counted(root):
    folder = root / "stanfordnlp/snli"
    publish_snli(folder)
    parquet(folder, "test", premise=["a b", "a", ""], hypothesis=["", " \t", "."], label=[0, 1, 2])
    loaded = load_splits("snli", root=root)
    assert loaded.empty_pair == {"train": 0, "validation": 0, "test": 2}
    assert loaded.empty == {"train": 0, "validation": 0, "test": 1}
    assert len(loaded.splits["test"]) == 3


def test_missing_second_text(root):
    folder = root / "stanfordnlp/snli"
    publish_snli(folder)
    parquet(folder, "test", premise=["a", "b"], hypothesis=["c", None], label=[0, 1])
    with pytest.raises(DatasetError, match="'snli', test split, row 1: column 'hypothesis' has no text"):
        load_splits("snli", root=root)


def test_reviews_have_one_text(root):
    """Title, question and answer are joined, an empty one without a trace."""
    for split in ("train", "test"):
        parquet(
            root / "community-datasets/yahoo_answers_topics",
            split,
            id=[0, 1],
            topic=[4, 9],
            question_title=['why \\"so\\"?', "a"],
            question_content=["", "b"],
            best_answer=["do\\nthis", "c"],
        )
    rows = load_splits("yahoo_answers", root=root).splits["test"]
    assert rows["text"][:] == ['why "so"? do\nthis', "a b c"] and rows["label"][:] == [4, 9]


def test_columns_to_be_joined_must_all_be_there(root):
    for split in ("train", "test"):
        parquet(root / "community-datasets/yahoo_answers_topics", split, topic=[1], question_title=["a"], best_answer=["b"])
    with pytest.raises(DatasetError, match="'question_title' with 'question_content' with 'best_answer' .text.; its train"):
        load_splits("yahoo_answers", root=root)


def test_ratings_count_from_one(root):
    publish_imdb_10(root / "imdb_10")
    loaded = load_splits("imdb_10", root=root)
    for rows in loaded.splits.values():
        for row in rows:
            assert row["label"] == int(row["instance_id"].split("/")[2]) % 10
            assert loaded.label_names[row["label"]] == f"rating {row['label'] + 1}"
    write(root / "imdb_10/data.json", json.dumps([{"rating": 5, "review": "a"}, {"rating": 0, "review": "b"}]))
    with pytest.raises(DatasetError, match=r"row 1: label 0 is outside 1\.\.10"):
        load_splits("imdb_10", root=root)


def test_impermissible_marks_stay_with_their_words(root):
    publish_deceptive(root / "deceptive/pronoun")
    rows = load_splits("pronoun", root=root).splits["test"]
    assert rows["impermissible"][:] == [[1, 0, 0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("marks", [[1], [1, 0, 0], [0, 2], [], None])
def test_wrong_impermissible_marks(root, marks):
    folder = root / "deceptive/pronoun"
    publish_deceptive(folder)
    marks = pa.array([[1, 0], marks], pa.list_(pa.int8()))
    parquet(folder, "validation", text=["a b", "c d"], label=[0, 1], impermissible=marks)
    message = "pronoun/validation/1: impermissible must be one 0 or 1 for each of its 2 words; "
    with pytest.raises(DatasetError, match=message):
        load_splits("pronoun", root=root)


def test_missing_impermissible_column(root):
    for split in SPLITS:
        parquet(root / "deceptive/pronoun", split, text=["a"], label=[0])
    with pytest.raises(DatasetError, match="'pronoun' needs a column 'impermissible'"):
        load_splits("pronoun", root=root)


def publish_passages(root, **splits):
    """{split: [(passage, question, answer)]} as a table."""
    for split, rows in splits.items():
        parquet(root / "cnn", split, **dict(zip(("passage", "question", "answer"), zip(*rows, strict=True), strict=True)))


PASSAGES = {
    "train": [
        ("@entity10 saw @entity2 , @entity2", "who @placeholder", "@entity2"),
        ("@entity3 is", "@placeholder", "@entity3"),
    ],
    "validation": [("@entity3 or @entity10 or @entity88", "@placeholder", "@entity10")],
    "test": [("@entity2 and @entity10 , @entity77 's", "@placeholder", "@entity10")],
}


def test_candidates_are_the_entities_of_the_passage(root):
    publish_passages(root, **PASSAGES)
    loaded = load_splits("cnn_qa", root=root)
    assert loaded.label_names == ["@entity2", "@entity3", "@entity10"]
    assert loaded.splits["train"]["label"][:] == [0, 1]
    assert loaded.splits["train"]["candidates"][:] == [[0, 2], [1]]
    assert loaded.splits["validation"]["candidates"][:] == [[1, 2]]
    assert loaded.splits["test"]["candidates"][:] == [[0, 2]]
    assert loaded.unknown_candidates == 2  # 77 and 88
    assert loaded.extra_vocabulary == loaded.label_names
    assert loaded.dropped["source"] == {"answer_not_candidate": 0, "answer_not_in_training": 0}
    tokenizer = build_tokenizer(
        loaded.vocabulary_texts, preprocessing="whitespace", min_df=8, pair=True, extra_vocabulary=loaded.extra_vocabulary
    )
    assert len(tokenizer) == 4 + 3


def test_candidates_do_not_depend_on_limits(root):
    publish_passages(root, **PASSAGES)
    loaded = load_splits("cnn_qa", root=root, limits={"train": 1})
    assert loaded.label_names == ["@entity2", "@entity3", "@entity10"]


def test_questions_that_cannot_be_answered_are_left_out_and_counted(root):
    """An answer the passage does not hold, and one that training does not know."""
    wrong = [("@entity2", "@placeholder", "@entity3"), ("@entity77 @entity2", "@placeholder", "@entity77")]
    publish_passages(root, **{**PASSAGES, "test": [*wrong, *PASSAGES["test"]]})
    loaded = load_splits("cnn_qa", root=root)
    assert loaded.dropped["source"] == {"answer_not_candidate": 1, "answer_not_in_training": 1}
    assert loaded.splits["test"]["instance_id"][:] == ["cnn_qa/test/2"]
    assert loaded.splits["test"]["candidates"][:] == [[0, 2]]
    publish_passages(root, test=wrong)
    with pytest.raises(DatasetError, match="No row of the test split of 'cnn_qa' has an answer of the training split"):
        load_splits("cnn_qa", root=root)


def test_an_answer_in_training_that_its_passage_lacks_names_no_label(root):
    publish_passages(root, **{**PASSAGES, "train": [*PASSAGES["train"], ("none", "@placeholder", "@entity5")]})
    loaded = load_splits("cnn_qa", root=root)
    assert "@entity5" not in loaded.label_names and loaded.dropped["source"]["answer_not_candidate"] == 1


@pytest.mark.parametrize("answer", [None, " "])
def test_missing_answers(root, answer):
    publish_passages(root, **{**PASSAGES, "validation": [("@entity3", "@placeholder", answer), *PASSAGES["validation"]]})
    with pytest.raises(DatasetError, match="'cnn_qa', validation split, row 0: column 'answer' has no answer in words"):
        load_splits("cnn_qa", root=root)


def test_one_answer_is_no_choice(root):
    publish_passages(root, **{**PASSAGES, "train": [("@entity3", "@placeholder", "@entity3")]})
    with pytest.raises(DatasetError, match=r"train split of 'cnn_qa' has 1 answers to choose from \(\['@entity3'\]\)"):
        load_splits("cnn_qa", root=root)


def test_answers_of_babi_are_those_of_training(root):
    """The test file has the answer garden, training has not; a later validation cut does not change the labels."""
    publish_babi_qa(root / "facebook/babi_qa", DATASETS["babi_qa_1"])
    parquet(root / "facebook/babi_qa/en-10k-qa1/train", "0000", story=stories(4, "office"))
    loaded = load_splits("babi_qa_1", root=root)
    assert loaded.label_names == ["hallway", "office"]
    assert loaded.dropped["source"] == {"answer_not_in_training": 2}
    assert loaded.splits["test"]["label"][:] == [1, 0, 1, 0]
    assert loaded.splits["test"]["instance_id"][:] == [f"babi_qa_1/test/{row}" for row in (0, 1, 3, 4)]
    sizes = [len(loaded.splits[split]) for split in SPLITS]
    assert sizes[1] in (1, 2) and sizes[0] + sizes[1] == 12 and sizes[2] == 4  # one story is held out
    assert not loaded.extra_vocabulary and not loaded.unknown_candidates


def test_revision_is_a_digest_of_names_and_contents(root):
    """Written out, because records name the data they were measured on by it."""
    publish_adr(root / "adr")
    write(root / "adr/.hidden", "not counted")
    found = hashlib.sha256()
    for name in ("test.csv", "train.csv"):
        found.update(name.encode() + hashlib.sha256((root / "adr" / name).read_bytes()).digest())
    assert load_splits("adr", root=root).revision == f"local-{found.hexdigest()[:12]}"


def hub_story(answer, name="Mary"):
    return {
        "id": ["1", "2"],
        "type": [0, 1],
        "text": [f"{name} went to the office.", f"Where is {name}? "],
        "supporting_ids": [[], ["1"]],
        "answer": ["", answer],
    }


def test_copy_of_babi_on_the_hub(root, monkeypatch):
    """One folder a task and variant: in the data root, and asked for as such on the Hub."""
    folder = root / "facebook/babi_qa/en-10k-qa1"
    for split in ("train", "test"):
        asked = [hub_story(("office", "garden")[i % 2], f"Mary{i}") for i in range(20)]
        parquet(folder / split, "0000", story=asked)
        parquet(folder.parent / "en-10k-qa2" / split, "0000", other=[1])
    loaded = load_splits("babi_qa_1", root=root)
    assert [len(loaded.splits[split]) for split in SPLITS] == [17, 3, 20]
    assert loaded.splits["test"][1] == {
        "instance_id": "babi_qa_1/test/1",
        "text": "Mary1 went to the office .",
        "text_pair": "Where is Mary1 ?",
        "label": 0,
        "rationale": [1] * 6,
    }

    import datasets

    asked = []
    read = datasets.load_dataset

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return read(str(folder))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load_splits("babi_qa_1", root=root / "none").revision == "refs/convert/parquet"
    assert asked == [(("facebook/babi_qa", None), {"data_dir": "en-10k-qa1", "revision": "refs/convert/parquet"})]


def test_root_is_taken_from_the_environment(root, monkeypatch):
    publish_sst(root / "SetFit/sst2")
    monkeypatch.setenv("ATTNFAITH_DATA", str(root))
    assert len(load_splits("sst").splits["train"]) == 2


def test_revision_follows_the_files(root):
    folder = root / "SetFit/sst2"
    publish_sst(folder)
    before = load_splits("sst", root=root).revision
    parquet(folder, "test", text=[text_of(7), text_of(9)], label=[1, 0], label_text=["positive", "negative"])
    loaded = load_splits("sst", root=root)
    assert loaded.revision != before
    assert loaded.splits["test"]["text"][:] == [text_of(7)]


@pytest.fixture
def many(root):
    for split in SPLITS:
        n = 300
        parquet(root / "SetFit/sst2", split, text=[text_of(6 + i % 5) for i in range(n)], label=[i % 2 for i in range(n)])
    return root


def test_limits_draw_at_random_in_order(many):
    loaded = load_splits("sst", root=many, seed=1, limits={"train": 50, "test": 10_000})
    rows = [int(i.split("/")[2]) for i in loaded.splits["train"]["instance_id"]]
    assert len(rows) == 50 and rows == sorted(rows)
    assert rows[-1] > 200, "the head is not a random subset"
    assert loaded.dropped["train"] == {"too_short": 0, "longest": 60, "limit": 190}
    assert len(loaded.splits["test"]) == 240 and loaded.dropped["test"]["limit"] == 0
    assert "limit" not in loaded.dropped["validation"] and len(loaded.splits["validation"]) == 240
    assert loaded.vocabulary_texts == loaded.splits["train"]["text"][:]

    same = load_splits("sst", root=many, seed=1, limits={"train": 50})
    other = load_splits("sst", root=many, seed=2, limits={"train": 50})
    assert same.splits["train"]["instance_id"][:] == loaded.splits["train"]["instance_id"][:]
    assert other.splits["train"]["instance_id"][:] != loaded.splits["train"]["instance_id"][:]
    assert other.splits["test"]["instance_id"][:] == same.splits["test"]["instance_id"][:]


def test_cuts_do_not_depend_on_the_seed(root):
    publish_imdb(root / "stanfordnlp/imdb")
    one, two = (load_splits("imdb", root=root, seed=seed) for seed in (0, 1))
    for split in SPLITS:
        assert one.splits[split]["instance_id"][:] == two.splits[split]["instance_id"][:]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"dev": 5}, "limits names the split 'dev'; there are train, validation, test"),
        ({"train": 0}, r"limits\['train'\] must be a positive number of rows; 0"),
        ({"train": 1.5}, "positive number of rows; 1.5"),
        ({"train": True}, "positive number of rows; True"),
    ],
)
def test_wrong_limits(root, limits, message):
    with pytest.raises(DatasetError, match=message):
        load_splits("sst", root=root, limits=limits)


def test_generated_data_takes_arguments():
    loaded = load_splits("planted_evidence", seed=4, n_classes=3, sizes={"train": 30, "test": 7})
    assert [len(loaded.splits[split]) for split in SPLITS] == [30, 500, 7]
    assert loaded.label_names == ["comedy", "horror", "romance"]
    assert loaded.revision == "generated-1(n_classes=3,seed=4)"
    assert set(loaded.splits["validation"]["label"]) == {0, 1, 2}


def test_generated_splits_differ_and_do_not_depend_on_sizes():
    small = load_splits("planted_evidence", sizes={"train": 20, "validation": 20, "test": 20})
    large = load_splits("planted_evidence", sizes={"train": 40, "validation": 20, "test": 20})
    assert large.splits["train"]["text"][:20] == small.splits["train"]["text"][:]
    texts = [text for rows in small.splits.values() for text in rows["text"]]
    assert len(set(texts)) == 60


def test_generated_pairs():
    loaded = load_splits("babi_2", sizes=dict.fromkeys(SPLITS, 5), statements=(4, 6))
    assert loaded.splits["test"]["text_pair"][0].startswith("where is the ")
    assert loaded.label_names == ["bathroom", "bedroom", "garden", "hallway", "kitchen", "office"]
    assert len(loaded.vocabulary_texts) == 10  # stories and questions


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("planted_evidence", {"lenght": (1, 2)}, r"'planted_evidence' does not know \['lenght'\]; .*sizes, length"),
        ("planted_evidence", {"stream": 1}, r"does not know \['stream'\]"),
        ("planted_evidence", {"n_evidence": 0}, "n_evidence must be at least 1"),
        ("planted_evidence", {"sizes": {"dev": 3}}, "sizes names the split 'dev'"),
        ("counting", {"n_classes": 3}, r"'counting' does not know \['n_classes'\]; .*sizes, length, asked_share"),
        ("counting", {"vocabulary_size": 2}, "vocabulary_size must be 3 to 10; 2 was given"),
        ("sst", {"length": (1, 2)}, r"\['length'\] are arguments of generated data; 'sst' is read"),
    ],
)
def test_wrong_generator_arguments(name, arguments, message):
    with pytest.raises(DatasetError, match=message):
        load_splits(name, **arguments)


def test_unknown_data_set(root):
    with pytest.raises(DatasetError, match="'ssst'; did you mean 'sst'"):
        load_splits("ssst", root=root)


def test_offline_and_not_in_the_root(root, monkeypatch):
    monkeypatch.delenv("ATTNFAITH_DATA", raising=False)
    message = "Cannot read 'sst' from the Hub, SetFit/sst2 at main: .* set ATTNFAITH_DATA"
    with pytest.raises(DatasetError, match=message):
        load_splits("sst")
    with pytest.raises(DatasetError, match=message):
        load_splits("sst", root=root)


def test_own_files_that_are_not_there(root, monkeypatch):
    monkeypatch.delenv("ATTNFAITH_DATA", raising=False)
    with pytest.raises(DatasetError, match="'adr' is read from your own files, .*ATTNFAITH_DATA is not set"):
        load_splits("adr")
    with pytest.raises(DatasetError, match="'mimic_anemia' is read from .*mimic/anemia.*csv, jsonl or parquet"):
        load_splits("mimic_anemia", root=root)


def test_folder_without_data(root):
    (root / "SetFit/sst2").mkdir(parents=True)
    with pytest.raises(DatasetError, match="Cannot read 'sst' from the folder"):
        load_splits("sst", root=root)


def test_damaged_file(root):
    folder = root / "SetFit/sst2"
    publish_sst(folder)
    (folder / "test.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DatasetError, match="Cannot read 'sst' from the folder"):
        load_splits("sst", root=root)


def test_missing_splits(root):
    folder = root / "mimic/diabetes"
    publish_mimic_diabetes(folder)
    (folder / "validation.jsonl").unlink()
    with pytest.raises(DatasetError, match="'mimic_diabetes' has no validation split; it has train, test"):
        load_splits("mimic_diabetes", root=root)
    (folder / "test.jsonl").unlink()
    with pytest.raises(DatasetError, match="'mimic_diabetes' has no test split; it has train"):
        load_splits("mimic_diabetes", root=root)


def test_wrong_columns(root):
    for split in SPLITS:
        parquet(root / "SetFit/sst2", split, sentence=["a"], label=[0])
    with pytest.raises(DatasetError, match=r"'sst' needs a column 'text' \(text\); its .* split has \['sentence', 'la"):
        load_splits("sst", root=root)
    for split in SPLITS:
        parquet(root / "eraser-benchmark/movie_rationales", split, review=["a"], gold=[0])
    with pytest.raises(DatasetError, match=r"needs a column 'label' \(label\)"):
        load_splits("movie_reviews", root=root)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, None, 1], "'sst', test split, row 1: column 'label' has no label"),
        ([0.0, float("nan"), 1.0], "row 1: column 'label' has no label"),
        ([0, 1, 2], r"row 2: label 2 is outside 0\.\.1"),
        ([-1, 0, 1], r"row 0: label -1 is outside 0\.\.1"),
        ([0.0, 0.5, 1.0], r"row 1: the label 0\.5 is not a whole number 0\.\.1"),
        (["0", "1", "1"], "row 0: the label '0' is not a whole number"),
        ([0.0, float("inf"), 1.0], "row 1: the label inf is not a whole number"),
    ],
)
def test_wrong_labels(root, labels, message):
    folder = root / "SetFit/sst2"
    for split in ("train", "validation"):
        parquet(folder, split, text=[text_of(6), text_of(7)], label=pa.array([0, 1], pa.array(labels).type)
                if pa.types.is_integer(pa.array(labels).type) else pa.array(labels[::2]))  # fmt: skip
    parquet(folder, "test", text=[text_of(6)] * 3, label=labels)
    with pytest.raises(DatasetError, match=message):
        load_splits("sst", root=root)


def test_whole_float_labels_are_taken(root):
    """A csv with one missing cell elsewhere comes as floats."""
    publish_adr(root / "adr")
    csv(root / "adr", "test", [f"{text_of(6)},1.0", f"{text_of(7)},0.0"])
    csv(root / "adr", "train", [f"{text_of(6)},1.0"] * 10)
    assert load_splits("adr", root=root).splits["test"]["label"][:] == [1, 0]


def test_missing_text(root):
    folder = root / "SetFit/sst2"
    publish_sst(folder)
    parquet(folder, "test", text=[text_of(6), None], label=[0, 1], label_text=["negative", "positive"])
    with pytest.raises(DatasetError, match="'sst', test split, row 1: column 'text' has no text"):
        load_splits("sst", root=root)


def test_filter_that_leaves_nothing(root):
    folder = root / "SetFit/sst2"
    publish_sst(folder)
    parquet(folder, "validation", text=[text_of(3)], label=[0], label_text=["negative"])
    with pytest.raises(DatasetError, match="length filter of 'sst' leaves no row of its validation split"):
        load_splits("sst", root=root)


def test_label_of_a_class_that_is_not_used_is_still_checked(root):
    folder = root / "fancyzhx/ag_news"
    publish_ag_news(folder)
    parquet(folder, "test", text=["a"], label=[4])
    with pytest.raises(DatasetError, match=r"label 4 is outside 0\.\.3"):
        load_splits("ag_news", root=root)


def test_nothing_is_written_into_the_data_root(root):
    publish_sst(root / "SetFit/sst2")
    before = sorted(root.rglob("*"))
    load_splits("sst", root=root)
    assert sorted(root.rglob("*")) == before


def test_arrays_of_rows_are_not_shared_between_splits(root):
    """A cut never hands one row to two splits, whatever the sizes."""
    for n in range(4, 40, 5):
        parquet(
            root / "ade-benchmark-corpus/ade_corpus_v2",
            "train",
            text=[text_of(6, f"v{i}") for i in range(n)],
            label=np.arange(n) % 2,
        )
        splits = load_splits("ade", root=root).splits
        ids = [i for rows in splits.values() for i in rows["instance_id"]]
        assert sorted(ids, key=lambda i: int(i.split("/")[2])) == [f"ade/train/{i}" for i in range(n)]


def test_limits_are_drawn_from_one_reading_as_from_several():
    sizes = {"train": 30, "validation": 12, "test": 20}
    arguments = {"seed": 4, "length": (4, 8), "sizes": sizes}
    source = read_source("planted_evidence", **arguments)
    for limits in (None, {"test": 5}, {"test": 9, "train": 11}, {"test": 5}):
        drawn, alone = source.limited(limits), load_splits("planted_evidence", limits=limits, **arguments)
        for split in SPLITS:
            assert drawn.splits[split].to_dict() == alone.splits[split].to_dict()
        assert drawn.dropped == alone.dropped and drawn.vocabulary_texts == alone.vocabulary_texts
        assert drawn.revision == alone.revision and drawn.label_names == alone.label_names
    with pytest.raises(DatasetError, match="limits names the split 'dev'"):
        source.limited({"dev": 3})
