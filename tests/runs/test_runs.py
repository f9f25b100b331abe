"""Whole runs on generated texts: what they leave, which folders they use, where they go on."""

import dataclasses
import functools
import json
import operator
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import PartialState
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback

from attnfaith import recipes, record, runs
from attnfaith.data.vectors import file_digest
from attnfaith.measurement import engine, registry
from attnfaith.metrics.attention_faithfulness.divergences import kullback_leibler_divergence, total_variation_distance
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.facts import record_facts
from attnfaith.runs import RunError
from attnfaith.support.errors import DatasetError, FileError
from attnfaith.support.files import is_locked
from tests.tiny_recipes import tiny_tree


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_report")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A complete run and its recipe; not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    recipe = recipes.build(tiny_tree(folder, note="a note"))
    page = runs.run(recipe)
    assert page == folder / "report" / "index.html"
    return folder, recipe


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the complete run that may be changed, with its recipe."""
    folder, recipe = finished
    shutil.copytree(folder, tmp_path / "run")
    return tmp_path / "run", recipes.build({**dataclasses.asdict(recipe), "output_dir": str(tmp_path / "run")})


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_lock(files):
    return {name: text for name, text in files.items() if name != ".lock"}


def again(recipe, *overrides):
    return recipes.parse(recipes.dump(recipe), overrides)


def labels(table, name):
    """What the rows of a table say of each cell of a record."""
    return [cell.heading[name] for cell in split_cells(table)]


def entries(folder):
    """What lies in a run's folder beside the lock, which nobody holds."""
    assert not is_locked(folder)
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


class Killed(BaseException):
    """Stands for the end of a process: nothing that the code would still do is done."""


def killed(*_given, **_more):
    raise Killed


# ------------------------------------------------------------------------------------------------ a whole run


@pytest.mark.gate
def test_what_a_run_leaves(finished):
    folder, recipe = finished
    assert entries(folder) == ["model", "recipe.yaml", "record.parquet", "report", "run.json"]
    assert recipes.load(folder / "recipe.yaml") == recipe
    state = runs.read_state(folder)
    assert state["status"] == "complete" and state["processes"] == 1 and state["epochs"] == 2
    assert state["sizes"]["test"] == 24 and 0 <= state["best"]["value"] <= 1
    assert (folder / "report" / "index.html").read_text().count("a note") >= 1
    assert not [path for path in folder.rglob("*") if path.name.startswith(".") and path.name != ".lock"]


@pytest.mark.gate
def test_the_record_of_a_run(finished):
    folder, recipe = finished
    table = record.load(folder / "record.parquet")
    assert table.num_rows == 24
    assert {"rationale", "importance_gradient", "importance_gradient_norm", "importance_leave_one_out"} <= set(
        table.column_names
    )
    assert table.column("seed").unique().to_pylist() == [3]
    assert table.column("texts").unique().to_pylist() == [runs.read_state(folder)["texts"]["test"]]
    assert table.column("training_texts").unique().to_pylist() == [runs.read_state(folder)["texts"]["train"]]
    (settings,) = record.settings(table)
    assert settings["recipe"]["training"]["learning_rate"] == 0.01 and settings["run"]["best"]
    assert record.rows(table, "rationale")[0].sum() == 1
    assert Path(folder / "record.parquet").stat().st_mode & 0o044 == 0o044


@pytest.mark.gate
def test_the_saved_model_is_the_one_measured(finished):
    folder, _ = finished
    table = record.load(folder / "record.parquet")
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert model.config.id2label == {0: "negative", 1: "positive"}
    for row in range(3):
        text = " ".join(table.column("tokens")[row].as_py())
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"))
        np.testing.assert_allclose(record.rows(table, "probs")[row], output.logits.softmax(-1)[0], atol=1e-6)
        np.testing.assert_allclose(record.rows(table, "attention")[row], output.attention[0, 1:-1], atol=1e-6)


@pytest.mark.gate
def test_a_run_is_reproduced(finished, tiny_recipe, tmp_path):
    folder, recipe = finished
    runs.run(recipes.build({**dataclasses.asdict(recipe), "output_dir": str(tmp_path / "again")}))
    one, other = (record.load(path / "record.parquet") for path in (folder, tmp_path / "again"))
    assert one.replace_schema_metadata().equals(other.replace_schema_metadata())
    weights = [(path / "model" / "model.safetensors").read_bytes() for path in (folder, tmp_path / "again")]
    assert weights[0] == weights[1]


