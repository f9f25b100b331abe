"""Word vectors for an embedding layer: read from a file, or drawn. Shapes: V words of a vocabulary, D dimensions."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from attnfaith.errors import DatasetError


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
    rows = _rows_of(vocabulary)
    if not path.is_file():
        raise DatasetError(f"There is no vector file {path}.")
    read = _read_parquet if path.suffix == ".parquet" else _read_text
    try:
        words, vectors = read(path, rows)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DatasetError(f"{path} is damaged or no gzip file ({error}); fetch it again.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text ({error}).") from error

    matrix = random_vectors(len(rows), vectors.shape[1], std if missing == "random" else 0.0, seed, padding)
    known = np.zeros(len(rows), bool)
    for word, vector in zip(words, vectors, strict=True):
        row = rows[word]
        if row != padding and not known[row]:
            matrix[row], known[row] = vector, True
    return matrix, known


def _rows_of(vocabulary) -> dict[str, int]:
    rows = dict(vocabulary) if isinstance(vocabulary, Mapping) else {word: row for row, word in enumerate(vocabulary)}
    if len(rows) != len(vocabulary) or sorted(rows.values()) != list(range(len(rows))):
        raise DatasetError("The vocabulary must be distinct words with the rows 0, 1, 2, ... without a gap.")
    return rows


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
            if word in wanted:
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
        table = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path} cannot be read as parquet: {error}") from error
    if not {"word", "vector"} <= set(table.column_names):
        raise DatasetError(f"{path} needs the columns word and vector; it has {table.column_names}.")
    if not len(table):
        raise DatasetError(f"{path} holds no vectors.")
    vectors = table["vector"]
    of_texts = pa.types.is_string(table["word"].type) or pa.types.is_large_string(table["word"].type)
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    numbers = (pa.types.is_integer, pa.types.is_floating)
    of_lists = any(of(vectors.type) for of in lists) and any(of(vectors.type.value_type) for of in numbers)
    if not (of_texts and of_lists):
        raise DatasetError(
            f"{path}: the columns word and vector hold {table['word'].type} and {vectors.type}; needed are a text and a "
            "list of numbers for each word."
        )
    lengths = pc.fill_null(pc.list_value_length(vectors), 0).to_numpy()
    if (lengths != lengths[0]).any() or lengths[0] < 1:
        row = int(np.argmax(lengths != lengths[0]))
        raise DatasetError(f"{path}, row {row}: {lengths[row]} numbers; {lengths[0]}, as in row 0, expected.")
    flat = pc.list_flatten(vectors).to_numpy()
    with np.errstate(over="ignore"):
        matrix = flat.reshape(len(table), -1).astype(np.float32)
    if not np.isfinite(matrix).all():
        row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
        raise DatasetError(f"{path}, row {row}: a number is missing or not finite.")
    words = table["word"].to_pylist()
    kept = [row for row, word in enumerate(words) if word in wanted]
    return [words[row] for row in kept], matrix[kept]
