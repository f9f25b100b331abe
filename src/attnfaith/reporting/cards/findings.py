"""What was measured of one checkpoint, each number with its 95 % interval over texts."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cards import hiding, stacks
from attnfaith.reporting.cells import Cell, measure_label, one_cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.render import frame, frames
from attnfaith.reporting.sections import adversary, erasure, permutation
from attnfaith.reporting.sections.agreement import agreement_table, reference_measure
from attnfaith.reporting.sections.dispersion import INPUTS_OF_STATES, instance_dispersion
from attnfaith.reporting.sections.plausibility import plausibility_table
from attnfaith.reporting.verdicts import verdict
from attnfaith.stats import estimate, mean
from attnfaith.verdict import Verdict


SMALL = 0.05  # change of a prediction (TVD)
NO_TIES = 0.9995


class Number(NamedTuple):
    """A mean over texts.

    value with its 95 % interval low, high; n: the texts it is over; n_undefined: those it leaves out; group, label: what it
    is; against: chance, or what ties allow; note: words on it. NaN undefined.
    """

    group: str
    label: str
    value: float
    low: float
    high: float
    n: int
    n_undefined: int
    against: float = np.nan
    note: str = ""


class Checkpoint:
    """A trained model as its records show it: what it reads, not its encoder's states.

    run: the parsed run.json. tables: its records, of one cell each and of the same weights, or that cell; what several of
    them hold is taken from the first.

    Raises ReportError where there is no record, a record holds several cells, or two are of different weights.
    """

    def __init__(self, run: Mapping, tables: "pa.Table | Cell | Sequence[pa.Table]"):
        tables = [tables] if isinstance(tables, pa.Table | Cell) else list(tables)
        if not tables:
            raise ReportError("a card needs a record of the model; none was given")
        self.run = run
        self._measured = [one_cell(table) for table in tables]
        self.cells = [cell.of_inputs for cell in self._measured]
        self.settings = [next(iter(records.settings(cell.table)), {}) for cell in self.cells]
        weights = [part.get("model") for part in self.settings]
        if len(tables) > 1 and (None in weights or len(set(weights)) > 1):
            shown = ", ".join(str(digest)[:12] for digest in weights)
            raise ReportError(f"the records are not of the same weights ({shown}): a card is of one model")

    @property
    def cell(self) -> Cell:
        return self.cells[0]

    @property
    def heading(self) -> dict:
        return self.cell.heading

    @property
    def recipe(self) -> Mapping:
        """The recipe of the run; {} where the record does not hold it."""
        return self.settings[0].get("recipe", {})

    @property
    def unit(self) -> str:
        """What one weight belongs to."""
        return "sentence" if self.cell.words else "word"

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """Every number of the card by its key, in the order of the table."""
        numbers: dict[str, Number] = {}
        for measured in MEASURED:
            for cell in self._measured:
                for key, number in measured(cell).items():
                    numbers.setdefault(key, number)
        return numbers

    @cached_property
    def scores(self) -> dict[str, float]:
        """`classification_scores` of the first record."""
        return classification_scores(self.cell.probs, self.cell.labels)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether its attention may be shown."""
        return verdict(self.cells)

    def of_kind(self, kind: str) -> dict[str, Number]:
        """The numbers whose key is <kind>.<measure>, by that measure."""
        parts = {key: key.split(".") for key in self.numbers}
        return {part[1]: self.numbers[key] for key, part in parts.items() if len(part) == 2 and part[0] == kind}


# ------------------------------------------------------------------------------------------------ numbers


def _number(group: str, label: str, values: np.ndarray, against: float = np.nan, note: str = "") -> Number:
    """The mean of values [N] per text, NaN undefined."""
    defined = values[~np.isnan(values)]
    value, low, high = estimate("", defined).values()
    return Number(group, label, value, low, high, len(defined), len(values) - len(defined), against, note)


def _of_row(group: str, label: str, row: Mapping, name: str, n: str = "n", *, bounds: str = "", **more) -> Number:
    """A number that a table holds already; bounds: what precedes ci_low and ci_high there."""
    low, high = row[f"{bounds}ci_low"], row[f"{bounds}ci_high"]
    return Number(group, label, row[name], low, high, int(row[n]), int(row["n_undefined"]), **more)


def _performance(cell: Cell) -> dict[str, Number]:
    correct = np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels)
    return {"accuracy": _number("classification", "accuracy", correct)}


