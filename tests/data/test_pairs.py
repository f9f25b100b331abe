"""Sentence pairs: links as they are written, generators whose gold is exact, files, and the encoded form."""

import itertools

import numpy as np
import pytest

from attnfaith.data import translation_tasks
from attnfaith.data.fingerprint import fingerprint
from attnfaith.data.pair_encoding import build_pair_tokenizer, encode_pairs, gold_matrix, linked_positions, pad_pairs
from attnfaith.data.pairs import load_pairs, read_links
from attnfaith.data.registry import PAIRS, get_entry
from attnfaith.support.errors import DatasetError


def test_links_by_hand():
    assert read_links(["1-0 0p1 0-0 1?1 0-0 0p0", "  "], [2, 2], [2, 2]) == [
        [[0, 0, 2], [0, 1, 1], [1, 0, 2], [1, 1, 1]],
        [],
    ]
    assert read_links(["2-1 1p2"], [2], [2], first=1) == [[[0, 1, 1], [1, 0, 2]]]
    assert gold_matrix([(0, 1, 1), (1, 2, 2)], 2, 3).tolist() == [[0, 0], [1, 0], [0, 2]]


@pytest.mark.parametrize(
    ("line", "first", "message"),
    [
        ("0-0 3:4", 0, "row 0: here holds '3:4'; a link is i-j .sure. or ipj .possible."),
        ("0-0 1-1", 1, "row 0: here should count words from 1 and holds the link 0-0"),
        ("2-1", 0, "row 0: here .*source sentence has 2 words, counted from 0: does it count from 1"),
        ("0-0", 2, "first word in here is 2; give 0 or 1"),
    ],
)
def test_links_that_are_refused(line, first, message):
    with pytest.raises(DatasetError, match=message):
        read_links([line], [2], [3], first=first, name="here")


def translated(source: list[str], entries: dict[str, list[str]]) -> list[str]:
    """The translation of a toy sentence by its rules, written a second time."""
    clauses, target = [], []
    for word in source:
        if word in ("and", "because"):
            clauses.append((word, []))
        else:
            clauses[-1][1].append(word)
    for conjunction, words in clauses:
        target.append(conjunction.upper())
        for word in reversed(words) if conjunction == "because" else words:
            target += entries[word]
    return target


@pytest.mark.parametrize("options", [{}, {"two_word_share": 0.3, "vocabulary_size": 10}], ids=str)
def test_the_toy_language_is_translated_by_its_rules(options):
    rows = translation_tasks.toy_language(60, 3, stream=2, **options)
    entries = translation_tasks.lexicon(3, options.get("vocabulary_size", 40), options.get("two_word_share", 0.2))
    assert [len(target) for target in entries].count(2) == (3 if options else 8)
    entries = {f"s{word}": target for word, target in enumerate(entries)}
    for row in rows:
        source, target = row["source"].split(), row["target"].split()
        assert target == translated(source, entries)
        # a link is between a word and a part of its own translation; every word has a link
        assert {place for place, _, _ in row["links"]} == set(range(len(source)))
        assert {place for _, place, _ in row["links"]} == set(range(len(target)))
        for here, there, strength in row["links"]:
            word = source[here]
            assert strength == 2 and target[there] in entries.get(word, [word.upper()])
    few, many = (translation_tasks.toy_language(count, 5, stream=1, **options) for count in (3, 6))
    assert many[:3] == few != translation_tasks.toy_language(3, 5, **options)


