"""Files of a user's own (CSV, TSV, JSON, JSON lines, parquet, xlsx) as a `datasets.Dataset`, each value as it stands there.

"NA", "null" and "007" in a CSV are those texts.
"""

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from attnfaith.data.in_memory import in_memory
from attnfaith.errors import DatasetError, closest, cut, excerpt


if TYPE_CHECKING:
    import datasets
    import pyarrow as pa


KINDS = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
KINDS |= {".parquet": "parquet", ".xlsx": "excel"}
COMPRESSED = (".gz", ".bz2", ".xz")
DELIMITERS = ",;\t|"


def kind_of(path: Path) -> str | None:
    """The kind of a file by the end of its name: one of KINDS' values, None for any other."""
    if path.suffix.lower() not in COMPRESSED:
        return KINDS.get(path.suffix.lower())
    kind = KINDS.get(Path(path.stem).suffix.lower())
    return kind if kind in ("csv", "json") else None


def read_file(
    path: str | os.PathLike, *, encoding: str | None = None, delimiter: str | None = None, quotes: bool = True
) -> "datasets.Dataset":
    """The rows of a CSV, TSV, JSON, JSON lines, parquet or xlsx file (of text formats also .gz, .bz2 and .xz).

    encoding: of a text format; None: UTF-8. delimiter: between the fields of a CSV; None: the one of , ; tab and | that
    parts the first line into most names. quotes: false where quotation marks are characters like others.

    Columns of CSV and xlsx are strings, and so is a column of JSON with values of several kinds.

    Raises DatasetError for a file that is not there (with the nearest name), empty, of another kind or encoding, or broken.
    """
    path = Path(path)
    kind = kind_of(path)
    if not os.path.isfile(path):
        if os.path.isdir(path):
            raise DatasetError(f"{path} is a folder; give a file")
        folder = os.path.isdir(path.parent)
        near = closest(path.name, os.listdir(path.parent)) if folder else ""
        more = f"; did you mean {path.parent / near}?" if near else "" if folder else f": there is no folder {path.parent}"
        raise DatasetError(f"no file at {cut(str(path), 300)}{cut(more, 300)}")
    if kind is None:
        more = "; a .xls is to be saved as .xlsx" if path.suffix.lower() == ".xls" else ""
        raise DatasetError(f"{path}: only names that end in {', '.join(KINDS)} are read, CSV and JSON also with .gz{more}")
    try:
        if kind == "csv":
            table = _read_csv(path, encoding or "utf-8-sig", {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter), quotes)
        else:
            table = {"json": _read_json, "parquet": _read_parquet, "excel": _read_excel}[kind](path, encoding)
    except DatasetError:
        raise
    except Exception as error:  # pandas, Arrow, openpyxl and the modules that decompress raise many kinds
        raise DatasetError(f"{path} cannot be read: {_advice(error, encoding)}") from error
    if not table.num_rows:
        raise DatasetError(f"{path} has no rows")
    return in_memory(table)


def as_text(value: object) -> str:
    """A value as a text: 1 is "1", true "true", a list its JSON; a text is itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _advice(error: Exception, encoding: str | None) -> str:
    """What is wrong with a file, and what to do."""
    fault = excerpt(error, 200)
    if isinstance(error, UnicodeError):
        return (
            f"it is not in the encoding {encoding or 'UTF-8'} ({fault}): name its own, such as --data.encoding cp1252, or "
            "save it as UTF-8"
        )
    if isinstance(error, ImportError):
        return "pip install openpyxl, which reads xlsx, or save the sheet as CSV (UTF-8)"
    if "encoding" in fault:
        return f"encoding={excerpt(encoding)} is none that Python knows, such as utf-8 or cp1252"
    if type(error).__name__ == "ParserError":  # of pandas
        return (
            f"{fault}. A text that holds the mark between fields stands in quotation marks, and a quotation mark in it is "
            "written twice; where these are characters like others, set --data.quotes false"
        )
    return fault


def _read_csv(path: Path, encoding: str, delimiter: str | None, quotes: bool) -> "pa.Table":
    import pandas as pd
    import pyarrow as pa

    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise DatasetError(f"delimiter={excerpt(delimiter)} must be one character, such as ; or a tab")
    how = {"encoding": encoding, "quoting": csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE}
    if delimiter is None:
        delimiter = max(DELIMITERS, key=lambda mark: len(pd.read_csv(path, sep=mark, nrows=0, **how).columns))
    frame = pd.read_csv(path, sep=delimiter, dtype=str, na_filter=False, **how)
    names = [str(name).strip() for name in frame.columns]
    if not isinstance(frame.index, pd.RangeIndex):
        raise DatasetError(
            f"{path}: the first line names {len(names)} columns ({cut(', '.join(names), 100)}), and line 2 has more fields: "
            "a text that holds the mark between fields must stand in quotation marks; --data.delimiter names another mark"
        )
    return pa.table({name: pa.array(frame.iloc[:, place], pa.large_string()) for place, name in enumerate(names)})


def _read_json(path: Path, encoding: str | None) -> "pa.Table":
    """A list of objects, or an object a line."""
    import fsspec
    import pyarrow as pa

    with fsspec.open(str(path), "rt", encoding=encoding or "utf-8-sig", compression="infer") as stream:
        text = stream.read()
    rows = json.loads(text) if text.lstrip()[:1] == "[" else [json.loads(line) for line in text.split("\n") if line.strip()]
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in dict.keys(row)):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError):
            columns[name] = pa.array([None if value is None else as_text(value) for value in values])
    return pa.table(columns)


def _read_parquet(path: Path, _: str | None) -> "pa.Table":
    import pyarrow.parquet as pq

    return pq.read_table(path, partitioning=None)


def _read_excel(path: Path, _: str | None) -> "pa.Table":
    """The first sheet of a spreadsheet, as strings."""
    import pandas as pd
    import pyarrow as pa

    frame = pd.read_excel(path, dtype=str, na_filter=False)
    return pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
