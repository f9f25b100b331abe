"""A model as people have it, an object, a folder, a run or a name on the Hub, as a subject; and what its training was."""

import os
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from attnfaith import record
from attnfaith.errors import FileError, counted, excerpt
from attnfaith.files import read_object
from attnfaith.locate import CHECKPOINT, MODEL, RECIPE, STATE, ModelError, model_folders, read_config, translates, why_not
from attnfaith.models.registration import MODEL_TYPE
from attnfaith.subjects import Pooled, Subject, subject_of
from attnfaith.subjects.plain import unwrapped
from attnfaith.subjects.sequences import SequenceSubject, is_sequence_model, sequence_subject


MODELS = (
    "a text classifier of transformers or an attention classifier of this package, a pipeline with one, a folder, a run, a "
    "name on the Hub, or a Subject"
)


@dataclass(frozen=True)
class Opened:
    """subject: the model as measures see it. source: what it is called. training: the fields of `record.Identity` that are
    known of its training.
    """

    subject: Subject
    source: str
    training: Mapping[str, object] = field(default_factory=dict)


def open_model(model, tokenizer=None, level: str = "sentence", attention=None) -> Opened:
    """A model to be measured.

    model: one of MODELS. tokenizer: of a model object, or the name or folder of one; None takes that of the folder which the
    object was loaded from. level: as `attnfaith.measurement.measure` takes it. attention: of a classifier of transformers,
    how its layers and heads become the attention that is shown (`attnfaith.subjects.reduction.Reduction.of`); None: the last
    layer's, the mean of heads.

    Raises ModelError for what is no model, a folder without a checkpoint of this package, a name that the Hub does not have,
    and an object whose tokenizer is not known; SubjectError for a model of a kind that cannot be measured.
    """
    opened = _opened(model, tokenizer, level)
    if attention is None:
        return opened
    if not hasattr(opened.subject, "shown_by"):
        raise ModelError(
            f"attention={excerpt(attention)}: {opened.subject.kind} have one attention, which is shown: leave it out"
        )
    return replace(opened, subject=opened.subject.shown_by(attention))


def _opened(model, tokenizer, level: str) -> Opened:
    if isinstance(model, str | os.PathLike):
        if tokenizer is not None:
            raise ModelError("tokenizer: a folder, a run and a name on the Hub have their own; leave it out")
        return _of_path(model, level)
    if hasattr(model, "model") and hasattr(model, "tokenizer") and not hasattr(model, "capabilities"):  # a pipeline
        return _of_object(model.model, model.tokenizer if tokenizer is None else tokenizer, level)
    if model is None or isinstance(model, type | int | float | Mapping | list | tuple):
        raise ModelError(f"model is {excerpt(model)}: give {MODELS}")
    return _of_object(model, tokenizer, level)


def _of_object(model, tokenizer, level: str) -> Opened:
    model = unwrapped(model)
    if isinstance(model, SequenceSubject):
        if tokenizer is not None:
            raise ModelError("tokenizer: this subject is given with its own; leave it out")
        return Opened(model, model.kind)
    if hasattr(model, "capabilities"):
        subject = subject_of(model, level)
        if isinstance(subject, Pooled) and tokenizer is not None:
            subject = Pooled(subject.stages, _tokenizer(tokenizer))
        return Opened(subject, getattr(subject, "kind", type(subject).__name__))
    subject = sequence_subject(model) if is_sequence_model(model) else subject_of(model, level)
    source = str(getattr(model.config, "_name_or_path", "") or "")
    if tokenizer is None and not source:
        raise ModelError(
            f"the tokenizer of this {type(model).__name__} is not known: give tokenizer=…, or the folder of the model"
        )
    subject.tokenizer = _tokenizer(source if tokenizer is None else tokenizer)
    return Opened(subject, source or type(model).__name__, _training(Path(source)) if source else {})


def _tokenizer(given):
    if not isinstance(given, str | os.PathLike):
        return given
    from transformers import AutoTokenizer

    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(given, trust_remote_code=False)
        except Exception as error:  # transformers and tokenizers raise many kinds
            why = (
                excerpt(error, 200) if Path(given).is_dir() else f"no such folder is here, and {why_not(error, str(given))}"
            )
            raise ModelError(f"no tokenizer is loaded from {excerpt(str(given))}: {why}") from error
    if not isinstance(limit := tokenizer.model_max_length, int | float):
        raise ModelError(
            f"no tokenizer is loaded from {excerpt(str(given))}: its model_max_length is {excerpt(limit)}, no number"
        )
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):  # made of nothing where there are no files of it
        raise ModelError(
            f"no tokenizer is loaded from {excerpt(str(given))}: neither tokenizer.json nor a vocabulary is there. Give "
            "tokenizer=… beside the model as an object, or put it there: tokenizer.save_pretrained(folder)"
        )
    return tokenizer


def _of_path(given: str | os.PathLike, level: str) -> Opened:
    path, folder = model_folders(given)
    training = _training(path if folder == path / MODEL else folder)
    return Opened(_load(folder, level), str(given), training)


