"""Relevance through attention times its gradient, layer by layer (Chefer et al. 2021, ICCV)."""

import torch

from attnfaith.importance._explained import Explain, check_data, check_target
from attnfaith.record import Column, ragged
from attnfaith.subjects import SubjectError, asks
from attnfaith.subjects.attention import map_products


COLUMNS = {
    "importance_chefer": Column(
        ("T",),
        words="sum",
        range=(0.0, None),
        undefined="where f or its slope is not finite",
        doc="relevance of a token for the rows that matter, f what is explained",
    ),
}
NEEDS = frozenset({"attention maps"})
COST = "gradient"

check = check_target


def check_model(subject, dataset, *, target="predicted", output: str = "logit") -> None:
    """Raises ValueError as `_explained.check_data` says, and SubjectError for an encoder–decoder."""
    _check_layers(subject)
    check_data(subject, dataset, target=target, output=output)


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0, target="predicted", output: str = "logit") -> dict[str, list]:
    """The rows that matter of R, a product over layers of I + the mean over heads of (A dF/dA) where it is positive.

    R begins as the identity and R becomes R + A' R in each layer, A' the mean over heads of the positive parts of attention
    times its gradient. The mean of R - I over the rows that the logits depend on: the identity says only that such a row
    stands at its own token, which the authors leave out as well. Not negative: evidence against what is explained is cut
    off. f is what `_explained.explaining` makes of target and output.

    Raises ValueError as `_explained.explaining` says; SubjectError for an encoder–decoder, whose attention is of three
    kinds, for which the authors have other rules.

    Source: Chefer et al. 2021 (ICCV), section 3.2, self-attention.
    """
    _check_layers(subject)
    mask = subject.attendable(batch)
    scores = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
    layers = range(len(subject.sites.layers))
    for part in map_products(subject, batch, Explain(batch, target, output), layers):
        identity = torch.eye(part.length, dtype=torch.float64, device=mask.device)
        whole = identity
        for layer in layers:
            whole = whole + part.positive[layer] @ whole
        matter = part.matter.double()
        of_rows = (matter.unsqueeze(1) @ (whole - identity)).squeeze(1) / matter.sum(1, keepdim=True).clamp(min=1)
        scores[part.rows, : part.length] = of_rows
    return {"importance_chefer": ragged(scores.float().cpu(), mask.cpu())}


def _check_layers(subject) -> None:
    if subject.sites.maps != len(subject.sites.layers):
        raise SubjectError(
            f"chefer goes through layers of self-attention, and this model has {subject.sites.maps} maps, of which only "
            f"{len(subject.sites.layers)}, a decoder's over its encoder, are of its text: take attention_x_gradient"
        )
