"""KernelSHAP (Lundberg & Lee 2017): Shapley values of tokens, exact for few; else fitted to samples, through captum."""

import numpy as np
import torch
from scipy.special import comb

from attnfaith.importance._captum import captum
from attnfaith.importance._surrogate import check_sampled_model, check_sampling, of_each
from attnfaith.record import Column
from attnfaith.subjects import asks


COLUMNS = {
    "importance_kernel_shap": Column(
        ("T",),
        words="sum",
        signed=True,
        undefined="where what is explained is",
        unit="what is explained",
        doc="Shapley value of a token: exact where all parts of the text are read, else an estimate",
    ),
    "kernel_shap_residual": Column(
        dtype="float64",
        undefined="where a value is",
        tolerance=2,  # what rounding leaves
        doc="their sum - (f of the text - f of nothing); about 0",
    ),
}
NEEDS = frozenset({"token deletion"})
COST = "draws"


def check(*, target="predicted", output: str = "logit", samples: int = 256, absent: str = "deleted") -> None:
    """Raises ValueError for a target, an output or an absence that there is not, samples below 3, and without captum."""
    check_sampling(target, output, samples, absent, least=3)


def check_model(subject, dataset, *, target="predicted", output="logit", absent="deleted", **others) -> None:
    """Raises ValueError as `_surrogate.check_sampled_model` says."""
    check_sampled_model(subject, dataset, target, output, absent, "kernel_shap")


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
) -> dict[str, list]:
    """What each token adds to what is explained, averaged over the orders in which tokens can join.

    What is explained is what `_explained.explaining` makes of target and output. Where `samples` are enough for all 2^T
    parts of the text, all are read and the values are exact. Else they are estimates: `samples` parts are read, the whole
    and nothing among them, the others drawn with chance proportional to the Shapley kernel (T - 1) / (binom(T, s) s (T -
    s)), s the tokens that stay; a linear model is fitted to them, with a weight of 10^6 on the whole and on nothing, so
    that scores add up to their difference but for `kernel_shap_residual`. Below T + 1 different parts the fit is not unique
    and the shortest of the best is given; noise falls with samples, and is large for long texts: a rank may be chance.
    absent: "deleted" tokens are gone from the text, "zero" ones have embeddings of zeros. Of a hierarchical model
    sentences, or words, take the place of tokens. One token is given all of the difference.

    Drawn per instance from (seed, instance id). Signed: a token ranks high as evidence for what is explained. NaN where
    what is explained of any part is not finite. Raises ValueError as `check` and `_explained.explaining` say.

    Source: Lundberg & Lee 2017, theorem 2; captum's `KernelShap`.
    """
    check(target=target, output=output, samples=samples, absent=absent)
    shap = captum().KernelShap

    def fit(value, length):
        if 2**length <= samples:
            return _shapley_values(value, length)
        values = shap(value).attribute(torch.ones(1, length), n_samples=samples, perturbations_per_eval=samples)
        return values[0].double().numpy()

    fits = of_each(subject, batch, fit, seed=seed, purpose="kernel_shap", target=target, output=output, absent=absent)
    scores, residuals = [scores.astype(np.float32) for scores, _ in fits], [residual for _, residual in fits]
    return dict(zip(COLUMNS, (scores, residuals), strict=True))


def _shapley_values(value, length: int) -> np.ndarray:
    """The Shapley values (T,) of a function of parts (V,T): each of the 2^T parts is read once."""
    parts = (np.arange(2**length)[:, None] >> np.arange(length)) % 2 == 1
    others = parts.sum(1, keepdims=True) - parts  # besides the token that joins, or does not
    chance = 1 / (length * comb(length - 1, others))
    return value(torch.from_numpy(parts)).numpy() @ np.where(parts, chance, -chance)
