"""Gradient importance as Jain & Wallace (2019) define it: |x . dp/dx|, with attention held fixed."""

import torch

from attnfaith.importance._inputs import STATES, log_odds, products
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks


COLUMNS = {
    "importance_gradient": Column(
        ("T",),
        words="sum",
        range=(0.0, None),
        doc="|sum_d x_d dp/dx_d| of the embedding x of a token, p the probability of the predicted class",
    ),
    "importance_gradient_hidden": Column(
        ("T",), words="sum", range=(0.0, None), doc="the same of the encoder state h of a token"
    ),
}
NEEDS = frozenset({"embeddings", "embedding length", "held attention"})
COST = "gradient"
COLUMN_NEEDS = {"importance_gradient_hidden": STATES}


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """The derivative of the predicted class's probability towards leaving each token's one-hot input.

    Attention is detached after the projection, so the gradient flows through the values only, and through the encoder to
    neighbouring tokens. With two classes the predicted class and class 1 give the same number. For states it is
    p(1-p) a_t |s_t| in closed form, s the difference of logits a state adds to the context.

    With f the log-odds of the predicted class, dp = p(1-p) df. A softmax would be flat above a difference of logits of 17
    in float32, and in float64 lose the winning class's part of the gradient above 37. Values are not divided by their sum;
    ranks are the same. Not defined for a text without tokens (an empty row). Of a hierarchical model a sentence's importance
    is that of all its words together, |sum_w x_w . dp/dx_w|; what weighs words in a sentence is part of the encoder, and
    gradients flow through it. At its word level that weight is attention too and held fixed; the sentence encoder's states
    follow those of the words, so that no closed form holds. Of labels that do not exclude one another p is the
    probability of the most probable label; of a regression p is the largest output itself.

    Source: Jain & Wallace 2019, section 4.1 and their code ("XxE[X]").
    """
    odds, inward = products(subject, batch, log_odds, hold=True)
    mask = subject.attendable(batch).cpu()
    values = getattr(subject, "output", "classes") == "values"
    spread = torch.ones_like(odds) if values else odds.sigmoid() * (-odds).sigmoid()  # p(1-p)
    return {
        name: ragged((spread.unsqueeze(-1) * value.abs()).float().cpu(), mask)
        for name, value in zip(COLUMNS, inward, strict=False)  # states where there are any
    }
