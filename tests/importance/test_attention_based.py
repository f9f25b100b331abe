"""Attention norm, attention x gradient, exact contribution and the two floors: by hand and against one another."""

import numpy as np
import pytest
import torch

from attnfaith.importance.attention_based import (
    AttentionNorm,
    AttentionXGradient,
    ExactContribution,
)
from tests.measuring import run


MODELS = [  # encoder, projection, query, hierarchy
    ("bilstm", "softmax", "learned", "none"),
    ("transformer", "sparsemax", "text", "none"),
    ("embedding", "uniform", "learned", "sentence"),
]


@torch.no_grad()
def stages(model, batch):
    """States, attention and logits of a batch, and the mask of tokens."""
    inputs = {name: value for name, value in batch.items() if name in ("input_ids", "attention_mask", "token_type_ids")}
    encoded = model.encode(**inputs)
    attention = model.attend(*encoded)
    return encoded, attention, model.decode(encoded.hidden, attention, encoded.query)


@pytest.mark.parametrize(("encoder", "projection", "query", "hierarchy"), MODELS)
def test_contributions_sum_to_the_logit(encoder, projection, query, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """And are attention x gradient, and attention times w . h; those of a contrast are a difference."""
    model = tiny_model(encoder=encoder, projection=projection, query=query, num_labels=3, hierarchy=hierarchy)
    batch = tiny_batch(tiny_rows([7, 0, 1, 4], pair=query == "text", hierarchy=hierarchy))
    encoded, attention, logits = stages(model, batch)
    weight, bias = (values.detach() for values in model.decoder_weights(encoded.query))
    by_class = [run(ExactContribution, model, batch, target=number)["importance_exact_contribution"] for number in range(3)]
    for number, contributions in enumerate(by_class):
        rise = (logits - bias.expand(4, -1))[:, number]
        np.testing.assert_allclose([row.sum() for row in contributions], rise, atol=2e-5)
        (linear,) = run(AttentionXGradient, model, batch, target=number).values()
        expected = attention * (encoded.hidden @ weight[number])
        for row, (values, products) in enumerate(zip(contributions, linear, strict=True)):
            np.testing.assert_allclose(values, expected[row, encoded.mask[row]], atol=2e-5)
            np.testing.assert_allclose(values, products, atol=2e-5)
            idle = (attention[row, encoded.mask[row]] == 0).numpy()
            assert (values[idle] == 0).all() and (products[idle] == 0).all()
    (contrast,) = run(ExactContribution, model, batch, target={"of": 0, "against": 2}).values()
    difference = np.concatenate(by_class[0]) - np.concatenate(by_class[2])
    np.testing.assert_allclose(np.concatenate(contrast), difference, atol=2e-5)


@pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
@pytest.mark.parametrize("fields", [{"readout": "tanh"}, {"hierarchy": "word"}])
def test_attention_x_gradient_by_differences(fields, output, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(num_labels=3, scale=2.0, **fields)
    batch = tiny_batch(tiny_rows([6], hierarchy=fields.get("hierarchy", "none")))
    encoded, attention, logits = stages(model, batch)
    (products,) = run(AttentionXGradient, model, batch, output=output)["importance_attention_x_gradient"]
    predicted, step = int(logits.argmax()), 1e-6

    @torch.no_grad()
    def value(weights):
        logits = model.decode(encoded.hidden, weights, encoded.query)[0]
        p = logits.softmax(-1)[predicted]
        return {"logit": logits[predicted], "probability": p, "log_odds": (p / (1 - p)).log()}[output]

    places = encoded.mask[0].nonzero().squeeze(1).tolist()
    for place, product in zip(places, products, strict=True):
        change = torch.zeros_like(attention)
        change[0, place] = step
        slope = (value(attention + change) - value(attention - change)) / (2 * step)
        assert product == pytest.approx(float(attention[0, place] * slope), abs=1e-6, rel=1e-4)


@pytest.mark.parametrize("projection", ["softmax", "sparsemax", "uniform"])
def test_attention_norm_by_hand(projection, tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(projection=projection), tiny_batch(tiny_rows([8, 1, 3]))
    encoded, attention, _ = stages(model, batch)
    norms = run(AttentionNorm, model, batch)["importance_attention_norm"]
    for row, values in enumerate(norms):
        for place, norm in enumerate(values, 1):
            squares = sum(float(value) ** 2 for value in encoded.hidden[row, place])
            assert norm == pytest.approx(float(attention[row, place]) * squares**0.5, rel=1e-5)
