"""Folders of tiny models that the project itself can measure."""

from pathlib import Path

from attnfaith.api.models import quiet


def affine(folder: Path) -> Path:
    """A model of this package, whose read-out is affine."""
    import torch

    from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification
    from attnfaith.data.tokenization import build_tokenizer

    words = build_tokenizer(
        ["the old new ship sank film was good bad never slowly"], preprocessing="default", max_length=400
    )
    torch.default_generator.manual_seed(1)
    config = AttentionClassifierConfig(
        vocab_size=len(words), embedding_size=8, hidden_size=8, id2label={0: "bad", 1: "good"}
    )
    with quiet():
        AttentionClassifierForSequenceClassification(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def stack(folder: Path) -> Path:
    """A classifier of transformers."""
    from tests.small_classifiers import classifier, tokenizer

    with quiet():
        classifier("bert").save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
