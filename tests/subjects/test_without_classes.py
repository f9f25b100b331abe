"""Regressions and multi-label models: what needs classes refuses, with the reason; the rest explains an output."""

import numpy as np
import pytest
import torch

import attnfaith
from attnfaith import record
from attnfaith.importance.input_gradients import odds_slopes
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


def go(model, measures=(), **how):
    how = {"tokenizer": tokenizer(), "progress": False, **how}
    return attnfaith.measure(model, TEXTS, measures=list(measures), **how)


def test_a_record_holds_the_outputs_and_no_distribution(model, kind, tmp_path):
    expected = logits_of(model)
    if kind == "labels":
        expected = 1 / (1 + np.exp(-expected))
    made = go(model, output=tmp_path / "record.parquet")
    probs = np.array(made.table.column("probs").to_pylist())
    np.testing.assert_allclose(probs, expected, atol=1e-6)
    assert not record.has_classes(attnfaith.load(tmp_path / "record.parquet").table)
    with pytest.raises(record.RecordError, match="classes"):
        record.concatenate([made.table, go(classifier("bert")).table], mix_versions=True)


@pytest.mark.parametrize("name", ["leave_one_out", "permutation", "map_permutation", "adversary_search", "erasure"])
def test_what_compares_distributions_refuses_with_the_reason(model, name):
    subject = SelfAttention(model, tokenizer(), {"layers": 0, "head": 0})
    with pytest.raises((SubjectError, MeasurementError), match=f"'{name}' needs .*'classes'.*(regression|exclude)"):
        go(subject, tokenizer=None, measures=[], add=[name])


@pytest.mark.parametrize("name", ["integrated_gradients", "occlusion", "kernel_shap"])
def test_the_others_explain_the_output_that_is_named(model, kind, name):
    """The parts of a text sum to the logit less that of the baseline, for every output."""
    count = KINDS[kind]["num_labels"]
    for target in ["predicted", *range(count)]:
        made = go(model, [name], options={name: {"target": target}})
        scores = [np.array(row) for row in made.table.column(f"importance_{name}").to_pylist()]
        assert all(np.isfinite(row).all() and np.abs(row).max() > 0 for row in scores)
        if name == "occlusion":
            logits = logits_of(model)
            place = logits[0].argmax() if target == "predicted" else target
            without = logits_of(model, ["old ship sank slowly"])
            assert scores[0][0] == pytest.approx(logits[0, place] - without[0, place], abs=1e-5)
    with pytest.raises(MeasurementError, match="output='probability'"):
        go(model, [name], options={name: {"output": "probability"}})
    with pytest.raises(MeasurementError, match="class 3 is no possible answer"):
        go(model, [name], options={name: {"target": 3}})


def test_gradient_is_that_of_the_value_or_of_the_label_s_probability(model, kind):
    """|sum_d x_d df/dx_d| by autograd, through attention: of the value itself, or of the sigmoid of the largest logit."""
    made = go(model, ["gradient_norm"]).table.column("importance_gradient_norm").to_pylist()
    batch = tokenizer()(TEXTS[:1], return_tensors="pt")
    embedded = model.get_input_embeddings()(batch.pop("input_ids")).detach().requires_grad_()
    model(inputs_embeds=embedded, **batch).logits.max().backward()
    np.testing.assert_allclose(made[0], embedded.grad.norm(dim=-1)[0, 1:-1].numpy(), rtol=1e-4, atol=1e-7)
    slopes, largest = (embedded.grad * embedded).detach().sum(-1)[0, 1:-1].abs().numpy(), logits_of(model, TEXTS[:1]).max()
    factor = np.exp(-np.logaddexp(0, largest) - np.logaddexp(0, -largest)) if kind == "labels" else 1.0
    (found,) = go(model, ["gradient"]).table.column("importance_gradient").to_pylist()[:1]
    np.testing.assert_allclose(found, factor * slopes, rtol=1e-4, atol=1e-7)
    subject = SelfAttention(model, tokenizer())
    (((f, *_), (fixed,), _),) = odds_slopes(subject, subject.encode(TEXTS[:1]), [True])
    assert f.item() == pytest.approx(largest, abs=1e-5)
    held = go(model, ["gradient_attention_held"]).table.column("importance_gradient_attention_held").to_pylist()
    np.testing.assert_allclose(held[0], factor * fixed[0, 1:-1].abs().numpy(), rtol=1e-4)


@pytest.mark.slow
def test_a_report_a_view_and_a_page_are_written(model, kind, tmp_path):
    made = go(model, ["gradient", "integrated_gradients"])
    assert made.report(tmp_path / "report").is_file()
    assert ("value" if kind == "values" else "output ") in repr(attnfaith.view(model, TEXTS[0], tokenizer=tokenizer()))