def test_pairs_and_other_factors(tiny_recipe, tmp_path):
    recipe = tiny_recipe(
        data={"name": "babi_1", "arguments": {"sizes": {"train": 40, "validation": 20, "test": 10}}},
        model__projection="sparsegen",
        model__sparsegen_lambda=0.5,
        model__readout="tanh",
        model__encoder="cnn",
        training__num_train_epochs=1,
        training__balance_classes=False,
    )
    runs.run(recipe)
    table = record.load(tmp_path / "run" / "record.parquet")
    assert table.column("projection").unique().to_pylist() == ["sparsegen(0.5)"]
    assert {len(row) for row in record.rows(table, "probs")} == {6}


def test_a_hierarchical_family(tiny_recipe, tmp_path, monkeypatch):
    """A base over sentences, an adversary of it and a guided model: all in sentences, whose words are in the record."""
    monkeypatch.setattr(runs.execute, "report", lambda path, output, recipe: Path(output) / "index.html")
    base = str(tmp_path / "base")
    common = {
        "model__hierarchy": "sentence",
        "data__max_sentence_length": 6,
        "data__max_sentences": 3,
        "data__arguments": {"length": [10, 30], "sizes": {"train": 64, "validation": 24, "test": 24}},
        "measure__outputs": ["train", "validation", "test"],
        "measure__producers": [],
    }
    others = {
        "base": {"measure__producers": ["gradient", "leave_one_out", "permutation"]},
        "adversary": {"objective": {"kind": "adversarial", "base": base, "divergence": "jsd"}},
        "guided": {"objective": {"kind": "guided", "base": base}},
    }
    tables = {}
    for name, changes in others.items():
        recipe = tiny_recipe(**{**common, **changes, "name": name, "output_dir": str(tmp_path / name)})
        runs.run(recipe)
        tables[name] = record.load(tmp_path / name / "record.parquet")
    for table in tables.values():
        assert labels(table, "encoder") == ["bilstm(sentence)"]
        words = record.rows(table, "words")
        assert {len(sentences) for sentences in words} == {2, 3} and table.column("truncated").to_pylist().count(True) > 3
        assert max(len(sentence) for sentences in words for sentence in sentences) == 6
    given = (record.rows(tables[name], "attention") for name in ("base", "guided"))
    assert all(np.array_equal(one, other) for one, other in zip(*given, strict=True))
    assert labels(tables["guided"], "objective") == ["guided(bilstm(sentence)+additive+softmax)"]
    # the same trained model at its other level: another record
    recipe = tiny_recipe(**{**common, **others["base"], "output_dir": base, "name": "base"}, measure__level="word")
    monkeypatch.setattr(runs.train, "train", lambda *_args: pytest.fail("trained again"))
    outputs = (tmp_path / "base" / "outputs" / "test.parquet").read_bytes()
    runs.run(recipe, resume=True)
    table = record.load(tmp_path / "base" / "record.parquet")
    assert labels(table, "encoder") == ["bilstm(sentence, words)"]
    assert table.column("tokens").to_pylist() == [
        functools.reduce(operator.iadd, row, []) for row in tables["base"].column("words").to_pylist()
    ]
    np.testing.assert_allclose(
        np.stack(record.rows(table, "probs")), np.stack(record.rows(tables["base"], "probs")), atol=1e-6
    )
    assert (tmp_path / "base" / "outputs" / "test.parquet").read_bytes() == outputs
    flat = tiny_recipe(**others["guided"], output_dir=str(tmp_path / "flat"), measure__producers=[])
    with pytest.raises(RunError, match="has model.hierarchy='sentence' and this model 'none'"):
        runs.run(flat)


# ------------------------------------------------------------------------------------------------ folders


@pytest.mark.gate
@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("runs.folder.write_recipe", "started"),
        ("runs.execute.train.make_trainer", "started"),
        ("runs.train._keep", "started"),
        ("runs.train.sync_folder", "started"),
        ("measurement.engine._read_texts", "trained"),
        ("runs.execute.report", "measured"),
    ],
)
def test_killed_and_gone_on(finished, tmp_path, monkeypatch, step, status):
    """At each step: the same command goes on to the same weights and record, and leaves what a run leaves."""
    folder = tmp_path / "run"
    recipe = again(finished[1], f"--output_dir={folder}")
    with monkeypatch.context() as patch:
        patch.setattr(f"attnfaith.{step}", killed)
        with pytest.raises(Killed):
            runs.run(recipe)
    assert runs.read_state(folder)["status"] == status
    known = (folder / "recipe.yaml").exists()
    for name in (".report.1234.tmp", "checkpoints/checkpoint-999") if known else ():  # of others that were killed
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "trainer_state.json").write_text("{")
    (folder / ".recipe.yaml.abc.tmp").write_text("half")
    runs.run(recipe, resume=known)
    assert entries(folder) == entries(finished[0])
    one, other = (record.load(path / "record.parquet") for path in (finished[0], folder))
    assert one.replace_schema_metadata().equals(other.replace_schema_metadata())
    weights = [(path / "model" / "model.safetensors").read_bytes() for path in (finished[0], folder)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("overrides", "how", "message"),
    [
        ([], {}, "holds a run already.*--resume_from_checkpoint.*--overwrite_output_dir"),
        (["--seed=4"], {"resume": True}, r"run of another recipe \(different: seed\)"),
        (["--data.arguments.length=[4, 9]"], {"resume": True}, r"\(different: data.arguments.length\)"),
    ],
)
def test_a_folder_with_another_run_is_left_as_it_is(copied, overrides, how, message):
    folder, recipe = copied
    before = content(folder)
    with pytest.raises(RunError, match=message):
        runs.run(again(recipe, *overrides), **how)
    assert without_lock(content(folder)) == without_lock(before)


