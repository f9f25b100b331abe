"""The self-attention of one text, layer by layer up to the answer, as numbers, a page of one file and figures.

Shapes: L positions of a text, N layers, H heads, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.record import CONTINUES
from attnfaith.reporting.heatmap import direction_of, visible
from attnfaith.reporting.html import PageFile, packed, standalone_page
from attnfaith.reporting.view_figures import TITLES, graph_figure, heads_figure
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import printable


if TYPE_CHECKING:
    from matplotlib.figure import Figure

ABOUT = {
    "attention": "The weights themselves: of each layer the mean of its heads, or the head that you choose. Followed "
    "through layers they are multiplied, as if there were no residual connections.",
    "rollout": "Half of each layer is its attention, the mean of the heads, and half the residual connection (Abnar & "
    "Zuidema 2020). It uses weights alone, not the values that they weigh.",
    "alti": "How near the vector that a token adds brings the state after attention, in L1 (ALTI, Ferrando et al. 2022).",
    "value_zeroing": "How far a layer's result turns when a token's values are zeros in that layer (Mohebbi et al. 2023).",
}
UNSTACKED = (
    "The weights themselves: of each layer the mean of its heads, or the head that you choose. Each layer of this model "
    "reads the tokens themselves, so nothing is multiplied."
)
MOST_WEIGHTS = 8_000_000
"""On one page: of all heads of a text some 6 MB."""
HEAD_STEPS, STEPS = 255, 4095
"""In how many steps a page keeps the square root of a weight of single heads, and of what is multiplied."""


@dataclass(frozen=True, eq=False)
class View(PageFile):
    """The token-to-token graph of a model's layers for one text, as `attnfaith.view` returns it.

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

    @property
    def depth(self) -> int:
        """The number of layers."""
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
        """(L,): the share of the answer that each token is, markers too; sums to 1. Raises as `through` does."""
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
        about = ABOUT if self.stacked else {**ABOUT, "attention": UNSTACKED}
        return standalone_page(
            "view",
            self._data(about),
            title=f"{self.classes[self.predicted]}: what reads what in {self.model}",
            view=self,
            titles={name: title for name, title in TITLES.items() if name in self.matrices or name in self.lacks},
            about=about,
            order=np.argsort(-self.probs, kind="stable")[:3].tolist(),
            direction=direction_of(self.tokens),
        )

    def __repr__(self) -> str:
        heads = f", {counted(sum(map(len, self.heads)), 'head')} in all" if self.heads else ""
        answer = f"{self.classes[self.predicted]} ({self.probs[self.predicted]:.2f})"
        lines = [f"{answer} · {counted(len(self.tokens), 'position')}, {counted(self.depth, 'layer')}{heads}"]
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

    def _data(self, about: Mapping[str, str]) -> dict:
        """The data that the script of the page reads. Tokens lose the sign that they continue a word."""
        tokens = [
            token.removeprefix(CONTINUES) or token if word is not None and word == last else token
            for token, word, last in zip(self.tokens, self.words, (None, *self.words), strict=False)
        ]
        matrices = {name: matrices for name, matrices in self.matrices.items() if name != "rollout"}
        if "rollout" in self.matrices and "attention" not in matrices:  # the page computes rollout from attention
            matrices["attention"] = 2 * self.matrices["rollout"] - np.eye(len(self.tokens))
        whole = np.concatenate([_steps(values, STEPS).ravel() for values in matrices.values()]).astype(np.uint16)
        single = [_steps(layer, HEAD_STEPS).astype(np.uint8).ravel() for layer in self.heads]
        planes = [(whole >> 8).astype(np.uint8), (whole & 255).astype(np.uint8)]
        return {
            "tokens": list(map(visible, tokens)),
            "inside": self.inside.astype(int).tolist(),
            "words": list(self.words),
            "answer": visible(self.classes[self.predicted]),
            "reads": [round(float(share), 6) for share in self.reads],
            "layers": self.depth,
            "stacked": self.stacked,
            "heads": [len(layer) for layer in self.heads],
            "measures": list(self.matrices),
            "kept": list(matrices),
            "titles": TITLES,
            "about": about,
            "steps": [STEPS, HEAD_STEPS],
            "weights": packed(*planes, *single),
        }


def _steps(weights: np.ndarray, steps: int) -> np.ndarray:
    return np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * steps)
