"""A small GPT-2 of random weights, with a tokenizer made of SST's training texts, for recipes/any_classifier/decoder.yaml.

    python recipes/any_classifier/small_decoder.py

Nothing was learned anywhere else: what the recipe trains from it says that decoders can be measured, and nothing of large
ones. Like GPT-2's own, the tokenizer is byte-level BPE, adds no marker, and has no token for a mask.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2ForSequenceClassification, PreTrainedTokenizerFast

from attnfaith.data.loading import load_splits


FOLDER = Path("models/small_decoder")
VOCABULARY, POSITIONS = 4000, 128
END = "<|endoftext|>"


def tokenizer_of(texts) -> PreTrainedTokenizerFast:
    """Byte-level BPE of these texts."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    how = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "special_tokens": [END], "show_progress": False}
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, **how))
    marks = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END)
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=POSITIONS, **marks)


def model_of(tokenizer: PreTrainedTokenizerFast) -> GPT2ForSequenceClassification:
    """Two layers of four heads."""
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": POSITIONS}
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), tokenizer.eos_token_id)
    return GPT2ForSequenceClassification(GPT2Config(vocab_size=len(tokenizer), num_labels=2, **sizes, **ids))


def main() -> None:
    tokenizer = tokenizer_of(load_splits("sst").splits["train"]["text"])
    model_of(tokenizer).save_pretrained(FOLDER)
    tokenizer.save_pretrained(FOLDER)
    print(f"{FOLDER}: GPT-2 with {len(tokenizer)} tokens and random weights")


if __name__ == "__main__":
    main()
