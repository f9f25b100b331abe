"""A model is asked before its attention is believed: what is silently wrong is refused, and the message names the check."""

import sys

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from attnfaith.subjects import SelfAttention, SubjectError, opened, subject_of
from attnfaith.subjects.attention import Hook
from tests.small_classifiers import classifier, texts


def repeated(values, heads):
    return values.repeat_interleave(heads // values.shape[1], 1)


@pytest.fixture
def registered(monkeypatch):
    """A function becomes an attention implementation of transformers, for the time of a test."""
    name = "of_the_test"

    def register(function):
        monkeypatch.setitem(AttentionInterface._global_mapping, name, function)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, eager_mask)
        return name

    return register


def plain_attention(module, query, key, value, mask, scaling=1.0, **more):
    """What is written in many a notebook: queries, keys, values and mask, and nothing else that a model may hand over."""
    heads = query.shape[1]
    scores = query @ repeated(key, heads).transpose(2, 3) * scaling
    weights = (scores if mask is None else scores + mask[..., : key.shape[2]]).softmax(-1)
    return (weights @ repeated(value, heads)).transpose(1, 2).contiguous(), weights


def test_attention_that_ignores_the_position_bias_fails_logits(registered):
    """T5 hands its positions over beside the mask: without them it is another model, and nothing says so."""
    model = classifier("t5")
    model.set_attn_implementation(registered(plain_attention))
    with pytest.raises(
        SubjectError, match=r"T5ForSequenceClassification fails the check 'logits': the hook's differ .* by 0\.\d"
    ):
        SelfAttention(model)


def test_attention_that_is_right_passes(registered):
    model = classifier("bert")
    model.set_attn_implementation(registered(plain_attention))
    assert SelfAttention(model).sites.difference < 1e-6
    assert model.config._attn_implementation == "of_the_test"


def test_a_second_output_that_is_no_attention_fails_returned(registered):
    """flex_attention's second output is the logarithm of each row's sum."""

    def with_sums(module, query, key, value, mask, scaling=1.0, **more):
        output, _ = plain_attention(module, query, key, value, mask, scaling)
        return output, (query @ key.transpose(2, 3) * scaling).logsumexp(-1)

    model = classifier("bert")
    model.set_attn_implementation(registered(with_sums))
    with pytest.raises(SubjectError, match=r"'returned': under 'of_the_test' it returns numbers \(1, 4, 11\) as attention"):
        SelfAttention(model)


def not_used(module, query, key, value, mask, scaling=1.0, **more):
    _, weights = plain_attention(module, query, key, value, mask, scaling)
    return value.mean(2, keepdim=True).expand_as(query).transpose(1, 2).contiguous(), weights


def other_weights(module, query, key, value, mask, scaling=1.0, **more):
    output, weights = plain_attention(module, query, key, value, mask, scaling)
    return output, (2 * weights).softmax(-1)


def too_much(module, query, key, value, mask, scaling=1.0, **more):
    weights = (query @ key.transpose(2, 3) * scaling).softmax(-1)
    return (1.1 * weights @ value).transpose(1, 2).contiguous(), 1.1 * weights


def in_one_piece(module, query, key, value, mask, scaling=1.0, **more):
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return output.transpose(1, 2).contiguous(), None


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (not_used, "'use': logits stay the same when all weights of 'bert.encoder.layer.0.attention.self' are 0"),
        (other_weights, "'returned': the attention that it returns is not the one that weighed its values"),
        (too_much, r"'rows': in layer 0 rows sum to 1\.1 to 1\.1"),
        (in_one_piece, "'layers': it computes attention by scaled_dot_product_attention also under 'eager'"),
    ],
)
def test_a_wrong_function_in_the_models_own_file_is_refused(function, said, monkeypatch):
    model = classifier("bert")
    model.set_attn_implementation("eager")
    monkeypatch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", function)
    with pytest.raises(
        SubjectError, match=f"^the attention of BertForSequenceClassification fails the check {said}.*measured$"
    ):
        SelfAttention(model)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("fnet", "no softmax of it weighs values, so it has no attention"),
        ("yoso", "no softmax of it weighs values"),
        ("longformer", r"maps of \[\(1, 512\), \(512, 1\)\], and none from every token to every token"),
        ("perceiver", "and none from every token to every token"),
        ("funnel", "only 4 of its 12 maps are over all input positions"),
        ("canine", "only 2 of its 4 maps are over all input positions"),
        ("diffllama", "'model.layers.0.self_attn' weighs values more than once"),
        ("lilt", "weighs values more than once"),
        ("t5gemma2", "its decoder has no attention over the encoder alone"),
    ],
)
def test_types_whose_attention_is_another_thing_are_refused(kind, said):
    with pytest.raises(SubjectError, match=f"fails the check 'layers': .*{said}"):
        SelfAttention(classifier(kind))


