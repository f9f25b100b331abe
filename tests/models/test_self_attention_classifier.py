"""Any text classifier of transformers with another projection in its self-attention, or with tokens of two kinds apart."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from attnfaith import SelfAttentionClassifierConfig, SelfAttentionClassifierForSequenceClassification
from attnfaith.models.modeling_self_attention_classifier import Projecting, attention_projection, may_attend
from attnfaith.models.projections import project
from attnfaith.subjects.attention import Hook
from tests.small_classifiers import classifier, texts


KINDS = ("bert", "albert", "distilbert", "deberta-v2", "mpnet", "xlnet", "modernbert", "gpt2", "llama", "bart", "t5")
LENGTHS = (11, 7)
MARKED = torch.tensor([[0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]])
of = SelfAttentionClassifierForSequenceClassification.of


def steep(kind="bert", **fields):
    """A small classifier whose scores are so far apart that sparse projections have zeros."""
    model = classifier(kind, attn_implementation="eager", **fields)
    torch.manual_seed(3)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() > 1 and "embed" not in name and "norm" not in name.lower():
                values.normal_(std=0.7)
    return model


def separated(kind="bert", projection="softmax"):
    return of(classifier(kind), projection, separate_impermissible=True).eval()


def test_the_projection_is_that_of_each_row():
    """Masked scores have weight 0; a row of which softmax is NaN is NaN."""
    torch.manual_seed(0)
    scores, config = torch.randn(2, 3, 4, 5, dtype=torch.float64), SelfAttentionClassifierConfig(projection="sparsemax")
    scores[0, :, :, 3:] += torch.finfo(torch.float32).min
    scores[1, 0, 0, 1] = -torch.inf
    weights = attention_projection(scores, -1, config=config)
    for row, actual in zip(scores.flatten(0, 2), weights.flatten(0, 2), strict=True):
        reached = row > -1e4
        torch.testing.assert_close(actual[reached], project(row[reached], torch.ones(int(reached.sum())) > 0, config))
        assert not actual[~reached].any()
    for broken in ([torch.nan, 0.0], [torch.inf, 0.0], [-torch.inf, -torch.inf]):
        weights = attention_projection(torch.tensor([[[broken, [0.0, 5.0]]]]), -1, config=config)
        assert weights[0, 0, 0].isnan().any() and weights[0, 0, 1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "write",
    [
        lambda scores: torch.softmax(input=scores, dim=-1, dtype=torch.float64),
        lambda scores: torch.softmax(scores, 3, torch.float64),
        lambda scores: scores.softmax(-1),
        lambda scores: torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float64),
        lambda scores: torch.nn.Softmax(dim=-1)(scores),
        lambda scores: torch.special.softmax(scores, -1),
    ],
)
def test_every_way_to_write_softmax(write):
    scores, config = torch.randn(1, 2, 3, 4) * 3, SelfAttentionClassifierConfig(projection="sparsemax")
    with Projecting(config) as mode:
        weights = write(scores)
    plain = write(scores)
    assert mode.count == 1 and weights.dtype == plain.dtype and not torch.equal(weights, plain)
    assert torch.equal(weights, attention_projection(scores, -1, dtype=plain.dtype, config=config))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_classifier(kind, tmp_path):
    """Under softmax it is the classifier; else rows are sparse. Padding changes nothing, and it is saved and loaded."""
    model = steep(kind)
    inputs = texts(model, LENGTHS)
    with torch.no_grad():
        plain = model(**inputs).logits
        assert torch.equal(of(model, "softmax")(**inputs).logits, plain)
        sparse = of(model, "sparsegen", sparsegen_lambda=0.25).eval()
        with Hook(2) as hook:
            logits = sparse(**inputs).logits
    assert not torch.allclose(logits, plain, atol=1e-3)
    maps = [item.weights for item in hook.maps]
    assert len(maps) == {"bart": 6, "t5": 6}.get(kind, 2)
    for weights in maps:
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5) and (weights >= 0).all()
        if weights.shape[2:] == (11, 11):
            assert (weights[1, :, :7, 7:] == 0).all()
    zeros, numbers = (sum(int(part(weights[0])) for weights in maps) for part in (lambda w: (w == 0).sum(), torch.numel))
    assert zeros > numbers // 2 if kind in ("gpt2", "llama") else zeros > 20
    if kind != "xlnet":  # whose classifier reads its last position, be it padding or not
        single = sparse(**{name: values[1:, :7] for name, values in inputs.items()}).logits
        torch.testing.assert_close(single, logits[1:], atol=1e-4, rtol=1e-4)
    sparse.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["projection"], config["sparsegen_lambda"]) == ("sparsegen", 0.25)
    assert config["text_config"]["model_type"] == kind
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is SelfAttentionClassifierForSequenceClassification
    weights, stored = loaded.state_dict(), sparse.state_dict()
    assert weights.keys() == stored.keys() and all(torch.equal(weights[name], values) for name, values in stored.items())
    # products of numbers that lie elsewhere in memory may be rounded otherwise
    torch.testing.assert_close(loaded(**inputs).logits, logits, atol=1e-5, rtol=1e-5)


def test_labels_and_padding_are_the_same_in_both_configurations():
    names = {0: "bad", 1: "fair", 2: "good"}
    config = of(classifier("bert", id2label=names, pad_token_id=1), "sparsemax").config
    assert config.id2label == config.text_config.id2label == names
    assert config.pad_token_id == config.text_config.pad_token_id == 1
    config = SelfAttentionClassifierConfig(text_config=classifier("bert").config, num_labels=5)
    assert SelfAttentionClassifierForSequenceClassification(config).model.config.num_labels == 5


def allowed_pairs() -> torch.Tensor:
    """Which position may attend to which, pair by pair: the first to all, others to their own kind but the first."""
    allowed = torch.zeros(2, 11, 11, dtype=torch.bool)
    for number, row in enumerate(MARKED.tolist()):
        for query in range(11):
            for key in range(11):
                allowed[number, query, key] = query == 0 or (key > 0 and row[query] == row[key])
    return allowed


@pytest.mark.parametrize(
    ("kind", "projection"),
    [
        *((kind, "softmax") for kind in ("bert", "roberta", "distilbert", "electra")),
        *((kind, "entmax15") for kind in ("bert", "albert", "mpnet", "deberta-v2", "modernbert")),
    ],
)
def test_no_weight_lies_between_the_kinds(kind, projection, tmp_path):
    """Padding and company change nothing. Some types accept a mask of four dimensions, which gives the same logits."""
    allowed, model = allowed_pairs(), separated(kind, projection)
    assert torch.equal(may_attend(MARKED), allowed[:, None])
    inputs = {**texts(model, LENGTHS), "impermissible": MARKED}
    with torch.no_grad(), Hook(2) as hook:
        outputs = model(**inputs, output_attentions=True)
    present = inputs["attention_mask"].bool()
    between = (~allowed | ~present[:, None, :]) & present[:, :, None]
    assert len(hook.maps) == len(outputs.attentions) == 2
    for item, returned in zip(hook.maps, outputs.attentions, strict=True):
        assert torch.equal(item.weights, returned)
        assert (item.weights.masked_select(between.unsqueeze(1)) == 0).all()
        assert torch.allclose(item.weights.sum(-1).masked_select(present[:, None, :]), torch.ones(()), atol=1e-5)
        assert (item.weights[0, :, 0, 1:] > 0).any()  # the first position attends to both kinds
    with torch.no_grad():
        single = model(**{name: values[1:, :7] for name, values in inputs.items()}).logits
        torch.testing.assert_close(outputs.logits[1:], single, atol=1e-5, rtol=1e-5)
        if projection == "softmax":
            reached = allowed & present[:, None]
            added = torch.zeros(reached.shape).masked_fill(~reached, torch.finfo(torch.float32).min).unsqueeze(1)
            expected = model.model(input_ids=inputs["input_ids"], attention_mask=added).logits
            torch.testing.assert_close(outputs.logits, expected, atol=1e-5, rtol=1e-5)
        model.save_pretrained(tmp_path)
        assert torch.equal(AutoModelForSequenceClassification.from_pretrained(tmp_path)(**inputs).logits, outputs.logits)


def fnet():
    config = AutoConfig.for_model("fnet", vocab_size=100, hidden_size=16, num_hidden_layers=1, intermediate_size=20)
    return of(AutoModelForSequenceClassification.from_config(config), "sparsemax")


@pytest.mark.parametrize(
    ("build", "marks", "error", "message"),
    [
        (separated, None, ValueError, "needs impermissible of shape"),
        (separated, MARKED[:, :7], ValueError, "shape"),
        (lambda: of(classifier("bert"), "sparsemax"), MARKED, ValueError, "separate_impermissible"),
        (lambda: separated("gpt2"), MARKED, ValueError, "separate_impermissible=True is for encoders"),
        (lambda: separated("t5"), MARKED, ValueError, "separate_impermissible=True is for encoders"),
        (fnet, None, ValueError, "fnet makes no attention"),
    ],
)
def test_refusals(build, marks, error, message):
    with pytest.raises(error, match=message):
        model = build()
        model(**texts(model, LENGTHS), impermissible=marks)
