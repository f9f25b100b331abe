"""Any text classifier of transformers with another projection in its self-attention, or with tokens of two kinds apart."""

import json

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModelForSequenceClassification

from attnfaith import SelfAttentionClassifierConfig, SelfAttentionClassifierForSequenceClassification
from attnfaith.models.modeling_self_attention_classifier import Projecting, attention_projection, may_attend
from attnfaith.subjects.attention import Hook
from tests.small_classifiers import classifier, texts


SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
BERT = SIZES | {"max_position_embeddings": 24}
BART = {"vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 24}
KINDS = {
    "bert": BERT,
    "albert": BERT | {"embedding_size": 12},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 20, "max_position_embeddings": 24},
    "deberta-v2": BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "pooler_hidden_size": 16},
    "mpnet": BERT,
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 20},
    "modernbert": BERT | {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 1},
    "gpt2": {"n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 2},
    "llama": BERT | {"num_key_value_heads": 1},
    "bart": BART,
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 2},
}
PAD, EOS = 1, 2
IDS = torch.tensor([[0, 7, 30, 12, 5, 9, EOS], [0, 11, 8, EOS, PAD, PAD, PAD]])
MASK = (IDS != PAD).long()


def inner(kind: str = "bert", **fields):
    torch.manual_seed(3)
    names = {"pad_token_id": PAD, "num_labels": 3, "dropout": 0.0, "vocab_size": 40}
    if kind in ("bart", "t5"):
        names |= {"eos_token_id": EOS, "decoder_start_token_id": EOS, "dropout_rate": 0.0}
    config = AutoConfig.for_model(kind, **{**names, **KINDS[kind], **fields})
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():  # as it is drawn, scores are so near each other that no projection has zeros
        for name, values in model.named_parameters():
            if values.dim() > 1 and "embed" not in name and "norm" not in name.lower():
                values.normal_(std=0.7)
    return model


def sparse(kind: str = "bert", projection: str = "sparsemax", **parameters):
    return SelfAttentionClassifierForSequenceClassification.of(inner(kind), projection, **parameters).eval()


def maps_of(model, **inputs) -> list[torch.Tensor]:
    """The attention of each layer, as the hook of subjects reads it."""
    with torch.no_grad(), Hook(len(next(iter(inputs.values())))) as hook:
        model(**inputs)
    return [item.weights for item in hook.maps]


def by_sorting(scores: torch.Tensor) -> torch.Tensor:
    """Sparsemax of a row, as Martins & Astudillo (2016) write their algorithm 1."""
    order = scores.sort(descending=True).values
    size = torch.arange(1, len(scores) + 1)
    k = int(((1 + size * order) > order.cumsum(0)).sum())
    return (scores - (order[:k].sum() - 1) / k).clamp(min=0)


