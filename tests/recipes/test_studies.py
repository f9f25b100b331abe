"""Every recipe and study under recipes/ can be carried out: models build, analyses load, published numbers have a source."""

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from attnfaith import (
    AttentionClassifierForSequenceClassification,
    RationaleClassifierForSequenceClassification,
    recipes,
    runs,
)
from attnfaith.data.registry import entry_of
from attnfaith.measurement import registry
from attnfaith.reporting.analysis import Analysis, analyse
from attnfaith.study.execute import prepare
from attnfaith.study.plan import read_study


ROOT = Path(__file__).parents[2] / "recipes"
FILES = sorted(ROOT.rglob("*.yaml"))
STUDIES = [path for path in FILES if "\nblocks:" in path.read_text(encoding="utf-8")]
RECIPES = [path for path in FILES if path not in STUDIES]
PAPERS = sorted(ROOT.glob("*/published*.csv"))


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT.parent)


def check_model(recipe):
    """Build the recipe's model, small, and read a batch; check the names of its measures."""
    runs.training_arguments(recipe)
    registry.check_names(recipe.measure.producers, recipe.reads)
    if recipe.kind == "pretrained":  # its files are elsewhere
        return runs.check_model(recipe)
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, hidden_size=8))
    if recipe.kind == "translator":
        model, ids = (
            AutoModelForSeq2SeqLM.from_config(runs.model_config(recipe, vocab_size=30)),
            torch.tensor([[5, 6, 7, 3]]),
        )
        assert model(ids, labels=ids[:, 1:]).logits.shape == (1, 3, 30)
        return None
    entry = entry_of(recipe.data)
    num_labels = len(entry.label_names) or 3  # where answers are the labels, the training texts decide
    small = {"embedding_size": 8, "intermediate_size": 8, "alignment_size": 4, "vocab_size": 30, "num_labels": num_labels}
    classes = AttentionClassifierForSequenceClassification, RationaleClassifierForSequenceClassification
    model = classes[recipe.model.selector is not None](runs.model_config(recipe, pair=entry.pair, **small))
    types = {"token_type_ids": torch.tensor([[0, 0, 0, 0, 1, 1, 1]])} if entry.pair else {}
    assert model(torch.tensor([[2, 5, 6, 3, 2, 7, 3]]), **types).logits.shape == (1, num_labels)


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_a_recipe_builds(path):
    recipe = recipes.load(path)
    check_model(recipe)
    assert recipes.build(recipes.read_value(recipes.dump(recipe), "")) == recipe
    assert recipe.name == path.stem and recipe.note


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=name_of)
def test_a_study_plans_and_its_models_build(path):
    """Of cells that differ in their seeds alone, the first builds."""
    study = read_study(path)
    cells = prepare(study)
    assert analyse(vars(study)) == Analysis(), "without cells an analysis checks the study and makes nothing"
    if study.published:
        assert Path(study.published).resolve().parent == path.parent, "a paper's numbers stand in its folder"
    apart, kinds = ("--seed=", "--name=", "--output_dir=", "--objective.base=", "--data.removal."), {}
    for cell in cells:
        kinds.setdefault((cell.recipe, *(words for words in cell.overrides if not words.startswith(apart))), cell)
    for cell in kinds.values():
        check_model(cell.whole_recipe)
        base = cell.whole_recipe.base
        assert base is None or Path(base).name in cell.after, f"{cell.name} reads a run that it does not wait for"


@pytest.mark.slow
def test_an_output_folder_is_of_one_recipe():
    """Studies may share runs; then they agree on how a run is made."""
    assert len({recipes.load(path).output_dir for path in RECIPES}) == len(RECIPES)
    studies = [read_study(path) for path in STUDIES]
    assert len({study.results for study in studies}) == len(studies)
    first = {}
    for recipe in (cell.whole_recipe for study in studies for cell in prepare(study)):
        assert recipes.differences(first.setdefault(recipe.output_dir, recipe), recipe) == [], recipe.output_dir


@pytest.mark.parametrize("path", PAPERS, ids=name_of)
def test_every_published_number_has_a_source_and_a_study(path):
    published = pd.read_csv(path)
    assert len(published) and published["source"].notna().all() and published["source"].str.strip().ne("").all()
    assert any("\nanalysis:" in study.read_text("utf-8") for study in STUDIES if study.parent == path.parent)
