"""Tidy tables from a record: agreement, performance, plausibility; over seeds.

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
from attnfaith.errors import AttnfaithError
from attnfaith.files import write_atomically
from attnfaith.metrics.attention_faithfulness.dispersion import normalised_entropy
from attnfaith.metrics.attention_faithfulness.plausibility import average_precision
from attnfaith.metrics.attention_faithfulness.rank_agreement import agreement, auprc_constant, auprc_random
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cells import CELL, Cell, pair_name, split_cells
from attnfaith.stats import bootstrap_interval, mean


AGREEMENT_COLUMNS = (
    *CELL,
    "pair",
    "class",
    "n",
    "n_undefined",
    "tau_mean",
    "tau_std",
    "share_significant",
    "ci_low",
    "ci_high",
    "tie_ceiling",
    "tau_over_ceiling",
)
PERFORMANCE_COLUMNS = (
    *CELL,
    "n",
    "n_without_label",
    "n_truncated",
    "n_empty",
    "accuracy",
    "roc_auc",
    "length_mean",
    "length_median",
    "max_attention",
    "support_share",
    "normalised_entropy",
    "n_entropy_undefined",
)
PLAUSIBILITY_COLUMNS = (
    *CELL,
    "scores",
    "n",
    "n_undefined",
    "auprc_mean",
    "ci_low",
    "ci_high",
    "random_baseline",
    "uniform_baseline",
)
TEXT_COLUMNS = (*(name for name in CELL if name != "seed"), "pair", "class", "scores")


def _frame(rows: list[dict], columns: Sequence[str]) -> pd.DataFrame:
    """Rows as a frame with `columns` first; columns that only some cells have (a third class's F1) come last."""
    extra = sorted({name for row in rows for name in row} - set(columns), key=_by_number)
    frame = pd.DataFrame(rows, columns=[*columns, *extra])
    return frame if rows else frame.astype({name: np.float64 for name in columns if name not in TEXT_COLUMNS})


def _by_number(name: str) -> tuple[str, int]:
    """Class 2 comes before class 10."""
    start, _, number = name.rpartition("_")
    return (start, int(number)) if number.isdecimal() else (name, -1)


def _cells(record: "pa.Table | Sequence[Cell]") -> Sequence[Cell]:
    return split_cells(record) if isinstance(record, pa.Table) else record


def agreement_table(record: "pa.Table | Sequence[Cell]", *, seed: int = 0) -> pd.DataFrame:
    """How far attention and importance rank the tokens of a text alike (Kendall's tau-b).

    One row per cell x pair x predicted class. Pairs: attention with every importance measure of the record, and
    gradient with leave-one-out, which says how far two importance measures agree with each other. Classes: "overall",
    then "0", "1", ... as the model predicted them.

    n: instances with a defined tau. n_undefined: instances without one (fewer than two tokens, or a constant vector);
    they enter no mean. tau_mean, tau_std: in -1..1, population standard deviation. share_significant: of the defined,
    those with p <= 0.05, in 0..1. ci_low, ci_high: 95 % bootstrap interval of the mean over instances (`seed` fixes
    the draws). tie_ceiling: mean of the largest tau that the ties of a text allow.
    tau_over_ceiling: mean of tau over that of the same text.

    Source: Jain & Wallace (2019), section 4.1.
    """
    rows = []
    for cell in _cells(record):
        for first, second in cell.pairs:
            found = agreement(cell.scores(first), cell.scores(second), cell.predicted, seed=seed)
            for name, values in found.items():
                rows.append({**cell.heading, "pair": pair_name(first, second), "class": name, **values})
    return _frame(rows, AGREEMENT_COLUMNS)


def performance_table(record: "pa.Table | Sequence[Cell]") -> pd.DataFrame:
    """How well each cell classifies, on which texts, and how concentrated its attention is. One row per cell.

    accuracy, roc_auc, f1_class_<c>: over instances with a gold label, in 0..1, as `classification_scores` defines
    them; support_class_<c>: instances of the gold class. length_mean, length_median: attendable tokens.

    Means over instances, empty texts excluded: max_attention, the largest weight, in 0..1; support_share, the share of
    tokens with a weight above zero, in 0..1; normalised_entropy, entropy / log T, 0 where one token has all the weight
    and 1 where attention is uniform, undefined below two tokens.
    """
    return _frame([_performance(cell) for cell in _cells(record)], PERFORMANCE_COLUMNS)


def _performance(cell: Cell) -> dict:
    scores = classification_scores(cell.probs, cell.labels)
    weights = [row.astype(np.float64) for row in cell.attention if len(row)]
    entropy = normalised_entropy(weights)
    row = {
        **cell.heading,
        "n": len(cell),
        "n_without_label": scores.pop("n_unscored"),
        "n_truncated": int(np.sum(cell.table.column("truncated").to_pylist())),
        "n_empty": int((cell.lengths == 0).sum()),
        "length_mean": float(cell.lengths.mean()),
        "length_median": float(np.median(cell.lengths)),
        "max_attention": mean([row.max() for row in weights]),
        "support_share": mean([np.mean(row > 0) for row in weights]),
        "normalised_entropy": mean(entropy[~np.isnan(entropy)]),
        "n_entropy_undefined": len(cell) - int((~np.isnan(entropy)).sum()),
    }
    return row | {name: value for name, value in scores.items() if name != "n_scored"}


def plausibility_table(record: "pa.Table | Sequence[Cell]", *, n_bootstrap: int = 1000, seed: int = 0) -> pd.DataFrame:
    """How far attention and each importance measure point at the tokens people marked as evidence.

    One row per cell x score. auprc_mean: mean area under the precision-recall curve, in 0..1, of the token scores
    against the `rationale` column. random_baseline: what scores in random order reach on the same texts;
    uniform_baseline: what equal scores reach, the mean share of marked tokens. n_undefined: texts without a marked
    token, with all marked, or without tokens. ci_low, ci_high: 95 % bootstrap interval of the mean. No rows where the record
    has no rationale.

    Plausible is not faithful: agreement with people says nothing on what the model used (Jacovi & Goldberg, 2020).
    """
    rows = []
    for cell in _cells(record):
        if "rationale" not in cell.table.column_names:
            continue
        gold = records.rows(cell.table, "rationale")
        for name in ("attention", *cell.measures):
            found = average_precision(cell.scores(name), gold)
            defined = np.flatnonzero(~np.isnan(found))
            low, high = bootstrap_interval(found[defined], seed=seed, draws=n_bootstrap)
            rows.append(
                {
                    **cell.heading,
                    "scores": name,
                    "n": len(defined),
                    "n_undefined": len(found) - len(defined),
                    "auprc_mean": mean(found[defined]),
                    "ci_low": low,
                    "ci_high": high,
                    "random_baseline": mean(auprc_random(gold)[defined]),
                    "uniform_baseline": mean(auprc_constant(gold)[defined]),
                }
            )
    return _frame(rows, PLAUSIBILITY_COLUMNS)


def seed_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The spread over training seeds: one row per statistic of the rows that differ in nothing but their seed.

    Text columns and `seed` identify a row; every numeric column is a statistic. n_seeds: seeds that were run.
    n_undefined: of these, seeds whose value is NaN; they do not enter mean, std, min or max. std: sample standard
    deviation over seeds (n - 1); NaN for a single seed.

    Raises ValueError where the table has no `seed` column or one seed comes twice for the same row.
    """
    if "seed" not in table.columns:
        raise AttnfaithError(f"a summary over seeds needs a column 'seed'; the table has {list(table.columns)}")
    statistics = [name for name in table.columns if name != "seed" and pd.api.types.is_numeric_dtype(table[name])]
    keys = [name for name in table.columns if name != "seed" and name not in statistics]
    if (repeated := table.duplicated([*keys, "seed"])).any():
        row = table.loc[repeated, [*keys, "seed"]].iloc[0].to_dict()
        raise AttnfaithError(f"a seed comes twice for one row: {row}; keep one of the two before summarising")
    long = table.melt([*keys, "seed"], statistics, var_name="statistic", value_name="value", ignore_index=False)
    long = long.sort_index(kind="stable")  # the statistics of one row beside one another
    groups = long.groupby([*keys, "statistic"], sort=False, dropna=False)["value"]
    summary = groups.agg(n_seeds="size", n_defined="count", mean="mean", std="std", min="min", max="max").reset_index()
    summary.insert(summary.columns.get_loc("n_seeds") + 1, "n_undefined", summary["n_seeds"] - summary["n_defined"])
    return summary.drop(columns="n_defined")


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
