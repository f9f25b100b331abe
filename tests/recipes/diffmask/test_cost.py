"""What DiffMask costs is told of the run that is named, with the measures that it stands beside."""

import importlib

import pandas as pd
import pytest

from attnfaith import recipes, runs
from attnfaith.recipes import library


@pytest.mark.slow
def test_costs_of_a_run(tiny_recipe, quick_report, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(library.folder() / "diffmask"))
    cost = importlib.import_module("cost")
    options = {"diffmask": {"epochs": 1, "train_texts": 8, "validation_texts": 4}}
    recipe = tiny_recipe(measure={"producers": ["diffmask"], "options": options})
    runs.run(recipe)
    cost.main([recipe.output_dir, "--texts", "4", "--seconds", "0.001", "--output", str(tmp_path / "costs")])
    table = pd.read_csv(tmp_path / "costs" / "cost_run.csv")
    assert list(table["what"][:4]) == ["reading", "diffmask", "integrated gradients", "occlusion"] and len(table) == 5
    assert (table["texts"] == 4).all() and (table["ms_per_text"] > 0).all() and table["readings"][0] == 1
    log = pd.read_csv(tmp_path / "costs" / "training_run.csv")
    assert set(log["chosen"]) <= {0, 1} and {"multiplier", "validation_constraint"} <= set(log)
    assert recipes.load(f"{recipe.output_dir}/recipe.yaml").measure.producers == ["diffmask"]
    for path in (tmp_path / "run" / "gates").iterdir():
        path.unlink()
    with pytest.raises(SystemExit, match="has no trained gates: attnfaith measure"):
        cost.main([recipe.output_dir, "--output", str(tmp_path)])
