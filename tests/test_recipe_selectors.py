"""What a recipe may say of a selection, and what it then may not."""

import dataclasses

import pytest

from attnfaith import recipes
from attnfaith.recipes import RecipeError


def build(selector, **sections):
    return recipes.build({"name": "a", "output_dir": "b", "model": {"selector": selector}, **sections})


def test_a_recipe_is_complete():
    """Every default is written out, and what is written reads back as the same recipe."""
    recipe = build({"kind": "bernoulli"})
    assert recipe.model.selector == {
        **{"kind": "bernoulli", "encoder": None, "budget": None, "contiguous": False, "transition": 0.0},
        **{"temperature": None, "test_temperature": None, "threshold": None, "pooling": "average", "reads": "zeroed"},
        "share_embeddings": True,
    }
    section = recipe.selection
    assert (section.sparsity, section.coherence, section.baseline, section.decay) == (3e-4, 2.0, "none", 0.9)
    assert section.share is section.multiplier is section.two_sided is None
    section = build({"kind": "hardkuma"}).selection
    assert (section.share, section.lasso, section.multiplier, section.multiplier_rate) == (0.2, None, 1e-4, 0.01)
    assert (section.two_sided, section.decay, section.sparsity) == (False, 0.99, None)
    assert build({"kind": "hardkuma", "budget": 0.3}).selection.share == 0.3
    budget = build({"kind": "budget", "budget": 0.2})
    assert budget.model.selector["temperature"] == 0.1
    assert set(dataclasses.asdict(budget.selection).values()) == {None}
    for made in (recipe, budget):
        assert recipes.parse(recipes.dump(made)) == made


def test_by_overrides():
    recipe = recipes.load(None, ["--model.selector.kind", "budget", "--model.selector.budget", "0.3"])
    assert recipe.model.selector["budget"] == 0.3
    recipe = recipes.load(None, ["--model.selector", "{kind: hardkuma}", "--two_sided", "--selection.share", "0.1"])
    assert recipe.selection.two_sided and recipe.selection.share == 0.1
    said = recipes.describe("model")
    assert "--model.selector.transition  number, default 0.0" in said and "--selection.lasso" in recipes.describe()


def test_the_configuration(monkeypatch):
    recipe = build(
        {"kind": "budget", "budget": 0.2, "encoder": "cnn", "temperature": 0.05, "transition": 0.1, "pooling": "max"},
    )
    config = recipes.model_config(recipe, False)
    stated = (config.sampler, config.budget, config.selector_encoder, config.temperature, config.transition)
    assert stated == ("budget", 0.2, "cnn", 0.05, 0.1) and config.pooling == "max" and config.encoder == "bilstm"
    with pytest.raises(RecipeError, match="model.selector with pairs of texts"):
        recipes.model_config(recipe, True)


@pytest.mark.parametrize(
    ("selector", "sections", "message"),
    [
        ({}, {}, r"recipe.model.selector lacks \['kind'\]"),
        ({"kind": "gumbel"}, {}, "recipe.model.selector.kind='gumbel' must be"),
        ({"kind": "bernoulli", "buget": 0.1}, {}, "unknown key recipe.model.selector.buget; did you mean .*budget"),
        ({"kind": "budget"}, {}, "model.selector.kind=budget needs model.selector.budget"),
        ({"kind": "budget", "budget": 1.5}, {}, "recipe.model.selector.budget=1.5 must be at most 1"),
        ({"kind": "budget", "budget": 0.0}, {}, "recipe.model.selector.budget=0.0 must be above 0"),
        ({"kind": "budget", "budget": float("nan")}, {}, "recipe.model.selector.budget=nan must be"),
        ({"kind": "hardkuma", "transition": 0.1}, {}, "model.selector.transition=0.1 with .*hardkuma: it is of budget"),
        ({"kind": "hardkuma", "reads": "deleted"}, {}, "model.selector.reads='deleted' with"),
        (
            {"kind": "hardkuma"},
            {"selection": {"sparsity": 0.1}},
            "selection.sparsity=0.1 with .*hardkuma: it is of bernoulli",
        ),
        ({"kind": "budget", "budget": 0.1}, {"selection": {"decay": 0.1}}, "it is of bernoulli and hardkuma; leave it out"),
        ({"kind": "hardkuma"}, {"selection": {"share": 1.5}}, "recipe.selection.share=1.5 must be at most 1"),
        ({"kind": "hardkuma"}, {"selection": {"multiplier_range": [2.0, 1.0]}}, r"must be \[least, greatest\]"),
        (
            {"kind": "hardkuma"},
            {"selection": {"two_sided": True, "multiplier_range": [0.0, 1.0]}},
            r"selection.multiplier_range=\[0.0, 1.0\] with selection.two_sided: .* pulls nothing up",
        ),
        (None, {"selection": {"share": 0.5}}, "selection.share=0.5 without model.selector: there is no selection"),
        ({"kind": "bernoulli"}, {"penalties": {"diversity": 0.5}}, "penalties.diversity=0.5 with model.selector"),
        ({"kind": "bernoulli"}, {"training": {"random_erasure": 0.5}}, "training.random_erasure=0.5 with model.selector"),
        ({"kind": "bernoulli"}, {"measure": {"outputs": ["train"]}}, r"measure.outputs=\['train'\] with model.selector"),
        (
            {"kind": "bernoulli"},
            {"objective": {"kind": "guided", "base": "x"}, "measure": {"producers": []}},
            "choose classif",
        ),
    ],
)
def test_what_means_nothing(selector, sections, message):
    with pytest.raises(RecipeError, match=message):
        build(selector, **sections)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"hierarchy": "sentence"}, "model.hierarchy='sentence' is not of models with a selector"),
        ({"query": "text"}, "model.query='text' is not of models with a selector"),
        ({"projection": "sparsemax"}, "model.projection='sparsemax' is with model.selector.pooling='attention' alone"),
        ({"alignment": "dot"}, "model.alignment='dot' is with model.selector.pooling='attention' alone"),
    ],
)
def test_what_is_of_attention_alone(model, message):
    with pytest.raises(RecipeError, match=message):
        recipes.build({"name": "a", "output_dir": "b", "model": {"selector": {"kind": "bernoulli"}, **model}})
    if "alone" in message:
        recipes.build(
            {"name": "a", "output_dir": "b", "model": {"selector": {"kind": "bernoulli", "pooling": "attention"}, **model}}
        )
