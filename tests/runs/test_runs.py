"""Whole runs on generated texts: the files that they leave, the folders that they use, and where they go on."""

import contextlib
import dataclasses
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from attnfaith import recipes, record, runs
from attnfaith.measurement import engine
from attnfaith.runs import RunError
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import folder_lock, is_locked, read_object


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]
LEFT = ["model", "recipe.yaml", "record.parquet", "report", "run.json"]


def variant(recipe, *overrides):
    return recipes.build(dataclasses.asdict(recipe) | {"note": ""}, overrides)


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def entries(folder):
    """The names in a run's folder, which nobody holds, without the lock."""
    assert not is_locked(folder)
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def weights(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


def same_record(folder, other):
    table, expected = (record.load(path / "record.parquet").replace_schema_metadata() for path in (folder, other))
    return table.equals(expected)


class Killed(BaseException):
    """The end of a process: the code does nothing more."""


def killed(*_args, **_kwargs):
    raise Killed


def never_trained(monkeypatch):
    monkeypatch.setattr(runs.train.Trainer, "train", lambda *_args, **_kwargs: pytest.fail("trained"))


@pytest.mark.gate
def test_the_files_of_a_run(finished):
    folder, recipe = finished, recipes.load(finished / "recipe.yaml")
    assert entries(folder) == LEFT and (recipe.output_dir, recipe.note) == (str(folder), "a note")
    state = read_object(folder / "run.json")
    assert (state["status"], state["processes"], state["epochs"], state["sizes"]["test"]) == ("complete", 1, 2, 24)
    assert "a note" in (folder / "report" / "index.html").read_text()

    table = record.load(folder / "record.parquet")
    measures = {"importance_gradient", "importance_gradient_norm", "importance_leave_one_out"}
    assert table.num_rows == 24 and measures | {"rationale"} <= set(table.column_names)
    for name, value in (("seed", 3), ("texts", state["texts"]["test"]), ("training_texts", state["texts"]["train"])):
        assert table.column(name).unique().to_pylist() == [value]
    (settings,) = record.settings(table)
    assert settings["recipe"]["training"]["learning_rate"] == 0.01 and settings["run"]["best"]

    model = AutoModelForSequenceClassification.from_pretrained(folder / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert model.config.id2label == {0: "negative", 1: "positive"}
    for row in range(3):
        with torch.no_grad():
            output = model(**tokenizer(" ".join(table.column("tokens")[row].as_py()), return_tensors="pt"))
        np.testing.assert_allclose(record.rows(table, "probs")[row], output.logits.softmax(-1)[0], atol=1e-6)
        np.testing.assert_allclose(record.rows(table, "attention")[row], output.attention[0, 1:-1], atol=1e-6)


def test_word_vectors_of_the_data_root(tiny_recipe, tmp_path, monkeypatch):
    path = tmp_path / "data" / "vectors" / "tiny.vec"
    path.parent.mkdir(parents=True)
    path.write_text("good 1 2 3 4\nbad -1 -2 -3 -4\nzebra 9 9 9 9\n")
    monkeypatch.setenv("ATTNFAITH_DATA", str(tmp_path / "data"))
    (tmp_path / "own.csv").write_text(
        "text,label\n" + "".join(f"it is {word} {row},{word}\n" for row in range(30) for word in ("good", "bad"))
    )
    training = {"training__num_train_epochs": 1, "training__learning_rate": 1e-9, "training__weight_decay": 0.0}
    data = {"path": str(tmp_path / "own.csv"), "vectors": "vectors/tiny.vec"}
    runs.run(tiny_recipe(data=data, **training, measure__producers=[], report__page=False))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    words = AutoTokenizer.from_pretrained(tmp_path / "run" / "model").get_vocab()
    table = model.get_input_embeddings().weight.detach()
    assert table.shape == (len(words), 4) and model.config.vectors == "pretrained"
    torch.testing.assert_close(table[words["good"]], torch.tensor([1.0, 2, 3, 4]), atol=1e-4, rtol=0)
    rest = [row for word, row in words.items() if word not in ("good", "bad")]
    assert float(table[rest].abs().max()) < 1e-4, "zeros, as in the papers"


@pytest.mark.gate
@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("runs.folder.recipes.dump", "started"),
        ("runs.train.make_trainer", "started"),
        ("runs.train.sync", "started"),
        ("measurement.engine._read_texts", "trained"),
        ("runs.execute.write_report", "trained"),
    ],
)
def test_a_killed_run_goes_on_to_the_same_files(finished, tmp_path, monkeypatch, step, status):
    folder = tmp_path / "run"
    recipe = variant(recipes.load(finished / "recipe.yaml"), f"--output_dir={folder}")
    with monkeypatch.context() as patch:
        patch.setattr(f"attnfaith.{step}", killed)
        with pytest.raises(Killed):
            runs.run(recipe)
    assert read_object(folder / "run.json")["status"] == status
    begun = (folder / "recipe.yaml").exists()
    for name in (".record.parquet.1.tmp", "checkpoints/checkpoint-9", "report/.b.csv.2.tmp") if begun else ():
        (folder / name).mkdir(parents=True, exist_ok=True)  # of other killed processes
        (folder / name / "trainer_state.json").write_text("{")
    (folder / ".recipe.yaml.abc.tmp").write_text("half")
    runs.run(recipe, resume=begun)
    assert entries(folder) == LEFT and not [*folder.rglob("*.tmp")]
    assert same_record(folder, finished) and weights(folder) == weights(finished)


