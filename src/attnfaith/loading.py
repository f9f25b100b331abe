"""Models as people have them, opened as subjects: `attnfaith.load_subject`."""

import os
import threading
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import yaml

from attnfaith import record
from attnfaith.errors import FileError, counted, excerpt
from attnfaith.files import read_object
from attnfaith.locate import CHECKPOINT, MODEL, RECIPE, STATE, ModelError, model_folders, read_config, translates, why_not
from attnfaith.models.registration import CONFIGS
from attnfaith.planned_identity import objective_fields, training_fields, written_recipe
from attnfaith.subjects import Pooled, Subject, subject_of
from attnfaith.subjects.modes import unwrapped
from attnfaith.subjects.translator import SequenceSubject, is_sequence_model, sequence_subject


UNREADABLE = (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError)
"""What reading a recipe raises."""
MODELS = (
    "a text classifier of transformers or an attention classifier of this package, a pipeline with one, a folder, a run, a "
    "name on the Hub, or a Subject"
)


@dataclass(frozen=True)
class Origin:
    """Where a subject comes from. name: of its folder, repository or class. training: the fields of `record.Identity` that
    are known about its training.
    """

    name: str
    training: Mapping[str, object] = field(default_factory=dict)


def load_subject(
    model,
    *,
    tokenizer=None,
    revision: str | None = None,
    device=None,
    level: str = "sentence",
    attention=None,
    trust_remote_code: bool = False,
) -> Subject:
    """Open a model as a subject, the form in which measures read it.

    Args:
        model: the folder of a checkpoint or of a run, the name of a model on the Hub, a model object, a `pipeline` of
            transformers, a PEFT model (a copy with merged adapters is opened), or a `Subject`.
        tokenizer: of a model object, or its name or folder; None takes that of the folder which the object was loaded from.
        revision: branch, tag or commit of a name on the Hub.
        device: "cpu", "cuda:0", 0, a `torch.device`: the model is moved there. None leaves an object where it is and loads
            a folder to the CPU.
        level: "sentence", or "word" for the words of a hierarchical model.
        attention: of a classifier of transformers, how its layers and heads become the attention that is shown
            (`attnfaith.subjects.reduction.Reduction.of`). None: the mean of the last layer's heads.
        trust_remote_code: run the code that a checkpoint brings.

    Raises ModelError for what is no model, a folder without a checkpoint, a name that the Hub does not have, an object
    without a tokenizer, and an unknown device; SubjectError for a model of a kind that cannot be measured.
    """
    if isinstance(model, str | os.PathLike):
        if tokenizer is not None:
            raise ModelError("tokenizer: a folder, a run and a name on the Hub have their own; leave it out")
        place = device_of(device)
        path, folder = model_folders(model, revision, code=trust_remote_code)
        name = str(model) if revision is None else f"{model}@{revision}"
        return _showing(_of_folder(path, folder, name, place, level, trust_remote_code), attention)
    if revision is not None:
        raise ModelError(f"revision={excerpt(revision)}: only a name on the Hub has one; leave it out")
    place = None if device is None else device_of(device)
    if hasattr(model, "model") and hasattr(model, "tokenizer") and not hasattr(model, "capabilities"):  # a pipeline
        model, tokenizer = model.model, model.tokenizer if tokenizer is None else tokenizer
    elif model is None or isinstance(model, type | int | float | Mapping | list | tuple):
        raise ModelError(f"model is {excerpt(model)}: give {MODELS}")
    return _showing(_of_object(model, tokenizer, place, level), attention)


def open_subject(model, *, device=None, level: str = "sentence", attention=None, **how) -> Subject:
    """As `load_subject`, but the subject of a folder is kept, and given again until one of the folder's files changes."""
    if not isinstance(model, str | os.PathLike) or any(how.values()):
        return load_subject(model, device=device, level=level, attention=attention, **how)
    place = device_of(device)
    path, folder = model_folders(model)
    stamps = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in _files(path, folder))
    return _showing(_kept(path, folder, str(model), place, level, stamps, threading.get_ident()), attention)


def _files(path: Path, folder: Path) -> list[Path]:
    beside = [place / name for place in {path, folder.parent} for name in (STATE, RECIPE)]
    return [file for file in (*sorted(folder.iterdir()), *sorted(beside)) if file.is_file()]


@lru_cache(maxsize=1)
def _kept(path: Path, folder: Path, name: str, device, level: str, stamps: tuple, thread: int) -> Subject:
    """The subject of a folder whose files have these stamps; each thread has its own."""
    return _of_folder(path, folder, name, device, level, False)


def device_of(device):
    """The `torch.device` that is named: by a string, the number of an accelerator (-1: the CPU) or itself; None: the CPU.

    Raises ModelError where there is no such device, or it holds no numbers.
    """
    import torch

    try:
        number = int(device) if isinstance(device, str) and device.isdecimal() else device
        place = torch.device("cpu" if number in (None, -1) else number)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError) as error:
        kind = torch.accelerator.current_accelerator()  # None where there is none
        there = ["cpu", *(f"{kind.type}:{number}" for number in range(torch.accelerator.device_count() if kind else 0))]
        raise ModelError(f"device={excerpt(device)} is no device of this machine; there are {', '.join(there)}") from error
    return place


def _showing(subject: Subject, attention) -> Subject:
    if attention is None:
        return subject
    if not hasattr(subject, "shown_by"):
        raise ModelError(f"attention={excerpt(attention)}: {subject.kind} have one attention, which is shown: leave it out")
    return subject.shown_by(attention)


def origin_of(subject: Subject) -> Origin:
    """Where a subject comes from; of one that was not opened here the kind is its name."""
    return getattr(subject, "origin", None) or Origin(getattr(subject, "kind", type(subject).__name__))


