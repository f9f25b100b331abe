"""Scripts of the recipes at small size: architectures, other libraries, the benchmark, the cost of DiffMask."""

import importlib
from functools import partial

import pandas as pd
import pytest
import torch

from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification
from attnfaith.recipes import folder as shipped
from tests.small_classifiers import WORDS, architectures, classifier, tokenizer


FOLDER = shipped() / "any_classifier"
TRIED = (  # a type that works in every way of reading, and refusals of every kind
    *("bert", "gpt2", "xlnet", "t5", "bart", "zamba2", "gpt_oss", "layoutlm", "gemma3"),
    *("fnet", "longformer", "funnel", "diffllama", "perceiver"),
)
ROWS = [*(("CLASSIFIERS", kind) for kind in TRIED), *(("SEQUENCES", kind) for kind in ("marian", "fsmt", "t5"))]


def stored(models):
    return pd.read_csv(FOLDER / f"{models.stem}.csv", keep_default_na=False, na_values=[""]).set_index("type")


def test_the_table_of_architectures_has_all_types_and_most_of_them_work():
    table = stored(architectures().CLASSIFIERS)
    works = table[table["verdict"] == "works"]
    assert table["class"].to_dict() == architectures().CLASSIFIERS.types() and len(table) == 127 and len(works) >= 100
    assert table.loc[table["verdict"] != "works", "reason"].notna().all()
    assert (works["difference"] == 0).all() and (works["own_difference"] < 1e-5).all() and (works["change"] > 1e-4).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ROWS)
def test_an_architecture_is_read_as_the_table_has_it(name, kind):
    models = getattr(architectures(), name)
    row, expected = architectures().tried(kind, models), stored(models).loc[kind]
    for column in {"class", "verdict", *models.columns} - {"difference", "own_difference", "change"}:
        assert row.get(column) == expected[column] or (pd.isna(expected[column]) and column not in row), column
    if row["verdict"] != "works":
        assert row["reason"] == expected["reason"]
    elif "change" in row:
        assert row["difference"] == 0 and row["change"] == pytest.approx(expected["change"], rel=1e-2)


def test_captum_gives_the_same_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    peers = importlib.import_module("compare_peers")
    monkeypatch.setattr(peers, "LIBRARIES", ["captum"])
    texts = [" ".join(WORDS[start : start + 6]) for start in range(3)]
    rows = pd.DataFrame(peers.compare(peers.Peers(classifier("bert"), tokenizer()), texts, lengths=(7,), long=1))
    assert rows[["peer", "tokens", "texts"]].to_numpy().tolist() == [["captum", "those of the texts", 3], ["captum", "7", 1]]
    assert (rows["largest_difference"] < 1e-5).all() and (rows["largest_value"] > 1e-3).all()


@pytest.mark.slow
def test_a_benchmark_has_a_row_for_each_test_beside_its_twin(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(shipped()))
    benchmark = importlib.import_module("benchmark")
    monkeypatch.setattr(benchmark.naive, "adversary", partial(benchmark.naive.adversary, steps=5))
    monkeypatch.setattr(importlib.import_module("benchmark_timing"), "TURNS", 1)
    torch.manual_seed(0)
    config = AttentionClassifierConfig(vocab_size=30, embedding_size=8, hidden_size=8)
    model, ids = AttentionClassifierForSequenceClassification(config).eval(), torch.randint(4, 30, (2, 7))
    ids[:, 0], ids[:, -1] = 2, 3
    bench, twin = benchmark.Benchmark(1e-4), benchmark.naive.NaiveTwin(model).eval()
    benchmark.add_tests(bench, model, twin, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.full((2,), 7))
    bench.save(tmp_path / "steps", "About it.")
    table = pd.read_csv(tmp_path / "steps.csv")
    assert table["what"].tolist() == ["permutation, 100 orders", "adversary, search", "adversary, exact", "minimal flip set"]
    assert (table["ratio"] == table["twin_ms"] / table["ms"]).all() and (table[["ms", "repetitions"]] > 0).all(axis=None)
    with pytest.raises(ValueError, match="permutation"):
        bench.add("permutation", 5, lambda: [[0.1]], lambda: [[0.2]], within=1e-5)