MEASURED_ANEW = "record.parquet is there already with another measure.producers, measure.limit"
IN_USE = "is in use by a training"


@pytest.mark.parametrize(
    ("door", "overrides", "how", "message"),
    [
        ("run", [], {}, "holds a run already.*--resume_from_checkpoint.*--overwrite_output_dir"),
        ("run", ["--seed=4"], {"resume": True}, r"run of another recipe \(different: seed\)"),
        ("run", [], {"overwrite": True}, IN_USE),
        ("run", ["--limit=5"], {"resume": True}, IN_USE),
        ("measure", ["--limit=5"], {"overwrite": True}, IN_USE),
        ("measure", ["--encoder=cnn"], {}, r"run of another recipe \(different: model.encoder\)"),
        ("measure", ["--producers=[gradient]", "--limit=9"], {}, MEASURED_ANEW),
        ("measure", [], {"device": "nowhere"}, "device"),
    ],
)
def test_a_finished_run_is_left_as_it_is(copied, door, overrides, how, message):
    folder, recipe = copied, recipes.load(copied / "recipe.yaml")
    before, other = contents(folder), variant(recipe, *overrides)
    lock = folder_lock(folder, "a training") if message == IN_USE else contextlib.nullcontext()
    with lock, pytest.raises(AttnfaithError, match=message):
        runs.run(other, **how) if door == "run" else runs.measure_run(folder, other, **how)
    assert contents(folder) == before


@pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"resume": True}])
def test_a_folder_that_is_not_ours_is_never_touched(tiny_recipe, tmp_path, how):
    (tmp_path / "run").mkdir()
    for names in ([".hidden"], [".hidden", "recipe.yaml", "thesis.tex"]):
        for name in names:
            (tmp_path / "run" / name).write_text("mine")
        with pytest.raises(RunError, match="holds files of something else than a run"):
            runs.run(tiny_recipe(), **how)
        assert contents(tmp_path / "run") == dict.fromkeys(names, b"mine")


def test_a_resumed_run_measures_and_reports_what_is_missing(copied, monkeypatch, capsys):
    folder, recipe = copied, recipes.load(copied / "recipe.yaml")
    before = (folder / "record.parquet").read_bytes()
    never_trained(monkeypatch)
    shutil.rmtree(folder / "report")
    runs.run(variant(recipe, "--report.title=Another title"), resume=True)
    assert "Another title" in (folder / "report" / "index.html").read_text()
    assert (folder / "record.parquet").read_bytes() == before and "anew" not in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_read_texts", killed)
        with pytest.raises(Killed):
            runs.run(variant(recipe, "--measure.producers=[gradient]"), resume=True)
    assert (folder / "record.parquet").read_bytes() == before and (folder / "record.parquet.shards").is_dir()
    assert read_object(folder / "run.json")["status"] == "trained", "the report is of the older measurement"
    runs.run(variant(recipe, "--measure.producers=[leave_one_out]"), resume=True)  # those shards are of no use
    assert f"{folder / 'record.parquet'} is measured anew: measure.producers\n" in capsys.readouterr().out
    assert "importance_leave_one_out" in record.load(folder / "record.parquet").column_names and entries(folder) == LEFT


NO_FOLDER, NO_TRAINING = False, True


