"""A subject: a batch opened for it, what it lacks, and that no measure looks past it into a model."""

import ast
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn

from attnfaith.data.tokenization import build_tokenizer, encode
from attnfaith.importance.gradients import GradientNorm
from attnfaith.importance.perturbation import LeaveOneOut, Occlusion
from attnfaith.measurement.engine import check, model_identity
from attnfaith.measurement.registry import MeasurementError
from attnfaith.subjects import Batch, Pooled, SubjectError, opened, require, subject_of
from attnfaith.subjects.protocol import read_parts
from tests.measuring import run
from tests.toy_subject import Toy


PACKAGE = Path(__file__).parents[2] / "src" / "attnfaith"
ENGINES = ("perturbation", "integrated", "relevance", "lstm")
"""Modules for the classifiers of this package alone."""


def test_no_measure_looks_into_a_model():
    """Neither for its parts nor for its kind; only engines do."""
    parts = {"model", "encoder", "config", "get_input_embeddings", "sentence_reader"}
    allowed = ("modeling_attention_classifier", "decoders", "rationale_samplers")  # types that stages return, and budgets
    allowed = {f"attnfaith.models.{name}" for name in allowed}
    folders = (PACKAGE / name for name in ("importance", "alignment", "interventions"))
    for path in (path for folder in folders for path in folder.glob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))] if path.stem not in ENGINES else []
        assert not {node.attr for node in nodes if isinstance(node, ast.Attribute)} & parts, path.name
        names = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not {name for name in names if name.startswith("attnfaith.models")} - allowed, path.name


def test_a_batch_is_opened(tiny_model, tiny_rows, tiny_batch):
    model, collated = tiny_model(), tiny_batch(tiny_rows([3, 2]))
    plain = {"input_ids": collated["input_ids"], "labels": torch.tensor([1, 0])}
    subject, batch = opened(model, plain)
    assert set(plain) == {"input_ids", "labels"}
    assert batch["instance_id"] == ["0", "1"] and batch["label"] == [1, 0]
    assert torch.equal(batch["attention_mask"], collated["attention_mask"])  # by the padding token
    assert Batch.of(batch, subject) is batch
    assert opened(model, {"input_ids": collated["input_ids"]})[1]["label"] == [None, None]
    for wrong in ({"tokens": [["a"]]}, {"input_ids": [[2, 5, 3]]}):
        with pytest.raises(SubjectError, match="a batch needs input_ids"):
            opened(model, wrong)


def test_results_are_those_of_one_subject(tiny_model, tiny_rows, tiny_batch):
    batch = tiny_batch(tiny_rows([6, 4]))
    subjects = [subject_of(tiny_model(seed=seed)) for seed in (0, 1)]
    first, second = (Batch.of(batch, subject) for subject in subjects)
    own, expected = (subject.attention(batch) for subject, batch in zip(subjects, (first, second), strict=True))
    assert first.results["attention"] is own
    handed_on = Batch.of(first, subjects[1])
    assert not handed_on.results
    torch.testing.assert_close(subjects[1].attention(handed_on), expected)


def test_models_and_subjects(tiny_model):
    model, toy = tiny_model(), Toy()
    assert isinstance(subject_of(model), Pooled) and subject_of(toy) is toy
    assert subject_of(tiny_model(hierarchy="sentence")).level == "sentence"
    with pytest.raises(SubjectError, match="Linear cannot be measured"):
        subject_of(nn.Linear(2, 2))


def test_models_of_equal_weights_that_compute_otherwise_have_digests_of_their_own(tiny_model):
    subjects = [Pooled(tiny_model(encoder=encoder)) for encoder in ("lstm", "orthogonal_lstm")]
    subjects[1].model.load_state_dict(subjects[0].model.state_dict())
    assert subjects[0].digest() != subjects[1].digest() == Pooled(subjects[1].model).digest()


