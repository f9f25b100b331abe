"""Measures made of attention and what it weighs, and the two floors that every measure must beat."""

import numpy as np
import torch

from attnfaith.importance.targets import ROWS_DOC, TARGET_DOC, LogitMeasure, TargetMeasure, score, signed_score, token_counts
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column
from attnfaith.subjects import per_token
from attnfaith.support.draws import generator


@register
class AttentionNorm(Measure):
    """Attention times the length of what it weighs (Kobayashi et al. 2020).

    A small weight on a long vector may add more than a large weight on a short vector. It does not show where a summand
    points, nor whether the decoder reads it: compare `exact_contribution`.

    Source: Kobayashi et al. 2020; for pooled states with the identity as the transformation of what is weighed.
    """

    name, cost, needs = "attention_norm", "reading", frozenset({"weighed vectors"})
    columns = {
        "importance_attention_norm": score(
            "||a h||_2 of a token's attention a and its encoder state h. In layers with heads h is the value, projected "
            "without the output's bias, a h is summed over the heads shown, and the mean is over the layers shown and "
            f"{ROWS_DOC}",
            undefined="where the logits depend on no row that attention makes",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        lengths = [torch.zeros(count, dtype=torch.float64, device=subject.device) for count in token_counts(subject, batch)]
        sums = [0] * len(lengths)
        for row, vectors in subject.summands(batch):
            lengths[row] += torch.linalg.vector_norm(vectors, dim=-1).sum(0)
            sums[row] += len(vectors)
        means = [length / (count or torch.nan) for length, count in zip(lengths, sums, strict=True)]
        return {"importance_attention_norm": [mean.float().cpu().numpy() for mean in means]}


@register
class AttentionXGradient(TargetMeasure):
    """Attention times its gradient (Serrano & Smith 2019): what each weight adds, were what is explained linear in it.

    Where a logit is affine in attention this is `exact_contribution`. A token without attention has exactly 0.

    Source: Serrano & Smith 2019, whose f is the probability of the predicted class.
    """

    name, cost, needs = "attention_x_gradient", "reading", frozenset({"attention gradients"})
    columns = {
        "importance_attention_x_gradient": signed_score(
            "a df/da of a token's attention a: each weight is free, nothing is renormalised, states are held fixed; "
            f"{TARGET_DOC}. In a stack of layers the sum over the layers and heads that the reduction takes (rollout: all) "
            f"and over {ROWS_DOC}"
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        products = subject.attention_products(batch, self.explained(subject, batch))
        return {"importance_attention_x_gradient": per_token(subject, batch, products)}


@register
class ExactContribution(LogitMeasure):
    """The exact contribution of a token to a logit at the pooling layer.

    It takes the states as they are and does not say which inputs made them. A token without attention has exactly 0. Where
    logits are not affine in attention they are no sum over tokens: integrated_gradients and lrp sum to them there, and
    attention_x_gradient is the linear part.
    """

    name, cost, needs = "exact_contribution", "reading", frozenset({"states", "affine read-out"})
    columns = {
        "importance_exact_contribution": signed_score(
            "a (w . h) of a token's attention a, its state h and the weights w of the class that target names, or the "
            "difference of two classes' weights; all of them and the bias sum to the logit f",
            undefined="",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        hidden, _, query = subject.encoded(batch)
        f = self.explained(subject, batch)
        weight = subject.decoder_weights(query)[0].double()
        direction = weight[f.of] - (0 if f.against is None else weight[f.against])
        parts = subject.attention(batch).double() * (hidden.double() @ direction.unsqueeze(-1)).squeeze(-1)
        return {"importance_exact_contribution": per_token(subject, batch, parts)}


@register
class RandomScores(Measure):
    """Random importance, a floor that every measure must beat: numbers that do not depend on the text."""

    name, cost = "random_scores", "nothing"
    columns = {
        "importance_random": Column(
            ("T",), doc="a number drawn uniformly from 0..1 for each token, by a generator of the seed and the instance id"
        )
    }

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        lengths = zip(batch["instance_id"], token_counts(subject, batch), strict=True)
        return {
            "importance_random": [
                generator(seed, name, "random_scores").random(length, np.float32) for name, length in lengths
            ]
        }


@register
class UniformScores(Measure):
    """Uniform importance, a floor: the same for every token.

    All ranks are tied: rank correlations with it are undefined, and what cuts at k falls back on position.
    """

    name, cost = "uniform_scores", "nothing"
    columns = {"importance_uniform": score("1 / T for each of T tokens")}

    def __call__(self, subject, batch) -> dict[str, list]:
        lengths = token_counts(subject, batch)
        return {"importance_uniform": [np.full(length, 1 / max(1, length), np.float32) for length in lengths]}
