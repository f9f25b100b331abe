"""The published data sets themselves, where ATTNFAITH_DATA holds them: sizes, vocabulary, disjoint splits."""

import os
from pathlib import Path

import numpy as np
import pytest

from attnfaith.data.loading import ROOT_VARIABLE, load_splits
from attnfaith.data.registry import DATASETS
from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.data.vectors import load_vectors


ROOT = os.environ.get(ROOT_VARIABLE)


def needs(folder):
    there = ROOT is not None and (Path(ROOT) / folder).exists()
    return pytest.mark.skipif(not there, reason=f"{ROOT_VARIABLE} names no folder with {folder}")


def sizes(loaded):
    return {split: len(rows) for split, rows in loaded.splits.items()}


@needs("SetFit/sst2")
def test_sst_is_the_papers():
    """6355 / 821 / 1725 sentences, 3034 + 3321 and 863 + 862 by class, 13826 ids, and their share of unknown words."""
    loaded = load_splits("sst")
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


@needs("stanfordnlp/imdb")
@pytest.mark.slow
def test_imdb_is_near_the_papers():
    """17200 / 4297 / 4356 there, from a preparation of their own and another random draw."""
    loaded = load_splits("imdb")
    for split, n in {"train": 17200, "validation": 4297, "test": 4356}.items():
        assert len(loaded.splits[split]) == pytest.approx(n, rel=0.01)
    ids = [i for rows in loaded.splits.values() for i in rows["instance_id"]]
    assert len(ids) == len(set(ids))


@needs("SetFit/20_newsgroups")
def test_20news_is_near_the_papers():
    """1426 with validation and 334 there: 1760 in all."""
    assert sum(sizes(load_splits("20news_sports")).values()) == pytest.approx(1760, rel=0.01)


@needs("fancyzhx/ag_news")
def test_ag_news_test_split_is_whole():
    loaded = load_splits("ag_news")
    assert len(loaded.splits["test"]) + sum(loaded.dropped["test"].values()) == 3800


@needs("eraser-benchmark/movie_rationales")
def test_movie_rationales_mark_the_published_share():
    loaded = load_splits("movie_reviews")
    assert sizes(loaded) == {"train": 1600, "validation": 200, "test": 199}
    share = {s: np.mean(np.concatenate(rows["rationale"][:])) for s, rows in loaded.splits.items()}
    assert share["train"] == pytest.approx(0.09, abs=0.01)
    assert share["validation"] == pytest.approx(0.07, abs=0.01)
    assert share["test"] == pytest.approx(0.30, abs=0.02)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs(e.folder)) for n, e in DATASETS.items() if not e.built_in and n != "imdb"]
)
def test_splits_are_disjoint(name):
    loaded = load_splits(name)
    ids = [i for rows in loaded.splits.values() for i in rows["instance_id"]]
    assert len(ids) == len(set(ids))
    if DATASETS[name].distinct:
        texts = [set(rows["text"]) for rows in loaded.splits.values()]
        assert sum(map(len, texts)) == len(set.union(*texts))


@needs("glove/vectors.parquet")
@needs("SetFit/sst2")
def test_genuine_vectors_cover_the_vocabulary():
    loaded = load_splits("sst")
    tokenizer = build_tokenizer(loaded.vocabulary_texts, preprocessing="sst")
    matrix, found = load_vectors(Path(ROOT) / "glove/vectors.parquet", tokenizer.get_vocab())
    assert matrix.shape == (13826, 25)
    assert not matrix[~found].any() and matrix[found].any(axis=1).all()
    assert found.mean() > 0.3
