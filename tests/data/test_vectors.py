"""Vector files by hand: every form they come in, and every way they can be wrong."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data.vectors import load_vectors, random_vectors
from attnfaith.support.errors import DatasetError


VOCABULARY = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "cat": 4, "dog": 5, ". .": 6}
LINES = "dog 1 2.5 -3\nmouse 9 9 9\n. . 7 8 9\ncat .5 0 1e-2 \ndog 6 6 6\n"
EXPECTED = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0.5, 0, 0.01], [1, 2.5, -3], [7, 8, 9]], np.float32)
FOUND = [False, False, False, False, True, True, True]


def write(path, text):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif path.suffix == ".parquet":
        rows = [(" ".join(p[:-3]), [float(x) for x in p[-3:]]) for p in map(str.split, text.splitlines())]
        pq.write_table(pa.table({"word": [w for w, _ in rows], "vector": [v for _, v in rows]}), path)
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.txt.gz", "v.parquet"])
def test_forms(tmp_path, name):
    matrix, actual = load_vectors(write(tmp_path / name, LINES), VOCABULARY)
    assert matrix.dtype == np.float32 and actual.dtype == bool
    assert np.array_equal(matrix, EXPECTED) and actual.tolist() == FOUND
    if name == "v.vec":  # a first line of counts is passed over
        assert np.array_equal(load_vectors(write(tmp_path / name, "5 3\n" + LINES), VOCABULARY)[0], EXPECTED)


def test_missing_words_at_random(tmp_path):
    path = write(tmp_path / "v.txt", "dog 1 2 3\n<pad> 4 4 4\n")
    words = {word: row for row, word in enumerate(["<pad>", "dog", *(f"w{i}" for i in range(4000))])}
    matrix, actual = load_vectors(path, words, missing="random", std=0.1, seed=3)
    assert matrix[0].tolist() == [0, 0, 0] and matrix[1].tolist() == [1, 2, 3]
    assert actual.tolist() == [False, True] + [False] * 4000
    assert matrix[2:].std() == pytest.approx(0.1, rel=0.05)
    assert np.array_equal(matrix[2:], random_vectors(4002, 3, 0.1, seed=3)[2:])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("v.txt", "dog 1 2 3\ncat 1 2\n", r"v\.txt, line 2: 2 numbers after the word; 3, as on the first line"),
        ("v.txt.gz", "2 3\ndog 1 2 3\n\n", r"gz, line 3: 0 numbers"),
        ("v.txt", "dog\n", "line 1: 0 numbers after the word; a word and numbers expected"),
        ("v.txt", "dog 1 1e300 3\n", "a number is missing or not finite"),
        ("v.txt", "", "holds no vectors"),
    ],
)
def test_wrong_lines(tmp_path, name, text, message):
    with pytest.raises(DatasetError, match=message):
        load_vectors(write(tmp_path / name, text), VOCABULARY)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"token": ["dog"], "vector": [[1.0]]}, "word"),
        ({"word": ["dog", "cat"], "vector": [[1.0, 2.0], [1.0]]}, "equally many numbers"),
        ({"word": ["dog", "cat"], "vector": [[1.0], [None]]}, "missing or not finite"),
        ({"word": ["dog"], "vector": [[1e300]]}, "missing or not finite"),
        ({"word": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32()))}, "needs the columns"),
    ],
)
def test_wrong_parquet(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "v.parquet")
    with pytest.raises(DatasetError, match=message):
        load_vectors(tmp_path / "v.parquet", VOCABULARY)
