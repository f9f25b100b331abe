"""Recipes of sentence pairs carried out: model, translations, record and report; resumed, measured anew and refused."""

import json
from pathlib import Path

import pytest

from attnfaith import recipes, record, runs
from attnfaith.data.pairs import load_pairs
from attnfaith.measurement.registry import MeasurementError
from attnfaith.runs import RunError
from attnfaith.study.plan import complete
from attnfaith.support.errors import AttnfaithError


pytestmark = pytest.mark.slow
SIZES = {"train": 48, "validation": 8, "test": 8}


@pytest.fixture
def recipe(tmp_path):
    """A factory of a recipe that trains a small copier; `sections` replace keys."""

    def make(name="run", **sections):
        tree = {
            "name": "tiny",
            "output_dir": str(tmp_path / name),
            "seed": 3,
            "data": {"name": "copy", "arguments": {"vocabulary_size": 6, "length": [2, 4], "sizes": SIZES}},
            "model": {"type": "gru", "embedding_size": 8, "hidden_size": 8},
            "training": {"num_train_epochs": 2, "arguments": {"disable_tqdm": True}},
            "measure": {"producers": ["attention", "gradient"], "limit": 4},
            "report": {"page": False},
        }
        for section, keys in sections.items():
            tree[section] = {**tree[section], **keys}
        return recipes.build(tree)

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
def test_a_run_ends_with_a_record_and_a_report(recipe, model):
    copier = recipe(model=model, report={"page": True})
    page = runs.run(copier)
    folder = Path(copier.output_dir)
    table = record.load(folder / "record.parquet")
    assert table.num_rows == 4 and record.of_sequences(table)
    layers = 1 if copier.model.type == "gru" else copier.model.num_hidden_layers
    pairs = {row["instance_id"]: row for row in load_pairs("copy", **copier.data.arguments).splits["test"]}
    for row, attention in enumerate(record.rows(table, "alignment_attention_mean")):
        pair, gold = pairs[table.column("instance_id")[row].as_py()], record.rows(table, "gold_links")[row]
        assert table.column("tokens")[row].as_py() == pair["source"].split()
        assert (gold == 2).sum() == len(pair["links"]) and gold.shape == attention.shape[2:]
        assert attention.shape[:2] == (layers, 2)
    state = json.loads((folder / "run.json").read_text())
    assert state["status"] == "complete" and state["translation"]["pairs"] == 4
    assert len((folder / "translations.txt").read_text().splitlines()) == 4
    assert "words in place" in page.read_text() and complete(copier)
    assert record.settings(table)[0]["run"]["translation"] == state["translation"]


def test_a_run_of_pairs_is_repeated_and_resumed(recipe, tmp_path):
    for name in ("first", "again"):
        runs.run(recipe(name))
    first, again = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("first", "again"))
    assert first == again
    with pytest.raises(RunError, match="holds a run already"):
        runs.run(recipe("first"))
    runs.run(recipe("first", measure={"producers": ["attention", "knock_out"]}), resume=True)
    assert any("knock_out" in name for name in record.load(tmp_path / "first" / "record.parquet").column_names)
    other = runs.measure_run(tmp_path / "first", recipe("first", measure={"limit": 2}), tmp_path / "other.parquet")
    assert record.load(other).num_rows == 2


def test_a_model_without_attention_has_a_record_of_predictions(recipe):
    blind = recipe(model={"projection": "none"}, measure={"producers": []})
    runs.run(blind)
    names = record.load(Path(blind.output_dir) / "record.parquet").column_names
    assert "target_probs" in names and complete(blind) and not [name for name in names if name.startswith("alignment_")]
    with pytest.raises(MeasurementError, match="cross-attention"):
        runs.run(recipe("other", model={"projection": "none"}))


def test_own_files_and_their_change(recipe, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        for kind, text in {"src": "a b\nb\n", "trg": "A B\nB\n", "align": "0-0 1-1\n0-0\n"}.items():
            (folder / f"{split}.{kind}").write_text(text * 6)
    files = {"name": None, "arguments": {}, "path": str(folder)}
    runs.run(recipe(data=files))
    assert record.load(tmp_path / "run" / "record.parquet").column("dataset")[0].as_py() == "mine"
    (folder / "test.align").write_text("0-1 1-0\n0-0\n" * 6)
    with pytest.raises(RunError, match="'mine' has changed since .* was trained: other texts or labels in test"):
        runs.run(recipe(data=files, measure={"producers": ["attention"]}), resume=True)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"measure": {"producers": ["gradient_norm"]}}, "gradient_norm"),
        ({"measure": {"split": "dev"}}, "measure.split='dev' does not exist"),
        ({"data": {"max_length": 1}}, "data.max_length=1 leaves no pair of train"),
        ({"data": {"arguments": {"length": "a"}}}, "data.arguments"),
        ({"model": {"encoder": "lstm"}}, "encoder='lstm' is not known"),
        ({"data": {"limits": {"dev": 3}}}, "limits names the split 'dev'"),
    ],
    ids=str,
)
def test_refused_before_the_training(recipe, sections, message):
    with pytest.raises(AttnfaithError, match=message):
        runs.run(recipe(**sections))
    assert not (Path(recipe().output_dir) / "model").exists()
