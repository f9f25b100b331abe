"""What each token would make a model say if it had all the attention: with this a page can try any other one itself."""

import numpy as np

from attnfaith.interventions.targets import read_out
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


UNDEFINED = "of a class that the text may not be given, as its answer mask says"


@register
class TokenLogits(Measure):
    """What each token would make a model say if it had all the attention: with this a page can try any other one itself.

    The read-out itself: the logits under any attention a over the text's tokens are sum_t a_t token_logits_t + bias.

    token_logits_t = W h_t, states h held fixed: what a token adds to each logit at full weight. They are the numbers that
    `adversary_exact` and `minimal_flip_set` compute with, so that what is computed of them again comes out equal: the
    prediction under any attention, the furthest one that keeps it, the fewest weights that flip it. Where a text has a
    second one that the decoder reads, such as a question, what that adds is in the bias.

    NaN of classes that an answer mask bars. Nothing is random.
    """

    name, cost = "token_logits", "reading"
    needs = frozenset({"affine read-out"})
    columns = {
        "token_logits": Column(
            ("T", "C"),
            unit="logits",
            undefined=UNDEFINED,
            doc="W h of each token: attention sums these, and with the bias they are the logits",
        ),
        "token_logits_bias": Column(
            ("C",), unit="logits", undefined=UNDEFINED, doc="the logits that are left without any attention"
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        columns = {name: [] for name in self.columns}
        for text in read_out(subject, batch):
            for name, values in zip(self.columns, (text.values, text.bias), strict=True):
                columns[name].append(np.where(text.answers, values, np.nan).astype(np.float32))
        return columns
