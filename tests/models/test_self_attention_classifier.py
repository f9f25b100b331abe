"""Any text classifier of transformers with another projection than softmax in its self-attention."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from attnfaith import SelfAttentionClassifierConfig, SelfAttentionClassifierForSequenceClassification
from attnfaith.models.modeling_self_attention_classifier import Projecting, attention_projection
from attnfaith.subjects import Edit
from attnfaith.subjects.attention import Hook


BERT = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
}
GPT2 = {"vocab_size": 40, "n_positions": 24, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 2}
T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 2}
BART = {"vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 24}
KINDS = {
    "bert": BERT,
    "roberta": BERT,
    "electra": BERT | {"embedding_size": 12},
    "albert": BERT | {"embedding_size": 12},
    "distilbert": {
        "vocab_size": 40,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 20,
        "max_position_embeddings": 24,
    },
    "deberta": BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "pooler_hidden_size": 16},
    "mpnet": BERT,
    "xlnet": {"vocab_size": 40, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 20},
    "modernbert": BERT | {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 1},
    "gpt2": GPT2,
    "llama": BERT | {"num_key_value_heads": 1},
    "bart": BART,
    "t5": T5,
}
PAD, EOS = 1, 2
IDS = torch.tensor([[0, 7, 30, 12, 5, 9, EOS], [0, 11, 8, EOS, PAD, PAD, PAD]])
MASK = (IDS != PAD).long()


def inner(kind: str = "bert", **fields):
    torch.manual_seed(3)
    names = {"pad_token_id": PAD, "num_labels": 3, "dropout": 0.0}
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
    with torch.no_grad(), Hook(len(inputs["input_ids"])) as hook:
        model(**inputs)
    return [item.weights for item in hook.maps]


def by_sorting(scores: torch.Tensor) -> torch.Tensor:
    """Sparsemax of one row, as Martins & Astudillo (2016) write their algorithm 1."""
    order = scores.sort(descending=True).values
    size = torch.arange(1, len(scores) + 1)
    k = int(((1 + size * order) > order.cumsum(0)).sum())
    return (scores - (order[:k].sum() - 1) / k).clamp(min=0)


def test_projection_is_that_of_each_row():
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    scores[0, :, :, 3:] += torch.finfo(torch.float32).min
    scores[1, 0, 0, 1] = -torch.inf
    actual = attention_projection(scores, -1, config=SelfAttentionClassifierConfig(projection="sparsemax"))
    for place in range(24):
        row, expected = scores.flatten(0, 2)[place], torch.zeros(5, dtype=torch.float64)
        reached = row > -1e4
        expected[reached] = by_sorting(row[reached])
        assert torch.allclose(actual.flatten(0, 2)[place], expected, atol=1e-12)
    assert (actual[0, :, :, 3:] == 0).all()
    assert actual[1, 0, 0, 1] == 0


@pytest.mark.parametrize("broken", [[torch.nan, 0.0], [torch.inf, 0.0], [-torch.inf, -torch.inf]])
def test_a_broken_row_is_broken(broken):
    scores = torch.tensor([[[broken, [0.0, 5.0]]]])
    actual = attention_projection(scores, -1, config=SelfAttentionClassifierConfig(projection="sparsemax"))
    assert scores.softmax(-1)[0, 0, 0].isnan().any()
    assert actual[0, 0, 0].isnan().any()
    assert actual[0, 0, 1].tolist() == [0, 1]


@pytest.mark.parametrize(
    "write",
    [
        lambda scores: torch.softmax(scores, -1),
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
    assert mode.count == 1
    assert actual.dtype == plain.dtype
    assert torch.equal(actual, attention_projection(scores, -1, dtype=plain.dtype, config=config))
    assert not torch.equal(actual, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_under_softmax_it_is_the_classifier(kind):
    model = inner(kind)
    plain = model(input_ids=IDS, attention_mask=MASK).logits
    same = SelfAttentionClassifierForSequenceClassification.of(model, "softmax")(input_ids=IDS, attention_mask=MASK)
    assert torch.equal(same.logits, plain)
    other = SelfAttentionClassifierForSequenceClassification.of(model, "sparsemax")(input_ids=IDS, attention_mask=MASK)
    assert not torch.allclose(other.logits, plain, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("projection", ["sparsemax", "entmax15"])
def test_rows_are_sparse_distributions(kind, projection):
    maps = maps_of(sparse(kind, projection), input_ids=IDS, attention_mask=MASK)
    assert len(maps) == {"bart": 3, "t5": 6}.get(kind, 2)
    zeros = 0
    for weights in maps:
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
        assert (weights >= 0).all()
        length = int(MASK[1].sum())
        if weights.shape[-1] == IDS.shape[1] and weights.shape[2] == IDS.shape[1]:
            assert (weights[1, :, :length, length:] == 0).all()
        zeros += int((weights[0] == 0).sum())
    assert zeros > (sum(weights[0].numel() for weights in maps) // 2 if kind in ("gpt2", "llama") else 20)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"xlnet"}))
def test_padding_changes_nothing(kind):
    """Not of XLNet, whose classifier reads its last position, be it padding or not."""
    model = sparse(kind)
    both = model(input_ids=IDS, attention_mask=MASK).logits
    alone = model(input_ids=IDS[1:, :4], attention_mask=MASK[1:, :4]).logits
    assert torch.allclose(both[1:], alone, atol=1e-5)


def test_a_hook_around_it_edits_scores_and_weights():
    """The outer mode is asked first for what the inner one puts in the place of softmax."""

    class Uniform(Edit):
        def scores(self, number, scores):
            return torch.where(scores < -1e4, scores, 0.0)

    model = sparse()
    with torch.no_grad(), Hook(2, Uniform()) as hook:
        model(input_ids=IDS, attention_mask=MASK)
    assert hook.softmaxes == len(hook.maps) == 2
    assert torch.allclose(hook.maps[0].weights, (MASK / MASK.sum(1, keepdim=True))[:, None, None].expand(2, 2, 7, 7))


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_projects_again_what_it_computes_again(reentrant):
    """In the backward pass layers are run again, when `forward` has long been left."""

    def slopes(model):
        model.train()
        torch.manual_seed(1)
        model(input_ids=IDS, attention_mask=MASK, labels=torch.tensor([0, 2])).loss.backward()
        return {name: values.grad for name, values in model.named_parameters() if values.grad is not None}

    fields = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    models = [SelfAttentionClassifierForSequenceClassification.of(inner(**fields), "sparsemax") for _ in range(2)]
    models[1].activation_checkpointing_enable({"use_reentrant": reentrant})
    assert models[1].is_activation_checkpointing
    if reentrant:
        models[1].enable_input_require_grads()
    plain, again = map(slopes, models)
    assert plain.keys() == again.keys()
    for name, slope in plain.items():
        assert torch.allclose(slope, again[name], atol=1e-6), name
    models[1].activation_checkpointing_disable()
    assert not models[1].is_activation_checkpointing


def test_nothing_to_project_is_an_error():
    config = AutoConfig.for_model("fnet", **{key: value for key, value in BERT.items() if key != "num_attention_heads"})
    model = AutoModelForSequenceClassification.from_config(config)
    with pytest.raises(ValueError, match=r"projection='sparsemax' has nothing to project: fnet makes no attention"):
        SelfAttentionClassifierForSequenceClassification.of(model, "sparsemax")(IDS)


def test_labels_and_padding_are_one_in_both_configurations():
    model = inner(id2label={0: "bad", 1: "fair", 2: "good"})
    result = SelfAttentionClassifierForSequenceClassification.of(model, "sparsemax")
    assert result.config.id2label == result.config.text_config.id2label == {0: "bad", 1: "fair", 2: "good"}
    assert result.config.pad_token_id == result.config.text_config.pad_token_id == PAD
    config = SelfAttentionClassifierConfig(text_config=AutoConfig.for_model("bert", **BERT), num_labels=5)
    assert SelfAttentionClassifierForSequenceClassification(config).model.config.num_labels == 5


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind, tmp_path):
    model = sparse(kind, "sparsegen", sparsegen_lambda=0.25)
    expected = model(input_ids=IDS, attention_mask=MASK).logits
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
    assert torch.allclose(again(input_ids=IDS, attention_mask=MASK).logits, expected, atol=1e-6)
