"""Word vectors for an embedding layer: read from a file, or drawn. Shapes: V words of a vocabulary, D dimensions."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from attnfaith.errors import DatasetError, excerpt


MISSING = ("zero", "random")


def random_vectors(n: int, dim: int, std: float = 0.25, seed: int = 0, padding: int = 0) -> np.ndarray:
    """An (n, dim) float32 matrix of independent normal numbers, mean 0 and standard deviation `std`.

    The row of the padding token, `padding`, is zero.

    The scale matters: with random vectors, how far measures of importance agree depends on `std`, so state it.
    Raises DatasetError for a negative size or a negative scale.
    """
    if n < 0 or dim < 1 or std < 0:
        raise DatasetError(f"Needs n >= 0, dim >= 1 and std >= 0; n={n}, dim={dim}, std={std} were given.")
    matrix = np.random.default_rng(seed).standard_normal((n, dim), np.float32) * np.float32(std)
    matrix[padding : padding + 1] = 0
    return matrix


def file_digest(path: str | os.PathLike) -> str:
    """12 hexadecimal digits of a SHA-256 over a file of vectors: which ones they are, wherever the file lies.

    Raises DatasetError where there is no such file.
    """
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:12]
    except OSError as error:
        raise DatasetError(f"There is no vector file {path}: {error.strerror}.") from error


def load_vectors(
    path: str | os.PathLike,
    vocabulary: Mapping[str, int] | Sequence[str],
    *,
    missing: str = "zero",
    std: float = 0.25,
    seed: int = 0,
    padding: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the words of a vocabulary, in its order.

    Args:
        path: a text file with a word and D numbers a line, parted by blanks (.txt, .vec, or gzipped .gz; a first line
            with the two counts of word2vec is passed over), or a parquet file with columns word and vector.
        vocabulary: word -> row, rows 0..V-1 (`tokenizer.get_vocab()`), or the words in order.
        missing: "zero" leaves words that are not in the file at zero, as the papers' own route does; "random" draws
            them like `random_vectors(V, D, std, seed)`.
        padding: row of the padding token.

    Returns the (V, D) float32 matrix and a boolean (V,) mask of the words that the file has. The padding row is zero
    and counts as not there. Of a word that is listed twice the first vector is kept.

    Raises DatasetError, with file and line, for a line of another length than the first, for something that is no
    finite number, and for a file that is missing, damaged, empty or of another form.
    """
    path = Path(path)
    if missing not in MISSING:
        raise DatasetError(f"missing must be one of {', '.join(MISSING)}; {missing!r} was given.")
    rows = dict(vocabulary) if isinstance(vocabulary, Mapping) else {word: row for row, word in enumerate(vocabulary)}
    if len(rows) != len(vocabulary) or sorted(rows.values()) != list(range(len(rows))):
        raise DatasetError("The vocabulary must be distinct words with the rows 0, 1, 2, ... without a gap.")
    if not path.is_file():
        raise DatasetError(f"There is no vector file {path}.")
    try:
        words, vectors = (_read_parquet if path.suffix == ".parquet" else _read_text)(path, rows)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatasetError(f"{path} is damaged or no gzip file ({error}); fetch it again.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text ({error}).") from error

    matrix = random_vectors(len(rows), vectors.shape[1], std if missing == "random" else 0.0, seed, padding)
    present = np.zeros(len(rows), bool)
    for word, vector in zip(words, vectors, strict=True):
        row = rows[word]
        if row != padding and not present[row]:
            matrix[row], present[row] = vector, True
    return matrix, present


def _read_text(path: Path, wanted: Mapping[str, int]) -> tuple[list[str], np.ndarray]:
    """The wanted words of a text file, in file order, and their vectors."""
    opener = gzip.open if path.suffix == ".gz" else open
    words, vectors, dim = [], [], None
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                continue
            if dim is None:
                dim = len(parts) - 1
            # A few words of the larger published files hold blanks themselves (". . ."), never a number.
            inner = parts[1 : len(parts) - dim]
            if dim < 1 or len(parts) <= dim or any(map(_is_number, inner)):
                expected = f"{dim}, as on the first line," if dim else "a word and numbers"
                raise DatasetError(f"{path}, line {number}: {len(parts) - 1} numbers after the word; {expected} expected.")
            word = " ".join(parts[: len(parts) - dim])
            if word not in wanted:
                continue
            try:
                with np.errstate(over="ignore"):
                    vector = np.array(parts[-dim:], np.float32)
            except ValueError as error:
                raise DatasetError(f"{path}, line {number}: {error}.") from error
            if not np.isfinite(vector).all():
                raise DatasetError(f"{path}, line {number}: a number is not finite.")
            words.append(word)
            vectors.append(vector)
    if dim is None:
        raise DatasetError(f"{path} holds no vectors.")
    return words, np.array(vectors, np.float32).reshape(len(words), dim)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, wanted: Mapping[str, int]) -> tuple[list[str], np.ndarray]:
    """The wanted words of a parquet file with columns word and vector, in file order, and their vectors."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, columns=["word", "vector"], partitioning=None)
        words = table["word"].cast(pa.large_string())
        table = table.filter(pc.is_in(words, pa.array(wanted, pa.large_string())))
        vectors = table["vector"].cast(pa.list_(pa.float64())).to_pylist()
        matrix = np.array(vectors, np.float64).reshape(len(table), -1 if len(table) else 1)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise DatasetError(
            f"{path} needs the columns word, a text, and vector, a list of equally many numbers for each word: "
            f"{excerpt(error, 200)}"
        ) from error
    with np.errstate(over="ignore"):
        matrix = matrix.astype(np.float32)
    if not len(words) or not np.isfinite(matrix).all():
        raise DatasetError(f"{path} holds no vectors" if not len(words) else f"{path}: a number is missing or not finite.")
    return table["word"].to_pylist(), matrix