def test_going_on_measures_and_reports_what_is_missing(copied, monkeypatch, capsys):
    folder, recipe = copied
    before = (folder / "record.parquet").read_bytes()
    monkeypatch.setattr(runs.train, "train", lambda *_args: pytest.fail("trained again"))
    shutil.rmtree(folder / "report")
    changed = {**dataclasses.asdict(recipe), "report": {"examples": 2, "title": "Another title"}}
    runs.run(recipes.build(changed), resume=True)
    assert "Another title" in (folder / "report" / "index.html").read_text()
    runs.run(again(recipe, "--measure.outputs=[train]"), resume=True)
    assert (folder / "record.parquet").read_bytes() == before and "anew" not in capsys.readouterr().out
    assert record.load(folder / "outputs" / "train.parquet").num_rows == 64
    (folder / "outputs" / "train.parquet").write_bytes(b"half")
    runs.run(again(recipe, "--measure.outputs=[train]", "--limit=9"), resume=True)
    assert record.load(folder / "outputs" / "train.parquet").num_rows == 64
    assert f"{folder / 'record.parquet'} is measured anew: measure.limit\n" in capsys.readouterr().out
    assert record.load(folder / "record.parquet").num_rows == 9


@pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"resume": True}])
@pytest.mark.parametrize("names", [["recipe.yaml", "thesis.tex"], [".hidden"]])
def test_a_folder_that_is_not_ours_is_never_touched(tiny_recipe, tmp_path, names, how):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    with pytest.raises(RunError, match="holds files that are no run of ours"):
        runs.run(tiny_recipe(), **how)
    assert content(folder) == dict.fromkeys(names, b"mine")


def test_overwriting_leaves_nothing_of_the_old_run(copied):
    folder, recipe = copied
    (folder / "report" / "old.html").write_text("old")
    (folder / "checkpoints").mkdir()
    changed = recipes.build({**dataclasses.asdict(recipe), "seed": 4})
    runs.run(changed, overwrite=True)
    assert entries(folder) == ["model", "recipe.yaml", "record.parquet", "report", "run.json"]
    assert not (folder / "report" / "old.html").exists()
    assert recipes.load(folder / "recipe.yaml").seed == 4
    assert record.load(folder / "record.parquet").column("seed").unique().to_pylist() == [4]


# ------------------------------------------------------------------------------------------------ measured anew


def test_measuring_anew_is_not_stopped_by_an_older_measurement(copied, monkeypatch):
    """Stopped in the middle of one measurement, and asked for another; the old shards are no use."""
    folder, recipe = copied
    inner, calls = engine._read_texts, []

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_read_texts", stop)
    with pytest.raises(KeyboardInterrupt):
        runs.run(again(recipe, "--measure.producers=[gradient]"), resume=True)
    assert (folder / "record.parquet.shards" / "plan.json").is_file()
    assert runs.read_state(folder)["status"] == "trained"  # the report that lies there is the older measurement's
    monkeypatch.setattr(engine, "_read_texts", lambda *args: calls.append(1) or inner(*args))
    runs.run(again(recipe, "--measure.producers=[leave_one_out]"), resume=True)
    assert calls and "importance_leave_one_out" in record.load(folder / "record.parquet").column_names
    assert not (folder / "record.parquet.shards").exists()


# ------------------------------------------------------------------------------------------------ outputs for other runs


def test_outputs_are_those_of_the_model(family):
    _, base, _ = family["base"]
    assert sorted(path.name for path in (base / "outputs").iterdir()) == [
        "test.parquet",
        "train.parquet",
        "validation.parquet",
    ]
    table, test = (record.load(base / name) for name in ("record.parquet", "outputs/test.parquet"))
    assert test.column("instance_id").equals(table.column("instance_id"))
    for name in ("attention", "probs"):
        assert test.column(name).equals(table.column(name))
    train = record.load(base / "outputs" / "train.parquet")
    assert train.num_rows == 64 and train.column("split").unique().to_pylist() == ["train"]
    (settings,) = record.settings(train)
    assert settings["producers"] == [] and len(settings["model"]) == len(settings["data"]) == 64