def _agreement(cell: Cell) -> dict[str, Number]:
    """Rank correlation of attention with each importance of inputs, and of two of those with each other."""
    group, numbers = "agreement with importance", {}
    table = agreement_table([cell])
    for row in table[table["class"] == "overall"].to_dict("records"):
        first, second = row["pair"].split("–")
        if second in cell.measures and second not in cell.of_inputs.measures:
            continue
        label = f"Kendall’s τ of {measure_label(first)} and {measure_label(second)}"
        note = ""
        if row["n"] and row["tie_ceiling"] < NO_TIES:
            note = f"ties allow {row['tie_ceiling']:.3f}; over that, {row['tau_over_ceiling']:.3f}"
        key = f"kendall_tau.{second}" if first == "attention" else f"kendall_tau.{first}.{second}"
        numbers[key] = _of_row(group, label, row, "tau_mean", against=row["tie_ceiling"], note=note)
    for name in cell.of_inputs.measures:
        overlap, chance = top_k_overlap(cell.attention, cell.scores(name))
        chance = mean(chance[~np.isnan(chance)])
        label = f"share of the heaviest fifth of tokens among the fifth that {measure_label(name)} puts first"
        numbers[f"top_k_overlap.{name}"] = _number(group, label, overlap, chance, _chance(chance))
    return numbers


def _chance(chance: float) -> str:
    return "" if np.isnan(chance) else f"chance {chance:.3f}"


def _heaviest(cell: Cell) -> dict[str, Number]:
    """Whether the heaviest token is the one that the reference measure puts first, and how often that one has little weight.

    Of several heaviest tokens one is drawn, in expectation; any of several most important ones will do. Undefined below two
    tokens and where all tokens are as important.
    """
    measure = reference_measure(cell.of_inputs)
    if measure is None:
        return {}
    hits, chance, little, none = (np.full(len(cell), np.nan) for _ in range(4))
    for row, (weights, scores) in enumerate(zip(cell.attention, cell.scores(measure), strict=True)):
        if len(weights) < 2 or not np.ptp(scores) > 0:  # of NaN neither
            continue
        first, heaviest = scores == scores.max(), weights == weights.max()
        hits[row], chance[row] = np.mean(first[heaviest]), np.mean(first)
        little[row] = np.mean(weights[first] < 1 / len(weights))
        none[row] = np.mean(weights[first] == 0)
    group, label, expected = "the most important token", measure_label(measure), mean(chance[~np.isnan(chance)])
    start = f"texts where the token that {label} puts first has"
    return {
        f"heaviest_is_first.{measure}": _number(
            group, f"texts where the heaviest token is the one that {label} puts first", hits, expected, _chance(expected)
        ),
        f"first_is_light.{measure}": _number(group, f"{start} less than an equal share of the weight", little),
        f"first_is_weightless.{measure}": _number(group, f"{start} no weight", none),
    }


def _concentration(cell: Cell) -> dict[str, Number]:
    values, group = instance_dispersion(cell), "concentration"
    numbers = {
        "normalised_entropy": _number(group, "entropy over its maximum; 1: all tokens alike", values["entropy attention"]),
        "support_size": _number(group, "tokens with weight", values["support attention"]),
        "share_of_zeros": _number(group, "share of a text’s tokens without weight", values["zeros attention"]),
    }
    if (own := f"own {INPUTS_OF_STATES}") in values:
        label = "share of its own token in what a state depends on"
        numbers["own_share"] = _number("what is attended to", label, values[own])
    return numbers


def _shuffled(column: str, cell: Cell) -> dict[str, Number]:
    """What the same weights do in another order."""
    if column not in cell.table.column_names:
        return {}
    distance, flips = permutation.changes(cell, column)
    draws = max((len(rows) for rows in records.rows(cell.table, column)), default=0)
    small = np.where(np.isnan(distance), np.nan, distance < SMALL)
    group, start = "other weights, same states", f"weights shuffled {draws} times: "
    return {
        "shuffled.tvd": _number(group, f"{start}median change of the prediction (TVD)", distance),
        "shuffled.small": _number(group, f"{start}texts that move by less than {SMALL:g}", small),
        "shuffled.flips": _number(group, f"{start}share of draws that change the decision", flips),
    }


def _adversary(cell: Cell) -> dict[str, Number]:
    """At the smallest epsilon of the record; the exact solution where it holds one, else the search."""
    rows = frame(adversary.TABLE, [cell])
    if rows.empty:
        return {}
    rows = rows[(rows["class"] == "overall") & (rows["epsilon"] == rows["epsilon"].min())].to_dict("records")
    row = next((row for row in rows if row["method"] == "exact"), rows[0])
    largest = "largest" if row["method"] == "exact" and row["share_exact"] == 1 else "largest found"
    group, start = "other weights, same states", f"attention that moves the prediction by at most {row['epsilon']:g}: "
    label = f"{start}its {largest} distance from the model’s (JSD in nats)"
    numbers = {"adversary.jsd": _of_row(group, label, row, "jsd_mean", against=np.log(2), note="at most ln 2 = 0.693")}
    if row["method"] == "exact":
        label = f"{start}texts where one token can have all the weight"
        numbers["adversary.one_token"] = _of_row(group, label, row, "share_one_token", bounds="share_one_token_")
    return numbers


