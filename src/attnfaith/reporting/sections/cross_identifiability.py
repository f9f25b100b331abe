"""How far cross-attention is from being determined: what a record's `cross_identifiability_...` columns say.

Per head and row, the least and the greatest weight of each source word over all attentions that leave the head's output as
it is, and the distance to a far one of them.
"""

from collections.abc import Callable, Iterator

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.readings import ROW_WORDS, ROWS
from attnfaith.reporting.spec import MAIN, Case, Key, Largest, Mean, Row, Section, Share, Table, counts, per_cell
from attnfaith.reporting.tables import short_number


BEGIN = "cross_identifiability_"
ATTENTION = "alignment_attention"
DETERMINED = 1e-6  # TVD: attention is the only one, to what float32 keeps


@per_cell
def _numbers(cell: Cell) -> list[dict[str, np.ndarray]]:
    """Of each pair [L, 2] each: tvd and width (of the interval of a weight), means over heads, target words and source
    words; top, low and high: the largest weight of each target word and the ends of its interval; zero: share of these that
    could be 0. Those of the largest weight only with attention.
    """
    names = ["tvd", "low", "high"]
    parts = [records.rows(cell.table, BEGIN + name) for name in names]
    weights = records.rows(cell.table, ATTENTION) if ATTENTION in cell.table.column_names else [None] * len(cell)
    made = []
    for tvd, low, high, own in zip(*parts, weights, strict=True):
        values = {"tvd": tvd.mean(axis=(1, 3)), "width": (high - low).mean(axis=(1, 3, 4))}
        if own is not None:
            place = own.argmax(axis=-1)[..., None]
            top, least, most = (np.take_along_axis(one, place, -1)[..., 0] for one in (own, low, high))
            values |= {"top": top, "low": least, "high": most, "zero": (least < DETERMINED).astype(float)}
            values |= {name: values[name].mean(axis=(1, 3)) for name in ("top", "low", "high", "zero")}
        made.append({name: value.astype(np.float64) for name, value in values.items()})
    return made


def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """cross_identifiability_tvd: of the rows that predict target words, the mean over layers, heads and target words, "
    "[N]."""
    return {f"{BEGIN}tvd": np.array([values["tvd"][:, 0].mean() for values in _numbers(cell)])}


def _cases(cell: Cell) -> Iterator[Case]:
    known = _numbers(cell)
    for layer in range(known[0]["tvd"].shape[0]):
        for number, row in enumerate(ROWS):
            values = {name: np.array([one[name][layer, number] for one in known]) for name in known[0]}
            yield Case(values, {"layer": str(layer), "row": row})


def _change_cases(cell: Cell) -> Iterator[Case]:
    names = [name for name in ("change", "change_double") if BEGIN + name in cell.table.column_names]
    yield Case({name: cell.table.column(BEGIN + name).to_numpy(zero_copy_only=False).astype(float) for name in names})


def _short(name: str) -> Callable[[Row], str]:
    """What a page writes of a number that may be small; a dash where it is undefined."""
    return lambda row: "–" if np.isnan(row[name]) else short_number(row[name])


TABLE = Table(
    name="cross_identifiability",
    cases=_cases,
    by=(Key("layer", "layer"), Key("row", "row", lambda row: ROW_WORDS[row["row"]])),
    columns=(
        *counts("tvd", "pairs"),
        Mean("tvd_mean", "mean TVD reached [95 % interval]", of="tvd", interval=MAIN),
        Share("share_determined", "only one attention", of="tvd", interval=None, below=DETERMINED),
        Mean("width_mean", "width of a weight’s interval", of="width", interval=None),
        Mean("weight_mean", "largest weight", of="top", interval=None, optional=True),
        Mean("low_mean", "could be from", of="low", interval=None, optional=True),
        Mean("high_mean", "to", of="high", interval=None, optional=True),
        Mean("share_low_zero", "could be 0", of="zero", interval=None, optional=True),
    ),
    caption="Identifiability of cross-attention",
    note="Other attentions that leave the output of a head as it is, so that no prediction changes; tokens of source words "
    "exchange weights, markers keep theirs. TVD reached: total variation distance between a row and a far one of these, 0 "
    "the same; means over heads and target words of a pair, then over pairs. Only one attention: pairs whose rows are all "
    "determined. Largest weight: of each target word’s heaviest source word, and the ends of its interval; could be 0: "
    "share of these that need no weight at all. A head with values of d numbers determines attention over d + 1 tokens at "
    "most.",
)
CHANGE = Table(
    name="cross_identifiability_change",
    cases=_change_cases,
    columns=(
        *counts("change", "pairs"),
        Largest("change_max", "largest change of a log probability", _short("change_max"), of="change"),
        Largest("change_double_max", "in float64", _short("change_double_max"), of="change_double"),
    ),
    caption="All rows replaced at once",
    note="When every row of all heads and layers has its far alternative: the largest change of the log probability of a "
    "target token, in nats. It is rounding, not an effect.",
)


def _sentences(cell: Cell) -> list[str]:
    known = _numbers(cell)
    tvd = np.mean([values["tvd"][:, 0].mean() for values in known])
    said = f"The rows that predict target words could be others, at a total variation distance of {tvd:.3f} on average, and "
    said += "nothing in the model would notice"
    if "top" in known[0]:
        top, low, high = (np.mean([values[name][:, 0].mean() for values in known]) for name in ("top", "low", "high"))
        said += (
            f"; the largest weight of a target word, {top:.2f} on average, could be anything from {low:.2f} to {high:.2f}"
        )
    return [f"{said}."] if tvd > DETERMINED else ["In every row that predicts a target word attention is the only one."]


SECTION = Section(
    name="cross_identifiability",
    source="after Brunner et al. (2020), section 3",
    place=9,
    chapter="interventions",
    needs=("target_tokens", *(BEGIN + name for name in ("low", "high", "tvd", "change"))),
    uses=(f"{BEGIN}*", ATTENTION),
    per_text=per_text,
    compared=True,
    tables=(TABLE, CHANGE),
    sentences=_sentences,
)
