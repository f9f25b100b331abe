"""Measures of context mixing on tiny stacks of layers: by the authors' formulas written out, by a second route, and where
they are refused.
"""

import functools

import networkx
import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F

from attnfaith.importance.attention_based import AttentionNorm
from attnfaith.importance.context_mixing import Alti, Flow, GlobEnc, Rollout
from attnfaith.importance.perturbation import ValueZeroing
from attnfaith.subjects import Batch, Edit, SelfAttention
from attnfaith.subjects import layers as subject_layers
from attnfaith.subjects.attention import Hook
from attnfaith.subjects.layers import LayerParts
from tests import tolerances
from tests.measuring import run


MEASURES = {measure.name: measure for measure in (Alti, AttentionNorm, Flow, GlobEnc, Rollout, ValueZeroing)}
SIZES = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
LONG = {
    **SIZES,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
DECODER = {**LONG, "num_key_value_heads": 2, "head_dim": 8}
SHORT = {**SIZES, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
BART = {
    **SIZES,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "decoder_start_token_id": 2,
}
KINDS = {
    "bert": ("Bert", LONG),
    "gpt2": ("GPT2", SHORT),
    "modernbert": ("ModernBert", {**LONG, "global_attn_every_n_layers": 1}),
    "albert": ("Albert", {**LONG, "embedding_size": 32}),  # one module for both layers
    "llama": ("Llama", DECODER),
    "gemma2": ("Gemma2", DECODER),  # norms of what is added
    "gptj": ("GPTJ", {**SHORT, "rotary_dim": 4}),  # parts of a layer abreast
    "openai-gpt": ("OpenAIGPT", {**SHORT, "summary_type": "last"}),
    "opt": ("OPT", {**LONG, "ffn_dim": 24, "word_embed_proj_dim": 32}),
    "bart": ("Bart", BART),
    "xlm": ("XLM", {**SIZES, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 32}),
    "xlnet": ("XLNet", {**SIZES, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 24}),
}
TEXTS = [[1, 7, 9, 12, 30, 8, 2], [1, 5, 2], [1, 22, 22, 9, 35, 2]]


@functools.cache
def classifier(kind, reduction="last"):
    """A subject in float64 whose attention and norms are far from flat; biases too."""
    name, sizes = KINDS[kind]
    torch.default_generator.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes, num_labels=3)
    model = getattr(transformers, f"{name}ForSequenceClassification")(config).double().eval()
    model.set_attn_implementation("eager")  # for what the tests ask of the model itself
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return SelfAttention(model, reduction=reduction)


def batch_of(subject, texts=TEXTS, padding=0):
    width = max(map(len, texts)) + padding
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    return Batch.of({"input_ids": ids, "attention_mask": mask}, subject)


def measured(name, subject, batch):
    (values,) = run(name, subject, batch).values()
    return values


def layers_of(subject):
    return [subject.model.get_submodule(name) for name in subject.sites.blocks]


def at_tokens(text, chained, top):
    """The row `top` of a product of matrices, at the tokens that are no markers."""
    row = functools.reduce(lambda below, matrix: matrix @ below, chained)[top]
    return (row / row.sum())[[number not in (0, 1, 2) for number in text]].numpy()


class Without(Edit):
    def __init__(self, layer, place):
        self.layer, self.place = layer, place

    def values(self, number, values):
        if number != self.layer:
            return values
        values = values.clone()
        values[:, :, self.place] = 0
        return values


def results(subject, text, edit=None):
    """What each layer gives in a full forward pass."""
    seen = []
    handles = [
        layer.register_forward_hook(lambda _, args, output: seen.append(output if torch.is_tensor(output) else output[0]))
        for layer in dict.fromkeys(layers_of(subject))
    ]
    with torch.no_grad():
        subject.read(batch_of(subject, [text]), edit)
    for handle in handles:
        handle.remove()
    return [states[0] for states in seen]


@pytest.mark.parametrize(("kind", "top"), [("bert", 0), ("albert", 0), ("gpt2", -1), ("gptj", -1)])
def test_value_zeroing_by_whole_passes(kind, top):
    """The authors' loop: one whole forward pass for each layer and place, cosines as they are defined."""
    subject, text = classifier(kind), TEXTS[0]
    plain, chained = results(subject, text), []
    for layer, own in enumerate(plain):
        columns = [
            1 - F.cosine_similarity(own, results(subject, text, Without(layer, place))[layer], dim=-1)
            for place in range(len(text))
        ]
        distances = torch.stack(columns, 1)
        chained.append(distances / distances.sum(1, keepdim=True))
    (scores,) = measured("value_zeroing", subject, batch_of(subject, [text]))
    expected = at_tokens(text, chained, top)
    assert scores.max() > 2 * scores.min()
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def bert_layer(layer, state, weights):
    """Of a BERT's layer the authors' vectors, term by term: T_i(j) (L,L,E), LN1's output y (L,E), GlobEnc's vectors."""
    attention, heads, size = layer.attention, 4, 8
    values = state @ attention.self.value.weight.T + attention.self.value.bias
    projection, first, second = attention.output.dense, attention.output.LayerNorm, layer.output.LayerNorm
    count = len(state)
    mixed = torch.zeros(count, count, 32, dtype=state.dtype)
    for i in range(count):
        for j in range(count):
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                mixed[i, j] += weights[head, i, j] * (projection.weight[:, part] @ values[j, part])
        mixed[i, i] += state[i]
    before = mixed.sum(1) + projection.bias
    y = first(before)
    to = first.weight * (mixed - mixed.mean(-1, keepdim=True)) / spread(before, first.eps)
    rest = layer.output.dense(layer.intermediate(y))
    final = second.weight * (to - to.mean(-1, keepdim=True)) / spread(y + rest, second.eps)
    return to, y, final


def spread(states, epsilon):
    return (states.var(-1, unbiased=False, keepdim=True) + epsilon).sqrt().unsqueeze(1)


def gpt2_layer(layer, state, weights):
    """The same of a GPT-2, whose norms stand before: residual stream, and nothing on the way."""
    count = len(state)
    values = layer.attn.c_attn(layer.ln_1(state.unsqueeze(0)))[0].split(32, -1)[2]
    mixed = torch.zeros(count, count, 32, dtype=state.dtype)
    for i in range(count):
        for j in range(count):
            joined = torch.cat([weights[head, i, j] * values[j, head * 8 : head * 8 + 8] for head in range(4)])
            mixed[i, j] = joined @ layer.attn.c_proj.weight
        mixed[i, i] += state[i]
    return mixed, mixed.sum(1) + layer.attn.c_proj.bias, mixed


def written_out(subject, text):
    """Of each layer what the functions above say, from the states and maps that the model itself returns."""
    ids = torch.tensor([text])
    output = subject.model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    layer = bert_layer if "Bert" in type(subject.model).__name__ else gpt2_layer
    states = output.hidden_states[:-1]
    return [
        layer(module, state[0], weights[0])
        for module, state, weights in zip(layers_of(subject), states, output.attentions, strict=True)
    ]


@pytest.mark.parametrize(("kind", "top"), [("bert", 0), ("gpt2", -1)])
@torch.no_grad()
def test_globenc_and_alti_by_hand(kind, top):
    subject, text = classifier(kind), TEXTS[0]
    lengths, nearness = [], []
    for parts, whole, final in written_out(subject, text):
        lengths.append(final.norm(dim=-1))
        distance = whole.abs().sum(-1).unsqueeze(1) - (whole.unsqueeze(1) - parts).abs().sum(-1)
        nearness.append(distance.clamp(min=0))
        assert (distance < 0).any() or kind == "bert"  # so that the bound at 0 is tried
        nearness[-1] /= nearness[-1].sum(1, keepdim=True)
    for name, chained in (("globenc", lengths), ("alti", nearness)):
        (scores,) = measured(name, subject, batch_of(subject, [text]))
        tolerances.close(scores, at_tokens(text, chained, top), dtype=torch.float32)


class Held(Edit):
    """Weights as they are, values times a scale of their place; or an output that nothing flows through."""

    def __init__(self, scales):
        self.scales = scales

    def weights(self, number, weights):
        return weights.detach()

    def values(self, number, values):
        return values.detach() * self.scales[None, None, :, None]


class Dead(Edit):
    def output(self, number, output):
        return output.detach()


def frozen(norm, args, output):
    """A norm's output with its spread held."""
    ((states,), epsilon) = args, getattr(norm, "eps", None) or norm.variance_epsilon
    if isinstance(norm, torch.nn.LayerNorm):
        scale = (states.var(-1, unbiased=False, keepdim=True) + epsilon).sqrt().detach()
        return norm.weight * (states - states.mean(-1, keepdim=True)) / scale + (0 if norm.bias is None else norm.bias)
    scale = (states.square().mean(-1, keepdim=True) + epsilon).sqrt().detach()
    return (norm.weight + ("Gemma" in type(norm).__name__)) * states / scale


FEED_FORWARD = {
    "bert": "output.dense",
    "albert": "albert_layers.0.ffn_output",
    "gpt2": "mlp.c_proj",
    "modernbert": "mlp.Wo",
    "llama": "mlp.down_proj",
    "gemma2": "post_feedforward_layernorm",
    "gptj": "mlp.fc_out",
    "openai-gpt": "mlp.c_proj",
    "opt": "fc2",
}


def calls_of(subject, text):
    """What each layer is called with, first layer first, without a cache."""
    calls = []

    def called(module, args, kwargs):
        args = [None if isinstance(value, transformers.Cache) else value for value in args]
        kwargs = {name: None if isinstance(value, transformers.Cache) else value for name, value in kwargs.items()}
        calls.append((module, args, kwargs))

    handles = [layer.register_forward_pre_hook(called, with_kwargs=True) for layer in dict.fromkeys(layers_of(subject))]
    with torch.no_grad():
        subject.model(input_ids=torch.tensor([text]))
    for handle in handles:
        handle.remove()
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEED_FORWARD)
def test_parts_are_slopes_of_a_frozen_layer(kind):
    """With weights, spreads and the feed-forward part held a layer is linear: a token's part is the slope by its scale."""
    subject, text = classifier(kind), TEXTS[0]
    layers, _ = subject.layers(batch_of(subject, [text]))
    ones, rows = torch.ones(len(text), dtype=torch.float64), torch.arange(len(text))
    for layer, (module, args, kwargs) in zip(layers, calls_of(subject, text), strict=True):

        def result(scales, edit, module=module, args=args, kwargs=kwargs):
            own = args[0] if args else kwargs["hidden_states"]
            state = own * scales.unsqueeze(-1)
            with Hook(1, edit):
                output = module(state, *args[1:], **kwargs) if args else module(**{**kwargs, "hidden_states": state})
            return output[0] if torch.is_tensor(output) else output[0][0]

        held = module.get_submodule(FEED_FORWARD[kind])
        handles = [held.register_forward_hook(lambda module, args, output: output.detach())]
        norms = [norm for norm in module.modules() if subject_layers.is_norm(norm) and norm is not held]
        handles += [norm.register_forward_hook(frozen) for norm in norms]
        of_values = torch.autograd.functional.jacobian(lambda scales: result(ones, Held(scales)), ones)
        of_state = torch.autograd.functional.jacobian(lambda scales: result(scales, Dead()), ones)
        for handle in handles:
            handle.remove()
        parts = LayerParts(layer)
        expected = (of_values + of_state).transpose(1, 2)
        assert expected.abs().max() > 0.1
        handed = parts.handed_on(parts.parts(rows), rows)
        np.testing.assert_allclose(handed, expected, atol=1e-6 * float(expected.abs().max()))


