"""Published numbers, and measured ones beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from attnfaith.reporting.analysis import StudyError


def read_published(path: Path, columns: Sequence[str], numbers: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV file of published numbers.

    columns: those it must have. numbers: those of them that must be numeric. Raises StudyError where the file is missing,
    no CSV table, or not such a table.
    """
    try:
        published = pd.read_csv(path)
    except OSError as error:
        raise StudyError(f"published: no file at {path}") from error
    except ValueError as error:
        raise StudyError(f"published: {path} is no CSV table: {error}") from error
    if missing := [name for name in columns if name not in published.columns]:
        raise StudyError(f"published: {path} lacks the columns {missing}; needed: {', '.join(columns)}")
    for name in numbers:
        if not pd.api.types.is_numeric_dtype(published[name]):
            kind = published[name].dtype
            raise StudyError(f"published: {path} holds a value that is no number; its column '{name}' is {kind}")
    return published


def for_stand_ins(published: pd.DataFrame, stand_ins: Mapping[str, str]) -> pd.DataFrame:
    """Published numbers once more for each data set that stands in for one of the paper; `published_for` names the latter.

    Raises StudyError where nothing is published for a data set that is stood in for.
    """
    known = published["dataset"].unique()
    parts = [published.assign(published_for=published["dataset"])]
    for name, original in stand_ins.items():
        if original not in known or name in known:
            raise StudyError(
                f"stand_ins: {name}: {original}; give a data set without published numbers, and one that has them: "
                f"{', '.join(sorted(known))}"
            )
        rows = published[published["dataset"] == original]
        parts.append(rows.assign(dataset=name, published_for=original))
    return pd.concat(parts, ignore_index=True)


def join_published(published: pd.DataFrame, measured: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """A row for each published number and each measured one that agrees in the keys, with difference = measured - published.

    published: column `value`, renamed `published`. measured: column `measured`. Keys but `seed` are compared as texts. A
    published number that nothing measured keeps its row, with measured NaN.
    """
    texts = dict.fromkeys((name for name in keys if name != "seed"), str)
    joined = (
        published.rename(columns={"value": "published"}).astype(texts).merge(measured.astype(texts), how="left", on=keys)
    )
    joined["difference"] = joined["measured"] - joined["published"]
    return joined