# ------------------------------------------------------------------------------------------------ guided and adversarial


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, an adversary of it and a guided model of each: name -> (page, folder, recipe); not to be changed."""
    root = tmp_path_factory.mktemp("family")
    sizes = {"train": 64, "validation": 24, "test": 24}
    data = {"arguments": {"length": [4, 8], "vocabulary_size": 40, "sizes": sizes}}
    training = {"num_train_epochs": 2, "learning_rate": 0.01, "arguments": {"disable_tqdm": True}}
    measure = {"producers": [], "outputs": ["train", "validation", "test"]}
    adversarial = {"kind": "adversarial", "base": str(root / "base"), "weight": 0.05}
    mlp = {"encoder": "average", "embedding_size": 8, "hidden_size": 8}
    parts = {
        "base": {},
        "adversary": {
            "objective": adversarial,
            "measure": {**measure, "producers": ["gradient"]},
            "training": {**training, "attention_learning_rate_factor": 30.0},
        },
        "guided": {"model": mlp, "objective": {"kind": "guided", "base": str(root / "base")}},
        "guided_by_adversary": {"model": mlp, "objective": {"kind": "guided", "base": str(root / "adversary")}},
    }
    made = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs.execute, "report", lambda path, output, recipe: Path(output) / "index.html")
        for name, changes in parts.items():
            tree = {"name": name, "output_dir": str(root / name), "seed": 3, "data": data, "training": training}
            tree |= {"model": {"embedding_size": 8, "hidden_size": 8}, "measure": measure, **changes}
            recipe = recipes.build(tree)
            made[name] = (runs.run(recipe), root / name, recipe)
    return made


@pytest.fixture
def against(family, tmp_path):
    """A base that may be changed, and a recipe of a run against it."""
    shutil.copytree(family["base"][1], tmp_path / "base")

    def make(name="adversary", *overrides):
        return again(family[name][2], f"--output_dir={tmp_path / 'run'}", f"--base={tmp_path / 'base'}", *overrides)

    return tmp_path / "base", make


def shake(folder):
    """Other weights in a run's model."""
    from safetensors.torch import load_file, save_file

    path = folder / "model" / "model.safetensors"
    save_file({name: value + 0.01 for name, value in load_file(path).items()}, path, metadata={"format": "pt"})


def outputs_of(folder, split="test"):
    table = record.load(folder / "outputs" / f"{split}.parquet")
    rows = zip(record.rows(table, "attention"), record.rows(table, "probs"), strict=True)
    return dict(zip(table.column("instance_id").to_pylist(), rows, strict=True))


def test_the_record_says_what_a_model_was_trained_for(family):
    named = {name: labels(record.load(folder / "record.parquet"), "objective") for name, (_, folder, _) in family.items()}
    assert named == {
        "base": ["classification"],
        "adversary": ["adversarial(kl, 0.05, attention rate x 30)"],
        "guided": ["guided(bilstm+additive+softmax)"],
        "guided_by_adversary": ["guided(adversarial(kl, 0.05))"],
    }
    joined = record.concatenate(record.load(folder / "outputs" / "test.parquet") for _, folder, _ in family.values())
    assert joined.num_rows == 4 * 24
    facts = record_facts(record.load(family["adversary"][1] / "record.parquet"))
    assert facts["trained against"] == str(family["base"][1])


def test_an_adversary_attends_elsewhere_and_says_what_was_reached(family):
    base, adversary = (outputs_of(family[name][1], "validation") for name in ("base", "adversary"))
    (mine, my_probs), (theirs, their_probs) = (
        zip(*(outputs[name] for name in base), strict=True) for outputs in (adversary, base)
    )
    kl = kullback_leibler_divergence(mine, theirs)
    assert kl.mean() > 0.05
    objective = total_variation_distance(my_probs, their_probs) - 0.05 * kl
    state = runs.read_state(family["adversary"][1])
    assert state["best"] == {"metric": "eval_objective", "value": pytest.approx(objective.mean(), abs=1e-5)}
    assert state["base"]["folder"] == str(family["base"][1])


