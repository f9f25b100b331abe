"""The benchmark: functions beside their twins are timed where both give the same numbers, and a table has a row for each."""

import importlib
from functools import partial

import pandas as pd
import pytest
import torch

from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification
from attnfaith.recipes import library


@pytest.mark.slow
def test_a_small_benchmark_has_a_row_for_each_test_beside_its_twin(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(library.folder()))
    benchmark = importlib.import_module("benchmark")
    monkeypatch.setattr(benchmark.naive, "adversary", partial(benchmark.naive.adversary, steps=5))
    monkeypatch.setattr(importlib.import_module("benchmark_timing"), "TURNS", 1)
    torch.manual_seed(0)
    config = AttentionClassifierConfig(vocab_size=30, embedding_size=8, hidden_size=8)
    model = AttentionClassifierForSequenceClassification(config).eval()
    ids = torch.randint(4, 30, (2, 7))
    ids[:, 0], ids[:, -1] = 2, 3
    bench = benchmark.Benchmark(1e-4)
    twin, lengths = benchmark.naive.NaiveTwin(model).eval(), torch.full((2,), 7)
    benchmark.add_tests(bench, model, twin, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, lengths)
    bench.save(tmp_path / "steps", "About it.")
    table, page = pd.read_csv(tmp_path / "steps.csv"), (tmp_path / "steps.md").read_text()
    assert table["what"].tolist() == ["permutation, 100 orders", "adversary, search", "adversary, exact", "minimal flip set"]
    assert (table["ratio"] == table["twin_ms"] / table["ms"]).all()
    assert (table[["ms", "repetitions", "threads"]] > 0).all(axis=None)
    assert f"torch {torch.__version__}" in table["versions"][0] and page.startswith("About it.\n\n")
    with pytest.raises(ValueError, match="permutation"):
        bench.add("permutation", 5, lambda: [[0.1]], lambda: [[0.2]], within=1e-5)
    assert len(bench.rows) == 4
