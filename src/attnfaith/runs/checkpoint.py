"""The model of a run, read back from its folder."""

from collections.abc import Callable
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from attnfaith.errors import excerpt
from attnfaith.locate import CHECKPOINT
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.runs.folder import MODEL, RunError


def load_model(run: Path) -> AttentionClassifierForSequenceClassification:
    """The model of a run's folder. Raises RunError where its files are missing or broken."""
    return _load(run / MODEL, lambda folder: AttentionClassifierForSequenceClassification.from_pretrained(folder))


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
