"""The hook reads what a model computes with, and nothing but that; an edit takes its place in the graph."""

import sys

import pytest
import torch

from attnfaith.subjects import Edit
from attnfaith.subjects.attention import Hook
from attnfaith.subjects.base import eager
from tests.small_classifiers import classifier, texts


KINDS = (  # position bias, two streams, other axes, sinks, softcap, shared heads, alibi, disentangled, encoder and decoder
    *("bert", "gpt2", "llama", "gemma2", "gpt_oss", "t5", "bart", "mvp", "xlnet", "squeezebert", "bloom", "falcon"),
    *("deberta-v2", "gpt_bigcode", "mpnet", "qwen3_next", "jamba"),
)
EAGER = ("bert", "llama", "gemma2", "gpt_oss", "t5")  # those whose attention is one function of their file


def hooked(model, inputs, edit=None):
    with eager(model), Hook(len(inputs["input_ids"]), edit) as hook:
        logits = model(**inputs).logits
    return logits, hook.maps


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_reading_changes_nothing_and_gives_what_the_model_returns(kind):
    model = classifier(kind)
    inputs = texts(model)
    with eager(model):
        plain = model(**inputs, output_attentions=True)
    logits, maps = hooked(model, inputs)
    assert torch.equal(logits, plain.logits)
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    returned = [weights for name in names for weights in plain.get(name) or () if isinstance(weights, torch.Tensor)]
    assert [layer.number for layer in maps] == list(range(len(maps))) and returned
    if kind in ("qwen3_next", "jamba"):
        assert len(maps) == 1  # the other layer has no softmax
    for layer in maps:
        assert torch.equal(layer.output, layer.weights @ layer.values)
        same = layer.scores if kind == "squeezebert" else layer.weights
        assert any(torch.equal(same, weights) for weights in returned)


def unchanged(number, numbers):
    return numbers


def uniform(number, weights):
    present = (weights > 0).to(weights)
    return present / present.sum(-1, keepdim=True).clamp(min=1)


CHANGES = {  # of weights, and of values
    "nothing": (unchanged, unchanged),
    "uniform": (uniform, unchanged),
    "permuted": (lambda number, weights: weights.flip(-1) if number == 1 else weights, unchanged),
    "without a value": (unchanged, lambda number, values: values * (torch.arange(values.shape[2]) != 3)[:, None]),
}


@pytest.mark.parametrize("kind", EAGER)
@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_an_edit_is_a_change_of_the_models_own_function(kind, change, monkeypatch):
    """The same logits, weights, values and outputs as of a model whose eager function does the same."""
    change_weights, change_values = CHANGES[change]

    class Changed(Edit):
        def weights(self, number, weights):
            return change_weights(number, weights)

        def values(self, number, values):
            return change_values(number, values)

    model = classifier(kind)
    module, inputs, calls = sys.modules[type(model).__module__], texts(model), []
    own = module.eager_attention_forward
    plain, _ = hooked(model, inputs)
    edited, maps = hooked(model, inputs, Changed())

    def function(layer, query, key, value, mask, **more):
        output, weights = own(layer, query, key, value, mask, **more)
        values = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
        if change != "nothing":
            weights, values = change_weights(len(calls), weights), change_values(len(calls), values)
            output = (weights @ values).transpose(1, 2).contiguous()
        calls.append((weights, values, output.transpose(1, 2)))
        return output, weights

    monkeypatch.setattr(module, "eager_attention_forward", function)
    with eager(model):
        torch.testing.assert_close(edited, model(**inputs).logits, rtol=1e-5, atol=1e-6)
    if change == "nothing":
        assert len(calls) == len(maps) > 0
        for layer, call in zip(maps, calls, strict=True):
            assert all(map(torch.equal, (layer.weights, layer.values, layer.output), call))
    else:
        assert float((edited - plain).abs().max()) > 1e-4


COUNT, HEADS, LONG, WIDE = 2, 3, 5, 4
PRODUCTS = {
    "matmul": lambda a, v: a @ v,
    "bmm": lambda a, v: torch.bmm(a.flatten(0, 1), v.flatten(0, 1)).unflatten(0, (COUNT, HEADS)),
    "einsum": lambda a, v: torch.einsum("bhqk,bhkd->bhqd", a, v),
    "einsum, queries first": lambda a, v: torch.einsum("bhij,jbhd->ibhd", a, v.permute(2, 0, 1, 3)).permute(1, 2, 0, 3),
    "heads before instances": lambda a, v: torch.einsum("hbqk,hbkd->bhqd", a.transpose(0, 1), v.transpose(0, 1)),
    "after dropout and a cast": lambda a, v: torch.dropout(a, 0.5, False).double().float().contiguous() @ v,
    "masked heads": lambda a, v: (a * torch.tensor([1.0, 0, 1]).view(1, HEADS, 1, 1)) @ v,
    "one value for all heads": lambda a, v: a @ v[:, :1],
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_product_is_recognised_in_every_form(product):
    torch.manual_seed(0)
    scores, values = torch.randn(COUNT, HEADS, LONG, LONG), torch.randn(COUNT, HEADS, LONG, WIDE)
    expected = PRODUCTS[product](scores.softmax(-1), values)
    with Hook(COUNT) as hook:
        output = PRODUCTS[product](scores.softmax(-1), values)
    (layer,) = hook.maps
    weights = scores.softmax(-1) * (torch.tensor([1.0, 0, 1]).view(1, HEADS, 1, 1) if product == "masked heads" else 1)
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(layer.weights, weights)
    torch.testing.assert_close(layer.values, values[:, :1].expand_as(values) if "one value" in product else values)
    torch.testing.assert_close(layer.output, expected)


def test_a_softmax_without_values_is_no_map():
    """Experts are chosen by a softmax of two dimensions; attention in one piece gives no weights; a sum is no product."""
    x = torch.randn(COUNT, HEADS, LONG, LONG)
    with Hook(COUNT) as hook:
        experts = x[0, 0].softmax(-1) @ x[0, 0]
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
        (x.softmax(-1) * x).sum(-1)
    assert hook.maps == [] and hook.number == 0 and hook.fused == 1 and experts.shape == (LONG, LONG)
