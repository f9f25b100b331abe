"""What `attnfaith.view` gives: the self-attention of one text, or how the words of a pair of sentences align, each with its
page, one file that needs nothing around it.

Shapes: L positions of a text, N layers, H heads, C classes. Of a pair: G target words, T source words, L layers of the
decoder, A heads; R is 2, the row that predicts a target word and the one in which it is the input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.record import CONTINUES
from attnfaith.reporting.cells import describe, measure_label, one_cell
from attnfaith.reporting.heatmap import direction_of, visible
from attnfaith.reporting.notebook import row_of
from attnfaith.reporting.one_file import OneFile, one_file, packed
from attnfaith.reporting.view_figures import TITLES, graph_figure, heads_figure
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import printable


if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABOUT = {
    "attention": "The weights themselves: of each layer the mean of its heads, or the one head that you choose. Followed "
    "through layers they are multiplied, as if there were no residual connections.",
    "rollout": "Half of each layer is its attention, the mean of the heads, and half the residual connection (Abnar & "
    "Zuidema 2020). It knows weights alone, not what they weigh.",
    "alti": "How near the vector that a token adds brings the state after attention, in L1 (ALTI, Ferrando et al. 2022).",
    "value_zeroing": "How far a layer's result turns when a token's values are zeros in that layer (Mohebbi et al. 2023).",
}
UNSTACKED = (
    "The weights themselves: of each layer the mean of its heads, or the one head that you choose. Each layer of this model "
    "reads the tokens themselves, so nothing is multiplied."
)
MOST_WEIGHTS = 8_000_000
"""On one page: of all heads of a text some 6 MB."""
HEAD_STEPS, STEPS, PAIR_STEPS = 255, 4095, 32767
"""In how many steps a page keeps the square root of a weight of single heads, and of what is multiplied; and a measure of a
pair up to its largest absolute value.
"""
PREFIX, MARKERS = "alignment_", "alignment_marker_mass"
AXES = ("L", "A", "R", "G", "T")


@dataclass(frozen=True, eq=False)
class View(OneFile):
    """What `attnfaith.view` gives of a text: the token-to-token graph of a model's layers.

    model: what it is called. tokens: the text of each position. inside (L,): whether it is of the text, or a marker. words:
    the number of the word that a position is of, None for a marker. classes, probs (C,): what the model says. reads (L,):
    what share of what the answer takes from the last layer each position is. heads: the weights (H,L,L) of each layer, ()
    where attention was not asked for. matrices: {measure: (N,L,L)}, row i of a layer says what position i takes of each
    position below; rows sum to 1. lacks: the measures that the model has not, and why. truncated: whether the text was cut.
    stacked: whether each layer reads what the one below gives; else all read the tokens, as a decoder reads an encoder.
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
        """The number of the class that the model says."""
        return int(np.argmax(self.probs))

    @property
    def depth(self) -> int:
        """How many layers there are."""
        return len(next(iter(self.matrices.values())))

    def through(self, measure: str) -> np.ndarray:
        """(N,L,L) in float64: what each position, as a layer leaves it, takes of each token below all layers; rows sum to 1.

        Raises AttnfaithError for a measure that the view does not hold.
        """
        below, layers = np.eye(len(self.tokens)), []
        for matrix in self._matrices(measure):
            below = matrix @ below if self.stacked else matrix.astype(np.float64)
            total = below.sum(1, keepdims=True)
            below = np.divide(below, total, out=np.zeros_like(below), where=total > 0)
            layers.append(below)
        return np.stack(layers)

    def answer(self, measure: str) -> np.ndarray:
        """(L,): what share of the answer is of each token, markers too; sums to 1. Raises as `through` does."""
        return self.reads @ self.through(measure)[-1]

    def figures(self, measures: Sequence[str] | None = None) -> dict[str, "Figure"]:
        """{"graph": …, "heads": …}: the strongest lines through the layers, of each measure (None: all of the view), and
        the small maps of layers and heads; without the latter where no heads are held. Raises PlotsError without matplotlib.
        """
        names = list(self.matrices) if measures is None else list(measures)
        for name in names:
            self._matrices(name)
        return {"graph": graph_figure(self, names), **({"heads": heads_figure(self)} if self.heads else {})}

    @cached_property
    def page(self) -> str:
        """The page, as HTML; all text in it is escaped. Raises AttnfaithError where it would hold too many weights."""
        count = sum(layer.size for layer in self.heads)
        if count > MOST_WEIGHTS:
            raise AttnfaithError(
                f"{len(self.tokens)} positions and {sum(map(len, self.heads))} heads make {count:,} weights, and a page "
                f"holds {MOST_WEIGHTS:,}: give a shorter text, or leave single heads out by naming measures other than "
                "attention (rollout, alti, value_zeroing)"
            )
        return one_file(
            "view",
            self._data(),
            title=f"{self.classes[self.predicted]}: what reads what in {self.model}",
            view=self,
            titles={name: title for name, title in TITLES.items() if name in self.matrices or name in self.lacks},
            about=self._about,
            order=np.argsort(-self.probs, kind="stable")[:3].tolist(),
            direction=direction_of(self.tokens),
        )

    def __repr__(self) -> str:
        heads = f", {counted(sum(map(len, self.heads)), 'head')}" if self.heads else ""
        said = f"{self.classes[self.predicted]} ({self.probs[self.predicted]:.2f})"
        lines = [f"{said} · {counted(len(self.tokens), 'position')}, {counted(self.depth, 'layer')}{heads}"]
        for name in self.matrices:
            shares = self.answer(name)
            order = np.argsort(np.where(self.inside, -shares, 1.0), kind="stable")[: min(3, int(self.inside.sum()))]
            words = ", ".join(f"{visible(self.tokens[place])} {shares[place]:.0%}" for place in order)
            marked = "" if self.inside.all() else f"; {shares[~self.inside].sum():.0%} lies on markers"
            lines.append(f"{TITLES[name]}: the answer takes most of {words}{marked}")
        return "\n".join(map(printable, lines))

    def _matrices(self, measure: str) -> np.ndarray:
        if measure not in self.matrices:
            why = f": {self.lacks[measure]}" if measure in self.lacks else ""
            raise AttnfaithError(f"the view does not hold {excerpt(measure)}{why}; it holds {', '.join(self.matrices)}")
        return self.matrices[measure]

    @property
    def _about(self) -> dict[str, str]:
        """What the page says about each measure."""
        return ABOUT if self.stacked else {**ABOUT, "attention": UNSTACKED}

    def _texts(self) -> list[str]:
        """Tokens without the sign that they go on with a word, which the page says otherwise."""
        before = (None, *self.words)
        return [
            token.removeprefix(CONTINUES) or token if word is not None and word == last else token
            for token, word, last in zip(self.tokens, self.words, before, strict=False)
        ]

    def _data(self) -> dict:
        """What the script of the page reads."""
        kept = {name: matrices for name, matrices in self.matrices.items() if name != "rollout"}
        if "rollout" in self.matrices and "attention" not in kept:  # of which the page makes it
            kept["attention"] = 2 * self.matrices["rollout"] - np.eye(len(self.tokens))
        whole = np.concatenate([_steps(matrices, STEPS).ravel() for matrices in kept.values()]).astype(np.uint16)
        single = [_steps(layer, HEAD_STEPS).astype(np.uint8).ravel() for layer in self.heads]
        planes = [(whole >> 8).astype(np.uint8), (whole & 255).astype(np.uint8)]
        return {
            "tokens": [visible(token) for token in self._texts()],
            "inside": self.inside.astype(int).tolist(),
            "words": list(self.words),
            "answer": visible(self.classes[self.predicted]),
            "reads": [round(float(share), 6) for share in self.reads],
            "layers": self.depth,
            "stacked": self.stacked,
            "heads": [len(layer) for layer in self.heads],
            "measures": list(self.matrices),
            "kept": list(kept),
            "titles": TITLES,
            "about": self._about,
            "steps": [STEPS, HEAD_STEPS],
            "weights": packed(*planes, *single),
        }


