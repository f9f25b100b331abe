"""The exact contribution of a token to a logit at the pooling layer: what attention would have to be to be right there."""

import torch

from attnfaith.importance._explained import check_data, check_target, explaining
from attnfaith.importance._inputs import attended
from attnfaith.record import Column, ragged


COLUMNS = {
    "importance_exact_contribution": Column(
        ("T",),
        signed=True,
        doc="a (w . h) of a token's attention a, its state h and the class's weights w; with the bias they sum to the logit",
    ),
}


def check(target="predicted") -> None:
    """Raises ValueError for a target that no model has."""
    check_target(target)


def check_model(model, dataset, *, target="predicted") -> None:
    """Raises ValueError as `_explained.check_data` says, and for a model whose logits are not affine in attention."""
    _check_affine(model)
    check_data(model, dataset, target=target)


def _check_affine(model) -> None:
    if not model.affine:
        what = "words of a hierarchical model" if model.level == "word" else f"readout={model.config.readout!r}"
        raise ValueError(
            f"logits of {what} are not affine in attention, so they are no sum over tokens; measures that sum to them "
            "there are integrated_gradients and lrp, and attention_x_gradient is the linear part"
        )


@torch.no_grad()
def measure(model, batch, *, seed: int = 0, target="predicted") -> dict[str, list]:
    """a_t (w_c . h_t): the context is sum_t a_t h_t, so these and the bias b_c sum to the logit of class c. In logits.

    It takes the states as they are and does not say which inputs made them. Target: see `_explained.explaining`; of a
    contrast w is the difference of two classes' weights. Signed: evidence for the class ranks first. A token without
    attention has exactly 0.

    Raises ValueError for a decoder that is not affine and for the word level of a hierarchical model, and as
    `_explained.explaining` says.
    """
    _check_affine(model)
    (hidden, mask, query), attention = attended(model, batch)
    chosen = explaining(model.decode(hidden, attention, query), batch, target)
    weight = model.decoder_weights(query)[0].double()
    direction = weight[chosen.of] - (0 if chosen.against is None else weight[chosen.against])
    found = attention.double() * (hidden.double() @ direction.unsqueeze(-1)).squeeze(-1)
    return {"importance_exact_contribution": ragged(found.float().cpu(), mask.cpu())}