def in_parts(model):
    model.classifier.to("meta")
    return model


def quantised(model):
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})


class Packed(torch.nn.Module):
    """A linear layer whose weights are whole numbers, as bitsandbytes and quanto have them."""

    def __init__(self, linear: torch.nn.Linear):
        super().__init__()
        self.scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("whole", (linear.weight.detach() / self.scale).round().to(torch.int8))
        self.bias = linear.bias

    def forward(self, states):
        return torch.nn.functional.linear(states, self.whole.to(states.dtype) * self.scale, self.bias)


def test_weights_that_alone_are_quantised_are_measured():
    model = classifier("bert")
    subject, batch = opened(model, texts(model))
    plain = subject.attention(batch)
    for layer in model.bert.encoder.layer:
        for name in ("query", "key", "value"):
            setattr(layer.attention.self, name, Packed(getattr(layer.attention.self, name)))
    model.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    subject, batch = opened(model, texts(model))
    assert float((subject.attention(batch) - plain).abs().max()) < 1 / 127
    assert "weighed vectors" in subject.capabilities


def broken(model):
    with torch.no_grad():
        model.classifier.weight[0, 3] = float("nan")
    return model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_parts, r"lies on cpu, meta: put the whole model on one device, model.to\('cpu'\)"),
        pytest.param(
            quantised,
            "fails the check 'gradients': .* load it without quantisation",
            marks=pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
        ),
        (broken, r"^weight 'classifier.weight' holds NaN or infinite values: the training diverged"),
    ],
)
def test_numbers_that_cannot_be_measured_are_refused(change, said):
    with pytest.raises(SubjectError, match=said) as refusal:
        SelfAttention(change(classifier("bert")))
    assert "\n" not in str(refusal.value)


def test_a_model_that_reads_more_than_texts_fails_reading(monkeypatch):
    model = classifier("bert")
    monkeypatch.setattr(
        model.bert, "forward", lambda *given, **more: (_ for _ in ()).throw(ValueError("pixel_values, please"))
    )
    with pytest.raises(SubjectError, match="'reading': given token ids and a mask it says ValueError: pixel_values, please"):
        SelfAttention(model)


@pytest.mark.parametrize("kind", ["bert", "falcon", "gemma3"])
@pytest.mark.parametrize("own", ["sdpa", "eager"])
def test_the_model_is_left_as_it_was(kind, own):
    """Its implementation of attention, that of its parts, and the mode of each module."""
    model = classifier(kind)
    model.config._attn_implementation = own
    parts = [model.config, *(getattr(model.config, name) for name in model.config.sub_configs)]
    model.train()
    first = next(module for module in model.modules() if isinstance(module, torch.nn.Dropout | torch.nn.Linear))
    first.eval()
    subject = SelfAttention(model)
    given = texts(model)
    with subject.evaluating():
        assert not model.training and model.config._attn_implementation == "eager"
        subject_of(model).predict(subject_batch(subject, given))
    assert model.training and not first.training
    assert [part._attn_implementation for part in parts] == [own] * len(parts)
    model.eval()
    with torch.no_grad(), Hook(2) as hook:
        model(**given)
    assert bool(hook.fused) is (own == "sdpa")


def subject_batch(subject, given):
    from attnfaith.subjects import Batch

    return Batch.of(given, subject)


def test_own_implementation_is_back_after_a_refusal():
    model = classifier("longformer").train()
    own = model.config._attn_implementation
    with pytest.raises(SubjectError):
        SelfAttention(model)
    assert model.config._attn_implementation == own and model.training


def test_how_texts_are_read_together_and_whether_embeddings_are_given_is_found_out():
    for kind, together in (
        ("bert", "padded"),
        ("gpt2", "padded"),
        ("xlnet", "of one length"),
        ("convbert", "of one length"),
    ):
        assert SelfAttention(classifier(kind)).sites.together == together, kind
    without = SelfAttention(classifier("gpt2", pad_token_id=None)).sites
    assert without.together == "one at a time" and "embeddings" not in without.lacks
    assert SelfAttention(classifier("albert")).sites.layers == (0, 1)  # one module, called twice
