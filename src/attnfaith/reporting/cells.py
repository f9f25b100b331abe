"""One cell of a record: its identity, predicted classes and rank correlations, computed once for every report part.

A cell is one run of one model on one split: the rows that share every identity column but the instance id.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, wraps

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.rank_agreement import kendall_tau
from attnfaith.support.errors import AttnfaithError, counted


CELL = tuple(records.LABELS)
FINGERPRINTS = {"texts": "fingerprint of the texts", "training_texts": "fingerprint of the training texts"}
"""Columns of CELL that name no model for a reader, in words."""
KINDS = tuple(name for name in CELL if name not in (*FINGERPRINTS, "seed"))
"""Columns of CELL that distinguish kinds of models and data."""
PREFIX = "importance_"


class ReportError(AttnfaithError):
    """Records, names or numbers that cannot be reported as they are."""


def per_cell(make: Callable) -> Callable:
    """Compute a function of a cell (and of other arguments) once: tables, figures and sentences share its result."""

    @wraps(make)
    def remembered(*args: object):
        cell = next(part for part in args if isinstance(part, Cell))
        key = (make, *(part for part in args if part is not cell))
        if key not in cell.results:
            cell.results[key] = make(*args)
        return cell.results[key]

    return remembered


class Cell:
    """The rows of one cell.

    identity: which cell it is, in typed fields. heading: what its rows of a table begin with, by CELL; labels for people.
    measures: names of the importance measures it holds, without the "importance_" prefix, in column order; inputs: those of
    tokens as the model reads them, and not of encoder states. results: of functions that are `per_cell`.
    """

    def __init__(self, identity: records.Identity, table: pa.Table):
        self.identity, self.heading, self.table = identity, identity.heading, table
        self.measures = tuple(name.removeprefix(PREFIX) for name in table.column_names if name.startswith(PREFIX))
        self.inputs = tuple(name for name in self.measures if not name.endswith("_hidden"))
        self.results: dict[tuple, object] = {}

    def __len__(self) -> int:
        return self.table.num_rows

    def has(self, *columns: str) -> bool:
        """Whether it holds all of these columns."""
        return set(columns) <= set(self.table.column_names)

    def column(self, name: str) -> np.ndarray:
        """A column of one number per instance, [N] float64; of draws the first number, NaN without any."""
        if pa.types.is_list(self.table.schema.field(name).type):
            return np.array([row[0] if len(row) else np.nan for row in self.rows(name)], np.float64)
        return self.table.column(name).to_numpy().astype(np.float64)

    def rows(self, name: str) -> list[np.ndarray]:
        """A list column as one array per instance, as `record.rows` has it."""
        return records.rows(self.table, name)

    def stacked(self, name: str) -> np.ndarray:
        """A list column of one shape, [N, ...] float64."""
        return np.stack(self.rows(name)).astype(np.float64)

    def shared(self, name: str) -> list:
        """The list that a column holds in every row, such as the names of the measures of a test."""
        return self.table.column(name)[0].as_py()

    def is_exact(self, name: str, defined: np.ndarray) -> np.ndarray:
        """Whether the certainty of each text is "exact", [N] float64; NaN where not `defined`."""
        certainty = np.array(self.table.column(f"{name}_certainty").to_pylist(), dtype=object)
        return np.where(defined, certainty == "exact", np.nan)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Compared scores: attention with each measure, then gradient with leave-one-out where both are there."""
        both = [("gradient", "leave_one_out")] if {"gradient", "leave_one_out"} <= set(self.measures) else []
        return [("attention", name) for name in self.measures] + both

    @cached_property
    def instance_ids(self) -> list[str]:
        return self.table.column("instance_id").to_pylist()

    @cached_property
    def attention(self) -> list[np.ndarray]:
        return self.rows("attention")

    @cached_property
    def lengths(self) -> np.ndarray:
        """Attendable tokens per instance, [N]; of a pair of sentences its source words."""
        return records.list_lengths(self.table.column("tokens").combine_chunks()).astype(np.int64)

    @cached_property
    def probs(self) -> np.ndarray:
        """Class probabilities, [N, C]; of a model without classes as in `record.OUTPUTS`."""
        return np.stack(self.rows("probs"))

    @cached_property
    def predicted(self) -> np.ndarray:
        """Predicted class per instance, [N]; the lower class on equal probability."""
        return self.probs.argmax(axis=1)

    @cached_property
    def queries(self) -> list[list[str]] | None:
        """The words of each instance's second text, such as a question; None where no instance has any."""
        words = self.table.column("query_tokens").to_pylist() if self.has("query_tokens") else []
        return words if any(words) else None

    @cached_property
    def nested(self) -> bool:
        """Whether its tokens are sentences of words, of a model of two levels. In a record that holds both kinds of models
        each token of the others is a sentence of one word.
        """
        texts = self.rows("words") if self.has("words") else []
        return any(len(words) != 1 for sentences in texts for words in sentences)

    @cached_property
    def settings(self) -> dict:
        """The settings of the measurement, as stored in the record; {} where none are stored for this identity."""
        own = asdict(self.identity)
        return next((part for part in records.settings(self.table) if part.get("identity") == own), {})

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, as the settings stored in the record give them for its data set; () where none do."""
        parts = [part for part in records.settings(self.table) if "label_names" in part]
        own = [part for part in parts if part.get("identity", {}).get("dataset") == self.identity.dataset]
        names = {tuple(part["label_names"]) for part in own}
        return names.pop() if len(names) == 1 else ()

    @cached_property
    def labels(self) -> np.ndarray:
        """Gold class per instance, [N] float; NaN where unknown."""
        return self.column("label")

    def scores(self, name: str) -> list[np.ndarray]:
        """Token scores of "attention" or of one measure, one array per instance. Raises AttnfaithError for any other."""
        if name == "attention":
            return self.attention
        if name not in self.measures:
            raise AttnfaithError(f"the record holds no importance '{name}'; it holds {list(self.measures)}")
        return self.rows(PREFIX + name)

    @per_cell
    def tau(self, first: str, second: str) -> np.ndarray:
        """Kendall's tau-b per instance between two token scores, [N] in -1..1; NaN where undefined."""
        return kendall_tau(self.scores(first), self.scores(second))[0]


