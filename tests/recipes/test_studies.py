"""Every study under recipes/ can be planned: its recipes and its analysis load, and published numbers have a source."""

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from attnfaith.hub import repo_id_of
from attnfaith.reporting.analysis import Analysis
from attnfaith.reporting.cards import checkpoint_name
from attnfaith.reporting.study import analyse
from attnfaith.study.command import prepare
from attnfaith.study.plan import read_study


RECIPES = Path(__file__).parents[2] / "recipes"
STUDIES = sorted(path for path in RECIPES.rglob("*.yaml") if "\nblocks:" in path.read_text(encoding="utf-8"))
PAPERS = sorted(path for path in RECIPES.glob("*/published*.csv"))


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: str(path.relative_to(RECIPES)))
def test_a_study_plans(path, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    study = read_study(path)
    cells, recipes = prepare(study)
    assert cells and set(recipes) == {cell.name for cell in cells}
    assert analyse(study) == Analysis(), "without cells an analysis checks the study and makes nothing"
    if "published" in study:
        assert Path(study["published"]).resolve().parent == path.parent, "a paper's numbers stand in its folder"


def test_studies_and_papers_are_there():
    assert len(STUDIES) > 10 and len(PAPERS) > 3
    with_analysis = [path for path in STUDIES if "\nanalysis:" in path.read_text(encoding="utf-8")]
    assert {path.parent for path in PAPERS} <= {path.parent for path in with_analysis}


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: str(path.relative_to(RECIPES)))
def test_every_published_number_has_a_source(path):
    published = pd.read_csv(path)
    assert len(published) and published["source"].notna().all()
    assert published["source"].str.strip().ne("").all()


def test_the_released_checkpoints(monkeypatch):
    """Data sets x encoders x projections, under names that the Hub allows."""
    monkeypatch.chdir(RECIPES.parent)
    planned, wanted = prepare(read_study(Path("release.yaml")))
    models = set()
    for name, recipe in wanted.items():
        models.add((recipe.data.name, recipe.model.encoder, recipe.model.projection))
        assert repo_id_of("somebody", checkpoint_name(name)) == f"somebody/{name}"
    factors = (("sst", "20news_sports"), ("bilstm", "transformer"), ("softmax", "sparsemax", "entmax15"))
    assert models == set(product(*factors)) and len(planned) == 12
