"""The model section of a recipe as the configuration of a model, which refuses what no such model may be."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from attnfaith.data.registry import entry_of
from attnfaith.recipes.recipe import MODEL_KEYS, Recipe
from attnfaith.recipes.schema import Model, RecipeError, Selector
from attnfaith.support.errors import AttnfaithError, excerpt


if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def model_config(recipe: Recipe, pair: bool, **fields) -> "PreTrainedConfig":
    """The configuration of the recipe's classifier; `fields` is what data and vectors decide.

    Raises RecipeError where the configuration refuses a field. Loads transformers and torch, which takes seconds: reading a
    recipe does not call it, what starts to work does, before anything is done.
    """
    from attnfaith.models import AttentionClassifierConfig, RationaleClassifierConfig

    section = recipe.model
    keys = [name for name in MODEL_KEYS["classifier"].split() if name != "selector"]
    fields = {**{name: getattr(section, name) for name in keys}, **fields}
    fields["query"] = section.query or ("text" if pair else "learned")
    words = fields["embedding_size"]
    if section.selector is not None:
        if pair:
            raise RecipeError("model.selector with pairs of texts: a selection is of single texts; leave it out")
        fields |= selector_fields(section.selector)
        if section.selector.encoder == "embedding":
            fields["hidden_size"] = section.hidden_size or words
    if fields["hidden_size"] is None:
        fields["hidden_size"] = {"transformer": 128, "embedding": words}.get(section.encoder, 256)
    return _configured(AttentionClassifierConfig if section.selector is None else RationaleClassifierConfig, **fields)


def selector_fields(selector: Selector) -> dict[str, object]:
    """The fields of a configuration that the keys of model.selector say; what is null is as the configuration has it."""
    names = {"kind": "sampler", "encoder": "selector_encoder"}
    return {names.get(name, name): value for name, value in asdict(selector).items() if value is not None}


def projection_fields(section: Model) -> dict[str, object]:
    """The fields of a configuration that say what a pretrained model's attention becomes."""
    names = ("projection", "sparsegen_lambda", "entmax_alpha", "separate_impermissible")
    return {name: getattr(section, name) for name in names}


def sequence_config(recipe: Recipe, vocab_size: int) -> "PreTrainedConfig":
    """The configuration of the recipe's model of sentence pairs. Raises RecipeError where it refuses a field.

    Of type marian all weights are drawn with a standard deviation of hidden_size^-0.5, so that words, which are multiplied
    by its inverse, are as large as positions.
    """
    from transformers import MarianConfig

    from attnfaith.models import AttentionSeq2SeqConfig

    section = recipe.model
    if section.type == "gru":
        size = section.hidden_size or (section.embedding_size if section.encoder == "embedding" else 256)
        fields = {name: getattr(section, name) for name in MODEL_KEYS["gru"].split() if name != "type"}
        return _configured(AttentionSeq2SeqConfig, vocab_size=vocab_size, **{**fields, "hidden_size": size})
    size, heads = section.hidden_size or 128, section.num_attention_heads
    if size % heads:
        raise RecipeError(f"model.hidden_size={size} must be a multiple of model.num_attention_heads={heads}")
    sides = {}
    for side in ("encoder", "decoder"):
        sides[f"{side}_layers"] = section.num_hidden_layers
        sides[f"{side}_attention_heads"] = heads
        sides[f"{side}_ffn_dim"] = section.intermediate_size
    return _configured(
        MarianConfig,
        vocab_size=vocab_size,
        d_model=size,
        **sides,
        dropout=section.dropout,
        init_std=size**-0.5,
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=0,
        bos_token_id=2,
        decoder_start_token_id=2,
        eos_token_id=3,
        forced_eos_token_id=None,
    )


def check_model(recipe: Recipe) -> None:
    """Raise RecipeError where the configuration of the recipe's model refuses a field, and where states and word vectors
    that are to be tied have two sizes. What files decide is known when they are loaded.
    """
    from attnfaith.models import SelfAttentionClassifierConfig
    from attnfaith.training.penalties import check_sizes

    if recipe.kind == "translator":
        sequence_config(recipe, vocab_size=100)
    elif recipe.kind == "pretrained":
        if recipe.model.selector is None:
            _configured(SelfAttentionClassifierConfig, **projection_fields(recipe.model))
    else:
        config, weight = model_config(recipe, entry_of(recipe.data).pair), recipe.penalties.word_tying
        if weight and recipe.data.vectors is None:
            try:
                check_sizes(config.hidden_size, config.embedding_size)
            except AttnfaithError as error:
                raise RecipeError(f"penalties.word_tying={weight:g}: {error}") from error


def check_models(recipes: Mapping[str, Recipe]) -> None:
    """Raise RecipeError, naming the recipe, where `check_model` refuses one of many: before the first of them is run."""
    for name, recipe in recipes.items():
        try:
            check_model(recipe)
        except RecipeError as error:
            raise RecipeError(f"{name}: {error}") from error


def _configured(kind: Callable, **fields):
    from huggingface_hub.errors import StrictDataclassError

    try:
        return kind(**fields)
    except StrictDataclassError as error:
        raise RecipeError(f"model: {excerpt(error.__cause__ or error, 300)}") from error
