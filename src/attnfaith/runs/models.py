"""The model and the tokenizer of a recipe at the start of training, and read back from the folder of a run.

Weights of a pretrained model are read from safetensors alone, and no code of a repository is run.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from attnfaith import loading
from attnfaith.data.sources import ROOT_VARIABLE, file_digest
from attnfaith.data.subwords import tokenizer_facts
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.data.vectors import load_vectors
from attnfaith.models import (
    MODEL_TYPES,
    AttentionClassifierConfig,
    AttentionClassifierForSequenceClassification,
    RationaleClassifierConfig,
    RationaleClassifierForSequenceClassification,
    SelfAttentionClassifierForSequenceClassification,
)
from attnfaith.recipes import Recipe, RecipeError, model_config, projection_fields, sequence_config
from attnfaith.subjects import SelfAttention, sequence_subject
from attnfaith.subjects.base import position_limit
from attnfaith.subjects.recurrent_translator import WithoutAttention
from attnfaith.support.errors import excerpt
from attnfaith.support.files import MODEL


SAFELY = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}


# ------------------------------------------------------------------------------------------------ from a run's folder


def load_model(run: Path) -> PreTrainedModel:
    """Return the model of a run's folder, with the "eager" attention that it was trained with. Raises ModelError."""
    loading.check_complete(run / MODEL)
    return loading.load_model(run / MODEL, attn_implementation="eager")