def maps_of(subject, text):
    output = subject.model(input_ids=torch.tensor([text]), output_attentions=True)
    return [weights[0].mean(0) for weights in output.attentions]


@pytest.mark.parametrize(("kind", "top"), [("bert", 0), ("xlm", 0), ("gpt2", -1)])
@torch.no_grad()
def test_rollout_by_hand(kind, top):
    subject, text = classifier(kind), TEXTS[0]
    chained = [
        (weights + torch.eye(7)) / (weights + torch.eye(7)).sum(1, keepdim=True) for weights in maps_of(subject, text)
    ]
    (scores,) = measured("rollout", subject, batch_of(subject, [text]))
    np.testing.assert_allclose(scores, at_tokens(text, chained, top), rtol=1e-6)
    shown = classifier(kind, "rollout").attention(batch_of(classifier(kind, "rollout"), [text]))[0]
    np.testing.assert_allclose(shown[1:-1] / shown.sum(), scores / scores.sum(), rtol=1e-6)


@pytest.mark.parametrize(("kind", "top"), [("bert", 0), ("gpt2", 6)])
@torch.no_grad()
def test_flow_by_networkx(kind, top):
    subject, text = classifier(kind), TEXTS[0]
    graph = networkx.DiGraph()
    for layer, weights in enumerate(maps_of(subject, text)):
        for i in range(7):
            for j in range(7):
                capacity = (float(weights[i, j]) + (i == j)) / 2
                graph.add_edge((layer + 1, i), (layer, j), capacity=capacity)
    flows = np.array([networkx.maximum_flow_value(graph, (2, top), (0, place)) for place in range(7)])
    (scores,) = measured("flow", subject, batch_of(subject, [text]))
    np.testing.assert_allclose(scores, (flows / flows.sum())[1:-1], rtol=1e-5)


