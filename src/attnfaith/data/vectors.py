"""Word vectors for an embedding layer, read from a file. Shapes: V words of a vocabulary, D dimensions."""

import gzip
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnfaith.support.errors import DatasetError, excerpt


def load_vectors(
    path: str | os.PathLike, vocabulary: Mapping[str, int], *, padding: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Load the vectors of a vocabulary's words, in its order; words outside the file stay at zero, as in the papers.

    Args:
        path: a text file with a word and D numbers a line, separated by blanks (.txt, .vec, or gzipped .gz; a first line
            with the two counts of word2vec is skipped), or a parquet file with columns word and vector.
        vocabulary: word -> row, rows 0..V-1 (`tokenizer.get_vocab()`).
        padding: row of the padding token, which stays zero.

    Returns the (V, D) float32 matrix and a boolean (V,) mask of the words of the file, padding excluded. Of a repeated word
    the first vector is used.

    Raises DatasetError for a file that is missing, damaged, empty or of another form, and numbers that are not finite.
    """
    path = Path(path)
    try:
        words, vectors, dim = (_read_parquet if path.suffix == ".parquet" else _read_text)(path, vocabulary)
        with np.errstate(over="ignore"):
            vectors = np.array(vectors, np.float64).reshape(len(words), dim).astype(np.float32)
    except Exception as error:  # gzip, Arrow and numpy raise many kinds
        raise DatasetError(
            f"{path} cannot be read: {excerpt(error, 200)}. Give a word and equally many numbers on each line, or parquet "
            "with the columns word and vector"
        ) from error
    if not np.isfinite(vectors).all():
        raise DatasetError(f"{path}: a number is missing or not finite.")
    matrix, present = np.zeros((len(vocabulary), dim), np.float32), np.zeros(len(vocabulary), bool)
    for word, vector in zip(words, vectors, strict=True):
        row = vocabulary[word]
        if row != padding and not present[row]:
            matrix[row], present[row] = vector, True
    return matrix, present


def _read_text(path: Path, vocabulary: Mapping[str, int]) -> tuple[list[str], list[list[str]], int]:
    """The vocabulary's words in a text file, in file order, their vectors, and D."""
    words, vectors, dim = [], [], 0
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if number == 1 and re.fullmatch(r"\d+ \d+\s*", line):
                continue
            dim = dim or line.rstrip().count(" ")
            # from the right, since a few words of the larger published files hold blanks (". . .")
            word, *numbers = line.rstrip().rsplit(" ", dim)
            if not dim or len(numbers) != dim:
                raise ValueError(f"line {number} has {len(numbers)} numbers after the word, and the first line {dim}")
            if word in vocabulary:
                words.append(word)
                vectors.append(numbers)
    if not dim:
        raise ValueError("it holds no vectors")
    return words, vectors, dim


def _read_parquet(path: Path, vocabulary: Mapping[str, int]) -> tuple[list[str], list[list[float]], int]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["word", "vector"], partitioning=None)
    dim = len(table["vector"][0])
    table = table.filter(pc.is_in(table["word"].cast(pa.large_string()), pa.array(vocabulary, pa.large_string())))
    return table["word"].to_pylist(), table["vector"].to_pylist(), dim
