"""Regressions and multi-label models: what needs classes refuses, with the reason; the rest explains an output."""

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import record
from attnfaith.measurement.registry import MeasurementError
from attnfaith.subjects import SelfAttention, SubjectError
from tests.small_classifiers import classifier, tokenizer


TEXTS = ["the old ship sank slowly", "a good film"]
KINDS = {
    "values": {"num_labels": 1},
    "several values": {"num_labels": 2, "problem_type": "regression"},
    "labels": {"num_labels": 3, "problem_type": "multi_label_classification"},
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    return classifier("bert", **KINDS[kind])


def logits_of(model, texts=TEXTS):
    with torch.no_grad():
        return model(**tokenizer()(texts, padding=True, return_tensors="pt")).logits.double().numpy()


def measured(model, measures=(), **how):
    how = {"tokenizer": tokenizer(), "progress": False, **how}
    return attnfaith.measure(model, TEXTS, measures=list(measures), **how)


def test_a_record_holds_the_outputs_and_no_distribution(model, kind, tmp_path):
    outputs = logits_of(model)
    if kind == "labels":
        outputs = 1 / (1 + np.exp(-outputs))
    own = measured(model, output=tmp_path / "record.parquet")
    np.testing.assert_allclose(np.array(own.table.column("probs").to_pylist()), outputs, atol=1e-6)
    stored = attnfaith.load(tmp_path / "record.parquet").table
    assert record.column_of(stored.schema.field("probs")) in record.OUTPUTS.values()
    with pytest.raises(record.RecordError, match="classes"):
        record.concatenate([own.table, measured(classifier("bert")).table])


@pytest.mark.parametrize("name", ["leave_one_out", "permutation", "map_permutation"])
def test_measures_that_compare_distributions_refuse_with_the_reason(model, name):
    subject = SelfAttention(model, tokenizer(), {"layers": 0, "head": 0})
    with pytest.raises((SubjectError, MeasurementError), match=f"'{name}' needs .*'classes'.*(regression|exclude)"):
        measured(subject, tokenizer=None, measures=[], add=[name])


@pytest.mark.parametrize("name", ["integrated_gradients", "occlusion", "kernel_shap"])
def test_the_others_explain_the_output_that_is_named(model, kind, name):
    logits, shorter = logits_of(model), logits_of(model, ["old ship sank slowly"])
    for target in ["predicted", *range(KINDS[kind]["num_labels"])]:
        table = measured(model, [name], options={name: {"target": target}}).table
        scores = [np.array(row) for row in table.column(f"importance_{name}").to_pylist()]
        assert all(np.isfinite(row).all() and np.abs(row).max() > 0 for row in scores)
        if name == "occlusion":
            place = logits[0].argmax() if target == "predicted" else target
            assert scores[0][0] == pytest.approx(logits[0, place] - shorter[0, place], abs=1e-5)
    for options, message in (({"output": "probability"}, "output='probability'"), ({"target": 3}, "no class 3")):
        with pytest.raises(MeasurementError, match=message):
            measured(model, [name], options={name: options})


def test_gradient_is_that_of_the_value_or_of_the_label_s_probability(model, kind):
    """|sum_d x_d df/dx_d| by autograd, through attention: of the value itself, or of the sigmoid of the largest logit."""
    table = measured(model, ["gradient_norm", "gradient"]).table
    batch = tokenizer()(TEXTS[:1], return_tensors="pt")
    embedded = model.get_input_embeddings()(batch.pop("input_ids")).detach().requires_grad_()
    model(inputs_embeds=embedded, **batch).logits.max().backward()
    norms = embedded.grad.norm(dim=-1)[0, 1:-1].numpy()
    np.testing.assert_allclose(table.column("importance_gradient_norm")[0].as_py(), norms, rtol=1e-4, atol=1e-7)
    slopes, largest = (embedded.grad * embedded).detach().sum(-1)[0, 1:-1].abs().numpy(), logits_of(model, TEXTS[:1]).max()
    factor = np.exp(-np.logaddexp(0, largest) - np.logaddexp(0, -largest)) if kind == "labels" else 1.0
    np.testing.assert_allclose(table.column("importance_gradient")[0].as_py(), factor * slopes, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_a_report_a_view_and_a_page_are_written(model, kind, tmp_path):
    assert measured(model, ["gradient", "integrated_gradients"]).report(tmp_path / "report").is_file()
    assert ("value" if kind == "values" else "output ") in repr(attnfaith.view(model, TEXTS[0], tokenizer=tokenizer()))
