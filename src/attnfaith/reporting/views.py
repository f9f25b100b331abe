"""The self-attention of one text at a glance: what a view holds, and its page, one file that needs nothing around it.

Shapes: L positions of a text, N layers, H heads, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnfaith.errors import AttnfaithError, counted, excerpt
from attnfaith.escaping import printable
from attnfaith.record.words import CONTINUES
from attnfaith.reporting.one_file import OneFile, one_file, packed
from attnfaith.reporting.page.heatmap import direction_of, visible


if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"attention": "Attention", "rollout": "Rollout", "alti": "ALTI", "value_zeroing": "Value zeroing"}
"""What can be seen, by name, and what it is called."""
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
"""Of all heads on one page: some 6 MB."""
HEAD_STEPS, STEPS = 255, 4095
"""In how many steps a page keeps the square root of a weight: of single heads, and of what is multiplied."""


@dataclass(frozen=True, eq=False)
class View(OneFile):
    """What `attnfaith.view` gives: the token-to-token graph of a model's layers on one text.

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
        below, made = np.eye(len(self.tokens)), []
        for one in self._of(measure):
            below = one @ below if self.stacked else one.astype(np.float64)
            total = below.sum(1, keepdims=True)
            below = np.divide(below, total, out=np.zeros_like(below), where=total > 0)
            made.append(below)
        return np.stack(made)

    def answer(self, measure: str) -> np.ndarray:
        """(L,): what share of the answer is of each token, markers too; sums to 1. Raises as `through` does."""
        return self.reads @ self.through(measure)[-1]

    def figures(self, measures: Sequence[str] | None = None) -> dict[str, "Figure"]:
        """{"graph": …, "heads": …}: the strongest lines through the layers, of each measure (None: all of the view), and
        the small maps of layers and heads; without the latter where no heads are held. Raises PlotsError without matplotlib.
        """
        from attnfaith.reporting.view_figures import graph_figure, heads_figure

        names = list(self.matrices) if measures is None else list(measures)
        for name in names:
            self._of(name)
        drawn = {"graph": graph_figure(self, names)}
        return drawn | ({"heads": heads_figure(self)} if self.heads else {})

    @cached_property
    def page(self) -> str:
        """The page, as HTML; all text in it is escaped. Raises AttnfaithError where it would hold too many weights."""
        count = sum(one.size for one in self.heads)
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
        best = {name: np.argsort(-self.answer(name), kind="stable")[:3] for name in self.matrices}
        lines = [
            f"{TITLES[name]}: the answer takes most of "
            + ", ".join(f"{visible(self.tokens[place])} {self.answer(name)[place]:.0%}" for place in places)
            for name, places in best.items()
        ]
        said = f"{self.classes[self.predicted]} ({self.probs[self.predicted]:.2f})"
        lines = [f"{said} · {counted(len(self.tokens), 'position')}, {counted(self.depth, 'layer')}{heads}", *lines]
        return "\n".join(map(printable, lines))

    def _of(self, measure: str) -> np.ndarray:
        if measure not in self.matrices:
            why = f": {self.lacks[measure]}" if measure in self.lacks else ""
            raise AttnfaithError(f"the view does not hold {excerpt(measure)}{why}; it holds {', '.join(self.matrices)}")
        return self.matrices[measure]

    @property
    def _about(self) -> dict[str, str]:
        """What is said of each measure."""
        return ABOUT if self.stacked else ABOUT | {"attention": UNSTACKED}

    def _texts(self) -> list[str]:
        """Tokens without the sign that they go on with a word, which the page says otherwise."""
        before = (None, *self.words)
        return [
            token.removeprefix(CONTINUES) or token if word is not None and word == last else token
            for token, word, last in zip(self.tokens, self.words, before, strict=False)
        ]

    def _data(self) -> dict:
        """What the script of the page reads."""
        kept = {name: one for name, one in self.matrices.items() if name != "rollout"}
        if "rollout" in self.matrices and "attention" not in kept:  # of which the page makes it
            kept["attention"] = 2 * self.matrices["rollout"] - np.eye(len(self.tokens))
        whole = np.concatenate([_steps(one, STEPS).ravel() for one in kept.values()]).astype(np.uint16)
        single = [_steps(one, HEAD_STEPS).astype(np.uint8).ravel() for one in self.heads]
        planes = [(whole >> 8).astype(np.uint8), (whole & 255).astype(np.uint8)]
        return {
            "tokens": [visible(token) for token in self._texts()],
            "inside": self.inside.astype(int).tolist(),
            "words": list(self.words),
            "answer": visible(self.classes[self.predicted]),
            "reads": [round(float(one), 6) for one in self.reads],
            "layers": self.depth,
            "stacked": self.stacked,
            "heads": [len(one) for one in self.heads],
            "measures": list(self.matrices),
            "kept": list(kept),
            "titles": TITLES,
            "about": self._about,
            "steps": [STEPS, HEAD_STEPS],
            "weights": packed(*planes, *single),
        }


def _steps(weights: np.ndarray, steps: int) -> np.ndarray:
    return np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * steps)
