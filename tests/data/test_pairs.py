"""Sentence pairs: links as they are written, generators whose gold is exact, files, and the encoded form."""

import itertools
from functools import partial

import numpy as np
import pytest

from attnfaith.data import translation_tasks
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.pair_encoding import build_pair_tokenizer, encode_pairs, gold_matrix, linked_positions, pad_pairs
from attnfaith.data.pairs import PAIRS, load_pairs, read_links
from attnfaith.data.registry import get_entry
from attnfaith.support.errors import DatasetError


# Links


def test_links_by_hand():
    assert read_links("1-0 0p1 0-0 1?1 0-0 0p0", 2, 2) == [(0, 0, 2), (0, 1, 1), (1, 0, 2), (1, 1, 1)]
    assert read_links("2-1 1p2", 2, 2, first=1) == [(0, 1, 1), (1, 0, 2)]
    assert read_links("  ", 2, 2) == []
    matrix = gold_matrix([(0, 1, 1), (1, 2, 2)], 2, 3)
    assert matrix.dtype == np.int64 and matrix.tolist() == [[0, 0], [1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("line", "first", "message"),
    [
        ("0-0 3:4", 0, "here: '3:4' is no link; write 3-4 .sure. or 3p4 .possible."),
        ("0-0 1-1", 1, "names source word 0, and the source sentence has 2 words, counted from 1: the links count from 0"),
        ("2-1", 0, "source word 2, .* has 2 words, counted from 0: if the links count from 1, give links_from=1"),
        ("9-1", 0, "the links belong to other sentences"),
        ("0-0", 2, "links_from=2: words are counted from 0 or from 1"),
        ("-1-0", 0, "is no link"),
    ],
)
def test_links_that_are_refused(line, first, message):
    with pytest.raises(DatasetError, match=message):
        read_links(line, 2, 3, first=first, place="here")


# Generators


def translated(source: list[str], entries: dict[str, list[str]]) -> list[str]:
    """The translation of a toy sentence by its rules, written a second time."""
    clauses, target = [], []
    for word in source:
        if word in ("and", "because"):
            clauses.append((word, []))
        else:
            clauses[-1][1].append(word)
    for conjunction, words in clauses:
        words = [word for word in words if not word.endswith("+")]
        target.append(conjunction.upper())
        for word in reversed(words) if conjunction == "because" else words:
            target += entries[word]
    return target


@pytest.mark.parametrize("knobs", [{}, {"two_word_share": 0.3, "joined_share": 0.4, "vocabulary_size": 10}], ids=str)
def test_the_toy_language_is_translated_by_its_rules(knobs):
    rows = translation_tasks.toy_language(60, 3, stream=2, **knobs)
    lexicon = translation_tasks.lexicon(
        3, knobs.get("vocabulary_size", 40), knobs.get("two_word_share", 0.2), knobs.get("joined_share", 0.0)
    )
    sizes = [(len(source), len(target)) for source, target in lexicon]
    assert sizes.count((1, 2)) == (3 if knobs else 8) and sizes.count((2, 1)) == (4 if knobs else 0)
    entries = {source[0]: target for source, target in lexicon}
    assert {word for row in rows for word in row["source"].split()} & {"and", "because"} == {"and", "because"}
    for row in rows:
        source, target = row["source"].split(), row["target"].split()
        assert target == translated(source, entries)
        # a link is between a word and a part of its own translation; every word has one
        assert {place for place, _, _ in row["links"]} == set(range(len(source)))
        assert {place for _, place, _ in row["links"]} == set(range(len(target)))
        for here, there, strength in row["links"]:
            word = source[here].removesuffix("+")
            assert strength == 2 and target[there] in entries.get(word, [word.upper()])
    # two words at one place are neighbours, so each target word has the sources of one entry
    matrix = gold_matrix(rows[0]["links"], len(rows[0]["source"].split()), len(rows[0]["target"].split()))
    assert all(np.ptp(np.flatnonzero(row)) <= 1 for row in matrix)


@pytest.mark.parametrize("generate", [translation_tasks.toy_language, partial(translation_tasks.sequences, "copy")])
def test_a_row_depends_on_seed_stream_and_its_number(generate):
    few, many = (generate(count, 5, stream=1) for count in (3, 6))
    assert many[:3] == few and generate(3, 5) != few != generate(3, 6, stream=1)


@pytest.mark.parametrize("task", translation_tasks.SEQUENCES)
def test_sequences_and_their_links(task):
    expected = {"copy": "abcde", "reverse": "edcba", "bigram_flip": "badce"}[task]
    places = list(translation_tasks.SEQUENCES[task](5))
    assert "".join("abcde"[place] for place in places) == expected
    for row in translation_tasks.sequences(task, 20, 0, vocabulary_size=30, length=(1, 9)):
        source, target = row["source"].split(), row["target"].split()
        assert sorted(source) == sorted(target) and len(row["links"]) == len(source)
        assert all(source[here] == target[there] for here, there, _ in row["links"])
        assert sorted(there for _, there, _ in row["links"]) == list(range(len(target)))
    lengths = {len(row["source"].split()) for row in translation_tasks.sequences(task, 5, 0)}
    assert lengths == {32}, "the paper's"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("toy_language", {"two_word_share": 1.5}, "two_word_share=1.5"),
        ("toy_language", {"two_word_share": 0.7, "joined_share": 0.7}, "their sum must be at most 1"),
        ("toy_language", {"clauses": (2, 1)}, "clauses="),
        ("toy_language", {"words": 3}, "'toy_language' does not know .'words'.; its arguments are sizes, vocabulary_size"),
        ("copy", {"length": (0, 4)}, "length.0=0"),
        ("copi", {}, "'copi' is no set of sentence pairs; did you mean 'copy'"),
    ],
)
def test_knobs_that_are_refused(name, arguments, message):
    with pytest.raises(DatasetError, match=message):
        load_pairs(name, **arguments)