def _steps(weights: np.ndarray, steps: int) -> np.ndarray:
    return np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * steps)


@dataclass(frozen=True, eq=False)
class PairView(OneFile):
    """What `attnfaith.view` gives of a record of sentence pairs: every measure, layer and head, and gold links.

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
        """Of a record, the pair of a number from 0, or of an instance id.

        Raises AttnfaithError for a record of texts, or without a measure of alignment, and for a pair that it does not hold.
        """
        if not records.of_sequences(table):
            raise AttnfaithError(
                "this is a record of texts, which keeps no maps: give the model itself, `attnfaith view MODEL TEXT`"
            )
        cell = one_cell(table)
        row = row_of(cell, str(pair))
        part = table.slice(row, 1)
        names = [name for name in table.column_names if name.startswith(PREFIX) and name != MARKERS]
        if f"{PREFIX}attention" in names and f"{PREFIX}attention_mean" in names:
            names.remove(f"{PREFIX}attention_mean")  # which the page makes of the heads
        axes = {name.removeprefix(PREFIX): tuple(records.column_of(table.schema.field(name)).axes) for name in names}
        axes = {name: own for name, own in axes.items() if own[-2:] == ("G", "T") and set(own) <= set(AXES)}
        if not axes:
            raise AttnfaithError("the record holds no measure of alignment: measure the model with some, such as attention")
        return cls(
            model=describe(cell.heading),
            instance_id=cell.instance_ids[row],
            source=tuple(part.column("tokens")[0].as_py()),
            target=tuple(part.column("target_tokens")[0].as_py()),
            target_probs=records.rows(part, "target_probs")[0],
            measures={name: records.rows(part, PREFIX + name)[0] for name in axes},
            axes=axes,
            links=records.rows(part, "gold_links")[0] if "gold_links" in table.column_names else None,
            truncated=bool(part.column("truncated")[0].as_py()),
        )

    @cached_property
    def page(self) -> str:
        """The page, as HTML; all text in it is escaped. Raises AttnfaithError where it would hold too many weights."""
        count = sum(values.size for values in self.measures.values())
        if count > MOST_WEIGHTS:
            raise AttnfaithError(f"the pair has {count:,} weights, and a page holds {MOST_WEIGHTS:,}: choose a shorter one")
        return one_file(
            "view_pair",
            self._data(),
            title=f"Which words align: {visible(self.instance_id)}",
            view=self,
            shown_id=visible(self.instance_id),
            titles={name: measure_label(name) for name in self.measures},
            directions=(direction_of(self.source), direction_of(self.target)),
            size_of_words=(len(self.source), len(self.target)),
            rows=any("R" in own for own in self.axes.values()),
        )

    def __repr__(self) -> str:
        gold = "" if self.links is None else f", {counted(int((self.links == 2).sum()), 'sure link')}"
        lines = [
            f"{self.instance_id} · {len(self.source)} source and {counted(len(self.target), 'target word')}{gold}",
            f"source: {' '.join(self.source)}",
            f"target: {' '.join(self.target)}",
            f"measures: {', '.join(self.measures)}",
        ]
        return "\n".join(map(printable, lines))

    def _data(self) -> dict:
        """What the script of the page reads."""
        measures, weights = [], []
        for name, values in self.measures.items():
            largest = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-30)
            sizes = dict(zip(self.axes[name], values.shape, strict=True))
            weights.append(np.rint(np.nan_to_num(values) / largest * PAIR_STEPS).astype("<i2"))
            measures.append(
                {
                    "name": name,
                    "title": measure_label(name),
                    "sizes": [sizes.get(axis, 0) for axis in AXES[:3]],
                    "largest": largest,
                    "signed": bool((values < 0).any()),
                    "share": name.startswith("attention"),
                }
            )
        return {
            "source": list(map(visible, self.source)),
            "target": list(map(visible, self.target)),
            "probs": [round(float(probability), 4) for probability in self.target_probs],
            "links": None if self.links is None else self.links.ravel().tolist(),
            "measures": measures,
            "steps": PAIR_STEPS,
            "weights": packed(*weights),
        }