@pytest.mark.parametrize(("name", "base"), [("guided", "base"), ("guided_by_adversary", "adversary")])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_guided_model_reads_under_the_attention_it_is_given(family, name, base, split):
    given, found = (outputs_of(family[run][1], split) for run in (base, name))
    model = AutoModelForSequenceClassification.from_pretrained(family[name][1] / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(family[name][1] / "model")
    table = record.load(family[name][1] / "outputs" / f"{split}.parquet")
    words = dict(zip(table.column("instance_id").to_pylist(), table.column("tokens").to_pylist(), strict=True))
    for number, (key, (attention, probs)) in enumerate(found.items()):
        np.testing.assert_array_equal(attention, given[key][0])
        if number < 3:
            batch = tokenizer(" ".join(words[key]), return_tensors="pt")
            with torch.no_grad():
                hidden, mask, query = model.encode(batch["input_ids"], batch["attention_mask"])
                weights = torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(attention))
                logits = model.decode(hidden, weights, query)
            np.testing.assert_allclose(probs, logits.softmax(-1)[0], atol=1e-6)


def test_an_adversary_starts_where_its_base_started(against, monkeypatch):
    """The same first weights, and the same texts in the same batches."""
    base, make = against
    seen, make_trainer = {}, runs.train.make_trainer

    def spy(recipe, model, *args):
        trainer = make_trainer(recipe, model, *args)
        collator, mine = trainer.data_collator, seen.setdefault(recipe.objective.kind, [])
        mine.append({name: value.clone() for name, value in model.state_dict().items()})
        trainer.data_collator = lambda rows: mine.append([row["input_ids"] for row in rows]) or collator(rows)
        return trainer

    monkeypatch.setattr(runs.train, "make_trainer", spy)
    runs.run(make())
    runs.run(again(recipes.load(base / "recipe.yaml"), f"--output_dir={base.parent / 'again'}"))
    (first, *batches), (theirs, *their_batches) = seen["adversarial"], seen["classification"]
    assert all(torch.equal(first[name], theirs[name]) for name in theirs)
    assert len(batches) > 4 and batches == their_batches


def test_a_frozen_adversary_keeps_everything_but_its_alignment(against):
    base, make = against
    runs.run(make("adversary", "--objective.frozen", "--weight=1.0"))
    from safetensors.torch import load_file

    one, other = (load_file(path / "model" / "model.safetensors") for path in (base, base.parent / "run"))
    changed = {name for name in one if not torch.equal(one[name], other[name])}
    assert changed == {name for name in one if ".alignment." in name}
    table = record.load(base.parent / "run" / "record.parquet")
    assert labels(table, "objective") == ["adversarial(kl, 1, frozen, attention rate x 30)"]


