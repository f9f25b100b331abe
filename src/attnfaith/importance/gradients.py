"""Measures by one gradient of a text, and how states depend on tokens."""

import math

import numpy as np
import torch

from attnfaith.importance.explained import Explains, explained
from attnfaith.importance.inputs import STATES, odds_slopes, products, token_counts
from attnfaith.importance.state_lengths import norms_of_states
from attnfaith.measurement.options import Flag
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column, ragged
from attnfaith.subjects.protocol import log_odds


@register
class Gradient(Measure):
    """Gradient importance: |x . dp/dx|, the size of the embedding times the slope of the predicted probability in it.

    The derivative of the predicted class's probability towards leaving each token's one-hot input.

    A model with many heads and layers has the gradient of captum's InputXGradient, through attention; take
    `gradient_attention_held` for the one that holds attention fixed. A model with one attention over states has the gradient
    of Jain & Wallace: attention is detached after the projection, so the gradient flows through the values only, and through
    the encoder to neighbouring tokens. With two classes the predicted class and class 1 give the same number. For states it
    is p(1-p) a_t |s_t| in closed form, s the difference of logits a state adds to the context.

    With f the log-odds of the predicted class, dp = p(1-p) df. A softmax would be flat above a difference of logits of 17
    in float32, and in float64 lose the winning class's part of the gradient above 37. Values are not divided by their sum;
    ranks are the same. Not defined for a text without tokens (an empty row). Of a hierarchical model a sentence's importance
    is that of all its words together, |sum_w x_w . dp/dx_w|; what weighs words in a sentence is part of the encoder, and
    gradients flow through it. At its word level that weight is attention too and held fixed; the sentence encoder's states
    follow those of the words, so that no closed form holds. Of labels that do not exclude one another p is the
    probability of the most probable label; of a regression p is the largest output itself.

    Source: Jain & Wallace 2019, section 4.1 and their code ("XxE[X]").
    """

    name, cost = "gradient", "gradient"
    needs = frozenset({"embeddings", "embedding length"})
    columns = {
        "importance_gradient": Column(
            ("T",),
            words="sum",
            range=(0.0, None),
            doc="|sum_d x_d dp/dx_d| of the embedding x of a token, p the probability of the predicted class; through the "
            "attention of a model with many heads and layers, and with attention held fixed where it is one sum of states",
        ),
        "importance_gradient_hidden": Column(
            ("T",),
            words="sum",
            range=(0.0, None),
            needs=STATES | {"held attention"},
            doc="the same of the encoder state h of a token, attention held fixed",
        ),
    }

    @staticmethod
    def holds(subject) -> bool:
        """Whether attention is held fixed."""
        return {"states", "held attention"} <= subject.capabilities

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        odds, inward = products(subject, batch, log_odds, hold=self.holds(subject))
        mask = subject.attendable(batch).cpu()
        values = getattr(subject, "output", "classes") == "values"
        spread = torch.ones_like(odds) if values else odds.sigmoid() * (-odds).sigmoid()  # p(1-p)
        return {
            name: ragged((spread.unsqueeze(-1) * value.abs()).float().cpu(), mask)
            for name, value in zip(self.columns, inward, strict=False)  # states where there are any
        }


@register
class GradientAttentionHeld(Gradient):
    """Gradient importance with attention held fixed, |x . dp/dx|, as Jain & Wallace (2019) define it.

    `gradient` in which no slope flows through the weights of attention, in any layer. In a stack of layers it orders tokens
    otherwise than the gradient through attention does. Of a model with one attention over states it is `gradient`.

    Source: Jain & Wallace 2019, section 4.1 and their code ("XxE[X]").
    """

    name, cost = "gradient_attention_held", "gradient"
    needs = frozenset({"embeddings", "embedding length", "held attention"})
    columns = {
        "importance_gradient_attention_held": Column(
            ("T",),
            words="sum",
            range=(0.0, None),
            doc="|sum_d x_d dp/dx_d| of the embedding x of a token, p the probability of the predicted class, the "
            "attention of "
            "all layers held fixed",
        ),
    }

    @staticmethod
    def holds(subject) -> bool:
        """True: attention is held fixed."""
        return True


