"""All texts of a cell on the page: what its script reads to sort, filter and show them, and to try other attentions.

Numbers are those of the record, to the bit, so that what the page computes is what the library computes. Shapes: N texts, T
tokens of one, C classes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.escaping import script_data
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, measure_label, name_class
from attnfaith.reporting.one_file import packed
from attnfaith.reporting.page.heatmap import HUES, direction_of, query_of, shown_measures, visible
from attnfaith.reporting.page.recorded import Recorded, recorded_answers
from attnfaith.reporting.sections.agreement import main_measures


SCRIPTS = ("what_if", "texts")
"""The scripts of the page, in their order."""
MOST_BYTES = 8_000_000
"""Of the data of all cells of a page. Above it a cell's texts are a sample."""
SAMPLE_SEED = 0
VALUES, BIAS, FLIPS = "token_logits", "token_logits_bias", "minimal_flip_size"


@dataclass(frozen=True)
class Instrument:
    """html: the markup of one cell's instrument with its data; id: of its element, after which the page names what stands in
    its place where no script runs. shown: how many texts it holds; of: how many there are.
    """

    html: Markup
    id: str
    shown: int
    of: int


def instrument(cell: Cell, place: int, *, most_bytes: int = MOST_BYTES) -> Instrument | None:
    """The instrument of a cell, the `place`-th of its page; None for sentence pairs, and where no text has a token.

    Where the data of all texts are larger than most_bytes, as many as fit are drawn at random with a fixed seed, and the
    page says so. All text in it is escaped.
    """
    if cell.of_sequences or not cell.lengths.any():
        return None
    drawn = np.random.default_rng(SAMPLE_SEED).permutation(len(cell))
    # more than twice as many bytes never fit: float32 of a model hardly deflate, and base64 adds a third
    sizes = np.cumsum(4 * cell.lengths[drawn] * (len(shown_measures(cell)) + cell.probs.shape[1] * _affine(cell)))
    rows = np.sort(drawn[: max(1, int(np.searchsorted(sizes, 2 * most_bytes, side="right")))])
    data = script_data(_data(cell, rows))
    while len(data) > most_bytes and len(rows) > 1:
        rows = np.sort(drawn[: max(1, int(0.97 * len(rows) * most_bytes / len(data)))])
        data = script_data(_data(cell, rows))
    html = template("instrument.html.j2").render(
        id=f"texts{place}",
        data=data,
        kilobytes=f"{len(data) / 1e3:,.0f}",
        shown=len(rows),
        total=len(cell),
        seed=SAMPLE_SEED,
        unit="sentence" if cell.words else "token",
        measures=[(number, measure_label(name)) for number, name in enumerate(_compared(cell))],
        classes=list(enumerate(_class_names(cell))),
        has_flips=_affine(cell) or FLIPS in cell.table.column_names,
        has_labels=not np.isnan(cell.labels).all(),
        affine=_affine(cell),
        closed_form=_affine(cell) and cell.probs.shape[1] == 2,
        recorded=_recorded(cell),
        renormalises=cell.identity.removal_renormalises,
    )
    return Instrument(Markup(html), f"texts{place}", len(rows), len(cell))


def scripts_of(instruments: Iterable[Instrument | None]) -> tuple[str, ...]:
    """The code that a page with these instruments runs at its end, in this order; () where it has none."""
    folder = files("attnfaith.reporting").joinpath("templates")
    return tuple(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS) if any(instruments) else ()


def _affine(cell: Cell) -> bool:
    return {VALUES, BIAS} <= set(cell.table.column_names)


def _recorded(cell: Cell) -> tuple[Recorded, ...]:
    """What the record says of other attentions, where the page cannot compute it."""
    return () if _affine(cell) and cell.probs.shape[1] == 2 else recorded_answers(cell)


