"""Tiny tokenizers of the kinds that are on the Hub, trained on texts of many scripts, as folders to be loaded from."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast


TEXTS = [
    "Das ist ein schöner Film, unglaublich gut!",
    "Unglaubliche Unterhaltung, gute Musik",
    "这部电影非常好看，演员也很棒。",
    "هذا الفيلم رائع جدا",
    "ภาพยนตร์เรื่องนี้ดีมาก",
    "I loved it 😀👍🏽 so much",
    "e\u0301te\u0301 a la mer",
]
KINDS = ("wordpiece", "byte_level", "unigram", "metaspace_bpe", "no_pre_tokenizer")
SPECIAL = {
    "wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"},
    "byte_level": {"bos": "<|endoftext|>", "eos": "<|endoftext|>"},
}
OTHERS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}


def train(kind: str, folder: Path, texts=TEXTS) -> Path:
    """A tokenizer of a kind, saved in the folder."""
    named = SPECIAL.get(kind, OTHERS)
    tokens = list(dict.fromkeys(named.values()))
    how = {"special_tokens": tokens, "show_progress": False}
    if kind == "wordpiece":
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=260, **how)
    elif kind == "byte_level":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **how)
    elif kind == "unigram":
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=180, unk_token="<unk>", **how)
    else:
        backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=200, **how)
    backend.train_from_iterator(list(texts) * 3, trainer)
    if kind == "no_pre_tokenizer":  # as Llama's: a blank is a letter like others
        settings = json.loads(backend.to_str()) | {"pre_tokenizer": None}
        backend = Tokenizer.from_str(json.dumps(settings))
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    PreTrainedTokenizerFast(
        tokenizer_object=backend, **{f"{role}_token": token for role, token in named.items()}
    ).save_pretrained(folder)
    return folder
