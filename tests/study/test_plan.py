"""The plan of a study: cells of a grid, and the studies that are refused before a cell is run."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from attnfaith import recipes
from attnfaith.study import execute, plan
from attnfaith.support.errors import AttnfaithError


RECIPES = Path(__file__).parents[2] / "recipes"
JAIN_WALLACE = {name: str(RECIPES / "jain_wallace_2019" / file) for name, file in (
    ("analysis", "analysis.py"), ("published", "published.csv"))}  # fmt: skip
TINY = {"name": "tiny", "output_dir": "unused", "model": {"embedding_size": 8, "hidden_size": 8}}
BASE = {"name": "base", "set": {"measure.limit": 5}, "grid": {"seed": [1, 2]}}
GUIDED = {
    "name": "guided",
    "set": {"objective.kind": "guided", "objective.base": "{output_dir}/base-{seed}", "measure.producers": []},
    "grid": {"seed": [1, 2]},
    "after": ["base-{seed}"],
}


def study_of(*blocks, output_dir="runs/x"):
    return recipes.make_section(plan.Study, {"output_dir": output_dir, "results": "results", "blocks": [*blocks]}, "study")


def test_cells_are_the_product_of_the_grid():
    block = {"recipe": "a/sst.yaml", "set": {"use_cpu": True}, "grid": {"encoder": ["cnn", "average"], "seed": [1, None]}}
    planned = plan.cells(study_of(block))
    assert [cell.name for cell in planned] == ["sst-cnn-1", "sst-cnn-None", "sst-average-1", "sst-average-None"]
    assert planned[1].overrides == [
        *("--report.page=false", "--use_cpu=true", '--encoder="cnn"', "--seed=null"),
        *('--output_dir="runs/x/sst-cnn-None"', '--name="sst-cnn-None"'),
    ]


@pytest.mark.parametrize("value", ["yes", "a #1", "1e-3", "two\nlines", 'it\'s {not} "that"', "- a: b"])
def test_a_text_of_a_study_is_read_as_that_text(value):
    block = {"recipe": "a/sst.yaml", "set": {"note": value.replace("{not}", "{seed}")}, "grid": {"seed": [3]}}
    (cell,) = plan.cells(study_of(block))
    recipe = recipes.build(TINY, cell.overrides)
    assert recipe.note == value.replace("{not}", "3") and recipe.seed == 3


def test_a_value_may_name_a_key_of_the_grid():
    cells = {cell.name: cell for cell in plan.cells(study_of({"recipe": "a.yaml", **BASE}, {"recipe": "a.yaml", **GUIDED}))}
    assert list(cells) == ["base-1", "base-2", "guided-1", "guided-2"]
    assert cells["guided-2"].after == ["base-2"] and cells["base-2"].after == []
    assert '--objective.base="runs/x/base-2"' in cells["guided-2"].overrides
    assert [cell.name for cell in plan.choose([*cells.values()], "guided-2")] == ["base-2", "guided-2"]
    with pytest.raises(recipes.RecipeError, match="--only"):
        plan.choose([*cells.values()], "cnn")


@pytest.mark.parametrize(
    ("blocks", "keys", "message"),
    [
        ([GUIDED], {}, r"is after \['base-1'\], and above it are"),
        ([{"grid": {"seed": [1]}, "after": ["base-{sed}"]}], {}, r"\{sed\} is no key .* known: seed, output_dir"),
        ([{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}], {}, r"cell a is after \['b'\], and above it"),
        ([{"grid": {"seed": [1, 1]}}], {}, "two cells are called tiny-1"),
        ([{"grid": {"seed": []}}], {}, "grid.seed=.*at least 1 item"),
        ([{"name": "../a"}], {}, "'../a' is no name for a folder"),
        ([{"grid": {"learning_rate": [0.1, 0.2]}}], {}, "cells 'tiny-0.1' and 'tiny-0.2' are one model"),
        ([{"set": {"seed": "x"}}], {}, "cell tiny: .*recipe.seed='x'"),
        ([], {}, "study.blocks=.*at least 1 item"),
        ([{}], {"blcks": []}, "study.blcks; did you mean 'blocks'"),
        ([{}], {"tables": ["agrement"]}, r"tables \['agrement'\] are not known; choose from .*agreement"),
        ([{}], {"analysis": "nowhere.py"}, "no analysis at nowhere.py"),
        ([{}], {"published": "nowhere.csv"}, "published without analysis"),
        ([{}], b"\xff\xfe", "study.yaml"),
    ],
)
def test_a_study_that_cannot_work(tmp_path, blocks, keys, message):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    blocks = [{"recipe": str(tmp_path / "tiny.yaml"), **block} for block in blocks]
    if isinstance(keys, dict):
        tree = {"output_dir": str(tmp_path / "runs"), "results": str(tmp_path / "results"), "blocks": blocks, **keys}
        keys = yaml.safe_dump(tree).encode()
    (tmp_path / "study.yaml").write_bytes(keys)
    with pytest.raises(AttnfaithError, match=message):
        execute.prepare(plan.read_study(tmp_path / "study.yaml"))


def test_cells_that_a_record_tells_apart():
    kinds = ([], ["--random_erasure=0.5"], ["--hierarchy=sentence"])
    wanted = {str(words): recipes.build(TINY, words) for words in kinds}
    plan.check_distinct(wanted)
    for recipe in wanted.values():
        with pytest.raises(recipes.RecipeError, match="give them different seeds"):
            plan.check_distinct(wanted | {"again": recipe})


def test_a_trial_has_folders_of_its_own():
    study = study_of({"recipe": "a.yaml", "grid": {"seed": [1, 2]}})
    settings = ["learning_rate=0.5", "measure.limit=3"]
    tried = plan.trial(study, settings)
    assert tried == plan.trial(study, settings[::-1]) and tried.results == f"{tried.output_dir}/results"
    assert tried.output_dir.startswith("runs/x/trial-") and "--measure.limit=3" in plan.cells(tried)[1].overrides
    assert plan.trial(study, ["output_dir=y"]) == replace(study, output_dir="y")
    for setting in ("seed=3", "nonsense=3"):
        with pytest.raises(AttnfaithError, match=setting.partition("=")[0]):
            plan.trial(study, [setting])
