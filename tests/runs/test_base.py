"""Models that are trained against another run: adversaries, guided models, and the bases that cannot serve."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import entropy
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from attnfaith import recipes, record, runs
from attnfaith.metrics.attention_faithfulness.divergences import total_variation_distance
from attnfaith.reporting.cells import split_cells
from attnfaith.runs import RunError
from attnfaith.support.files import read_object
from tests.runs.test_runs import entries, never_trained, variant
from tests.tiny_recipes import tiny_tree


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, an adversary of it and a guided model of that: {name: (folder, recipe)}; not to be changed."""
    root = tmp_path_factory.mktemp("family")
    training = {"num_train_epochs": 2, "learning_rate": 0.01, "arguments": {"disable_tqdm": True}}
    mlp = {"encoder": "average", "embedding_size": 8, "hidden_size": 8}
    objective = {"kind": "adversarial", "base": str(root / "base"), "weight": 2.0}
    parts = {
        "base": {},
        "adversary": {"objective": objective, "training": training | {"learning_rate": 0.05, "num_train_epochs": 8}},
        "guided": {"model": mlp, "objective": {"kind": "guided", "base": str(root / "adversary")}},
    }
    family = {}
    for name, keys in parts.items():
        tree = tiny_tree(root / name, name=name, measure={"producers": []}, report={"page": False})
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


def outputs_of(folder, recipe=None):
    """{instance id: (attention, probs)} of a run's record, or of its model on validation."""
    path = folder / "record.parquet"
    if recipe:
        path = runs.measure_run(folder, variant(recipe, "--split=validation"), folder / "validation.parquet")
    table = record.load(path)
    rows = zip(record.rows(table, "attention"), record.rows(table, "probs"), strict=True)
    return dict(zip(table.column("instance_id").to_pylist(), rows, strict=True))


def test_an_adversary_attends_elsewhere(family):
    base, adversary = (outputs_of(*family[name]) for name in ("base", "adversary"))
    (own, own_probs), (other, other_probs) = (
        zip(*(outputs[name] for name in base), strict=True) for outputs in (adversary, base)
    )
    kl = np.array([entropy(*rows) for rows in zip(own, other, strict=True)])
    assert kl.mean() > 0.05
    objective = total_variation_distance(own_probs, other_probs) - 2.0 * kl
    state = read_object(family["adversary"][0] / "run.json")
    assert state["best"] == {"metric": "eval_objective", "value": pytest.approx(objective.mean(), abs=1e-5)}
    assert state["base"]["folder"] == str(family["base"][0])


def test_a_guided_model_reads_under_the_attention_of_its_base(family):
    folder = family["guided"][0]
    expected, outputs = outputs_of(family["adversary"][0]), outputs_of(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    table = record.load(folder / "record.parquet")
    assert split_cells(table)[0].heading["objective"] == "guided(adversarial(kl, 2))"
    words = dict(zip(table.column("instance_id").to_pylist(), table.column("tokens").to_pylist(), strict=True))
    for number, (key, (attention, probs)) in enumerate(outputs.items()):
        np.testing.assert_array_equal(attention, expected[key][0])
        if number < 3:
            batch = tokenizer(" ".join(words[key]), return_tensors="pt")
            with torch.no_grad():
                hidden, mask, query = model.encode(batch["input_ids"], batch["attention_mask"])
                logits = model.decode(hidden, torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(attention)), query)
            np.testing.assert_allclose(probs, logits.softmax(-1)[0], atol=1e-6)


def test_an_adversary_starts_with_the_weights_and_batches_of_its_base(against, starts):
    base, make = against
    runs.run(make("adversary", "--num_train_epochs=3"))
    runs.run(variant(recipes.load(base / "recipe.yaml"), f"--output_dir={base.parent / 'again'}"))
    (first, *batches), (expected, *expected_batches) = starts["adversarial"], starts["classification"]
    assert all(torch.equal(first[name], expected[name]) for name in expected)
    assert len(expected_batches) > 4 and batches[: len(expected_batches)] == expected_batches, "it trains longer"


def test_a_frozen_adversary_keeps_everything_but_its_alignment(against):
    base, make = against
    runs.run(make("adversary", "--objective.frozen", "--weight=1.0"))
    own, other = (load_file(path / "model" / "model.safetensors") for path in (base.parent / "run", base))
    changed = {name for name in own if not torch.equal(own[name], other[name])}
    assert changed == {name for name in own if ".alignment." in name}


@pytest.mark.parametrize(
    ("base_keys", "overrides", "message", "begun"),
    [
        (None, [], r"is no trained run \(recipe.yaml, run.json, model missing there\)", False),
        (["--model.selector={kind: budget, budget: 0.5}"], [], "is no model whose attention pools states", False),
        (["--kind=adversarial", "--base=b"], [], "has objective adversarial; for 'adversarial' it must be class", False),
        ([], ["--output_dir={base}"], "is this run's own output_dir", False),
        ([], ["--frozen", "--encoder=cnn"], "is another model than .*: model.encoder", False),
        ([], ["--hierarchy=sentence"], "give both one model.hierarchy", False),
        ([], ["--data.arguments.vocabulary_size=50"], "knows other words: give both runs the same data", True),
    ],
)
def test_a_base_that_cannot_serve(against, tmp_path, monkeypatch, base_keys, overrides, message, begun):
    base, make = against
    never_trained(monkeypatch)
    if base_keys is None:
        shutil.rmtree(base)
    else:
        (base / "recipe.yaml").write_text(recipes.dump(recipes.load(base / "recipe.yaml", base_keys)))
    with pytest.raises(RunError, match=message):
        runs.run(make("adversary", *(word.format(base=base) for word in overrides)), overwrite=True)
    assert entries(tmp_path / "run") == ["recipe.yaml", "run.json"] if begun else not (tmp_path / "run").exists()


def test_a_base_that_was_trained_anew(against):
    base, make = against
    recipe = make("guided")
    runs.run(recipe)
    weights = base / "model" / "model.safetensors"
    save_file({name: value + 0.01 for name, value in load_file(weights).items()}, weights, metadata={"format": "pt"})
    with pytest.raises(RunError, match="was trained anew since the run in .*: run that with --overwrite_output_dir"):
        runs.run(variant(recipe, "--limit=5"), resume=True)
