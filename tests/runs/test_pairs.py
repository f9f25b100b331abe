"""Recipes of sentence pairs carried out: model, translations, record and report; resumed, measured anew and refused."""

import json
from pathlib import Path

import pytest

from attnfaith import recipes, record, runs
from attnfaith.data.pairs import load_pairs
from attnfaith.measurement.registry import MeasurementError
from attnfaith.study.plan import complete


pytestmark = pytest.mark.slow
DATA = {
    "name": "copy",
    "arguments": {"vocabulary_size": 6, "length": [2, 4], "sizes": {"train": 48, "validation": 8, "test": 8}},
}


@pytest.fixture
def recipe(tmp_path):
    """A factory of a recipe that trains a small copier; `sections` replace keys."""

    def make(name="run", **sections):
        tree = {
            "name": "tiny",
            "output_dir": str(tmp_path / name),
            "seed": 3,
            "data": DATA,
            "model": {"type": "gru", "embedding_size": 8, "hidden_size": 8},
            "training": {"num_train_epochs": 2, "arguments": {"disable_tqdm": True}},
            "measure": {"producers": ["attention", "gradient"], "limit": 4},
            "report": {"page": False},
        }
        return recipes.build(tree | {section: {**tree[section], **keys} for section, keys in sections.items()})

    return make


@pytest.mark.gate
@pytest.mark.parametrize(
    "model",
    [
        {"recurrence": "luong", "alignment": "dot", "projection": "sparsemax"},
        {"type": "marian", "embedding_size": 300, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1},
    ],
    ids=["gru", "marian"],
)
def test_a_run_ends_with_a_record_and_a_report_and_is_measured_anew(recipe, model, tmp_path):
    copier = recipe(model=model, report={"page": True})
    page = runs.run(copier)
    folder = Path(copier.output_dir)
    table = record.load(folder / "record.parquet")
    assert table.num_rows == 4 and record.of_sequences(table)
    pairs = {row["instance_id"]: row for row in load_pairs("copy", **copier.data.arguments).splits["test"]}
    for row, attention in enumerate(record.rows(table, "alignment_attention_mean")):
        pair, gold = pairs[table.column("instance_id")[row].as_py()], record.rows(table, "gold_links")[row]
        assert table.column("tokens")[row].as_py() == pair["source"].split()
        assert (gold == 2).sum() == len(pair["links"]) and attention.shape == (1, 2, *gold.shape)
    state = json.loads((folder / "run.json").read_text())
    assert state["status"] == "complete" and state["translation"]["pairs"] == 4
    assert len((folder / "translations.txt").read_text().splitlines()) == 4
    assert "words in place" in page.read_text() and complete(copier)
    assert record.settings(table)[0]["run"]["translation"] == state["translation"]
    other = runs.measure_run(folder, recipe(model=model, measure={"producers": ["knock_out"]}), tmp_path / "other.parquet")
    assert any("knock_out" in name for name in record.load(other).column_names)


def test_own_files_and_a_model_without_attention(recipe, tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        for kind, text in {"src": "a b\nb\n", "trg": "A B\nB\n", "align": "0-0 1-1\n0-0\n"}.items():
            (folder / f"{split}.{kind}").write_text(text * 6)
    blind = {"data": {"name": None, "arguments": {}, "path": str(folder), "max_length": 2}, "model": {"projection": "none"}}
    with pytest.raises(MeasurementError, match="cross-attention"):
        runs.run(recipe("other", **blind))
    runs.run(recipe(**blind, measure={"producers": []}))
    assert "mine: pairs of validation left out, empty or too long: 6\n" in capsys.readouterr().out
    table = record.load(tmp_path / "run" / "record.parquet")
    assert table.column("dataset")[0].as_py() == "mine" and "target_probs" in table.column_names
    assert not [name for name in table.column_names if name.startswith("alignment_")]
