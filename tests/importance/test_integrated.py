"""Integrated gradients and DeepLIFT: closed forms, completeness, and the error of the integral."""

import numpy as np
import pytest
import torch

from attnfaith.importance.integrated import DeepLift, IntegratedGradients, Line, integrate
from attnfaith.subjects import subject_of
from tests.measuring import run
from tests.small_classifiers import classifier
from tests.stages import embedded_of, logits_at, logits_of, stages


TOKENS, STATES, RESIDUAL, RESIDUAL_HIDDEN, ERROR, ERROR_HIDDEN, STEPS, STEPS_HIDDEN = IntegratedGradients.columns


def fillings(table):
    return {"zero": torch.zeros_like(table[0]), "padding": table[0], "mean": table[1:].mean(0)}


@pytest.mark.parametrize(
    ("encoder", "projection", "output", "hierarchy"),
    [
        ("transformer", "sparsemax", "probability", "none"),
        ("average", "sparsemax", "log_odds", "sentence"),
        ("bilstm", "sparsemax", "logit", "none"),
    ],
)
def test_completeness(encoder, projection, output, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Parts sum to f at the text - f at the baseline, which is decoded apart; the residual is the rest."""
    model = tiny_model(encoder=encoder, projection=projection, hierarchy=hierarchy, num_labels=3, scale=1.5)
    batch = tiny_batch(tiny_rows([7], hierarchy=hierarchy))
    columns = run(IntegratedGradients, model, batch, output=output, tolerance=1e-3, max_steps=6000)
    encoded, _, end = stages(model, batch)
    items, nothing = model.items(batch["input_ids"], batch["attention_mask"]), torch.zeros_like(encoded.hidden)
    with torch.no_grad():
        points = torch.where((items >= 0).unsqueeze(-1), 0.0, embedded_of(model, batch))
        start = logits_at(model, batch, points, items=items)
        states = model.decode(nothing, model.attend(nothing, encoded.mask, encoded.query), encoded.query)
    predicted = int(end.argmax())

    def value(logits):
        p = logits[0].softmax(-1)[predicted]
        return float({"logit": logits[0, predicted], "probability": p, "log_odds": (p / (1 - p)).log()}[output])

    for column, residual, steps, baseline in (
        (TOKENS, RESIDUAL, STEPS, start),
        (STATES, RESIDUAL_HIDDEN, STEPS_HIDDEN, states),
    ):
        change = value(end) - value(baseline)
        assert columns[column][0].sum() - change == pytest.approx(columns[residual][0], abs=2e-5)
        largest = max(abs(change), abs(columns[column][0]).max())
        assert abs(columns[residual][0]) <= 1e-3 * largest + 2e-6 * (abs(value(end)) + abs(value(baseline)))
        assert 15 <= columns[steps][0] <= 6000


def line_of(*functions, ends=(1.0, 2.0)):
    """f(x) = sum_t g(x_t) of one instance for each g, with g one-dimensional, along lines from 0."""

    def value(points, rows):
        return torch.stack([functions[row](point).sum() for row, point in zip(rows.tolist(), points, strict=True)])

    end = torch.tensor([ends] * len(functions), dtype=torch.float64).unsqueeze(-1)
    reached = value(end, torch.arange(len(functions)))
    return Line(torch.zeros_like(end), end, torch.tensor([len(ends)] * len(functions)), value, reached)


@pytest.mark.parametrize("power", [1, 7, 23])
def test_the_rule_is_exact_for_polynomials(power):
    """Of slopes of a degree up to 22: the part of x_t is x_t^power."""
    integral = integrate(line_of(lambda x: x**power), 15, 1.0)
    assert integral.steps.tolist() == [15]
    np.testing.assert_allclose(integral.parts, [[1.0, 2.0**power]], rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x - 0.37).relu(),  # a kink
        lambda x: (x - 0.37).abs().sqrt(),  # a slope without bound
        lambda x: x / (x**2 + 1e-6).sqrt(),  # a norm that turns close to the start
        lambda x: (1e5 * x).tanh() + (1e12 * x).tanh() * 0.5,  # and two within each other
    ],
)
def test_each_part_is_within_the_tolerance(function):
    """Each part is g(x_t) - g(0), since no token's part depends on another."""
    integral = integrate(line_of(function), 3000, 1e-3)
    start, *ends = (float(function(torch.tensor(x, dtype=torch.float64))) for x in (0.0, 1.0, 2.0))
    within = 2e-3 * float(integral.parts.max())
    np.testing.assert_allclose(integral.parts[0], [end - start for end in ends], rtol=0, atol=within)
    assert integral.error[0] <= 1e-3 * float(integral.parts.max()) + 1e-5


def test_a_part_that_is_not_reached_is_nan_and_alone():
    """A residual of 0 shows nothing where errors of tokens cancel; numbers do not depend on what is taken together."""
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    integral = integrate(line_of(lambda x: (x - 0.37).relu() * signs, lambda x: x**2, ends=(1.0, 1.0)), 15, 1e-3)
    assert abs(integral.residual[0]) < 1e-12 and integral.parts[0].isnan().all() and integral.error[0] > 1e-3
    torch.testing.assert_close(integral.parts[1], torch.ones(2, dtype=torch.float64))


LAYOUT = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16}
CLASSIFIERS = {"bert": {}, "gemma2": {"num_key_value_heads": 1}, "deberta-v2": LAYOUT}