def _erasure(cell: Cell) -> dict[str, Number]:
    tables = frames(erasure.SECTION, [cell])
    if not tables:
        return {}
    numbers, group = {}, "weights removed"
    flips, several = tables["erasure_decision_flips"], tables["erasure_multi_weight"]
    words = {"only_top": "without the largest weight but not without a random other one", "only_random": "the reverse"}
    for outcome, text in words.items():
        (row,) = flips[(flips["ranking"] == "attention") & (flips["outcome"] == outcome)].to_dict("records")
        numbers[f"erasure.{outcome}"] = _of_row(group, f"texts whose decision changes: {text}", row, "share")
    several = several[(several["removal"] == "renormalised") & several["allow_empty"]]
    for ranking, text in (("attention", "by decreasing weight"), ("minimum", "smallest set")):
        for row in several[several["ranking"] == ranking].to_dict("records"):
            label = f"share of tokens removed until the decision changes: {text}"
            note = f"never changes in {row['n_never']:,}"
            numbers[f"removed.{ranking}"] = _of_row(group, label, row, "fraction_mean", "n_averaged", note=note)
    return numbers


def _maps(cell: Cell) -> dict[str, Number]:
    """Of a stack of layers: what is left out of what is shown, and what other maps do."""
    return {key: _number(*given) for key, given in stacks.numbers(cell, SMALL).items()}


def _hidden(cell: Cell) -> dict[str, Number]:
    """Of words that the model should not need, and of states."""
    return {key: _number(*given) for key, given in hiding.numbers(cell).items()}


def _plausibility(cell: Cell) -> dict[str, Number]:
    table = plausibility_table([cell])
    rows = table[table["scores"] == "attention"].to_dict("records")
    if not rows:
        return {}
    group, label = "evidence that people marked", "average precision of attention against the marked tokens"
    chance = rows[0]["random_baseline"]
    return {"rationale_auprc": _of_row(group, label, rows[0], "auprc_mean", against=chance, note=_chance(chance))}


MEASURED: tuple[Callable[[Cell], dict[str, Number]], ...] = (
    _performance,
    _agreement,
    _heaviest,
    _concentration,
    partial(_shuffled, "permuted_probs"),
    partial(_shuffled, "random_support_probs"),  # fewer draws of the same
    _adversary,
    _maps,
    _hidden,
    _erasure,
    _plausibility,
)


# ------------------------------------------------------------------------------------------------ words


def percent(share: float) -> str:
    """ "12.3 %"."""
    return f"{100 * share:.1f} %"


def in_words(number: Number, show: Callable[[float], str] = "{:.2f}".format) -> str:
    """The number with its interval, as a sentence has it; "undefined" where it is."""
    if np.isnan(number.value):
        return "undefined"
    if np.isnan(number.low):
        return show(number.value)
    return f"{show(number.value)} [{show(number.low)}, {show(number.high)}]"


def only_reason(checkpoint: Checkpoint) -> list[str]:
    """Sentences that answer whether these weights are the only reason for a decision; they never decide the verdict."""
    numbers, unit = checkpoint.numbers, checkpoint.unit
    sentences = []
    shift, distance = (numbers.get(key) for key in ("shuffled.tvd", "adversary.jsd"))
    if shift is not None and not np.isnan(shift.low):
        small, flips = numbers["shuffled.small"], numbers["shuffled.flips"]
        sentences.append(
            f"Shuffled weights move the prediction by less than {SMALL:g} in {in_words(small, percent)} of "
            f"{counted(small.n)}, and change {percent(flips.value)} of the decisions."
        )
    if distance is not None and not np.isnan(distance.low):
        sentences.append(
            f"Another attention with nearly the same prediction lies {in_words(distance)} nats away; at 0.69 the two share "
            "no weight. A large number says that other weights lead to the same prediction."
        )
    taus = {name: number for name, number in checkpoint.of_kind("kendall_tau").items() if not np.isnan(number.low)}
    if taus:
        listed = "; ".join(f"{measure_label(name)} {in_words(number)}" for name, number in taus.items())
        sentences.append(
            f"Kendall’s τ of its {unit}s with importance measures: {listed}. 1 is the same order, 0 no relation."
        )
    return sentences