def test_code_that_came_with_a_checkpoint_is_a_subject(tiny_model, tiny_rows, tiny_batch, tmp_path, monkeypatch):
    """Its classes are others of the same name."""
    model, batch = tiny_model(encoder="cnn"), tiny_batch(tiny_rows([5, 3]))
    model.save_pretrained(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(tmp_path)
    foreign = getattr(importlib.import_module("elsewhere.modeling_attention_classifier"), type(model).__name__)
    loaded = foreign.from_pretrained(tmp_path / "elsewhere").eval()
    assert type(loaded) is not type(model)
    for name, values in run(LeaveOneOut, loaded, batch).items():
        for row, expected in zip(values, run(LeaveOneOut, model, batch)[name], strict=True):
            np.testing.assert_allclose(row, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("needs", "options", "message"),
    [
        ({"states", "layers", "embeddings"}, {}, "'a' needs 'layers' .* and 'states' "),
        ({"states"}, {"measures": ["first", "second"]}, "first, second"),
    ],
)
def test_capabilities_that_are_lacking(needs, options, message):
    require(Toy(), {"embeddings"}, "a")
    with pytest.raises(SubjectError, match=message):
        require(Toy(), needs, "a", **options)


def test_a_record_needs_an_identity(tiny_model, tiny_rows):
    dataset, subject = Dataset.from_list(tiny_rows([3])), Toy()
    assert model_identity(subject) == {
        **{"model": "toy", "encoder": "embedding", "projection": "softmax", "hierarchy": "none", "level": "token"},
        **dict.fromkeys(("alignment", "readout", "vectors"), "unknown"),
    }
    check(subject, dataset, ["gradient"])

    class Nobody:
        kind, capabilities = "nobodies", frozenset()

    with pytest.raises(MeasurementError, match="identity, digest"):
        check(Nobody(), dataset, [])
    with pytest.raises(MeasurementError, match="'exact_contribution' needs .*affine.*: adversary_search, "):
        check(tiny_model(readout="tanh"), dataset, ["gradient", "exact_contribution"])


def test_options_and_columns_may_need_more_than_the_measure(tiny_model, tiny_rows):
    toy, rows = Toy(), tiny_rows([3])
    for call in (lambda: run(Occlusion, toy, toy.collate(rows), by="mask"), lambda: Occlusion(by="mask").check(toy, None)):
        with pytest.raises(SubjectError, match="'occlusion with by='mask'' needs 'states'"):
            call()
    assert list(GradientNorm.columns_for(toy)) == ["importance_gradient_norm", "importance_gradient_norm_detached"]
    assert GradientNorm.columns_for(subject_of(tiny_model())) == GradientNorm.columns
    toy.capabilities = toy.can - {"embeddings", "held attention"}
    assert list(GradientNorm.columns_for(toy)) == ["importance_gradient_norm"]
    with pytest.raises(SubjectError, match="'absent='zero'' needs 'embeddings'"):
        read_parts(toy, toy.collate(rows), [np.ones((1, 3), bool)], "zero")


@pytest.mark.parametrize(("pair", "hierarchy"), [(True, "none"), (False, "sentence")])
def test_texts_are_encoded(pair, hierarchy, tiny_model):
    """As a data set of the same texts is."""
    texts = ["the old ship sank", "a new ship", "", "ship"]
    if hierarchy != "none":
        texts = [f"{text} . {text} twice ." for text in texts]
    tokenizer = build_tokenizer([*texts, "what sank"], preprocessing="default", pair=pair, hierarchy=hierarchy)
    model = tiny_model(hierarchy=hierarchy, vocab_size=len(tokenizer), **({"query": "text"} if pair else {}))
    subject = Pooled(model, tokenizer)
    batch = subject.encode([(text, "what sank") for text in texts] if pair else texts)
    columns = {"instance_id": ["0", "1", "2", "3"], "text": texts} | ({"text_pair": ["what sank"] * 4} if pair else {})
    encoded = encode(Dataset.from_dict(columns), tokenizer)
    expected = subject.collate(encoded.to_list())
    assert all(torch.equal(batch[name], expected[name]) for name in expected if isinstance(expected[name], torch.Tensor))
    assert batch["instance_id"] == ["0", "1", "2", "3"] and bool(subject.predict(batch).isfinite().all())
    with pytest.raises(SubjectError, match="texts need the model's tokenizer"):
        Pooled(model).encode(texts)