def test_attention_norm_is_the_mean_of_rows_that_matter(monkeypatch):
    """Of a model that reads the mean of all states the mean of all rows, however many are made at once."""
    subject = classifier("modernbert")
    monkeypatch.setattr(subject.config, "classifier_pooling", "mean")
    text = batch_of(subject, TEXTS[:1])
    layers, matter = subject.layers(text)
    assert matter.all()
    vectors = subject_layers.summands(layers[-1], subject_layers.projected(layers[-1]), torch.arange(7))
    (scores,) = measured("attention_norm", subject, text)
    np.testing.assert_allclose(scores, vectors.norm(dim=-1).mean(0)[1:-1].detach(), rtol=1e-6)
    monkeypatch.setattr(subject_layers, "NUMBERS_AT_ONCE", 500)
    for name in ("attention_norm", "globenc", "alti"):
        (few,) = measured(name, subject, text)
        monkeypatch.setattr(subject_layers, "NUMBERS_AT_ONCE", 2**20)
        (all_at_once,) = measured(name, subject, text)
        monkeypatch.setattr(subject_layers, "NUMBERS_AT_ONCE", 500)
        np.testing.assert_allclose(few, all_at_once, rtol=1e-6)


REFUSED = {
    "bart": (
        {"alti", "flow", "globenc", "rollout", "value_zeroing"},
        "of this one attention is a decoder's over an encoder",
    ),
    "xlm": ({"alti", "globenc", "value_zeroing"}, "of this one no list of modules is such a chain"),
    "xlnet": ({"attention_norm", "alti", "globenc", "value_zeroing"}, "of this one (no list|what follows its attention is)"),
}


