"""Relevance propagation: rules by hand and unit by unit, nothing lost between layers, and decompositions written out."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from attnfaith.importance.attention_based import AttentionXGradient
from attnfaith.importance.relevance import ENCODERS as RULES_OF_ENCODERS
from attnfaith.importance.relevance import Chefer, DecompX, Lrp, Rules, tanh
from attnfaith.models import encoders
from attnfaith.subjects import Batch, SelfAttention, SubjectError, subject_of
from tests.measuring import run
from tests.small_classifiers import biased, classifier, texts
from tests.stages import logits_of


EVERY_ENCODER = sorted(name for name, encoder in encoders.ENCODERS.items() if encoder in RULES_OF_ENCODERS)
MODELS = (
    {"projection": "sparsemax", "query": "text", "readout": "tanh"},
    {"projection": "entmax15", "readout": "tanh", "hierarchy": "sentence"},
    {"query": "text", "hierarchy": "sentence"},
)


def run_rule(rule, *shape, epsilon):
    """Values and slopes going in, values and slopes coming out, and what ends in constants, of a rule in float64."""
    torch.manual_seed(0)
    inputs = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    unit = torch.ones(shape[0], dtype=torch.float64, requires_grad=True)
    outputs = rule(Rules(epsilon, unit), inputs)
    top = torch.randn_like(outputs)
    slopes, entries = torch.autograd.grad(outputs, [inputs, unit], top, allow_unused=True)
    return inputs.detach(), slopes, outputs.detach(), top, torch.zeros_like(unit) if entries is None else entries


def double(layer):
    torch.manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer.double()


MASK = torch.tensor([[True] * 4, [True] * 3 + [False]])
ATTENTION = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.6, 0.4, 0.0, 0.0]], dtype=torch.float64)


def of_layer(layer, rule):
    """A rule as a function of values alone, for a layer with random weights."""
    layer = double(layer)
    return lambda rules, values: rule(rules, values, layer)


def in_time(rule):
    """A rule of tokens (T,B,E) for tokens (B,T,E)."""
    return lambda rules, values, layer: rule(rules, values.transpose(0, 1), layer).transpose(0, 1)


RULES = {
    "linear": (of_layer(nn.Linear(3, 5), Rules.linear), (2, 4, 3)),
    "linear of one place": (of_layer(nn.Linear(3, 5), Rules.linear), (2, 3)),
    "convolution": (of_layer(nn.Conv1d(3, 5, 3, padding=1), Rules.convolution), (2, 3, 4)),
    "attention": (lambda rules, values: rules.pooled(values, ATTENTION), (2, 4, 3)),
    "layer norm": (of_layer(nn.LayerNorm(6), Rules.normalised), (2, 4, 6)),
    "lstm": (of_layer(nn.LSTM(3, 5), in_time(Rules.lstm)), (2, 4, 3)),
    "gru": (of_layer(nn.GRU(3, 5), in_time(Rules.gru)), (2, 4, 3)),
    "tanh": (lambda rules, values: tanh(values), (2, 4, 3)),
}


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("name", [*RULES, *EVERY_ENCODER])
def test_a_rule_conserves(name, epsilon, tiny_model):
    """Relevance of the outputs is relevance of the inputs and of what is entered, for each instance."""
    if name in RULES:
        rule, shape = RULES[name]
    else:
        encoder, shape = tiny_model(encoder=name).model.encoder, (2, 4, 8)
        rule = lambda rules, values: rules.encoded(encoder, values, MASK)  # noqa: E731
    inputs, slopes, outputs, top, entries = run_rule(rule, *shape, epsilon=epsilon)
    out, into = (outputs * top).flatten(1).sum(1), (inputs * slopes).flatten(1).sum(1)
    torch.testing.assert_close(into + entries, out, atol=1e-12, rtol=1e-11)
    assert out.abs().min() > 0.01


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def split(parts, total, relevance, epsilon):
    """The epsilon rule: relevance (D,) of sums `total` (D,) to parts (..., D) of them."""
    return parts / (total + epsilon * np.where(total >= 0, 1.0, -1.0)) * relevance


def lstm_steps(layer, x):
    """Forward steps of an LSTM: state before, state, memory, its two parts, the candidate, and what it is made of."""
    wx, wh = (values.detach().numpy().reshape(4, 2, -1) for values in (layer.weight_ih_l0, layer.weight_hh_l0))
    b = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy().reshape(4, 2)
    state, memory = np.zeros(2), np.zeros(2)
    for values in x:
        i, f, g, o = wx @ values + wh @ state + b
        before, parts = state, (sigmoid(f) * memory, sigmoid(i) * np.tanh(g))
        memory = sum(parts)
        state = sigmoid(o) * np.tanh(memory)
        yield state, memory, *parts, g, (wx[2] * values).T, (wh[2] * before).T


def gru_steps(layer, x):
    """The same of a GRU, h = (1 - z) tanh(y) + z h' with y = W x + b + r (V h' + d); its state is its memory."""
    wx, wh, b, d = (values.detach().numpy().reshape(3, 2, -1) for values in layer.parameters())
    state = np.zeros(2)
    for values in x:
        read, recur = wx @ values + b[:, :, 0], wh @ state + d[:, :, 0]
        r, z = sigmoid(read[0] + recur[0]), sigmoid(read[1] + recur[1])
        y, before = read[2] + r * recur[2], state
        parts = z * before, (1 - z) * np.tanh(y)
        state = sum(parts)
        yield state, state, *parts, y, (wx[2] * values).T, (wh[2] * before).T * r


@pytest.mark.parametrize("epsilon", [1e-3, 0.5])
@pytest.mark.parametrize(("kind", "steps"), [("lstm", lstm_steps), ("gru", gru_steps)])
def test_recurrence_step_by_step(kind, steps, epsilon):
    """Relevance itself, sent back from step to step by its own formulas (Arras et al. 2017), one unit at a time."""
    layer, rule = double({"lstm": nn.LSTM, "gru": nn.GRU}[kind](3, 2)), in_time(getattr(Rules, kind))
    tensors = run_rule(lambda rules, x: rule(rules, x, layer), 1, 4, 3, epsilon=epsilon)
    x, slopes, h, top = (values[0].numpy() for values in tensors[:4])
    forward = list(steps(layer, x))
    np.testing.assert_allclose(forward[-1][0], h[-1], atol=1e-12)
    expected, to_state, to_memory = np.zeros((4, 3)), np.zeros(2), np.zeros(2)
    for t in reversed(range(4)):
        _, memory, remembered, entered, candidate, inward, recurrent = forward[t]
        relevance = to_memory + to_state + h[t] * top[t]
        of_candidate = split(entered, memory, relevance, epsilon)
        to_memory = split(remembered, memory, relevance, epsilon)
        expected[t] = split(inward, candidate, of_candidate, epsilon).sum(1)
        to_state = split(recurrent, candidate, of_candidate, epsilon).sum(1)
    np.testing.assert_allclose(x * slopes, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(tensors[4][0], (h * top).sum() - expected.sum(), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("encoder", EVERY_ENCODER)
def test_nothing_is_lost(encoder, epsilon, make_batch):
    for fields in MODELS:
        model, batch = make_batch(**fields, encoder=encoder, num_labels=3)
        columns = run(Lrp, model, batch, epsilon=epsilon)
        sums = np.array([values.sum(dtype=np.float64) for values in columns["importance_lrp"]])
        np.testing.assert_allclose(sums + columns["lrp_residual"], logits_of(model, batch).amax(1), atol=1e-5)
        np.testing.assert_allclose(columns["lrp_unaccounted"], 0, atol=1e-12)
        assert np.abs(sums).max() > 1e-6


def test_outputs_that_are_no_logit(make_batch):
    """Log-odds of two classes are a contrast; a probability starts with p (1 - p) of it and states what that leaves out."""
    model, batch = make_batch(encoder="bilstm")
    contrast = run(Lrp, model, batch, target={"of": 1, "against": 0})
    odds = run(Lrp, model, batch, target=1, output="log_odds")
    np.testing.assert_allclose(np.concatenate(odds["importance_lrp"]), np.concatenate(contrast["importance_lrp"]), rtol=1e-5)
    np.testing.assert_allclose(odds["lrp_unaccounted"], 0, atol=1e-12)
    probability, logits = run(Lrp, model, batch, target=1, output="probability"), logits_of(model, batch).numpy()
    p = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    for row, values in enumerate(probability["importance_lrp"]):
        expected = p[row] * (1 - p[row]) * contrast["importance_lrp"][row]
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-9)
    rest = p - p * (1 - p) * (logits[:, 1] - logits[:, 0])
    np.testing.assert_allclose(probability["lrp_unaccounted"], rest, atol=1e-12)


def test_refusals(make_batch):
    class Unknown(encoders.Average):
        pass

    model, batch = make_batch(encoder="average")
    model.model.encoder.__class__ = Unknown
    for call in (lambda: run(Lrp, model, batch), lambda: Lrp().check(subject_of(model), None)):
        with pytest.raises(ValueError, match="no rule for Unknown"):
            call()
    bart = SelfAttention(classifier("bart"))
    with pytest.raises(SubjectError, match="'chefer' needs 'stacked maps'"):
        run(Chefer, bart, Batch.of(texts(bart.model), bart))


@pytest.fixture(scope="module")
def bert():
    return biased("bert")


class Written:
    """A BERT's forward pass for one text, layer by layer, with all that a decomposition needs."""

    @torch.no_grad()
    def __init__(self, model, ids):
        self.model, self.heads = model, model.config.num_attention_heads
        self.states = [model.bert.embeddings(input_ids=ids)[0]]
        self.layers = []
        for layer in model.bert.encoder.layer:
            states, own, out = self.states[-1], layer.attention.self, layer.attention.output
            query, key, value = own.query(states), own.key(states), own.value(states)
            scores = self.split(query) @ self.split(key).transpose(1, 2) / self.split(query).shape[-1] ** 0.5
            context = (scores.softmax(-1) @ self.split(value)).transpose(0, 1).flatten(1)
            dense = out.dense(context)
            middle = out.LayerNorm(dense + states)
            inner = layer.intermediate.dense(middle)
            outer = layer.output.dense(functional.gelu(inner))
            self.states.append(layer.output.LayerNorm(outer + middle))
            self.layers.append((layer, states, query, key, value, scores, context, dense, middle, inner, outer))
        self.pooled = model.bert.pooler.dense(self.states[-1][0])
        self.logits = model.classifier(self.pooled.tanh())

    def split(self, states):
        return states.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