def _compared(cell: Cell) -> tuple[str, ...]:
    """The measures whose agreement with attention texts are sorted by; first the one that the page speaks of."""
    best = main_measures(cell)[-1:]
    known = (*best, *(name for name in cell.measures if name not in best))
    return tuple(name for name in known if name != "attention")


def _class_names(cell: Cell) -> tuple[str, ...]:
    return tuple(visible(name_class(str(number), cell.class_names)) for number in range(cell.probs.shape[1]))


def _data(cell: Cell, rows: Sequence[int]) -> dict:
    """What the script reads: names as text, and all numbers as one packed string, `layout` saying what lies where."""
    tokens = cell.table.column("tokens").take(rows).to_pylist()
    flat = [token for text in tokens for token in text]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(flat))}
    numbers = _numbers(cell, rows)
    numbers["tokens"] = np.array([vocabulary[token] for token in flat], np.uint32)
    hues, measures = [*HUES], shown_measures(cell)
    return {
        "ids": [visible(cell.instance_ids[row]) for row in rows],
        "vocabulary": [visible(token) for token in vocabulary],
        "classes": _class_names(cell),
        "measures": [[measure_label(name), hues.index(name) if name in hues else len(hues)] for name in measures],
        "negative": len(hues) + 1,
        "compared": [measure_label(name) for name in _compared(cell)],
        "unit": "sentence" if cell.words else "token",
        "renormalises": cell.identity.removal_renormalises,
        "queries": None if cell.queries is None else [" ".join(query_of(cell, row)) for row in rows],
        "recorded": [one.says for one in _recorded(cell)],
        "layout": [[name, _kind(values), values.size] for name, values in numbers.items()],
        "numbers": packed(*(_planes(values) for values in numbers.values())),
    }


def _kind(values: np.ndarray) -> str:
    return values.dtype.str.lstrip("<|")


def _planes(values: np.ndarray) -> np.ndarray:
    """The bytes of little-endian numbers, the first of each, then the second: so they deflate better."""
    return np.ascontiguousarray(values.reshape(-1, 1).view(np.uint8).T)


def _numbers(cell: Cell, rows: Sequence[int]) -> dict[str, np.ndarray]:
    """Of these texts one after the other: values of tokens (sum T), of tokens and classes, of classes (N x C), of texts."""
    numbers = {
        "lengths": cell.lengths[rows].astype(np.uint32),
        "truncated": cell.table.column("truncated").to_numpy()[rows].astype(np.uint8),
        "backward": _backward(cell, rows),
        "labels": np.nan_to_num(cell.labels[rows], nan=-1).astype(np.int32),
        "probs": cell.probs[rows].astype(np.float32).ravel(),
    }
    for number, name in enumerate(shown_measures(cell)):
        numbers[f"scores{number}"] = _flat(cell.scores(name), rows)
    for number, name in enumerate(_compared(cell)):
        numbers[f"tau{number}"] = cell.tau("attention", name)[rows].astype(np.float32)
    if "rationale" in cell.table.column_names:
        numbers["gold"] = (_flat(records.rows(cell.table, "rationale"), rows) > 0).astype(np.uint8)
    if FLIPS in cell.table.column_names:
        numbers["flips"] = cell.table.column(FLIPS).to_numpy()[rows].astype(np.float32)
    if _affine(cell):
        numbers["values"] = _flat(records.rows(cell.table, VALUES), rows)
        numbers["bias"] = _flat(records.rows(cell.table, BIAS), rows)
    for number, one in enumerate(_recorded(cell)):
        numbers |= {f"recorded{number}_{name}": _flat(values, rows) for name, values in one.numbers.items()}
    return numbers


def _flat(values: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    return np.concatenate([np.ravel(values[row]) for row in rows]).astype(np.float32)


def _backward(cell: Cell, rows: Sequence[int]) -> np.ndarray:
    """Which of the texts run from right to left, (N,) 0 or 1."""
    tokens = cell.table.column("tokens")
    return np.array([direction_of(tokens[row].as_py()) == "rtl" for row in map(int, rows)], np.uint8)
