"""One file of a user's own: CSV, TSV, JSON lines or parquet, read row by row, each value as it stands in the file.

Nothing is guessed of a value: "NA", "null" and "007" in a CSV are those texts. What is assumed of a file (its encoding, what
parts its fields) is said. Only the columns that are asked for are kept, and of these only the rows that are: the memory
needed grows with what is kept, not with the file.
"""

import csv
import difflib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from attnfaith.data.file_text import (
    COMPRESSED,
    LONGEST,
    MAGIC,
    check_encoding,
    examine,
    lines,
    opened,
    refusals,
)
from attnfaith.errors import DatasetError, counted, cut, excerpt, nearest


KINDS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".tab": "TSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".json": "JSON",
    ".parquet": "parquet",
}
DELIMITERS = ",;\t|"
BATCH = 10_000  # rows made Arrow at a time


@dataclass(frozen=True)
class OwnFile:
    """A file of rows, examined but not read.

    Attributes:
        path: where it lies, as it was given.
        kind: one of KINDS' values.
        encoding: of its text; None for parquet.
        delimiter: between the fields of CSV and TSV; None for the others.
        quotes: whether a field of CSV and TSV may stand in quotation marks.
        assumed: what had to be assumed to read it, in sentences.
        digest: SHA-256 of the file, hexadecimal.

    `OwnFile.of` makes one.
    """

    path: Path
    kind: str
    encoding: str | None
    delimiter: str | None
    quotes: bool
    assumed: tuple[str, ...]
    digest: str

    @classmethod
    def of(
        cls,
        path: str | os.PathLike,
        *,
        encoding: str | None = None,
        delimiter: str | None = None,
        quotes: bool = True,
    ) -> "OwnFile":
        """Examine a file: read once for its digest and its encoding, in little memory.

        encoding: None: by its byte order mark, else UTF-8 where the file is that, else Windows-1252, which is said.
        delimiter: None: what parts the first line into most names, of , ; tab and |. quotes: false where a quotation mark is
        a character like any other.

        Raises DatasetError for a file that is not there (with the nearest name), is empty, of another kind or no text, and
        for an encoding that there is not or that it is not in.
        """
        path = Path(path)
        kind = _kind(path)
        if encoding is not None:
            check_encoding(encoding)
        if delimiter in ("tab", "\\t"):
            delimiter = "\t"
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise DatasetError(f"delimiter={excerpt(delimiter)} must be one character, such as ; or a tab")
        with refusals(path):
            digest, detected, assumed = examine(path, kind, encoding)
        encoding, said = encoding or detected, [assumed] if assumed else []
        if kind not in ("CSV", "TSV"):
            return cls(path, kind, encoding, None, quotes, tuple(said), digest)
        if delimiter is None and kind == "TSV":
            delimiter = "\t"
        elif delimiter is None:
            with refusals(path), opened(path, encoding) as stream:
                first = next(lines(path, stream), "")
            delimiter = max(DELIMITERS, key=lambda mark: _n_fields(first, mark))
            if delimiter != DELIMITERS[0]:
                said.append(f"{path.name}: its fields are parted by {delimiter!r}")
        return cls(path, kind, encoding, delimiter, quotes, tuple(said), digest)

    @cached_property
    def columns(self) -> list[str]:
        """The names of its columns, in order; of JSON, the keys of its first rows."""
        with refusals(self.path):
            if self.kind == "parquet":
                import pyarrow.parquet as pq

                return pq.read_schema(self.path).names
            if self.kind in ("CSV", "TSV"):
                with opened(self.path, self.encoding) as stream:
                    for _, names in self._records(stream):
                        return [name.strip() for name in names]
                raise DatasetError(f"{self.path} has no line with text")
            known = {}
            for number, row in self._objects():
                known |= dict.fromkeys(row)
                if number >= 1000:
                    break
            return list(known)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, tuple]]:
        """(number of the row, its values of these columns), from row 0 on; a missing value of JSON or parquet is None.

        Raises DatasetError for a column that there is not (with the nearest) or twice, and, while rows are read, for a
        broken one, with its line.
        """
        self.check(columns)
        with refusals(self.path):
            if self.kind == "parquet":
                import pyarrow.parquet as pq

                with pq.ParquetFile(self.path) as file:
                    number = 0
                    for batch in file.iter_batches(BATCH, columns=list(dict.fromkeys(columns))):
                        for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                            yield number, row
                            number += 1
            elif self.kind in ("CSV", "TSV"):
                yield from self._csv_rows(columns)
            else:
                for number, row in enumerate(row for _, row in self._objects()):
                    yield number, tuple(row.get(name) for name in columns)

    def check(self, columns: Sequence[str]) -> None:
        """Raise DatasetError where a column is not there (with the nearest), or twice."""
        for name in columns:
            if (count := self.columns.count(name)) > 1:
                raise DatasetError(f"{self.path} has {count} columns called {name!r}: give each a name of its own")
            if not count:
                names = ", the names of its first line" if self.delimiter else ""
                raise DatasetError(f"{self.path} has no column {excerpt(name)}{nearest(name, self.columns)}{names}")

    def _csv_rows(self, columns: Sequence[str]) -> Iterator[tuple[int, tuple]]:
        places, width, number = [self.columns.index(name) for name in columns], len(self.columns), 0
        with opened(self.path, self.encoding) as stream:
            records = self._records(stream)
            next(records)
            for line, fields in records:
                if len(fields) != width:
                    names = cut(", ".join(self.columns), 100)
                    mark = "tab" if self.delimiter == "\t" else self.delimiter
                    raise DatasetError(
                        f"{self.path}, line {line}: {counted(len(fields), 'field')}, and the first line names {width} "
                        f"({names}): a text that holds the mark between fields, {mark}, must stand in quotation marks"
                    )
                yield number, tuple(fields[place] for place in places)
                number += 1

    def _records(self, stream) -> Iterator[tuple[int, list[str]]]:
        """(first line of the record, its fields); blank lines are none."""
        how = {"quoting": csv.QUOTE_MINIMAL if self.quotes else csv.QUOTE_NONE}
        reader = csv.reader(lines(self.path, stream), delimiter=self.delimiter, strict=True, **how)
        line = 1
        while True:
            others = csv.field_size_limit(LONGEST)  # of the whole process: given back after each record
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DatasetError(
                    f"{self.path}, from line {line}: {error}. Inside a field in quotation marks a quotation mark is written "
                    "twice; where quotation marks are characters like others, set quotes to false (--data.quotes false)"
                ) from error
            finally:
                csv.field_size_limit(others)
            if fields:
                yield line, fields
            line = reader.line_num + 1

    def _objects(self) -> Iterator[tuple[int, dict]]:
        """(line, object) of JSON lines, or (row, object) of a list of JSON."""
        with opened(self.path, self.encoding) as stream:
            numbered = enumerate(lines(self.path, stream), 1)
            for number, line in numbered:
                if self.kind == "JSON" and line.lstrip().startswith("["):
                    yield from self._list()
                    return
                if line.strip():
                    yield number, self._object(line, f"line {number}")
                    break
            for number, line in numbered:
                if line.strip():
                    yield number, self._object(line, f"line {number}")

    def _list(self) -> Iterator[tuple[int, dict]]:
        with opened(self.path, self.encoding) as stream:
            rows = self._json(stream.read(), "the file")
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise DatasetError(f"{self.path}, row {number}: {excerpt(row)} is no object with keys and values")
            yield number, row

    def _object(self, text: str, place: str) -> dict:
        row = self._json(text, place)
        if not isinstance(row, dict):
            raise DatasetError(f"{self.path}, {place}: {excerpt(row)} is no object with keys and values")
        return row

    def _json(self, text: str, place: str):
        try:
            value = json.loads(text, parse_constant=lambda name: None)
            if "\\u" in text:  # half a character, which no text has
                json.dumps(value, ensure_ascii=False).encode()
            return value
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"{self.path}, {place}: no JSON ({excerpt(error)}); {self.kind} holds an object with keys and values a line"
            ) from error