def identity_of(subject: Subject, **texts) -> record.Identity:
    """The identity of a record of this subject; what is not known of its training is said to be unknown."""
    training = {"seed": record.UNKNOWN_SEED, "objective": record.UNKNOWN, **origin_of(subject).training}
    return record.Identity(**{**training, **texts})


# ------------------------------------------------------------------------------------------------ objects


def _of_object(model, tokenizer, device, level: str) -> Subject:
    model = unwrapped(model)
    if isinstance(model, SequenceSubject) or hasattr(model, "capabilities"):
        if device is not None and device != model.device:
            raise ModelError(
                f"device={excerpt(str(device))}: this subject is on {model.device}; move its model, then open it"
            )
        if isinstance(model, SequenceSubject):
            if tokenizer is not None:
                raise ModelError("tokenizer: this subject is given with its own; leave it out")
            return model
        subject = subject_of(model, level)
        if isinstance(subject, Pooled) and tokenizer is not None:
            subject = Pooled(subject.stages, load_tokenizer(tokenizer))
        return subject
    if device is not None and hasattr(model, "to"):
        model = model.to(device)
    subject = sequence_subject(model) if is_sequence_model(model) else subject_of(model, level)
    source = str(getattr(model.config, "_name_or_path", "") or "")
    if tokenizer is None and not source:
        raise ModelError(
            f"the tokenizer of this {type(model).__name__} is not known: give tokenizer=…, or the folder of the model"
        )
    subject.tokenizer = load_tokenizer(source if tokenizer is None else tokenizer)
    subject.origin = Origin(source or type(model).__name__, _training(Path(source)) if source else {})
    return subject


# ------------------------------------------------------------------------------------------------ folders


def _of_folder(path: Path, folder: Path, name: str, device, level: str, trusted: bool) -> Subject:
    training = _training(path if folder == path / MODEL else folder)
    model = load_model(folder, trust_remote_code=trusted).to(device).eval()
    subject = sequence_subject(model) if translates(read_config(folder)) else subject_of(model, level)
    subject.tokenizer = load_tokenizer(folder, trust_remote_code=trusted)
    subject.origin = Origin(name, training)
    return subject


def load_model(folder: Path, *, trust_remote_code: bool = False, **how):
    """The classifier, or the model from sequences to sequences, of a checkpoint, in float32. Nothing pickled is read.

    how: further arguments of `from_pretrained`.

    Raises ModelError for a model of another task, whose head would be drawn at random, one that brings its own code (unless
    trust_remote_code), and files that cannot be loaded or lack weights.
    """
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

    config = read_config(folder)
    kind, made = config.get("model_type"), config.get("architectures") or []
    if kind in CONFIGS:
        check_complete(folder)
    elif not translates(config) and not any(str(name).endswith("ForSequenceClassification") for name in made):
        raise ModelError(
            f"{folder} holds {excerpt(', '.join(map(str, made)) or kind)}, which is no text "
            "classifier (…ForSequenceClassification): its head would be drawn at random. Fine-tune it first, loaded with "
            "AutoModelForSequenceClassification"
        )
    ours = kind in CONFIG_MAPPING and CONFIG_MAPPING[kind].__module__.startswith("attnfaith.")
    if config.get("auto_map") and not ours and not trust_remote_code:
        raise ModelError(
            f"{folder} brings its own code (auto_map in {CHECKPOINT[0]}), which is not run: give trust_remote_code=True to "
            "attnfaith.load_subject, if you trust it, and measure what that returns"
        )
    auto = AutoModelForSeq2SeqLM if translates(config) else AutoModelForSequenceClassification
    how |= {"trust_remote_code": trust_remote_code and not ours, "output_loading_info": True}
    how |= {"use_safetensors": True, "dtype": torch.float32}
    with quiet():
        try:
            model, loading = auto.from_pretrained(folder, **how)
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


def check_complete(folder: Path) -> None:
    """Raises ModelError where a checkpoint of this package lacks files, in whose place transformers would guess others."""
    if missing := [name for name in CHECKPOINT if not (folder / name).is_file()]:
        raise ModelError(f"{folder} lacks {', '.join(missing)}: copy the model anew")


def load_tokenizer(given, *, trust_remote_code: bool = False):
    """The tokenizer of a folder or a name on the Hub; an object as it is. Raises ModelError where none is there."""
    if not isinstance(given, str | os.PathLike):
        return given
    from transformers import AutoTokenizer

    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(given, trust_remote_code=trust_remote_code)
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


def _training(folder: Path) -> dict[str, object]:
    """What run.json and recipe.yaml, beside a model or its folder, say of its training; {} where they are not there.

    Raises ModelError for a model that was trained under the attention of another one: its own means nothing.
    """
    places = [folder, *([folder.parent] if folder.name == MODEL else [])]
    place = next((one for one in places if (one / STATE).is_file() and (one / RECIPE).is_file()), None)
    if place is None:
        return {}
    path = (place / RECIPE).resolve()
    try:
        recipe, state = _recipe(path, path.stat().st_mtime_ns), read_object(place / STATE)
        fields = objective_fields(recipe)
    except (*UNREADABLE, FileError):
        return {}  # made by another version, perhaps: the model itself is whole
    if recipe.objective.kind == "guided":
        raise ModelError(
            f"{folder} was trained under the attention of another model, so its own means nothing: `attnfaith measure` "
            "measures the two together"
        )
    with suppress(*UNREADABLE):  # the run that it was trained against may be elsewhere
        fields = training_fields(recipe, written_recipe)
    return {"seed": recipe.seed, "training_texts": (state.get("texts") or {}).get("train"), **fields}


@lru_cache(maxsize=8)
def _recipe(path: Path, changed: int):
    """The recipe of a run, read once until the file changes."""
    return written_recipe(path)


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
