"""The model section of a recipe as the configuration of a model, which checks the values."""

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from attnfaith.data.registry import entry_of, pairs_entry
from attnfaith.recipes.schema import MODEL_KEYS, PROJECTION, Recipe, RecipeError
from attnfaith.support.errors import closest, excerpt


if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def model_config(recipe: Recipe, pair: bool, **fields) -> "PreTrainedConfig":
    """Return the configuration of the recipe's classifier; of a pretrained one, that of its projection.

    pair: whether texts are pairs, of which the second asks. fields: those that data and vectors decide.

    Raises RecipeError where the configuration refuses a field. Loads transformers and torch, which takes seconds.
    """
    from attnfaith import models

    section = recipe.model
    if recipe.kind == "pretrained":
        fields = {name: getattr(section, name) for name in PROJECTION}
        return _configured(models.SelfAttentionClassifierConfig, **fields)
    names = [name for name in MODEL_KEYS["classifier"].split() if name != "selector"]
    fields = {**{name: getattr(section, name) for name in names}, "query": "text" if pair else "learned", **fields}
    if section.selector is not None:
        if pair:
            raise RecipeError("model.selector with pairs of texts: a selector reads single texts; leave it out")
        fields |= {name: value for name, value in asdict(section.selector).items() if value is not None}
        fields["sampler"] = fields.pop("kind")
    if fields["hidden_size"] is None:
        fields["hidden_size"] = {"transformer": 128, "embedding": fields["embedding_size"]}.get(section.encoder, 256)
    plain = section.selector is None
    return _configured(models.AttentionClassifierConfig if plain else models.RationaleClassifierConfig, **fields)


def sequence_config(recipe: Recipe, vocab_size: int) -> "PreTrainedConfig":
    """Return the configuration of the recipe's model of sentence pairs. Raises RecipeError where it refuses a field.

    Of type marian all weights are drawn with a standard deviation of hidden_size^-0.5, so that words, which are multiplied
    by its inverse, are as large as positions.
    """
    from transformers import MarianConfig

    from attnfaith.models import AttentionSeq2SeqConfig

    section = recipe.model
    if section.type == "gru":
        fields = {name: getattr(section, name) for name in MODEL_KEYS["gru"].split() if name != "type"}
        fields["hidden_size"] = section.hidden_size or (section.embedding_size if section.encoder == "embedding" else 256)
        return _configured(AttentionSeq2SeqConfig, vocab_size=vocab_size, **fields)
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
    """Raise an AttnfaithError where the recipe's model or its penalties refuse a key; DatasetError as `check_data`. What
    depends on files is checked when they are loaded.
    """
    from attnfaith.training.penalties import check_sizes

    check_data(recipe)
    if recipe.kind == "translator":
        sequence_config(recipe, vocab_size=100)
        return
    config = model_config(recipe, entry_of(recipe.data).pair)
    if recipe.penalties.word_tying and recipe.data.vectors is None:
        check_sizes(config.hidden_size, config.embedding_size)


def _configured(kind: Callable, **fields):
    from huggingface_hub.errors import StrictDataclassError

    try:
        return kind(**fields)
    except StrictDataclassError as error:
        message = excerpt(error.__cause__ or error, 300)
        choice = re.search(r"Field '(\w+)' expected one of \((.*?)\), got ", message)
        near = choice and closest(str(fields[choice[1]]), re.findall(r"'(\w+)'", choice[2]))
        raise RecipeError(f"model: {message}" + (f"; did you mean {near!r}?" if near else "")) from error
