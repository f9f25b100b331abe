"""A user's own files as a `datasets.Dataset`. Values of a CSV and of a spreadsheet are texts: "NA" and "007" stay so."""

import csv
import json
import logging
import os
import tempfile
import warnings
import zipfile
from pathlib import Path

import datasets
import pandas as pd

from attnfaith.support.errors import DatasetError, closest, cut, excerpt


KINDS = {".csv": "csv", ".tsv": "csv", ".tab": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
KINDS |= {".parquet": "parquet", ".xlsx": "xlsx"}
PACKED = (".gz", ".bz2", ".xz")
DELIMITERS = ",;\t|"
ADVICE = {
    UnicodeError: "it is in another encoding: give --data.encoding cp1252, or save it as UTF-8",
    ImportError: "pip install 'attnfaith[xlsx]', which brings openpyxl, or save the sheet as CSV (UTF-8)",
    zipfile.BadZipFile: "save the sheet again as xlsx, or as CSV (UTF-8)",
    (pd.errors.ParserError, pd.errors.ParserWarning): "put a text that holds the delimiter into quotation marks "
    "(--data.quotes false takes these as ordinary characters), or give another --data.delimiter",
}


def kind_of(path: Path) -> str | None:
    """Return the kind of a file by the end of its name, one of KINDS' values; None for any other."""
    return next((KINDS.get(ending) for ending in reversed(Path(path.name.lower()).suffixes) if ending not in PACKED), None)


def read_file(
    path: str | os.PathLike, *, encoding: str | None = None, delimiter: str | None = None, quotes: bool = True
) -> datasets.Dataset:
    """Read the rows of a CSV, TSV, JSON, JSON lines, parquet or xlsx file (also as .gz, .bz2 and .xz, but for xlsx).

    encoding: of CSV and JSON; None: UTF-8. delimiter: between the fields of a CSV; None: the one of , ; tab and | that
    splits the first line into most names. quotes: False where quotation marks are ordinary characters. A JSON
    column of several kinds becomes texts.

    Raises DatasetError for a file that does not exist (with the nearest name), is empty, damaged, or of another kind or
    encoding.
    """
    path = Path(path)
    if not path.is_file():
        near = closest(path.name, [file.name for file in path.parent.glob("*") if file.is_file()])
        advice = f"did you mean {path.with_name(near)}?" if near else "give the path of a file"
        raise DatasetError(f"no file at {cut(str(path), 300)}; {cut(advice, 300)}")
    if kind_of(path) is None:
        raise DatasetError(
            f"{path}: give a file whose name ends in {', '.join(KINDS)}, CSV and JSON also with .gz (save a .xls as .xlsx)"
        )
    bars = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # which would call all rows a train split
    logging.disable(logging.ERROR)  # the error below is enough
    try:
        rows = _rows(path, kind_of(path), encoding, delimiter, quotes)
    except Exception as error:  # pandas, Arrow, openpyxl and the modules that decompress raise many kinds
        cause = error.__cause__ or error
        if "corresponds to no data" in str(cause):
            raise DatasetError(f"{path} has no rows") from error
        advice = [words for kinds, words in ADVICE.items() if isinstance(cause, kinds)]
        raise DatasetError(f"{path} cannot be read: {'; '.join([excerpt(cause, 200), *advice])}") from error
    finally:
        logging.disable(logging.NOTSET)
        if bars:
            datasets.enable_progress_bars()
    for name in [name for name, feature in rows.features.items() if isinstance(feature, datasets.Json)]:  # of several kinds
        values = [value if isinstance(value, str | None) else json.dumps(value) for value in rows[name]]
        rows = rows.remove_columns(name).add_column(name, values)
    return rows.rename_columns({name: name.strip() for name in rows.column_names})


def _rows(path: Path, kind: str, encoding: str | None, delimiter: str | None, quotes: bool) -> datasets.Dataset:
    """The rows of an existing file, in the words of the library that reads it where that fails."""
    if kind == "xlsx":
        return datasets.Dataset.from_pandas(pd.read_excel(path, dtype=str, na_filter=False).rename(columns=str))
    options = {"encoding": encoding} if kind == "json" and encoding else {}
    if kind == "csv":
        options = {"encoding": encoding or "utf-8-sig", "quoting": csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE}
        marks = [delimiter.replace("\\t", "\t")] if delimiter else DELIMITERS
        headings = {mark: pd.read_csv(path, sep=mark, nrows=0, **options).columns for mark in marks}
        mark, names = max(headings.items(), key=lambda entry: len(entry[1]))
        texts = datasets.Features(dict.fromkeys(names, datasets.Value("string")))
        options |= {"sep": mark, "na_filter": False, "index_col": False, "features": texts}
    with tempfile.TemporaryDirectory() as cache, warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of lines with more fields than the first
        link = Path(cache, "rows")  # a name without brackets and the like, which datasets would take for a pattern
        link.symlink_to(path.resolve())
        where = {"data_files": str(link), "cache_dir": cache, "keep_in_memory": True}
        return datasets.load_dataset(kind, split="train", **where, **options)
