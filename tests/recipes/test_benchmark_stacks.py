"""The benchmark of stacks of layers: both sides give the same numbers, and nothing is timed where they do not."""

import importlib

import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

from attnfaith.recipes import library
from attnfaith.subjects import SelfAttention
from tests.small_classifiers import classifier, tokenizer


SMALL = {
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24},
    **{"vocab_size": 60, "initializer_range": 0.5},
}
TWINS = {"gradient_x_input", "integrated_gradients", "leave_one_out", "occlusion", "identifiability"}
BERTS = TWINS | {"decompx", "value_zeroing"}


@pytest.fixture
def stacks(monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder()))
    module = importlib.import_module("benchmark_stacks")
    monkeypatch.setattr(module, "SIZES", SMALL)
    return module


def test_every_measure_stands_beside_a_forward_pass_and_its_twin(stacks):
    subject, said = stacks.subject_of(None)
    rows = stacks.measure_length(subject, 12, 1)
    assert [row["measure"] for row in rows] == list(stacks.MEASURES) and said.endswith("random weights")
    assert {row["measure"] for row in rows if row["naive_ms"] is not None} == BERTS
    for row in rows:
        assert row["tokens"] == 12 and row["repeats"] == 1
        assert row["forward_passes"] == row["ms"] / row["forward_ms"] > 0
        assert row["naive_ms"] is None or row["times_faster"] == row["naive_ms"] / row["ms"] > 0


@pytest.mark.parametrize("kind", ["distilbert", "gpt2"])
def test_of_another_model_twins_of_one_architecture_are_left_out(stacks, kind):
    subject = SelfAttention(classifier(kind), tokenizer(kind != "gpt2"))
    rows = stacks.measure_length(subject, 9, 1)
    assert {row["measure"] for row in rows if row["naive_ms"] is not None} == TWINS


@pytest.mark.parametrize("name", sorted(BERTS - {"identifiability"}))
def test_nothing_is_timed_where_the_twin_differs(stacks, monkeypatch, name):
    right = getattr(stacks.BertTwin, name)
    monkeypatch.setattr(stacks.BertTwin, name, lambda twin: right(twin).roll(1))
    monkeypatch.setattr(stacks, "MEASURES", {name: stacks.MEASURES[name]})
    monkeypatch.setattr(stacks, "timed", lambda *given: {})
    with pytest.raises(ValueError, match=f"^{name}, 12 tokens: ours and the naive twin differ by"):
        stacks.measure_length(stacks.subject_of(None)[0], 12, 1)


def test_nothing_is_timed_where_the_solver_changes_an_output_or_nothing_is_compared(stacks, monkeypatch):
    call = stacks.Solver.__call__
    monkeypatch.setattr(stacks.Solver, "__call__", lambda solver: [one[::-1] for one in call(solver)])
    monkeypatch.setattr(stacks, "MEASURES", {"identifiability": {}})
    with pytest.raises(ValueError, match="^identifiability: ours and the naive twin differ by"):
        stacks.measure_length(stacks.subject_of(None)[0], 12, 1)
    with pytest.raises(ValueError, match="^gradient: all scores are 0"):
        stacks.check(torch.zeros(3).numpy(), torch.zeros(3).numpy(), "gradient")


def test_the_table_says_what_was_timed(stacks, monkeypatch, tmp_path):
    model, words = classifier("bert"), tokenizer()
    model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    ids = stacks.text_of(SelfAttention(model, AutoTokenizer.from_pretrained(tmp_path / "model")), 7)
    assert ids.shape == (1, 7) and ids[0, [0, -1]].tolist() == [words.cls_token_id, words.sep_token_id]
    monkeypatch.setattr(stacks, "MEASURES", {"gradient": {}, "occlusion": {}})
    given = ["benchmark_stacks.py", "--model", str(tmp_path / "model"), "--tokens", "5", "7", "--repeats", "2"]
    monkeypatch.setattr("sys.argv", [*given, "--output", str(tmp_path / "stacks")])
    threads = torch.get_num_threads()
    try:
        stacks.main()
    finally:
        torch.set_num_threads(threads)
    page, table = (tmp_path / "stacks.md").read_text(), pd.read_csv(tmp_path / "stacks.csv")
    assert page.startswith("CPU time of one thread, one text, ") and "transformers " in page
    assert "Model: BertForSequenceClassification, 2 layers of" in page and str(tmp_path) not in page
    assert list(table["tokens"]) == [5, 5, 7, 7] and list(table["repeats"]) == [2] * 4
    assert table["naive_ms"].isna().tolist() == [True, False] * 2
