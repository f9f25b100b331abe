"""A user's own files (CSV, TSV, JSON, JSON lines, parquet, xlsx) as a `datasets.Dataset`, with every value unchanged.

"NA", "null" and "007" in a CSV stay these texts. `datasets` reads a file once into its cache and maps that into memory.
"""

import contextlib
import csv
import json
import os
import zipfile
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
    """Return the kind of a file by the end of its name, one of KINDS' values; None for any other."""
    if path.suffix.lower() not in COMPRESSED:
        return KINDS.get(path.suffix.lower())
    kind = KINDS.get(Path(path.stem).suffix.lower())
    return kind if kind in ("csv", "json") else None


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
    import datasets

    path = Path(path)
    kind = kind_of(path)
    if os.path.isdir(path):
        raise DatasetError(f"{path} is a folder; give a file")
    if not os.path.isfile(path):
        near = closest(path.name, os.listdir(path.parent)) if os.path.isdir(path.parent) else ""
        advice = f"; did you mean {path.parent / near}?" if near else ""
        raise DatasetError(f"no file at {cut(str(path), 300)}{cut(advice, 300)}")
    if kind is None:
        raise DatasetError(
            f"{path}: give a file whose name ends in {', '.join(KINDS)}, CSV and JSON also with .gz (save a .xls as .xlsx)"
        )
    try:
        if kind == "excel":
            rows = _read_excel(path)
        else:
            options = {"encoding": encoding or "utf-8-sig"} if kind == "json" else {}
            if kind == "csv":
                options = _csv_options(
                    path, encoding or "utf-8", {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter), quotes
                )
            with _quiet():
                rows = datasets.load_dataset(kind, data_files=[str(path)], split="train", **options)
    except DatasetError:
        raise
    except Exception as error:  # datasets, pandas, Arrow, openpyxl and the modules that decompress raise many kinds
        raise DatasetError(f"{path} cannot be read: {_advice(error, encoding)}") from error
    if not len(rows):
        raise DatasetError(f"{path} has no rows")
    for name, feature in rows.features.items():
        if isinstance(feature, datasets.Json):
            values = [None if value is None else as_text(value) for value in rows[name]]
            rows = rows.remove_columns(name).add_column(name, values, feature=datasets.Value("string"))
    return rows


def as_text(value: object) -> str:
    """Return a value as a text: 1 is "1", true "true", a list its JSON; a text is itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _advice(error: BaseException, encoding: str | None) -> str:
    """What is wrong with a file, and what to do."""
    import pandas as pd

    while error.__cause__ is not None:
        error = error.__cause__
    empty = ("corresponds to no data", "BatchSize must be greater than 0")  # as datasets and Arrow report it
    fault = "it has no rows" if any(words in str(error) for words in empty) else excerpt(error, 200)
    for kind, advice in {
        UnicodeError: f"it is not in the encoding {encoding or 'UTF-8'} ({fault}): give --data.encoding cp1252, or save it "
        "as UTF-8",
        ImportError: "pip install 'attnfaith[xlsx]', which brings openpyxl, or save the sheet as CSV (UTF-8)",
        zipfile.BadZipFile: f"it is no xlsx spreadsheet ({fault}): save the sheet again as xlsx, or as CSV (UTF-8)",
        pd.errors.ParserError: f"{fault}. Put a text that holds the delimiter into quotation marks; --data.quotes false "
        "takes these as ordinary characters",
    }.items():
        if isinstance(error, kind):
            return advice
    return fault


def _csv_options(path: Path, encoding: str, delimiter: str | None, quotes: bool) -> dict:
    """Options of `load_dataset("csv")` that leave every value the text that it is."""
    import pandas as pd
    from datasets import Features, Value

    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise DatasetError(f"data.delimiter={excerpt(delimiter)} must be one character, such as ; or a tab")
    quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    options = {"encoding": encoding, "quoting": quoting, "na_filter": False, "header": 0}
    if delimiter is None:
        delimiter = max(DELIMITERS, key=lambda mark: len(pd.read_csv(path, sep=mark, nrows=0, **options).columns))
    first = pd.read_csv(path, sep=delimiter, nrows=1, **options)
    names = [str(name).strip() for name in first.columns]
    if not isinstance(first.index, pd.RangeIndex):
        raise DatasetError(
            f"{path}: the first line names {len(names)} columns ({cut(', '.join(names), 100)}), and line 2 has more fields: "
            "put a text that holds the delimiter into quotation marks, or give another --data.delimiter"
        )
    return {**options, "sep": delimiter, "column_names": names, "features": Features(dict.fromkeys(names, Value("string")))}


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