def killed_after_an_epoch(recipe, monkeypatch):
    class Kill(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    make = runs.train.make_trainer

    def spy(*args, **kwargs):
        trainer = make(*args, **kwargs)
        trainer.add_callback(Kill())
        return trainer

    with monkeypatch.context() as patched:
        patched.setattr(runs.train, "make_trainer", spy)
        with pytest.raises(KeyboardInterrupt):
            runs.run(recipe)


@pytest.mark.gate
def test_a_killed_adversary_goes_on_to_the_same_weights(family, against, monkeypatch):
    _, make = against

    recipe = make()
    killed_after_an_epoch(recipe, monkeypatch)
    assert not (Path(recipe.output_dir) / "model").exists()
    runs.run(recipe, resume=True)
    assert not (Path(recipe.output_dir) / "checkpoints").exists()
    paths = [folder / "model" / "model.safetensors" for folder in (family["adversary"][1], Path(recipe.output_dir))]
    assert paths[0].read_bytes() == paths[1].read_bytes()


# The base of a run, wrong in each way: nothing is trained and nothing is left.


def shorter(base):
    path = base / "outputs" / "train.parquet"
    record.save(record.load(path).slice(0, 60), path)


def of_other_texts(base):
    """Same ids and lengths, another text."""
    path = base / "outputs" / "train.parquet"
    table = record.load(path)
    (settings,) = record.settings(table)
    record.save(record.with_settings(table, [{**settings, "data": "0" * 64}]), path)


BASES = [  # what is wrong with the base of a run, what else the run is, what is said, whether its folder has been made
    (shutil.rmtree, [], r"is no trained run \(recipe.yaml, run.json, model missing there\)", False),
    (lambda base: (base / "outputs" / "train.parquet").unlink(), [], "keeps no outputs of train", False),
    (None, ["--frozen", "--encoder=cnn"], "another model: model.encoder", False),
    (shorter, [], "was made of other texts, labels or another vocabulary", True),
    (lambda base: (base / "outputs" / "train.parquet").write_bytes(b"no record"), [], "cannot be used", True),
    (lambda base: shake(base), [], "was made by another model than the one beside it", True),
    (of_other_texts, [], "was made of other texts, labels or another vocabulary", True),
    (None, ["--data.max_length=5"], "was made of other texts, labels or another vocabulary", True),
]


@pytest.mark.parametrize(("change", "overrides", "message", "made"), BASES)
def test_a_base_that_cannot_serve(against, tmp_path, monkeypatch, change, overrides, message, made):
    """Nothing is trained; the folder is still free."""
    base, make = against
    monkeypatch.setattr(runs.train.Trainer, "train", lambda *_a, **_k: pytest.fail("trained"))
    if change:
        change(base)
    with pytest.raises(RunError, match=message):
        runs.run(make("adversary", *overrides))
    assert entries(tmp_path / "run") == ["recipe.yaml", "run.json"] if made else not (tmp_path / "run").exists()


def test_a_base_of_another_kind(family, against):
    _, make = against
    with pytest.raises(RunError, match="has objective adversarial; .*'adversarial' must be classification"):
        runs.run(make("adversary", f"--base={family['adversary'][1]}"))
    with pytest.raises(RunError, match="has objective guided; .*'guided' must be classification or adversarial"):
        runs.run(make("guided", f"--base={family['guided'][1]}"))
    with pytest.raises(RunError, match="is this run's own output_dir"):
        runs.run(make("adversary", f"--output_dir={family['base'][1]}", f"--base={family['base'][1]}"), overwrite=True)


def test_a_sparse_base_in_half_precision(against, family, tmp_path):
    _, make = against
    sparse = ["--projection=sparsegen", "--sparsegen_lambda=0.999"]
    runs.run(again(family["base"][2], f"--output_dir={tmp_path / 'sparse'}", *sparse))
    assert any((attention == 0).any() for attention, _ in outputs_of(tmp_path / "sparse").values())
    recipe = make("adversary", f"--base={tmp_path / 'sparse'}", *sparse, "--bf16")
    with pytest.raises(ValueError, match="use divergence 'jsd' against a sparse base"):
        runs.run(recipe)
    runs.run(again(recipe, "--divergence=jsd"))  # the folder is still free
    table = record.load(tmp_path / "run" / "record.parquet")
    assert labels(table, "objective") == ["adversarial(jsd, 0.05, attention rate x 30)"]


def test_a_base_that_was_trained_anew(family, against):
    """Its outputs fit its model, and neither is what the guided model was trained under."""
    base, make = against
    recipe = make("guided")
    runs.run(recipe)
    shake(base)
    runs.run(again(recipes.load(base / "recipe.yaml"), f"--output_dir={base}"), resume=True)
    with pytest.raises(RunError, match=r"was trained anew since the run in .* run that again with --overwrite_output_dir"):
        runs.run(again(recipe, "--limit=5"), resume=True)


def test_a_record_of_another_version_is_measured_anew_where_asked(copied, monkeypatch):
    folder, recipe = copied
    table = record.load(folder / "record.parquet")
    (made,) = record.settings(table)
    record.save(record.with_settings(table, [{**made, "version": "0.0.1"}]), folder / "record.parquet")
    monkeypatch.setattr(runs.train, "train", lambda *_a: pytest.fail("trained again"))
    measured, inner = [], runs.measure.Measurement.record
    monkeypatch.setattr(runs.measure.Measurement, "record", lambda *given: measured.append(given) or inner(*given))
    runs.run(recipe, resume=True)
    assert measured == [] and record.settings(record.load(folder / "record.parquet"))[0]["version"] == "0.0.1"
    runs.run(recipe, resume=True, remeasure=True)
    assert len(measured) == 1 and runs.read_state(folder)["status"] == "complete"
    again = record.load(folder / "record.parquet")
    assert record.settings(again)[0]["version"] == made["version"] and again.equals(table)
    runs.run(recipe, resume=True, remeasure=True)  # this version measured it
    assert len(measured) == 1


# ------------------------------------------------------------------------------------------------ untrained


def test_an_untrained_model_is_the_one_its_trained_twin_starts_from(tiny_recipe, tmp_path, monkeypatch):
    drawn, make = [], runs.train.make_trainer

    def spy(recipe, model, *args):
        drawn.append({name: value.clone() for name, value in model.state_dict().items()})
        return make(recipe, model, *args)

    monkeypatch.setattr(runs.train, "make_trainer", spy)
    runs.run(tiny_recipe(output_dir=str(tmp_path / "trained"), measure__producers=[]))
    recipe = tiny_recipe(output_dir=str(tmp_path / "untrained"), objective__kind="untrained", measure__outputs=["train"])
    page = runs.run(recipe)
    assert len(drawn) == 1
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "untrained" / "model")
    assert all(torch.equal(value, drawn[0][name]) for name, value in model.state_dict().items())

    folder = tmp_path / "untrained"
    names = ["model", "outputs", "recipe.yaml", "record.parquet", "report", "run.json"]
    assert entries(folder) == names
    state = runs.read_state(folder)
    assert state["status"] == "complete" and state["epochs"] == 0 and "best" not in state and "training_seconds" not in state
    twin = runs.read_state(tmp_path / "trained")
    assert all(state[name] == twin[name] for name in ("dataset", "sizes", "truncated", "vocabulary", "processes"))
    table = record.load(folder / "record.parquet")
    assert labels(table, "objective") == ["untrained"]
    assert {"importance_gradient", "importance_gradient_norm", "importance_leave_one_out"} <= set(table.column_names)
    text = page.read_text()
    assert "none: the model as it was drawn" in text and "selected on validation" not in text
    before = (folder / "record.parquet").read_bytes()
    runs.run(recipe, resume=True)  # complete: nothing is done again
    assert (folder / "record.parquet").read_bytes() == before


