"""Integrated gradients and DeepLIFT: closed forms, completeness, and the error of the integral."""

import sys

import numpy as np
import pytest
import torch
import transformers
from captum import attr

from attnfaith.importance import quadrature
from attnfaith.importance.integrated import DeepLift, IntegratedGradients
from attnfaith.importance.quadrature import Line, integrate
from attnfaith.measurement.registry import find
from attnfaith.subjects import subject_of
from tests.measuring import classifier_of, run


TOKENS, STATES, RESIDUAL, RESIDUAL_HIDDEN, ERROR, ERROR_HIDDEN, STEPS, STEPS_HIDDEN = IntegratedGradients.columns


@pytest.mark.parametrize(
    ("encoder", "query", "readout", "projection", "baseline"),
    [
        ("bilstm", "text", "tanh", "sparsemax", "mean"),
        ("transformer", "learned", "affine", "softmax", "zero"),
        ("cnn", "learned", "affine", "softmax", "padding"),
        ("orthogonal_lstm", "text", "affine", "entmax15", "mean"),
    ],
)
def test_captum(encoder, query, readout, projection, baseline, tiny_model, tiny_rows, tiny_batch):
    """1,000 midpoints of a text alone, against texts of unequal length together."""
    model = tiny_model(encoder=encoder, query=query, readout=readout, projection=projection, num_labels=3)
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        table[0] = 0.3  # padding is no zero here
    filling = {"zero": torch.zeros_like(table[0]), "padding": table[0], "mean": table[1:].mean(0)}[baseline]
    rows = tiny_rows([6, 2, 9], pair=query == "text")
    columns = run(IntegratedGradients, model, tiny_batch(rows), baseline=baseline, tolerance=1e-3, max_steps=6000)
    for row, values, residual in zip(rows, columns[TOKENS], columns[RESIDUAL], strict=True):
        batch, inner = tiny_batch([row]), slice(1, 1 + len(row["tokens"]))
        masks = {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}
        embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
        start = embedded.clone()  # of markers and a second text it is what they are
        start[:, inner] = filling.detach()

        def forward(points, masks=masks):
            return model(inputs_embeds=points, **{name: mask.expand(len(points), -1) for name, mask in masks.items()}).logits

        expected = attr.IntegratedGradients(forward).attribute(
            embedded, start, target=int(forward(embedded).argmax()), n_steps=1000, method="riemann_middle"
        )
        expected = expected.sum(-1)[0, inner]
        # kinks leave both rules an error: of 1e-3 in ours, of a jump over 1,000 points in theirs
        within = 2e-3 * float(expected.abs().max())
        np.testing.assert_allclose(values, expected, rtol=0, atol=within)
        assert abs(residual) <= within


@pytest.mark.parametrize(
    ("encoder", "projection", "output", "hierarchy"),
    [
        ("bilstm", "softmax", "logit", "none"),
        ("transformer", "sparsemax", "probability", "none"),
        ("average", "sparsemax", "log_odds", "sentence"),
        ("bilstm", "sparsemax", "probability", "word"),
    ],
)
def test_completeness(encoder, projection, output, hierarchy, tiny_model, tiny_rows, tiny_batch):
    """Parts sum to f at the text - f at the baseline, which is decoded apart; the residual says what is missing."""
    model = tiny_model(encoder=encoder, projection=projection, hierarchy=hierarchy, num_labels=3, scale=1.5)
    batch = tiny_batch(tiny_rows([7], hierarchy=hierarchy))
    columns = run(IntegratedGradients, model, batch, output=output, tolerance=1e-3, max_steps=6000)
    with torch.no_grad():
        embedded = classifier_of(model).get_input_embeddings()(batch["input_ids"])
        items, ends = model.items(batch["input_ids"], batch["attention_mask"]), []
        for points in (torch.where((items >= 0).unsqueeze(-1), 0.0, embedded), embedded):
            encoded = model.encode(inputs_embeds=points, attention_mask=batch["attention_mask"], items=items)
            ends.append(model.decode(encoded.hidden, model.attend(*encoded), encoded.query)[0])
        hidden = torch.zeros_like(encoded.hidden)
        states = model.decode(hidden, model.attend(hidden, encoded.mask, encoded.query), encoded.query)[0]
    predicted = int(ends[1].argmax())

    def value(logits):
        p = logits.softmax(-1)[predicted]
        return float({"logit": logits[predicted], "probability": p, "log_odds": (p / (1 - p)).log()}[output])

    for column, residual, steps, start in (
        (TOKENS, RESIDUAL, STEPS, ends[0]),
        (STATES, RESIDUAL_HIDDEN, STEPS_HIDDEN, states),
    ):
        change = value(ends[1]) - value(start)
        assert columns[column][0].sum() - change == pytest.approx(columns[residual][0], abs=2e-5)
        largest = max(abs(change), abs(columns[column][0]).max())
        assert abs(columns[residual][0]) <= 1e-3 * largest + 2e-6 * sum(map(abs, map(value, (ends[1], start))))
        assert 15 <= columns[steps][0] <= 6000


