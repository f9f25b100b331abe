"""Open models as subjects: `attnfaith.load_subject`. Only functions that open a model import torch."""

import copy
import json
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import yaml

from attnfaith.record import objective_fields, training_fields
from attnfaith.record.lookup import why_unreadable
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.files import CHECKPOINT, MODEL, RECIPE, STATE, read_object


if TYPE_CHECKING:
    from attnfaith.subjects import Subject


FETCHED_FILES = (
    *("model*.safetensors", "model.safetensors.index.json", "config.json", STATE, RECIPE),
    *("tokenizer*.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json"),
    *("vocab*", "merges.txt", "spiece.model", "sentencepiece*.model"),
)
"""Files that are fetched from the Hub: no weights but safetensors."""
UNREADABLE = (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError)
"""What reading a recipe raises."""


class ModelError(AttnfaithError):
    """A model that cannot be measured. The message gives the reason and what to do."""


class Origin(NamedTuple):
    """Where a subject comes from: a folder, repository or class, and fields of `record.Identity` about its training."""

    name: str
    training: Mapping[str, object] = {}


def load_subject(
    model,
    *,
    tokenizer=None,
    revision: str | None = None,
    device=None,
    attention=None,
    trust_remote_code: bool = False,
) -> "Subject":
    """Open a model as a subject, the form in which measures read it.

    Args:
        model: the folder of a checkpoint or of a run, the name of a model on the Hub, a model object, a `pipeline` of
            transformers, a PEFT model (a copy with merged adapters is opened), or a `Subject`.
        tokenizer: of a model object or a subject, or its name or folder; None takes that of the subject, or of the folder
            which the object was loaded from.
        revision: branch, tag or commit of a name on the Hub.
        device: "cpu", "cuda:0", 0, a `torch.device`: the model is moved there. None leaves an object where it is and loads
            a folder to the CPU.
        attention: how layers and heads of a classifier of transformers become one attention
            (`attnfaith.subjects.attention.Reduction.of`). None: the mean of the last layer's heads.
        trust_remote_code: run the code that a checkpoint brings.

    Raises ModelError for a folder without a checkpoint, a name that the Hub does not have, an object without a tokenizer and
    an unknown device; SubjectError for what is no model, and a model of a kind that cannot be measured.
    """
    if not isinstance(model, str | os.PathLike):
        if revision is not None:
            raise ModelError(f"revision={excerpt(revision)}: only a name on the Hub has one; leave it out")
        subject = _from_object(model, tokenizer, None if device is None else device_of(device))
    elif tokenizer is not None:
        raise ModelError("tokenizer: a folder, a run and a name on the Hub have their own; leave it out")
    else:
        folder = model_folder(model, revision, code=trust_remote_code)
        name = str(model) if revision is None else f"{model}@{revision}"
        subject = _from_folder.__wrapped__(folder, name, device_of(device), trust_remote_code)
    return subject if attention is None else _with_attention(subject, attention)


