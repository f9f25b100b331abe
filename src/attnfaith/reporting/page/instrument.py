"""All texts of a cell on the page: what its script reads to sort, filter and show them, and to try other attentions.

Numbers are those of the record, to the bit, so that what the page computes is what the library computes. What the page
cannot compute is shown as it was measured. Shapes: N texts, T tokens of one, C classes, K draws or epsilons.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import Cell, main_measures, measure_label, name_class
from attnfaith.reporting.heatmap import NEGATIVE, direction_of, hue_of, query_of, shown_measures, visible
from attnfaith.reporting.one_file import packed
from attnfaith.support.escaping import script_data


SCRIPTS = ("what_if", "texts")
"""The scripts of the page, in their order."""
MOST_BYTES = 8_000_000
"""Of the data of all cells of a page. Above it a cell's texts are a sample."""
SAMPLE_SEED = 0
VALUES, BIAS, FLIPS = "token_logits", "token_logits_bias", "minimal_flip_size"
RECORDED = (  # kind, what the page calls it, columns of the weights and of the prediction
    ("attention", "furthest maps of a search", "map_adversary_attention", "map_adversary_probs"),
    ("set", "smallest set that flips", "minimal_flip_set", None),
    ("set", "fewest tokens to take away", "frozen_flip_set", "frozen_flip_probs"),
    ("draws", "weights permuted", None, "permuted_probs"),
    ("draws", "weights permuted in every head", None, "map_permuted_probs"),
    ("prediction", "uniform weights in every head", None, "map_uniform_probs"),
)


@dataclass(frozen=True)
class Instrument:
    """html: the markup of one cell's instrument with its data; id: of its element. shown: how many texts it holds, of how
    many.
    """

    html: Markup
    id: str
    shown: int
    of: int


@dataclass(frozen=True, eq=False)
class Recorded:
    """One question that the record answers for every text. numbers: of each text an array, by name: "weights" (T,), an
    attention, or 1 on the tokens of a set; "probs" (C,), the prediction under it; of draws "change" and "flips", the mean
    total variation distance from the model's own prediction and the share of draws with another decision; NaN for none.
    """

    kind: str
    label: str
    numbers: dict[str, list[np.ndarray]]


def instrument(cell: Cell, place: int, *, most_bytes: int = MOST_BYTES) -> Instrument | None:
    """The instrument of a cell, the `place`-th of its page; None for sentence pairs, and where no text has a token.

    Where the data of all texts are larger than most_bytes, as many as fit are drawn at random with a fixed seed, and the
    page says so. All text in it is escaped.
    """
    if cell.of_sequences or not cell.lengths.any():
        return None
    affine = {VALUES, BIAS} <= set(cell.table.column_names)
    recorded = [] if affine and cell.probs.shape[1] == 2 else list(_recorded(cell))
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(cell))
    # more than twice as many bytes never fit: float32 of a model hardly deflate, and base64 adds a third
    sizes = np.cumsum(4 * cell.lengths[order] * (len(shown_measures(cell)) + cell.probs.shape[1] * affine))
    rows = np.sort(order[: max(1, int(np.searchsorted(sizes, 2 * most_bytes, side="right")))])
    data = script_data(_data(cell, rows, recorded))
    while len(data) > most_bytes and len(rows) > 1:
        rows = np.sort(order[: max(1, int(0.97 * len(rows) * most_bytes / len(data)))])
        data = script_data(_data(cell, rows, recorded))
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
        has_flips=affine or FLIPS in cell.table.column_names,
        has_labels=not np.isnan(cell.labels).all(),
        affine=affine,
        closed_form=affine and cell.probs.shape[1] == 2,
        recorded=[one.label for one in recorded],
        renormalises=cell.identity.removal_renormalises,
    )
    return Instrument(Markup(html), f"texts{place}", len(rows), len(cell))


def scripts_of(instruments: Iterable[Instrument | None]) -> tuple[str, ...]:
    """The code that a page with these instruments runs at its end, in this order; () where it has none."""
    folder = files("attnfaith.reporting").joinpath("templates")
    return tuple(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS) if any(instruments) else ()


def _compared(cell: Cell) -> list[str]:
    """The measures whose agreement with attention texts are sorted by; first the one that the page speaks of."""
    return [name for name in dict.fromkeys((*main_measures(cell)[-1:], *cell.measures)) if name != "attention"]


def _class_names(cell: Cell) -> list[str]:
    return [visible(name_class(str(number), cell.class_names)) for number in range(cell.probs.shape[1])]


def _data(cell: Cell, rows: Sequence[int], recorded: Sequence[Recorded]) -> dict:
    """What the script reads: names as text, and all numbers as one packed string, `layout` saying what lies where."""
    tokens = cell.table.column("tokens").take(rows).to_pylist()
    flat = [token for text in tokens for token in text]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(flat))}
    numbers = _numbers(cell, rows, recorded)
    numbers["backward"] = np.array([direction_of(text) == "rtl" for text in tokens], np.uint8)
    numbers["tokens"] = np.array([vocabulary[token] for token in flat], np.uint32)
    # the first byte of each little-endian number, then the second: so they deflate better
    planes = [np.ascontiguousarray(values.reshape(-1, 1).view(np.uint8).T) for values in numbers.values()]
    return {
        "ids": [visible(cell.instance_ids[row]) for row in rows],
        "vocabulary": [visible(token) for token in vocabulary],
        "classes": _class_names(cell),
        "measures": [[measure_label(name), hue_of(name)] for name in shown_measures(cell)],
        "main": len(main_measures(cell)),
        "negative": NEGATIVE,
        "compared": [measure_label(name) for name in _compared(cell)],
        "unit": "sentence" if cell.words else "token",
        "renormalises": cell.identity.removal_renormalises,
        "queries": None if cell.queries is None else [" ".join(query_of(cell, row)) for row in rows],
        "recorded": [{"label": one.label, "kind": one.kind} for one in recorded],
        "layout": [[name, values.dtype.str.lstrip("<|"), values.size] for name, values in numbers.items()],
        "numbers": packed(*planes),
    }