def line_of(*functions, ends=(1.0, 2.0)):
    """f(x) = sum_t g(x_t) of one instance for each g, with g one-dimensional, along lines from 0."""

    def value(points, rows):
        return torch.stack([functions[row](point).sum() for row, point in zip(rows.tolist(), points, strict=True)])

    end = torch.tensor([ends] * len(functions), dtype=torch.float64).unsqueeze(-1)
    reached = value(end, torch.arange(len(functions)))
    return Line(torch.zeros_like(end), end, torch.tensor([len(ends)] * len(functions)), value, reached)


@pytest.mark.parametrize("power", [1, 2, 7, 23])
def test_the_rule_is_exact_for_polynomials(power):
    """Of slopes of a degree up to 22: the part of x_t is x_t^power."""
    integral = integrate(line_of(lambda x: x**power), 15, 1.0)
    assert integral.steps.tolist() == [15]
    torch.testing.assert_close(
        integral.parts, torch.tensor([[1.0, 2.0**power]], dtype=torch.float64), rtol=1e-12, atol=1e-12
    )


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
    """By scipy where it can; each part is g(x_t) - g(0), since no token's part depends on another."""
    integral = integrate(line_of(function), 3000, 1e-3)
    start, *ends = (float(function(torch.tensor(x, dtype=torch.float64))) for x in (0.0, 1.0, 2.0))
    np.testing.assert_allclose(
        integral.parts[0], [end - start for end in ends], rtol=0, atol=2e-3 * float(integral.parts.max())
    )
    assert integral.error[0] <= 1e-3 * float(integral.parts.max()) + 1e-5


def test_what_is_not_found_is_nan_and_alone():
    """A residual of 0 says nothing where errors of tokens cancel; numbers do not depend on what is taken together."""
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    integral = integrate(line_of(lambda x: (x - 0.37).relu() * signs, lambda x: x**2, ends=(1.0, 1.0)), 15, 1e-3)
    assert abs(integral.residual[0]) < 1e-12 and integral.parts[0].isnan().all() and integral.error[0] > 1e-3
    torch.testing.assert_close(integral.parts[1], torch.ones(2, dtype=torch.float64))
    assert integral.steps.tolist() == [15, 15]


def test_each_text_takes_the_points_it_needs(monkeypatch):
    line = line_of(lambda x: x**3, lambda x: (x - 0.37).relu())
    integral = integrate(line, 500, 1e-3)
    assert integral.steps[0] == 15 < integral.steps[1]
    monkeypatch.setattr(quadrature, "PLACES_AT_ONCE", 7)
    again = integrate(line, 500, 1e-3)
    torch.testing.assert_close(again.parts, integral.parts, rtol=1e-12, atol=1e-12)
    assert again.steps.tolist() == integral.steps.tolist()


SMALL = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"num_labels": 2, "pad_token_id": 0}
GROUPED = SMALL | {"num_key_value_heads": 1}
CLASSIFIERS = {
    "Bert": SMALL,
    "Qwen2": GROUPED,
    "Llama": GROUPED,
    "Gemma2": GROUPED | {"head_dim": 8},
    "GPTNeoX": SMALL,
    "DebertaV2": SMALL
    | {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16},
}


def along(start, change, f, shares, weights):
    """(T,): sum over points of weight * slope . change, the points and weights of another rule."""
    points = (start + shares[:, None, None] * change).requires_grad_()
    (slopes,) = torch.autograd.grad(f(points).sum(), points)
    return (weights[:, None] * (slopes * change).sum(-1)).sum(0)


