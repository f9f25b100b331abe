"""All texts of a cell on the page: what its script reads to search, sort and show them, and to try other attentions.

Numbers are those of the record, to the bit, so that the page computes what the library computes.
Shapes: N texts, T tokens of a text, C classes.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from attnfaith.reporting.cells import Cell, main_measures, measure_label
from attnfaith.reporting.heatmap import NEGATIVE, class_label, direction_of, heat_measures, hue_of, visible
from attnfaith.reporting.html import packed, template
from attnfaith.support.escaping import script_data


MOST_BYTES = 6_000_000
"""Of the numbers of all cells of a page, before they are packed. Above it a cell's texts are a sample."""
SAMPLE_SEED = 0
AFFINE = ("token_logits", "token_logits_bias")


def explorer(cell: Cell, place: int, *, most_bytes: int = MOST_BYTES) -> Markup:
    """The explorer of a cell, the `place`-th of its page; empty for sentence pairs, and where no text has a token.

    Where the numbers of all texts are larger than most_bytes, as many texts as fit are drawn at random with a fixed seed,
    and the page states it. All text in it is escaped.
    """
    if cell.of_sequences or not cell.lengths.any():
        return Markup()
    classes, affine = cell.probs.shape[1], cell.has(*AFFINE)
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(cell))
    sizes = np.cumsum(4 * cell.lengths[order] * (len(heat_measures(cell)) + classes * affine) + 4 * classes)
    rows = np.sort(order[: max(1, int(np.searchsorted(sizes, most_bytes, side="right")))])
    return Markup(
        template("explorer.html.j2").render(
            id=f"texts{place}",
            data=script_data(_data(cell, rows)),
            shown=len(rows),
            total=len(cell),
            seed=SAMPLE_SEED,
            unit="sentence" if cell.words else "token",
            measures=list(enumerate(map(measure_label, _compared(cell)))),
            classes=[(number, class_label(cell, number)) for number in range(classes)],
            has_labels=not np.isnan(cell.labels).all(),
            has_rationale=cell.has("rationale"),
            affine=affine,
            closed_form=affine and classes == 2,
            renormalises=cell.identity.removal_renormalises,
        )
    )


def _compared(cell: Cell) -> list[str]:
    """The measures whose agreement with attention texts are sorted by; first the one that the page speaks of."""
    return [name for name in dict.fromkeys((*main_measures(cell)[-1:], *cell.measures)) if name != "attention"]


def _data(cell: Cell, rows: Sequence[int]) -> dict:
    """The data that the script reads: names as text, all numbers as one packed string, their places in it as `layout`."""
    tokens = cell.table.column("tokens").take(rows).to_pylist()
    flat = [token for text in tokens for token in text]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(flat))}
    numbers = _numbers(cell, rows)
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
        "queries": None if cell.queries is None else [" ".join(map(visible, cell.queries[row])) for row in rows],
        "layout": [[name, values.dtype.str.lstrip("<|"), values.size] for name, values in numbers.items()],
        "numbers": packed(*planes),
    }


def _numbers(cell: Cell, rows: Sequence[int]) -> dict[str, np.ndarray]:
    """Of these texts one after the other: values of tokens (sum T), of tokens and classes, of classes (N x C), of texts."""

    def flat(values: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(values[row]) for row in rows]).astype(np.float32)

    numbers = {
        "lengths": cell.lengths[rows].astype(np.uint32),
        "truncated": cell.table.column("truncated").to_numpy()[rows].astype(np.uint8),
        "labels": np.nan_to_num(cell.labels[rows], nan=-1).astype(np.int32),
        "probs": cell.probs[rows].astype(np.float32).ravel(),
    }
    numbers |= {f"scores{number}": flat(cell.scores(name)) for number, name in enumerate(heat_measures(cell))}
    for number, name in enumerate(_compared(cell)):
        numbers[f"tau{number}"] = cell.tau("attention", name)[rows].astype(np.float32)
    if cell.has("rationale"):
        numbers["gold"] = (flat(cell.rows("rationale")) > 0).astype(np.uint8)
    if cell.has(*AFFINE):
        numbers["values"], numbers["bias"] = (flat(cell.rows(name)) for name in AFFINE)
    return numbers
