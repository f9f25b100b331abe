"""Attention times its gradient (Serrano & Smith 2019): what each weight adds, were what is explained linear in it."""

from attnfaith.importance._explained import Explain, check_data, check_target
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks


COLUMNS = {
    "importance_attention_x_gradient": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where f or its slope is not finite",
        doc="a df/da of a token's attention a, f what is explained",
    ),
}
NEEDS = frozenset({"attention gradients"})
COST = "reading"

check, check_model = check_target, check_data


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0, target="predicted", output: str = "logit") -> dict[str, list]:
    """a_t df/da_t, states held fixed and each weight a free variable: nothing is renormalised. In units of f.

    f is what `_explained.explaining` makes of target and output. A logit that is affine in attention has df/da_t = w . h_t,
    and this is `exact_contribution`. At the word level of a hierarchical model attention moves the sentence vectors as well.
    Of a stack of
    layers it is the sum over the layers and heads that the subject's reduction takes, of all of them where that is rollout
    or flow, and over the rows that matter. Signed; a token without attention has exactly 0.

    Raises ValueError as `_explained.explaining` says.

    Source: Serrano & Smith 2019, whose f is the probability of the predicted class.
    """
    products = subject.attention_products(batch, Explain(batch, target, output))
    return {"importance_attention_x_gradient": ragged(products.float().cpu(), subject.attendable(batch).cpu())}
