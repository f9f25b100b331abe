"""A model is checked before its attention is believed: a wrong one is refused, and the message names the check."""

import copy
import sys

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

import attnfaith
from attnfaith.subjects import SelfAttention, SubjectError, opened, subject_of
from tests.golden import subjects
from tests.small_classifiers import classifier, texts
from tests.small_translators import translator


def plain_attention(module, query, key, value, mask, scaling=1.0, **more):
    """The attention of many a notebook: queries, keys, values and mask, and nothing else that a model may hand over."""
    key, value = (values.repeat_interleave(query.shape[1] // values.shape[1], 1) for values in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    weights = (scores if mask is None else scores + mask[..., : key.shape[2]]).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def test_registered_attention_passes_where_it_is_right_and_stays(monkeypatch):
    """T5 hands its positions over beside the mask, which such a function does not read."""
    monkeypatch.setitem(AttentionInterface._global_mapping, "registered", plain_attention)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "registered", eager_mask)
    for kind in ("bert", "t5"):
        model = classifier(kind)
        model.set_attn_implementation("registered")
        if kind == "bert":
            assert SelfAttention(model).sites.difference < 1e-6
        else:
            with pytest.raises(SubjectError, match="fails the check 'logits'"):
                SelfAttention(model)
        assert model.config._attn_implementation == "registered"


def not_used(module, query, key, value, mask, scaling=1.0, **more):
    _, weights = plain_attention(module, query, key, value, mask, scaling)
    return value.mean(2, keepdim=True).expand_as(query).transpose(1, 2).contiguous(), weights


def too_much(module, query, key, value, mask, scaling=1.0, **more):
    weights = (query @ key.transpose(2, 3) * scaling).softmax(-1)
    return (1.1 * weights @ value).transpose(1, 2).contiguous(), 1.1 * weights


def in_one_piece(module, query, key, value, mask, scaling=1.0, **more):
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return output.transpose(1, 2).contiguous(), None


@pytest.mark.parametrize(("function", "check"), [(not_used, "use"), (too_much, "rows"), (in_one_piece, "layers")])
def test_a_wrong_function_in_the_models_own_file_is_refused(function, check, monkeypatch):
    model = classifier("bert")
    model.set_attn_implementation("eager")
    monkeypatch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", function)
    with pytest.raises(SubjectError, match=f"BertForSequenceClassification fails the check '{check}'"):
        SelfAttention(model)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("fnet", "no softmax"),
        ("longformer", "none from every token to every token"),
        ("funnel", "only 4 of its 12 maps"),
        ("canine", "only 2 of its 4 maps"),
        ("diffllama", "'model.layers.0.self_attn' weighs values more than once"),
        ("t5gemma2", "its decoder has no attention over the encoder alone"),
    ],
)
def test_types_whose_attention_is_another_thing_are_refused(kind, why):
    model = classifier(kind).train()
    own = model.config._attn_implementation
    with pytest.raises(SubjectError, match=f"fails the check 'layers': .*{why}"):
        SelfAttention(model)
    assert model.config._attn_implementation == own and model.training  # as it was before


def in_parts(model):
    model.classifier.to("meta")
    return model


def quantised(model):
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})


def broken(model):
    with torch.no_grad():
        model.classifier.weight[0, 3] = float("nan")
    return model


def reading_images(model):
    def forward(*args, **kwargs):
        raise ValueError("pixel_values, please")

    model.bert.forward = forward
    return model


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")  # of torch.ao
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (in_parts, "lies on cpu, meta"),
        (quantised, "fails the check 'gradients'"),
        (broken, "weight 'classifier.weight'"),
        (reading_images, "fails the check 'reading': .*pixel_values, please"),
    ],
)
def test_models_that_cannot_be_measured_are_refused_in_one_line(change, why):
    with pytest.raises(SubjectError, match=why) as refusal:
        SelfAttention(change(classifier("bert")))
    assert "\n" not in str(refusal.value)


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


def test_how_texts_can_be_read_together():
    ways = {"bert": "padded", "gpt2": "padded", "xlnet": "of one length", "convbert": "of one length"}
    assert {kind: SelfAttention(classifier(kind)).sites.together for kind in ways} == ways
    without = SelfAttention(classifier("gpt2", pad_token_id=None)).sites
    assert without.together == "one at a time" and "embeddings" not in without.lacks
    assert SelfAttention(classifier("albert")).sites.layers == (0, 1)  # one module, called twice


MEASURES = "leave_one_out gradient gradient_x_input attn_lrp attention_norm globenc value_zeroing rollout".split()
MEASURES += ["map_uniform", "map_erasure"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("bert", torch.bfloat16), ("gpt2", torch.float16)])
def test_numbers_are_near_those_of_float32(name, dtype):
    """A number passes some tens of roundings of half a unit each; weights of half the size make none of them larger."""
    coarse = copy.deepcopy(subjects.model(name)).to(dtype)
    for weights in coarse.parameters():
        weights.data *= 0.5 if weights.dim() > 1 else 1
    texts, labels = subjects.PLAN["texts"], subjects.PLAN["labels"]
    rough, fine = (
        attnfaith.measure(model, texts, labels, MEASURES, tokenizer=subjects.tokenizer(name), progress=False).table
        for model in (coarse, copy.deepcopy(coarse).float())
    )
    assert rough.column_names == fine.column_names and next(coarse.parameters()).dtype == dtype
    columns = [name for name in fine.column_names if name.startswith("importance_") or name in ("probs", "attention")]
    assert len(columns) > 8
    for column in columns:
        numbers = [np.concatenate([np.ravel(row).astype(float) for row in t[column].to_pylist()]) for t in (rough, fine)]
        assert np.abs(numbers[0] - numbers[1]).max() <= 16 * torch.finfo(dtype).eps * np.abs(numbers[1]).max(), column


def test_subjects_give_float32():
    subject = SelfAttention(copy.deepcopy(subjects.model("bert")).to(torch.bfloat16), subjects.tokenizer("bert"))
    batch = subject.encode(["the film was good", "never"])
    assert subject.predict(batch).dtype == subject.embed(batch).dtype == torch.float32
    assert subject.attention(batch).sum(1).sub(1).abs().max() < 1e-6
    subject = subject_of(translator("marian").to(torch.bfloat16))
    words = {"input_ids": [7, 8, 9], "source_words": [0, 1, 2], "labels": [6, 5], "target_words": [0, 1]}
    assert subject.vectors(subject.collate([{"instance_id": "0", **words}]))[0][1].dtype == torch.float32
    assert set(subject.lacks) == set(subject_of(translator("marian")).lacks)


@pytest.mark.parametrize("kind", ["gpt2", "convbert", "xlnet", "mbart", "nystromformer"])
def test_the_checks_of_a_model_have_the_same_results(kind):
    fine, *rough = (SelfAttention(classifier(kind).to(dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float16))
    for coarse in rough:
        assert coarse.sites.together == fine.sites.together and coarse.lacks == fine.lacks
        assert coarse.sites.blocks == fine.sites.blocks
