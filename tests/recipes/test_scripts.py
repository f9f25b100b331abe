"""Scripts of the recipes at small size: the benchmark and the cost of DiffMask."""

import importlib
from functools import partial

import pandas as pd
import pytest
import torch

from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification, runs
from attnfaith.recipes import library


pytestmark = pytest.mark.slow


def test_a_benchmark_has_a_row_for_each_test_beside_its_twin(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(library.folder()))
    benchmark = importlib.import_module("benchmark")
    monkeypatch.setattr(benchmark.naive, "adversary", partial(benchmark.naive.adversary, steps=5))
    monkeypatch.setattr(importlib.import_module("benchmark_timing"), "TURNS", 1)
    torch.manual_seed(0)
    config = AttentionClassifierConfig(vocab_size=30, embedding_size=8, hidden_size=8)
    model, ids = AttentionClassifierForSequenceClassification(config).eval(), torch.randint(4, 30, (2, 7))
    ids[:, 0], ids[:, -1] = 2, 3
    bench, twin = benchmark.Benchmark(1e-4), benchmark.naive.NaiveTwin(model).eval()
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    benchmark.add_tests(bench, model, twin, batch, torch.full((2,), 7))
    bench.save(tmp_path / "steps", "About it.")
    table, page = pd.read_csv(tmp_path / "steps.csv"), (tmp_path / "steps.md").read_text()
    assert table["what"].tolist() == ["permutation, 100 orders", "adversary, search", "adversary, exact", "minimal flip set"]
    assert (table["ratio"] == table["twin_ms"] / table["ms"]).all() and (table[["ms", "repetitions"]] > 0).all(axis=None)
    assert f"torch {torch.__version__}" in table["versions"][0] and page.startswith("About it.\n\n")
    with pytest.raises(ValueError, match="permutation"):
        bench.add("permutation", 5, lambda: [[0.1]], lambda: [[0.2]], within=1e-5)


def test_the_cost_of_diffmask(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder() / "diffmask"))
    cost = importlib.import_module("cost")
    options = {"diffmask": {"epochs": 1, "train_texts": 8, "validation_texts": 4}}
    recipe = tiny_recipe(measure={"producers": ["diffmask"], "options": options}, report__page=False)
    runs.run(recipe)
    cost.main([recipe.output_dir, "--texts", "4", "--seconds", "0.001", "--output", str(tmp_path / "costs")])
    table = pd.read_csv(tmp_path / "costs" / "cost_run.csv")
    assert list(table["what"][:4]) == ["reading", "diffmask", "integrated gradients", "occlusion"] and len(table) == 5
    assert (table["texts"] == 4).all() and (table["ms_per_text"] > 0).all() and table["readings"][0] == 1
    assert {"multiplier", "validation_constraint"} <= set(pd.read_csv(tmp_path / "costs" / "training_run.csv"))
    for path in (tmp_path / "run" / "gates").iterdir():
        path.unlink()
    with pytest.raises(SystemExit, match="has no trained gates: attnfaith measure"):
        cost.main([recipe.output_dir, "--output", str(tmp_path)])
