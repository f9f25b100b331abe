"""What was measured of one checkpoint, each number with its 95 % interval over texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cells import Cell, measure_label, one_cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import adversary, attention, changes
from attnfaith.reporting.sections.agreement import agreement_table
from attnfaith.reporting.sections.plausibility import plausibility_table
from attnfaith.reporting.verdicts import verdict
from attnfaith.stats import estimate, mean
from attnfaith.support.errors import counted
from attnfaith.verdict import Verdict


SMALL = 0.05  # change of a prediction (TVD)
NO_TIES = 0.9995
LN2 = "at most ln 2 = 0.693"
AGREEMENT, CONCENTRATION, STATES, MAPS = (
    "agreement with importance",
    "concentration",
    "other weights, same states",
    "other attention maps",
)
"""Groups of numbers."""


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

    @classmethod
    def of(cls, group: str, label: str, values: np.ndarray, against: float = np.nan, note: str = "") -> "Number":
        """The mean of values [N] per text, NaN undefined."""
        defined = values[~np.isnan(values)]
        return cls(group, label, *estimate("", defined).values(), len(defined), len(values) - len(defined), against, note)

    @classmethod
    def of_row(cls, group: str, label: str, row: Mapping, name: str, *, bounds: str = "", **more) -> "Number":
        """A number that a table holds already; bounds: what precedes ci_low and ci_high there."""
        ends = (row[f"{bounds}ci_low"], row[f"{bounds}ci_high"])
        return cls(group, label, row[name], *ends, int(row["n"]), int(row["n_undefined"]), **more)


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
                for key, number in measured(cell):
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


# ------------------------------------------------------------------------------------------------ numbers


def _performance(cell: Cell) -> Iterator[tuple[str, Number]]:
    correct = np.where(np.isnan(cell.labels), np.nan, cell.predicted == cell.labels)
    yield "accuracy", Number.of("classification", "accuracy", correct)


def _agreement(cell: Cell) -> Iterator[tuple[str, Number]]:
    """Rank correlation of attention with each importance of inputs, and of two of those with each other."""
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
        yield key, Number.of_row(AGREEMENT, label, row, "tau_mean", against=row["tie_ceiling"], note=note)
    for name in cell.of_inputs.measures:
        overlap, chance = top_k_overlap(cell.attention, cell.scores(name))
        chance = mean(chance[~np.isnan(chance)])
        label = f"share of the heaviest fifth of tokens among the fifth that {measure_label(name)} puts first"
        yield f"top_k_overlap.{name}", Number.of(AGREEMENT, label, overlap, chance, _chance(chance))


def _chance(chance: float) -> str:
    return "" if np.isnan(chance) else f"chance {chance:.3f}"


def _concentration(cell: Cell) -> Iterator[tuple[str, Number]]:
    values = attention.dispersion(cell)
    for key, name, label in (
        ("normalised_entropy", "entropy", "entropy over its maximum; 1: all tokens alike"),
        ("support_size", "support", "tokens with weight"),
        ("share_of_zeros", "zeros", "share of a text’s tokens without weight"),
    ):
        yield key, Number.of(CONCENTRATION, label, values[f"{name} attention"])
    if attention.MARKER_ATTENTION.applies(cell):
        marked = cell.column("marker_attention")
        yield "marker_attention", Number.of(CONCENTRATION, "share of what is shown that lies on markers", marked)
    if attention.GROUP_MASS.applies(cell) and "group_mass_impermissible" in (groups := attention.group_mass(cell)):
        label = "share of attention on words that it should not need"
        yield "mass.impermissible", Number.of(CONCENTRATION, label, groups["group_mass_impermissible"])


def _shuffled(cell: Cell) -> Iterator[tuple[str, Number]]:
    """What the same weights do in another order."""
    for column in ("permuted_probs", "random_support_probs"):  # the second has fewer draws of the same
        if column in cell.table.column_names:
            distance, flips = changes.changes(cell, column)
            draws = max((len(rows) for rows in records.rows(cell.table, column)), default=0)
            yield from _moved(STATES, f"weights shuffled {draws} times: ", distance, flips)
            return
    if changes.MAP_PERMUTATION.applies(cell):
        start = "weights shuffled in all heads of the changed layers: "
        yield from _moved(MAPS, start, *changes.changes(cell, "map_permuted_probs"))


def _moved(group: str, start: str, distance: np.ndarray, flips: np.ndarray) -> Iterator[tuple[str, Number]]:
    small = np.where(np.isnan(distance), np.nan, distance < SMALL)
    yield "shuffled.tvd", Number.of(group, f"{start}median change of the prediction (TVD)", distance)
    yield "shuffled.small", Number.of(group, f"{start}texts that move by less than {SMALL:g}", small)
    yield "shuffled.flips", Number.of(group, f"{start}share of draws that change the decision", flips)


def _adversary(cell: Cell) -> Iterator[tuple[str, Number]]:
    """At the smallest epsilon of the record; the exact solution where it holds one, else the search."""
    rows = frame(adversary.TABLE, [cell])
    if len(rows):
        rows = rows[(rows["class"] == "overall") & (rows["epsilon"] == rows["epsilon"].min())].to_dict("records")
        row = next((row for row in rows if row["method"] == "exact"), rows[0])
        exact = row["method"] == "exact"
        largest = "largest" if exact and row["share_exact"] == 1 else "largest found"
        start = f"attention that moves the prediction by at most {row['epsilon']:g}: "
        label = f"{start}its {largest} distance from the model’s (JSD in nats)"
        yield "adversary.jsd", Number.of_row(STATES, label, row, "jsd_mean", against=np.log(2), note=LN2)
        if exact:
            label, bounds = f"{start}texts where one token can have all the weight", "share_one_token_"
            yield "adversary.one_token", Number.of_row(STATES, label, row, "share_one_token", bounds=bounds)
    if changes.MAP_ADVERSARY.applies(cell):
        label = "attention of other maps that keep the prediction: its largest found distance from the model’s (JSD in nats)"
        distance = changes.map_adversary(cell)["map_adversary_jsd"]
        yield "adversary.jsd", Number.of(MAPS, label, distance, np.log(2), LN2)


def _plausibility(cell: Cell) -> Iterator[tuple[str, Number]]:
    table = plausibility_table([cell])
    for row in table[table["scores"] == "attention"].to_dict("records"):
        group, label = "evidence that people marked", "average precision of attention against the marked tokens"
        chance = row["random_baseline"]
        yield "rationale_auprc", Number.of_row(group, label, row, "auprc_mean", against=chance, note=_chance(chance))


MEASURED: tuple[Callable[[Cell], Iterator[tuple[str, Number]]], ...] = (
    _performance,
    _agreement,
    _concentration,
    _shuffled,
    _adversary,
    _plausibility,
)


# ------------------------------------------------------------------------------------------------ words


def in_words(number: Number, share: bool = False) -> str:
    """The number with its interval, as a sentence has it; "undefined" where it is. share: in percent."""
    if np.isnan(number.value):
        return "undefined"
    value, low, high = (f"{100 * v:.1f} %" if share else f"{v:.2f}" for v in (number.value, number.low, number.high))
    return value if np.isnan(number.low) else f"{value} [{low}, {high}]"


def only_reason(checkpoint: Checkpoint) -> list[str]:
    """Sentences that answer whether these weights are the only reason for a decision; they never decide the verdict."""
    numbers = {key: number for key, number in checkpoint.numbers.items() if not np.isnan(number.low)}
    sentences = []
    if "shuffled.tvd" in numbers:
        small, flips = checkpoint.numbers["shuffled.small"], checkpoint.numbers["shuffled.flips"]
        sentences.append(
            f"Shuffled weights move the prediction by less than {SMALL:g} in {in_words(small, share=True)} of "
            f"{counted(small.n)}, and change {100 * flips.value:.1f} % of the decisions."
        )
    if "adversary.jsd" in numbers:
        sentences.append(
            f"Another attention with nearly the same prediction lies {in_words(numbers['adversary.jsd'])} nats away; at "
            "0.69 the two share no weight. A large number says that other weights lead to the same prediction."
        )
    taus = {key.split(".")[1]: n for key, n in numbers.items() if key.startswith("kendall_tau.") and key.count(".") == 1}
    if taus:
        listed = "; ".join(f"{measure_label(name)} {in_words(number)}" for name, number in taus.items())
        unit = checkpoint.unit
        sentences.append(
            f"Kendall’s τ of its {unit}s with importance measures: {listed}. 1 is the same order, 0 no relation."
        )
    return sentences
