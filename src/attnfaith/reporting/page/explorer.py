"""All texts of a cell on the page: what its script reads to search, sort and show them, and to try other attentions.

Numbers are those of the record, to the bit, so that the page computes what the library computes. What the page cannot
compute is shown as it was measured. Shapes: N texts, T tokens of a text, C classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.reporting.cells import Cell, main_measures, measure_label
from attnfaith.reporting.heatmap import NEGATIVE, class_label, direction_of, heat_measures, hue_of, query_of, visible
from attnfaith.reporting.html import packed, template
from attnfaith.support.escaping import script_data


MOST_BYTES = 6_000_000
"""Of the numbers of all cells of a page, before they are packed. Above it a cell's texts are a sample."""
SAMPLE_SEED = 0
VALUES, BIAS = "token_logits", "token_logits_bias"
RECORDED = (  # what the page calls it, columns of the weights and of the prediction
    ("furthest maps of a search", "map_adversary_attention", "map_adversary_probs"),
    ("smallest set that flips", "minimal_flip_set", None),
    ("fewest tokens to take away", "frozen_flip_set", "frozen_flip_probs"),
)
OTHERWISE = "identifiability_attention"


@dataclass(frozen=True, eq=False)
class Recorded:
    """Another attention that was measured for every text.

    kind: "attention", or "set" of tokens whose weights are taken away. weights: of each text (T,), an attention, or 1 on the
    tokens of the set; probs: of each text (C,), the prediction under it, None where it was not measured; NaN for none.
    """

    kind: str
    label: str
    weights: list[np.ndarray]
    probs: list[np.ndarray] | None


def explorer(cell: Cell, place: int, *, most_bytes: int = MOST_BYTES) -> Markup:
    """The explorer of a cell, the `place`-th of its page; empty for sentence pairs, and where no text has a token.

    Where the numbers of all texts are larger than most_bytes, as many texts as fit are drawn at random with a fixed seed,
    and the page states it. All text in it is escaped.
    """
    if cell.of_sequences or not cell.lengths.any():
        return Markup()
    classes, affine = cell.probs.shape[1], {VALUES, BIAS} <= set(cell.table.column_names)
    recorded = list(_recorded(cell, computed=affine and classes == 2))
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(cell))
    sizes = np.cumsum(4 * cell.lengths[order] * (len(heat_measures(cell)) + classes * affine) + 4 * classes)
    rows = np.sort(order[: max(1, int(np.searchsorted(sizes, most_bytes, side="right")))])
    data = script_data(_data(cell, rows, recorded))
    return Markup(
        template("explorer.html.j2").render(
            id=f"texts{place}",
            data=data,
            kilobytes=f"{len(data) / 1e3:,.0f}",
            shown=len(rows),
            total=len(cell),
            seed=SAMPLE_SEED,
            unit="sentence" if cell.words else "token",
            measures=list(enumerate(map(measure_label, _compared(cell)))),
            classes=[(number, class_label(cell, number)) for number in range(classes)],
            has_labels=not np.isnan(cell.labels).all(),
            has_rationale="rationale" in cell.table.column_names,
            negative=NEGATIVE if any((row < 0).any() for name in cell.measures for row in cell.scores(name)) else None,
            affine=affine,
            closed_form=affine and classes == 2,
            recorded=[part.label for part in recorded],
            renormalises=cell.identity.removal_renormalises,
        )
    )


def _compared(cell: Cell) -> list[str]:
    """The measures whose agreement with attention texts are sorted by; first the one that the page speaks of."""
    return [name for name in dict.fromkeys((*main_measures(cell)[-1:], *cell.measures)) if name != "attention"]


def _data(cell: Cell, rows: Sequence[int], recorded: Sequence[Recorded]) -> dict:
    """The data that the script reads: names as text, all numbers as one packed string, their places in it as `layout`."""
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
        "classes": [class_label(cell, number) for number in range(cell.probs.shape[1])],
        "measures": [[measure_label(name), hue_of(name)] for name in heat_measures(cell)],
        "main": len(main_measures(cell)),
        "negative": NEGATIVE,
        "compared": list(map(measure_label, _compared(cell))),
        "unit": "sentence" if cell.words else "token",
        "queries": None if cell.queries is None else [" ".join(query_of(cell, row)) for row in rows],
        "recorded": [{"label": part.label, "kind": part.kind} for part in recorded],
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
    numbers |= {f"scores{number}": flat(cell.scores(name)) for number, name in enumerate(heat_measures(cell))}
    for number, name in enumerate(_compared(cell)):
        numbers[f"tau{number}"] = cell.tau("attention", name)[rows].astype(np.float32)
    if "rationale" in columns:
        numbers["gold"] = (flat(records.rows(cell.table, "rationale")) > 0).astype(np.uint8)
    if {VALUES, BIAS} <= columns:
        numbers["values"], numbers["bias"] = (flat(records.rows(cell.table, name)) for name in (VALUES, BIAS))
    for number, part in enumerate(recorded):
        numbers[f"recorded{number}_weights"] = flat(part.weights)
        if part.probs is not None:
            numbers[f"recorded{number}_probs"] = flat(part.probs)
    return numbers


def _recorded(cell: Cell, *, computed: bool) -> Iterator[Recorded]:
    """Other attentions that the record holds. computed: whether the page computes those of a closed form itself."""
    classes = [cell.probs.shape[1]] * len(cell)

    def column(name: str | None, sizes: Sequence[int], draw: int | None = None) -> list[np.ndarray] | None:
        """The values of a column; NaN, as many as it would have, of a text that has none. draw: which, of several."""
        if name not in cell.table.column_names:
            return None
        rows = records.rows(cell.table, name)
        rows = rows if draw is None else [row[draw] if draw < len(row) else row[:0].ravel() for row in rows]
        return [row if len(row) == size else np.full(size, np.nan) for row, size in zip(rows, sizes, strict=True)]

    weights = column(OTHERWISE, cell.lengths)
    if weights is not None:
        yield Recorded("attention", "another one that nothing notices", weights, None)
    if computed:
        return
    for name, label in (("adversary_exact", "furthest attention"), ("adversary_search", "furthest attention of a search")):
        if f"{name}_attention" not in cell.table.column_names:
            continue
        epsilons: Sequence[float | None] = [None]  # of a search the first draw
        if f"{name}_epsilon" in cell.table.column_names:
            epsilons = max(records.rows(cell.table, f"{name}_epsilon"), key=len).tolist()
        for draw, epsilon in enumerate(epsilons):
            within = "" if epsilon is None else f" within ε = {epsilon:g}"
            if f"{name}_certainty" in cell.table.column_names:
                certain = sorted(set(cell.table.column(f"{name}_certainty").to_pylist()) - {"undefined"})
                within += f" ({', '.join(certain)})" if certain else ""
            parts = column(f"{name}_attention", cell.lengths, draw), column(f"{name}_probs", classes, draw)
            yield Recorded("attention", f"{label}{within}", *parts)
        break
    for label, weights_name, probs_name in RECORDED:
        weights = column(weights_name, cell.lengths)
        if weights is not None:
            kind = "set" if weights_name.endswith("_set") else "attention"
            yield Recorded(kind, label, weights, column(probs_name, classes))
