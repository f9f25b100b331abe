"""The model of a run, read back from its folder."""

from collections.abc import Callable
from pathlib import Path

from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from attnfaith.errors import excerpt
from attnfaith.locate import CHECKPOINT
from attnfaith.models.registration import MODEL_TYPE, RATIONALE
from attnfaith.runs.folder import MODEL, RunError
from attnfaith.subjects.self_attention import SelfAttention


# "eager" attention is what a model was trained with, and is measured with
HOW = {"attn_implementation": "eager", "use_safetensors": True, "trust_remote_code": False}


def load_model(run: Path) -> PreTrainedModel:
    """The model of a run's folder. Raises RunError where its files are missing or broken."""
    return _load(run / MODEL, _classifier)


def load_translator(run: Path) -> PreTrainedModel:
    """The model of sentence pairs of a run's folder. Raises RunError where its files are missing or broken."""
    return _load(run / MODEL, lambda folder: AutoModelForSeq2SeqLM.from_pretrained(folder, **HOW))


def _classifier(folder: Path) -> PreTrainedModel:
    return AutoModelForSequenceClassification.from_pretrained(folder, **HOW)


def measurable(model, tokenizer):
    """What `attnfaith.measurement` takes of a run: a model of this package as it is, another as a subject."""
    if getattr(model.config, "model_type", None) in (MODEL_TYPE, RATIONALE):
        return model
    return SelfAttention(model, tokenizer)


def load_tokenizer(run: Path) -> PreTrainedTokenizerBase:
    """Its tokenizer. Raises RunError where its files are missing or broken."""
    return _load(run / MODEL, lambda folder: AutoTokenizer.from_pretrained(folder, trust_remote_code=False))


def _load(folder: Path, load: Callable):
    try:
        if missing := [name for name in CHECKPOINT if not (folder / name).is_file()]:
            raise FileNotFoundError(f"{', '.join(missing)} missing")  # without some of them others would be guessed
        return load(folder)
    except Exception as error:  # transformers, tokenizers and safetensors raise many kinds
        raise RunError(
            f"{folder} cannot be loaded ({excerpt(error, 300)}): copy it anew, or train the run again with "
            "--overwrite_output_dir"
        ) from error
