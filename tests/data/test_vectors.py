"""Vector files by hand: every form they come in, and every way they can be wrong."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnfaith.data.vectors import load_vectors
from attnfaith.support.errors import DatasetError


VOCABULARY = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "cat": 4, "dog": 5, ". .": 6}
LINES = "dog 1 2.5 -3\nmouse 9 9 9\n. . 7 8 9\ncat .5 0 1e-2 \ndog 6 6 6\n"
EXPECTED = np.array([[0, 0, 0]] * 4 + [[0.5, 0, 0.01], [1, 2.5, -3], [7, 8, 9]], np.float32)


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
    text = "5 3\n" + LINES if name == "v.vec" else LINES  # a first line of counts is passed over
    matrix, present = load_vectors(write(tmp_path / name, text), VOCABULARY)
    assert matrix.dtype == np.float32 and present.dtype == bool
    assert np.array_equal(matrix, EXPECTED) and present.tolist() == [False] * 4 + [True] * 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", "dog 1 2 3\ncat 1 2\n", "line 2 has 2 numbers after the word, and the first line 3"),
        ("v.txt.gz", "2 3\ndog 1 2 3\n\n", "gz cannot be read: line 3 has 0 numbers"),
        ("v.txt", "dog 1 1e300 3\n", "a number is missing or not finite"),
        ("v.txt", "", "holds no vectors"),
        ("v.parquet", {"token": ["dog"], "vector": [[1.0]]}, "word"),
        ("v.parquet", {"word": ["dog", "cat"], "vector": [[1.0, 2.0], [1.0]]}, "equally many numbers"),
        ("v.parquet", {"word": ["dog", "cat"], "vector": [[1.0], [None]]}, "missing or not finite"),
    ],
)
def test_files_that_are_refused(tmp_path, name, content, message):
    if isinstance(content, str):
        write(tmp_path / name, content)
    else:
        pq.write_table(pa.table(content), tmp_path / name)
    with pytest.raises(DatasetError, match=message):
        load_vectors(tmp_path / name, VOCABULARY)
