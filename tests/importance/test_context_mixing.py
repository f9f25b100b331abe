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

from attnfaith.subjects import Batch, Edit, SelfAttention
from tests import tolerances
from tests.measuring import run


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
