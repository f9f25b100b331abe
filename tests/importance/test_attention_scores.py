"""Attention norm, attention x gradient and exact contribution: by hand, against one another and where they are refused."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.importance.attention_based import AttentionNorm, AttentionXGradient, ExactContribution
from attnfaith.measurement.engine import check
from attnfaith.measurement.registry import MeasurementError
from attnfaith.subjects import SubjectError
from tests.measuring import run
from tests.small_encoders import FEW_FIRST


PROJECTIONS = ("softmax", "sparsemax", "uniform")


def stages(model, batch):
    """States, attention and logits of a batch in float64, and the mask of tokens."""
    inputs = {name: value for name, value in batch.items() if name in ("input_ids", "attention_mask", "token_type_ids")}
    with torch.no_grad():
        encoded = model.encode(**inputs)
        attention = model.attend(*encoded)
        logits = model.decode(encoded.hidden, attention, encoded.query)
    return encoded, attention, logits


@pytest.mark.parametrize("hierarchy", ["none", "sentence"])
@pytest.mark.parametrize("query", ["learned", "text"])
@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("encoder", FEW_FIRST)
def test_contributions_sum_to_the_logit(encoder, projection, query, hierarchy, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(encoder=encoder, projection=projection, query=query, num_labels=3, hierarchy=hierarchy)
    batch = tiny_batch(tiny_rows([7, 0, 1, 4], pair=query == "text", hierarchy=hierarchy))
    encoded, attention, logits = stages(model, batch)
    bias = model.decoder_weights(encoded.query)[1].detach().expand(4, -1)
    for number in range(3):
        (found,) = run(ExactContribution, model, batch, target=number).values()
        np.testing.assert_allclose([row.sum() for row in found], (logits - bias)[:, number], atol=2e-5)
        (linear,) = run(AttentionXGradient, model, batch, target=number).values()
        for one, other, weights, mask in zip(found, linear, attention, encoded.mask, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)
            idle = (weights[mask] == 0).numpy()
            assert (one[idle] == 0).all() and (other[idle] == 0).all()
    (contrast,) = run(ExactContribution, model, batch, target={"of": 0, "against": 2}).values()
    one, other = (run(ExactContribution, model, batch, target=n)["importance_exact_contribution"] for n in (0, 2))
    np.testing.assert_allclose(np.concatenate(contrast), np.concatenate(one) - np.concatenate(other), atol=2e-5)


def test_the_largest_contribution_is_what_its_removal_takes(tiny_model, tiny_rows, tiny_batch):
    """The logit without a summand is lower by exactly its contribution, no weight being renormalised."""
    model, batch = tiny_model(), tiny_batch(tiny_rows([6]))
    encoded, attention, logits = stages(model, batch)
    (found,) = run(ExactContribution, model, batch)["importance_exact_contribution"]
    predicted = int(logits.argmax())
    for token, value in enumerate(found):
        less = attention.clone()
        less[0, 1 + token] = 0
        with torch.no_grad():
            without = model.decode(encoded.hidden, less)[0, predicted]
        assert float(logits[0, predicted] - without) == pytest.approx(value, abs=1e-5)


def test_not_affine_is_refused_with_what_is_possible(tiny_model, tiny_rows, tiny_batch):
    for model, rows in (
        (tiny_model(readout="tanh"), tiny_rows([3])),
        (tiny_model(hierarchy="word"), tiny_rows([3], hierarchy="word")),
    ):
        with pytest.raises(SubjectError, match="'exact_contribution' needs 'affine read-out' .*not affine in attention"):
            run(ExactContribution, model, tiny_batch(rows))
        level = "word" if model.level == "word" else "sentence"
        dataset = Dataset.from_list([{**row, "words": [["a"]]} if level == "word" else row for row in rows])
        with pytest.raises(MeasurementError, match="not affine in attention.*can have: .*integrated_gradients, .*lrp"):
            check(getattr(model, "classifier", model), dataset, ["exact_contribution"], level=level)


@pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
@pytest.mark.parametrize("hierarchy", ["none", "word"])
def test_attention_x_gradient_by_differences(hierarchy, output, tiny_model, tiny_rows, tiny_batch):
    fields = {"readout": "tanh"} if hierarchy == "none" else {}
    model = tiny_model(dtype=torch.float64, hierarchy=hierarchy, num_labels=3, scale=2.0, **fields)
    batch = tiny_batch(tiny_rows([6], hierarchy=hierarchy))
    encoded, attention, logits = stages(model, batch)
    (found,) = run(AttentionXGradient, model, batch, output=output)["importance_attention_x_gradient"]
    predicted, step = int(logits.argmax()), 1e-6

    def value(weights):
        with torch.no_grad():
            made = model.decode(encoded.hidden, weights, encoded.query)[0]
        p = made.softmax(-1)[predicted]
        return {"logit": made[predicted], "probability": p, "log_odds": (p / (1 - p)).log()}[output]

    places = encoded.mask[0].nonzero().squeeze(1).tolist()
    for place, score in zip(places, found, strict=True):
        up, down = attention.clone(), attention.clone()
        up[0, place] += step
        down[0, place] -= step
        slope = (value(up) - value(down)) / (2 * step)
        assert score == pytest.approx(float(attention[0, place] * slope), abs=1e-6, rel=1e-4)


@settings(max_examples=15)
@given(length=st.integers(1, 8), projection=st.sampled_from(PROJECTIONS), seed=st.integers(0, 99))
def test_attention_norm_by_hand(length, projection, seed, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(projection=projection, seed=seed)
    batch = tiny_batch(tiny_rows([length], seed=seed))
    encoded, attention, _ = stages(model, batch)
    (found,) = run(AttentionNorm, model, batch)["importance_attention_norm"]
    for place, score in enumerate(found, 1):
        squares = sum(float(value) ** 2 for value in encoded.hidden[0, place])
        assert score == pytest.approx(float(attention[0, place]) * squares**0.5, rel=1e-5)


def test_a_measurements_own_stages_are_used(tiny_model, tiny_rows, tiny_batch):
    model, batch = tiny_model(), tiny_batch(tiny_rows([6, 3]))
    encoded, attention, _ = stages(model, batch)
    for producer in (AttentionNorm, AttentionXGradient, ExactContribution):
        (plain,) = run(producer, model, batch).values()
        doubled = {**batch, "encoded": encoded._replace(hidden=2 * encoded.hidden), "attention": attention}
        (found,) = run(producer, model, doubled, **({} if producer is AttentionNorm else {"target": 1})).values()
        if producer is not AttentionNorm:
            (plain,) = run(producer, model, batch, target=1).values()
        for one, other in zip(found, plain, strict=True):
            np.testing.assert_allclose(one, 2 * other, rtol=1e-5)