def read_file(
    path: str | os.PathLike,
    columns: Sequence[str] | None = None,
    *,
    encoding: str | None = None,
    delimiter: str | None = None,
    quotes: bool = True,
    limit: int | None = None,
    seed: int = 0,
) -> "pyarrow.Table":  # noqa: F821 (imported on use)
    """The rows of a CSV, TSV, JSON lines, JSON or parquet file (.gz, .bz2 and .xz of the text formats too) as a table.

    columns: those to read; None: all. limit: that many rows, drawn at random by the seed while the file is read, in its
    order; no more are held at any time. encoding, delimiter, quotes: as `OwnFile.of`.

    Columns of CSV and TSV are large_string; of JSON, the type that all values have, or texts (`as_text`) where they differ;
    of parquet, what they are. The table's metadata hold `rows` (in the file) and `assumed`, a sentence a line.

    Raises DatasetError as `OwnFile.of` and `OwnFile.rows`, and for a file without a row.
    """
    import pyarrow as pa

    file = OwnFile.of(path, encoding=encoding, delimiter=delimiter, quotes=quotes)
    names = file.columns if columns is None else list(columns)
    count, rows = 0, file.rows(names)
    if limit is not None:
        count, rows = draw_rows(rows, limit, seed)
    batches, batch = [], []
    for number, row in rows:
        batch.append(row)
        count = max(count, number + 1)
        if len(batch) == BATCH:
            batches.append(list(map(_array, zip(*batch, strict=True))))
            batch = []
    if batch:
        batches.append(list(map(_array, zip(*batch, strict=True))))
    if not batches:
        raise DatasetError(f"{file.path} has columns ({', '.join(names)}) and no rows")
    texts = pa.large_string() if file.kind in ("CSV", "TSV") else None
    parts = [_one_type([arrays[place] for arrays in batches], texts) for place in range(len(names))]
    metadata = {"rows": str(count), "assumed": "\n".join(file.assumed)}
    return pa.table(parts, names).replace_schema_metadata(metadata)


