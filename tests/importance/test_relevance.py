"""Layer-wise relevance propagation: rules by hand and unit by unit, and that nothing is lost between layers."""

import numpy as np
import pytest
import torch
from torch import nn

from attnfaith.importance.lrp_rules import Rules, tanh
from attnfaith.importance.relevance import Lrp, relevance
from attnfaith.models import encoders
from attnfaith.models.projections import project
from attnfaith.subjects import subject_of
from tests.measuring import run


EVERY_ENCODER = sorted(encoders.ENCODERS)
MODELS = (  # projection, query, readout, hierarchy
    ("softmax", "learned", "affine", "none"),
    ("sparsemax", "text", "tanh", "none"),
    ("softmax", "text", "affine", "none"),
    ("entmax15", "learned", "tanh", "sentence"),
    ("sparsemax", "text", "affine", "word"),
)
TEXTS = (7, 0, [9], 3, [12] * 5)


@pytest.fixture
def a_batch(tiny_model, tiny_rows, tiny_batch):
    """Factory of a model in float64 and a batch that suits it."""

    def make(projection="softmax", query="learned", readout="affine", hierarchy="none", texts=TEXTS, **fields):
        fields |= {"projection": projection, "query": query, "readout": readout, "hierarchy": hierarchy}
        model = tiny_model(**{"dtype": torch.float64, **fields})
        return model, tiny_batch(tiny_rows(texts, pair=query == "text", hierarchy=hierarchy))

    return make


def logits_of(model, batch):
    inputs = {name: values for name, values in batch.items() if name != "instance_id"}
    with torch.no_grad():
        encoded = model.encode(**inputs)
        return model.decode(encoded.hidden, model.attend(*encoded), encoded.query)


def ran(rule, *shape, epsilon, seed=0):
    """Values and slopes going in, values and slopes coming out, and the ledger, of a rule in float64."""
    torch.manual_seed(seed)
    inputs = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    ledger = torch.zeros(shape[0], dtype=torch.float64, requires_grad=True)
    outputs = rule(Rules(epsilon, ledger), inputs)
    top = torch.randn_like(outputs)
    slopes, entries = torch.autograd.grad(outputs, [inputs, ledger], top, allow_unused=True)
    return inputs.detach(), slopes, outputs.detach(), top, torch.zeros_like(ledger) if entries is None else entries


def double(layer, seed=1):
    torch.manual_seed(seed)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer.double()


def share(value, epsilon):
    """What a divisor y + epsilon sign(y) leaves of y."""
    return value / (value + epsilon * (1 if value >= 0 else -1))


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
    "orthogonal lstm": (of_layer(encoders.OrthogonalLSTM(3, 5), in_time(Rules.orthogonal_lstm)), (2, 4, 3)),
    "gru": (of_layer(nn.GRU(3, 5), in_time(Rules.gru)), (2, 4, 3)),
    "tanh": (lambda rules, values: tanh(values), (2, 4, 3)),
}


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("name", [*RULES, *EVERY_ENCODER])
def test_a_rule_conserves(name, epsilon, tiny_model):
    """Relevance of what comes out is relevance of what goes in and of what is entered, for each instance."""
    if name in RULES:
        rule, shape = RULES[name]
    else:
        encoder, shape = tiny_model(encoder=name, dtype=torch.float64).model.encoder, (2, 4, 8)
        rule = lambda rules, values: rules.encoded(encoder, values, MASK)  # noqa: E731
    inputs, slopes, outputs, top, entries = ran(rule, *shape, epsilon=epsilon)
    out, into = (outputs * top).flatten(1).sum(1), (inputs * slopes).flatten(1).sum(1)
    torch.testing.assert_close(into + entries, out, atol=1e-12, rtol=1e-11)
    assert out.abs().min() > 0.01


