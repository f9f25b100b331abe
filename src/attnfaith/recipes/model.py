"""The model section of a recipe, as the configuration of a model: the one place where its rules are asked."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attnfaith.data.registry import entry_of
from attnfaith.errors import excerpt
from attnfaith.recipes.schema import Recipe
from attnfaith.recipes.sections import RecipeError


if TYPE_CHECKING:
    from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig


def model_config(recipe: Recipe, pair: bool, **fields) -> "AttentionClassifierConfig":
    """The configuration of the recipe's model; `fields` is what data and vectors decide.

    Raises RecipeError where the configuration refuses a field. Loads transformers and torch, which takes seconds: reading a
    recipe does not call it, what starts to work does, before anything is done.
    """
    from huggingface_hub.errors import StrictDataclassError

    from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig

    section = recipe.model
    fields = {**dataclasses.asdict(section), **fields}
    fields["query"] = section.query or ("text" if pair else "learned")
    sizes = {"transformer": 128, "embedding": fields["embedding_size"]}
    if section.hidden_size is None:
        fields["hidden_size"] = sizes.get(section.encoder, 256)
    try:
        return AttentionClassifierConfig(**fields)
    except StrictDataclassError as error:
        raise RecipeError(f"model: {excerpt(error.__cause__ or error, 300)}") from error


def check_models(recipes: Mapping[str, Recipe]) -> None:
    """Raise RecipeError, naming the recipe, where `model_config` refuses one of many: before the first of them is run."""
    for name, recipe in recipes.items():
        try:
            model_config(recipe, entry_of(recipe.data).pair)
        except RecipeError as error:
            raise RecipeError(f"{name}: {error}") from error
