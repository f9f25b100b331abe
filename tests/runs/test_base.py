"""Models that are trained against another run: adversaries, guided models, and the bases that cannot serve."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainerCallback

from attnfaith import recipes, record, runs
from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.facts import record_facts
from attnfaith.runs import RunError
from tests.runs.test_runs import entries, never_trained, variant, weights
from tests.tiny_recipes import tiny_tree


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_report")]
OUTPUTS = {"producers": [], "outputs": ["train", "validation", "test"]}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, an adversary of it and a guided model of each: {name: (folder, recipe)}; not to be changed."""
    root = tmp_path_factory.mktemp("family")
    training = {"num_train_epochs": 2, "learning_rate": 0.01, "arguments": {"disable_tqdm": True}}
    mlp = {"encoder": "average", "embedding_size": 8, "hidden_size": 8}
    objective = {"kind": "adversarial", "base": str(root / "base"), "weight": 0.05}
    parts = {
        "base": {},
        "adversary": {"objective": objective, "training": {**training, "attention_learning_rate_factor": 30.0}},
        "guided": {"model": mlp, "objective": {"kind": "guided", "base": str(root / "base")}},
        "guided_by_adversary": {"model": mlp, "objective": {"kind": "guided", "base": str(root / "adversary")}},
    }
    family = {}
    for name, keys in parts.items():
        tree = tiny_tree(root / name, name=name, measure=OUTPUTS, report={"page": False})
        family[name] = root / name, recipes.build(tree | keys)
        runs.run(family[name][1])
    return family


@pytest.fixture
def against(family, tmp_path):
    """A base that may be changed, and a function that makes the recipe of a run against it."""
    shutil.copytree(family["base"][0], tmp_path / "base")

    def make(name="adversary", *overrides):
        return variant(family[name][1], f"--output_dir={tmp_path / 'run'}", f"--base={tmp_path / 'base'}", *overrides)

    return tmp_path / "base", make


def heading(folder, name):
    (cell,) = split_cells(record.load(folder / "record.parquet"))
    return cell.heading[name]


def outputs_of(folder, split="test"):
    table = record.load(folder / "outputs" / f"{split}.parquet")
    rows = zip(record.rows(table, "attention"), record.rows(table, "probs"), strict=True)
    return dict(zip(table.column("instance_id").to_pylist(), rows, strict=True))


def shake(folder):
    """Change the weights in a run's model."""
    path = folder / "model" / "model.safetensors"
    save_file({name: value + 0.01 for name, value in load_file(path).items()}, path, metadata={"format": "pt"})


def test_records_name_the_objective_and_outputs_are_those_of_the_model(family):
    assert {name: heading(folder, "objective") for name, (folder, _) in family.items()} == {
        "base": "classification",
        "adversary": "adversarial(kl, 0.05, attention rate x 30)",
        "guided": "guided(bilstm+additive+softmax)",
        "guided_by_adversary": "guided(adversarial(kl, 0.05))",
    }
    joined = record.concatenate(record.load(folder / "outputs" / "test.parquet") for folder, _ in family.values())
    assert joined.num_rows == 4 * 24
    facts = record_facts(record.load(family["adversary"][0] / "record.parquet"))
    assert facts["trained against"] == str(family["base"][0])
    base = family["base"][0]
    table, test, train = (
        record.load(base / name) for name in ("record.parquet", "outputs/test.parquet", "outputs/train.parquet")
    )
    assert all(test.column(name).equals(table.column(name)) for name in ("instance_id", "attention", "probs"))
    assert train.num_rows == 64 and record.settings(train)[0]["producers"] == []


def test_an_adversary_attends_elsewhere(family):
    base, adversary = (outputs_of(family[name][0], "validation") for name in ("base", "adversary"))
    (own, own_probs), (other, other_probs) = (
        zip(*(outputs[name] for name in base), strict=True) for outputs in (adversary, base)
    )
    kl = np.array([entropy(*rows) for rows in zip(own, other, strict=True)])
    assert kl.mean() > 0.05
    objective = total_variation_distance(own_probs, other_probs) - 0.05 * kl
    state = runs.read_state(family["adversary"][0])
    assert state["best"] == {"metric": "eval_objective", "value": pytest.approx(objective.mean(), abs=1e-5)}
    assert state["base"]["folder"] == str(family["base"][0])


