"""The benchmark: both sides give the same numbers, and its tables say what was timed."""

import importlib
import re

import pandas as pd
import pytest
import torch

from attnfaith import record
from attnfaith.recipes import library


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """Scripts find one another as `python recipes/NAME.py` has it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(library.folder()))
        yield


def script(name):
    return importlib.import_module(name)


@pytest.mark.slow
def test_the_naive_twin_gives_the_same_numbers():
    rows = script("benchmark").measure_length(3, 1)
    assert [row["step"] for row in rows] == [
        "evaluation",
        "gradient",
        "gradient of states in inputs",
        "leave-one-out, inputs",
        "leave-one-out, hidden",
        "Kendall with p-value",
        "read-out, for all experiments",
        "permutation, 100 draws",
        "adversary, search",
        "adversary, exact",
        "erasure, all orders",
        "minimal flip set",
        "training step",
    ]
    for row in rows:
        assert 0 < row["least_ms"] <= row["ms_per_text"] <= row["most_ms"]
        assert 0 < row["naive_twin_least_ms"] <= row["naive_twin_ms_per_text"] <= row["naive_twin_most_ms"]
        assert (row["weights"], row["times_faster_aim"]) == ("untrained", None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the benchmark trains where there is no SST, of fewer texts, read by fewer units."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("ATTNFAITH_DATA", raising=False)
        module = script("benchmark_training")
        patched.setattr(
            module, "GENERATED", "{length: [8, 12], redundancy: 2, sizes: {train: 400, validation: 20, test: 40}}"
        )
        small = {"model.embedding_size": 24, "model.hidden_size": 16, "training.learning_rate": 0.01}
        patched.setattr(module, "OVERRIDES", [word for key, value in small.items() for word in (f"--{key}", str(value))])
        return module.train(tmp_path_factory.mktemp("benchmark"))


def test_trained_weights_of_the_benchmark(trained, tmp_path):
    """They are not those that training starts from, and their texts are words of the test split."""
    module = script("benchmark_training")
    assert not trained.genuine
    accuracy = float(re.search(r"accuracy ([\d.]+) on 40 test texts", trained.said)[1])
    assert trained.said.startswith("Trained weights: planted_evidence, 400 training texts, seed 10, 4 epochs")
    assert accuracy > 0.8
    ids = module.windows(trained, 7, 5)
    words = [word for text in trained.rows["input_ids"] for word in text[1:-1]]
    assert ids[:, 1:-1].flatten().tolist() == words[:35] and ids[:, [0, -1]].tolist() == [[2, 3]] * 5

    given = []

    def turns(calls, repeats):
        for call in calls:
            call()
            given.append(record.load(tmp_path / "suite.parquet"))
        return [[1.0, 2.0, 9.0]] * 2

    alone, whole = module.suite(trained, turns, 3, tmp_path)
    assert (whole["seconds"], whole["least_seconds"], whole["most_seconds"], whole["texts"]) == (2.0, 1.0, 9.0, 40)
    assert (alone["seconds_aim"], whole["seconds_aim"]) == (None, module.SUITE_AIM)
    columns = {
        "importance_gradient",
        "importance_leave_one_out",
        "permuted_probs",
        "adversary_exact_jsd",
        "minimal_flip_size",
    }
    assert columns <= set(given[1].column_names) and not columns & set(given[0].column_names)


@pytest.mark.slow
def test_the_naive_twin_of_trained_weights(trained):
    """It has them too: the values are compared before anything is timed."""
    benchmark = script("benchmark")
    before = {name: values.clone() for name, values in trained.model.state_dict().items()}
    rows = benchmark.measure_length(3, 1, trained)
    assert {row["weights"] for row in rows} == {"trained"} and len(rows) == 13
    assert all(torch.equal(values, before[name]) for name, values in trained.model.state_dict().items())


def test_tables_of_benchmarks_say_where_they_were_taken(tmp_path):
    timing = script("benchmark_timing")
    timing.save([{"step": "a", "ms": 1.0}], tmp_path / "steps", f"CPU time. {timing.machine()}.", "Trained weights: some.")
    page = (tmp_path / "steps.md").read_text()
    assert (
        page.startswith("CPU time. ")
        and f"torch {torch.__version__}" in page
        and "\n\nTrained weights: some.\n\n| step |" in page
    )
    assert pd.read_csv(tmp_path / "steps.csv").to_dict("records") == [{"step": "a", "ms": 1.0}]


@pytest.fixture
def small_benchmark(monkeypatch):
    module = script("benchmark")
    monkeypatch.setattr(module, "STORIES", 6)
    monkeypatch.setattr(module, "DOCUMENTS", 5)
    return module


def test_the_naive_twins_of_pairs_and_documents_give_the_same_numbers(small_benchmark):
    rows = small_benchmark.measure_stories(10, 1) + small_benchmark.measure_documents(3, 4, 1)
    pairs, documents = "story of 8 to 12 words, question of 8", "2 to 4 sentences of 2 to 6 words"
    assert [[row[name] for name in ("step", "shape", "tokens", "texts", "naive_twin_texts")] for row in rows] == [
        ["leave-one-out, story and question", pairs, 10, 6, 6],
        ["training step, story and question", pairs, 10, 6, 6],
        ["leave-one-out of sentences, HAN", documents, 12, 5, 5],
        ["training step, HAN", documents, 12, 5, 5],
    ]
    assert all(row["ms_per_text"] > 0 and row["naive_twin_ms_per_text"] > 0 for row in rows)


def rotated(values):
    return [row.roll(1) for row in values]


@pytest.mark.parametrize(
    ("place", "wrong", "step"),
    [
        ("NaivePairTwin.read_question", lambda state: state * 0, "training step, story and question"),
        ("naive_leave_one_out", rotated, "leave-one-out, story and question"),
        ("NaiveDocumentTwin.read", lambda logits: logits * 0, "training step, HAN"),
        ("naive_leave_one_out_sentences", rotated, "leave-one-out of sentences, HAN"),
    ],
)
def test_nothing_is_timed_of_pairs_and_documents_whose_twin_differs(small_benchmark, monkeypatch, place, wrong, step):
    *owner, name = place.split(".")
    owner = getattr(small_benchmark, owner[0]) if owner else small_benchmark
    right = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: wrong(right(*given)))
    monkeypatch.setattr(small_benchmark, "timed", lambda *given: {})
    with pytest.raises(ValueError, match=f"^{step}: ours and the naive twin differ by"):
        small_benchmark.measure_stories(10, 1)
        small_benchmark.measure_documents(3, 4, 1)


def test_the_benchmark_refuses_twins_that_differ():
    with pytest.raises(ValueError, match="gradient: ours and the naive twin differ by 1.0e-01"):
        script("benchmark").same([[0.1]], [[0.2]], "gradient")


@pytest.mark.parametrize(
    "row", ["gradient_x_input_row", "gradient_norm_row", "integrated_gradients_row", "occlusion_row", "kernel_shap_row"]
)
def test_ours_and_captums_saliency_are_timed_when_they_agree(row, monkeypatch):
    saliency = script("benchmark_saliency")
    for name, value in {"TEXTS": {5: 2}, "STEPS": 4, "SAMPLES": 8, "VOCABULARY": 30}.items():
        monkeypatch.setattr(saliency, name, value)
    made = getattr(saliency, row)(5, 1)
    assert made["texts"] == 2 and made["ms_per_text"] > 0 and made["captum_ms_per_text"] > 0


@pytest.mark.slow
def test_training_steps_of_selections():
    """Each kind is timed beside the plain classifier, and every call is a step: weights differ after it."""
    training = script("benchmark_training")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "SIZES", {"vocab_size": 10_000, "embedding_size": 4, "hidden_size": 4})
        rows = training.selections(6, 4, 2)
        assert [row["model"] for row in rows] == ["plain", *training.SELECTORS]
        assert all(0 < row["least_ms"] <= row["ms_per_text"] <= row["most_ms"] for row in rows)
        assert rows[0]["times_plain"] == 1
        config = training.RationaleClassifierConfig(**training.SIZES, sampler="hardkuma")
        model = training.RationaleClassifierForSequenceClassification(config)
    before = model.selector.score.weight.clone()
    training._step(model, torch.randint(4, 99, (4, 8)), torch.tensor([0, 1, 0, 1]))()
    assert not torch.equal(model.selector.score.weight, before)