def test_limits_and_fingerprints():
    loaded = load_pairs("copy", sizes={"train": 9, "validation": 3, "test": 3}, length=(2, 4))
    assert loaded.revision.startswith("generated-1(length=(2, 4),seed=0")
    some = loaded.limited({"train": 4})
    assert [len(rows) for rows in some.splits.values()] == [4, 3, 3] and some.left_out["train"] == 5
    assert set(some.splits["train"]["instance_id"]) <= set(loaded.splits["train"]["instance_id"])
    prints = {fingerprint(rows) for rows in (*loaded.splits.values(), some.splits["train"])}
    assert len(prints) == 4
    other = loaded.splits["test"].remove_columns("links")
    assert fingerprint(other) != fingerprint(loaded.splits["test"]), "the gold is part of what is measured"


# Files


@pytest.fixture
def own(tmp_path):
    """A factory of a folder of pairs; keyword arguments replace files."""

    def make(**files):
        folder = tmp_path / "mine"
        folder.mkdir()
        for split in ("train", "validation", "test"):
            lines = {"src": "a b\nc\n", "trg": "A B\nC\n", "align": "0-0 1-1\n0p0\n"}
            lines |= {key.removeprefix(f"{split}_"): text for key, text in files.items() if split in key}
            for kind, text in lines.items():
                if text is not None:
                    (folder / f"{split}.{kind}").write_text(text, encoding="utf-8")
        return folder

    return make


def test_own_files(own):
    folder = own(validation_align=None)
    loaded = load_pairs(path=str(folder))
    assert loaded.splits["train"].to_list() == [
        {"instance_id": "mine/train/0", "source": "a b", "target": "A B", "links": [[0, 0, 2], [1, 1, 2]]},
        {"instance_id": "mine/train/1", "source": "c", "target": "C", "links": [[0, 0, 1]]},
    ]
    assert "links" not in loaded.splits["validation"].column_names and loaded.entry.own
    (folder / "validation.src").rename(folder / "dev.en-de.src")
    (folder / "validation.trg").rename(folder / "dev.en-de.trg")
    assert len(load_pairs(path=str(folder)).splits["validation"]) == 2, "by other names, too"


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"train_src": "a b\nc\nd\n"}, {}, "have one line a pair, and these have train.src 3, train.trg 2, train.align 2"),
        ({"train_src": "a b\n\n"}, {}, "train.src, line 2: the sentence is empty"),
        ({"test_align": "0-0 2-1\n0-0\n"}, {}, "test.align, line 1: the link 2-1 names source word 2"),
        ({}, {"links_from": 1}, "train.align, line 1: .* counted from 1: the links count from 0"),
        ({"test_trg": None}, {}, "has no test.trg"),
    ],
    ids=str,
)
def test_own_files_that_are_refused(own, files, options, message):
    with pytest.raises(DatasetError, match=message):
        load_pairs(path=str(own(**files)), **options)


