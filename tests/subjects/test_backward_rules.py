"""Gradients by rules: each rule against its formula, refusals, and that the model is left as it was."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from attnfaith.subjects import Batch, SelfAttention, SubjectError
from attnfaith.subjects.attention import Hook
from attnfaith.subjects.backward_rules import Rules, halved
from tests.small_classifiers import classifier, texts


KINDS = ("bert", "gpt2", "t5", "bart", "deberta-v2", "xlnet", "albert", "gemma2", "big_bird", "esm")


def slope_under(function, values, rules="frozen"):
    """d sum(function(x) * w) / dx under the rules, the result and w."""
    leaf = values.clone().requires_grad_()
    with Rules(nn.Identity(), rules):
        result = function(leaf)
    weights = torch.arange(1.0, result.numel() + 1).view_as(result)
    return torch.autograd.grad((result * weights).sum(), leaf)[0], result.detach(), weights


def hooks_of(model):
    """All hooks of a model; transformers sets some of its own when it first returns attention."""
    return [(list(module._forward_pre_hooks), list(module._forward_hooks)) for module in model.modules()]


def gelu_new(x):
    """A function that is written out, as in many models: x (1 + tanh(...)) / 2."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x.detach() ** 3)))


@pytest.mark.parametrize("rules", ["frozen", "halved"])
@pytest.mark.parametrize(
    "function", [functional.gelu, functional.silu, torch.relu, torch.tanh, functional.elu, torch.erf, gelu_new]
)
def test_an_activation_has_the_slope_of_its_value(function, rules):
    values = torch.tensor([-2.0, -0.3, 0.7, 3.0, 0.0])
    slope, result, weights = slope_under(function, values, rules)
    torch.testing.assert_close(result, function(values))
    torch.testing.assert_close(slope[:4], (weights * function(values) / values)[:4])
    if function is not gelu_new:
        at_zero = torch.zeros(1, requires_grad=True)
        torch.testing.assert_close(slope[4:], weights[4:] * torch.autograd.grad(function(at_zero).sum(), at_zero)[0])


def test_a_divisor_is_held_and_a_mean_is_not():
    values, size = torch.randn(3, 8), 8
    norm = nn.LayerNorm(size)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    slope, result, weights = slope_under(norm, values)
    torch.testing.assert_close(result, norm(values).detach())
    spread = (values.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    centring = torch.eye(size) - 1 / size
    torch.testing.assert_close(slope, ((weights * norm.weight.detach()) / spread) @ centring)

    def t5(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    for rms in (t5, lambda x: functional.rms_norm(x, (size,), eps=1e-6)):
        slope, result, weights = slope_under(rms, values)
        torch.testing.assert_close(slope, weights / (values.square().mean(-1, keepdim=True) + 1e-6).sqrt())
        torch.testing.assert_close(result, t5(values))


def test_a_softmax_is_held_or_free_and_a_gate_held_or_halved():
    """Held, all of a gated product goes to what the gate lets through; halved, half of it to each factor."""
    values = torch.randn(2, 5)
    frozen, _, _ = slope_under(lambda x: functional.softmax(x, -1) @ torch.ones(5, 1) + x.sum(), values)
    torch.testing.assert_close(frozen, torch.full_like(values, 3.0))  # of x alone
    free, _, weights = slope_under(lambda x: x.softmax(-1), values, "halved")
    share = values.softmax(-1)
    torch.testing.assert_close(free, share * (weights - (share * weights).sum(-1, keepdim=True)))

    def gated(x):
        return functional.silu(x) * (x + 1)

    slope, _, weights = slope_under(gated, values)
    torch.testing.assert_close(slope, weights * functional.silu(values))
    slope, _, weights = slope_under(gated, values, "halved")
    share = functional.silu(values) / values
    torch.testing.assert_close(slope, weights * (share * (values + 1) + functional.silu(values)) / 2)


def test_products_of_attention_by_the_uniform_rule():
    """Relevance of A V and of Q K as the einsum of AttnLRP has it: A_ji V_ip R_jp / (2 O_jp)."""

    class Head(nn.Module):
        def forward(self, query, key, value):
            return torch.matmul(torch.matmul(query, key.transpose(2, 3)).softmax(-1), value)

    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 4, 3, dtype=torch.float64).requires_grad_() for _ in range(3))
    head = Head()
    with Rules(head, "halved"), Hook(1) as hook:
        output = head(query, key, value)
    relevance = torch.randn_like(output)
    slopes = torch.autograd.grad((output * relevance / output.detach()).sum(), [query, key, value])
    shares = [values.detach() * slope for values, slope in zip((query, key, value), slopes, strict=True)]
    weights, half = hook.maps[0].weights.detach(), relevance / (2 * output.detach())
    torch.testing.assert_close(shares[2], torch.einsum("bhqk,bhkd,bhqd->bhkd", weights, value.detach(), half))
    of_weights = torch.einsum("bhqk,bhkd,bhqd->bhqk", weights, value.detach(), half)
    scores = torch.matmul(query, key.transpose(2, 3)).detach()
    part = scores * (of_weights - weights * of_weights.sum(-1, keepdim=True)) / (2 * scores)
    torch.testing.assert_close(shares[0], torch.einsum("bhqd,bhkd,bhqk->bhqd", query.detach(), key.detach(), part))
    torch.testing.assert_close(shares[1], torch.einsum("bhqd,bhkd,bhqk->bhkd", query.detach(), key.detach(), part))
    torch.testing.assert_close(halved(value), value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_stay_and_parts_are_of_the_text(kind):
    """Of every kind of model: values are the prediction, places without tokens have no part, and texts are on their own."""
    model = classifier(kind)
    subject = SelfAttention(model)
    batch = Batch.of(texts(model), subject)
    weights, hooks = {name: value.clone() for name, value in model.state_dict().items()}, hooks_of(model)
    padding = batch["attention_mask"].bool().logical_not().unsqueeze(1).expand(-1, 3, -1)
    for rules in ("frozen", "halved"):
        for inputs in ("layer", "table") if subject.sites.blocks else ("table",):
            subject.check_rules(inputs)
            values, shares = subject.relevance(batch, lambda logits, rows: logits, rules, inputs)
            torch.testing.assert_close(values, subject.predict(batch).detach().double(), atol=1e-5, rtol=1e-5)
            assert shares.shape == padding.shape and not shares[padding].any()
            alone = subject.relevance(batch.alone(1), lambda logits, rows: logits, rules, inputs)[1][0]
            size = float(alone.abs().max())
            torch.testing.assert_close(alone, shares[1, :, : alone.shape[1]], atol=1e-4 * size, rtol=1e-3)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(values.requires_grad and values.grad is None for values in model.parameters())
    assert hooks_of(model) == hooks


def test_refusals():
    """A function without a rule, and a first layer that reads something else than states."""

    class Bump(nn.Module):
        def forward(self, x):
            return x * torch.exp(-x * x)

    model = classifier("bert")
    model.bert.encoder.layer[1].intermediate.intermediate_act_fn = Bump()
    subject = SelfAttention(model)
    hooks = hooks_of(model)
    with pytest.raises(SubjectError, match="no rule"):
        subject.check_rules()
    assert hooks_of(model) == hooks
    xlm = SelfAttention(classifier("xlm"))
    xlm.check_rules("table")
    with pytest.raises(SubjectError, match="take inputs='table'"):
        xlm.check_rules("layer")
