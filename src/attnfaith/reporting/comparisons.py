"""Do two kinds of model differ? Paired tests between cells that differ in one factor, over instances and over seeds."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, Cell, describe
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.spec import cells_of
from attnfaith.stats import bootstrap_interval, holm, sign_flip_test


FACTORS = ("encoder", "alignment", "projection", "vectors", "objective")
FEWEST_SEEDS = 6  # for an interval; also the fewest of which a sign-flip test can give p <= 0.05
NUMBERS = (
    "n",
    "n_left_out",
    "mean_first",
    "mean_second",
    "difference",
    "ci_low",
    "ci_high",
    "p_value",
    "p_holm",
)


def paired_comparison(record: "pa.Table | Sequence[Cell]", factor: str, *, seed: int = 0) -> pd.DataFrame:
    """Every two levels of one factor, such as projection softmax against sparsemax, all else equal.

    factor: one of FACTORS. Compared are cells that agree in every other identity column, by each number per instance that
    both hold: Kendall's tau between attention and each measure ("tau attention–gradient"), "correct" (1 where the predicted
    class is the gold label, 0 where not), and what their interventions give (`permutation_tvd`, ...).

    Rows, one test each. over = "instances": within one training seed; a pair is one instance in both cells, matched by
    instance id. over = "seeds" (seed "all"): a pair is one training seed that both levels have, its difference the mean over
    the instances matched within it.

    n: pairs. n_left_out: instances that are undefined, or missing, in one of the two cells; seeds that only one level has,
    or without a defined difference. mean_first, mean_second: means over the pairs. difference: second - first. ci_low,
    ci_high: its 95 % bootstrap interval, undefined below two instances or six seeds. p_value: `sign_flip_test` of the mean
    difference; over n seeds it is exact and at least 2 / 2^n, so that three seeds cannot give less than 0.25. p_holm:
    corrected by `holm` for all tests of the table over instances, and separately for all over seeds. A test over instances
    speaks of these two trained models, one over seeds of the kinds of model. `seed` fixes the random draws.

    Raises ReportError for a factor that cannot be compared, and for two cells of one identity.
    """
    if factor not in FACTORS:
        raise ReportError(f"factor={factor!r} cannot be compared; choose one of {', '.join(FACTORS)}")
    cells = cells_of(record)
    others = [name for name in CELL if name not in (factor, "seed")]
    groups: dict[tuple, dict[str, dict[int, Cell]]] = {}
    for cell in cells:
        levels = groups.setdefault(tuple(cell.heading[name] for name in others), {})
        seeds = levels.setdefault(cell.heading[factor], {})
        if cell.heading["seed"] in seeds:
            raise ReportError(f"two cells are of one identity: {describe(cell.heading)}; keep one of them")
        seeds[cell.heading["seed"]] = cell
    known: dict[int, pd.DataFrame] = {}
    rows = []
    for identity, levels in groups.items():
        shared = dict(zip(others, identity, strict=True)) | {"factor": factor}
        for first, second in combinations(levels, 2):
            pair = {**shared, "first": first, "second": second}
            rows.extend({**pair, **row} for row in _pairs(levels[first], levels[second], known))
    # the smallest p-value that draws can give must pass the correction
    draws = max(9999, 100 * sum(row["over"] == "instances" for row in rows))
    rows = [{**row, **_test(row.pop("pairs"), row["over"], seed, draws), "p_holm": np.nan} for row in rows]
    table = pd.DataFrame(rows, columns=[*others, "factor", "first", "second", "statistic", "over", "seed", *NUMBERS])
    for _, members in table.groupby("over"):
        table.loc[members.index, "p_holm"] = holm(members["p_value"])
    return table.astype(dict.fromkeys(NUMBERS[2:], np.float64))


def _pairs(first: dict[int, Cell], second: dict[int, Cell], known: dict[int, pd.DataFrame]) -> Iterator[dict]:
    """What two levels, each {training seed: cell}, hold in pairs [2, N], NaN where undefined: per statistic the instances of
    each seed, then the seeds.
    """
    matched = {}
    for number in sorted(set(first) & set(second)):
        left, right = (_statistics(cell, known) for cell in (first[number], second[number]))
        ids = left.index.union(right.index).sort_values()  # the same draws whatever the order of the rows
        for name in [name for name in left.columns if name in right.columns]:
            matched.setdefault(name, {})[number] = np.stack([table[name].reindex(ids) for table in (left, right)])
    for name, seeds in matched.items():
        means = np.full((2, len(set(first) | set(second))), np.nan)
        for place, (number, pairs) in enumerate(seeds.items()):
            if (defined := ~np.isnan(pairs).any(axis=0)).any():
                means[:, place] = pairs[:, defined].mean(axis=1)
            yield {"statistic": name, "over": "instances", "seed": str(number), "pairs": pairs}
        yield {"statistic": name, "over": "seeds", "seed": "all", "pairs": means}


def _statistics(cell: Cell, known: dict[int, pd.DataFrame]) -> pd.DataFrame:
    """Every number per instance of a cell, by instance id; computed once for each cell."""
    if id(cell) not in known:
        known[id(cell)] = pd.DataFrame(sections.numbers(cell), index=cell.instance_ids)
    return known[id(cell)]


def _test(pairs: np.ndarray, over: str, seed: int, draws: int) -> dict[str, float]:
    """Numbers of one test from pairs [2, N], NaN where undefined."""
    fewest = FEWEST_SEEDS if over == "seeds" else 2
    defined = pairs[:, ~np.isnan(pairs).any(axis=0)]
    count = defined.shape[1]
    differences = defined[1] - defined[0]
    low, high = bootstrap_interval(differences, seed=seed) if count >= fewest else (np.nan, np.nan)
    means = defined.mean(axis=1) if count else (np.nan, np.nan)
    return {
        "n": count,
        "n_left_out": pairs.shape[1] - count,
        "mean_first": means[0],
        "mean_second": means[1],
        "difference": differences.mean() if count else np.nan,
        "ci_low": low,
        "ci_high": high,
        "p_value": sign_flip_test(differences, seed=seed, draws=draws),
    }