# ------------------------------------------------------------------------------------------------ refused early


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure__producers": ["gradients"]}, "no measure is called"),
        ({"measure__split": "dev"}, "measure.split='dev' does not exist; choose one of train, validation, test"),
        (
            {"measure__outputs": ["test", "dev"]},
            "measure.outputs='dev' does not exist; choose one of train, validation, test",
        ),
        ({"model__encoder": "rnn"}, "encoder='rnn' is not known"),
        ({"data__name": "sst3"}, "Unknown data set 'sst3'"),
    ],
)
def test_refused_before_a_folder_is_made(tiny_recipe, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        runs.run(tiny_recipe(**change))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"data__arguments": {"length": 10}}, DatasetError, "length|n_evidence"),
        ({"data__arguments": {"lenght": [4, 8]}}, DatasetError, "does not know .*lenght"),
        ({"data__vectors": "nowhere.vec"}, DatasetError, "no vector file nowhere.vec"),
        ({"data__arguments": {"length": [4, 8], "sizes": {"train": 1}}}, ValueError, "no training instance of class"),
        ({"data__arguments": {"length": [4, 8], "sizes": {"validation": 1}}}, ValueError, "roc_auc is not defined"),
        (
            {"measure__producers": ["exact_contribution"], "model__readout": "tanh"},
            registry.MeasurementError,
            "'exact_contribution' needs 'affine read-out' .*not affine .* a readout of tanh .*, which this .* measures that",
        ),
        (
            {"measure__producers": ["occlusion"], "measure__options": {"occlusion": {"target": 5}}},
            registry.MeasurementError,
            "'occlusion': target=5: class 5 is no possible answer",
        ),
    ],
)
def test_refused_before_training(tiny_recipe, tmp_path, monkeypatch, change, error, message):
    monkeypatch.setattr(runs.train.Trainer, "train", lambda *_a, **_k: pytest.fail("trained"))
    with pytest.raises(error, match=message):
        runs.run(tiny_recipe(**change))
    with runs.folder.opened(tmp_path / "run", tiny_recipe(), PartialState(cpu=True)):  # the folder is still free
        pass


# ------------------------------------------------------------------------------------------------ measured again


def test_measuring_a_run_again(copied, tmp_path):
    """A part of the texts, elsewhere: the same numbers, and the run stays as it was."""
    folder, recipe = copied
    before, whole = content(folder), record.load(folder / "record.parquet")
    part = record.load(runs.measure_run(folder, again(recipe, "--limit=6"), tmp_path / "part.parquet"))
    assert without_lock(content(folder)) == without_lock(before)
    places = [whole.column("instance_id").to_pylist().index(name) for name in part.column("instance_id").to_pylist()]
    assert len(places) == 6 and places == sorted(places)
    for mine, place in zip(record.rows(part, "importance_leave_one_out"), places, strict=True):
        np.testing.assert_allclose(mine, record.rows(whole, "importance_leave_one_out")[place], atol=1e-6)
    words = ["--measure.producers=[gradient]", "--split=validation", "--measure.outputs=[validation]"]
    with pytest.raises(RunError, match="part.parquet is there already"):
        runs.measure_run(folder, again(recipe, *words), tmp_path / "part.parquet")
    part = record.load(runs.measure_run(folder, again(recipe, *words), tmp_path / "part.parquet", overwrite=True))
    assert part.num_rows == 24 and part.column("split").unique().to_pylist() == ["validation"]
    assert record.load(folder / "outputs" / "validation.parquet").num_rows == 24
    with pytest.raises(RunError, match="holds no trained model"):
        runs.measure_run(tmp_path, recipe)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--seed", "4"], "trained with another seed"),
        (["--encoder", "cnn"], "trained with another model.encoder"),
        (["--data.name", "babi_1"], "trained with another data.name"),
        (["--split", "dev"], "measure.split='dev' does not exist"),
    ],
)
def test_measuring_changes_the_measurement_only(copied, overrides, message):
    folder, _ = copied
    before = content(folder)
    with pytest.raises(ValueError, match=message):
        runs.measure_run(folder, recipes.load(folder / "recipe.yaml", overrides))
    assert content(folder) == before