@pytest.mark.parametrize("baseline", ["mean", "zero"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_classifier_whose_norms_turn_at_zero(kind, baseline):
    """Defaults are right for every token. By 200 points of Gauss from the mean; from zero, where each norm turns at another
    tiny share, by 4,000 midpoints in the logarithm of the share, down to 1e-60.
    """
    model = classifier(kind, initializer_range=0.1, **CLASSIFIERS[kind]).double()
    ids = torch.tensor([[7, 12, 30, 7, 21]])
    batch, options = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, {}
    if baseline == "zero":
        options["baseline"] = "zero"
    columns = run(IntegratedGradients, subject_of(model), batch, **options)
    table = model.get_input_embeddings()
    with torch.no_grad():
        end, start = table(ids), fillings(table(torch.arange(100)))[baseline].expand(1, 5, -1)
        predicted = int(model(**batch).logits[0].argmax())

    def f(points):
        mask = torch.ones(points.shape[:2], dtype=torch.long)
        return model(inputs_embeds=points, attention_mask=mask).logits[:, predicted]

    if baseline == "zero":
        bounds = torch.linspace(np.log(1e-60), 0, 4001, dtype=torch.float64)
        shares = ((bounds[1:] + bounds[:-1]) / 2).exp()
        weights = shares * bounds.diff()
    else:
        shares, weights = (torch.tensor(values) / 2 for values in np.polynomial.legendre.leggauss(200))
        shares = shares + 0.5
    points = (start + shares[:, None, None] * (end - start)).detach().requires_grad_()
    (slopes,) = torch.autograd.grad(f(points).sum(), points)
    parts = (weights[:, None] * (slopes * (end - start)).sum(-1)).sum(0).detach()
    with torch.no_grad():
        assert parts.sum() == pytest.approx(float(f(end) - f(start)), rel=2e-3)
    np.testing.assert_allclose(columns[TOKENS][0], parts, rtol=0, atol=0.01 * float(parts.abs().max()))


def test_lines_that_leave_float_range_are_nan_and_alone(tiny_model, tiny_rows, tiny_batch):
    """A logit at the baseline that is not finite: no number for this text, all for the other."""
    model = tiny_model(encoder="embedding", projection="softmax", alignment="dot", dtype=torch.float32)
    rows = tiny_rows([[20, 21, 22], [30, 31]])
    whole = run(IntegratedGradients, model, tiny_batch(rows))
    with torch.no_grad():
        model.get_input_embeddings().weight[22] = 3e38  # the way there is finite, products of it are not
    columns = run(IntegratedGradients, model, tiny_batch(rows))
    assert np.isnan(columns[TOKENS][0]).all() and np.isnan(columns[RESIDUAL][0]) and np.isnan(columns[STATES][0]).all()
    np.testing.assert_allclose(columns[TOKENS][1], whole[TOKENS][1], atol=1e-6)
    assert np.isfinite(columns[RESIDUAL][1])


@pytest.mark.parametrize("baseline", ["padding", "mean"])
@pytest.mark.parametrize("scale", [3.0, 300.0])
def test_average_model_by_hand(scale, baseline, tiny_model, tiny_rows, tiny_batch):
    """Under uniform attention: x - b through W, times (tanh(y) - tanh(y0)) / (y - y0), times the class's weights over T.

    Also where tanh is flat: its slope is 0, its rise from the baseline is not.
    """
    model, batch = tiny_model(encoder="average", projection="uniform", scale=scale), tiny_batch(tiny_rows((7, 0, [9], 3)))
    columns = run(DeepLift, model, batch, baseline=baseline)
    table, layer = model.get_input_embeddings().weight.detach(), model.model.encoder.projection
    start, predicted = fillings(table)[baseline], logits_of(model, batch).argmax(1)
    weights = model.decoder.context.weight.detach()
    size = max(1.0, float(weights.abs().max()))
    for row, length in enumerate((7, 0, 1, 3)):
        with torch.no_grad():
            x = table[batch["input_ids"][row, 1 : 1 + length]]
            y, y0 = layer(x), layer(start)
            through = (y.tanh() - y0.tanh()) / (y - y0)
            parts = ((x - start) @ layer.weight.t() * through * weights[predicted[row]]).sum(-1) / max(1, length)
        np.testing.assert_allclose(columns["importance_deeplift"][row], parts, atol=1e-6 * size)
    np.testing.assert_allclose(columns["deeplift_residual"], 0, atol=1e-12 * size)


@pytest.mark.parametrize(
    ("encoder", "fields"),
    [
        ("bilstm", {"query": "text"}),
        ("transformer", {"hierarchy": "sentence"}),
        ("cnn", {"projection": "uniform", "query": "text", "readout": "tanh"}),
    ],
)
def test_the_residual_is_what_the_parts_miss(encoder, fields, tiny_model, tiny_rows, tiny_batch):
    """Attention and recurrent steps have their slope alone; convolutions, ReLU and tanh have the rule."""
    model = tiny_model(encoder=encoder, **fields)
    batch = tiny_batch(tiny_rows((7, 0, [9], 3), pair="query" in fields, hierarchy=fields.get("hierarchy", "none")))
    columns = run(DeepLift, model, batch, target=1)
    items = model.items(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    start = embedded_of(model, batch) * (items < 0).unsqueeze(-1)
    with torch.no_grad():
        rise = logits_of(model, batch) - logits_at(model, batch, start, items=items if "hierarchy" in fields else None)
    sums = [values.sum(dtype=np.float64) for values in columns["importance_deeplift"]]
    np.testing.assert_allclose(sums - rise[:, 1].numpy(), columns["deeplift_residual"], atol=1e-5)
    assert (np.abs(columns["deeplift_residual"]).max() < 1e-12) == (encoder == "cnn")