def test_projection_is_that_of_each_row():
    """Where softmax of a row is NaN, so is its projection."""
    torch.manual_seed(0)
    scores, config = torch.randn(2, 3, 4, 5, dtype=torch.float64), SelfAttentionClassifierConfig(projection="sparsemax")
    scores[0, :, :, 3:] += torch.finfo(torch.float32).min
    scores[1, 0, 0, 1] = -torch.inf
    actual = attention_projection(scores, -1, config=config)
    for place in range(24):
        row, expected = scores.flatten(0, 2)[place], torch.zeros(5, dtype=torch.float64)
        reached = row > -1e4
        expected[reached] = by_sorting(row[reached])
        assert torch.allclose(actual.flatten(0, 2)[place], expected, atol=1e-12)
    assert (actual[0, :, :, 3:] == 0).all() and actual[1, 0, 0, 1] == 0
    for broken in ([torch.nan, 0.0], [torch.inf, 0.0], [-torch.inf, -torch.inf]):
        actual = attention_projection(torch.tensor([[[broken, [0.0, 5.0]]]]), -1, config=config)
        assert actual[0, 0, 0].isnan().any() and actual[0, 0, 1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "write",
    [
        lambda scores: torch.softmax(scores, dim=3),
        lambda scores: torch.softmax(input=scores, dim=-1, dtype=torch.float64),
        lambda scores: torch.softmax(scores, -1, torch.float64),
        lambda scores: scores.softmax(-1),
        lambda scores: scores.softmax(dim=-1),
        lambda scores: torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float64),
        lambda scores: torch.nn.Softmax(dim=-1)(scores),
        lambda scores: torch.special.softmax(scores, -1),
    ],
)
def test_every_way_to_write_softmax(write):
    scores, config = torch.randn(1, 2, 3, 4) * 3, SelfAttentionClassifierConfig(projection="sparsemax")
    with Projecting(config) as mode:
        actual = write(scores)
    plain = write(scores)
    assert mode.count == 1 and actual.dtype == plain.dtype and not torch.equal(actual, plain)
    assert torch.equal(actual, attention_projection(scores, -1, dtype=plain.dtype, config=config))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_classifier(kind, tmp_path):
    """Under softmax it is the classifier; else rows are sparse. Padding changes nothing, and it is saved and loaded."""
    model, inputs = inner(kind), {"input_ids": IDS, "attention_mask": MASK}
    plain = model(**inputs).logits
    same, projected = (SelfAttentionClassifierForSequenceClassification.of(model, p) for p in ("softmax", "sparsemax"))
    assert torch.equal(same(**inputs).logits, plain)
    logits = projected.eval()(**inputs).logits
    assert not torch.allclose(logits, plain, atol=1e-3)
    maps, length = maps_of(projected, **inputs), int(MASK[1].sum())
    assert len(maps) == {"bart": 3, "t5": 6}.get(kind, 2)
    for weights in maps:
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5) and (weights >= 0).all()
        if weights.shape[2:] == (7, 7):
            assert (weights[1, :, :length, length:] == 0).all()
    zeros, total = (sum(int(part(weights[0])) for weights in maps) for part in (lambda w: (w == 0).sum(), torch.numel))
    assert zeros > (total // 2 if kind in ("gpt2", "llama") else 20)
    if kind != "xlnet":  # whose classifier reads its last position, be it padding or not
        alone = projected(input_ids=IDS[1:, :4], attention_mask=MASK[1:, :4]).logits
        assert torch.allclose(logits[1:], alone, atol=1e-5)
    model = sparse(kind, "sparsegen", sparsegen_lambda=0.25)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["projection"], config["sparsegen_lambda"]) == ("sparsegen", 0.25)
    assert config["text_config"]["model_type"] == kind
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(again) is SelfAttentionClassifierForSequenceClassification
    weights = again.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], values) for name, values in model.state_dict().items())
    # products of numbers that lie elsewhere in memory may be rounded otherwise
    assert torch.allclose(again(**inputs).logits, model(**inputs).logits, atol=1e-6)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_gradient_checkpointing_projects_again_what_it_computes_again(reentrant, apart):
    """In the backward pass layers are run again, when `forward` has long been left."""
    fields, marks = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, {}
    if apart:
        marks["impermissible"] = torch.tensor([[0, 1, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0, 0]])
    slopes = []
    for checkpointed in (False, True):
        of = SelfAttentionClassifierForSequenceClassification.of
        model = of(inner(**fields), "sparsemax", separate_impermissible=apart).train()
        if checkpointed:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
            if reentrant:
                model.enable_input_require_grads()
        assert model.is_activation_checkpointing == checkpointed
        torch.manual_seed(1)
        model(input_ids=IDS, attention_mask=MASK, labels=torch.tensor([0, 2]), **marks).loss.backward()
        slopes.append({name: values.grad for name, values in model.named_parameters() if values.grad is not None})
    assert slopes[0].keys() == slopes[1].keys()
    for name, slope in slopes[0].items():
        assert torch.allclose(slope, slopes[1][name], atol=1e-6), name


def test_labels_and_padding_are_the_same_in_both_configurations():
    model = inner(id2label={0: "bad", 1: "fair", 2: "good"})
    result = SelfAttentionClassifierForSequenceClassification.of(model, "sparsemax")
    assert result.config.id2label == result.config.text_config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert result.config.pad_token_id == result.config.text_config.pad_token_id == PAD
    config = SelfAttentionClassifierConfig(text_config=AutoConfig.for_model("bert", **BERT), num_labels=5)
    assert SelfAttentionClassifierForSequenceClassification(config).model.config.num_labels == 5


