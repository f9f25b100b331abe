"""Measures that fit a linear model to a black box: parts of a text in, what is explained out.

Both are captum's; here is what captum is given. Shapes: T items of a text, V parts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import comb

from attnfaith.importance.targets import TARGET_DOC, TargetMeasure, signed_score, token_counts
from attnfaith.measurement.options import Absent, at_least, number
from attnfaith.measurement.registry import register
from attnfaith.record import Column
from attnfaith.subjects import require
from attnfaith.subjects.protocol import ABSENT, read_parts
from attnfaith.support.draws import default_dtype, drawing, generator


UNDEFINED = "where what is explained of the text, of nothing or of a part is not finite"


def captum():
    """The module captum.attr. Raises ValueError where captum is not installed."""
    try:
        import captum.attr
    except ImportError as error:
        raise ValueError("this measure needs captum: pip install 'attnfaith[captum]', or leave it out") from error
    return captum.attr


@dataclass(frozen=True, kw_only=True)
class _Surrogate(TargetMeasure):
    """A measure that fits a linear model to parts of each text.

    samples: how many parts are read. absent: "deleted" tokens are gone from the text, "zero" ones have embeddings of zeros,
    and so on (`attnfaith.subjects.protocol`). Of a hierarchical model sentences take the place of tokens.

    Subclasses define fit(value, length): the scores (T,) of a function of parts (V,T) of 0 and 1.
    """

    samples: at_least(2) = 256
    absent: Absent = "deleted"

    def __post_init__(self):
        super().__post_init__()
        captum()

    def check(self, subject, dataset) -> None:
        """Raise ValueError where the model lacks the class, SubjectError where it cannot read parts in this way."""
        require(subject, {ABSENT[self.absent]}, f"{self.name} with absent='{self.absent}'")
        super().check(subject, dataset)

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        f, dtype = self.explained(subject, batch), torch.get_default_dtype()
        rows = []
        for row, (name, length) in enumerate(zip(batch["instance_id"], token_counts(subject, batch), strict=True)):
            if not length:
                rows.append((np.zeros(0, np.float32), 0.0))
                continue
            text, broken = batch.alone(row), []

            def value(parts, text=text, row=row, broken=broken):
                with default_dtype(dtype):
                    (logits,) = read_parts(subject, text, [parts.numpy().astype(bool)], self.absent)
                values = f(torch.from_numpy(logits[None]).to(subject.device), slice(row, row + 1))[0].cpu()
                broken += [True] * (not values.isfinite().all())
                return values.nan_to_num()

            ends = value(torch.stack([torch.zeros(length), torch.ones(length)]))
            scores = np.diff(ends.numpy())  # of one item, all of the difference
            if length > 1 and not broken:
                with drawing(int(generator(seed, name, self.name).integers(2**63))):
                    scores = self.fit(value, length)
            if broken:
                scores = np.full(length, np.nan)
            rows.append((scores.astype(np.float32), float(scores.sum() - (ends[1] - ends[0]))))
        return dict(zip(self.columns, map(list, zip(*rows, strict=True)), strict=False))


class _Linear:
    """A linear model of scikit-learn in the form that captum asks for, fitted in float64: in captum's float32 the weight of
    10^6 on the whole and on nothing leaves four digits, and Lasso stops at another step on another processor.
    """

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, samples, **_) -> None:
        """Fit to batches of parts (V,T), values (V,) and weights (V,)."""
        parts, values, weights = (torch.cat(column).double().numpy() for column in zip(*samples, strict=True))
        self.estimator.fit(parts, values, sample_weight=weights.reshape(-1))

    def representation(self) -> torch.Tensor:
        """Return the coefficients (1,T)."""
        return torch.from_numpy(self.estimator.coef_)[None]


def _fitted(surrogate, length: int, samples: int) -> np.ndarray:
    """The coefficients (T,) that captum fits to so many parts of a text."""
    surrogate.attribute(torch.ones(1, length), n_samples=samples, perturbations_per_eval=samples)
    return surrogate.interpretable_model.estimator.coef_


@register
class KernelShap(_Surrogate):
    """KernelSHAP (Lundberg & Lee 2017): Shapley values of tokens, exact for few; else fitted to samples, through captum.

    What each token adds to what is explained, averaged over the orders in which tokens can join. Where `samples` are enough
    for all 2^T parts of the text, the values are exact. Else `samples` parts are read, the whole and nothing among them, the
    others drawn with chance proportional to the Shapley kernel (T - 1) / (binom(T, s) s (T - s)), s the tokens that stay; a
    linear model is fitted to them, with a weight of 10^6 on the whole and on nothing, so that scores add up to their
    difference but for `kernel_shap_residual`. Noise falls with samples, and is large for long texts: a rank may be chance.

    Source: Lundberg & Lee 2017, theorem 2; captum's `KernelShap`.
    """

    name, cost, needs = "kernel_shap", "draws", frozenset({"token deletion"})
    columns = {
        "importance_kernel_shap": signed_score(
            "Shapley value of a token, exact where all 2^T parts of the text are read, else an estimate from the option "
            f"samples; {TARGET_DOC}; tokens outside a part are deleted unless the option absent says else; markers stay",
            undefined=UNDEFINED,
            unit="what is explained",
        ),
        "kernel_shap_residual": Column(
            dtype="float64",
            undefined="where a value is",
            tolerance=2,  # what rounding leaves
            doc="their sum - (f of the text - f of nothing); about 0",
        ),
    }

    samples: at_least(3) = 256

    def fit(self, value, length):
        if 2**length > self.samples:
            from sklearn.linear_model import LinearRegression

            surrogate = captum().KernelShap(value)
            surrogate.interpretable_model = _Linear(LinearRegression())
            return _fitted(surrogate, length, self.samples)
        parts = (np.arange(2**length)[:, None] >> np.arange(length)) % 2 == 1
        rest = parts.sum(1, keepdims=True) - parts  # besides the token that joins, or does not
        chance = 1 / (length * comb(length - 1, rest))
        return value(torch.from_numpy(parts)).numpy() @ np.where(parts, chance, -chance)


@register
class Lime(_Surrogate):
    """LIME (Ribeiro et al. 2016): the weights of a sparse linear model fitted around a text, through captum.

    How what is explained changes with each token when texts lose tokens at random, near the whole text. `samples` parts of
    the text are drawn, each token staying with chance 1/2, and weighted by exp(-d^2 / (2 width^2)), d the cosine distance of
    the part to the whole as vectors of 0 and 1. A linear model is fitted by least squares under these weights, plus
    `penalty` times the sum of its absolute coefficients (sklearn's Lasso: squares are halved and averaged), in units of what
    is explained: a token whose effect is small against it gets exactly 0. One token is given all of the difference.

    Source: Ribeiro et al. 2016, eq. 1 and 2 and section 3.4, with their kernel width for texts; captum's `Lime`.
    """

    name, cost, needs = "lime", "draws", frozenset({"token deletion"})
    columns = {
        "importance_lime": signed_score(
            "a token's weight in a sparse linear model (penalty on absolute coefficients) fitted to parts of the text that "
            "are drawn at random and weighted by their nearness to the whole (options samples, width, penalty); "
            f"{TARGET_DOC}; tokens outside a part are deleted unless the option absent says else; markers stay",
            undefined=UNDEFINED,
        ),
    }

    width: number(gt=0) = 0.25
    penalty: number(ge=0) = 0.01

    def fit(self, value, length):
        from captum.attr._core.lime import get_exp_kernel_similarity_function
        from sklearn.linear_model import Lasso, LinearRegression

        linear = _Linear(Lasso(alpha=self.penalty) if self.penalty else LinearRegression())
        near = get_exp_kernel_similarity_function("cosine", kernel_width=self.width)
        return _fitted(captum().Lime(value, interpretable_model=linear, similarity_func=near), length, self.samples)
