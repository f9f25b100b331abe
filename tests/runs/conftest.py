"""A complete run on generated texts, made once, and copies of it that may be changed."""

import shutil

import pytest

from attnfaith import recipes, runs
from tests.figures import SAVE, without_pixels
from tests.tiny_recipes import tiny_tree


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a complete run and its recipe; not to be changed."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    recipe = recipes.build(tiny_tree(folder, note="a note"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SAVE, without_pixels)
        assert runs.run(recipe) == folder / "report" / "index.html"
    return folder, recipe


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the complete run that may be changed, with its recipe."""
    folder = shutil.copytree(finished[0], tmp_path / "run")
    text = (folder / "recipe.yaml").read_text().replace(str(finished[0]), str(folder)).replace("note: a note", "note: ''")
    (folder / "recipe.yaml").write_text(text)
    return folder, recipes.load(folder / "recipe.yaml")


@pytest.fixture
def starts(monkeypatch):
    """{objective: [the weights that its training starts from, the texts of its first batch, of its second, …]}"""
    starts, make_trainer = {}, runs.train.make_trainer

    def spy(recipe, model, *args):
        trainer = make_trainer(recipe, model, *args)
        collator, own = trainer.data_collator, starts.setdefault(recipe.objective.kind, [])
        own.append({name: value.clone() for name, value in model.state_dict().items()})
        trainer.data_collator = lambda rows: own.append([row["input_ids"] for row in rows]) or collator(rows)
        return trainer

    monkeypatch.setattr(runs.train, "make_trainer", spy)
    return starts