def test_the_registry_of_pairs(tmp_path):
    with pytest.raises(DatasetError, match="there is no .*train.en-de.src. English to German captions"):
        load_pairs("multi30k_links", root=tmp_path)
    for name in PAIRS:
        with pytest.raises(DatasetError, match="is a set of sentence pairs, which has no classes: set model.type"):
            get_entry(name)
    folder = tmp_path / "alignment"
    for place, files in {
        "multi30k": {"en-de.src": "The dog\n\n", "en-de.trg": "Der Hund\n\n", "en-de.align": "0-0 1-1\n\n"},
        "de-en": {"test.de": "das ist\n", "test.en": "that is it\n", "gold.talp": "1-1 2p2 2-3\n"},
    }.items():
        (folder / place).mkdir(parents=True)
        for name, text in files.items():
            for part in ("train", "dev", "test") if place == "multi30k" else ("",):
                (folder / place / (f"{part}.{name}" if part else name)).write_text(text)
    captions = load_pairs("multi30k_links", root=tmp_path)
    assert captions.left_out["train"] == 1 and captions.splits["train"]["source"] == ["The dog"]
    whole, unseen = (load_pairs(name, root=tmp_path) for name in ("rwth_de_en", "rwth_de_en_unseen"))
    assert unseen.splits["train"]["source"] == ["der hund"] and unseen.splits["train"]["target"] == ["the dog"]
    assert whole.splits["train"]["source"] == ["der hund", "das ist"]
    assert whole.splits["test"]["links"] == [[[0, 0, 2], [1, 1, 1], [1, 2, 2]]], "counted from 1 in the file"


# The encoded form


@pytest.mark.parametrize("vocabulary", ["words", "bpe"])
def test_encoded_pairs(vocabulary):
    rows = load_pairs("toy_language", sizes={"train": 60, "validation": 5, "test": 5}).splits["train"]
    tokenizer = build_pair_tokenizer([*rows["source"], *rows["target"]], vocabulary=vocabulary, size=60)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2, 3)
    encoded = encode_pairs(rows, tokenizer)
    for row, result in zip(rows, encoded, strict=True):
        for side, ids, words in (("source", "input_ids", "source_words"), ("target", "labels", "target_words")):
            assert result[ids][-1] == 3 and result[words][-1] == -1 and result[ids].count(3) == 1
            assert sorted(set(result[words])) == list(range(-1, len(row[side].split())))
            if 1 not in result[ids]:
                assert tokenizer.decode(result[ids], skip_special_tokens=True) == row[side]
    if vocabulary == "words":
        assert len(tokenizer) == 60 and any(1 in ids for ids in encoded["input_ids"])
        seldom = build_pair_tokenizer(rows["source"], min_df=20)
        assert 4 < len(seldom) < len(build_pair_tokenizer(rows["source"]))
    longest = max(itertools.chain(map(len, encoded["input_ids"]), map(len, encoded["labels"])))
    assert len(encode_pairs(rows, tokenizer, max_length=longest - 1)) < len(encoded)


def test_a_batch_and_its_links():
    rows = load_pairs("reverse", sizes={"train": 2, "validation": 1, "test": 1}, length=(2, 5), seed=1).splits["train"]
    encoded = encode_pairs(rows, build_pair_tokenizer([*rows["source"], *rows["target"]]))
    batch = pad_pairs(list(encoded), linked=True)
    sizes = [len(text.split()) + 1 for text in rows["source"]]
    assert sizes[0] != sizes[1]
    for number, size in enumerate(sizes):
        assert batch["attention_mask"][number].tolist() == [1] * size + [0] * (max(sizes) - size)
        assert (batch["labels"][number, size:] == -100).all() and (batch["input_ids"][number, size:] == 0).all()
        mirrored = np.zeros((max(sizes), max(sizes)))
        mirrored[np.arange(size - 1), np.arange(size - 1)[::-1]] = 1
        assert batch["linked"][number].tolist() == mirrored.tolist(), "neither the end nor padding is linked"
    # of subwords all of a word's
    row = {"source_words": [0, 0, 1, -1], "target_words": [0, 1, 1, -1], "links": [[0, 1, 1]]}
    assert linked_positions(row).tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_tokenizers_that_are_refused():
    for options, message in (({"vocabulary": "letters"}, "choose one of words, bpe"), ({"size": 4}, "leaves no room")):
        with pytest.raises(DatasetError, match=message):
            build_pair_tokenizer(["a"], **options)
