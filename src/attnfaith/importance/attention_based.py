"""Measures made of attention and what it weighs; and the two floors that every measure must beat."""

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.importance.explained import Explain, Explains, check_data, check_target, explaining
from attnfaith.importance.inputs import attended, token_counts
from attnfaith.measurement.options import Target
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column, ragged
from attnfaith.subjects import whole_logits


@register
class AttentionNorm(Measure):
    """Attention times the length of what it weighs (Kobayashi et al. 2020).

    How long each summand of what attention makes is: a small weight on a long vector may be more than a large one on a
    short.

    It knows nothing of what comes after, so not which way a summand points, nor whether the decoder reads it: compare
    `exact_contribution`. In the classifiers of this package what attention sums is the states themselves; at the word level
    of a hierarchical model h is the state of a word, and a its sentence's attention times its weight within the sentence. In
    a classifier of transformers it is the sum over heads of a_ij f(x_j), where f projects values and leaves out the bias; of
    the layers, or the head, of the model's reduction, the mean over layers and rows that matter.

    Source: Kobayashi et al. 2020; for pooled states with the identity as the transformation of what is weighed.
    """

    name, cost = "attention_norm", "reading"
    needs = frozenset({"weighed vectors"})
    columns = {
        "importance_attention_norm": Column(
            ("T",),
            words="sum",
            range=(0.0, None),
            undefined="where the logits depend on no row that attention makes",
            doc="||a h||_2 of a token's attention a and its encoder state h; of layers with heads h are the values, "
            "projected, and a h is summed over the heads: the mean over the rows that matter",
        ),
    }

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        counts = subject.attendable(batch).sum(1).tolist()
        lengths = [torch.zeros(count, dtype=torch.float64, device=subject.device) for count in counts]
        sums = [0] * len(counts)
        for row, vectors in subject.summands(batch):
            lengths[row] += torch.linalg.vector_norm(vectors, dim=-1).sum(0)
            sums[row] += len(vectors)
        means = [length / (count or torch.nan) for length, count in zip(lengths, sums, strict=True)]
        return {"importance_attention_norm": [one.float().cpu().numpy() for one in means]}


@register
class AttentionXGradient(Explains):
    """Attention times its gradient (Serrano & Smith 2019): what each weight adds, were what is explained linear in it.

    a_t df/da_t, states held fixed and each weight a free variable: nothing is renormalised. In units of f.

    f is what `target` and `output` name. A logit that is affine in attention has df/da_t = w . h_t,
    and this is `exact_contribution`. At the word level of a hierarchical model attention moves the sentence vectors as well.
    Of a stack of
    layers it is the sum over the layers and heads that the subject's reduction takes, of all of them where that is rollout
    or flow, and over the rows that matter. Signed; a token without attention has exactly 0.

    Source: Serrano & Smith 2019, whose f is the probability of the predicted class.
    """

    name, cost = "attention_x_gradient", "reading"
    needs = frozenset({"attention gradients"})
    columns = {
        "importance_attention_x_gradient": Column(
            ("T",),
            words="sum",
            signed=True,
            undefined="where f or its slope is not finite",
            doc="a df/da of a token's attention a, f what is explained",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        products = subject.attention_products(batch, Explain(batch, self.target, self.output))
        return {"importance_attention_x_gradient": ragged(products.float().cpu(), subject.attendable(batch).cpu())}


@register
class ExactContribution(Measure):
    """The exact contribution of a token to a logit at the pooling layer: what attention would have to be to be right there.

    a_t (w_c . h_t): the context is sum_t a_t h_t, so these and the bias b_c sum to the logit of class c. In logits.

    It takes the states as they are and does not say which inputs made them. Target: a class, or a contrast of two; of a
    contrast w is the difference of two classes' weights. Signed: evidence for the class ranks first. A token without
    attention has exactly 0.

    Where logits are not affine in attention they are no sum over tokens: integrated_gradients and lrp sum to them there, and
    attention_x_gradient is the linear part.
    """

    name, cost = "exact_contribution", "reading"
    needs = frozenset({"states", "affine read-out"})
    columns = {
        "importance_exact_contribution": Column(
            ("T",),
            words="sum",
            signed=True,
            doc="a (w . h) of a token's attention a, its state h and the class's weights w; with the bias they sum to the "
            "logit",
        ),
    }

    target: Target = "predicted"

    def __post_init__(self):
        check_target(self.target)

    def check(self, subject, dataset) -> None:
        """Raise ValueError for a class that the model does not have or an instance may not be given."""
        check_data(subject, dataset, target=self.target)

    @torch.no_grad()
    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        (hidden, mask, query), attention = attended(subject, batch)
        chosen = explaining(whole_logits(subject, batch), batch, self.target)
        weight = subject.decoder_weights(query)[0].double()
        direction = weight[chosen.of] - (0 if chosen.against is None else weight[chosen.against])
        parts = attention.double() * (hidden.double() @ direction.unsqueeze(-1)).squeeze(-1)
        return {"importance_exact_contribution": ragged(parts.float().cpu(), mask.cpu())}


@register
class RandomScores(Measure):
    """Random importance: a floor that every measure must beat.

    Independent uniform numbers, which know nothing of the text; the stream of an instance is its own (`generator`).
    """

    name, cost = "random_scores", "nothing"
    columns = {"importance_random": Column(("T",), doc="a number drawn uniformly from 0..1 for each token")}

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        scores = [
            generator(seed, name, "random_scores").random(length, np.float32)
            for name, length in zip(batch["instance_id"], token_counts(subject, batch), strict=True)
        ]
        return {"importance_random": scores}


@register
class UniformScores(Measure):
    """Uniform importance: the floor that says nothing, the same for every token.

    1 / T. All ranks are tied: rank correlations with it are undefined, and what cuts at k falls back on position.
    """

    name, cost = "uniform_scores", "nothing"
    columns = {"importance_uniform": Column(("T",), range=(0.0, None), doc="1 / T for each of T tokens")}

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        lengths = token_counts(subject, batch)
        return {"importance_uniform": [np.full(length, 1 / max(1, length), np.float32) for length in lengths]}
