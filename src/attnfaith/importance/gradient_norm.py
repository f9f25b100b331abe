"""Gradient importance as Meister et al. (2021) define it: the L2 norm of the logit's gradient, through attention or not."""

from attnfaith.importance._inputs import differentiable_inputs, gradients, item_norms, items, log_odds
from attnfaith.record import Column, ragged


COLUMNS = {
    "importance_gradient_norm": Column(
        ("T",), range=(0.0, None), doc="||df/dx||_2 for the embedding x of a token, f the log-odds of the predicted class"
    ),
    "importance_gradient_norm_hidden": Column(("T",), range=(0.0, None), doc="the same for the encoder state h of a token"),
    "importance_gradient_norm_detached": Column(("T",), range=(0.0, None), doc="||df/dx||_2 with attention held fixed"),
    "importance_gradient_norm_detached_hidden": Column(
        ("T",), range=(0.0, None), doc="||df/dh||_2 with attention held fixed"
    ),
}


def measure(model, batch, *, seed: int = 0) -> dict[str, list]:
    """The length of the steepest ascent of the prediction in each token's embedding, and in each token's state.

    f is the logit of the predicted class minus the log-sum-exp of the others: with two classes the single logit of a
    sigmoid model, with more the logit of "this class or another". The gradient flows through attention too; in the detached
    columns it does not, and reaches a token through the values only. There the state of token t has a_t ||df/dc||_2, c the
    context: the order of the states is that of attention whatever the model, also of an untrained one. Norms are not divided
    by their sum (their eq. 4 does); ranks and entropies are the same. Not defined for a text without tokens. Of a
    hierarchical model a sentence's is the length of the gradient in the embeddings of all its words. At its word level c is
    not the states' average: the state of a word moves its sentence's vector, and all that the sentence encoder makes of it.

    Source: Meister et al. 2021, eq. 4; held fixed as in Jain & Wallace 2019, section 4.1.
    """
    with differentiable_inputs(model, batch) as (embedded, encoded):
        attention = model.attend(*encoded)
        inputs = [embedded, encoded.hidden]
        through = log_odds(model.decode(encoded.hidden, attention, encoded.query))
        found = gradients(through, inputs, last=False)
        fixed = log_odds(model.decode(encoded.hidden, attention.detach(), encoded.query))
        found += gradients(fixed, inputs)
    mask, parts = encoded.mask.cpu(), items(model, batch)
    norms = [item_norms(gradient, parts if place % 2 == 0 else None) for place, gradient in enumerate(found)]
    return {name: ragged(values.float().cpu(), mask) for name, values in zip(COLUMNS, norms, strict=True)}