@pytest.mark.parametrize(("name", "base"), [("guided", "base"), ("guided_by_adversary", "adversary")])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_guided_model_reads_under_the_attention_of_its_base(family, name, base, split):
    expected, outputs = (outputs_of(family[run][0], split) for run in (base, name))
    model = AutoModelForSequenceClassification.from_pretrained(family[name][0] / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(family[name][0] / "model")
    table = record.load(family[name][0] / "outputs" / f"{split}.parquet")
    words = dict(zip(table.column("instance_id").to_pylist(), table.column("tokens").to_pylist(), strict=True))
    for number, (key, (attention, probs)) in enumerate(outputs.items()):
        np.testing.assert_array_equal(attention, expected[key][0])
        if number < 3:
            batch = tokenizer(" ".join(words[key]), return_tensors="pt")
            with torch.no_grad():
                hidden, mask, query = model.encode(batch["input_ids"], batch["attention_mask"])
                logits = model.decode(hidden, torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(attention)), query)
            np.testing.assert_allclose(probs, logits.softmax(-1)[0], atol=1e-6)


def test_an_adversary_starts_with_the_weights_and_batches_of_its_base(against, monkeypatch):
    base, make = against
    starts, make_trainer = {}, runs.train.make_trainer

    def spy(recipe, model, *args):
        trainer = make_trainer(recipe, model, *args)
        collator, own = trainer.data_collator, starts.setdefault(recipe.objective.kind, [])
        own.append({name: value.clone() for name, value in model.state_dict().items()})
        trainer.data_collator = lambda rows: own.append([row["input_ids"] for row in rows]) or collator(rows)
        return trainer

    monkeypatch.setattr(runs.train, "make_trainer", spy)
    runs.run(make())
    runs.run(variant(recipes.load(base / "recipe.yaml"), f"--output_dir={base.parent / 'again'}"))
    (first, *batches), (expected, *expected_batches) = starts["adversarial"], starts["classification"]
    assert all(torch.equal(first[name], expected[name]) for name in expected)
    assert len(batches) > 4 and batches == expected_batches


def test_a_frozen_adversary_keeps_everything_but_its_alignment(against):
    base, make = against
    runs.run(make("adversary", "--objective.frozen", "--weight=1.0"))
    own, other = (load_file(path / "model" / "model.safetensors") for path in (base.parent / "run", base))
    changed = {name for name in own if not torch.equal(own[name], other[name])}
    assert changed == {name for name in own if ".alignment." in name}
    assert heading(base.parent / "run", "objective") == "adversarial(kl, 1, frozen, attention rate x 30)"


