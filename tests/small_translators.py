"""Models from sequences to sequences, small and with random weights, and a tokenizer of subwords that suits them."""

import functools

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from attnfaith import AttentionSeq2SeqConfig, AttentionSeq2SeqForConditionalGeneration
from attnfaith.subjects import subject_of


MARKERS = ("<pad>", "<s>", "</s>", "<unk>")
WORDS = "the a der ein dog house hund haus sees sieht old alt man boat boot ##s ##n ##e ##er ##boot !".split()
VOCABULARY = {word: number for number, word in enumerate((*MARKERS, *WORDS))}
PAIRS = [
    ("the old dog sees a boats !", "der alter hund sieht ein boot !"),
    ("a man", "ein man"),
    ("the olds houses sees", "der alte hausboot sieht hund"),
]
"""With words of two tokens, some first, some last."""
KINDS = ("marian", "bart", "mbart", "t5", "bahdanau", "luong")
STACKED = KINDS[:4]
INPUTS = ("input_ids", "attention_mask", "decoder_input_ids")


def tokenizer(template: str = "$A </s>"):
    backend = Tokenizer(models.WordPiece(dict(VOCABULARY), unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = [(name, VOCABULARY[name]) for name in ("<s>", "</s>")]
    backend.post_processor = TemplateProcessing(single=template, special_tokens=marks)
    roles = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=["input_ids", "attention_mask"], **roles)


def translator(kind: str, **fields):
    """A model of a kind, in eval mode."""
    torch.manual_seed(0)
    sizes = {"vocab_size": len(VOCABULARY), "pad_token_id": 0, "eos_token_id": 2}
    if kind in ("bahdanau", "luong"):
        sizes |= {
            "embedding_size": 6,
            "hidden_size": 8,
            "bos_token_id": 1,
            "decoder_start_token_id": 1,
            "embedding_std": 1.0,
        }
        return AttentionSeq2SeqForConditionalGeneration(
            AttentionSeq2SeqConfig(**{"recurrence": kind, **sizes, **fields})
        ).eval()
    if kind == "t5":
        sizes |= {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
        return T5ForConditionalGeneration(T5Config(**sizes | {"initializer_factor": 1.0} | fields)).eval()
    sizes |= {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 32, "init_std": 0.4}
    sizes |= {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
    sizes |= {f"{part}_ffn_dim": 24 for part in ("encoder", "decoder")} | {"bos_token_id": 1, "forced_eos_token_id": None}
    config, model, start = {
        "marian": (MarianConfig, MarianMTModel, 0),
        "bart": (BartConfig, BartForConditionalGeneration, 2),
        "mbart": (MBartConfig, MBartForConditionalGeneration, 2),
    }[kind]
    return model(config(**{**sizes, "decoder_start_token_id": start, **fields})).eval()


@functools.cache
def subject(kind: str):
    """The subject of a model of a kind, which tests leave as it is."""
    return subject_of(translator(kind), tokenizer("<s> $A </s>" if kind == "bart" else "$A </s>"))


def batch(kind: str, pairs=PAIRS):
    return subject(kind).encode(list(pairs))
