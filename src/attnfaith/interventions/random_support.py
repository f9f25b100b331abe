"""Attention whose weights lie on random tokens: what a support of the same size explains that did not choose its places."""

from dataclasses import replace

import numpy as np

from attnfaith.draws import generator
from attnfaith.interventions.pooled_erasure import Affine, Erasing, erasing
from attnfaith.interventions.targets import softmax
from attnfaith.measurement.options import Draws
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


@register
class RandomSupport(Measure):
    """Attention whose weights lie on random tokens: what a support of the same size explains that did not choose its places.

    How the importance of states agrees with attention that nobody learned: a null for the agreement of sparse attention.

    Each draw deals the attention weights of a text out anew among its tokens, all orders equally likely, so that the size of
    the support, the entropy and the ties of attention stay. Under that attention a', states fixed, the two measures of
    states are taken as under the model's own:

    * ||df/dh_t||_2 = a'_t ||df/dc||_2, a' held fixed, c the context and f the log-odds of the class that is predicted under
      a': its logit minus the log-sum-exp of the others;
    * the total variation distance of the prediction under a' to that without state t, the other weights renormalised; where
      none remains the context is the zero vector.

    A state without weight has 0 in both. K = 0 for a text of fewer than two tokens. At the word level of a hierarchical
    model the gradient has no such closed form, and a word of a sentence without weight may have one, for other sentences'
    states see it.

    Source: the two measures, Meister et al. 2021, eq. 4 and 6; the null is not theirs.
    """

    name, cost, needs = "random_support", "reading", frozenset({"classes", "intervention"})
    columns = {
        "random_support_attention": Column(
            ("K", "T"),
            distribution=True,
            undefined="below two tokens: no draws",
            doc="the text's attention weights, shuffled over its tokens",
        ),
        "random_support_probs": Column(("K", "C"), distribution=True, doc="class probabilities under it, states fixed"),
        "random_support_gradient_norm_hidden": Column(
            ("K", "T"),
            range=(0.0, None),
            doc="||df/dh||_2 under it, held fixed, of each state h, f the log-odds of the class then predicted",
            needs=frozenset({"states"}),
        ),
        "random_support_leave_one_out_hidden": Column(
            ("K", "T"), range=(0.0, 1.0), doc="total variation distance under it without a state, the rest renormalised"
        ),
    }
    metric = {"counterfactual_attention": "random_support_attention", "counterfactual_probs": "random_support_probs"}

    draws: Draws = 5

    def __call__(self, subject, batch, *, seed: int = 0) -> dict[str, list]:
        """Return the columns, one value an instance."""
        texts = erasing(subject, batch)
        shuffled = np.zeros((self.draws, *texts.attention.shape))
        for row, (name, length) in enumerate(zip(batch["instance_id"], texts.lengths, strict=True)):
            weights = np.broadcast_to(texts.attention[row, :length], (self.draws, length))
            shuffled[:, row, :length] = generator(seed, name, self.name).permuted(weights, axis=1)
        draws = [_under(subject, replace(texts, attention=attention)) for attention in shuffled]
        columns = {}
        for name in draws[0]:
            values = np.stack([draw[name] for draw in draws], 1).astype(np.float32)  # (B,K,T) or (B,K,C)
            columns[name] = []
            for row, length in enumerate(texts.lengths):
                width = length if self.columns[name].axes[1] == "T" else values.shape[2]
                columns[name].append(values[row, : self.draws if length > 1 else 0, :width])
        return columns


def _under(subject, texts: Erasing) -> dict[str, np.ndarray]:
    """Each column under the attention of `texts`: (B,T), and (B,C) for the probabilities."""
    logits = texts.logits(texts.whole())[:, 0]
    probs = softmax(logits)
    values = {"random_support_attention": texts.attention, "random_support_probs": probs}
    if "states" in subject.capabilities:
        values["random_support_gradient_norm_hidden"] = _gradient_norms(subject, texts, logits)
    without = softmax(texts.without_each())
    return values | {"random_support_leave_one_out_hidden": np.abs(without - probs[:, None]).sum(2) / 2}


def _gradient_norms(subject, texts, logits: np.ndarray) -> np.ndarray:
    """||df/dh||_2 (B,T) of each state h: f the log-odds of the class that logits (B,C) predict."""
    predicted = logits.argmax(1)[:, None]
    rivals = logits.copy()
    np.put_along_axis(rivals, predicted, -np.inf, 1)
    slopes = -softmax(rivals)
    np.put_along_axis(slopes, predicted, 1, 1)
    if isinstance(texts, Affine):
        weight, _ = subject.decoder_weights()
        steepness = np.linalg.norm(slopes @ weight.detach().double().cpu().numpy(), axis=1)
        return texts.attention * steepness[:, None]
    return texts.state_gradients(slopes)