def test_epsilon_rule_by_hand():
    """y = 2 * 3 - 1 * 4 + 1 = 3: of a relevance of 6 the inputs have 12 and -8, the bias 2; of epsilon 1, 3/4 of it."""
    layer = nn.Linear(2, 1).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0]]))
        layer.bias.fill_(1.0)
    for epsilon, kept in ((0.0, 1.0), (1.0, 0.75)):
        x = torch.tensor([[2.0, -1.0]], dtype=torch.float64, requires_grad=True)
        ledger = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        y = Rules(epsilon, ledger).linear(x, layer)
        slopes, entries = torch.autograd.grad(y, [x, ledger], torch.tensor([[2.0]]).double())
        assert (x * slopes)[0].tolist() == [12 * kept, -8 * kept]
        assert entries.tolist() == [2 * kept + 6 * (1 - kept)]


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def split(parts, total, relevance, epsilon):
    """The epsilon rule: relevance (D,) of sums `total` (D,) to parts (..., D) of them."""
    stable = total + epsilon * np.where(total >= 0, 1.0, -1.0)
    return parts / stable * relevance


@pytest.mark.parametrize("epsilon", [1e-3, 0.5])
def test_lstm_step_by_step(epsilon):
    """Relevance itself, sent back from step to step by its own formulas (Arras et al. 2017), one unit at a time."""
    layer = double(nn.LSTM(3, 2))
    x, slopes, h, top, entries = ran(lambda rules, x: in_time(Rules.lstm)(rules, x, layer), 1, 4, 3, epsilon=epsilon)
    x, slopes, h, top = (values[0].numpy() for values in (x, slopes, h, top))
    wx, wh = layer.weight_ih_l0.detach().numpy(), layer.weight_hh_l0.detach().numpy()
    b = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy()
    state, memory, steps = np.zeros(2), np.zeros(2), []
    for t in range(4):
        i, f, g, o = (wx @ x[t] + wh @ state + b).reshape(4, 2)
        before, seen = state, memory
        memory = sigmoid(f) * seen + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(memory)
        steps.append((before, seen, memory, sigmoid(f) * seen, sigmoid(i) * np.tanh(g), g))
    np.testing.assert_allclose(state, h[-1], atol=1e-12)
    expected = np.zeros((4, 3))
    to_state, to_memory = np.zeros(2), np.zeros(2)
    for t in reversed(range(4)):
        before, _, memory, kept, entered, g = steps[t]
        relevance = to_memory + to_state + h[t] * top[t]
        of_candidate = split(entered, memory, relevance, epsilon)
        to_memory = split(kept, memory, relevance, epsilon)
        weights, recurrent = wx.reshape(4, 2, 3)[2], wh.reshape(4, 2, 2)[2]
        expected[t] = split((weights * x[t]).T, g, of_candidate, epsilon).sum(1)
        to_state = split((recurrent * before).T, g, of_candidate, epsilon).sum(1)
    np.testing.assert_allclose(x * slopes, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(entries[0], (h * top).sum() - expected.sum(), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5])