@pytest.mark.parametrize("baseline", [None, "zero"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_classifier_whose_norms_turn_at_zero(kind, baseline):
    """Defaults are right for every token. By 200 points of Gauss from the mean; from zero, where each norm turns at another
    tiny share, by 4,000 midpoints in the logarithm of the share, down to 1e-60.
    """
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(
        getattr(transformers, f"{kind}Config")(**CLASSIFIERS[kind])
    )
    model = model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                parameter.mul_(4)
    subject, ids = subject_of(model), torch.tensor([[7, 12, 30, 7, 21]])
    options = {} if baseline is None else {"baseline": baseline}
    columns = run(IntegratedGradients, subject, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, **options)
    table = model.get_input_embeddings()
    with torch.no_grad():
        end, vocabulary = table(ids), table(torch.arange(1, 40))
        start = torch.zeros_like(end) if baseline else vocabulary.mean(0).expand_as(end)
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]

    def f(points):
        mask = torch.ones(points.shape[:2], dtype=torch.long)
        return model(inputs_embeds=points, attention_mask=mask).logits[:, int(logits.argmax())]

    torch.testing.assert_close(f(end)[0], logits.max())
    if baseline:
        bounds = torch.linspace(np.log(1e-60), 0, 4001, dtype=torch.float64)
        shares = ((bounds[1:] + bounds[:-1]) / 2).exp()
        weights = shares * bounds.diff()
    else:
        shares, weights = (torch.tensor(values) / 2 for values in np.polynomial.legendre.leggauss(200))
        shares = shares + 0.5
    expected = along(start, end - start, f, shares, weights)
    with torch.no_grad():
        assert expected.sum() == pytest.approx(float(f(end) - f(start)), rel=2e-3)
    np.testing.assert_allclose(columns[TOKENS][0], expected, rtol=0, atol=0.01 * float(expected.abs().max()))


def test_lines_that_leave_float_range_are_nan_and_alone(tiny_model, tiny_rows, tiny_batch):
    """A logit at the baseline that is not finite: no number for this text, all for the other."""
    model = tiny_model(encoder="embedding", projection="softmax", alignment="dot", dtype=torch.float32)
    rows = tiny_rows([[20, 21, 22], [30, 31]])
    whole = run(IntegratedGradients, model, tiny_batch(rows))
    with torch.no_grad():
        classifier_of(model).get_input_embeddings().weight[22] = 3e38  # the way there is finite, products of it are not
    columns = run(IntegratedGradients, model, tiny_batch(rows))
    assert np.isnan(columns[TOKENS][0]).all() and np.isnan(columns[RESIDUAL][0]) and np.isnan(columns[STATES][0]).all()
    np.testing.assert_allclose(columns[TOKENS][1], whole[TOKENS][1], atol=1e-6)
    assert np.isfinite(columns[RESIDUAL][1]) and columns[STEPS][0] == 15


@pytest.fixture
def a_batch(tiny_model, tiny_rows, tiny_batch):
    """Factory of a model and a batch that suits it."""

    def make(texts=(7, 0, [9], 3), **fields):
        rows = tiny_rows(texts, pair=fields.get("query") == "text", hierarchy=fields.get("hierarchy", "none"))
        return tiny_model(**fields), tiny_batch(rows)

    return make


@torch.no_grad()
def logits_of(model, batch, embedded=None, items=None):
    masks = {name: batch[name] for name in ("attention_mask", "token_type_ids") if name in batch}
    ids = batch["input_ids"] if embedded is None else None
    encoded = model.encode(ids, inputs_embeds=embedded, items=items, **masks)
    return model.decode(encoded.hidden, model.attend(*encoded), encoded.query)


@pytest.mark.parametrize("baseline", ["zero", "padding", "mean"])
@pytest.mark.parametrize("scale", [3.0, 300.0])
def test_average_model_by_hand(scale, baseline, a_batch):
    """Under uniform attention: x - b through W, times (tanh(y) - tanh(y0)) / (y - y0), times the class's weights over T.

    Also where tanh is flat: its slope is 0, what it rose by from the baseline is not.
    """
    model, batch = a_batch(encoder="average", projection="uniform", scale=scale)
    columns = run(DeepLift, model, batch, baseline=baseline)
    table, layer = model.get_input_embeddings().weight.detach(), model.model.encoder.projection
    start = {"zero": torch.zeros_like(table[0]), "padding": table[0], "mean": table[1:].mean(0)}[baseline]
    predicted = logits_of(model, batch).argmax(1)
    for row, length in enumerate((7, 0, 1, 3)):
        with torch.no_grad():
            x = table[batch["input_ids"][row, 1 : 1 + length]]
            y, y0 = layer(x), layer(start)
            through = (y.tanh() - y0.tanh()) / (y - y0)
            weight = model.decoder.context.weight[predicted[row]].detach()
            expected = ((x - start) @ layer.weight.t() * through * weight).sum(-1) / max(1, length)
        size = max(1.0, float(weight.abs().max()))
        np.testing.assert_allclose(columns["importance_deeplift"][row], expected, atol=1e-6 * size)
    np.testing.assert_allclose(columns["deeplift_residual"], 0, atol=1e-12 * size)


@pytest.mark.parametrize(
    ("encoder", "fields"),
    [
        ("bilstm", {"query": "text"}),
        ("transformer", {"hierarchy": "sentence"}),
        ("cnn", {"projection": "uniform", "query": "text", "readout": "tanh"}),
    ],
)
def test_residual_is_what_the_parts_miss(encoder, fields, a_batch):
    """Of attention and recurrent steps the slope alone is known; convolutions, ReLU and tanh have the rule."""
    model, batch = a_batch(encoder=encoder, **fields)
    columns = run(DeepLift, model, batch, target=1)
    items = model.items(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    start = model.get_input_embeddings()(batch["input_ids"]).detach() * (items < 0).unsqueeze(-1)
    rise = logits_of(model, batch) - logits_of(model, batch, start, items if "hierarchy" in fields else None)
    sums = [values.sum(dtype=np.float64) for values in columns["importance_deeplift"]]
    np.testing.assert_allclose(sums - rise[:, 1].numpy(), columns["deeplift_residual"], atol=1e-5)
    assert (np.abs(columns["deeplift_residual"]).max() < 1e-12) == (encoder == "cnn")


@pytest.mark.parametrize("package", ["captum", "sklearn"])
@pytest.mark.parametrize("name", ["kernel_shap", "lime"])
def test_without_captum(name, package, a_batch, monkeypatch):
    """Each of these measures says so before any work is done."""
    measure = find(name)()
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    model, batch = a_batch()
    for ask in (find(name), lambda: run(measure, model, batch)):
        with pytest.raises(ValueError, match=r"attnfaith\[captum\]"):
            ask()
