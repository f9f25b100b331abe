"""Gradient times input (Denil et al. 2015; Shrikumar et al. 2016): the part of a linear approximation that a token has."""

from attnfaith.importance._explained import check_data, check_target, explained
from attnfaith.importance._inputs import STATES, products
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks


COLUMNS = {
    "importance_gradient_x_input": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where f or its slope is not finite",
        doc="x . df/dx of the embedding x of a token, f what is explained",
    ),
    "importance_gradient_x_input_hidden": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where f or its slope is not finite",
        doc="the same of the encoder state of a token",
    ),
}
NEEDS = frozenset({"embeddings", "embedding length"})
COST = "gradient"
COLUMN_NEEDS = {"importance_gradient_x_input_hidden": STATES}

check, check_model = check_target, check_data


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0, target="predicted", output: str = "logit") -> dict[str, list]:
    """sum_d x_d df/dx_d for each token: what leaving its embedding out would change if f were linear. In units of f.

    f is what `_explained.explaining` makes of target and output. The gradient flows through attention too, unlike that of
    `gradient`, which also drops the sign. Of a hierarchical model a sentence's is the sum over all its words. Signed: a
    token ranks high as evidence for what is explained, and low as evidence against it. Markers and a second text have their
    share as well, which belongs to no token. A saturated probability keeps its order until it is exactly flat, at log-odds
    of about 700.

    Raises ValueError as `_explained.explaining` says.

    Source: Denil et al. 2015; Shrikumar et al. 2016.
    """
    _, inward = products(subject, batch, lambda logits: explained(logits, batch, target, output))
    mask = subject.attendable(batch).cpu()
    # of states where there are any
    return {name: ragged(values.float().cpu(), mask) for name, values in zip(COLUMNS, inward, strict=False)}
