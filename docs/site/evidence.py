"""Numbers of pages, read from the repository's own tables: a page names a table, the rows and a column, never a digit."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd


ROOT = Path(__file__).parents[2]
MINUS, NONE = "−", "—"


class EvidenceError(ValueError):
    """A page asks for rows or columns that its table does not have."""


class Evidence:
    """Rows of one table. `where` takes some of them; a column is an attribute or an item."""

    def __init__(self, source: str, frame: pd.DataFrame):
        self.source, self.frame = source, frame

    def where(self, **conditions) -> "Evidence":
        """The rows with these values; a list means any of them. `class_` is the column "class". No row is an error."""
        kept = self.frame
        for name, value in conditions.items():
            values = self._column(kept, name.removesuffix("_"))
            kept = kept[values.isin(value) if isinstance(value, list | tuple) else values == value]
        if kept.empty:
            raise EvidenceError(f"{self.source}: no row has {conditions}")
        return Evidence(self.source, kept)

    def without(self, **conditions) -> "Evidence":
        """The rows that have none of these values."""
        kept = self.frame
        for name, value in conditions.items():
            kept = kept[self._column(kept, name.removesuffix("_")) != value]
        return Evidence(self.source, kept)

    def containing(self, name: str, part: str, keep: bool = True) -> "Evidence":
        """The rows whose text has this part, or has it not."""
        has = self._column(self.frame, name).str.contains(part, regex=False)
        return Evidence(self.source, self.frame[has == keep])

    def above(self, name: str, limit: float) -> "Evidence":
        """The rows whose value is larger; there may be none."""
        return Evidence(self.source, self.frame[self._column(self.frame, name) > limit])

    def below(self, name: str, limit: float) -> "Evidence":
        """The rows whose value is smaller; there may be none."""
        return Evidence(self.source, self.frame[self._column(self.frame, name) < limit])

    def means(self, name: str, columns: Sequence[str], overall: str) -> "Evidence":
        """One row for each value of `name`: means of columns, and under `overall` the mean of these."""
        means = self.frame.groupby(name)[list(columns)].mean()
        return Evidence(self.source, means.assign(**{overall: means.mean(axis=1)}).reset_index())

    def distinct(self, *names: str) -> "Evidence":
        """The first row of each combination of values."""
        return Evidence(self.source, self.frame.drop_duplicates(list(names)))

    def plus(self, **columns) -> "Evidence":
        """With further columns, each made from other columns."""
        return Evidence(self.source, self.frame.assign(**columns))

    def by(self, *names: str) -> list["Evidence"]:
        """One group for each combination of values, in the order of the table."""
        return [Evidence(self.source, rows) for _, rows in self.frame.groupby(list(names), sort=False, dropna=False)]

    def least(self, name: str) -> "Evidence":
        """The row with the smallest value."""
        return Evidence(self.source, self.frame.loc[[self._column(self.frame, name).idxmin()]])

    def largest(self, name: str) -> "Evidence":
        """The row with the largest value."""
        return Evidence(self.source, self.frame.loc[[self._column(self.frame, name).idxmax()]])

    def ordered(self, name: str) -> list["Evidence"]:
        """Single rows, the smallest value first."""
        return [
            Evidence(self.source, self.frame.loc[[place]]) for place in self._column(self.frame, name).sort_values().index
        ]

    def rows(self) -> list["Evidence"]:
        """Single rows, in the order of the table."""
        return [Evidence(self.source, self.frame.loc[[place]]) for place in self.frame.index]

    def _column(self, frame: pd.DataFrame, name: str) -> pd.Series:
        if name not in frame:
            raise EvidenceError(f"{self.source}: no column {name!r}; it has {', '.join(frame)}")
        return frame[name]

    def __getitem__(self, name: str) -> pd.Series:
        return self._column(self.frame, name)

    def __getattr__(self, name: str) -> pd.Series:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name.removesuffix("_")]

    def __len__(self) -> int:
        return len(self.frame)


@cache
def table(source: str) -> Evidence:
    """A CSV file below recipes/."""
    path = ROOT / "recipes" / source
    if not path.is_file():
        raise EvidenceError(f"no table at recipes/{source}")
    return Evidence(source, pd.read_csv(path))


def single(values) -> float | str:
    """The one value of a column; an error where rows differ."""
    if not isinstance(values, pd.Series):
        return values
    (value,) = values.unique() if values.nunique(dropna=False) == 1 else (None,)
    if value is None:
        raise EvidenceError(f"one value is wanted, {values.name!r} has {values.nunique(dropna=False)} in {len(values)} rows")
    return value


def number(values, digits: int = 3) -> str:
    """Such as .217: no zero before the point, a true minus, thousands with a comma, a dash where it is undefined."""
    value = single(values)
    if pd.isna(value):
        return NONE
    text = f"{abs(value):,.{digits}f}"
    text = text[1:] if text.startswith("0.") else text
    return MINUS + text if value < 0 else text


def spread(values: pd.Series, digits: int = 3) -> str:
    """Mean ± standard deviation of rows, one for each seed; the mean alone of one row."""
    mean = number(float(np.mean(values)), digits)
    return mean if len(values) == 1 else f"{mean} ± {number(float(np.std(values, ddof=1)), digits)}"


def interval(rows: Evidence, name: str, digits: int = 3, low: str = "{}_ci_low", high: str = "{}_ci_high") -> str:
    """Such as .085 [.079, .091]."""
    low, high = (number(rows[pattern.format(name)], digits) for pattern in (low, high))
    return f"{number(rows[name], digits)} [{low}, {high}]"


def span(values, digits: int = 3, word: str = "to", scale: float = 1) -> str:
    """Least to largest of a column."""
    values = scale * np.asarray(values)
    low, high = number(float(np.min(values)), digits), number(float(np.max(values)), digits)
    return low if low == high else f"{low} {word} {high}"


def count(values) -> str:
    """A whole number, or how many rows or things there are."""
    value = len(values) if isinstance(values, Evidence | list | tuple) else single(values)
    return f"{int(value):,}"


def percent(values, digits: int = 0) -> str:
    """A share as a percentage, without the sign."""
    return number(100 * single(values), digits)


def size(values) -> float:
    """Without its sign."""
    return abs(single(values))


def prefixed(name: str, prefix: str) -> str:
    return prefix + name


def gathered(tables: Sequence[Evidence], name: str) -> pd.Series:
    """One column of several tables."""
    return pd.concat([rows[name] for rows in tables], ignore_index=True)


def average(values) -> float:
    return float(np.mean(values))


def correlation(first: pd.Series, second: pd.Series) -> float:
    """Pearson's."""
    return float(np.corrcoef(first, second)[0, 1])


