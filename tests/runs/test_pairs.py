"""Recipes of sentence pairs carried out: model, translations, record and report; going on, measuring anew, bad input."""

import json
from pathlib import Path

import pytest
import torch

from attnfaith import recipes, record, runs
from attnfaith.data.pairs import load_pairs
from attnfaith.measurement.registry import MeasurementError
from attnfaith.runs import RunError
from attnfaith.study.plan import complete
from attnfaith.support.errors import AttnfaithError


pytestmark = pytest.mark.slow


@pytest.fixture
def recipe(tmp_path):
    """A factory of a recipe that trains a small copier in a moment; keys of its sections replace those."""

    def make(name="run", **sections):
        tree = {
            "name": "tiny",
            "output_dir": str(tmp_path / name),
            "seed": 3,
            "data": {"name": "copy", "arguments": {"vocabulary_size": 6, "length": [2, 4], "sizes": SIZES}},
            "model": {"type": "gru", "embedding_size": 8, "hidden_size": 8},
            "training": {"num_train_epochs": 2, "arguments": {"disable_tqdm": True}},
            "measure": {"producers": ["attention", "gradient"], "limit": 4},
        }
        for section, keys in sections.items():
            tree[section] = {**tree.get(section, {}), **keys}
        return recipes.build(tree)

    return make


SIZES = {"train": 48, "validation": 8, "test": 8}


@pytest.mark.parametrize(
    "model",
    [
        {"recurrence": "luong", "alignment": "dot", "projection": "sparsemax"},
        {"type": "marian", "embedding_size": 300, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1},
    ],
    ids=["gru", "marian"],
)
@pytest.mark.gate
def test_a_run_ends_with_a_record_and_a_report(recipe, model):
    made = recipe(model=model)
    page = runs.run(made)
    folder = Path(made.output_dir)
    table = record.load(folder / "record.parquet")
    assert table.num_rows == 4 and record.of_sequences(table)
    layers = 1 if made.model.type == "gru" else made.model.num_hidden_layers
    loaded = load_pairs("copy", **made.data.arguments)
    by_name = {row["instance_id"]: row for row in loaded.splits["test"]}
    for row, attention in enumerate(record.rows(table, "alignment_attention_mean")):
        given = by_name[table.column("instance_id")[row].as_py()]
        assert table.column("tokens")[row].as_py() == given["source"].split()
        gold = record.rows(table, "gold_links")[row]
        assert (gold == 2).sum() == len(given["links"]) and gold.shape == attention.shape[2:]
        assert attention.shape[:2] == (layers, 2)
    identity = record.from_row({name: table.column(name)[0].as_py() for name in record.IDENTITY_COLUMNS})
    assert (identity.dataset, identity.split, identity.seed) == ("copy", "test", 3)
    assert identity.objective == "translation"
    state = json.loads((folder / "run.json").read_text())
    assert state["status"] == "complete" and state["translation"]["pairs"] == 4
    assert len((folder / "translations.txt").read_text().splitlines()) == 4
    assert "words in place" in page.read_text() and complete(made)
    (settings,) = record.settings(table)
    assert settings["run"]["translation"] == state["translation"], "a table reads it from the record"


def test_the_same_recipe_gives_the_same_model_and_goes_on(recipe, tmp_path):
    first = recipe("first")
    runs.run(first)
    weights = [runs.load_model(Path(first.output_dir)).state_dict()]
    again = recipe("again")
    runs.run(again)
    weights.append(runs.load_model(Path(again.output_dir)).state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    with pytest.raises(RunError, match="holds a run already"):
        runs.run(first)
    before = (tmp_path / "first" / "record.parquet").read_bytes()
    runs.run(first, resume=True)
    assert (tmp_path / "first" / "record.parquet").read_bytes() == before, "nothing is left to do"
    more = recipe("first", measure={"producers": ["attention", "knock_out"]})
    runs.run(more, resume=True)
    assert any("knock_out" in name for name in record.load(tmp_path / "first" / "record.parquet").column_names)
    other = tmp_path / "other.parquet"
    assert runs.measure_run(first.output_dir, recipe("first", measure={"limit": 2}), other) == other
    assert record.load(other).num_rows == 2


def test_a_model_without_attention_is_measured_by_what_it_says(recipe):
    made = recipe(model={"projection": "none"}, measure={"producers": []})
    runs.run(made)
    table = record.load(Path(made.output_dir) / "record.parquet")
    assert "target_probs" in table.column_names and complete(made)
    assert not [name for name in table.column_names if name.startswith("alignment_")]
    with pytest.raises(MeasurementError, match="cross-attention"):
        runs.run(recipe("other", model={"projection": "none"}))
    assert not (Path(recipe("other").output_dir) / "model").exists(), "before it is trained"


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        for kind, text in {"src": "a b\nb\n", "trg": "A B\nB\n", "align": "0-0 1-1\n0-0\n"}.items():
            (folder / f"{split}.{kind}").write_text(text * 6)
    return folder


def test_own_files_and_their_change(recipe, own):
    files = {"name": None, "arguments": {}, "path": str(own)}
    made = recipe(data=files)
    runs.run(made)
    assert record.load(Path(made.output_dir) / "record.parquet").column("dataset")[0].as_py() == "mine"
    (own / "test.align").write_text("0-1 1-0\n0-0\n" * 6)
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
def test_what_is_refused_before_it_is_trained(recipe, sections, message):
    made = recipe(**sections)
    with pytest.raises(AttnfaithError, match=message):
        runs.run(made)
    assert not (Path(made.output_dir) / "model").exists()
