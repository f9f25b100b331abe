"""Tidy tables from a record: agreement, performance, plausibility; over seeds; beside published numbers.

Each table has one row per thing measured and starts with the identity columns of its cell. A number that is undefined
is NaN, never 0, and the count of instances it leaves out stands beside it.
"""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith import record as records
from attnfaith.files import write_atomically
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement, auprc_constant, auprc_random
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cells import CELL, Cell, pair_name, split_cells
from attnfaith.stats import bootstrap_interval, mean


def seed_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The spread over training seeds: one row per statistic of the rows that differ in nothing but their seed.

    Text columns and `seed` identify a row; every numeric column is a statistic. n_seeds: seeds that were run.
    n_undefined: of these, seeds whose value is NaN; they do not enter mean, std, min or max. std: sample standard
    deviation over seeds (n - 1); NaN for a single seed.

    Raises ValueError where the table has no `seed` column or one seed comes twice for the same row.
    """
    if "seed" not in table.columns:
        raise ValueError(f"a summary over seeds needs a column 'seed'; the table has {list(table.columns)}")
    statistics = [name for name in table.columns if name != "seed" and pd.api.types.is_numeric_dtype(table[name])]
    keys = [name for name in table.columns if name != "seed" and name not in statistics]
    if (repeated := table.duplicated([*keys, "seed"])).any():
        row = table.loc[repeated, [*keys, "seed"]].iloc[0].to_dict()
        raise ValueError(f"a seed comes twice for one row: {row}; keep one of the two before summarising")
    long = table.melt([*keys, "seed"], statistics, var_name="statistic", value_name="value", ignore_index=False)
    long = long.sort_index(kind="stable")  # the statistics of one row beside one another
    groups = long.groupby([*keys, "statistic"], sort=False, dropna=False)["value"]
    summary = groups.agg(n_seeds="size", n_defined="count", mean="mean", std="std", min="min", max="max").reset_index()
    summary.insert(summary.columns.get_loc("n_seeds") + 1, "n_undefined", summary["n_seeds"] - summary["n_defined"])
    return summary.drop(columns="n_defined")


def compare_with_published(agreement_df: pd.DataFrame, published_df: pd.DataFrame) -> pd.DataFrame:
    """Measured numbers beside published ones, with the difference.

    published_df: columns dataset, encoder, alignment, class, statistic (a column of `agreement_table`, such as
    "tau_mean") and value; a column it shares with the agreement table beyond these (pair, projection, vectors, seed)
    is matched as well. Spellings are matched as they are: rename first.

    One row per published number and matching run: all columns of `published_df` but value, the identity columns
    that were not matched, then measured, published, difference (measured - published). A published number that nothing
    measured keeps its row, with measured NaN.

    Raises ValueError where a column is missing, a published number comes twice, or the agreement table has several
    pairs and `published_df` does not say which one it means.
    """
    needed = ("dataset", "encoder", "alignment", "class", "statistic", "value")
    if missing := [name for name in needed if name not in published_df.columns]:
        raise ValueError(f"published numbers: columns {missing} are missing; needed: {list(needed)}")
    if missing := [name for name in AGREEMENT_COLUMNS if name not in agreement_df.columns]:
        raise ValueError(f"not an agreement table: columns {missing} are missing")
    if "pair" not in published_df.columns and agreement_df["pair"].nunique() > 1:
        raise ValueError(
            f"the agreement table holds several pairs ({sorted(agreement_df['pair'].unique())}) and the published "
            "numbers have no column 'pair': add one, or keep one pair of the agreement table"
        )
    statistics = [name for name in agreement_df.columns if name not in AGREEMENT_KEYS]
    long = agreement_df.melt(
        id_vars=list(AGREEMENT_KEYS), value_vars=statistics, var_name="statistic", value_name="measured"
    )
    keys = [name for name in published_df.columns if name in long.columns and name != "measured"]
    if unknown := sorted(set(published_df["statistic"].astype(str)) - set(statistics)):
        raise ValueError(f"published statistics {unknown} are not in the agreement table; it has {statistics}")
    if (repeated := published_df.duplicated(keys)).any():
        row = published_df.loc[repeated, keys].iloc[0].to_dict()
        raise ValueError(f"a published number comes twice: {row}")
    published = published_df.rename(columns={"value": "published"})
    text = [name for name in keys if name != "seed"]
    published, long = published.astype(dict.fromkeys(text, str)), long.astype(dict.fromkeys(text, str))
    joined = published.merge(long, how="left", on=keys)
    joined["difference"] = joined["measured"] - joined["published"]
    last = ["measured", "published", "difference"]
    return joined[[name for name in joined.columns if name not in last] + last]


def format_number(value: object) -> str:
    """A value for reading: floats with three decimals, NaN as "undefined", integers with no decimals."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        if np.isnan(value):
            return "undefined"
        shown = f"{value:.3f}"
        return "0.000" if shown == "-0.000" else shown
    return "undefined" if pd.isna(value) else str(value)


def _markdown_text(text: str) -> str:
    """Text that stays in its cell: no column break, no line break, no markup of its own."""
    for character, written in (("\\", "\\\\"), ("|", "\\|"), ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, written)
    return " ".join(text.split())


def to_markdown(df: pd.DataFrame) -> str:
    """A GitHub pipe table: numbers to three decimals and to the right, NaN as "undefined"."""
    numeric = [pd.api.types.is_numeric_dtype(df[name].dtype) for name in df.columns]
    lines = [
        [_markdown_text(str(name)) for name in df.columns],
        ["---:" if number else "---" for number in numeric],
        *([_markdown_text(format_number(value)) for value in row] for row in zip(*(df[c] for c in df), strict=True)),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def save_table(df: pd.DataFrame, stem: str | os.PathLike) -> list[Path]:
    """Write a table as `stem`.csv and `stem`.parquet (full precision) and `stem`.md (for reading); returns the paths.

    Each file is written whole or not at all. In CSV an undefined number is NaN.
    """
    stem = Path(stem)
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(df, preserve_index=False), buffer)
    contents = {
        ".csv": df.to_csv(index=False, na_rep="NaN", lineterminator="\n").encode(),
        ".md": to_markdown(df).encode(),
        ".parquet": buffer.getvalue(),
    }
    return [write_atomically(stem.with_name(stem.name + suffix), content) for suffix, content in contents.items()]
