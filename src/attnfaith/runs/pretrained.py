"""A pretrained model of a recipe: its files, its tokenizer, and the model as training begins.

Weights are read from safetensors alone, and no code of a repository is run.
"""

import hashlib
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from attnfaith.data.subwords import tokenizer_digest
from attnfaith.errors import excerpt
from attnfaith.models import (
    MODEL_TYPES,
    RationaleClassifierConfig,
    RationaleClassifierForSequenceClassification,
    SelfAttentionClassifierForSequenceClassification,
)
from attnfaith.recipes import Recipe, RecipeError, projection_fields
from attnfaith.recipes.config import selector_fields
from attnfaith.subjects import SelfAttention
from attnfaith.subjects.base import position_limit


WEIGHTS = "model*.safetensors"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
FILES = ("config.json", WEIGHTS, "model.safetensors.index.json", "tokenizer_config.json", "special_tokens_map.json")
FILES += ("added_tokens.json", "merges.txt", *VOCABULARIES)
LOADED_AT_LEAST = 0.5
"""Share of a model's numbers that its files must hold; the rest is drawn anew."""


@cache
def files_of(name: str, revision: str | None = None) -> Path:
    """The folder of a pretrained model: that which the name says, or what huggingface_hub caches of a repository.

    Raises RecipeError where there is none, or its weights are not kept as safetensors.
    """
    given = f"model.pretrained={excerpt(name)}"
    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
            raise RecipeError(
                f"{given}: there is no such folder, and the Hub gives no model of that name ({type(error).__name__}); is "
                "the name right, and the token one that may read it?"
            ) from error
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{given} holds no config.json: give the folder of a model, or its name on the Hub")
    if not list(folder.glob(WEIGHTS)):
        raise RecipeError(
            f"{given} holds no {WEIGHTS}: weights are read as safetensors alone, for to read pickled ones (.bin, .pt) "
            "is to run code that they bring; give a model, or a revision of it, that has them"
        )
    return folder


