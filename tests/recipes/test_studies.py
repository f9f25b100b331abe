"""Every recipe and study under recipes/ can be carried out: models suit data, analyses load, numbers have a source."""

from pathlib import Path

import pandas as pd
import pytest

from attnfaith import recipes, runs
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


def check(recipe):
    """The recipe's configurations suit its data, and its measures exist."""
    runs.training_arguments(recipe)
    runs.check_model(recipe)
    registry.check_names(recipe.measure.producers, recipe.reads)


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_a_recipe_builds(path):
    recipe = recipes.load(path)
    check(recipe)
    assert recipes.build(recipes.read_value(recipes.dump(recipe), "")) == recipe
    assert recipe.name == path.stem and recipe.note


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=name_of)
def test_a_study_plans_and_its_cells_build(path):
    study = read_study(path)
    assert analyse(vars(study)) == Analysis(), "without cells an analysis checks the study and makes nothing"
    if study.published:
        assert Path(study.published).resolve().parent == path.parent, "a paper's numbers stand in its folder"
    for cell in prepare(study):
        check(cell.whole_recipe)
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