def forward_decomposition(model, ids):
    """DecompX without biases as its authors compute it: vectors (source, place, size) carried through every layer; (T,C)."""
    text = Written(model, ids)
    length, size = text.states[0].shape
    parts = torch.zeros(length, length, size, dtype=torch.float64)
    parts[torch.arange(length), torch.arange(length)] = text.states[0]

    def normalised(norm, parts, states):
        spread = (states.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
        return (parts - parts.mean(-1, keepdim=True)) / spread * norm.weight

    for layer, states, _, _, _, scores, _, dense, middle, inner, outer in text.layers:
        own, out = layer.attention.self, layer.attention.output
        carried = text.split(parts @ own.value.weight.T)  # (source, head, place, size of a head)
        carried = (scores.softmax(-1) @ carried).transpose(1, 2).flatten(2) @ out.dense.weight.T + parts
        parts = normalised(out.LayerNorm, carried, dense + states)
        slope = functional.gelu(inner) / inner
        carried = ((parts @ layer.intermediate.dense.weight.T) * slope) @ layer.output.dense.weight.T + parts
        parts = normalised(layer.output.LayerNorm, carried, outer + middle)
    pooled = (parts[:, 0] @ model.bert.pooler.dense.weight.T) * (text.pooled.tanh() / text.pooled)
    return pooled @ model.classifier.weight.T


@torch.no_grad()
def test_decompx_is_the_authors_forward_decomposition(bert):
    model, subject, batch = bert
    columns = run(DecompX, subject, batch, target=1)
    for row in range(2):
        alone = batch.alone(row)
        expected = forward_decomposition(model, alone["input_ids"])[:, 1]
        np.testing.assert_allclose(columns["importance_decompx"][row], expected, atol=1e-6)
        total = float(expected.sum()) + columns["decompx_markers"][row] + columns["decompx_rest"][row]
        assert total == pytest.approx(float(subject.predict(alone)[0, 1]), abs=1e-6)


@pytest.mark.parametrize(("kind", "row_of"), [("bert", 0), ("gpt2", -1)])
def test_chefer_and_attention_times_gradient_by_the_models_own_attentions(kind, row_of):
    model, subject, batch = biased(kind)
    one_head = subject.shown_by({"layers": 0, "head": 1})
    rolled = run(Chefer, subject, batch, target=2)["importance_chefer"]
    last, head = (
        run(AttentionXGradient, s, batch, target=2)["importance_attention_x_gradient"] for s in (subject, one_head)
    )
    for row in range(2):
        model.set_attn_implementation("eager")
        output = model(input_ids=batch.alone(row)["input_ids"], output_attentions=True)
        model.set_attn_implementation("sdpa")
        slopes = torch.autograd.grad(output.logits[0, 2], output.attentions)
        products = [(weights * slope)[0].detach().numpy() for weights, slope in zip(output.attentions, slopes, strict=True)]
        identity = whole = np.eye(products[0].shape[1])
        for product in products:
            whole = whole + np.maximum(product, 0).mean(0) @ whole
        np.testing.assert_allclose(rolled[row], (whole - identity)[row_of], atol=1e-7, rtol=1e-5)
        np.testing.assert_allclose(last[row], products[-1].sum(0)[row_of], atol=1e-7, rtol=1e-5)
        np.testing.assert_allclose(head[row], products[0][1, row_of], atol=1e-7, rtol=1e-5)
