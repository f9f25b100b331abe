"""LIME (Ribeiro et al. 2016): the weights of a sparse linear model fitted around a text, through captum."""

import math

import numpy as np
import torch

from attnfaith.importance._captum import captum
from attnfaith.importance._surrogate import check_sampled_model, check_sampling, of_each
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_lime": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where what is explained is",
        doc="a token's weight in a local linear model of what is explained",
    ),
}
NEEDS = frozenset({"token deletion"})
COST = "draws"


def check(
    *,
    target="predicted",
    output: str = "logit",
    samples: int = 256,
    absent: str = "deleted",
    width: float = 0.25,
    penalty: float = 0.01,
) -> None:
    """Raises ValueError for a target, an output or an absence that there is not, samples below 2, a width that is not a
    finite number above 0, a penalty that is not one from 0 on, and without captum.
    """
    check_sampling(target, output, samples, absent, least=2)
    for name, value, allowed in (("width", width, "above 0"), ("penalty", penalty, "from 0 on")):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (0 <= value < math.inf) or (name == "width" and value == 0):
            raise ValueError(f"{name}={value!r}; give a finite number {allowed}")


def check_model(subject, dataset, *, target="predicted", output="logit", absent="deleted", **others) -> None:
    """Raises ValueError as `_surrogate.check_sampled_model` says."""
    check_sampled_model(subject, dataset, target, output, absent, "lime")


@asks(NEEDS)
def measure(
    subject,
    batch,
    *,
    seed: int = 0,
    target="predicted",
    output: str = "logit",
    samples: int = 256,
    absent: str = "deleted",
    width: float = 0.25,
    penalty: float = 0.01,
) -> dict[str, list]:
    """How what is explained changes with each token when texts lose tokens at random, near the whole text.

    `samples` parts of the text are drawn, each token staying with chance 1/2, and weighted by exp(-d^2 / (2 width^2)), d
    the cosine distance of the part to the whole as vectors of 0 and 1. To what `_explained.explaining` makes of target and
    output a linear model is fitted by least squares under these weights, plus `penalty` times the sum of its absolute
    coefficients (sklearn's Lasso: squares are halved and averaged), in units of what is explained: a token whose effect is
    small against it gets exactly 0, and such tokens are tied. A penalty of 0 is least squares. Other samples give other
    scores, less so the more there are. absent: "deleted" tokens are gone from the text, "zero" ones have embeddings of
    zeros. Of a hierarchical model sentences, or words, take the place of tokens. One token is given all of the difference.

    Drawn per instance from (seed, instance id). Signed: a token ranks high as evidence for what is explained. NaN where
    what is explained of any part is not finite. Raises ValueError as `check` and `_explained.explaining` say.

    Source: Ribeiro et al. 2016, eq. 1 and 2 and section 3.4, with their kernel width for texts; captum's `Lime`.
    """
    check(target=target, output=output, samples=samples, absent=absent, width=width, penalty=penalty)
    attr = captum()
    from captum._utils.models.linear_model import SkLearnLasso, SkLearnLinearRegression
    from captum.attr._core.lime import get_exp_kernel_similarity_function

    near = get_exp_kernel_similarity_function("cosine", kernel_width=width)

    def fit(value, length):
        linear = SkLearnLasso(alpha=penalty) if penalty else SkLearnLinearRegression()
        surrogate = attr.Lime(value, interpretable_model=linear, similarity_func=near)
        weights = surrogate.attribute(torch.ones(1, length), n_samples=samples, perturbations_per_eval=samples)
        return weights[0].double().numpy()

    fits = of_each(subject, batch, fit, seed=seed, purpose="lime", target=target, output=output, absent=absent)
    return {"importance_lime": [scores.astype(np.float32) for scores, _ in fits]}