def names(values) -> str:
    """Whole numbers of a column, each once, such as "10, 11, 12"."""
    return ", ".join(str(int(value)) for value in sorted(set(values)))


def made(folder: str) -> str:
    """What made the tables of a study, from made.json beside them: commit, cells and hours of one thread, as a sentence.

    Raises EvidenceError where more than one commit made them, or files that no commit holds.
    """
    told = json.loads((ROOT / "recipes" / folder / "made.json").read_text(encoding="utf-8"))
    makers = {(one["commit"], one["dirty"]) for one in told["made_by"]}
    if len(makers) != 1 or (True in (maker := makers.pop())) or None in maker:
        raise EvidenceError(f"{folder} was not made by one clean commit: {told['made_by']}")
    cells = told["cells"]
    return (
        f"Made at commit `{maker[0][:12]}`: {cells['complete']} of {cells['planned']} cells, "
        f"{told['seconds'] / 3600:.1f} hours of one thread."
    )


FILTERS = {
    "number": number,
    "spread": spread,
    "span": span,
    "count": count,
    "size": size,
    "percent": percent,
    "average": average,
    "names": names,
    "single": single,
    "gathered": gathered,
    "prefixed": prefixed,
}
GLOBALS = {
    "table": table,
    "interval": interval,
    "made": made,
    "correlation": correlation,
    "least": np.min,
    "most": np.max,
}
