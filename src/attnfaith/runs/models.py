"""The configuration, tokenizer and model of a recipe at the start of training, and the subject of a trained one.

Weights of a pretrained model are read from safetensors alone, and no code of a repository is run.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    MarianConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from attnfaith import loading, models
from attnfaith.data.loading import ROOT_VARIABLE, file_digest
from attnfaith.data.pair_encoding import build_pair_tokenizer
from attnfaith.data.registry import entry_of
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.data.vectors import load_vectors
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.recipes.files import check_data
from attnfaith.subjects import SelfAttention
from attnfaith.subjects.base import position_limit
from attnfaith.support.errors import excerpt
from attnfaith.training.penalties import check_sizes


CONFIGURATIONS = {
    "classifier": models.AttentionClassifierConfig,
    "selector": models.RationaleClassifierConfig,
    "pretrained": models.SelfAttentionClassifierConfig,
    "gru": models.AttentionSeq2SeqConfig,
    "marian": MarianConfig,
}
NOT_CONFIGURED = ("type", "pretrained", "revision", "selector")
"""Keys of the model section that are no fields of a configuration."""


def model_config(recipe: Recipe, *, pair: bool = False, **fields) -> PreTrainedConfig:
    """Return the configuration of the recipe's model; of a pretrained one, that of its projection.

    pair: whether a classifier reads pairs of texts, of which the second asks. fields: those that data and vectors decide.

    Raises RecipeError where the configuration refuses a field.
    """
    section, kind = recipe.model, recipe.model.type or recipe.kind
    fields = _fields(recipe) | fields
    if "embedding_size" in fields and fields["hidden_size"] is None:
        fields["hidden_size"] = {"transformer": 128, "embedding": fields["embedding_size"]}.get(section.encoder, 256)
    if kind == "marian":
        fields = _marian_fields(**fields)
    elif kind == "classifier":
        fields["query"] = "text" if pair else "learned"
    if section.selector is not None:
        if pair:
            raise RecipeError("model.selector with pairs of texts: a selector reads single texts; leave it out")
        kind, fields["sampler"] = "selector", section.selector.kind
        fields |= {name: value for name, value in vars(section.selector).items() if name != "kind" and value is not None}
    try:
        return CONFIGURATIONS[kind](**fields)
    except StrictDataclassError as error:
        raise RecipeError(f"model: {excerpt(error.__cause__ or error, 300)}") from error


def _fields(recipe: Recipe) -> dict:
    """The keys of the recipe's model that are fields of its configuration."""
    return {name: getattr(recipe.model, name) for name in recipe.keys("model") if name not in NOT_CONFIGURED}


def _marian_fields(*, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, dropout, **fields) -> dict:
    """The fields of a MarianConfig."""
    size, heads = hidden_size or 128, num_attention_heads
    if size % heads:
        raise RecipeError(f"model.hidden_size={size} must be a multiple of model.num_attention_heads={heads}")
    parts = {"layers": num_hidden_layers, "attention_heads": heads, "ffn_dim": intermediate_size}
    return {
        **fields,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in parts.items()},
        "d_model": size,
        "dropout": dropout,
        "init_std": size**-0.5,  # words, which are multiplied by its inverse, are then as large as positions
        "scale_embedding": True,
        "max_position_embeddings": 1024,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "decoder_start_token_id": 2,
        "eos_token_id": 3,
        "forced_eos_token_id": None,
    }


def check_model(recipe: Recipe, *, files: bool = False) -> None:
    """Raise an AttnfaithError where data set, model or penalties of a recipe do not suit; files: a pretrained one too."""
    check_data(recipe)
    config = model_config(recipe, pair=recipe.kind != "translator" and entry_of(recipe.data).pair)
    if recipe.penalties.word_tying and recipe.data.vectors is None:
        check_sizes(config.hidden_size, config.embedding_size)
    if files and recipe.kind == "pretrained":
        with _pretrained(recipe):
            pass