def load_tokenizer(run: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a run's folder. Raises ModelError where its files are missing or broken."""
    loading.check_complete(run / MODEL)
    return loading.load_tokenizer(run / MODEL)


def measurable(model, tokenizer, pairs: bool = False):
    """Return the model as `attnfaith.measurement` takes it: a classifier of this package as it is, another one as a subject.
    pairs: whether it is a model of sentence pairs.
    """
    if pairs:
        blind = getattr(model.config, "projection", None) == "none"
        return WithoutAttention(model, tokenizer) if blind else sequence_subject(model, tokenizer)
    own = (AttentionClassifierConfig.model_type, RationaleClassifierConfig.model_type)
    return model if getattr(model.config, "model_type", None) in own else SelfAttention(model, tokenizer)


# ------------------------------------------------------------------------------------------------ fresh ones


def make_tokenizer(recipe: Recipe, loaded):
    """Return the tokenizer of the recipe's pretrained model, or one of the words of the training texts."""
    entry, data = loaded.entry, recipe.data
    if recipe.kind == "pretrained":
        return _pretrained_tokenizer(recipe)
    return build_tokenizer(
        loaded.vocabulary_texts,
        preprocessing=entry.preprocessing,
        min_df=entry.min_df if data.min_df is None else data.min_df,
        max_length=data.max_length,
        pair=entry.pair,
        hierarchy=recipe.model.hierarchy,
        max_sentence_length=data.max_sentence_length,
    )


def make_model(recipe: Recipe, loaded, tokenizer) -> PreTrainedModel:
    """Return a fresh model of the recipe for this data set, on the word vectors it names; or its pretrained one with a new
    head.
    """
    if recipe.kind == "translator":
        eager = {} if recipe.model.type == "gru" else {"attn_implementation": "eager"}
        return AutoModelForSeq2SeqLM.from_config(sequence_config(recipe, len(tokenizer)), **eager)
    labels = {"id2label": dict(enumerate(loaded.label_names))}
    labels["label2id"] = {name: number for number, name in labels["id2label"].items()}
    plain, data = recipe.model.selector is None, recipe.data
    if recipe.kind == "pretrained":
        return _pretrained_model(recipe, labels, tokenizer)
    fields = {
        "vocab_size": len(tokenizer),
        **{f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("unk", "pad", "bos", "eos")},
        **labels,
    }
    if recipe.model.hierarchy != "none":
        fields["sentence_token_id"] = tokenizer.sentence_token_id
    vectors = None
    if data.vectors:
        path = vectors_path(data.vectors)
        vectors, present = load_vectors(path, tokenizer.get_vocab(), padding=tokenizer.pad_token_id)
        fields |= {"embedding_size": vectors.shape[1], "vectors": "pretrained", "vectors_digest": file_digest(path)[:12]}
        print(f"vocabulary entries with a vector in {data.vectors}: {present.sum():,} of {len(present):,}")
    config = model_config(recipe, loaded.entry.pair, **fields)
    model = (AttentionClassifierForSequenceClassification if plain else RationaleClassifierForSequenceClassification)(config)
    if vectors is not None:
        _set_vectors(model, torch.from_numpy(vectors))
    return model


def _set_vectors(model: PreTrainedModel, vectors: torch.Tensor) -> None:
    """Copy word vectors into a model."""
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(vectors)


def vectors_path(name: str) -> Path:
    """Return the path of a file of word vectors: as it is given, or below the data root."""
    root = os.environ.get(ROOT_VARIABLE)
    below = Path(root or "", name)
    return below if root and not Path(name).exists() and below.exists() else Path(name)


def facts_of_tokenizer(recipe: Recipe, tokenizer) -> dict[str, dict]:
    """Return facts about a pretrained model and its tokenizer; {} for a vocabulary of the training texts."""
    if recipe.kind != "pretrained":
        return {}
    facts = tokenizer_facts(tokenizer, recipe.model.pretrained, recipe.model.revision)
    return {"tokenizer": facts, "pretrained": pretrained_facts(recipe)}


# ------------------------------------------------------------------------------------------------ pretrained ones


@contextmanager
def _pretrained(recipe: Recipe) -> Iterator[Path]:
    """The folder of the pretrained model; whatever is raised within the block becomes a RecipeError that names it."""
    try:
        yield loading.model_folder(recipe.model.pretrained, recipe.model.revision)
    except Exception as error:  # transformers, tokenizers and safetensors raise many kinds
        raise RecipeError(
            f"model.pretrained={excerpt(recipe.model.pretrained)} cannot be used: {excerpt(error.__cause__ or error, 300)}"
        ) from error


def pretrained_facts(recipe: Recipe) -> dict[str, str]:
    """Return the name of a recipe's pretrained model (of a folder its path, if relative, else the last part), its commit
    ("local" of a folder) and a digest of its weights, 12 hexadecimal digits.
    """
    name, digest = recipe.model.pretrained, hashlib.sha256()
    with _pretrained(recipe) as folder:
        for path in sorted(folder.glob("model*.safetensors")):
            digest.update(bytes.fromhex(file_digest(path)))
    local = Path(name).is_dir()
    return {
        "name": folder.name if folder.is_absolute() and local else name,
        "revision": "local" if local else folder.name,
        "digest": digest.hexdigest()[:12],
    }


def _pretrained_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase:
    """The tokenizer of the recipe's pretrained model, with the bound of the model and of data.max_length, and a padding
    token. Raises RecipeError where it cannot be loaded without code of the repository, or is not of the tokenizers library.
    """
    with _pretrained(recipe) as folder:
        tokenizer = loading.load_tokenizer(folder)
        if not tokenizer.is_fast:
            raise RecipeError("its tokenizer does not map tokens to characters: give a model with a tokenizer.json")
        with torch.device("meta"):
            model = AutoModelForSequenceClassification.from_config(_configuration(folder))
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    limit = position_limit(SimpleNamespace(tokenizer=tokenizer, model=model, config=model.config))
    limits = [bound for bound in (limit, recipe.data.max_length) if bound is not None]
    if limits:
        tokenizer.model_max_length = min(limits)
    return tokenizer


def _configuration(folder: Path):
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if config.model_type in MODEL_TYPES:
        raise RecipeError(f"it is a model of this package ({config.model_type}): leave model.pretrained out")
    return config


def _pretrained_model(recipe: Recipe, labels: dict, tokenizer) -> torch.nn.Module:
    """The classifier at the start of training: the weights of the files, a new head, and the recipe's projection. Under
    softmax it is the model of transformers itself, unless impermissible words are kept apart.
    """
    apart = recipe.model.separate_impermissible
    with _pretrained(recipe) as folder:
        config = _configuration(folder)
        config.problem_type, config.id2label, config.label2id = "single_label_classification", *labels.values()
        how = {"attn_implementation": "eager", "ignore_mismatched_sizes": True, **SAFELY}
        model = AutoModelForSequenceClassification.from_pretrained(folder, config=config, **how)
        size, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
        if largest == size == tokenizer.pad_token_id:  # the padding token that it lacked
            model.resize_token_embeddings(size + 1, mean_resizing=False)
        elif largest >= size:
            raise RecipeError(f"its tokenizer has tokens up to {largest}, its model {size}: they are of different models")
        model.config.pad_token_id = tokenizer.pad_token_id
        if recipe.model.projection == "softmax" and not apart:
            return model
        model = SelfAttentionClassifierForSequenceClassification.of(model, **projection_fields(recipe.model))
        if apart:
            SelfAttention(model, tokenizer)  # which checks that words are kept apart
        return model
