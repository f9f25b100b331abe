"""Files of a user's own (CSV, TSV, JSON, JSON lines, parquet, xlsx) as a `datasets.Dataset`, each value as it stands there.

"NA", "null" and "007" in a CSV are those texts. `datasets` reads a file once, into its cache, and maps that into memory.
"""

import contextlib
import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attnfaith.support.errors import DatasetError, closest, cut, excerpt


if TYPE_CHECKING:
    import datasets


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
    import datasets

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
        if kind == "excel":
            rows = _read_excel(path)
        else:
            how = {"encoding": encoding or "utf-8-sig"} if kind == "json" else {}
            if kind == "csv":
                how = _csv_options(path, encoding or "utf-8", {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter), quotes)
            with _quiet():
                rows = datasets.load_dataset(kind, data_files=[str(path)], split="train", **how)
    except DatasetError:
        raise
    except Exception as error:  # datasets, pandas, Arrow, openpyxl and the modules that decompress raise many kinds
        cause = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise DatasetError(f"{path} cannot be read: {_advice(cause, encoding)}") from error
    if not len(rows):
        raise DatasetError(f"{path} has no rows")
    for name, feature in rows.features.items():
        if isinstance(feature, datasets.Json):
            values = [None if value is None else as_text(value) for value in rows[name]]
            rows = rows.remove_columns(name).add_column(name, values, feature=datasets.Value("string"))
    return rows


def as_text(value: object) -> str:
    """A value as a text: 1 is "1", true "true", a list its JSON; a text is itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _advice(error: Exception, encoding: str | None) -> str:
    """What is wrong with a file, and what to do."""
    fault = "it has no rows" if "corresponds to no data" in str(error) else excerpt(error, 200)
    if isinstance(error, UnicodeError):
        return (
            f"it is not in the encoding {encoding or 'UTF-8'} ({fault}): name its own, such as --data.encoding cp1252, or "
            "save it as UTF-8"
        )
    if isinstance(error, ImportError):
        return "pip install openpyxl, which reads xlsx, or save the sheet as CSV (UTF-8)"
    if type(error).__name__ == "BadZipFile":
        return f"it is no xlsx spreadsheet ({fault}): save the sheet again as xlsx, or as CSV (UTF-8)"
    if "encoding" in fault:
        return f"encoding={excerpt(encoding)} is none that Python knows, such as utf-8 or cp1252"
    if type(error).__name__ == "ParserError":  # of pandas
        return (
            f"{fault}. A text that holds the mark between fields stands in quotation marks, and a quotation mark in it is "
            "written twice; where these are characters like others, set --data.quotes false"
        )
    return fault


def _csv_options(path: Path, encoding: str, delimiter: str | None, quotes: bool) -> dict:
    """Options of `load_dataset("csv")` that keep every value as the text that it is."""
    import pandas as pd
    from datasets import Features, Value

    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise DatasetError(f"delimiter={excerpt(delimiter)} must be one character, such as ; or a tab")
    how = {"encoding": encoding, "quoting": csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, "na_filter": False, "header": 0}
    if delimiter is None:
        delimiter = max(DELIMITERS, key=lambda mark: len(pd.read_csv(path, sep=mark, nrows=0, **how).columns))
    first = pd.read_csv(path, sep=delimiter, nrows=1, **how)
    names = [str(name).strip() for name in first.columns]
    if not isinstance(first.index, pd.RangeIndex):
        raise DatasetError(
            f"{path}: the first line names {len(names)} columns ({cut(', '.join(names), 100)}), and line 2 has more fields: "
            "a text that holds the mark between fields must stand in quotation marks; --data.delimiter names another mark"
        )
    return {**how, "sep": delimiter, "column_names": names, "features": Features(dict.fromkeys(names, Value("string")))}


def _read_excel(path: Path) -> "datasets.Dataset":
    """The first sheet of a spreadsheet, as strings."""
    import datasets
    import pandas as pd

    frame = pd.read_excel(path, dtype=str, na_filter=False)
    return datasets.Dataset.from_pandas(frame.rename(columns=str), preserve_index=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and the log of `datasets`."""
    import datasets

    verbosity, bars = datasets.logging.get_verbosity(), datasets.is_progress_bar_enabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)
        if bars:
            datasets.enable_progress_bars()
