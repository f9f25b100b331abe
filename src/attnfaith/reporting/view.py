"""All attention of one text, or the alignment of one pair of sentences, as numbers and as a page of one file.

Shapes: L positions of a text, N layers, H heads, C classes; of a pair G target words, T source words, A heads, R rows.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import describe, one_cell, readable
from attnfaith.reporting.heatmap import direction_of, visible
from attnfaith.reporting.html import packed, script, template
from attnfaith.reporting.notebook import row_of
from attnfaith.reporting.sections.alignment import columns, weights
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import html, printable
from attnfaith.support.files import write_atomically


TITLES = {"attention": "Attention", "rollout": "Rollout", "alti": "ALTI", "value_zeroing": "Value zeroing"}
"""The measures of the view of a text, by name."""
AXES = ("L", "A", "R", "G", "T")
MOST_WEIGHTS = 8_000_000
"""On one page."""
STEPS = 32767
"""In how many steps a page keeps a measure up to its largest absolute value."""


class PageFile:
    """An object with a page that a notebook shows. page: its HTML."""

    page: str

    def save(self, path: str | os.PathLike) -> Path:
        """Write the page, whole or not at all; returns its path. Raises as `page` does, and FileError."""
        return write_atomically(path, self.page)

    def _repr_html_(self) -> str:
        frame = 'sandbox="allow-scripts" style="width:100%;height:60rem;border:0" title="attention at a glance"'
        return f'<iframe srcdoc="{html(self.page)}" {frame}></iframe>'


@dataclass(frozen=True, eq=False)
class View(PageFile):
    """The token-to-token attention of a model's layers for one text, as `attnfaith.view` returns it.

    model: its name. tokens: the text of each position. inside (L,): whether it is of the text, or a marker. words: the
    number of the word that a position belongs to, None for a marker. classes, probs (C,): the prediction. reads (L,): the
    share of what the answer takes from the last layer that each position is. heads: the weights (H,L,L) of each layer, ()
    where attention was not asked for. matrices: {measure: (N,L,L)}, row i of a layer is what position i takes of each
    position below; rows sum to 1. lacks: {measure that the model has not: why}. truncated: whether the text was cut.
    stacked: whether each layer reads what the layer below gives; else all read the tokens, as a decoder reads an encoder.
    """

    model: str
    tokens: tuple[str, ...]
    inside: np.ndarray
    words: tuple[int | None, ...]
    classes: tuple[str, ...]
    probs: np.ndarray
    reads: np.ndarray
    heads: tuple[np.ndarray, ...]
    matrices: Mapping[str, np.ndarray]
    lacks: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False
    stacked: bool = True

    @property
    def predicted(self) -> int:
        """The number of the predicted class."""
        return int(np.argmax(self.probs))

    def through(self, measure: str) -> np.ndarray:
        """(N,L,L) in float64: what each position, as a layer leaves it, takes of each token below all layers; rows sum to 1.

        Raises AttnfaithError for a measure that the view does not hold.
        """
        if measure not in self.matrices:
            why = f": {self.lacks[measure]}" if measure in self.lacks else ""
            raise AttnfaithError(f"the view does not hold {excerpt(measure)}{why}; it holds {', '.join(self.matrices)}")
        below, layers = np.eye(len(self.tokens)), []
        for matrix in self.matrices[measure]:
            below = matrix @ below if self.stacked else matrix.astype(np.float64)
            total = below.sum(1, keepdims=True)
            below = np.divide(below, total, out=np.zeros_like(below), where=total > 0)
            layers.append(below)
        return np.stack(layers)

    def answer(self, measure: str) -> np.ndarray:
        """(L,): the share of the answer that each token is, markers too; sums to 1. Raises as `through` does."""
        return self.reads @ self.through(measure)[-1]

    @cached_property
    def page(self) -> str:
        """The page, as HTML; all text in it is escaped. Raises AttnfaithError where it would hold too many weights."""
        tokens = [
            visible(token.removeprefix(records.CONTINUES) or token if word is not None and word == last else token)
            for token, word, last in zip(self.tokens, self.words, (None, *self.words), strict=False)
        ]
        same = len({len(layer) for layer in self.heads}) == 1
        values = {**self.matrices, **({"attention": np.stack(self.heads)} if same else {})}
        answer = self.classes[self.predicted]
        return _page(
            values,
            {name: "LAGT" if value.ndim == 4 else "LGT" for name, value in values.items()},
            TITLES,
            {"words": tokens},
            heading=(f"What reads what in {self.model}", answer, f"{self.probs[self.predicted]:.2f}"),
            data={
                "inside": self.inside.astype(int).tolist(),
                "answer": visible(answer),
                "answers": {name: self.answer(name).round(6).tolist() for name in values},
            },
            lacks={TITLES[name]: why for name, why in self.lacks.items() if name not in self.matrices},
            markers=bool(self.inside.any() and not self.inside.all()),
            facts=[counted(len(tokens), "position"), *(["the text was cut at the model's limit"] if self.truncated else [])],
        )

    def __repr__(self) -> str:
        heads = f", {counted(sum(map(len, self.heads)), 'head')} in all" if self.heads else ""
        answer = f"{self.classes[self.predicted]} ({self.probs[self.predicted]:.2f})"
        depth = len(next(iter(self.matrices.values())))
        lines = [f"{answer} · {counted(len(self.tokens), 'position')}, {counted(depth, 'layer')}{heads}"]
        for name in self.matrices:
            shares = self.answer(name)
            order = np.argsort(np.where(self.inside, -shares, 1.0), kind="stable")[: min(3, int(self.inside.sum()))]
            words = ", ".join(f"{visible(self.tokens[place])} {shares[place]:.0%}" for place in order)
            marked = "" if self.inside.all() else f"; {shares[~self.inside].sum():.0%} lies on markers"
            lines.append(f"{TITLES[name]}: the answer takes most of {words}{marked}")
        return "\n".join(map(printable, lines))


@dataclass(frozen=True, eq=False)
class PairView(PageFile):
    """The view of a pair of sentences, as `attnfaith.view` returns it: every measure, layer and head, and gold links.

    model: the cell in words. instance_id: of the pair. source (T,), target (G,): words. target_probs (G,): the probability
    of each target word. measures: {name: values over the axes that it has, of (L,A,R,G,T), in this order}; axes: those it
    has. links (G,T): 2 sure, 1 possible, 0 none; None without gold. truncated: whether a sentence was cut.
    """

    model: str
    instance_id: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    target_probs: np.ndarray
    measures: Mapping[str, np.ndarray]
    axes: Mapping[str, tuple[str, ...]]
    links: np.ndarray | None = None
    truncated: bool = False

    @classmethod
    def of(cls, table: pa.Table, pair: int | str = 0) -> "PairView":
        """Return the view of a pair of a record: of a number from 0, or of an instance id.

        Raises AttnfaithError for a record of texts, or without a measure of alignment, and for a pair that it does not hold.
        """
        if not records.of_sequences(table):
            raise AttnfaithError(
                "this is a record of texts, which keeps no maps: give the model itself, `attnfaith view MODEL TEXT`"
            )
        cell = one_cell(table.slice(row_of(one_cell(table), str(pair)), 1))
        axes = {name: column.axes for name, column in columns(cell).items() if not name.startswith(records.ABSOLUTE)}
        if "attention" in axes:
            axes.pop("attention_mean", None)  # the page makes it of the heads
        if not axes:
            raise AttnfaithError("the record holds no measure of alignment: measure the model with some, such as attention")
        source, target, truncated = (cell.table.column(name)[0].as_py() for name in ("tokens", "target_tokens", "truncated"))
        return cls(
            model=describe(cell.heading),
            instance_id=cell.instance_ids[0],
            source=tuple(source),
            target=tuple(target),
            target_probs=cell.rows("target_probs")[0],
            measures={name: weights(cell, name)[0] for name in axes},
            axes=axes,
            links=cell.rows("gold_links")[0] if cell.has("gold_links") else None,
            truncated=bool(truncated),
        )

    @cached_property
    def page(self) -> str:
        """The page, as HTML; all text in it is escaped. Raises AttnfaithError where it would hold too many weights."""
        sizes = [counted(len(self.source), "source word"), counted(len(self.target), "target word")]
        return _page(
            self.measures,
            self.axes,
            {name: readable(name) for name in self.measures},
            {"source": list(map(visible, self.source)), "target": list(map(visible, self.target))},
            heading=(f"Which words align in {self.model}", visible(self.instance_id), ""),
            data={
                "probs": self.target_probs.astype(float).round(4).tolist(),
                "links": None if self.links is None else self.links.ravel().tolist(),
            },
            facts=[*sizes, *(["a sentence was cut at the limit"] if self.truncated else [])],
        )

    def __repr__(self) -> str:
        lines = [
            f"{self.instance_id} · {len(self.source)} source and {counted(len(self.target), 'target word')} · {self.model}",
            f"source: {' '.join(self.source)}",
            f"target: {' '.join(self.target)}",
        ]
        if self.links is not None:
            places = np.argwhere(self.links)
            links = [f"{self.target[g]}–{self.source[t]}{'?' if self.links[g, t] == 1 else ''}" for g, t in places]
            lines.append(f"gold: {' '.join(links)} (? possible)")
        lines.append(f"measures: {', '.join(self.measures)}")
        return "\n".join(map(printable, lines))


def _page(
    measures: Mapping[str, np.ndarray],
    axes: Mapping[str, Sequence[str]],
    titles: Mapping[str, str],
    words: Mapping[str, list[str]],
    *,
    heading: tuple[str, str, str],
    data: Mapping,
    facts: Sequence[str],
    lacks: Mapping[str, str] | None = None,
    markers: bool = False,
) -> str:
    """The page of measures over target by source words. words: {"words": of a text}, or those of source and target."""
    count = sum(values.size for values in measures.values())
    if count > MOST_WEIGHTS:
        raise AttnfaithError(
            f"{count:,} weights of all heads are more than a page holds, {MOST_WEIGHTS:,}: give a shorter text, or name "
            "measures other than attention (rollout, alti, value_zeroing)"
        )
    described, steps = [], []
    for name, values in measures.items():
        largest = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-30)
        sizes = dict(zip(axes[name], values.shape, strict=True))
        steps.append(np.rint(np.nan_to_num(values) / largest * STEPS).astype("<i2"))
        share = "words" in words or name.startswith("attention")
        sizes = [sizes.get(axis, 0) for axis in AXES[:3]]
        described.append({"name": name, "title": titles[name], "sizes": sizes, "largest": largest, "share": share})
    return template("view.html.j2").render(
        title=f"{heading[1]}: {heading[0]}",
        heading=heading,
        data={**words, **data, "measures": described, "steps": STEPS, "weights": packed(*steps)},
        script=script("parts", "view"),
        titles={name: titles[name] for name in measures},
        bars={name: direction_of(side) for name, side in words.items()},
        rows=any("R" in own for own in axes.values()),
        links=data.get("links") is not None,
        lacks=lacks or {},
        markers=markers,
        facts=facts,
    )