class Kill(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        raise KeyboardInterrupt


@pytest.mark.gate
def test_a_killed_adversary_goes_on_to_the_same_weights(family, against, monkeypatch):
    _, make = against
    recipe, make_trainer = make(), runs.train.make_trainer

    def killed_after_an_epoch(*args, **kwargs):
        trainer = make_trainer(*args, **kwargs)
        trainer.add_callback(Kill())
        return trainer

    with monkeypatch.context() as patch:
        patch.setattr(runs.train, "make_trainer", killed_after_an_epoch)
        with pytest.raises(KeyboardInterrupt):
            runs.run(recipe)
    folder = Path(recipe.output_dir)
    assert not (folder / "model").exists()
    runs.run(recipe, resume=True)
    assert not (folder / "checkpoints").exists() and weights(folder) == weights(family["adversary"][0])


def shorter(base):
    path = base / "outputs" / "train.parquet"
    record.save(record.load(path).slice(0, 60), path)


def of_other_texts(base):
    path = base / "outputs" / "train.parquet"
    table = record.load(path)
    (settings,) = record.settings(table)
    record.save(record.with_settings(table, [{**settings, "data": "0" * 64}]), path)


def of_a_selector(base):
    recipe = variant(recipes.load(base / "recipe.yaml"), "--model.selector={kind: budget, budget: 0.5}", "--outputs=[]")
    (base / "recipe.yaml").write_text(recipes.dump(recipe))


OTHER_TEXTS = "was made of other texts, labels or another vocabulary"


@pytest.mark.parametrize(
    ("change", "overrides", "message", "begun"),
    [
        (shutil.rmtree, [], r"is no trained run \(recipe.yaml, run.json, model missing there\)", False),
        (lambda base: (base / "outputs" / "train.parquet").unlink(), [], "keeps no outputs of train", False),
        (of_a_selector, [], "is no model whose attention pools states", False),
        (None, ["--frozen", "--encoder=cnn"], "another model: model.encoder", False),
        (None, ["--hierarchy=sentence"], "has model.hierarchy='none' and this model 'sentence'", False),
        (lambda base: (base / "outputs" / "train.parquet").write_bytes(b"no record"), [], "cannot be used", True),
        (shake, [], "was made by another model than the one beside it", True),
        (shorter, [], OTHER_TEXTS, True),
        (of_other_texts, [], OTHER_TEXTS, True),
        (None, ["--data.max_length=5"], OTHER_TEXTS, True),
    ],
)
def test_a_base_that_cannot_serve(against, tmp_path, monkeypatch, change, overrides, message, begun):
    base, make = against
    never_trained(monkeypatch)
    if change:
        change(base)
    with pytest.raises(RunError, match=message):
        runs.run(make("adversary", *overrides))
    assert entries(tmp_path / "run") == ["recipe.yaml", "run.json"] if begun else not (tmp_path / "run").exists()


def test_a_base_of_another_kind(family, against):
    _, make = against
    own = f"--output_dir={family['base'][0]}"
    for name, base, overrides, message in (
        ("adversary", "adversary", [], "has objective adversarial; .*'adversarial' must be classification"),
        ("guided", "guided", [], "has objective guided; .*'guided' must be classification or adversarial"),
        ("adversary", "base", [own], "is this run's own output_dir"),
    ):
        with pytest.raises(RunError, match=message):
            runs.run(make(name, f"--base={family[base][0]}", *overrides), overwrite=True)


def test_a_sparse_base_in_half_precision(against, family, tmp_path):
    _, make = against
    sparse = ["--projection=sparsegen", "--sparsegen_lambda=0.999"]
    runs.run(variant(family["base"][1], f"--output_dir={tmp_path / 'sparse'}", *sparse))
    assert any((attention == 0).any() for attention, _ in outputs_of(tmp_path / "sparse").values())
    recipe = make("adversary", f"--base={tmp_path / 'sparse'}", *sparse, "--bf16")
    with pytest.raises(ValueError, match="use divergence 'jsd' against a sparse base"):
        runs.run(recipe)
    runs.run(variant(recipe, "--divergence=jsd"))
    assert heading(tmp_path / "run", "objective") == "adversarial(jsd, 0.05, attention rate x 30)"


def test_a_base_that_was_trained_anew(family, against):
    base, make = against
    recipe = make("guided")
    runs.run(recipe)
    shake(base)
    runs.run(variant(recipes.load(base / "recipe.yaml"), f"--output_dir={base}"), resume=True)
    with pytest.raises(RunError, match=r"was trained anew since the run in .* run that again with --overwrite_output_dir"):
        runs.run(variant(recipe, "--limit=5"), resume=True)


def test_a_hierarchical_base_by_sentences_and_by_words(tiny_recipe, tmp_path, monkeypatch):
    base = str(tmp_path / "base")
    common = {
        "model__hierarchy": "sentence",
        "data__max_sentence_length": 6,
        "data__max_sentences": 3,
        "data__arguments": {"length": [10, 30], "sizes": {"train": 64, "validation": 24, "test": 24}},
        "measure__outputs": OUTPUTS["outputs"],
        "report__page": False,
    }
    own = {"measure__producers": ["gradient", "leave_one_out", "permutation"], "output_dir": base}
    guided = {"measure__producers": [], "objective": {"kind": "guided", "base": base}}
    runs.run(tiny_recipe(**common, **own))
    runs.run(tiny_recipe(**common, **guided, output_dir=str(tmp_path / "guided")))
    by_sentence, of_guided = (record.load(tmp_path / name / "record.parquet") for name in ("base", "guided"))
    for table in (by_sentence, of_guided):
        words = record.rows(table, "words")
        assert {len(sentences) for sentences in words} == {2, 3} and table.column("truncated").to_pylist().count(True) > 3
        assert max(len(sentence) for sentences in words for sentence in sentences) == 6
    for attention, expected in zip(record.rows(of_guided, "attention"), record.rows(by_sentence, "attention"), strict=True):
        np.testing.assert_array_equal(attention, expected)
    assert heading(tmp_path / "guided", "objective") == "guided(bilstm(sentence)+additive+softmax)"

    never_trained(monkeypatch)
    runs.run(tiny_recipe(**common, **own, measure__level="word"), resume=True)
    by_word = record.load(tmp_path / "base" / "record.parquet")
    assert heading(tmp_path / "base", "encoder") == "bilstm(sentence, words)"
    words = [[word for sentence in row for word in sentence] for row in by_sentence.column("words").to_pylist()]
    assert by_word.column("tokens").to_pylist() == words
    probs = [np.stack(record.rows(table, "probs")) for table in (by_word, by_sentence)]
    np.testing.assert_allclose(*probs, atol=1e-6)
