"""Integrated gradients: completeness, captum at the same points, closed forms, and lines that cannot be followed."""

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.importance import integrated_gradients
from attnfaith.importance.integrated_gradients import BASELINES, Line, integrate
from attnfaith.models.encoders import ENCODERS
from attnfaith.subjects import subject_of


TOKENS, STATES, RESIDUAL, RESIDUAL_HIDDEN, STEPS, STEPS_HIDDEN = integrated_gradients.COLUMNS
LEVELS = ("none", "sentence", "word")


def inputs(batch):
    return {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}


def baseline_of(model, row, baseline):
    """(1,L,E): embeddings of a row's baseline; markers and a second text stay."""
    table = model.get_input_embeddings().weight.detach()
    kinds = {"zero": torch.zeros_like(table[0]), "padding": table[0], "mean": table[1:].mean(0)}
    found = table[torch.tensor([row["input_ids"]])].clone()
    found[:, 1 : 1 + len(row["tokens"])] = kinds[baseline]
    return found


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize(
    ("encoder", "query", "readout", "projection"),
    [(encoder, "learned", "affine", "softmax") for encoder in ENCODERS]
    + [("bilstm", "text", "tanh", "sparsemax"), ("transformer", "text", "affine", "entmax15")],
)
def test_captum(encoder, query, readout, projection, baseline, tiny_model, tiny_rows, tiny_batch):
    """The same 14 midpoints; texts of unequal length together on our side, alone on captum's."""
    model = tiny_model(encoder=encoder, query=query, readout=readout, projection=projection, num_labels=3)
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 0.3  # padding is no zero here
    rows = tiny_rows([6, 2, 9], pair=query == "text")
    made = integrated_gradients.measure(model, tiny_batch(rows), baseline=baseline, steps=14, max_steps=14)
    for row, found, residual in zip(rows, made[TOKENS], made[RESIDUAL], strict=True):
        batch = tiny_batch([row])
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
        rest = inputs(batch)
        predicted = int(model(inputs_embeds=embedded, **rest).logits.argmax())

        def forward(points, rest=rest):
            again = {name: value.expand(len(points), -1) for name, value in rest.items()}
            return model(inputs_embeds=points, **again).logits

        expected, delta = IntegratedGradients(forward).attribute(
            embedded,
            baseline_of(model, row, baseline),
            target=predicted,
            n_steps=14,
            method="riemann_middle",
            return_convergence_delta=True,
        )
        np.testing.assert_allclose(found, expected.sum(-1)[0, 1 : 1 + len(row["tokens"])], atol=1e-5, rtol=1e-5)
        assert residual == pytest.approx(float(delta), abs=1e-5)