def _load(folder: Path, level: str) -> Subject:
    from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification

    config = read_config(folder)
    if config.get("model_type") != MODEL_TYPE:
        return _classifier(folder, config, level)
    if missing := [name for name in CHECKPOINT if not (folder / name).is_file()]:
        raise ModelError(f"{folder} lacks {', '.join(missing)}: copy the model anew")
    with quiet():
        try:
            model = AttentionClassifierForSequenceClassification.from_pretrained(folder, use_safetensors=True)
        except Exception as error:  # transformers and safetensors raise many kinds
            raise ModelError(f"{folder} cannot be loaded ({excerpt(error, 300)}): copy the model anew") from error
    subject = subject_of(model.to(_device()).eval(), level)
    subject.tokenizer = _tokenizer(folder)
    return subject


def _classifier(folder: Path, config: Mapping, level: str) -> Subject:
    """A checkpoint of transformers. Nothing pickled is read, and no code of the checkpoint runs.

    Weights that are saved in half precision are read as float32, which changes none of them.

    Raises ModelError for a model of another task, whose head would be drawn at random, one that brings its own code, and
    files that cannot be loaded or lack weights.
    """
    from transformers import AutoModelForSequenceClassification

    made = config.get("architectures") or []
    if translates(config):
        return _translator(folder, config)
    if not any(str(name).endswith("ForSequenceClassification") for name in made):
        raise ModelError(
            f"{folder} holds {excerpt(', '.join(map(str, made)) or config.get('model_type'))}, which is no text "
            "classifier (…ForSequenceClassification): its head would be drawn at random. Fine-tune it first, loaded with "
            "AutoModelForSequenceClassification"
        )
    _check_code(folder, config)
    model = _weights(folder, AutoModelForSequenceClassification)
    subject = subject_of(model.to(_device()).eval(), level)
    subject.tokenizer = _tokenizer(folder)
    return subject


def _check_code(folder: Path, config: Mapping) -> None:
    """Raises ModelError for a checkpoint that brings its own code."""
    from transformers import CONFIG_MAPPING

    kind = config.get("model_type")
    if config.get("auto_map") and not (kind in CONFIG_MAPPING and CONFIG_MAPPING[kind].__module__.startswith("attnfaith.")):
        raise ModelError(
            f"{folder} brings its own code (auto_map in {CHECKPOINT[0]}), which is not run: load it yourself, if you trust "
            "it, and give the model and its tokenizer as objects"
        )


def _weights(folder: Path, auto):
    """The model of a checkpoint by one of transformers' Auto classes, in float32; errors as `_classifier` says."""
    import torch

    with quiet():
        try:
            model, loading = auto.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
            )
        except Exception as error:  # transformers and safetensors raise many kinds
            raise ModelError(
                f"{folder} cannot be loaded ({excerpt(error, 300)}): it needs config.json and weights in safetensors "
                "(model.save_pretrained writes them), of an architecture that transformers has"
            ) from error
    if lacking := sorted({*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])}):
        raise ModelError(
            f"{folder} lacks {counted(len(lacking), 'weight')} of {type(model).__name__} ({excerpt(', '.join(lacking), 99)})"
            ", which would be drawn at random: copy the model anew"
        )
    return model


def _translator(folder: Path, config: Mapping) -> SequenceSubject:
    """A checkpoint of a model from sequences to sequences, as `_classifier` loads one of a classifier."""
    from transformers import AutoModelForSeq2SeqLM

    _check_code(folder, config)
    subject = sequence_subject(_weights(folder, AutoModelForSeq2SeqLM).to(_device()).eval())
    subject.tokenizer = _tokenizer(folder)
    return subject


def _device():
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.cuda.is_available()).device


def _training(folder: Path) -> dict[str, object]:
    """What run.json and recipe.yaml, beside a model or its folder, say of its training; {} where they are not there.

    Raises ModelError for a model that was trained under the attention of another one: its own means nothing.
    """
    places = [folder, *([folder.parent] if folder.name == MODEL else [])]
    place = next((one for one in places if (one / STATE).is_file() and (one / RECIPE).is_file()), None)
    if place is None:
        return {}
    from attnfaith import planned_identity, recipes

    path = (place / RECIPE).resolve()
    try:
        recipe, state = _recipe(path, path.stat().st_mtime_ns), read_object(place / STATE)
    except (recipes.RecipeError, FileError):
        return {}  # made by another version, perhaps: the model itself is whole
    if recipe.objective.kind == "guided":
        raise ModelError(
            f"{folder} was trained under the attention of another model, so its own means nothing: `attnfaith measure` "
            "measures the two together"
        )
    try:
        fields = planned_identity.training_fields(recipe)
    except recipes.RecipeError:  # the run that it was trained against is elsewhere
        fields = planned_identity.objective_fields(recipe)
    return {"seed": recipe.seed, "training_texts": (state.get("texts") or {}).get("train"), **fields}


@lru_cache(maxsize=8)
def _recipe(path: Path, changed: int):
    """The recipe of a run, read once until the file changes."""
    from attnfaith import recipes

    return recipes.load(path)


def identity_of(opened: Opened, **texts) -> record.Identity:
    """The identity of a record of this model; what is not known of its training is said to be unknown."""
    return record.Identity(**{"seed": record.UNKNOWN_SEED, "objective": record.UNKNOWN, **opened.training, **texts})


@contextmanager
def quiet():
    """Within, transformers draws no bars: loading takes no time."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