# ------------------------------------------------------------------------------------------------ tokens of two kinds


LENGTHS = (11, 7)
MARKED = torch.tensor([[0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0]])


def separated(kind="bert", projection="softmax"):
    model = classifier(kind)
    return SelfAttentionClassifierForSequenceClassification.of(model, projection, separate_impermissible=True).eval()


def unseparated():
    return SelfAttentionClassifierForSequenceClassification.of(classifier("bert"), "sparsemax")


def allowed_by_rule() -> torch.Tensor:
    """Which position may attend to which, pair by pair: the first to all, others to their own kind but the first."""
    allowed = torch.zeros(2, 11, 11, dtype=torch.bool)
    for number, row in enumerate(MARKED.tolist()):
        for query in range(11):
            for key in range(11):
                allowed[number, query, key] = query == 0 or (key > 0 and row[query] == row[key])
    return allowed


@pytest.mark.parametrize("projection", ["softmax", "entmax15"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra", "albert", "mpnet", "deberta-v2", "modernbert"])
def test_no_weight_lies_between_the_kinds(kind, projection):
    """Padding and company change nothing; some types take such a mask of four dimensions of their own."""
    allowed = allowed_by_rule()
    assert torch.equal(may_attend(MARKED), allowed[:, None])
    model = separated(kind, projection)
    inputs = {**texts(model, LENGTHS), "impermissible": MARKED}
    with torch.no_grad(), Hook(2) as hook:
        outputs = model(**inputs, output_attentions=True)
    present = inputs["attention_mask"].bool()
    assert len(hook.maps) == len(outputs.attentions) == 2
    for item, returned in zip(hook.maps, outputs.attentions, strict=True):
        assert torch.equal(item.weights, returned)
        between = (~allowed | ~present[:, None, :]) & present[:, :, None]
        assert (item.weights.masked_select(between.unsqueeze(1)) == 0).all()
        sums = item.weights.sum(-1).masked_select(present[:, None, :])
        assert torch.allclose(sums, torch.ones(()), atol=1e-5)
        assert (item.weights[0, :, 0, 1:] > 0).any()  # the first position attends to both kinds
    with torch.no_grad():
        alone = model(**{name: values[1:, :7] for name, values in inputs.items()}).logits
        assert torch.allclose(outputs.logits[1:], alone, atol=1e-5)
        if projection == "softmax" and kind in ("bert", "roberta", "electra", "distilbert"):
            reached = allowed & present[:, None]
            added = torch.zeros(reached.shape).masked_fill(~reached, torch.finfo(torch.float32).min).unsqueeze(1)
            expected = model.model(input_ids=inputs["input_ids"], attention_mask=added).logits
            assert torch.allclose(outputs.logits, expected, atol=1e-5)


def test_separation_is_saved(tmp_path):
    model = separated("bert", "sparsemax")
    inputs = {**texts(model, LENGTHS), "impermissible": MARKED}
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.config.separate_impermissible
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize(
    ("build", "marks", "error", "message"),
    [
        (separated, None, ValueError, "needs impermissible of shape"),
        (separated, MARKED[:, :7], ValueError, "shape"),
        (unseparated, MARKED, ValueError, "separate_impermissible"),
        (lambda: separated("gpt2"), MARKED, ValueError, "separate_impermissible=True with .*, a decoder"),
        (lambda: separated("t5"), MARKED, StrictDataclassError, "separate_impermissible=True with t5"),
        (lambda: sparse("fnet"), None, ValueError, "projection='sparsemax' has nothing to project: fnet makes no attention"),
    ],
)
def test_refusals(build, marks, error, message, monkeypatch):
    fnet = {key: value for key, value in BERT.items() if key != "num_attention_heads"}
    monkeypatch.setitem(KINDS, "fnet", fnet | {"vocab_size": 100})
    with pytest.raises(error, match=message):
        model = build()
        model(**texts(model, LENGTHS), impermissible=marks)