def draw_rows(rows: Iterable, limit: int, seed: int | Sequence[int]) -> tuple[int, list]:
    """The number of rows, and `limit` of them drawn at random in one pass (Vitter's algorithm R), in their order.

    seed: of numpy. Raises DatasetError for a limit below 1.
    """
    import numpy as np

    if limit < 1:
        raise DatasetError(f"limit={limit}: at least 1 row")
    rng, drawn, count, shares = np.random.default_rng(seed), [], 0, iter(())
    for row in rows:
        count += 1
        if count <= limit:
            drawn.append((count, row))
            continue
        if (share := next(shares, None)) is None:
            shares = iter(rng.random(4096).tolist())
            share = next(shares)
        if (place := int(share * count)) < limit:
            drawn[place] = (count, row)
    return count, [row for _, row in sorted(drawn, key=lambda one: one[0])]


def as_text(value: object) -> str:
    """A value as a text: 1 is "1", true "true", a list its JSON; a text is itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _array(values: tuple) -> "pyarrow.Array":  # noqa: F821
    import pyarrow as pa

    if any(isinstance(value, str) for value in values):
        return pa.array([value if value is None else as_text(value) for value in values], pa.large_string())
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError):
        return pa.array([value if value is None else as_text(value) for value in values], pa.large_string())


def _one_type(arrays: list, kind) -> "pyarrow.ChunkedArray":  # noqa: F821
    import pyarrow as pa

    kinds = {array.type for array in arrays} - {pa.null()}
    if kind is None:
        kind = kinds.pop() if len(kinds) == 1 else pa.large_string() if kinds else pa.null()
    parts = []
    for array in arrays:
        if array.type != kind and array.type != pa.null():
            array = pa.array([value if value is None else as_text(value) for value in array.to_pylist()], kind)
        parts.append(array.cast(kind))
    return pa.chunked_array(parts, kind)


# ------------------------------------------------------------------------------------------------ what a file is


def _kind(path: Path) -> str:
    """What a file is by its name. Raises DatasetError where it is none that can be read."""
    try:
        if path.is_dir():
            raise DatasetError(f"{path} is a folder; a file is wanted")
        if not path.exists():
            raise DatasetError(f"no file at {path}{_file_beside(path)}")
        if not path.is_file():
            raise DatasetError(f"{path} is neither a file nor a folder")
        if not path.stat().st_size:
            raise DatasetError(f"{path} is empty")
    except (OSError, ValueError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{cut(str(path), 300)!r} cannot be read: {error.args[-1]}") from error
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    kind = KINDS.get(suffixes[-1] if suffixes else "")
    if kind is None and len(suffixes) == 2 and suffixes[1] in COMPRESSED:
        kind = KINDS.get(suffixes[0])
        kind = None if kind == "parquet" else kind
    if kind is None:
        with refusals(path), path.open("rb") as stream:
            start = stream.read(4)
        what = next((said for magic, said in MAGIC.items() if start.startswith(magic)), None)
        what = f" It is {what}." if what and suffixes[-1:] != [".gz"] else ""
        raise DatasetError(
            f"{path}: only names that end in {', '.join(KINDS)} are read, the texts among them also .gz.{what}"
        )
    return kind


def _file_beside(path: Path) -> str:
    """A hint at the file beside a missing one that has the most similar name; "" where there is none."""
    try:
        names = [one.name for one in path.parent.iterdir()]
    except OSError:
        return f": there is no folder {path.parent}"
    near = difflib.get_close_matches(path.name, names, 1)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def _n_fields(line: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([line], delimiter=delimiter), []))
    except csv.Error:
        return 0
