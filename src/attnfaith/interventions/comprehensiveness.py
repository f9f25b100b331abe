"""Comprehensiveness in log-odds: what a model loses without the words that attention ranks first. The verdict reads it.

Shapes: B instances, T tokens (of hierarchical models sentences or words), M orders, S shares, V parts of a text, C classes.
"""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.explanation_tests import (
    ExplanationTest,
    first_ranked,
    rationales,
    read_logits,
    scores_of,
    undefined,
)
from attnfaith.measurement.options import Absent, Draws, Shares
from attnfaith.measurement.registry import register
from attnfaith.record import ABSOLUTE, Column
from attnfaith.subjects.protocol import log_odds
from attnfaith.verdict import SHARES


REFERENCES = (f"{ABSOLUTE}integrated_gradients", "leave_one_out")
"""What attention is held against: the first of these that is measured beside it."""


@register
class Comprehensiveness(ExplanationTest):
    """Log-odds lost without the tokens that attention ranks first, beside one importance measure and random orders.

    The loss of an order is log-odds(whole) - log-odds(rest), averaged over `shares`: the rest is the text without the
    ceil(s T) tokens, at least one, that come first in the order. Log-odds are those of the class that is predicted for the
    whole text against all others, from logits. The importance measure is the size of integrated gradients, or
    leave-one-out where integrated gradients are not measured. Equal scores are put in one random order. The random loss is
    the mean over `draws` random orders. Where the dataset marks the tokens that decide (`rationale`), all of them are
    deleted too, and as many at random.

    Undefined (NaN): a text without tokens; an order with a NaN score; the evidence of a text where none, or every token, is
    marked.

    Source: DeYoung et al. 2020, section 4.2 (comprehensiveness), with log-odds in place of probabilities, which saturate.
    """

    name, cost = "comprehensiveness", "tokens"
    needs = frozenset({"classes", "token deletion"})
    columns = {
        "comprehensiveness_orders": Column(
            ("M",), "string", doc="what orders the tokens: attention, then the measure beside it"
        ),
        "comprehensiveness_losses": Column(
            ("M",),
            "float64",
            undefined="a score of the order is undefined, or the text is empty",
            unit="log-odds",
            doc="log-odds of the predicted class that are lost without the tokens that come first, mean over the shares",
        ),
        "comprehensiveness_random": Column(
            dtype="float64",
            undefined="the text is empty",
            unit="log-odds",
            doc="the same in random orders, mean over draws and shares",
        ),
        "comprehensiveness_evidence": Column(
            dtype="float64",
            undefined="the tokens that decide are not marked, or all are",
            unit="log-odds",
            doc="log-odds of the predicted class that are lost without the tokens that are marked as deciding",
        ),
        "comprehensiveness_evidence_random": Column(
            dtype="float64",
            undefined="the tokens that decide are not marked, or all are",
            unit="log-odds",
            doc="the same without as many random tokens, mean over draws",
        ),
    }

    shares: Shares = SHARES
    draws: Draws = 5
    absent: Absent = "deleted"

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        scores = scores_of(subject, batch, scores)
        reference = [name for name in REFERENCES if name in scores][:1]
        orders = {name: scores[name] for name in ("attention", *reference)}
        marks = batch.get("rationale", [()] * len(batch["instance_id"]))
        removed = [
            self._removed(
                [values[row] for values in orders.values()], np.asarray(marks[row]), generator(seed, name, self.name)
            )
            for row, name in enumerate(batch["instance_id"])
        ]
        logits = read_logits(subject, batch, [~sets for sets in removed], self.absent)
        columns: dict[str, list] = {name: [] for name in self.columns}
        for row, of_text in enumerate(logits):
            ends = np.cumsum([len(orders) * len(self.shares), self.draws * len(self.shares)])
            ordered, random, marked = np.split(_lost(of_text), ends)
            empty = not len(orders["attention"][row])
            losses = ordered.reshape(len(orders), -1).mean(1)
            losses[undefined([values[row] for values in orders.values()]) | empty] = np.nan
            evidence = (marked[0], marked[1:].mean()) if len(marked) else (np.nan, np.nan)
            values = (list(orders), losses, np.nan if empty else random.mean(), *evidence)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        return columns

    def _removed(self, orders: list[np.ndarray], marks: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Sets (V,T) bool of removed tokens: none; M x S of the orders; K x S at random; the marked ones, and K as many."""
        length = len(orders[0])
        draws = list(random.random((self.draws, length)))
        ranked = rationales([*orders, *draws], self.shares, random)
        sets = [np.zeros((1, length), bool), ranked.reshape(len(ranked) * len(self.shares), length)]
        marked = marks > 0
        if len(marks) == length and 0 < marked.sum() < length:
            sets += [marked[None], first_ranked(draws, [int(marked.sum())], random)[:, 0]]
        return np.concatenate(sets)


def _lost(logits: np.ndarray) -> np.ndarray:
    """Log-odds (V-1,) lost beside the first of the rows (V,C) by the others, of the class that it predicts."""
    values = torch.from_numpy(logits)
    odds = log_odds(values, values[:1].argmax(-1).expand(len(values))).numpy()
    return odds[0] - odds[1:]
