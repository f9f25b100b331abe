"""How the words of one pair of sentences align, at a glance: every measure, layer and head, and gold links where there are
any, in a page that is one file.

Shapes: G target words, T source words, L layers of the decoder, A heads; R is 2, the row that predicts a target word and the
one in which it is the input.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.errors import AttnfaithError, counted
from attnfaith.escaping import printable
from attnfaith.record import column_of
from attnfaith.reporting.cells import describe, measure_label, one_cell
from attnfaith.reporting.notebook import row_of
from attnfaith.reporting.one_file import OneFile, one_file, packed
from attnfaith.reporting.page.heatmap import direction_of, visible


PREFIX, MARKERS = "alignment_", "alignment_marker_mass"
AXES = ("L", "A", "R", "G", "T")
MOST_WEIGHTS = 8_000_000
"""Of all measures on one page."""
STEPS = 32767
"""In how many steps up to its largest absolute value a page keeps a measure."""


@dataclass(frozen=True, eq=False)
class PairView(OneFile):
    """What `attnfaith.view` gives of a record of sentence pairs.

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
    truncated: bool = field(default=False)

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
        if PREFIX + "attention" in names and PREFIX + "attention_mean" in names:
            names.remove(PREFIX + "attention_mean")  # which the page makes of the heads
        axes = {name.removeprefix(PREFIX): tuple(column_of(table.schema.field(name)).axes) for name in names}
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
        count = sum(one.size for one in self.measures.values())
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
        largest = {name: max(float(np.nanmax(np.abs(one), initial=0.0)), 1e-30) for name, one in self.measures.items()}
        steps = [np.rint(np.nan_to_num(one) / largest[name] * STEPS) for name, one in self.measures.items()]
        return {
            "source": list(map(visible, self.source)),
            "target": list(map(visible, self.target)),
            "probs": [round(float(one), 4) for one in self.target_probs],
            "links": None if self.links is None else self.links.ravel().tolist(),
            "measures": [
                {
                    "name": name,
                    "title": measure_label(name),
                    "sizes": [dict(zip(self.axes[name], one.shape, strict=True)).get(axis, 0) for axis in AXES[:3]],
                    "largest": largest[name],
                    "signed": bool((one < 0).any()),
                    "share": name.startswith("attention"),
                }
                for name, one in self.measures.items()
            ],
            "steps": STEPS,
            "weights": packed(*(one.astype("<i2") for one in steps)),
        }
