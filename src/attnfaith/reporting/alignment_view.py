"""The words of a pair of sentences aligned by every measure, layer and head, as numbers and a page of one file.

Shapes: G target words, T source words, L layers of the decoder, A heads; R is 2, the row that predicts a target word and the
row in which it is the input.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cells import describe, measure_label, one_cell
from attnfaith.reporting.heatmap import direction_of, visible
from attnfaith.reporting.html import PageFile, packed, standalone_page
from attnfaith.reporting.links import PREFIX
from attnfaith.reporting.notebook import row_of
from attnfaith.support.errors import AttnfaithError, counted
from attnfaith.support.escaping import printable


AXES = ("L", "A", "R", "G", "T")
MOST_WEIGHTS = 8_000_000
STEPS = 32767
"""In how many steps a page keeps a measure up to its largest absolute value."""


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
        cell = one_cell(table)
        row = row_of(cell, str(pair))
        part = table.slice(row, 1)
        columns = {name.removeprefix(PREFIX): name for name in table.column_names if name.startswith(PREFIX)}
        if "attention" in columns:
            columns.pop("attention_mean", None)  # the page makes it of the heads
        axes = {name: tuple(records.column_of(table.schema.field(column)).axes) for name, column in columns.items()}
        axes = {name: own for name, own in axes.items() if own[-2:] == ("G", "T") and set(own) <= set(AXES)}
        if not axes:
            raise AttnfaithError("the record holds no measure of alignment: measure the model with some, such as attention")
        return cls(
            model=describe(cell.heading),
            instance_id=cell.instance_ids[row],
            source=tuple(part.column("tokens")[0].as_py()),
            target=tuple(part.column("target_tokens")[0].as_py()),
            target_probs=records.rows(part, "target_probs")[0],
            measures={name: records.rows(part, columns[name])[0] for name in axes},
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
        return standalone_page(
            "view_pair",
            self._data(),
            title=f"Which words align: {visible(self.instance_id)}",
            view=self,
            instance_id=visible(self.instance_id),
            titles={name: measure_label(name) for name in self.measures},
            directions=(direction_of(self.source), direction_of(self.target)),
            sizes=(len(self.source), len(self.target)),
            rows=any("R" in axes for axes in self.axes.values()),
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
        """The data that the script of the page reads."""
        measures, weights = [], []
        for name, values in self.measures.items():
            largest = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-30)
            sizes = dict(zip(self.axes[name], values.shape, strict=True))
            weights.append(np.rint(np.nan_to_num(values) / largest * STEPS).astype("<i2"))
            measures.append(
                {
                    "name": name,
                    "title": measure_label(name),
                    "sizes": [sizes.get(axis, 0) for axis in AXES[:3]],
                    "largest": largest,
                    "share": name.startswith("attention"),
                }
            )
        return {
            "source": list(map(visible, self.source)),
            "target": list(map(visible, self.target)),
            "probs": [round(float(probability), 4) for probability in self.target_probs],
            "links": None if self.links is None else self.links.ravel().tolist(),
            "measures": measures,
            "steps": STEPS,
            "weights": packed(*weights),
        }