@register
class GradientNorm(Measure):
    """Gradient importance as Meister et al. (2021) define it: the L2 norm of the logit's gradient, through attention or not.

    The length of the steepest ascent of the prediction in each token's embedding, and in each token's state.

    f is the logit of the predicted class minus the log-sum-exp of the others: with two classes the single logit of a
    sigmoid model, with more the logit of "this class or another". The gradient flows through attention too; in the detached
    columns it does not, and reaches a token through the values only. There the state of token t has a_t ||df/dc||_2, c the
    context: the order of the states is that of attention whatever the model, also of an untrained one. Norms are not divided
    by their sum (their eq. 4 does); ranks and entropies are the same. Not defined for a text without tokens. Of a
    hierarchical model a sentence's is the length of the gradient in the embeddings of all its words. At its word level c is
    not the states' average: the state of a word moves its sentence's vector, and all that the sentence encoder makes of it.
    Of a model without classes f is the largest logit.

    Source: Meister et al. 2021, eq. 4; held fixed as in Jain & Wallace 2019, section 4.1.
    """

    name, cost = "gradient_norm", "gradient"
    needs = frozenset({"embeddings"})
    columns = {
        "importance_gradient_norm": Column(
            ("T",),
            words="length",
            range=(0.0, None),
            doc="||df/dx||_2 for the embedding x of a token, f the log-odds of the predicted class",
        ),
        "importance_gradient_norm_hidden": Column(
            ("T",), words="length", range=(0.0, None), needs=STATES, doc="the same for the encoder state h of a token"
        ),
        "importance_gradient_norm_detached": Column(
            ("T",),
            words="length",
            range=(0.0, None),
            needs=frozenset({"held attention"}),
            doc="||df/dx||_2 with attention held fixed",
        ),
        "importance_gradient_norm_detached_hidden": Column(
            ("T",),
            words="length",
            range=(0.0, None),
            needs=frozenset({"states", "held attention"}),
            doc="||df/dh||_2 with attention held fixed",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        holds = "held attention" in subject.capabilities
        slopes = odds_slopes(subject, batch, (False, True) if holds else (False,))
        mask, norms = subject.attendable(batch).cpu(), {}
        for ending, one in zip(("", "_detached"), slopes, strict=False):  # held fixed where it can be
            for of, values in zip(("", "_hidden"), one.norms, strict=False):  # of states where there are any
                norms[f"importance_gradient_norm{ending}{of}"] = values
        return {name: ragged(values.float().cpu(), mask) for name, values in norms.items()}


@register
class GradientXInput(Explains):
    """Gradient times input (Denil et al. 2015; Shrikumar et al. 2016): the part of a linear approximation that a token has.

    sum_d x_d df/dx_d for each token: what leaving its embedding out would change if f were linear. In units of f.

    f is what `target` and `output` name. The gradient flows through attention too, unlike that of
    `gradient`, which also drops the sign. Of a hierarchical model a sentence's is the sum over all its words. Signed: a
    token ranks high as evidence for what is explained, and low as evidence against it. Markers and a second text have their
    share as well, which belongs to no token. A saturated probability keeps its order until it is exactly flat, at log-odds
    of about 700.

    Source: Denil et al. 2015; Shrikumar et al. 2016.
    """

    name, cost = "gradient_x_input", "gradient"
    needs = frozenset({"embeddings", "embedding length"})
    columns = {
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
            needs=STATES,
            doc="the same of the encoder state of a token",
        ),
    }

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        _, inward = products(subject, batch, lambda logits: explained(logits, batch, self.target, self.output))
        mask = subject.attendable(batch).cpu()
        # of states where there are any
        return {name: ragged(values.float().cpu(), mask) for name, values in zip(self.columns, inward, strict=False)}


@register
class GradientHiddenToInput(Measure):
    """What an encoder's states are made of: how the length of each state depends on each token (Meister et al. 2021, eq. 5).

    How spread out over the text's tokens what a state encodes is, for every state.

        g_p(i) = ||d ||h_p||_2 / d x_i||_2 / sum_k ||d ||h_p||_2 / d x_k||_2

    for state p and the embedding x_i of token i; p, i and k run over the attendable tokens. Of each row of g: its entropy
    over log T, and g_p(p). A row is undefined where all its gradients are 0: a state of length 0, or one that depends on no
    token. The second text of a pair does not reach the states and is not counted. Of a hierarchical model p, i and k are
    sentences, h_p a sentence's state and x_i the embeddings of all its words as one vector; at its word level p, i and k are
    all words of the document, and a word's state depends on those of its sentence alone.

    Gradients are taken in float32, where those below about 1e-19 become 0. Time grows with T^2; memory
    with T (and T x T numbers for one text at a time where an encoder mixes all tokens, or rows are kept).

    Source: Meister et al. 2021, eq. 5 and Table 1.
    """

    name, cost = "gradient_hidden_to_input", "tokens"
    needs = frozenset({"layers"})
    columns = {
        "hidden_to_input_entropy": Column(
            ("T",),
            range=(0.0, 1.0),
            undefined="where the row is, and for a text of one token",
            doc="normalised entropy of the row of g of a state",
        ),
        "hidden_to_input_own": Column(
            ("T",),
            range=(0.0, 1.0),
            undefined="where the row is undefined",
            doc="share of a state's own token in its row of g",
        ),
        "hidden_to_input": Column(
            ("K", "T"),
            undefined="where a state depends on no token",
            doc="the rows of g, state by token, each summing to 1; K = T, 0 if not kept",
        ),
    }

    keep_rows: Flag = False

    def __call__(self, subject, batch) -> dict[str, list]:
        """Return the columns, one value an instance."""
        lengths = token_counts(subject, batch)
        entropy, own = ([np.full(length, np.nan, np.float32) for length in lengths] for _ in range(2))
        rows = [np.empty((length if self.keep_rows else 0, length), np.float32) for length in lengths]
        for texts, states, of_states in norms_of_states(subject, batch):
            shares = of_states.double()
            shares = shares / shares.sum(-1, keepdim=True)  # 0 / 0 is NaN
            spread = torch.special.entr(shares).sum(-1).div(math.log(shares.shape[-1])).clamp(0, 1).cpu().numpy()
            kept = shares.diagonal(states.start, 1, 2).cpu().numpy()
            for place, text in enumerate(texts):
                entropy[text][states], own[text][states] = spread[place], kept[place]
                if self.keep_rows:
                    rows[text][states] = shares[place].cpu().numpy()
        return dict(zip(self.columns, (entropy, own, rows), strict=True))
