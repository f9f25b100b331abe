"""Measures of context mixing on tiny stacks of layers: by the authors' formulas written out, and by a second route."""

import functools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from attnfaith.subjects import Batch, Edit
from tests import tolerances
from tests.measuring import run
from tests.small_classifiers import biased


READS = {"bert": 0, "gpt2": -1, "albert": 0, "gptj": -1, "xlm": 0}
"""The row that the logits are read from. An ALBERT has one module for all layers; parts of a GPT-J's layer are abreast."""
TEXT = [1, 7, 9, 12, 30, 8, 2]


@functools.cache
def classifier(kind, reduction="last"):
    """A subject in float64 with biases, which returns its maps."""
    return biased(kind, attn_implementation="eager", initializer_range=0.3)[1].shown_by(reduction)


def batch_of(subject):
    ids = torch.tensor([TEXT])
    return Batch.of({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, subject)


def scores_of(name, kind):
    ((scores,),) = run(name, classifier(kind), batch_of(classifier(kind))).values()
    return scores


def layers_of(subject):
    return [subject.model.get_submodule(name) for name in subject.sites.blocks]


def at_tokens(kind, chained):
    """The row of the logits in a product of matrices, at the tokens that are no markers."""
    row = functools.reduce(lambda below, matrix: matrix @ below, chained)[READS[kind]]
    return (row / row.sum())[[number not in (0, 1, 2) for number in TEXT]].numpy()


class Without(Edit):
    def __init__(self, layer, place):
        self.layer, self.place = layer, place

    def values(self, number, values):
        if number != self.layer:
            return values
        values = values.clone()
        values[:, :, self.place] = 0
        return values


def results_of(subject, edit=None):
    """The result of each layer in a full forward pass."""
    states = []
    handles = [
        layer.register_forward_hook(lambda _, args, output: states.append(output if torch.is_tensor(output) else output[0]))
        for layer in dict.fromkeys(layers_of(subject))
    ]
    with torch.no_grad():
        subject.read(batch_of(subject), edit)
    for handle in handles:
        handle.remove()
    return [result[0] for result in states]


@pytest.mark.parametrize("kind", ["bert", "albert", "gptj"])
def test_value_zeroing_by_whole_passes(kind):
    """The authors' loop: one whole forward pass for each layer and place, cosines as they are defined."""
    subject, chained = classifier(kind), []
    for layer, own in enumerate(results_of(subject)):
        results = (results_of(subject, Without(layer, place))[layer] for place in range(len(TEXT)))
        distances = torch.stack([1 - F.cosine_similarity(own, result, dim=-1) for result in results], 1)
        chained.append(distances / distances.sum(1, keepdim=True))
    scores = scores_of("value_zeroing", kind)
    assert scores.max() > 2 * scores.min()
    np.testing.assert_allclose(scores, at_tokens(kind, chained), rtol=1e-6)


def bert_layer(layer, state, weights):
    """The authors' vectors of a BERT's layer, term by term: T_i(j) (L,L,E), LN1's output y (L,E), GlobEnc's vectors."""
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


@pytest.mark.parametrize(("kind", "written"), [("bert", bert_layer), ("gpt2", gpt2_layer)])
@torch.no_grad()
def test_globenc_and_alti_by_hand(kind, written):
    """From the states and maps that the model itself returns."""
    subject = classifier(kind)
    output = subject.model(input_ids=torch.tensor([TEXT]), output_hidden_states=True, output_attentions=True)
    lengths, nearness, negative = [], [], False
    for layer, state, weights in zip(layers_of(subject), output.hidden_states[:-1], output.attentions, strict=True):
        parts, whole, final = written(layer, state[0], weights[0])
        lengths.append(final.norm(dim=-1))
        distance = whole.abs().sum(-1).unsqueeze(1) - (whole.unsqueeze(1) - parts).abs().sum(-1)
        negative |= bool((distance < 0).any())
        nearness.append(distance.clamp(min=0) / distance.clamp(min=0).sum(1, keepdim=True))
    assert negative or kind == "bert"  # so that the bound at 0 is tried
    for name, chained in (("globenc", lengths), ("alti", nearness)):
        tolerances.close(scores_of(name, kind), at_tokens(kind, chained), dtype=torch.float32)


@pytest.mark.parametrize("kind", ["bert", "xlm", "gpt2"])
@torch.no_grad()
def test_rollout_by_hand(kind):
    output = classifier(kind).model(input_ids=torch.tensor([TEXT]), output_attentions=True)
    maps, length = [weights[0].mean(0) for weights in output.attentions], len(TEXT)
    chained = [(weights + torch.eye(length)) / (weights + torch.eye(length)).sum(1, keepdim=True) for weights in maps]
    scores = scores_of("rollout", kind)
    np.testing.assert_allclose(scores, at_tokens(kind, chained), rtol=1e-6)
    reduced = classifier(kind, "rollout").attention(batch_of(classifier(kind, "rollout")))[0]
    np.testing.assert_allclose(reduced[1:-1] / reduced.sum(), scores / scores.sum(), rtol=1e-6)
