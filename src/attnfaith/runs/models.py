"""The model and the tokenizer of a recipe at the start of training, and read back from the folder of a run.

Weights of a pretrained model are read from safetensors alone, and no code of a repository is run.
"""

import hashlib
import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from attnfaith import loading
from attnfaith.data.sources import ROOT_VARIABLE
from attnfaith.data.subwords import adopt_tokenizer, tokenizer_digest, tokenizer_facts
from attnfaith.data.tokenization import build_tokenizer
from attnfaith.data.vectors import file_digest, load_vectors
from attnfaith.models import (
    MODEL_TYPES,
    AttentionClassifierConfig,
    AttentionClassifierForSequenceClassification,
    RationaleClassifierConfig,
    RationaleClassifierForSequenceClassification,
    SelfAttentionClassifierForSequenceClassification,
)
from attnfaith.recipes import Recipe, RecipeError, model_config, projection_fields, sequence_config
from attnfaith.recipes.config import selector_fields
from attnfaith.subjects import SelfAttention, sequence_subject
from attnfaith.subjects.base import position_limit
from attnfaith.subjects.recurrent_translator import WithoutAttention
from attnfaith.support.errors import excerpt
from attnfaith.support.files import MODEL


WEIGHTS = "model*.safetensors"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
FILES = ("config.json", WEIGHTS, "model.safetensors.index.json", "tokenizer_config.json", "special_tokens_map.json")
FILES += ("added_tokens.json", "merges.txt", *VOCABULARIES)
LOADED_AT_LEAST = 0.5
"""Share of a pretrained model's numbers that its files must hold; the rest is drawn anew."""
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
    """Return the recipe's tokenizer: the named one, its pretrained model's, or one of the words of the training texts."""
    entry, data = loaded.entry, recipe.data
    if recipe.kind == "pretrained":
        return Pretrained(recipe).tokenizer()
    if data.tokenizer is not None:
        how = {"revision": data.tokenizer_revision, "max_length": data.max_length, "pair": entry.pair}
        return adopt_tokenizer(data.tokenizer, **how)
    return build_tokenizer(
        loaded.vocabulary_texts,
        preprocessing=entry.preprocessing,
        min_df=entry.min_df if data.min_df is None else data.min_df,
        max_length=data.max_length,
        pair=entry.pair,
        extra_vocabulary=loaded.extra_vocabulary,
        hierarchy=recipe.model.hierarchy,
        max_sentence_length=data.max_sentence_length,
        max_sentences=data.max_sentences,
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
    if recipe.kind == "pretrained":
        pretrained = Pretrained(recipe)
        return (pretrained.model if recipe.model.selector is None else pretrained.selecting_model)(labels, tokenizer)
    data = recipe.data
    fields = {
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,  # of some tokenizers ids are left out
        **{f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("unk", "pad", "bos", "eos")},
        **labels,
    }
    if recipe.model.hierarchy != "none":
        fields["sentence_token_id"] = tokenizer.sentence_token_id
    if data.tokenizer is not None:
        fields["tokenizer_digest"] = tokenizer_digest(tokenizer)
    vectors = None
    if data.vectors:
        path = vectors_path(data.vectors)
        vectors, present = load_vectors(
            path,
            tokenizer.get_vocab(),
            missing=data.missing_vectors,
            std=recipe.model.embedding_std,
            seed=recipe.seed,
            padding=tokenizer.pad_token_id,
        )
        fields |= {"embedding_size": vectors.shape[1], "vectors": "pretrained", "vectors_digest": file_digest(path)}
        print(f"vocabulary entries with a vector in {data.vectors}: {present.sum():,} of {len(present):,}")
    config, plain = model_config(recipe, loaded.entry.pair, **fields), recipe.model.selector is None
    model = (AttentionClassifierForSequenceClassification if plain else RationaleClassifierForSequenceClassification)(config)
    if vectors is not None:
        _set_vectors(model, torch.from_numpy(vectors))
    return model


def _set_vectors(model: PreTrainedModel, vectors: torch.Tensor) -> None:
    """Copy word vectors into a model, twice side by side where selector and classifier have their own."""
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        table.copy_(vectors.repeat(1, table.shape[1] // vectors.shape[1]))


def vectors_path(name: str) -> Path:
    """Return the path of a file of word vectors: as it is given, or below the data root."""
    root = os.environ.get(ROOT_VARIABLE)
    if root and not Path(name).exists() and (Path(root) / name).exists():
        return Path(root) / name
    return Path(name)


def facts_of_tokenizer(recipe: Recipe, tokenizer) -> dict[str, dict]:
    """Return facts about an adopted tokenizer and its pretrained model; {} for a vocabulary of the training texts."""
    data, model = recipe.data, recipe.model
    if recipe.kind == "pretrained":
        facts = tokenizer_facts(tokenizer, model.pretrained, model.revision)
        return {"tokenizer": facts, "pretrained": Pretrained(recipe).facts()}
    if data.tokenizer is None:
        return {}
    return {"tokenizer": tokenizer_facts(tokenizer, data.tokenizer, data.tokenizer_revision)}


# ------------------------------------------------------------------------------------------------ pretrained ones


@cache
def files_of(name: str, revision: str | None = None) -> Path:
    """Return the folder of a pretrained model: a folder of that name, or the cache of a repository on the Hub.

    Raises RecipeError where there is none, or its weights are not kept as safetensors.
    """
    stated, folder = f"model.pretrained={excerpt(name)}", Path(name)
    if not folder.is_dir():
        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=FILES))
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            raise RecipeError(
                f"{stated}: no such folder is here, and the Hub gives no model of that name ({type(error).__name__}): check "
                "the name; private models need `hf auth login`"
            ) from error
    if not (folder / "config.json").is_file():
        raise RecipeError(f"{stated} holds no config.json: give the folder of a model, or its name on the Hub")
    if not list(folder.glob(WEIGHTS)):
        raise RecipeError(
            f"{stated} holds no {WEIGHTS}: pickled weights (.bin, .pt) can run code and are not read; give a model, or a "
            "revision of it, with safetensors"
        )
    return folder


@contextmanager
def _quiet():
    """Silence transformers' warning about a new head."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


class Pretrained:
    """The pretrained model of a recipe: its files, its tokenizer, and the model at the start of training."""

    def __init__(self, recipe: Recipe):
        self.recipe, self.name = recipe, recipe.model.pretrained
        self.stated = f"model.pretrained={excerpt(self.name)}"
        self.folder = files_of(self.name, recipe.model.revision)

    def facts(self) -> dict[str, str]:
        """Return its name (of a folder its path, if relative, else the last part), its commit ("local" of a folder) and a
        digest of its weights, 12 hexadecimal digits.
        """
        digest = hashlib.sha256()
        for path in sorted(self.folder.glob(WEIGHTS)):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        local = Path(self.name).is_dir()
        return {
            "name": self.folder.name if self.folder.is_absolute() and local else self.name,
            "revision": "local" if local else self.folder.name,
            "digest": digest.hexdigest()[:12],
        }

    def configuration(self):
        """Return its configuration. Raises RecipeError for a type without a classifier in transformers."""
        try:
            config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
        except Exception as error:  # transformers raises many kinds
            raise RecipeError(f"{self.stated} has a type unknown to transformers: {excerpt(error, 200)}") from error
        if config.model_type in MODEL_TYPES:
            raise RecipeError(f"{self.stated} is a model of this package ({config.model_type}): leave model.pretrained out")
        if type(config) not in AutoModelForSequenceClassification._model_mapping:
            raise RecipeError(f"{self.stated}: transformers has no classifier of texts of its type {config.model_type}")
        return config

    def tokenizer(self):
        """Return its own tokenizer, with the bound of the model and of data.max_length, and a padding token.

        Raises RecipeError where it cannot be loaded without code of the repository, or is not of the tokenizers library.
        """
        names = ", ".join(VOCABULARIES)
        if not any(path for pattern in VOCABULARIES for path in self.folder.glob(pattern)):  # else an empty one is made
            raise RecipeError(f"{self.stated} holds no tokenizer ({names}): give a model with its tokenizer")
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False)
        except Exception as error:  # transformers and tokenizers raise many kinds
            raise RecipeError(f"{self.stated}: its tokenizer cannot be loaded ({excerpt(error, 200)})") from error
        if not getattr(tokenizer, "is_fast", False):
            raise RecipeError(
                f"{self.stated}: its {type(tokenizer).__name__} is written in Python and does not map tokens to characters: "
                "give a model with a tokenizer.json"
            )
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        if tokenizer.pad_token is None:
            tokenizer.add_special_tokens({"pad_token": "<pad>"})
        tokenizer.padding_side = tokenizer.truncation_side = "right"
        with torch.device("meta"), _quiet():
            model = AutoModelForSequenceClassification.from_config(self.configuration())
        limit = position_limit(SimpleNamespace(tokenizer=tokenizer, model=model, config=model.config))
        limits = [bound for bound in (limit, self.recipe.data.max_length) if bound is not None]
        if limits:
            tokenizer.model_max_length = min(limits)
        return tokenizer

    def model(self, labels: dict, tokenizer) -> torch.nn.Module:
        """Return the classifier at the start of training: the weights of the files, a new head, and the recipe's projection.

        Under softmax it is the model of transformers itself, unless impermissible words are kept apart. Raises RecipeError
        where the files hold no such model, or the tokenizer of another one, and where words cannot be kept apart.
        """
        config = self.configuration()
        config.problem_type = "single_label_classification"
        config.id2label, config.label2id = labels["id2label"], labels["label2id"]
        how = {"attn_implementation": "eager", "ignore_mismatched_sizes": True, "output_loading_info": True, **SAFELY}
        try:
            with _quiet():
                model, report = AutoModelForSequenceClassification.from_pretrained(self.folder, config=config, **how)
        except Exception as error:  # transformers and safetensors raise many kinds
            raise RecipeError(f"{self.stated} cannot be loaded: {excerpt(error, 300)}") from error
        sizes = {key: values.numel() for key, values in model.state_dict().items()}
        drawn = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
        loaded = 1 - sum(sizes.get(key, 0) for key in drawn) / sum(sizes.values())
        if loaded < LOADED_AT_LEAST:
            raise RecipeError(
                f"{self.stated}: its files hold {loaded:.0%} of the numbers of a {type(model).__name__}: weights and "
                "config.json belong to different models"
            )
        size, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
        if largest == size == tokenizer.pad_token_id:  # the padding token that it lacked
            model.resize_token_embeddings(largest + 1, mean_resizing=False)
        else:
            self._check_vocabulary(largest, size)
        model.config.pad_token_id = tokenizer.pad_token_id
        apart = self.recipe.model.separate_impermissible
        if self.recipe.model.projection == "softmax" and not apart:
            return model
        try:
            model = SelfAttentionClassifierForSequenceClassification.of(model, **projection_fields(self.recipe.model))
            if apart:
                SelfAttention(model, tokenizer)
        except (ValueError, StrictDataclassError) as error:
            raise RecipeError(f"{self.stated}: {excerpt(error.__cause__ or error, 300)}") from error
        return model

    def selecting_model(self, labels: dict, tokenizer) -> RationaleClassifierForSequenceClassification:
        """Return a classifier that reads a selection: its selector and its classifier start from the encoder and the word
        vectors of the files, with new heads.

        Raises RecipeError where the files hold no such encoder, or the tokenizer of another one.
        """
        config = self.configuration()
        try:
            with _quiet():
                encoder = AutoModel.from_pretrained(self.folder, config=config, **SAFELY)
            vectors = encoder.get_input_embeddings().weight.detach()
            fields = {
                **selector_fields(self.recipe.model.selector),
                **projection_fields(self.recipe.model),
                "text_config": encoder.config,
                "vocab_size": len(vectors),
                "vectors": "pretrained",
                "vectors_digest": self.facts()["digest"],
                "tokenizer_digest": tokenizer_digest(tokenizer),
                **labels,
                **{f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "unk")},
            }
            del fields["separate_impermissible"]
            model = RationaleClassifierForSequenceClassification(RationaleClassifierConfig(**fields))
            encoder.set_input_embeddings(torch.nn.Identity())
            for part in (model.selector.encoder, model.encoder):
                part.network.load_state_dict(encoder.state_dict())
            _set_vectors(model, vectors)
        except Exception as error:  # transformers and safetensors raise many kinds
            reason = excerpt(error.__cause__ or error, 300)
            raise RecipeError(f"{self.stated} cannot be loaded as an encoder: {reason}") from error
        if config.is_encoder_decoder or any(getattr(part, "is_causal", False) for part in encoder.modules()):
            raise RecipeError(
                f"{self.stated} with model.selector: in a {config.model_type} a token does not see later ones: give a plain "
                "encoder, such as a BERT"
            )
        self._check_vocabulary(max(tokenizer.get_vocab().values()), len(vectors))
        return model

    def _check_vocabulary(self, largest: int, size: int) -> None:
        if largest >= size:
            raise RecipeError(
                f"{self.stated}: its tokenizer has tokens up to {largest}, its model {size} of them: the tokenizer "
                "belongs to another model"
            )
