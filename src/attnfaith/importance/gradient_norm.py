"""Gradient importance as Meister et al. (2021) define it: the L2 norm of the logit's gradient, through attention or not."""

from attnfaith.importance._inputs import odds_slopes
from attnfaith.record import Column, ragged
from attnfaith.subjects import asks


COLUMNS = {
    "importance_gradient_norm": Column(
        ("T",),
        words="length",
        range=(0.0, None),
        doc="||df/dx||_2 for the embedding x of a token, f the log-odds of the predicted class",
    ),
    "importance_gradient_norm_hidden": Column(
        ("T",), words="length", range=(0.0, None), doc="the same for the encoder state h of a token"
    ),
    "importance_gradient_norm_detached": Column(
        ("T",), words="length", range=(0.0, None), doc="||df/dx||_2 with attention held fixed"
    ),
    "importance_gradient_norm_detached_hidden": Column(
        ("T",), words="length", range=(0.0, None), doc="||df/dh||_2 with attention held fixed"
    ),
}
NEEDS = frozenset({"embeddings"})
COST = "gradient"
COLUMN_NEEDS = {
    "importance_gradient_norm_hidden": frozenset({"states"}),
    "importance_gradient_norm_detached": frozenset({"held attention"}),
    "importance_gradient_norm_detached_hidden": frozenset({"states", "held attention"}),
}


@asks(NEEDS)
def measure(subject, batch, *, seed: int = 0) -> dict[str, list]:
    """The length of the steepest ascent of the prediction in each token's embedding, and in each token's state.

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
    holds = "held attention" in subject.capabilities
    slopes = odds_slopes(subject, batch, (False, True) if holds else (False,))
    mask, norms = subject.attendable(batch).cpu(), {}
    for ending, one in zip(("", "_detached"), slopes, strict=False):  # held fixed where it can be
        for of, values in zip(("", "_hidden"), one.norms, strict=False):  # of states where there are any
            norms[f"importance_gradient_norm{ending}{of}"] = values
    return {name: ragged(values.float().cpu(), mask) for name, values in norms.items()}
