"""Where measures lie between the worst and the best order, from `aopc_limits_...` and `weight_aopc_limits_...`.

Per text: normalised AOPC, (AOPC - low) / (high - low), 0 for the worst order that is known and 1 for the best. Where the
limits are not exact, the true value lies between (AOPC - low) / (bound - low) and (AOPC - bound) / (high - bound), which the
table has too. Undefined for a text all of whose orders are alike, such as one of one token. Source: Edin et al. (2025).
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.errors import counted
from attnfaith.reporting.cells import Cell, measure_label
from attnfaith.reporting.explanation_tests import column, shared, stacked
from attnfaith.reporting.spec import MAIN, Case, Key, Mean, Section, Table, counts, per_cell


REMOVALS = {"aopc_limits": "tokens taken away", "weight_aopc_limits": "weights erased"}
ENDS = ("low", "high", "low_bound", "high_bound")
ALIKE = 1e-9  # limits that are as close are of orders that make no difference


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """naopc_<measure>, of tokens taken away, and weight_naopc_<measure>: by the orders that were met, 0..1."""
    return {
        f"{start.removesuffix('aopc_limits')}naopc_{name}": values["naopc"]
        for start in REMOVALS
        for name, values in _of_measures(cell, start).items()
    }


@per_cell
def _measured(cell: Cell) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    return {start: _limits(cell, start) for start in REMOVALS if f"{start}_aopc" in cell.table.column_names}


def _of_measures(cell: Cell, start: str) -> dict[str, dict[str, np.ndarray]]:
    return _measured(cell).get(start, {})


def _limits(cell: Cell, start: str) -> dict[str, dict[str, np.ndarray]]:
    """Of each measure: aopc, naopc, naopc_low, naopc_high (what is certain), limit and share_exact, [N] each."""
    names, aopc = shared(cell, f"{start}_measures"), stacked(cell, f"{start}_aopc")
    low, high, low_bound, high_bound = (column(cell, f"{start}_{end}") for end in ENDS)
    certainty = np.array(cell.table.column(f"{start}_certainty").to_pylist(), dtype=object)
    differ = high - low > ALIKE
    measured = {}
    for place, name in enumerate(names):
        one = aopc[:, place]
        measured[name] = {
            "aopc": one,
            "naopc": _share(one, low, high, differ),
            "naopc_low": _share(one, low, high_bound, differ),
            "naopc_high": _share(one, low_bound, high, differ),
            "low": low,
            "high": high,
            "exact": np.where(np.isnan(low), np.nan, certainty == "exact"),
        }
    return measured


def _share(one: np.ndarray, low: np.ndarray, high: np.ndarray, differ: np.ndarray) -> np.ndarray:
    return np.divide(one - low, high - low, out=np.full(len(one), np.nan), where=differ)


def _cases(cell: Cell) -> Iterator[Case]:
    for start in REMOVALS:
        for name, values in _of_measures(cell, start).items():
            yield Case(values, {"removal": start, "scores": name})


TABLE = Table(
    name="aopc_limits",
    cases=_cases,
    by=(
        Key("removal", "removal", lambda row: REMOVALS[row["removal"]]),
        Key("scores", "order of", lambda row: measure_label(row["scores"])),
    ),
    columns=(
        *counts("naopc"),
        Mean("naopc_mean", "normalised AOPC [95 % interval]", of="naopc", interval=MAIN),
        Mean("naopc_low_mean", "certainly from", of="naopc_low", interval=None),
        Mean("naopc_high_mean", "to", of="naopc_high", interval=None),
        Mean("aopc_mean", "AOPC", of="aopc"),
        Mean("low_mean", "worst order met", of="low", interval=None),
        Mean("high_mean", "best order met", of="high", interval=None),
        Mean("share_exact", "limits exact", of="exact", interval=None),
    ),
    caption="AOPC between its limits",
    note="AOPC: mean fall of the probability of the predicted class while one token after the other goes, in a measure’s "
    "order. Normalised: 0 for the worst order of the text’s tokens that was met, 1 for the best. Where limits are not "
    "exact, an order that was not met may be worse or better: certainly from … to are the means of what the proved bounds "
    "leave. Undefined: texts without limits, such as those of one token, and measures that are.",
)


def _sentences(cell: Cell) -> list[str]:
    said = []
    for start, removal in REMOVALS.items():
        measured = _of_measures(cell, start)
        shares = {name: values["naopc"][~np.isnan(values["naopc"])] for name, values in measured.items()}
        shares = {name: values.mean() for name, values in shares.items() if len(values)}
        if not shares:
            said += [f"No text has orders that differ ({removal})."] * bool(measured)
            continue
        parts = [f"{measure_label(name)} {share:.2f}" for name, share in sorted(shares.items(), key=lambda one: -one[1])]
        exact = next(iter(measured.values()))["exact"]
        said.append(
            f"Between the worst order (0) and the best one (1) that were met, with {removal}: {', '.join(parts)}; limits "
            f"are exact in {np.nanmean(exact):.0%} of {counted((~np.isnan(exact)).sum())}."
        )
    return said


SECTION = Section(
    name="aopc_limits",
    source="Edin et al. (2025), Normalized AOPC",
    place=81,
    one_of=("aopc_limits_aopc", "weight_aopc_limits_aopc"),
    uses=("aopc_limits_*", "weight_aopc_limits_*"),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=_sentences,
)