def test_gru_step_by_step(epsilon):
    """The same for a GRU, h = (1 - z) tanh(y) + z h' with y = W x + b + r (V h' + d)."""
    layer = double(nn.GRU(3, 2))
    x, slopes, h, top, entries = ran(lambda rules, x: in_time(Rules.gru)(rules, x, layer), 1, 4, 3, epsilon=epsilon)
    x, slopes, h, top = (values[0].numpy() for values in (x, slopes, h, top))
    wx, wh, b, d = (values.detach().numpy().reshape(3, 2, -1) for values in layer.parameters())
    state, steps = np.zeros(2), []
    for t in range(4):
        read, recur = wx @ x[t] + b[:, :, 0], wh @ state + d[:, :, 0]
        r, z = sigmoid(read[0] + recur[0]), sigmoid(read[1] + recur[1])
        y = read[2] + r * recur[2]
        steps.append((state, r, y, (1 - z) * np.tanh(y), z * state))
        state = steps[-1][3] + steps[-1][4]
    np.testing.assert_allclose(state, h[-1], atol=1e-12)
    expected, to_state = np.zeros((4, 3)), np.zeros(2)
    for t in reversed(range(4)):
        before, r, y, entered, kept = steps[t]
        relevance = to_state + h[t] * top[t]
        of_candidate = split(entered, h[t], relevance, epsilon)
        expected[t] = split((wx[2] * x[t]).T, y, of_candidate, epsilon).sum(1)
        to_state = split(kept, h[t], relevance, epsilon)
        to_state = to_state + split((wh[2] * before).T * r, y, of_candidate, epsilon).sum(1)
    np.testing.assert_allclose(x * slopes, expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(entries[0], (h * top).sum() - expected.sum(), rtol=1e-9)


@pytest.mark.parametrize("hierarchy", ["none", "sentence"])
def test_transformer_is_gradient_times_input_with_gates_held_fixed(hierarchy, a_batch, monkeypatch):
    """Ali et al.: without epsilon, two calls of detach in the model's own forward pass give the same relevance."""
    model, batch = a_batch(hierarchy=hierarchy, encoder="transformer")
    parts = relevance(model, batch, epsilon=0)

    def fixed(layer, values):
        scale = (values.var(-1, keepdim=True, correction=0) + layer.eps).sqrt().detach()
        return (values - values.mean(-1, keepdim=True)) / scale * layer.weight + layer.bias

    weigh = encoders.SelfAttention.weights
    monkeypatch.setattr(nn.LayerNorm, "forward", fixed)
    monkeypatch.setattr(encoders.SelfAttention, "weights", lambda *args: weigh(*args).detach())
    monkeypatch.setattr("attnfaith.models.hierarchy.project", lambda *args, own=project: own(*args).detach())
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
    items = model.items(batch["input_ids"], batch["attention_mask"]) if hierarchy == "sentence" else None
    encoded = model.encode(inputs_embeds=embedded, attention_mask=batch["attention_mask"], items=items)
    logits = model.decode(encoded.hidden, model.attend(*encoded).detach(), encoded.query)
    slopes = torch.autograd.grad(logits.amax(1).sum(), [embedded, encoded.hidden])
    tokens, hidden = ((v.detach() * s).sum(-1) for v, s in zip([embedded, encoded.hidden], slopes, strict=True))
    torch.testing.assert_close(parts.hidden, hidden, atol=1e-12, rtol=1e-11)
    if hierarchy == "none":
        torch.testing.assert_close(parts.tokens, tokens.masked_fill(~parts.mask, 0), atol=1e-12, rtol=1e-11)
    torch.testing.assert_close(parts.tokens.sum(1) + parts.markers, tokens.sum(1), atol=1e-12, rtol=1e-11)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize(("projection", "query", "readout", "hierarchy"), MODELS)
@pytest.mark.parametrize("encoder", EVERY_ENCODER)
def test_nothing_is_lost(encoder, projection, query, readout, hierarchy, epsilon, a_batch):
    model, batch = a_batch(projection, query, readout, hierarchy, encoder=encoder, num_labels=3)
    parts = relevance(model, batch, epsilon=epsilon)
    logits = logits_of(model, batch)
    torch.testing.assert_close(parts.explained, logits.amax(1), atol=1e-12, rtol=0)
    torch.testing.assert_close(parts.unaccounted, torch.zeros(len(logits)).double(), atol=1e-12, rtol=0)
    assert parts.tokens.sum(1).abs().max() > 1e-6
    assert not parts.tokens[~parts.mask].any() and not parts.hidden[~parts.mask].any()


def test_outputs_that_are_no_logit(a_batch):
    """Log-odds of two classes are a contrast; a probability starts with p (1 - p) of it and says what that leaves out."""
    model, batch = a_batch(encoder="bilstm")
    logits = logits_of(model, batch)
    contrast = relevance(model, batch, target={"of": 1, "against": 0})
    odds = relevance(model, batch, target=1, output="log_odds")
    torch.testing.assert_close(odds.tokens, contrast.tokens)
    torch.testing.assert_close(odds.unaccounted, torch.zeros(len(logits)).double(), atol=1e-12, rtol=0)
    probability = relevance(model, batch, target=1, output="probability")
    p = logits.softmax(1)[:, 1]
    slope = p * (1 - p)
    torch.testing.assert_close(probability.tokens, slope.unsqueeze(1) * contrast.tokens)
    torch.testing.assert_close(probability.output, p - slope * (logits[:, 1] - logits[:, 0]))
    torch.testing.assert_close(probability.unaccounted, probability.output)


def test_models_without_a_rule_are_refused(a_batch):
    class Other(encoders.Average):
        pass

    model, batch = a_batch(encoder="average")
    model.model.encoder.__class__ = Other
    for ask in (lambda: run(Lrp, model, batch), lambda: Lrp().check(subject_of(model), None)):
        with pytest.raises(ValueError, match="no rule for Other"):
            ask()
