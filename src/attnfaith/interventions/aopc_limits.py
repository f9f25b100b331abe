"""How far removing a text's tokens can lower a prediction, in the best and in the worst order, and where measures lie."""

import numpy as np

from attnfaith.draws import generator
from attnfaith.interventions import subsets
from attnfaith.interventions.orders import ExactTokens, answered, columns, limits, rank
from attnfaith.measurement.options import Absent, Count, Natural
from attnfaith.measurement.registry import Measure, register


@register
class AOPCLimits(Measure):
    """How far removing a text's tokens can lower a prediction, in the best and in the worst order, and where measures lie.

    The area over the perturbation curve of each measure's order, and its limits over all orders.

    AOPC of an order of the T tokens is the mean, over k = 1..T, of p(whole) - p(without its first k tokens), p the
    probability of the class predicted for the whole text. Models and texts differ in how high it can get at all, so that an
    AOPC says little alone: (AOPC - low) / (high - low) is 0 for the worst and 1 for the best order.

    absent: what becomes of tokens that are taken away, see `subjects.removal.read_parts`. exact_tokens: up to so many tokens
    all 2^T subsets are read, and limits are exact, over all T! orders. Beyond, a beam of `beam` sets looks for the best and
    the worst order. It meets orders; so its high is a lower bound of the upper limit, and its low an upper bound of the
    lower one; the orders of the measures count too, and are all
    that is met of texts of more than beam_tokens. The other side is certified, and wide: of sets of up to whole_sizes
    tokens, and of all but so many, all are read; of sets of other sizes p is known to lie in 0..1 and no more (what was read
    of such a size proves nothing of the rest of it).

    The measures are those of `scores`; without it attention alone. Equal scores are put in a random order, the same
    for all measures. Undefined (NaN): a text without tokens; a measure with a NaN score. A text takes 2^T passes, or about
    beam T^2 and one for each measure and token; no part is read twice.

    Source: Edin et al. 2025, Normalized AOPC (ACL 2025); AOPC: Samek et al. 2017.
    """

    name, cost = "aopc_limits", "draws"
    needs = frozenset({"classes", "token deletion"})
    columns = columns("aopc_limits", "taken away")
    most_tokens = 4000  # each two of them have a number

    absent: Absent = "deleted"
    exact_tokens: ExactTokens = 12
    beam: Count = 5
    beam_tokens: Natural = 64
    whole_sizes: Natural = 1

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for a subject that cannot do to tokens what `absent` says."""
        subsets.check_absent_model(subject, self.absent, "aopc_limits")

    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        given, probs = subsets.scores_of(subject, batch, scores), subsets.whole(subject, batch)
        names, predicted = batch["instance_id"], probs.argmax(1)
        orders = [
            rank([values[row] for values in given.values()], generator(seed, name, "aopc_limits"))
            for row, name in enumerate(names)
        ]

        def read(removed: list[np.ndarray]) -> list[np.ndarray]:
            said = subsets.read_parts(subject, batch, [~sets for sets in removed], self.absent)
            return [part[:, one] for part, one in zip(said, predicted, strict=True)]

        asking = [limits(order, self.exact_tokens, self.beam, self.beam_tokens, None, self.whole_sizes) for order in orders]
        return as_columns(self.columns, given, answered(asking, [order.shape[1] for order in orders], read))


def as_columns(declared: dict, given: dict[str, list[np.ndarray]], told: list) -> dict[str, list]:
    """The columns of limits, NaN where a measure is undefined or there are none."""
    made: dict[str, list] = {name: [] for name in declared}
    for row, one in enumerate(told):
        scores = [values[row] for values in given.values()]
        undefined = np.array([one is None or bool(np.isnan(values).any()) for values in scores])
        aopc = np.where(undefined, np.nan, np.nan if one is None else one.aopc)
        ends = [np.nan] * 4 if one is None else [one.low, one.high, one.low_bound, one.high_bound]
        certainty = "undefined" if one is None else one.certainty
        for values, value in zip(made.values(), (list(given), aopc, *ends, certainty), strict=True):
            values.append(value)
    return made
