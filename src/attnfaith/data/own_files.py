"""A user's own files (CSV, TSV, JSON, JSON lines, parquet, xlsx) as a `datasets.Dataset`, with every value unchanged.

"NA", "null" and "007" in a CSV stay these texts.
"""

import csv
import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from attnfaith.data.in_memory import in_memory
from attnfaith.support.errors import DatasetError, closest, cut, excerpt


if TYPE_CHECKING:
    import datasets
    import pyarrow as pa


TEXT_KINDS = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".json": "json", ".jsonl": "lines", ".ndjson": "lines"}
KINDS = {**TEXT_KINDS, ".parquet": "parquet", ".xlsx": "excel"}
DELIMITERS = ",;\t|"


def kind_of(path: Path) -> str | None:
    """Return the kind of a file by the end of its name, one of KINDS' values; None for any other."""
    name = Path(path.name.lower())
    return TEXT_KINDS.get(Path(name.stem).suffix) if name.suffix in (".gz", ".bz2", ".xz") else KINDS.get(name.suffix)


def read_file(
    path: str | os.PathLike, *, encoding: str | None = None, delimiter: str | None = None, quotes: bool = True
) -> "datasets.Dataset":
    """Read the rows of a CSV, TSV, JSON, JSON lines, parquet or xlsx file (text formats also as .gz, .bz2 and .xz).

    encoding: of a text format; None: UTF-8. delimiter: between the fields of a CSV; None: the one of , ; tab and | that
    splits the first line into most names. quotes: False where quotation marks are ordinary characters.

    Columns of CSV and xlsx are strings, and so is a JSON column with values of several kinds.

    Raises DatasetError for a file that does not exist (with the nearest name), is empty, damaged, or of another kind or
    encoding.
    """
    path = Path(path)
    kind = kind_of(path)
    if path.is_dir():
        raise DatasetError(f"{path} is a folder; give a file")
    if not path.is_file():
        near = closest(path.name, os.listdir(path.parent)) if path.parent.is_dir() else ""
        advice = f"; did you mean {path.parent / near}?" if near else ""
        raise DatasetError(f"no file at {cut(str(path), 300)}{cut(advice, 300)}")
    if kind is None:
        raise DatasetError(
            f"{path}: give a file whose name ends in {', '.join(KINDS)}, CSV and JSON also with .gz (save a .xls as .xlsx)"
        )
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise DatasetError(f"data.delimiter={excerpt(delimiter)} must be one character, such as ; or a tab")
    try:
        table = _table(path, kind, encoding or "utf-8-sig", delimiter, csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE)
    except Exception as error:  # pandas, Arrow, openpyxl and the modules that decompress raise many kinds
        raise DatasetError(f"{path} cannot be read: {_advice(error, encoding or 'UTF-8')}") from error
    if not len(table):
        raise DatasetError(f"{path} has no rows")
    return in_memory(table)


def _table(path: Path, kind: str, encoding: str, delimiter: str | None, quoting: int) -> "pa.Table":
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "parquet":
        return pq.read_table(path, partitioning=None)
    if kind == "excel":
        frame = pd.read_excel(path, dtype=str, na_filter=False).rename(columns=str)
    elif kind == "csv":
        options = {"encoding": encoding, "quoting": quoting, "na_filter": False, "dtype": str}
        if delimiter is None:
            delimiter = max(DELIMITERS, key=lambda mark: len(pd.read_csv(path, sep=mark, nrows=0, **options).columns))
        frame = pd.read_csv(path, sep=delimiter, **options).rename(columns=str.strip)
        if not isinstance(frame.index, pd.RangeIndex):
            names = cut(", ".join(frame.columns), 100)
            raise pd.errors.ParserError(f"line 2 has more fields than the {len(frame.columns)} names of line 1 ({names})")
    else:
        frame = pd.read_json(path, lines=kind == "lines", dtype=False, encoding=encoding)
    for name in frame:
        if frame[name].dtype == object and frame[name].dropna().map(type).nunique() > 1:
            frame[name] = frame[name].map(as_text, na_action="ignore")
    return pa.Table.from_pandas(frame, preserve_index=False)


def as_text(value: object) -> str:
    """Return a value as a text: 1 is "1", true "true", a list its JSON; a text is itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _advice(error: Exception, encoding: str) -> str:
    """What is wrong with a file, and what to do."""
    from pandas.errors import ParserError

    advice = {
        UnicodeError: f"it is not in the encoding {encoding}: give --data.encoding cp1252, or save it as UTF-8",
        ImportError: "pip install 'attnfaith[xlsx]', which brings openpyxl, or save the sheet as CSV (UTF-8)",
        zipfile.BadZipFile: "save the sheet again as xlsx, or as CSV (UTF-8)",
        ParserError: "put a text that holds the delimiter into quotation marks (--data.quotes false takes these as ordinary "
        "characters), or give another --data.delimiter",
    }
    return "; ".join([excerpt(error, 200), *(words for kind, words in advice.items() if isinstance(error, kind))])