def make_tokenizer(recipe: Recipe, loaded) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the recipe's pretrained model, or one of the words of the training texts (`load_data`)."""
    data, entry = recipe.data, loaded.entry
    if recipe.kind == "pretrained":
        return _pretrained_tokenizer(recipe)
    if recipe.kind == "translator":
        texts = [*loaded.splits["train"]["source"], *loaded.splits["train"]["target"]]
        how = {"size": data.vocabulary_size, "min_df": data.min_df or 1}
        return build_pair_tokenizer(texts, vocabulary=data.vocabulary or "words", **how)
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
    """Return a fresh model for a data set, on the word vectors of the recipe; or its pretrained one with a new head."""
    if recipe.kind == "translator":
        eager = {} if recipe.model.type == "gru" else {"attn_implementation": "eager"}
        return AutoModelForSeq2SeqLM.from_config(model_config(recipe, vocab_size=len(tokenizer)), **eager)
    names = dict(enumerate(loaded.label_names))
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    if recipe.kind == "pretrained":
        return _pretrained_model(recipe, labels, tokenizer)
    fields = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("unk", "pad", "bos", "eos")}
    fields |= {"vocab_size": len(tokenizer), **labels}
    if recipe.model.hierarchy != "none":
        fields["sentence_token_id"] = tokenizer.sentence_token_id
    vectors, name = None, recipe.data.vectors
    if name:
        below = Path(os.environ.get(ROOT_VARIABLE, ""), name)
        path = below if below.exists() and not Path(name).exists() else Path(name)
        vectors, present = load_vectors(path, tokenizer.get_vocab(), padding=tokenizer.pad_token_id)
        fields |= {"embedding_size": vectors.shape[1], "vectors": "pretrained", "vectors_digest": file_digest(path)[:12]}
        print(f"vocabulary entries with a vector in {name}: {present.sum():,} of {len(present):,}")
    model = AutoModelForSequenceClassification.from_config(model_config(recipe, pair=loaded.entry.pair, **fields))
    if vectors is not None:
        with torch.no_grad():
            model.get_input_embeddings().weight.copy_(torch.from_numpy(vectors))
    return model


@contextmanager
def _pretrained(recipe: Recipe) -> Iterator[tuple[Path, PreTrainedConfig]]:
    """Folder and configuration of the pretrained model; what is raised within becomes a RecipeError that names it."""
    try:
        folder = loading.model_folder(recipe.model.pretrained, recipe.model.revision)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if config.model_type in models.MODEL_TYPES:
            raise RecipeError(f"it is a model of this package ({config.model_type}): leave model.pretrained out")
        yield folder, config
    except Exception as error:  # transformers, tokenizers and safetensors raise many kinds
        raise RecipeError(
            f"model.pretrained={excerpt(recipe.model.pretrained)} cannot be used: {excerpt(error.__cause__ or error, 300)}"
        ) from error


def pretrained_facts(recipe: Recipe) -> dict[str, str]:
    """Return the name, the commit ("local" of a folder) and the digest of the weights of a recipe's pretrained model."""
    name = recipe.model.pretrained
    folder, local = loading.model_folder(name, recipe.model.revision), Path(name).is_dir()
    digests = "".join(map(file_digest, sorted(folder.glob("model*.safetensors"))))
    return {
        "name": Path(name).resolve().name if local else name,
        "revision": "local" if local else folder.name,
        "digest": hashlib.sha256(bytes.fromhex(digests)).hexdigest()[:12],
    }


def _pretrained_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase:
    """The pretrained model's tokenizer, with the bound of the model and of data.max_length, and a padding token."""
    with _pretrained(recipe) as (folder, config):
        tokenizer = loading.load_tokenizer(folder)
        if not tokenizer.is_fast:
            raise RecipeError("its tokenizer does not map tokens to characters: give a model with a tokenizer.json")
        with torch.device("meta"):
            model = AutoModelForSequenceClassification.from_config(config)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    limit = position_limit(SimpleNamespace(tokenizer=tokenizer, model=model, config=model.config))
    tokenizer.model_max_length = min(filter(None, (limit, recipe.data.max_length, tokenizer.model_max_length)))
    return tokenizer


def _pretrained_model(recipe: Recipe, labels: dict, tokenizer) -> PreTrainedModel:
    """The weights of the files, a new head, and the recipe's projection: under softmax the model of transformers itself."""
    section = recipe.model
    with _pretrained(recipe) as (folder, config):
        config.problem_type, config.id2label, config.label2id = "single_label_classification", *labels.values()
        safely = {"dtype": torch.float32, "use_safetensors": True, "trust_remote_code": False}
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, attn_implementation="eager", ignore_mismatched_sizes=True, **safely
        )
        size, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
        if largest == size == tokenizer.pad_token_id:  # the padding token that it lacked
            model.resize_token_embeddings(size + 1, mean_resizing=False)
        elif largest >= size:
            raise RecipeError(f"its tokenizer has tokens up to {largest}, its model {size}: they are of different models")
        model.config.pad_token_id = tokenizer.pad_token_id
        if section.projection == "softmax" and not section.separate_impermissible:
            return model
        model = models.SelfAttentionClassifierForSequenceClassification.of(model, **_fields(recipe))
        if section.separate_impermissible:
            SelfAttention(model, tokenizer)  # which checks that words are kept apart
        return model
