"""The published data sets themselves, where ATTNFAITH_DATA holds them: sizes, vocabulary, and rows that results rest on."""

import functools
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from attnfaith.data.loading import ROOT_VARIABLE, load_splits
from attnfaith.data.pairs import load_pairs
from attnfaith.data.registry import DATASETS
from attnfaith.data.tokenization import build_tokenizer, encode


pytestmark = pytest.mark.slow  # they read whole data sets

ROOT = os.environ.get(ROOT_VARIABLE)


@functools.cache
def genuine(name):
    """A data set as a recipe reads it, read once for all tests."""
    folder = DATASETS[name].folder if name in DATASETS else "alignment"
    if folder and (ROOT is None or not (Path(ROOT) / folder).exists()):
        pytest.skip(f"{ROOT_VARIABLE} names no folder with {folder}")
    return load_splits(name) if name in DATASETS else load_pairs(name)


def sizes(loaded):
    return {split: len(rows) for split, rows in loaded.splits.items()}


def test_sst_is_the_papers():
    """6355 / 821 / 1725 sentences, 3034 + 3321 and 863 + 862 by class, 13826 ids, and their share of unknown words."""
    loaded = genuine("sst")
    assert sizes(loaded) == {"train": 6355, "validation": 821, "test": 1725}
    assert np.bincount(loaded.splits["train"]["label"]).tolist() == [3034, 3321]
    assert np.bincount(loaded.splits["test"]["label"]).tolist() == [863, 862]
    tokenizer = build_tokenizer(loaded.vocabulary_texts, preprocessing="sst", min_df=1)
    assert len(tokenizer) == 13826
    test = encode(loaded.splits["test"], tokenizer)
    lengths = np.array(test["length"]) - 2
    assert (lengths.min(), lengths.max()) == (6, 46)
    assert lengths.mean() == pytest.approx(18.2, abs=0.05)
    assert sum(test["n_unknown"]) / lengths.sum() == pytest.approx(0.056, abs=5e-4)
    assert sum(encode(loaded.splits["train"], tokenizer)["n_unknown"]) == 0


NEAR = {"imdb": 17200 + 4297 + 4356, "20news_sports": 1426 + 334}
"""Sizes of the papers, which have a preparation or a random draw of their own."""


def digest(loaded):
    """Everything a study reads of a data set."""
    actual = hashlib.sha256()
    for split, rows in loaded.splits.items():
        for column in sorted(rows.column_names):
            actual.update(json.dumps([split, column, rows[column][:]]).encode())
    empty = {split: int((counts == 0).sum()) for split, counts in loaded._counts("text").items()}
    rest = [loaded.dropped, empty, loaded.label_names, loaded.vocabulary_texts]
    actual.update(json.dumps(rest).encode())
    return actual.hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "revision", "content"),
    [
        ("sst", "local-4eaa2c29e715", "1dcb91c935b7b4f1"),
        ("ade", "local-a7361e9dc54b", "c9b1280fa4e3cc44"),
        ("20news_sports", "local-67ac9ae1d6e1", "ae2fa8f142f68983"),
        ("ag_news", "local-cbae8cdf3863", "ca0113c8c9255590"),
        ("movie_reviews", "local-0721349c1982", "588672d20f582310"),
        ("snli", "local-52422bbd098d", "28b4d5966e48a338"),
        ("pronoun", "local-16547508cd8a", "275c9b5599609a49"),
        ("sst_wiki", "local-189703df5daf", "e9c2be934d7f0ff7"),
        ("occupation", "local-46a7f19dde02", "4b6cf1bfed19ba15"),
        ("imdb", "local-9df724154d00", "df99084ac7808fec"),
    ],
)
def test_rows_are_those_that_results_were_measured_on(name, revision, content):
    """Records name a revision; the files it names must go on giving the same rows."""
    loaded = genuine(name)
    if loaded.revision != revision:
        pytest.skip(f"these files are {loaded.revision}, another revision than {revision}")
    assert digest(loaded) == content
    if name in NEAR:
        assert sum(sizes(loaded).values()) == pytest.approx(NEAR[name], rel=0.01)


@pytest.mark.parametrize(("name", "content"), [("planted_evidence", "1fcfde422d95eff9"), ("counting", "cffc40f97ebdc2a1")])
def test_generated_rows_are_those_that_results_were_measured_on(name, content):
    loaded = load_splits(name, sizes={"train": 50, "validation": 50, "test": 50})
    assert loaded.revision == "generated-1(seed=0)"
    assert digest(loaded) == content


def test_sentence_pairs():
    """Sizes as published."""
    assert sizes(genuine("multi30k_links")) == {"train": 29000, "validation": 1014, "test": 1000}
