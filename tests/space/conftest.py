import pytest
import torch

from tests.small_classifiers import classifier, tokenizer


@pytest.fixture(scope="session")
def affine(tmp_path_factory):
    """The folder of a small model of this package, whose read-out is affine."""
    from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification
    from attnfaith.data.tokenization import build_tokenizer

    words = build_tokenizer(
        ["the old new ship sank film was good bad never slowly"], preprocessing="default", max_length=400
    )
    torch.default_generator.manual_seed(1)
    config = AttentionClassifierConfig(
        vocab_size=len(words), embedding_size=8, hidden_size=8, id2label={0: "<b>bad</b>", 1: "good"}
    )
    model = AttentionClassifierForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    path = tmp_path_factory.mktemp("affine") / "small"
    model.save_pretrained(path)
    words.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def stack(tmp_path_factory):
    """The folder of a small classifier of transformers."""
    path = tmp_path_factory.mktemp("stack") / "small"
    classifier("bert").save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path
