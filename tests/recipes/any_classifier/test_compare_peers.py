"""recipes/any_classifier/compare_peers.py: values of libraries are held against each other; the table says of what."""

import importlib
import importlib.util

import pandas as pd
import pytest
import torch

from attnfaith.recipes import library
from tests.small_classifiers import WORDS, classifier, tokenizer


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder() / "any_classifier"))
    return importlib.import_module("compare_peers")


def test_the_table_has_values_times_and_versions(peers, monkeypatch, tmp_path):
    classifier("bert").save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    texts = [" ".join(WORDS[start : start + 6]) for start in range(4)]
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "texts.parquet")
    arguments = ["compare_peers.py", str(tmp_path / "model"), str(tmp_path / "texts.parquet"), "--texts", "3", "--long", "1"]
    monkeypatch.setattr(
        "sys.argv", [*arguments, "--lengths", "7", "--output", str(tmp_path / "peers"), "--named", "a small one"]
    )
    find = importlib.util.find_spec
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: find(name) if name == "captum" else None)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    peers.main()
    page, table = (tmp_path / "peers.md").read_text(), pd.read_csv(tmp_path / "peers.csv")
    assert ". captum " in page and "Model: a small one. 3 texts as they are, and 1 of each length" in page
    assert str(tmp_path) not in page and page.startswith("CPU time of one thread")
    missing = table[table["definition"] == "not installed"]
    assert set(missing["peer"]) == {"interpreto", "explainkit"} and len(missing) == 8
    rows = table[table["peer"] == "captum"].set_index("tokens")
    assert rows.index.tolist() == ["those of the texts", "7"] and rows["texts"].tolist() == [3, 1]
    assert (rows["largest_difference"] < 1e-5).all() and (rows["largest_value"] > 1e-3).all()
    assert (rows["times_faster"] == rows["theirs_ms"] / rows["ours_ms"]).all() and (rows["forward_passes"] > 1).all()
    assert (rows["ours_reads"] == 19).all() and (rows["theirs_reads"] == 16).all()