@pytest.mark.parametrize(
    ("change", "begun", "message"),
    [
        ({"measure__producers": ["gradients"]}, NO_FOLDER, "no measure is called"),
        ({"model__encoder": "rnn"}, NO_FOLDER, "'encoder' expected one of"),
        ({"penalties__word_tying": 1.0, "model__embedding_size": 4}, NO_FOLDER, "a state of 8 numbers"),
        ({"data__name": "sst3"}, NO_FOLDER, "Unknown data set 'sst3'"),
        ({"data__arguments": {"lenght": [4, 8]}}, NO_TRAINING, "lenght=.*the arguments are sizes"),
        ({"data__vectors": "nowhere.vec"}, NO_TRAINING, "nowhere.vec cannot be read"),
        ({"data__arguments__sizes": {"validation": 1}}, NO_TRAINING, "roc_auc needs two classes"),
        ({"measure__producers": ["exact_contribution"], "model__readout": "tanh"}, NO_TRAINING, "needs 'affine read-out'"),
    ],
)
def test_refused_before_training(tiny_recipe, tmp_path, monkeypatch, change, begun, message):
    never_trained(monkeypatch)
    with pytest.raises(ValueError, match=message):
        runs.run(tiny_recipe(**change))
    assert (tmp_path / "run").exists() == begun and not is_locked(tmp_path / "run")


def test_a_part_measured_elsewhere_leaves_the_run_as_it_is(copied, tmp_path):
    folder, recipe = copied, recipes.load(copied / "recipe.yaml")
    before, whole = contents(folder), record.load(folder / "record.parquet")
    part = record.load(runs.measure_run(folder, variant(recipe, "--limit=6"), tmp_path / "part.parquet"))
    assert contents(folder) == before
    places = [whole.column("instance_id").to_pylist().index(name) for name in part.column("instance_id").to_pylist()]
    assert len(places) == 6 and places == sorted(places)
    expected = record.rows(whole, "importance_leave_one_out")
    for scores, place in zip(record.rows(part, "importance_leave_one_out"), places, strict=True):
        np.testing.assert_allclose(scores, expected[place], atol=1e-6)
    changed = variant(recipe, "--measure.producers=[gradient]", "--split=validation")
    with pytest.raises(RunError, match="part.parquet is there already"):
        runs.measure_run(folder, changed, tmp_path / "part.parquet")
    part = record.load(runs.measure_run(folder, changed, tmp_path / "part.parquet", overwrite=True))
    assert part.num_rows == 24 and set(part.column("split").to_pylist()) == {"validation"}
    with pytest.raises(RunError, match="holds no trained model"):
        runs.measure_run(tmp_path, recipe)


def test_a_record_is_replaced_with_its_report_and_a_run_with_all_of_it(copied):
    folder, recipe = copied, recipes.load(copied / "recipe.yaml")
    agreement = folder / "report" / "tables" / "agreement.csv"
    other = variant(recipe, "--measure.producers=[gradient]", "--limit=9")
    runs.measure_run(folder, other, folder / "record.parquet", overwrite=True)
    assert record.load(folder / "record.parquet").num_rows == 9 and "leave_one_out" not in agreement.read_text()
    assert recipes.load(folder / "recipe.yaml").measure == other.measure
    assert read_object(folder / "run.json")["status"] == "complete"
    stamp = (folder / "record.parquet").stat().st_mtime_ns
    runs.measure_run(folder, other)  # nothing is left to do
    assert (folder / "record.parquet").stat().st_mtime_ns == stamp
    (folder / "report" / "old.html").write_text("old")
    (folder / "checkpoints").mkdir()
    runs.run(variant(recipe, "--seed=4"), overwrite=True)
    assert entries(folder) == LEFT and not (folder / "report" / "old.html").exists()
    assert record.load(folder / "record.parquet").column("seed").unique().to_pylist() == [4]


def test_an_untrained_model_is_the_one_its_trained_twin_starts_from(tiny_recipe, tmp_path, starts):
    runs.run(tiny_recipe(output_dir=str(tmp_path / "trained"), measure__producers=[], report__page=False))
    folder = tmp_path / "untrained"
    page = runs.run(tiny_recipe(output_dir=str(folder), objective__kind="untrained"))
    assert [*starts] == ["classification"] and entries(folder) == LEFT
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    assert all(torch.equal(value, starts["classification"][0][name]) for name, value in model.state_dict().items())
    assert "best" not in read_object(folder / "run.json") and "none: the model as it was drawn" in page.read_text()