def tokenizer_of(recipe: Recipe):
    """Its own tokenizer, with the bound of the model and of data.max_length; a padding token is added where it has none.

    Raises RecipeError where it cannot be loaded without code of the repository, or is not of the tokenizers library.
    """
    name, folder = recipe.model.pretrained, files_of(recipe.model.pretrained, recipe.model.revision)
    if not any(next(folder.glob(pattern), None) for pattern in VOCABULARIES):  # transformers would make an empty one
        raise RecipeError(
            f"model.pretrained={excerpt(name)} holds no tokenizer ({', '.join(VOCABULARIES)}): give the folder of a model "
            "with its tokenizer"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers and tokenizers raise many kinds
        raise RecipeError(
            f"model.pretrained={excerpt(name)}: its tokenizer cannot be loaded ({excerpt(error, 200)})"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise RecipeError(
            f"model.pretrained={excerpt(name)}: its tokenizer is a {type(tokenizer).__name__}, written in Python, which "
            "does not say which characters a token is of: give a model with a tokenizer.json"
        )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    with torch.device("meta"), _quiet():
        model = AutoModelForSequenceClassification.from_config(_configuration(recipe))
    limit = position_limit(SimpleNamespace(tokenizer=tokenizer, model=model, config=model.config))
    limits = [bound for bound in (limit, recipe.data.max_length) if bound is not None]
    if limits:
        tokenizer.model_max_length = min(limits)
    return tokenizer


def model_of(recipe: Recipe, label_names: list[str], tokenizer) -> torch.nn.Module:
    """The classifier as training begins: the weights of the files, a head drawn anew, and the recipe's projection.

    Under softmax it is the model itself, as transformers has it, unless impermissible words are kept apart. Raises
    RecipeError where the files hold no such model, or the tokenizer of another one, and where nothing can be kept apart.
    """
    name, folder = recipe.model.pretrained, files_of(recipe.model.pretrained, recipe.model.revision)
    config = _configuration(recipe)
    config.problem_type = "single_label_classification"
    config.id2label = dict(enumerate(label_names))
    config.label2id = {label: number for number, label in config.id2label.items()}
    try:
        with _quiet():
            model, report = AutoModelForSequenceClassification.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # transformers and safetensors raise many kinds
        raise RecipeError(f"model.pretrained={excerpt(name)} cannot be loaded: {excerpt(error, 300)}") from error
    sizes = {key: values.numel() for key, values in model.state_dict().items()}
    drawn = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
    held = 1 - sum(sizes.get(key, 0) for key in drawn) / sum(sizes.values())
    if held < LOADED_AT_LEAST:
        raise RecipeError(
            f"model.pretrained={excerpt(name)}: its files hold {held:.0%} of the numbers of a {type(model).__name__}: they "
            "are of another model than its config.json says"
        )
    known, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
    if largest == known == tokenizer.pad_token_id:  # the padding token that it lacked
        model.resize_token_embeddings(largest + 1, mean_resizing=False)
    elif largest >= known:
        raise RecipeError(
            f"model.pretrained={excerpt(name)}: its tokenizer has tokens up to {largest}, and the model knows {known}, from "
            "0 on: the tokenizer is not the model's"
        )
    model.config.pad_token_id = tokenizer.pad_token_id
    apart = recipe.model.separate_impermissible
    if recipe.model.projection == "softmax" and not apart:
        return model
    try:
        made = SelfAttentionClassifierForSequenceClassification.of(model, **projection_fields(recipe.model))
        if apart:
            SelfAttention(made, tokenizer)
    except (ValueError, StrictDataclassError) as error:
        raise RecipeError(f"model.pretrained={excerpt(name)}: {excerpt(error.__cause__ or error, 300)}") from error
    return made


def selecting_model_of(recipe: Recipe, label_names: list[str], tokenizer) -> RationaleClassifierForSequenceClassification:
    """A classifier that reads a selection, whose selector and classifier both begin as the encoder of the files; word
    vectors are those of the files, what scores and what answers is new.

    Raises RecipeError where the files hold no such encoder, or the tokenizer of another one.
    """
    name, folder = recipe.model.pretrained, files_of(recipe.model.pretrained, recipe.model.revision)
    given = f"model.pretrained={excerpt(name)}"
    config = _configuration(recipe)
    try:
        with _quiet():
            encoder = AutoModel.from_pretrained(
                folder, config=config, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
            )
        vectors = encoder.get_input_embeddings().weight.detach()
        fields = {
            **selector_fields(recipe.model.selector),
            **projection_fields(recipe.model),
            "text_config": encoder.config,
            "vocab_size": len(vectors),
            "vectors": "pretrained",
            "vectors_digest": facts_of(recipe)["digest"],
            "tokenizer_digest": tokenizer_digest(tokenizer),
            "id2label": dict(enumerate(label_names)),
            "label2id": {label: number for number, label in enumerate(label_names)},
            **{f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "unk")},
        }
        del fields["separate_impermissible"]
        model = RationaleClassifierForSequenceClassification(RationaleClassifierConfig(**fields))
        encoder.set_input_embeddings(torch.nn.Identity())
        for part in (model.selector.encoder, model.encoder):
            part.network.load_state_dict(encoder.state_dict())
        table = model.get_input_embeddings().weight
        with torch.no_grad():
            table.copy_(vectors.repeat(1, table.shape[1] // vectors.shape[1]))
    except Exception as error:  # transformers and safetensors raise many kinds
        raise RecipeError(f"{given} cannot be loaded as an encoder: {excerpt(error.__cause__ or error, 300)}") from error
    if config.is_encoder_decoder or any(getattr(part, "is_causal", False) for part in encoder.modules()):
        raise RecipeError(
            f"{given} with model.selector: it is of the type {config.model_type}, in which tokens do not see those behind "
            "them: give a plain encoder, such as a BERT"
        )
    if (largest := max(tokenizer.get_vocab().values())) >= len(vectors):
        raise RecipeError(
            f"{given}: its tokenizer has tokens up to {largest}, and the model knows {len(vectors)}, from 0 on: the "
            "tokenizer is not the model's"
        )
    return model


def facts_of(recipe: Recipe) -> dict[str, str]:
    """Which model it is: its name (of a folder its path, where that is relative, else its last part), its commit ("local" of
    a folder), and a digest of its weights, 12 hexadecimal digits.
    """
    name, folder = recipe.model.pretrained, files_of(recipe.model.pretrained, recipe.model.revision)
    digest = hashlib.sha256()
    for path in sorted(folder.glob(WEIGHTS)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    local = Path(name).is_dir()
    return {
        "name": folder.name if folder.is_absolute() and local else name,
        "revision": "local" if local else folder.name,
        "digest": digest.hexdigest()[:12],
    }


def _configuration(recipe: Recipe):
    name, folder = recipe.model.pretrained, files_of(recipe.model.pretrained, recipe.model.revision)
    given = f"model.pretrained={excerpt(name)}"
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds
        raise RecipeError(f"{given} is of no kind that transformers knows: {excerpt(error, 200)}") from error
    if config.model_type in MODEL_TYPES:
        raise RecipeError(
            f"{given} is a model of this package ({config.model_type}): give one that transformers itself knows, or train "
            "without model.pretrained"
        )
    if type(config) not in AutoModelForSequenceClassification._model_mapping:
        raise RecipeError(f"{given} is of the type {config.model_type}, of which transformers makes no classifier of texts")
    return config


@contextmanager
def _quiet():
    """Within, transformers does not say that the head is new, which it always is."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
