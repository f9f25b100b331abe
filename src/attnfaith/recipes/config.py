"""The model section of a recipe as the configuration of a model, which checks the values."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from attnfaith.data.registry import entry_of, pairs_entry
from attnfaith.recipes.recipe import MODEL_KEYS, Recipe
from attnfaith.recipes.schema import Model, RecipeError, Selector
from attnfaith.support.errors import AttnfaithError, excerpt


if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def model_config(recipe: Recipe, pair: bool, **fields) -> "PreTrainedConfig":
    """Return the configuration of the recipe's classifier. fields: those that data and vectors decide.

    Raises RecipeError where the configuration refuses a field. Loads transformers and torch, which takes seconds.
    """
    from attnfaith.models import AttentionClassifierConfig, RationaleClassifierConfig

    section = recipe.model
    keys = [name for name in MODEL_KEYS["classifier"].split() if name != "selector"]
    fields = {**{name: getattr(section, name) for name in keys}, **fields}
    fields["query"] = section.query or ("text" if pair else "learned")
    embedding_size = fields["embedding_size"]
    if section.selector is not None:
        if pair:
            raise RecipeError("model.selector with pairs of texts: a selector reads single texts; leave it out")
        fields |= selector_fields(section.selector)
        if section.selector.encoder == "embedding":
            fields["hidden_size"] = section.hidden_size or embedding_size
    if fields["hidden_size"] is None:
        fields["hidden_size"] = {"transformer": 128, "embedding": embedding_size}.get(section.encoder, 256)
    return _configured(AttentionClassifierConfig if section.selector is None else RationaleClassifierConfig, **fields)


def selector_fields(selector: Selector) -> dict[str, object]:
    """Return the fields of a configuration that the keys of model.selector set; null keys leave the default."""
    names = {"kind": "sampler", "encoder": "selector_encoder"}
    return {names.get(name, name): value for name, value in asdict(selector).items() if value is not None}


def projection_fields(section: Model) -> dict[str, object]:
    """Return the fields of a configuration that set the projection of a pretrained model's attention."""
    names = ("projection", "sparsegen_lambda", "entmax_alpha", "separate_impermissible")
    return {name: getattr(section, name) for name in names}


def sequence_config(recipe: Recipe, vocab_size: int) -> "PreTrainedConfig":
    """Return the configuration of the recipe's model of sentence pairs. Raises RecipeError where it refuses a field.

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
    parts = {"layers": section.num_hidden_layers, "attention_heads": heads, "ffn_dim": section.intermediate_size}
    return _configured(
        MarianConfig,
        vocab_size=vocab_size,
        d_model=size,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in parts.items()},
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


def check_data(recipe: Recipe) -> None:
    """Raise DatasetError where no data set of the recipe's name is registered for its kind of model. Needs no torch."""
    if recipe.kind != "translator":
        entry_of(recipe.data)
    elif recipe.data.path is None:
        pairs_entry(recipe.data.name)


def check_model(recipe: Recipe) -> None:
    """Raise RecipeError where the configuration of the recipe's model refuses a field, or states and word vectors that are
    to be tied have two sizes; DatasetError as `check_data`. What depends on files is checked when they are loaded.
    """
    check_data(recipe)
    from attnfaith.models import SelfAttentionClassifierConfig
    from attnfaith.training.penalties import check_sizes

    if recipe.kind == "translator":
        sequence_config(recipe, vocab_size=100)
    elif recipe.kind == "classifier":
        config = model_config(recipe, entry_of(recipe.data).pair)
        if recipe.penalties.word_tying and recipe.data.vectors is None:
            try:
                check_sizes(config.hidden_size, config.embedding_size)
            except AttnfaithError as error:
                raise RecipeError(f"penalties.word_tying: {error}") from error
    else:
        _configured(SelfAttentionClassifierConfig, **projection_fields(recipe.model))


def _configured(kind: Callable, **fields):
    from huggingface_hub.errors import StrictDataclassError

    try:
        return kind(**fields)
    except StrictDataclassError as error:
        raise RecipeError(f"model: {excerpt(error.__cause__ or error, 300)}") from error
