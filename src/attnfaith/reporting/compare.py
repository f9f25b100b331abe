"""Records side by side, over what all of them hold: the same texts, the same numbers, and how sure a difference is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from attnfaith import record as records
from attnfaith import terminal
from attnfaith.errors import cut
from attnfaith.escaping import html
from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, Cell, describe, quantity_label, split_cells
from attnfaith.reporting.errors import ReportError
from attnfaith.reporting.tables import format_number, short_number
from attnfaith.stats import Panel, holm, sign_flip_tests


LEVEL = 0.05
FEWEST_DRAWS = 1000
MOST_NAMED = 6  # quantities, seeds or texts that a note names
UNTOLD = "cannot be told"
UNNAMED = ("seed", "texts", "training_texts")  # of a heading: what names no kind of model
FRAME = (
    *("quantity", "first", "second", "over", "n_texts", "n_left_out", "mean_first", "mean_second", "difference"),
    *("ci_low", "ci_high", "p_value", "p_holm", "verdict"),
)


@dataclass(frozen=True, eq=False)
class Side:
    """One kind of model that is compared: its name, and its cells by seed."""

    name: str
    cells: Mapping[int, Cell]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What is to be said of two sides or more; in a notebook and at a prompt it shows itself.

    sides: names in order; every other one is compared with the first. notes: what was compared and what was left out, a
    sentence each. texts: the ids of those that all sides have. cells: of each side the cell of its first seed. frame: a row
    for each number and each side but the first:

    * quantity: the number, one per text: "tau attention–gradient", "correct" (1 where the predicted class is the gold one),
      "permutation_tvd" and what else the records hold
    * over: what the interval is over, "texts" or, where both sides have several seeds, "seeds and texts"
    * n_texts, n_left_out: texts on which the means rest, and shared ones on which one side is undefined
    * mean_first, mean_second, difference (second - first): means over seeds of means over texts; ci_low, ci_high: the 95 %
      interval of the difference, paired by text (and seed), NaN below two texts
    * p_value: `sign_flip_tests` over texts, `Panel.p_values` over seeds and texts. p_holm: corrected for all rows
    * verdict: "higher" or "lower" (the second than the first) where p_holm is at most .05 and the interval is without 0;
      "cannot be told" else, which never means equal; "undefined" without a value
    """

    sides: tuple[str, ...]
    texts: tuple[str, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    frame: pd.DataFrame

    @property
    def n_texts(self) -> int:
        """How many texts all sides have."""
        return len(self.texts)

    @cached_property
    def blocks(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """(what is compared, headings, rows) for reading, of each side but the first."""
        made = []
        for other, rows in self.frame.groupby("second", sort=False):
            headings = ("", "first", "second", "difference", "95 % interval", "p (Holm)", "second is")
            lines = [_line(row) for row in rows.to_dict("records")]
            made.append((f"first: {self.sides[0]}; second: {other}", headings, lines))
        return made

    def __str__(self) -> str:
        parts = [terminal.printable(note) for note in self.notes]
        for title, headings, lines in self.blocks:
            parts += ["", terminal.printable(title), terminal.table(headings, lines)]
        return "\n".join(parts)

    __repr__ = __str__

    def html(self) -> str:
        """The same as HTML, all text in it escaped."""
        parts = [f"<p>{html(note)}</p>" for note in self.notes]
        for title, headings, lines in self.blocks:
            head = "".join(f"<th>{html(text)}</th>" for text in headings)
            body = ["".join(f"<td>{html(text)}</td>" for text in line) for line in lines]
            parts.append(f"<h4>{html(title)}</h4>")
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
            parts += [*(f"<tr>{line}</tr>" for line in body), "</tbody></table>"]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        return self.html()


def compare(tables: Sequence[pa.Table], names: Sequence[str], *, mix_versions: bool = False) -> Comparison:
    """Two records or more over the texts and numbers that all of them hold; every other one against the first.

    Records of models that differ in nothing but their seed are one side, with an interval over seeds and texts; where two of
    these have one seed too, each record is a side of its own. Sides are paired by text: same instance id, same words. Seeds
    are paired by their number, or in order where no number is on both sides.

    names: of the records, for people. mix_versions: also numbers that different code made.

    Raises ReportError for fewer than two records, no text in common, or no number that all hold; RecordError where different
    code made one that is compared.
    """
    if len(tables) != len(names):
        raise ReportError(f"{len(tables)} records have {len(names)} names: give one for each")
    cells = [(name, cell) for name, table in zip(names, tables, strict=True) for cell in split_cells(table)]
    if len(cells) < 2:
        raise ReportError(f"a comparison needs two models or more; given: {', '.join(map(str, names)) or 'none'}")
    sides = _sides(cells)
    used = {name for section in sections.reported() if section.compared for name in section.columns(_columns(tables))}
    if not mix_versions:
        record_of = [table.select(_columns(tables)) for table in tables]
        records.check_one_code(record_of, used, remedy="measure them anew with one, or give --mix-versions")
    texts = _shared_texts(cells)
    numbers, alone = _shared_numbers(cells, texts)
    pairs = [(sides[0], other, *_paired_seeds(sides[0], other)) for other in sides[1:]]
    family = len(pairs) * len(next(iter(numbers.values())).columns)
    rows = [row for pair in pairs for row in _rows(*pair, numbers, family)]
    frame = pd.DataFrame(rows)
    frame["p_holm"] = holm(frame["p_value"])
    frame["verdict"] = [_verdict(row) for row in frame.to_dict("records")]
    notes = _notes(sides, pairs, cells, texts, alone)
    shown = tuple(next(iter(side.cells.values())) for side in sides)
    return Comparison(tuple(side.name for side in sides), tuple(texts), shown, notes, frame[list(FRAME)])


# ------------------------------------------------------------------------------------------------ what is compared


def _columns(tables: Sequence[pa.Table]) -> list[str]:
    """The columns that all records have."""
    return [name for name in tables[0].column_names if all(name in table.column_names for table in tables)]


def _sides(cells: Sequence[tuple[str, Cell]]) -> list[Side]:
    """Cells that differ in nothing but their seed, together."""
    groups: dict[tuple, list[tuple[str, Cell]]] = {}
    for name, cell in cells:
        kind = {key: value for key, value in asdict(cell.identity).items() if key != "seed"}
        groups.setdefault(tuple(kind.items()), []).append((name, cell))
    parts = []
    for group in groups.values():
        seeds = {cell.identity.seed for _, cell in group}
        together = len(groups) > 1 and len(seeds) == len(group)
        parts += [group] if together else [[one] for one in group]
    differing = [key for key in CELL if key not in UNNAMED and len({str(cell.heading[key]) for _, cell in cells}) > 1]
    names = [_name(part, differing) for part in parts]
    numbered = [f"{name} ({names[:place].count(name) + 1})" for place, name in enumerate(names)]
    names = [alone if names.count(alone) == 1 else number for alone, number in zip(names, numbered, strict=True)]
    return [
        Side(name, {cell.identity.seed: cell for _, cell in sorted(part, key=lambda named: named[1].identity.seed)})
        for name, part in zip(names, parts, strict=True)
    ]


def _name(part: Sequence[tuple[str, Cell]], differing: Sequence[str]) -> str:
    """That of the record; of several seeds, what tells this kind of model from the others."""
    name, cell = part[0]
    if len(part) == 1:
        return str(name)
    return " ".join(str(cell.heading[key]) for key in differing) or f"{name} and {len(part) - 1} more seeds"


def _text_of(cell: Cell) -> dict[str, tuple[str, str]]:
    """What each instance reads: its words, and those of its second text. A sentence is the words in it."""
    queries = cell.queries or [[]] * len(cell)
    tokens = cell.table.column("tokens").to_pylist()
    read = (" ".join(words) for words in tokens), (" ".join(words or []) for words in queries)
    return dict(zip(cell.instance_ids, zip(*read, strict=True), strict=True))


def _shared_texts(cells: Sequence[tuple[str, Cell]]) -> list[str]:
    """The ids of the instances that all cells have, and read alike."""
    name, first = cells[0]
    shared = _text_of(first)
    for other, cell in cells[1:]:
        texts = _text_of(cell)
        known = [key for key in shared if key in texts]
        if not known:
            mine, theirs = next(iter(shared), "none"), next(iter(texts), "none")
            raise ReportError(
                f"{name} and {other} have no text in common (such as {cut(mine, 40)!r} and {cut(theirs, 40)!r}): "
                "measure both on the same split of one data set"
            )
        shared = {key: shared[key] for key in known if shared[key] == texts[key]}
        if not shared:
            raise ReportError(
                f"{name} and {other} have {len(known)} instance ids in common, but read other words under each of them: "
                "measure both on the same texts, read by the same tokenizer"
            )
    return sorted(shared)  # the same draws whatever the order of the rows


def _shared_numbers(cells: Sequence[tuple[str, Cell]], texts: Sequence[str]) -> tuple[dict[int, pd.DataFrame], list[str]]:
    """Every number per text that all cells hold, by id() of the cell; and those that only some hold."""
    tables = {id(cell): pd.DataFrame(sections.numbers(cell), index=cell.instance_ids).loc[texts] for _, cell in cells}
    order = list(dict.fromkeys(name for table in tables.values() for name in table.columns))
    names = [name for name in order if all(name in table.columns for table in tables.values())]
    if not names:
        held = "; ".join(f"{name}: {', '.join(tables[id(cell)].columns[:MOST_NAMED]) or 'none'}" for name, cell in cells[:4])
        raise ReportError(f"the records hold no number in common ({held}): measure them with the same producers")
    return {key: table[names] for key, table in tables.items()}, [name for name in order if name not in names]


def _paired_seeds(first: Side, second: Side) -> tuple[list[int], list[int]]:
    """Which seed is held against which."""
    shared = sorted(set(first.cells) & set(second.cells))
    if shared:
        return shared, shared
    count = min(len(first.cells), len(second.cells))
    return sorted(first.cells)[:count], sorted(second.cells)[:count]


# ------------------------------------------------------------------------------------------------ the numbers


def _rows(
    first: Side, second: Side, seeds: Sequence[int], others: Sequence[int], numbers: Mapping[int, pd.DataFrame], family: int
) -> list[dict]:
    """A row for each number of two sides, without what depends on other rows. family: rows that are corrected together."""
    left, right = (
        _panel([numbers[id(side.cells[seed])] for seed in of], family) for side, of in ((first, seeds), (second, others))
    )
    left, right = left.where(right), right.where(left)
    difference = right.minus(left)
    low, high = difference.intervals()
    if len(seeds) == 1:
        p_values = sign_flip_tests(difference.values[:, 0].T, draws=max(9999, 100 * family))
        p_values = np.where(difference.n < 2, np.nan, p_values)
    else:
        p_values = difference.p_values()
    texts = (~np.isnan(difference.values)).any(axis=1).sum(axis=1)
    return [
        {
            "quantity": name,
            "first": first.name,
            "second": second.name,
            "over": "texts" if len(seeds) == 1 else "seeds and texts",
            "n_texts": int(texts[place]),
            "n_left_out": int(difference.values.shape[2] - texts[place]),
            "mean_first": left.means[place],
            "mean_second": right.means[place],
            "difference": difference.means[place],
            "ci_low": low[place],
            "ci_high": high[place],
            "p_value": p_values[place],
        }
        for place, name in enumerate(next(iter(numbers.values())).columns)
    ]


def _panel(tables: Sequence[pd.DataFrame], family: int) -> Panel:
    """Numbers [Q, S, N] of the seeds of one side, with draws enough for the smallest p-value to pass the correction."""
    values = np.stack([table.to_numpy(np.float64).T for table in tables], axis=1)
    return Panel(values, np.ones(values.shape, bool), max(FEWEST_DRAWS, round(4 * family / LEVEL)))


def _verdict(row: Mapping) -> str:
    if np.isnan(row["difference"]):
        return "undefined"
    sure = row["p_holm"] <= LEVEL and (row["ci_low"] > 0 or row["ci_high"] < 0)
    return UNTOLD if not sure else "higher" if row["difference"] > 0 else "lower"


# ------------------------------------------------------------------------------------------------ the words


def _line(row: Mapping) -> tuple[str, ...]:
    low, high = (short_number(row[name], "+") for name in ("ci_low", "ci_high"))
    interval = low if np.isnan(row["ci_low"]) else f"{low} to {high}"
    means = (short_number(row[name]) for name in ("mean_first", "mean_second"))
    difference, p_value = short_number(row["difference"], "+"), format_number(row["p_holm"])
    return quantity_label(row["quantity"]), *means, difference, interval, p_value, row["verdict"]


def _notes(sides, pairs, cells, texts, alone) -> tuple[str, ...]:
    several = [pair for pair in pairs if len(pair[2]) > 1]
    over = "seeds and texts" if len(several) == len(pairs) else "texts" if not several else "texts, and seeds where several"
    notes = [f"{len(sides)} sides over the {len(texts)} texts that all have; intervals are over {over}, paired by text."]
    for side in sides:
        cell = next(iter(side.cells.values()))
        said = describe(cell.heading)
        if len(side.cells) > 1:
            said = f"{said.rpartition(' · seed ')[0]} · seeds {_named(side.cells)}"
        notes.append(f"{side.name}: {said}")
    if over.startswith("texts"):
        notes.append("A difference over texts is one of these trained models; of kinds of models several seeds tell.")
    if longer := [f"{name} {len(cell) - len(texts)}" for name, cell in cells if len(cell) > len(texts)]:
        notes.append(f"Texts left out, which not all have or read alike: {_named(longer)}.")
    for first, second, seeds, others in pairs:
        if seeds != others and len(first.cells) + len(second.cells) > 2:
            notes.append(
                f"No seed is on both sides: {_named(seeds)} of {first.name} with {_named(others)} of {second.name}."
            )
        for side, of in ((first, seeds), (second, others)):
            if left := [seed for seed in side.cells if seed not in of]:
                notes.append(f"Seeds of {side.name} left out, without a partner in the other side: {_named(left)}.")
    if alone:
        notes.append(f"Not compared, as not all have them: {_named(alone)}.")
    return tuple(dict.fromkeys(notes))


def _named(things) -> str:
    things = list(map(str, things))
    more = f" and {len(things) - MOST_NAMED} more" if len(things) > MOST_NAMED else ""
    return ", ".join(things[:MOST_NAMED]) + more