# ------------------------------------------------------------------------------------------------ word vectors


def test_word_vectors_from_the_data_root(tiny_recipe, tmp_path, monkeypatch):
    root = tmp_path / "data"
    (root / "vectors").mkdir(parents=True)
    (root / "vectors" / "tiny.vec").write_text("superb 1 2 3 4\nawful -1 -2 -3 -4\nzebra 9 9 9 9\n")
    monkeypatch.setenv("ATTNFAITH_DATA", str(root))
    recipe = tiny_recipe(
        data__vectors="vectors/tiny.vec",
        data__missing_vectors="random",
        model__embedding_std=0.5,
        training__num_train_epochs=1,
        training__learning_rate=1e-9,
        training__weight_decay=0.0,
    )
    runs.run(recipe)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model")
    words = AutoTokenizer.from_pretrained(tmp_path / "run" / "model").get_vocab()
    vectors = model.get_input_embeddings().weight.detach()
    assert vectors.shape == (len(words), 4)
    torch.testing.assert_close(vectors[words["superb"]], torch.tensor([1.0, 2, 3, 4]), atol=1e-4, rtol=0)
    rest = [row for word, row in words.items() if word not in ("superb", "awful", "<pad>")]
    assert float(vectors[rest].std()) == pytest.approx(0.5, abs=0.1)
    table = record.load(tmp_path / "run" / "record.parquet")
    assert labels(table, "vectors") == [f"pretrained({file_digest(root / 'vectors' / 'tiny.vec')})"]
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["embedding_size"] == 4


# ------------------------------------------------------------------------------------------------ one process, one reading


HOLD = """
import sys, time
from attnfaith.support.files import folder_lock
with folder_lock(sys.argv[1], "a training"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_in_use_is_left_alone(copied):
    folder, recipe = copied
    before = content(folder)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        for start in (
            lambda: runs.run(recipe, overwrite=True),
            lambda: runs.run(again(recipe, "--limit=5"), resume=True),
            lambda: runs.measure_run(folder, again(recipe, "--limit=5"), overwrite=True),
        ):
            with pytest.raises(FileError, match=rf"is in use by a training, process {holder.pid} on "):
                start()
    finally:
        holder.communicate()
    assert without_lock(content(folder)) == without_lock(before)
    runs.measure_run(folder, again(recipe, "--limit=5"), overwrite=True)


# ------------------------------------------------------------------------------------------------ killed


# ------------------------------------------------------------------------------------------------ measured by itself


def test_measuring_a_run_anew_changes_all_that_is_said_of_it(copied):
    folder, recipe = copied
    assert (folder / "report" / "tables" / "agreement.csv").read_text().count("leave_one_out")
    changed = again(recipe, "--measure.producers=[gradient]", "--limit=9")
    runs.measure_run(folder, changed, overwrite=True)
    assert record.load(folder / "record.parquet").num_rows == 9
    assert recipes.load(folder / "recipe.yaml").measure == changed.measure
    assert "leave_one_out" not in (folder / "report" / "tables" / "agreement.csv").read_text()
    assert runs.read_state(folder)["status"] == "complete"
    (settings,) = record.settings(record.load(folder / "record.parquet"))
    assert settings["run"]["best"] and "seconds" not in settings["run"], "nothing of the older one"
    before = (folder / "record.parquet").stat().st_mtime_ns
    runs.run(changed, resume=True)  # nothing is left to do
    assert (folder / "record.parquet").stat().st_mtime_ns == before


@pytest.mark.parametrize("output", [None, "record.parquet"])  # by either name of the run's own record
def test_a_record_of_another_measurement_is_not_replaced_without_a_word(copied, output):
    folder, recipe = copied
    before, other = content(folder), again(recipe, "--measure.producers=[gradient]", "--limit=9")
    says = r"record.parquet is of another measurement \(different: measure.producers, measure.limit\): keep it and give the"
    with pytest.raises(RunError, match=says):
        runs.measure_run(folder, other, output and folder / output)
    assert without_lock(content(folder)) == without_lock(before)
    runs.measure_run(folder, other, output and folder / output, overwrite=True)
    assert record.load(folder / "record.parquet").num_rows == 9
    assert "leave_one_out" not in (folder / "report" / "tables" / "agreement.csv").read_text(), (
        "by either name of the record"
    )