def test_a_layer_made_in_another_way_is_refused(monkeypatch):
    """A residual connection that is scaled, a projection of something else, and a norm that is none are seen."""
    model = classifier("bert").model
    layer, own = model.bert.encoder.layer[1], type(model.bert.encoder.layer[1].attention.output).forward

    def scaled(self, hidden_states, input_tensor):
        return own(self, hidden_states, 0.9 * input_tensor)

    with monkeypatch.context() as patched:
        patched.setattr(type(layer.attention.output), "forward", scaled)
        subject = SelfAttention(model)
        assert subject.lacks["layer parts"].startswith("a layer's result is no plain sum of its state")
        assert "weighed vectors" in subject.capabilities and "layer states" in subject.capabilities
    with monkeypatch.context() as patched:
        patched.setattr(layer.attention.output.dense, "forward", lambda states: 0.9 * states)
        handle = layer.attention.output.dense.register_forward_pre_hook(lambda module, args: (0.5 * args[0],))
        subject = SelfAttention(model)
        handle.remove()
        assert subject.lacks["weighed vectors"].startswith("what follows its attention is no linear module")
    with monkeypatch.context() as patched:
        patched.setattr(layer.output.LayerNorm, "forward", torch.tanh)
        assert SelfAttention(model).lacks["layer parts"] == "its LayerNorm is no norm whose scale can be held"
    assert "layer parts" in SelfAttention(model).capabilities