def open_subject(model, *, device=None, attention=None, tokenizer=None) -> "Subject":
    """Open a model as `load_subject` does, and keep the subject of a folder until one of its files changes."""
    if not isinstance(model, str | os.PathLike) or tokenizer is not None:
        return load_subject(model, tokenizer=tokenizer, device=device, attention=attention)
    folder = model_folder(model)
    files = [file for file in (*folder.iterdir(), *(folder.parent / name for name in (STATE, RECIPE))) if file.is_file()]
    stamps = tuple(sorted((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files))
    key = (stamps, threading.get_ident())  # each thread has its own
    subject = _from_folder(folder, str(model), device_of(device), False, key)
    return subject if attention is None else _with_attention(subject, attention)


@lru_cache(maxsize=1)
def _from_folder(folder: Path, name: str, device, trusted: bool, key: tuple = ()) -> "Subject":
    from attnfaith.subjects import subject_of

    training = _training(folder)
    model = load_model(folder, trust_remote_code=trusted).to(device).eval()
    subject = subject_of(model)
    subject.tokenizer = load_tokenizer(folder, trust_remote_code=trusted)
    subject.origin = Origin(name, training)
    return subject


def _from_object(model, tokenizer, device) -> "Subject":
    from attnfaith.subjects import subject_of, unwrapped

    if hasattr(model, "model") and hasattr(model, "tokenizer") and not hasattr(model, "capabilities"):  # a pipeline
        model, tokenizer = model.model, model.tokenizer if tokenizer is None else tokenizer
    model = unwrapped(model)
    is_subject = hasattr(model, "capabilities")
    network = getattr(model, "model", model) if is_subject else model
    if device is not None and hasattr(network, "to"):
        network.to(device)
    if is_subject and tokenizer is not None:
        model = copy.copy(model)
        model.tokenizer = load_tokenizer(tokenizer)
    if is_subject:
        return model
    subject = subject_of(model)
    source = str(getattr(model.config, "_name_or_path", "") or "")
    if tokenizer is None and not source:
        raise ModelError(f"no tokenizer belongs to this {type(model).__name__}: give tokenizer=…, or the model's folder")
    subject.tokenizer = load_tokenizer(source if tokenizer is None else tokenizer)
    subject.origin = Origin(source or type(model).__name__, _training(Path(source)) if source else {})
    return subject


def _with_attention(subject: "Subject", attention) -> "Subject":
    if not hasattr(subject, "shown_by"):
        raise ModelError(f"attention={excerpt(attention)}: {subject.kind} have one attention only: leave it out")
    return subject.shown_by(attention)


def device_of(device):
    """Return the `torch.device` of a string, the number of an accelerator (-1: the CPU) or a device; None: the CPU. Raises
    ModelError where there is no such device.
    """
    import torch

    try:
        number = int(device) if isinstance(device, str) and device.isdecimal() else device
        place = torch.device("cpu" if number in (None, -1) else number)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError) as error:
        raise ModelError(
            f"device={excerpt(device)} is no device of this machine: give cpu or an accelerator ({excerpt(error)})"
        ) from error
    return place


def origin_of(subject: "Subject") -> Origin:
    """Return where a subject comes from; the name of a subject that was not opened here is its kind."""
    return getattr(subject, "origin", None) or Origin(getattr(subject, "kind", type(subject).__name__))


def model_folder(model: str | os.PathLike, revision: str | None = None, *, code: bool = False) -> Path:
    """Return the folder of the checkpoint of a path or of a name on the Hub: itself, or model/ in it.

    revision: of a name on the Hub. code: fetch the Python files of a repository too. Raises ModelError where there is none.
    """
    path = Path(model)
    if not os.path.exists(model):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError

        try:
            files = [*FETCHED_FILES, *(["*.py"] if code else [])]
            path = Path(snapshot_download(str(model), revision=revision, allow_patterns=files))
        except (HFValidationError, HfHubHTTPError, OSError) as error:
            reason = why_unreadable(error, str(model))
            raise ModelError(f"no model {excerpt(str(model))}: no such folder is here, and on the Hub {reason}") from error
    elif revision is not None:
        raise ModelError(f"revision={excerpt(revision)}: {path} is on this machine and has none; leave it out")
    for folder in (path, path / MODEL):
        if (folder / CHECKPOINT[0]).is_file():
            return folder
    raise ModelError(
        f"{path} holds no model: neither {CHECKPOINT[0]} nor {MODEL}/{CHECKPOINT[0]} is there. A PEFT adapter is loaded "
        "with peft.AutoPeftModelForSequenceClassification, and given as an object with its tokenizer"
    )


def is_repository(name: str | Path) -> bool:
    """Whether a name can only be that of a model on the Hub: it looks like one, and there is no such path here."""
    path = Path(name)
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", str(name))) and not path.exists() and not path.parent.is_dir()


def translates(config: Mapping) -> bool:
    """Whether a configuration describes a model from sequences to sequences."""
    classes = config.get("architectures") or []
    return bool(config.get("is_encoder_decoder")) and not any(str(name).endswith("Classification") for name in classes)


