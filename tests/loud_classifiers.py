"""Tiny classifiers of transformers with random weights, large enough that attention and predictions are far from flat."""

import functools

import torch

from attnfaith.subjects import Batch, SelfAttention


ORDINARY = 5  # ids below it are markers
VOCABULARY = 40
BEGIN, END = 3, 4


@functools.cache
def _model(kind: str, layers: int, labels: int, scale: float):
    from transformers import (
        BartConfig,
        BartForSequenceClassification,
        BertConfig,
        BertForSequenceClassification,
        GPT2Config,
        GPT2ForSequenceClassification,
    )

    ends = {"pad_token_id": 0, "bos_token_id": BEGIN, "eos_token_id": END, "num_labels": labels}
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": 32}
    configs = {
        "bert": lambda: BertConfig(
            **sizes, **ends, hidden_size=16, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=16
        ),
        "gpt2": lambda: GPT2Config(**ends, vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=layers, n_head=2),
        "bart": lambda: BartConfig(
            **sizes,
            **ends,
            d_model=16,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            decoder_start_token_id=END,
        ),
    }
    classes = {
        "bert": BertForSequenceClassification,
        "gpt2": GPT2ForSequenceClassification,
        "bart": BartForSequenceClassification,
    }
    torch.default_generator.manual_seed(1)
    model = classes[kind](configs[kind]()).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() > 1 and "norm" not in name.lower():
                values.mul_(scale)
    return model


def classifier(kind: str, *, layers: int = 2, labels: int = 3, scale: float = 12.0, reduction="last") -> SelfAttention:
    """A tiny subject: kind "bert", "gpt2" or "bart"."""
    return _subject(kind, layers, labels, scale).shown_by(reduction)


@functools.cache
def _subject(*arguments) -> SelfAttention:
    return SelfAttention(_model(*arguments))


def batch_of(subject: SelfAttention, lengths, *, seed: int = 0, padding: int = 0) -> Batch:
    """Texts of so many tokens, between two markers where the model has them; padding: positions behind the longest."""
    random = torch.Generator().manual_seed(seed)
    texts = [torch.randint(ORDINARY, VOCABULARY, (12,), generator=random)[:length].tolist() for length in lengths]
    if subject.config.model_type != "gpt2":
        texts = [[BEGIN, *text, END] for text in texts]
    width = max(map(len, texts)) + padding
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    return Batch.of({"input_ids": ids, "attention_mask": mask}, subject)