@pytest.mark.parametrize("hierarchy", LEVELS)
@pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
@pytest.mark.parametrize("encoder", ["bilstm", "transformer", "average"])
def test_completeness(encoder, projection, output, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Parts sum to f at the text - f at the baseline, which is decoded apart; the residual says what is missing."""
    model = tiny_model(encoder=encoder, projection=projection, hierarchy=hierarchy, num_labels=3, scale=1.5)
    row = tiny_rows([7], hierarchy=hierarchy)[0]
    batch = tiny_batch([row])
    made = integrated_gradients.measure(model, batch, output=output, tolerance=1e-3)
    with torch.no_grad():
        embedded = model.get_input_embeddings()(batch["input_ids"])
        parts = model.items(batch["input_ids"], batch["attention_mask"])
        ends = []
        for points in (torch.where((parts >= 0).unsqueeze(-1), 0.0, embedded), embedded):
            encoded = model.encode(inputs_embeds=points, attention_mask=batch["attention_mask"], items=parts)
            ends.append(model.decode(encoded.hidden, model.attend(*encoded), encoded.query)[0].double())
        hidden = torch.zeros_like(encoded.hidden)
        states = model.decode(hidden, model.attend(hidden, encoded.mask, encoded.query), encoded.query)[0].double()
    predicted = int(ends[1].argmax())

    def value(logits):
        p = logits.softmax(-1)[predicted]
        return float({"logit": logits[predicted], "probability": p, "log_odds": (p / (1 - p)).log()}[output])

    for column, residual, steps, start in (
        (TOKENS, RESIDUAL, STEPS, ends[0]),
        (STATES, RESIDUAL_HIDDEN, STEPS_HIDDEN, states),
    ):
        change = value(ends[1]) - value(start)
        assert made[column][0].sum() - change == pytest.approx(made[residual][0], abs=2e-5)
        assert abs(made[residual][0]) <= 1e-3 * abs(change) + 1e-5 or made[steps][0] == 540
        assert abs(made[residual][0]) < 0.02 * abs(change) + 1e-5


def test_sparse_attention_needs_more_steps(tiny_model, tiny_rows, tiny_batch):
    steps = {}
    for projection in ("softmax", "sparsemax"):
        model = tiny_model(projection=projection, scale=1.5)
        made = integrated_gradients.measure(model, tiny_batch(tiny_rows([9] * 8)), tolerance=1e-3)
        assert set(made[STEPS]) <= {20, 60, 180, 540}
        steps[projection] = np.mean(made[STEPS])
    assert steps["sparsemax"] > steps["softmax"]


@pytest.mark.parametrize("target", [0, {"of": 1, "against": 0}])
def test_a_linear_model_needs_one_step(target, tiny_model, tiny_rows, tiny_batch):
    """w . x / T each, whatever the number of points."""
    model = tiny_model(encoder="embedding", projection="uniform")
    rows = tiny_rows([5, 2])
    made = integrated_gradients.measure(model, tiny_batch(rows), target=target, steps=1)
    weight = model.decoder_weights()[0].detach()
    direction = weight[0] if target == 0 else weight[1] - weight[0]
    for row, found, states in zip(rows, made[TOKENS], made[STATES], strict=True):
        vectors = model.get_input_embeddings()(torch.tensor(row["input_ids"][1:-1])).detach()
        np.testing.assert_allclose(found, vectors @ direction / len(found), atol=1e-6)
        np.testing.assert_allclose(states, found, atol=1e-6)
    assert made[STEPS] == made[STEPS_HIDDEN] == [1, 1]
    np.testing.assert_allclose(made[RESIDUAL], 0, atol=1e-6)


def polynomial(power, rows=2):
    """f(x) = sum_t x_t^power along lines from 0; as a `Line` of one dimension."""
    end = torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 2.0]], dtype=torch.float64)[:rows].unsqueeze(-1)

    def value(start, change, shares, rows):
        return ((start.unsqueeze(1) + shares[:, None, None] * change.unsqueeze(1)) ** power).sum((2, 3))

    return Line(torch.zeros_like(end), end, torch.tensor([2, 3])[:rows], value)


@settings(max_examples=25)
@given(power=st.integers(1, 5), steps=st.integers(1, 4), times=st.integers(0, 2))
def test_threefold_steps_are_the_midpoint_rule(power, steps, times):
    """Refined from `steps` to `count` is the rule with `count` points at once, which is known for a polynomial:
    x^p * sum_k p ((k + 1/2) / m)^(p - 1) / m.
    """
    count = steps * 3**times
    found = integrate(polynomial(power), steps, count, 0.0)
    mean = sum(power * ((k + 0.5) / count) ** (power - 1) for k in range(count)) / count
    end = polynomial(power).end.squeeze(-1)
    # the rule is exact for p of 1 and 2: nothing is refined
    if power > 2:
        assert found.steps.tolist() == [count, count]
        torch.testing.assert_close(found.parts, mean * end**power, rtol=1e-12, atol=0)
    else:
        torch.testing.assert_close(found.parts, end**power, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.residual, found.parts.sum(1) - (end**power).sum(1))


def test_each_text_takes_the_steps_it_needs(monkeypatch):
    """And the numbers do not depend on how many points are taken together."""
    end = polynomial(3).end
    inner = polynomial(3).value

    def value(start, change, shares, rows):
        points = (start.unsqueeze(1) + shares[:, None, None] * change.unsqueeze(1)).sum((2, 3))
        return torch.where(rows.unsqueeze(1) == 0, points, inner(start, change, shares, rows))

    line = Line(torch.zeros_like(end), end, torch.tensor([2, 3]), value)
    found = integrate(line, 2, 54, 1e-3)
    assert found.steps.tolist() == [2, 18]
    assert abs(found.residual[1]) <= 1e-3 * 36
    monkeypatch.setattr(integrated_gradients, "PLACES_AT_ONCE", 7)
    again = integrate(line, 2, 54, 1e-3)
    torch.testing.assert_close(again.parts, found.parts, rtol=1e-12, atol=1e-12)
    assert again.steps.tolist() == [2, 18]


def test_lines_that_leave_float_range_are_nan_and_alone(tiny_model, tiny_rows, tiny_batch):
    """A logit at the baseline that is not finite: no number for this text, all for the other."""
    model = tiny_model(encoder="embedding", projection="softmax", alignment="dot", dtype=torch.float32)
    rows = tiny_rows([[20, 21, 22], [30, 31]])
    whole = integrated_gradients.measure(model, tiny_batch(rows))
    with torch.no_grad():
        model.get_input_embeddings().weight[22] = 3e38  # the way there is finite, products of it are not
    made = integrated_gradients.measure(model, tiny_batch(rows))
    assert np.isnan(made[TOKENS][0]).all() and np.isnan(made[RESIDUAL][0]) and np.isnan(made[STATES][0]).all()
    np.testing.assert_allclose(made[TOKENS][1], whole[TOKENS][1], atol=1e-6)
    assert np.isfinite(made[RESIDUAL][1]) and made[STEPS][0] == 20


def test_nothing_to_attribute(tiny_model, tiny_rows, tiny_batch):
    made = integrated_gradients.measure(tiny_model(), tiny_batch(tiny_rows([0, 3])))
    assert made[TOKENS][0].shape == (0,) and made[RESIDUAL][0] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "blank"}, "baseline='blank' is not known; choose one of zero, padding, mean"),
        ({"steps": 0}, "steps=0; give a whole number, 1 or more"),
        ({"steps": 2.0}, "steps=2.0; give"),
        ({"max_steps": True}, "max_steps=True; give"),
        ({"steps": 50, "max_steps": 40}, "steps=50 is above max_steps=40"),
        ({"tolerance": -0.1}, "tolerance=-0.1; give"),
        ({"tolerance": float("nan")}, "tolerance=nan; give"),
        ({"target": "best"}, "target='best' is not known"),
    ],
)
def test_options_are_checked(options, message, tiny_model, tiny_rows, tiny_batch):
    with pytest.raises(ValueError, match=message):
        integrated_gradients.check(**options)
    with pytest.raises(ValueError, match=message):
        integrated_gradients.measure(tiny_model(), tiny_batch(tiny_rows([3])), **options)


def test_a_model_without_padding(tiny_model, tiny_rows, tiny_batch):
    model = tiny_model(pad_token_id=None)
    for call in (
        lambda: integrated_gradients.check_model(subject_of(model), None, baseline="padding"),
        lambda: integrated_gradients.measure(model, tiny_batch(tiny_rows([3])), baseline="padding"),
    ):
        with pytest.raises(ValueError, match="baseline='padding', and the model has no pad_token_id"):
            call()
    mean = integrated_gradients.measure(model, tiny_batch(tiny_rows([3])), baseline="mean", steps=5, max_steps=5)
    assert np.isfinite(mean[TOKENS][0]).all()
