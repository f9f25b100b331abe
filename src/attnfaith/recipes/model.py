"""The model section of a recipe, as the configuration of a model: the one place where its rules are asked."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attnfaith.data.registry import entry_of
from attnfaith.errors import AttnfaithError, excerpt
from attnfaith.recipes.schema import Model, Recipe
from attnfaith.recipes.sections import RecipeError
from attnfaith.recipes.sequences import sequence_config


OF_OTHERS = ("pretrained", "revision", "separate_impermissible", "selector", "type", "recurrence")
"""The keys that are no fields of a classifier's configuration."""


if TYPE_CHECKING:
    from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig


def model_config(recipe: Recipe, pair: bool, **fields) -> "AttentionClassifierConfig":
    """The configuration of the recipe's model; `fields` is what data and vectors decide.

    Raises RecipeError where the configuration refuses a field. Loads transformers and torch, which takes seconds: reading a
    recipe does not call it, what starts to work does, before anything is done.
    """
    from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig

    section = recipe.model
    fields = {**{name: value for name, value in dataclasses.asdict(section).items() if name not in OF_OTHERS}, **fields}
    if section.selector is not None:
        if pair:
            raise RecipeError("model.selector with pairs of texts: a selection is of single texts; leave it out")
        fields |= selector_fields(section.selector)
        if section.selector["encoder"] == "embedding" or section.encoder == "embedding":
            fields["hidden_size"] = section.hidden_size or fields["embedding_size"]
    fields["query"] = section.query or ("text" if pair else "learned")
    sizes = {"transformer": 128, "embedding": fields["embedding_size"]}
    if fields["hidden_size"] is None:
        fields["hidden_size"] = sizes.get(section.encoder, 256)
    if section.selector is not None:
        from attnfaith.models.configuration_rationale_classifier import RationaleClassifierConfig

        return _asked(RationaleClassifierConfig, fields)
    return _asked(AttentionClassifierConfig, fields)


def selector_fields(selector: Mapping[str, object]) -> dict[str, object]:
    """The fields of a configuration that the keys of model.selector say; what is null is as the configuration has it."""
    names = {"kind": "sampler", "encoder": "selector_encoder"}
    return {names.get(name, name): value for name, value in selector.items() if value is not None}


def check_model(recipe: Recipe) -> None:
    """Raise RecipeError where the configuration of the recipe's model refuses a field, and where states and word vectors
    that are to be tied have two sizes. That of a file of vectors, of a pretrained model, or of a selector over one, is known
    when it is loaded.
    """
    if recipe.model.type is not None:
        sequence_config(recipe, vocab_size=100)
    elif recipe.model.pretrained is None:
        config = model_config(recipe, entry_of(recipe.data).pair)
        if recipe.penalties.word_tying and recipe.data.vectors is None:
            _check_tied(recipe.penalties.word_tying, config)
    elif recipe.model.selector is None:
        from attnfaith.models.configuration_self_attention_classifier import SelfAttentionClassifierConfig

        _asked(SelfAttentionClassifierConfig, projection_fields(recipe.model))


def _check_tied(weight: float, config: "AttentionClassifierConfig") -> None:
    from attnfaith.training.penalties import check_sizes

    try:
        check_sizes(config.hidden_size, config.embedding_size)
    except AttnfaithError as error:
        raise RecipeError(f"penalties.word_tying={weight:g}: {error}") from error


def projection_fields(section: Model) -> dict[str, object]:
    """The fields of a configuration that say what a pretrained model's attention becomes."""
    names = ("projection", "sparsegen_lambda", "entmax_alpha", "separate_impermissible")
    return {name: getattr(section, name) for name in names}


def _asked(kind: type, fields: Mapping[str, object]):
    from huggingface_hub.errors import StrictDataclassError

    try:
        return kind(**fields)
    except StrictDataclassError as error:
        raise RecipeError(f"model: {excerpt(error.__cause__ or error, 300)}") from error


def check_models(recipes: Mapping[str, Recipe]) -> None:
    """Raise RecipeError, naming the recipe, where `check_model` refuses one of many: before the first of them is run."""
    for name, recipe in recipes.items():
        try:
            check_model(recipe)
        except RecipeError as error:
            raise RecipeError(f"{name}: {error}") from error