@pytest.mark.parametrize(("task", "expected"), [("copy", "abcde"), ("reverse", "edcba"), ("bigram_flip", "badce")])
def test_sequences_and_their_links(task, expected):
    assert "".join("abcde"[place] for place in translation_tasks.SEQUENCES[task](5)) == expected
    for row in translation_tasks.sequences(task, 20, 0, vocabulary_size=30, length=(1, 9)):
        source, target = row["source"].split(), row["target"].split()
        assert all(source[here] == target[there] for here, there, _ in row["links"])
        for side in (0, 1):
            assert sorted(link[side] for link in row["links"]) == list(range(len(target)))
    lengths = {len(row["source"].split()) for row in translation_tasks.sequences(task, 5, 0)}
    assert lengths == {32}, "the paper's"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("toy_language", {"two_word_share": 1.5}, "two_word_share=1.5"),
        ("toy_language", {"clauses": (2, 1)}, "clauses="),
        ("toy_language", {"words": 3}, "words=3: Unexpected keyword argument; the arguments are sizes, vocabulary_size"),
        ("copi", {}, "'copi' is no set of sentence pairs; did you mean 'copy'"),
    ],
)
def test_arguments_that_are_refused(name, arguments, message):
    with pytest.raises(DatasetError, match=message):
        load_pairs(name, **arguments)


def test_limits_and_fingerprints():
    loaded = load_pairs("copy", sizes={"train": 9, "validation": 3, "test": 3}, length=(2, 4))
    assert loaded.revision.startswith("generated-1(length=(2, 4),seed=0")
    some = loaded.limited({"train": 4})
    assert [len(rows) for rows in some.splits.values()] == [4, 3, 3] and some.left_out["train"] == 5
    assert set(some.splits["train"]["instance_id"]) <= set(loaded.splits["train"]["instance_id"])
    splits = *loaded.splits.values(), some.splits["train"], loaded.splits["test"].remove_columns("links")
    assert len({fingerprint(rows) for rows in splits}) == 5, "the gold is part of what is measured"


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
    for side in ("src", "trg"):
        (folder / f"validation.{side}").rename(folder / f"dev.en-de.{side}")  # by other names, too
    loaded = load_pairs(path=str(folder))
    assert loaded.splits["train"].to_list() == [
        {"instance_id": "mine/train/0", "source": "a b", "target": "A B", "links": [[0, 0, 2], [1, 1, 2]]},
        {"instance_id": "mine/train/1", "source": "c", "target": "C", "links": [[0, 0, 1]]},
    ]
    assert "links" not in loaded.splits["validation"].column_names and loaded.entry.own


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"train_src": "a b\nc\nd\n"}, {}, "have one line a pair, and those of train have source 3, target 2, links 2"),
        ({"test_align": "0-0 2-1\n0-0\n"}, {}, "row 0: test of .* holds the link 2-1"),
        ({}, {"links_from": 1}, "row 0: train of .* should count words from 1"),
        ({"test_trg": None}, {}, "has no test.trg"),
    ],
    ids=str,
)
def test_own_files_that_are_refused(own, files, options, message):
    with pytest.raises(DatasetError, match=message):
        load_pairs(path=str(own(**files)), **options)


def test_the_registry_of_pairs(tmp_path):
    with pytest.raises(DatasetError, match="has no train.src: .* English to German captions"):
        load_pairs("multi30k_links", root=tmp_path)
    for name in PAIRS:
        with pytest.raises(DatasetError, match="is a set of sentence pairs, which has no classes: set model.type"):
            get_entry(name)
    captions = {"src": "The dog\n\n", "trg": "Der Hund\n\n", "align": "0-0 1-1\n\n"}
    files = {f"multi30k/{part}.en-de.{end}": text for part in ("train", "dev", "test") for end, text in captions.items()}
    for name, text in files.items():
        path = tmp_path / "alignment" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    loaded = load_pairs("multi30k_links", root=tmp_path)
    assert loaded.left_out["train"] == 1 and loaded.splits["train"]["source"] == ["The dog"]


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
    longest = max(itertools.chain(map(len, encoded["input_ids"]), map(len, encoded["labels"])))
    assert len(encode_pairs(rows, tokenizer, max_length=longest - 1)) < len(encoded)
    if vocabulary == "words":
        assert len(tokenizer) == 60 and any(1 in ids for ids in encoded["input_ids"])
        frequent = build_pair_tokenizer(["a a", "b", "b c"], min_df=2)
        assert len(frequent) == 5 and frequent.convert_ids_to_tokens(4) == "b", "the only word of two texts"
    with pytest.raises(DatasetError, match="leaves no room"):
        build_pair_tokenizer(["a"], size=4)


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