def load_model(folder: Path, *, trust_remote_code: bool = False, **options):
    """Load the classifier, or the model from sequences to sequences, of a checkpoint in float32. No pickle is read.

    options: of `from_pretrained`. Raises ModelError for a model of another task, one that lacks weights, one that brings its
    own code (unless trust_remote_code), and files that cannot be loaded.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
    from transformers.utils import logging

    from attnfaith.models import MODEL_TYPES

    config = read_object(folder / CHECKPOINT[0])
    ours, sequences = config.get("model_type") in MODEL_TYPES, translates(config)
    missing = [name for name in CHECKPOINT if not (folder / name).is_file()]
    if ours and missing:  # transformers would replace them by guesses
        raise ModelError(f"{folder} lacks {', '.join(missing)}: copy the model anew")
    if not ours and not sequences and "ForSequenceClassification" not in str(config.get("architectures")):
        raise ModelError(
            f"{folder} holds {config.get('architectures') or config.get('model_type')}, no …ForSequenceClassification: "
            "fine-tune it first, loaded with AutoModelForSequenceClassification"
        )
    options |= {"trust_remote_code": trust_remote_code and not ours, "output_loading_info": True}
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # loading takes no time
    try:
        auto = AutoModelForSeq2SeqLM if sequences else AutoModelForSequenceClassification
        model, loading = auto.from_pretrained(folder, **options, use_safetensors=True, dtype=torch.float32)
    except Exception as error:  # transformers and safetensors raise many kinds
        raise ModelError(
            f"{folder} cannot be loaded ({excerpt(error, 600)}): it needs config.json and weights in safetensors "
            "(model.save_pretrained writes them), of an architecture that transformers has; its own code runs only with "
            "attnfaith.load_subject(…, trust_remote_code=True)"
        ) from error
    finally:
        if bars:
            logging.enable_progress_bar()
    lacking = sorted({*loading["missing_keys"], *(key for key, *_ in loading["mismatched_keys"])})
    if lacking:
        raise ModelError(
            f"{folder} lacks {counted(len(lacking), 'weight')} of {type(model).__name__} ({excerpt(', '.join(lacking), 99)})"
            ", which would be drawn at random: copy the model anew"
        )
    return model


def load_tokenizer(source, *, trust_remote_code: bool = False):
    """Return the tokenizer of a folder or a name on the Hub; an object stays. Raises ModelError where there is none."""
    if not isinstance(source, str | os.PathLike):
        return source
    from transformers import AutoTokenizer

    refused = f"no tokenizer is loaded from {str(source)!r}"
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers and tokenizers raise many kinds
        raise ModelError(f"{refused}: {why_unreadable(error, str(source))}") from error
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):  # transformers makes an empty one without files
        raise ModelError(f"{refused}: it has no vocabulary. Put one there with tokenizer.save_pretrained(folder)")
    return tokenizer


def written_recipe(path: Path) -> SimpleNamespace:
    """Read the complete recipe of a run, its sections as attributes, quickly and without a check. Raises `UNREADABLE`."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast
    sections = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return json.loads(json.dumps(sections), object_hook=lambda keys: SimpleNamespace(**keys))


def _training(folder: Path) -> dict[str, object]:
    """The fields of an identity in run.json and recipe.yaml of the run that a checkpoint may belong to, else {}. Raises
    ModelError for a model that was trained under the attention of another one: its own means nothing.
    """
    run = folder.parent if folder.name == MODEL else folder
    try:
        recipe, state = written_recipe(run / RECIPE), read_object(run / STATE)
        fields = objective_fields(recipe)
    except UNREADABLE:
        return {}  # no run, or one of another version: the model itself is whole
    if recipe.objective.kind == "guided":
        raise ModelError(
            f"{run} was trained under the attention of another model, so its own means nothing: `attnfaith measure` "
            "measures the two together"
        )
    with suppress(*UNREADABLE):  # the run that it was trained against may be elsewhere
        fields = training_fields(recipe, written_recipe)
    return {"seed": recipe.seed, "training_texts": (state.get("texts") or {}).get("train"), **fields}
