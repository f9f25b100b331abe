"""Recipes of models from sequences to sequences: their keys, and the configuration of their model."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from attnfaith.data.pairs import PAIRS, pairs_entry
from attnfaith.errors import DatasetError, excerpt
from attnfaith.recipes.sections import RecipeError


if TYPE_CHECKING:
    from transformers import PreTrainedConfig


OF_SEQUENCES = {
    "num_train_epochs": 10,
    "learning_rate": 2e-3,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "amsgrad": False,
    "loss_reduction": "mean",
}
"""Settings of a training on sentence pairs where a recipe is silent."""
PRODUCERS = ("attention", "norm", "gradient_x_input")
"""What is measured of sentence pairs where a recipe names nothing."""
BATCH_TOKENS = 2048
"""Tokens of both sides that are measured at once where a recipe names no other number."""
SIZES = {"gru": 256, "marian": 128}
"""Hidden sizes where a recipe names none."""
OF_GRU = ("encoder", "recurrence", "alignment", "projection", "embedding_size", "hidden_size", "alignment_size")
OF_GRU += ("sparsegen_lambda", "entmax_alpha", "score_scale", "dropout", "embedding_std")
OF_MARIAN = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "dropout")
MODEL_KEYS = {"gru": OF_GRU, "marian": OF_MARIAN}
"""The keys of the model section that each type reads, beside `type`."""
OWN_KEYS = {
    "data": (
        "name",
        "path",
        "arguments",
        "limits",
        "max_length",
        "min_df",
        "seed",
        "vocabulary",
        "vocabulary_size",
        "links_from",
    ),
    "penalties": ("impermissible_mass", "impermissible_heads"),
    "objective": (),
    "selection": (),
}
"""The keys of other sections that mean something of sentence pairs; of the training those below do not."""
NOT_OF_TRAINING = {
    "amsgrad": False,
    "attention_learning_rate_factor": 1,
    "random_erasure": 0,
    "loss_reduction": "mean",
    "balance_classes": True,
}
METRICS = ("loss", "token_accuracy")


def check_sequences(recipe) -> None:
    """Raise RecipeError for the first key that means nothing of sentence pairs, or of the model's type; and, where no type
    is given, for one that is of such models.
    """
    kind = recipe.model.type
    if kind is None:
        for section, key in (
            ("model", "recurrence"),
            ("data", "vocabulary"),
            ("data", "vocabulary_size"),
            ("data", "links_from"),
        ):
            if (value := getattr(getattr(recipe, section), key)) is not None:
                raise RecipeError(
                    f"{section}.{key}={excerpt(value)} is of models from sequences to sequences: set model.type to gru or "
                    "marian, or leave it out"
                )
        if recipe.data.path is None and recipe.data.hub_id is None and recipe.data.name in PAIRS:
            raise RecipeError(
                f"data.name={excerpt(recipe.data.name)} is a set of sentence pairs, which has no classes: set model.type to "
                "gru or marian"
            )
        return
    given = f"model.type={kind!r}"
    _check_unused(recipe.model, "model", ("type", *MODEL_KEYS[kind]), f"with {given}, which has no such thing: leave it out")
    usual = type(recipe.data)(name=recipe.data.name, path=recipe.data.path)
    _check_unused(recipe.data, "data", OWN_KEYS["data"], f"with {given}: it is of texts with classes; leave it out", usual)
    for section in ("objective", "penalties", "selection"):
        why = f"with {given}: it is of classifiers; leave it out"
        _check_unused(getattr(recipe, section), section, OWN_KEYS[section], why)
    for key, usual in NOT_OF_TRAINING.items():
        if (value := getattr(recipe.training, key)) != usual:
            raise RecipeError(
                f"training.{key}={excerpt(value)} with {given}, which AdamW trains on the mean of its losses: leave it out"
            )
    metric = recipe.training.metric_for_best_model
    if metric not in (None, *METRICS):
        raise RecipeError(
            f"training.metric_for_best_model={excerpt(metric)} with {given}: choose one of {', '.join(METRICS)}"
        )
    for key, usual in {"outputs": [], "level": "sentence"}.items():
        if (value := getattr(recipe.measure, key)) != usual:
            raise RecipeError(f"measure.{key}={excerpt(value)} with {given}: it is of classifiers; leave it out")
    if recipe.penalties.impermissible_mass and kind == "marian":
        raise RecipeError(
            f"penalties.impermissible_mass={recipe.penalties.impermissible_mass:g} with {given}: the penalty is on the one "
            "row that model.type='gru' attends with; leave it out"
        )
    if recipe.penalties.impermissible_mass and recipe.model.projection in ("none", "uniform"):
        raise RecipeError(
            f"penalties.impermissible_mass={recipe.penalties.impermissible_mass:g} with model.projection="
            f"{recipe.model.projection!r}: there is no attention that could change; leave one of them out"
        )
    if recipe.penalties.impermissible_heads == "max":
        raise RecipeError("penalties.impermissible_heads='max' with a model whose attention has one head: leave it out")
    if recipe.data.path is None:
        try:
            pairs_entry(recipe.data.name)
        except DatasetError as error:
            raise RecipeError(f"data.name: {error}") from error


def _check_unused(section, name: str, used: tuple[str, ...], why: str, usual=None) -> None:
    """Raise RecipeError for the first key of a section that is not used and says another thing than where it is silent."""
    usual = type(section)() if usual is None else usual
    for key in fields(section):
        if key.name not in used and (value := getattr(section, key.name)) != getattr(usual, key.name):
            raise RecipeError(f"{name}.{key.name}={excerpt(value)} {why}")


def completed_measure(measure):
    """The measure section as sentence pairs have it where a recipe is silent."""
    usual, made = type(measure)(), {}
    if measure.producers == usual.producers:
        made["producers"] = list(PRODUCERS)
    if measure.batch_tokens == usual.batch_tokens:
        made["batch_tokens"] = BATCH_TOKENS
    return replace(measure, **made)


def sequence_config(recipe, vocab_size: int) -> "PreTrainedConfig":
    """The configuration of the recipe's model. Raises RecipeError where it refuses a field.

    Of type marian all weights are drawn with a standard deviation of hidden_size^-0.5, so that words, which are multiplied
    by its inverse, are as large as positions.
    """
    section = recipe.model
    size = section.hidden_size or (section.embedding_size if section.encoder == "embedding" else SIZES[section.type])
    if section.type == "gru":
        return _made(_gru_config, {name: getattr(section, name) for name in OF_GRU} | {"hidden_size": size}, vocab_size)
    if size % section.num_attention_heads:
        raise RecipeError(
            f"model.hidden_size={size} must be a multiple of model.num_attention_heads={section.num_attention_heads}"
        )
    return _made(_marian_config, {**{name: getattr(section, name) for name in OF_MARIAN}, "hidden_size": size}, vocab_size)


def _gru_config(given: Mapping, vocab_size: int):
    from attnfaith.models.configuration_attention_seq2seq import AttentionSeq2SeqConfig

    return AttentionSeq2SeqConfig(vocab_size=vocab_size, **given)


def _marian_config(given: Mapping, vocab_size: int):
    from transformers import MarianConfig

    sides = {}
    for side in ("encoder", "decoder"):
        sides[f"{side}_layers"] = given["num_hidden_layers"]
        sides[f"{side}_attention_heads"] = given["num_attention_heads"]
        sides[f"{side}_ffn_dim"] = given["intermediate_size"]
    return MarianConfig(
        vocab_size=vocab_size,
        d_model=given["hidden_size"],
        **sides,
        dropout=given["dropout"],
        init_std=given["hidden_size"] ** -0.5,
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=0,
        bos_token_id=2,
        decoder_start_token_id=2,
        eos_token_id=3,
        forced_eos_token_id=None,
    )


def _made(make, given: Mapping, vocab_size: int):
    from huggingface_hub.errors import StrictDataclassError

    try:
        return make(given, vocab_size)
    except StrictDataclassError as error:
        raise RecipeError(f"model: {excerpt(error.__cause__ or error, 300)}") from error
