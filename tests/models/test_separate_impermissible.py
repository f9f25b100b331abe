"""Pretrained classifiers in which tokens of two kinds attend only to their own."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForSequenceClassification

from attnfaith import SelfAttentionClassifierConfig, SelfAttentionClassifierForSequenceClassification
from attnfaith.models.modeling_self_attention_classifier import may_attend
from attnfaith.subjects.attention import Hook
from tests.small_classifiers import classifier, texts


ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert", "mpnet", "deberta-v2", "modernbert", "xlm-roberta")
LENGTHS = (11, 7)
MARKED = torch.tensor([[0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]])


def separated(kind="bert", projection="softmax", **parameters):
    model = classifier(kind)
    return SelfAttentionClassifierForSequenceClassification.of(
        model, projection, separate_impermissible=True, **parameters
    ).eval()


def value(model, impermissible=MARKED):
    return {**texts(model, LENGTHS), "impermissible": impermissible}


def by_the_rule(row) -> torch.Tensor:
    """Which position may attend to which (L,L), pair by pair."""
    length = len(row)
    allowed = torch.zeros(length, length, dtype=torch.bool)
    for query in range(length):
        for key in range(length):
            if query == 0:
                allowed[query, key] = True
            elif key == 0:
                allowed[query, key] = False
            else:
                allowed[query, key] = bool(row[query]) == bool(row[key])
    return allowed


def test_who_may_attend_to_whom():
    together = may_attend(MARKED)
    assert together.shape == (2, 1, 11, 11)
    for number, row in enumerate(MARKED):
        assert torch.equal(together[number, 0], by_the_rule(row))


@pytest.mark.parametrize("projection", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_no_weight_lies_between_the_kinds(kind, projection):
    model = separated(kind, projection)
    inputs = value(model)
    with torch.no_grad(), Hook(2) as hook:
        returned = model(**inputs, output_attentions=True).attentions
    allowed, read = torch.stack([by_the_rule(row) for row in MARKED]), inputs["attention_mask"].bool()
    assert len(hook.maps) == len(returned) == 2
    for item, other in zip(hook.maps, returned, strict=True):
        assert torch.equal(item.weights, other)
        between = (~allowed | ~read[:, None, :]) & read[:, :, None]
        assert (item.weights.masked_select(between.unsqueeze(1)) == 0).all()
        sums = item.weights.sum(-1).masked_select(read[:, None, :])
        assert torch.allclose(sums, torch.ones(()), atol=1e-5)
        assert (item.weights[0, :, 0, 1:] > 0).any()  # the first position attends to both kinds
        assert (item.weights[0, :, 1:, 0] == 0).all()


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert"])
def test_it_is_the_classifier_under_a_mask_of_four_dimensions(kind):
    """These take such a mask of their own, added to scores."""
    model = separated(kind)
    inputs = value(model)
    allowed = torch.stack([by_the_rule(row) for row in MARKED]) & inputs["attention_mask"].bool()[:, None]
    added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min).unsqueeze(1)
    with torch.no_grad():
        expected = model.model(input_ids=inputs["input_ids"], attention_mask=added).logits
        plain = model.model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        given_logits = model(**inputs).logits
    assert torch.allclose(given_logits, expected, atol=1e-5)
    assert not torch.allclose(given_logits, plain, atol=1e-3)


@pytest.mark.parametrize("kind", ENCODERS)
def test_padding_and_company_change_nothing(kind):
    model = separated(kind)
    inputs = value(model)
    with torch.no_grad():
        both = model(**inputs).logits
        alone = model(**{name: values[1:, :7] for name, values in inputs.items()}).logits
    assert torch.allclose(both[1:], alone, atol=1e-5)


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_saved_and_loaded(tmp_path, projection):
    model = separated("bert", projection)
    inputs = value(model)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is SelfAttentionClassifierForSequenceClassification
    assert loaded.config.separate_impermissible
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    there = {path.name for path in tmp_path.iterdir()}  # it carries its code
    assert {"modeling_self_attention_classifier.py", "configuration_self_attention_classifier.py"} <= there


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_checkpointed_layers_keep_them_apart_in_the_backward_pass(projection):
    """Which runs each layer again."""
    slopes = []
    for checkpointed in (False, True):
        model = separated("bert", projection).train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if checkpointed:
            model.activation_checkpointing_enable()
        model(**value(model), labels=torch.tensor([0, 1])).loss.backward()
        slopes.append(model.get_input_embeddings().weight.grad.clone())
    assert torch.allclose(*slopes, atol=1e-6)
    assert slopes[0].abs().max() > 0


@pytest.mark.parametrize(
    ("apart", "marks", "key"),
    [
        (True, None, "needs impermissible of shape"),
        (True, MARKED[:, :7], "shape"),
        (False, MARKED, "separate_impermissible"),
    ],
)
def test_marks_are_read_by_models_of_them_alone(apart, marks, key):
    model = separated() if apart else SelfAttentionClassifierForSequenceClassification.of(classifier("bert"), "sparsemax")
    with pytest.raises(ValueError, match=key):
        model(**texts(model, LENGTHS), impermissible=marks)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_decoders_are_refused(kind):
    with pytest.raises(ValueError, match="separate_impermissible=True with .*, a decoder"):
        separated(kind)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_encoders_and_decoders_are_refused(kind):
    with pytest.raises(StrictDataclassError, match=f"separate_impermissible=True with {kind}"):
        SelfAttentionClassifierConfig(text_config=classifier(kind).config, separate_impermissible=True)
