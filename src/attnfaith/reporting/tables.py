"""Tables: for reading on pages, in terminals and documents (`Grid`), as files, and over seeds. An undefined number is NaN,
never 0.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith.reporting.cells import ReportError
from attnfaith.stats import LEVEL, rounded
from attnfaith.support.escaping import csv_frame, markdown, markdown_table, printable


@dataclass(frozen=True)
class Grid:
    """A table of text. The first `heads` columns name the row. stem: of its files, as seen from the page."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int
    note: str = ""
    stem: str = ""

    def formatted(self, kind: str) -> str:
        """The table and its note as "text" for a terminal, "markdown", or "latex" for booktabs."""
        if kind == "markdown":
            places = range(len(self.columns))
            numeric = [place >= self.heads and not any(_is_words(row[place]) for row in self.rows) for place in places]
            table = markdown_table([self.columns, *self.rows], numeric=numeric)
            return table + (f"\n{markdown(self.note)}\n" if self.note else "")
        frame = pd.DataFrame(self.rows, columns=list(self.columns))
        if kind == "latex":
            columns = "l" * self.heads + "r" * (len(self.columns) - self.heads)
            frame = frame.map(printable).rename(columns=printable)
            table = frame.to_latex(index=False, escape=True, column_format=columns).replace("τ", r"$\tau$")
            return f"% {' '.join(self.note.split())}\n{table}"
        return f"{as_text(frame.set_index(list(self.columns[: self.heads])), None)}\n\n{self.note}\n"


def _is_words(text: str) -> bool:
    return text[:1].isalpha() and text != "undefined"


def format_number(value: object, undefined: str = "undefined") -> str:
    """A value for reading: floats with three decimals, NaN as `undefined`, others as they are."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return undefined
    return f"{round(value, 3) + 0.0:.3f}" if isinstance(value, float | np.floating) else str(value)  # never -0.000


def short_number(value: float, sign: str = "-") -> str:
    """Three decimals; a small number that they would not show as 7.2e-05; NaN as "undefined". sign: "+" shows both signs."""
    if np.isnan(value):
        return "undefined"
    return f"{value:{sign}.1e}" if 0 < abs(value) < 0.0005 else f"{value + 0.0:{sign}.3f}"


def signed(value: float) -> str:
    """ "−0.12"; "undefined" of NaN."""
    return "undefined" if np.isnan(value) else f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")


def p_in_words(p_value: float) -> str:
    """ "0.012", "<0.001"; what is above .05 is not rounded to it."""
    if np.isnan(p_value):
        return "undefined"
    return "<0.001" if p_value < 0.001 else rounded(p_value, (np.nextafter(LEVEL, 1),), 3)


def percent(share: float, places: int = 0) -> str:
    """ "12%"; a share that is neither none nor all is not rounded to either: "more than 99%"."""
    text, least = f"{share:.{places}%}", 10**-places
    if 0 < share < 1 and float(text[:-1]) in (0, 100):
        return f"less than {least:g}%" if share < 0.5 else f"more than {100 - least:g}%"
    return text


def number_with_interval(row: Mapping[str, object], name: str) -> str:
    """ "0.123 [0.100, 0.150]" of a row with ci_low and ci_high; "undefined" where the number is."""
    if np.isnan(row[name]) or np.isnan(row["ci_low"]):
        return format_number(row[name])
    return f"{format_number(row[name])} [{format_number(row['ci_low'])}, {format_number(row['ci_high'])}]"


def differing(df: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns that tell the rows of the table apart."""
    return [name for name in names if name in df.columns and df[name].nunique(dropna=False) > 1]


def over_seeds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the spread over training seeds: one row per statistic of the rows that differ in nothing but their seed.

    What stands before the column `n` names a row, numbers such as an epsilon too; every number from there on is a
    statistic, and words are left out. n_seeds: seeds that were run. n_undefined: of these, seeds whose value is NaN; they do
    not enter mean, std, min or max. std: sample standard deviation over seeds (n - 1); NaN for a single seed.

    Raises ReportError where one seed comes twice for the same row.
    """
    place = table.columns.get_loc("n")
    keys, statistics = [*table.columns[:place].drop("seed")], table.iloc[:, place:].select_dtypes("number").columns
    table = table.astype(dict.fromkeys(keys, str))
    if (repeated := table.duplicated([*keys, "seed"])).any():
        row = table.loc[repeated, [*keys, "seed"]].iloc[0].to_dict()
        raise ReportError(f"a seed comes twice for one row: {row}; keep one of the two before summarising")
    long = table.melt([*keys, "seed"], statistics, var_name="statistic", value_name="value", ignore_index=False)
    long = long.sort_index(kind="stable")  # the statistics of one row beside one another
    groups = long.groupby([*keys, "statistic"], sort=False, dropna=False)["value"]
    undefined = groups.agg(lambda values: values.isna().sum()).astype(int)
    summary = groups.agg(n_seeds="size", mean="mean", std="std", min="min", max="max")
    summary.insert(1, "n_undefined", undefined)
    return summary.reset_index()


def as_text(table: pd.DataFrame, width: int | None = 100) -> str:
    """Aligned columns for a terminal, the index to the left. width: characters after which columns go on below."""
    with pd.option_context("display.unicode.east_asian_width", True):
        lines = table.to_string(line_width=width, sparsify=False).split("\n")
    return "\n".join(map(printable, lines))


def to_markdown(df: pd.DataFrame) -> str:
    """A GitHub pipe table: numbers to three decimals and to the right, NaN as "undefined"."""
    numeric = [pd.api.types.is_numeric_dtype(df[name].dtype) for name in df.columns]
    rows = ([format_number(value) for value in row] for row in zip(*(df[c] for c in df), strict=True))
    return markdown_table([list(df.columns), *rows], numeric=numeric)


def table_files(df: pd.DataFrame, stem: str) -> dict[str, bytes]:
    """A table as the files `stem`.csv and `stem`.parquet, in full precision, and `stem`.md, for reading. In CSV an undefined
    number is NaN.
    """
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(df, preserve_index=False), buffer)
    return {
        f"{stem}.csv": csv_frame(df).encode(),
        f"{stem}.md": to_markdown(df).encode(),
        f"{stem}.parquet": buffer.getvalue(),
    }