def split_cells(record: pa.Table) -> list[Cell]:
    """The cells of a record, in order of first appearance; [] for a record without rows."""
    if record.num_rows == 0:
        return []
    cells = record.column("cell").combine_chunks()
    names = pc.unique(cells).to_pylist()
    return [
        Cell(records.from_row({"cell": name}), record if len(names) == 1 else record.filter(pc.equal(cells, name)))
        for name in names
    ]


def one_cell(record: pa.Table) -> Cell:
    """The only cell of a record. Raises AttnfaithError where there is none or more than one."""
    cells = split_cells(record)
    if len(cells) != 1:
        names = "; ".join(describe(cell.heading) for cell in cells)
        raise AttnfaithError(f"one cell is needed, the record holds {len(cells)} ({names}): filter the record first")
    return cells[0]


def differing_keys(cells: Sequence[Cell], keys: Sequence[str] = CELL) -> list[str]:
    """The parts of the heading that tell cells apart."""
    return [name for name in keys if len({str(cell.heading[name]) for cell in cells}) > 1]


SPELLINGS = {
    "leave_one_out": "leave-one-out",
    "_x_": " × ",
    "attn_lrp": "AttnLRP",
    "lrp": "LRP",
    "decompx": "DecompX",
    "globenc": "GlobEnc",
    "alti": "ALTI",
    "chefer": "rolled attention × gradient",
    "deeplift": "DeepLIFT",
    "kernel_shap": "KernelSHAP",
    "lime": "LIME",
}
QUANTITIES = {"correct": "accuracy", "tau": "τ", "tvd": "TVD", "jsd": "JSD", "aopc": "AOPC", "naopc": "normalised AOPC"}
QUANTITIES |= {"f1": "F1", "iou": "IoU", "auprc": "AUPRC"}


def readable(name: str) -> str:
    """The name of a measure or of a number per text, as what its mean is, for reading: "τ attention–leave-one-out"."""
    for written, read in SPELLINGS.items():
        name = name.replace(written, read)
    return " ".join(QUANTITIES.get(word, word) for word in name.replace("_", " ").split(" "))


def name_class(number: str, names: tuple[str, ...]) -> str:
    """A class for reading: "0" -> "0 negative" where it has a name; "overall" and those without one as they are."""
    if not number.isdecimal() or int(number) >= len(names) or names[int(number)] == number:
        return number
    return f"{number} {names[int(number)]}"


def describe(heading: Mapping[str, object]) -> str:
    """A line that identifies a cell: data set, split, model and seed, without unknown parts."""
    factors = [re.sub(r"\(tokenizer \w+\)", "", str(heading[name])) for name in ("encoder", "alignment", "projection")]
    known = {name: value for name, value in heading.items() if value not in (records.UNKNOWN, records.UNKNOWN_SEED)}
    parts = [f"{heading['dataset']} ({heading['split']})", " + ".join(name for name in factors if name != records.UNKNOWN)]
    parts += [str(known["objective"])] if known.get("objective", "classification") != "classification" else []
    return " · ".join(filter(None, [*parts, *(f"{name} {known[name]}" for name in ("vectors", "seed") if name in known)]))


def undefined(table: pa.Table) -> list[str]:
    """A line for each measure of a record that has no number for some texts with tokens: for how many, and why."""
    lines = []
    for name in (name for name in table.column_names if name.startswith(PREFIX)):
        texts = sum(bool(np.isnan(scores).any()) for scores in records.rows(table, name))
        if texts:
            why, measure = records.column_of(table.schema.field(name)).undefined, readable(name.removeprefix(PREFIX))
            lines.append(f"{measure}: undefined for {texts:,} of {counted(len(table))}{why and f' ({why})'}")
    return lines


def main_measures(cell: Cell) -> tuple[str, ...]:
    """The measures of the page's sentences: attention, gradient and leave-one-out; without either, the first there is, of
    inputs where it can be. The last is the one that attention is held against where one is shown.
    """
    names = tuple(name for name in ("gradient", "leave_one_out") if name in cell.inputs)
    return ("attention", *(names or cell.inputs[:1] or cell.measures[:1]))


def pair_name(first: str, second: str) -> str:
    return f"{first}–{second}"
