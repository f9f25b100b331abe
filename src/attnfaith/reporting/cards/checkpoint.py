"""A trained model as its records show it: the numbers of its card, each with its 95 % interval over texts."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.support_agreement import top_k_overlap
from attnfaith.metrics.classification import classification_scores
from attnfaith.reporting.cells import Cell, measure_label, one_cell
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.render import rows
from attnfaith.reporting.sections import adversary, agreement, attention, changes, performance, plausibility
from attnfaith.reporting.spec import Section, counts, main, plain
from attnfaith.reporting.verdicts import verdict
from attnfaith.support.errors import FileError, counted
from attnfaith.support.files import read_object
from attnfaith.verdict import Verdict


NO_TIES = 0.9995
LN2 = {"against": np.log(2), "note": "at most ln 2 = 0.693"}
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
    def of_row(cls, group: str, label: str, row: Mapping, name: str = "mean", *, bounds: str = "", **more) -> "Number":
        """A number of a table's row; bounds: what precedes ci_low and ci_high there."""
        ends = (row[f"{bounds}ci_low"], row[f"{bounds}ci_high"])
        return cls(group, label, row[name], *ends, int(row["n"]), int(row["n_undefined"]), **more)


class Checkpoint:
    """A trained model as its records show it: its numbers about what it reads, not about its encoder's states.

    run: the parsed run.json. tables: its records, of one cell each and of the same weights, or that cell; a number that
    several of them hold is taken from the first.

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
            digests = ", ".join(str(digest)[:12] for digest in weights)
            raise ReportError(f"the records are not of the same weights ({digests}): a card is about one model")

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
        """The unit that a weight belongs to."""
        return "sentence" if self.cell.words else "word"

    @cached_property
    def numbers(self) -> dict[str, Number]:
        """The numbers of the card by key, in the order of its table."""
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


def read_checkpoint(folder: str | os.PathLike) -> Checkpoint:
    """The checkpoint of a finished run's folder: run.json, record.parquet, and other records of the same weights beside it.

    Raises ReportError where the folder is no run, or one that is not complete, and RecordError for a broken record.
    """
    folder = Path(folder)
    try:
        run = read_object(folder / "run.json")
    except FileError as error:
        raise ReportError(f"{folder} is no run: {error}; give the output_dir of one") from error
    if run.get("status") != "complete":
        raise ReportError(
            f"{folder} is not complete (its run.json says {run.get('status')!r}): finish it with --resume_from_checkpoint"
        )
    own = folder / "record.parquet"
    further = sorted(path for path in folder.glob("*.parquet") if path != own)
    return Checkpoint(run, [records.load(path) for path in (own, *further)])


# ------------------------------------------------------------------------------------------------ numbers


def _mean(section: Section, key: str, group: str, name: str, label: str, **more) -> "Measured":
    """The mean of a number per text of a section, by its name there; key: of the card."""

    def measured(cell: Cell) -> Iterator[tuple[str, Number]]:
        numbers = section.numbers(cell)
        if name in numbers:
            yield key, Number.of_row(group, label, section.quantity(name).summary(numbers[name]), **more)

    return measured


def _agreement(cell: Cell) -> Iterator[tuple[str, Number]]:
    """Rank correlation of attention with each importance of inputs, and of two of those with each other."""
    for row in rows(cell, agreement.TABLE):
        first, second = row["pair"].split("–")
        if row["class"] != "overall" or second not in cell.of_inputs.measures:
            continue
        label = f"Kendall’s τ of {measure_label(first)} and {measure_label(second)}"
        tied = row["n"] and row["tie_ceiling"] < NO_TIES
        note = f"ties allow {row['tie_ceiling']:.3f}; over that, {row['tau_over_ceiling']:.3f}" if tied else ""
        key = f"kendall_tau.{second}" if first == "attention" else f"kendall_tau.{first}.{second}"
        yield key, Number.of_row(AGREEMENT, label, row, "tau_mean", against=row["tie_ceiling"], note=note)
    for name in cell.of_inputs.measures:
        overlap, chance = top_k_overlap(cell.attention, cell.scores(name))
        label = f"share of the heaviest fifth of tokens among the fifth that {measure_label(name)} puts first"
        row = counts(overlap) | main("mean", overlap)
        yield f"top_k_overlap.{name}", Number.of_row(AGREEMENT, label, row, **_chance(plain(chance=chance)["chance"]))


def _chance(chance: float) -> dict[str, object]:
    return {"against": chance, "note": "" if np.isnan(chance) else f"chance {chance:.3f}"}


def _shuffled(cell: Cell) -> Iterator[tuple[str, Number]]:
    """The prediction under the same weights in another order; of two experiments the one with more draws."""
    for section in (changes.PERMUTATION, changes.RANDOM_SUPPORT, changes.MAP_PERMUTATION):
        if section.applies(cell):
            break
    else:
        return
    group, start = MAPS, "weights shuffled in all heads of the changed layers: "
    if section is not changes.MAP_PERMUTATION:
        draws = max(map(len, cell.rows(section.needs[0])), default=0)
        group, start = STATES, f"weights shuffled {draws} times: "
    numbers = section.numbers(cell)
    tvd, flips = (section.quantity(name).summary(numbers[name]) for name in (f"{section.name}_tvd", f"{section.name}_flips"))
    small = Number.of_row(group, f"{start}texts that move by less than 0.05", tvd, "share_beyond", bounds="share_beyond_")
    yield "shuffled.tvd", Number.of_row(group, f"{start}median change of the prediction (TVD)", tvd)
    yield "shuffled.small", small
    yield "shuffled.flips", Number.of_row(group, f"{start}share of draws that change the decision", flips)


def _adversary(cell: Cell) -> Iterator[tuple[str, Number]]:
    """At the smallest epsilon of the record; the exact solution where it holds one, else the search."""
    held = rows(cell, adversary.TABLE) if adversary.SECTION.applies(cell) else []
    overall = [row for row in held if row["class"] == "overall"]
    if overall:
        row = min(overall, key=lambda row: (row["epsilon"], row["method"] != "exact"))
        exact = row["method"] == "exact"
        largest = "largest" if exact and row["share_exact"] == 1 else "largest found"
        start = f"attention that moves the prediction by at most {row['epsilon']:g}: "
        label = f"{start}its {largest} distance from the model’s (JSD in nats)"
        yield "adversary.jsd", Number.of_row(STATES, label, row, "jsd_mean", **LN2)
        if exact:
            label, bounds = f"{start}texts where one token can have all the weight", "share_one_token_"
            yield "adversary.one_token", Number.of_row(STATES, label, row, "share_one_token", bounds=bounds)


def _plausibility(cell: Cell) -> Iterator[tuple[str, Number]]:
    for row in rows(cell, plausibility.TABLE) if plausibility.SECTION.applies(cell) else []:
        if row["scores"] == "attention":
            group, label = "evidence that people marked", "average precision of attention against the marked tokens"
            more = _chance(row["random_baseline"])
            yield "rationale_auprc", Number.of_row(group, label, row, "auprc_mean", **more)


Measured = Callable[[Cell], Iterator[tuple[str, Number]]]
SPREAD = {
    "normalised_entropy": ("entropy attention", "entropy over its maximum; 1: all tokens alike"),
    "support_size": ("support attention", "tokens with weight"),
    "share_of_zeros": ("zeros attention", "share of a text’s tokens without weight"),
}
FURTHEST_MAPS = "attention of other maps that keep the prediction: its largest found distance from the model’s (JSD in nats)"
MEASURED: tuple[Measured, ...] = (
    _mean(performance.SECTION, "accuracy", "classification", "correct", "accuracy"),
    _agreement,
    *(_mean(attention.DISPERSION, key, CONCENTRATION, *labels) for key, labels in SPREAD.items()),
    _mean(
        *(attention.MARKER_ATTENTION, "marker_attention", CONCENTRATION),
        *("marker_attention", "share of attention that lies on markers"),
    ),
    _mean(
        *(attention.GROUP_MASS, "mass.impermissible", CONCENTRATION),
        *("group_mass_impermissible", "share of attention on words that it should not need"),
    ),
    _shuffled,
    _adversary,
    _mean(changes.MAP_ADVERSARY, "adversary.jsd", MAPS, "map_adversary_jsd", FURTHEST_MAPS, **LN2),
    _plausibility,
)


# ------------------------------------------------------------------------------------------------ words


def in_words(number: Number, share: bool = False) -> str:
    """The number with its interval, as a sentence has it; share: in percent."""
    value, low, high = (f"{100 * v:.1f} %" if share else f"{v:.2f}" for v in (number.value, number.low, number.high))
    return value if np.isnan(number.low) else f"{value} [{low}, {high}]"


def only_reason(checkpoint: Checkpoint) -> list[str]:
    """Sentences that answer whether these weights are the only reason for a decision; they never decide the verdict."""
    numbers = {key: number for key, number in checkpoint.numbers.items() if not np.isnan(number.low)}
    sentences = []
    if "shuffled.tvd" in numbers:
        small, flips = checkpoint.numbers["shuffled.small"], checkpoint.numbers["shuffled.flips"]
        sentences.append(
            f"Shuffled weights move the prediction by less than 0.05 in {in_words(small, share=True)} of "
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
        sentences.append(
            f"Kendall’s τ of its {checkpoint.unit}s with importance measures: {listed}. 1 is the same order, 0 no relation."
        )
    return sentences
