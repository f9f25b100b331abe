"""Penalties that a recipe cannot have are refused when it is read, or before any text is."""

import pytest

from attnfaith import recipes, runs
from attnfaith.recipes import RecipeError


MINIMAL = "name: a\noutput_dir: b\n"
TIED = "penalties: {word_tying: 1}\n"
NAMES = ("impermissible_mass", "diversity", "word_tying", "masked_language_model")
KINDS = (
    "{kind: untrained}",
    "{kind: guided, base: c}\nmeasure: {producers: []}",
    "{kind: adversarial, base: c}",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("weight", "must"),
    [("-0.1", "=-0.1 must be at least 0"), (".inf", "=inf must be a finite number"), ("'1'", "='1' must be a number")],
)
def test_weights(name, weight, must):
    with pytest.raises(RecipeError, match=rf"recipe\.penalties\.{name}{must}"):
        recipes.parse(MINIMAL + f"penalties: {{{name}: {weight}}}")


@pytest.mark.parametrize(
    ("key", "value", "shown", "of"),
    [
        ("impermissible_heads", "max", "'max'", "impermissible_mass"),
        ("word_tying_distance", "norm", "'norm'", "word_tying"),
        ("word_tying_padding", "false", "False", "word_tying"),
        ("masked_share", "0.15", "0.15", "masked_language_model"),
    ],
)
def test_what_a_penalty_of_zero_cannot_have(key, value, shown, of):
    for weight in ("", f", {of}: 0", ", diversity: 0.5"):
        with pytest.raises(
            RecipeError, match=rf"penalties\.{key}={shown} with penalties\.{of}=0, which adds nothing: .* leave out {key}$"
        ):
            recipes.parse(MINIMAL + f"penalties: {{{key}: {value}{weight}}}")


def test_the_head_with_most_of_one_head():
    with pytest.raises(RecipeError, match="impermissible_heads='max' with a model whose .* has one head: .*leave it out$"):
        recipes.parse(MINIMAL + "penalties: {impermissible_mass: 1, impermissible_heads: max}")
    pretrained = "model: {pretrained: d}\npenalties: {impermissible_mass: 1, impermissible_heads: max}"
    assert recipes.parse(MINIMAL + pretrained).penalties.impermissible_heads == "max"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("objective", KINDS)
def test_objectives_without_labels_of_their_own(name, objective):
    kind = objective.split("kind: ")[1].split(",")[0].split("}")[0]
    with pytest.raises(RecipeError, match=rf"penalties\.{name}=0\.5 with objective\.kind='{kind}': .* leave them out$"):
        recipes.parse(MINIMAL + f"penalties: {{{name}: 0.5}}\nobjective: {objective}")


# ------------------------------------------------------------------------------------------------ words tied to states


@pytest.mark.parametrize(
    ("model", "state", "vector"),
    [
        ("{}", 256, 300),
        ("{encoder: transformer}", 128, 300),
        ("{embedding_size: 100, hidden_size: 50}", 50, 100),
    ],
)
def test_tying_needs_one_size(model, state, vector, tmp_path, monkeypatch):
    """Asked when a study is planned, and by a run before it reads a text or makes its folder."""
    monkeypatch.chdir(tmp_path)
    recipe = recipes.parse(MINIMAL + TIED + f"data: {{path: no_such_file.csv}}\nmodel: {model}")
    message = (
        rf"penalties\.word_tying=1: word tying compares a state of {state} numbers with a word vector of {vector}: set "
        rf"model\.hidden_size to {vector}, or model\.embedding_size to {state}$"
    )
    with pytest.raises(RecipeError, match=f"^second: {message}"):
        recipes.check_models({"first": recipes.parse(MINIMAL), "second": recipe})
    with pytest.raises(RecipeError, match=f"^{message}"):
        runs.run(recipe)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        TIED + "model: {embedding_size: 256}",
        TIED + "model: {encoder: embedding}",
        TIED + "data: {vectors: some.vec}",  # whose size the file says
        "penalties: {diversity: 1}",
    ],
)
def test_sizes_that_may_be(text):
    recipes.check_model(recipes.parse(MINIMAL + text))
