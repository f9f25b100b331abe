"""Every value that a configuration refuses, and what the fields of several families do."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from attnfaith import (
    AttentionClassifierConfig,
    AttentionSeq2SeqConfig,
    RationaleClassifierConfig,
    SelfAttentionClassifierConfig,
)
from attnfaith.models.projections import PROJECTIONS


NAN, INFINITY = float("nan"), float("inf")
CLASSIFIER, TRANSLATOR, SPARSE, RATIONALE = (
    AttentionClassifierConfig,
    AttentionSeq2SeqConfig,
    SelfAttentionClassifierConfig,
    RationaleClassifierConfig,
)
CHOICES = {
    CLASSIFIER: ("encoder", "alignment", "projection", "query", "readout", "hierarchy", "vectors"),
    TRANSLATOR: ("encoder", "recurrence", "alignment", "projection"),
    RATIONALE: ("encoder", "selector_encoder", "sampler", "pooling"),
}
SIZES = {"embedding_size": 8, "hidden_size": 8, "vocab_size": 20}
BUDGET = {"sampler": "budget", "budget": 0.2}
REFUSED = [
    *((kind, {field: "nothing"}, field) for kind in (CLASSIFIER, TRANSLATOR, RATIONALE) for field in CHOICES[kind]),
    *((CLASSIFIER, {"sparsegen_lambda": value}, "sparsegen_lambda") for value in (1, NAN, -INFINITY)),
    *((CLASSIFIER, {"entmax_alpha": value}, "entmax_alpha") for value in (0.9, NAN, INFINITY)),
    *((CLASSIFIER, {field: 0}, field) for field, interval in CLASSIFIER.ranges.items() if interval == "[1, inf)"),
    (CLASSIFIER, {"dropout": 1.0}, "dropout"),
    (CLASSIFIER, {"embedding_std": -1.0}, "embedding_std"),
    (CLASSIFIER, {"hidden_size": "8"}, "hidden_size"),
    (CLASSIFIER, {"encoder": "bilstm", "hidden_size": 7}, "hidden_size=7 must be even"),
    (CLASSIFIER, {"encoder": "embedding", "hidden_size": 6}, "must be embedding_size=8"),
    (CLASSIFIER, {"encoder": "cnn", "hidden_size": 6}, "kernel_sizes"),
    (CLASSIFIER, {"encoder": "cnn", "kernel_sizes": (2, 3)}, "kernel_sizes"),
    (CLASSIFIER, {"encoder": "cnn", "kernel_sizes": ()}, "kernel_sizes"),
    (CLASSIFIER, {"encoder": "transformer", "num_attention_heads": 3}, "num_attention_heads"),
    (TRANSLATOR, {"hidden_size": 7}, "hidden_size=7 must be even"),
    (SPARSE, {"projection": "uniform"}, "projection"),
    (SPARSE, {"projection": "sparsegen", "sparsegen_lambda": 1}, "sparsegen_lambda"),
    (SPARSE, {"projection": "entmax", "entmax_alpha": 0.5}, "entmax_alpha"),
    (RATIONALE, {"sampler": "budget"}, "budget"),
    *((RATIONALE, {"budget": value}, "budget") for value in (1.2, 0.0, NAN)),
    (RATIONALE, {**BUDGET, "temperature": 0.0}, "temperature"),
    (RATIONALE, {"sampler": "hardkuma", "temperature": 0.2}, "temperature"),
    (RATIONALE, {"threshold": 1.0}, "threshold"),
    (RATIONALE, {"hierarchy": "sentence"}, "hierarchy"),
    (RATIONALE, {"query": "text"}, "query"),
    (RATIONALE, {"selector_encoder": "pretrained"}, "selector_encoder"),
    (RATIONALE, {"selector_encoder": "bilstm", "encoder": "lstm", "hidden_size": 7}, "selector_encoder"),
]


@pytest.mark.parametrize(("kind", "fields", "key"), REFUSED)
def test_a_wrong_value_is_named(kind, fields, key):
    sizes = {} if kind is SPARSE else SIZES
    with pytest.raises(StrictDataclassError) as refusal:
        kind(**{**sizes, **fields})
    assert key in str(refusal.value.__cause__ or refusal.value)


@pytest.mark.parametrize("kind", [CLASSIFIER, TRANSLATOR, SPARSE, RATIONALE])
def test_defaults_survive_a_round_trip(kind, tmp_path):
    names = set(PROJECTIONS) - ({"uniform"} if kind is SPARSE else set())
    parameters = {name: kind(projection=name).projection_parameter for name in names}
    assert {name: value for name, value in parameters.items() if value is not None} == {"sparsegen": 0.0, "entmax": 1.5}
    config = kind(dropout=0.25) if hasattr(kind(), "dropout") else kind(entmax_alpha=1.25)
    config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).to_diff_dict() == config.to_diff_dict()


@pytest.mark.parametrize(
    ("kind", "fields", "places"),
    [
        (CLASSIFIER, {}, 2),  # embeddings, context
        (CLASSIFIER, {"hierarchy": "sentence", "sentence_token_id": 6}, 3),  # vectors of sentences
        (TRANSLATOR, {}, 3),  # embeddings of source and target, output layer
        (RATIONALE, {}, 3),  # embeddings, the selector's states, context
    ],
)
def test_dropout_in_training(kind, fields, places):
    auto = AutoModelForSeq2SeqLM if kind is TRANSLATOR else AutoModelForSequenceClassification
    model, dropped = auto.from_config(kind(**SIZES, **fields, dropout=0.25)).train(), []
    for module in model.modules():
        if isinstance(module, nn.Dropout) and module.p == 0.25:
            module.register_forward_hook(lambda _, args, output: dropped.append(not torch.equal(output, args[0])))
    ids = torch.tensor([[2, 5, 7, 6, 8, 3]])
    model(ids, **({"labels": ids} if kind is TRANSLATOR else {}))
    assert dropped == [True] * places