def _numbers(cell: Cell, rows: Sequence[int], recorded: Sequence[Recorded]) -> dict[str, np.ndarray]:
    """Of these texts one after the other: values of tokens (sum T), of tokens and classes, of classes (N x C), of texts."""

    def flat(values: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(values[row]) for row in rows]).astype(np.float32)

    columns = set(cell.table.column_names)
    numbers = {
        "lengths": cell.lengths[rows].astype(np.uint32),
        "truncated": cell.table.column("truncated").to_numpy()[rows].astype(np.uint8),
        "labels": np.nan_to_num(cell.labels[rows], nan=-1).astype(np.int32),
        "probs": cell.probs[rows].astype(np.float32).ravel(),
    }
    numbers |= {f"scores{number}": flat(cell.scores(name)) for number, name in enumerate(shown_measures(cell))}
    for number, name in enumerate(_compared(cell)):
        numbers[f"tau{number}"] = cell.tau("attention", name)[rows].astype(np.float32)
    if "rationale" in columns:
        numbers["gold"] = (flat(records.rows(cell.table, "rationale")) > 0).astype(np.uint8)
    if FLIPS in columns:
        numbers["flips"] = cell.table.column(FLIPS).to_numpy()[rows].astype(np.float32)
    if {VALUES, BIAS} <= columns:
        numbers["values"], numbers["bias"] = (flat(records.rows(cell.table, name)) for name in (VALUES, BIAS))
    for number, one in enumerate(recorded):
        numbers |= {f"recorded{number}_{name}": flat(values) for name, values in one.numbers.items()}
    return numbers


def _recorded(cell: Cell) -> Iterator[Recorded]:
    """What the record says of other attentions, measured beforehand."""
    columns, sizes = set(cell.table.column_names), {"weights": cell.lengths, "probs": [cell.probs.shape[1]] * len(cell)}
    for name, label in (("adversary_exact", "furthest attention"), ("adversary_search", "furthest attention of a search")):
        if f"{name}_attention" in columns:
            yield from _furthest(cell, name, label)
            break
    for kind, label, weights, probs in RECORDED:
        if (weights or probs) not in columns:
            continue
        if kind == "draws":
            yield Recorded(kind, label, _of_draws(cell, records.rows(cell.table, probs)))
            continue
        held = {"weights": weights, "probs": probs}
        numbers = {
            name: [_sized(row, size) for row, size in zip(records.rows(cell.table, column), sizes[name], strict=True)]
            for name, column in held.items()
            if column in columns
        }
        yield Recorded(kind, label, numbers)


def _sized(row: np.ndarray, size: int) -> np.ndarray:
    """A text's values; NaN, as many as it would have, where it has none."""
    return row if len(row) == size else np.full(size, np.nan)


def _furthest(cell: Cell, name: str, label: str) -> Iterator[Recorded]:
    """An answer for each epsilon of the exact one; of the draws of a search the first."""
    attention, probs = (records.rows(cell.table, f"{name}_{kind}") for kind in ("attention", "probs"))
    epsilons: Sequence[float | None] = [None]
    if f"{name}_epsilon" in cell.table.column_names:
        epsilons = max(records.rows(cell.table, f"{name}_epsilon"), key=len).tolist()
    certain = ""
    if f"{name}_certainty" in cell.table.column_names:
        found = sorted(set(cell.table.column(f"{name}_certainty").to_pylist()) - {"undefined"})
        certain = f" ({', '.join(found)})" if found else ""

    def of_draw(values: np.ndarray, place: int, size: int) -> np.ndarray:
        return values[place] if place < len(values) and values.shape[1] == size else np.full(size, np.nan)

    for place, epsilon in enumerate(epsilons):
        within = "" if epsilon is None else f" within ε = {epsilon:g}"
        weights = [of_draw(one, place, length) for one, length in zip(attention, cell.lengths, strict=True)]
        numbers = {"weights": weights, "probs": [of_draw(one, place, cell.probs.shape[1]) for one in probs]}
        yield Recorded("attention", f"{label}{within}{certain}", numbers)


def _of_draws(cell: Cell, draws: Sequence[np.ndarray]) -> dict[str, list[np.ndarray]]:
    change, flips = [], []
    for own, decided, others in zip(cell.probs, cell.predicted, draws, strict=True):
        some = others.reshape(-1, len(own))
        change.append(np.array([np.abs(some - own).sum(1).mean() / 2 if len(some) else np.nan]))
        flips.append(np.array([(some.argmax(1) != decided).mean() if len(some) else np.nan]))
    return {"change": change, "flips": flips}
