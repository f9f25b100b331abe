"""The exact contribution of a token to a logit at the pooling layer: what attention would have to be to be right there."""

import torch

from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import attended
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks, whole_logits


COLUMNS = {
    "importance_exact_contribution": Column(
        ("T",),
        words="sum",
        signed=True,
        doc="a (w . h) of a token's attention a, its state h and the class's weights w; with the bias they sum to the logit",
    ),
}
NEEDS = frozenset({"states", "affine read-out"})
COST = "reading"


def check(target="predicted") -> None:
    """Raises ValueError for a target that no model has."""
    check_target(target)


def check_model(subject, dataset, *, target="predicted") -> None:
    """Raises ValueError as `_explained.check_data` says."""
    check_data(subject, dataset, target=target)


@asks(NEEDS)
@torch.no_grad()
def measure(subject, batch, *, seed: int = 0, target="predicted") -> dict[str, list]:
    """a_t (w_c . h_t): the context is sum_t a_t h_t, so these and the bias b_c sum to the logit of class c. In logits.

    It takes the states as they are and does not say which inputs made them. Target: see `_explained.explaining`; of a
    contrast w is the difference of two classes' weights. Signed: evidence for the class ranks first. A token without
    attention has exactly 0.

    Where logits are not affine in attention they are no sum over tokens: integrated_gradients and lrp sum to them there, and
    attention_x_gradient is the linear part. Raises ValueError as `_explained.explaining` says.
    """
    (hidden, mask, query), attention = attended(subject, batch)
    chosen = explaining(whole_logits(subject, batch), batch, target)
    weight = subject.decoder_weights(query)[0].double()
    direction = weight[chosen.of] - (0 if chosen.against is None else weight[chosen.against])
    parts = attention.double() * (hidden.double() @ direction.unsqueeze(-1)).squeeze(-1)
    return {"importance_exact_contribution": ragged(parts.float().cpu(), mask.cpu())}
