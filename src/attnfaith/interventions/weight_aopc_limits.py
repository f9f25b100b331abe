"""How far erasing attention weights can lower a prediction, in the best and worst order: with bounds that sorting proves.

Shapes: T tokens, C classes, J rivals of the predicted class, V sets of tokens, K = T sizes of sets.
"""

import numpy as np

from attnfaith.draws import generator
from attnfaith.interventions import subsets
from attnfaith.interventions.aopc_limits import as_columns
from attnfaith.interventions.orders import ExactTokens, answered, columns, limits, rank
from attnfaith.interventions.targets import Readout, read_out, softmax
from attnfaith.measurement.options import Count, Natural
from attnfaith.measurement.registry import Measure, register


ROUNDS = 100  # of Dinkelbach's method, which needs a handful


@register
class WeightAOPCLimits(Measure):
    """How far erasing attention weights can lower a prediction, in the best and worst order: with bounds that sorting
    proves.

    The area over the perturbation curve of each measure's order when weights are erased, and its limits over all orders.

    As `aopc_limits`, with attention weights set to 0 and the rest renormalised in place of tokens taken away; with no weight
    left the bias decides. Nothing is read anew, so this costs no pass of the model.

    Bounds beyond exact_tokens. The log-odds of the predicted class c against a rival j, from the tokens S that keep their
    weight, are sum_S m_t / sum_S a_t with m_t = a_t ((w_c - w_j) . h_t + b_c - b_j). Of all S of one size the greatest such
    ratio is found by Dinkelbach's method: x is the greatest ratio when the tokens of largest m_t - x a_t sum to 0; each
    round is a sort. With two classes p rises with the one ratio, and the bounds of each size are exact; with more, p is at
    most what the rival that does best leaves, and at least what all rivals at their best would. Best sets of different
    sizes need not contain one another; so the mean over sizes bounds what an order can reach, and need not be reached.

    Undefined (NaN): a text without tokens; a measure with a NaN score.

    Source: Edin et al. 2025, Normalized AOPC (ACL 2025), for tokens; ratios: Dinkelbach 1967.

    Shapes: T tokens, C classes, J rivals of the predicted class, V sets of tokens, K = T sizes of sets.
    """

    name, cost = "weight_aopc_limits", "reading"
    needs = frozenset({"affine read-out", "classes"})
    columns = columns("weight_aopc_limits", "without weight")
    most_tokens = 4000  # each two of them have a number

    exact_tokens: ExactTokens = 12
    beam: Count = 5
    beam_tokens: Natural = 64

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        given, read = subsets.scores_of(subject, batch, scores), read_out(subject, batch)
        classes = [int(one.probs.argmax()) for one in read]
        asking = []
        for row, (one, name) in enumerate(zip(read, batch["instance_id"], strict=True)):
            order = rank([values[row] for values in given.values()], generator(seed, name, "aopc_limits"))
            asking.append(limits(order, self.exact_tokens, self.beam, self.beam_tokens, _Bounds(one, classes[row])))
        texts = list(zip(read, classes, strict=True))

        def said(removed: list[np.ndarray]) -> list[np.ndarray]:
            return [_probs(*text, ~sets) for text, sets in zip(texts, removed, strict=True)]

        return as_columns(self.columns, given, answered(asking, [len(one.attention) for one in read], said))


def _probs(one: Readout, predicted: int, kept: np.ndarray) -> np.ndarray:
    """Probabilities (V,) of a class when the tokens kept (V,T) alone have weight."""
    weights = kept * one.attention
    total = weights.sum(1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return softmax(one.logits(shares))[:, predicted]


class _Bounds:
    """The least and the greatest probability of a class when so many tokens have lost their weight, by size 0..T."""

    def __init__(self, one: Readout, predicted: int):
        self.one, self.predicted = one, predicted

    def __call__(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        one, rivals = self.one, np.flatnonzero(self.one.answers & (np.arange(len(self.one.bias)) != self.predicted))
        if not len(rivals):
            return np.ones(length + 1), np.ones(length + 1)
        values = one.values + one.bias
        margins = one.attention[:, None] * (values[:, [self.predicted]] - values[:, rivals])
        greatest = np.stack([_ratios(margin, one.attention) for margin in margins.T])
        least = np.stack([-_ratios(-margin, one.attention) for margin in margins.T])
        with np.errstate(over="ignore"):
            highest = 1 / (1 + np.exp(-greatest).max(0))
            lowest = 1 / (1 + np.exp(-least).sum(0))
        empty = _probs(one, self.predicted, np.zeros((1, length), bool))[0]
        # so many tokens may be all that have no weight, and the bias decides
        only_empty = np.arange(length + 1) <= (one.attention == 0).sum()
        lowest, highest = (
            np.where(only_empty, choose(bound, empty), bound)
            for choose, bound in ((np.minimum, lowest), (np.maximum, highest))
        )
        lowest[0] = highest[0] = empty
        return lowest[::-1], highest[::-1]


def _ratios(margins: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The greatest sum(margins) / sum(weights) of any k tokens of which one has weight, k = 0..T; NaN of k = 0.

    margins (T,) are 0 where weights (T,) are. Sums over the tokens chosen are made anew in each round, so that none loses
    digits to one that is not chosen.
    """
    length = len(weights)
    sizes = np.arange(1, length + 1)
    heaviest = np.argsort(-weights, kind="stable")
    ratios = margins[heaviest].cumsum() / weights[heaviest].cumsum()
    for _ in range(ROUNDS):
        ranks = np.argsort(np.argsort(-(margins - ratios[:, None] * weights), 1, "stable"), 1)
        chosen = ranks < sizes[:, None]
        total = (chosen * weights).sum(1)
        better = np.divide((chosen * margins).sum(1), total, out=ratios.copy(), where=total > 0)
        if not (better > ratios).any():
            break
        ratios = np.maximum(ratios, better)
    return np.concatenate([[np.nan], ratios])
