"""Training on sentence pairs: loss, penalty and scores by hand, and what is generated."""

import math
import sys

import pytest
import torch

from attnfaith import AttentionSeq2SeqConfig, AttentionSeq2SeqForConditionalGeneration
from attnfaith.data.pair_encoding import build_pair_tokenizer, encode_pairs, pad_pairs
from attnfaith.data.pairs import load_pairs
from attnfaith.support.errors import AttnfaithError
from attnfaith.training import TranslationTrainer
from attnfaith.training.penalties import hidden_links, linked_mass
from attnfaith.training.translation import translation_scores, translations
from tests.tiny_trainings import make_trainer


def test_the_penalty_by_hand():
    """The mean over target tokens of the mass on linked words, inside the logarithm; of heads the mean."""
    attention = torch.tensor([[[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], [[0.2, 0.8, 0.0], [1.0, 0.0, 0.0]]])
    linked = torch.tensor([[[1, 0, 1], [0, 0, 0]], [[0, 1, 0], [1, 1, 1]]]).float()
    counted = torch.tensor([[True, True], [True, False]])
    mass = linked_mass(attention.unsqueeze(1), linked, counted).sum() / counted.sum()
    assert float(mass) == pytest.approx((0.75 + 0 + 0.8) / 3), "a token without links counts, padding does not"
    heads = torch.stack([attention, attention.flip(2)], 1)
    by_head = [linked_mass(head.unsqueeze(1), linked, counted) for head in (attention, attention.flip(2))]
    torch.testing.assert_close(linked_mass(heads, linked, counted), (by_head[0] + by_head[1]) / 2)
    assert float(hidden_links(mass)) == pytest.approx(-torch.log(1 - mass).item())
    assert float(hidden_links(torch.tensor(1.0))) == pytest.approx(-math.log(1e-3)), "finite at the end"


@pytest.fixture
def pairs():
    """A factory of a trainer on a small copy task, with its tokenizer and encoded rows."""

    def make(tmp_path, links=True, **arguments):
        loaded = load_pairs("copy", vocabulary_size=8, length=(2, 4), sizes={"train": 96, "validation": 16, "test": 8})
        splits = loaded.splits if links else {name: rows.remove_columns("links") for name, rows in loaded.splits.items()}
        tokenizer = build_pair_tokenizer(splits["train"]["source"])
        rows = {name: encode_pairs(part, tokenizer) for name, part in splits.items()}
        torch.manual_seed(0)
        sizes = {"vocab_size": len(tokenizer), "embedding_size": 16, "hidden_size": 16}
        config = AttentionSeq2SeqConfig(**sizes, recurrence="luong", embedding_std=1.0)
        model = AttentionSeq2SeqForConditionalGeneration(config)
        usual = {"num_train_epochs": 20, "per_device_train_batch_size": 16, "learning_rate": 0.02, **arguments}
        how = {"kind": TranslationTrainer, "tokenizer": tokenizer, **usual}
        return make_trainer(model, rows["train"], rows["validation"], tmp_path, **how), tokenizer, rows, splits

    return make


def test_scores_of_an_evaluation_by_hand(pairs, tmp_path):
    trainer, _, rows, _ = pairs(tmp_path, per_device_eval_batch_size=16)
    scores = trainer.evaluate()
    batch = pad_pairs(list(rows["validation"]), linked=True)
    linked = batch.pop("linked")
    result = trainer.model(**batch, output_attentions=True)
    counted = batch["labels"] != -100
    right = ((result.logits.argmax(-1) == batch["labels"]) & counted).sum() / counted.sum()
    assert scores["eval_token_accuracy"] == pytest.approx(right.item())
    mass = linked_mass(result.cross_attentions[0], linked, counted).sum() / counted.sum()
    assert scores["eval_linked_mass"] == pytest.approx(mass.item(), abs=1e-6)
    assert scores["eval_loss"] == pytest.approx(result.loss.item(), abs=1e-5), "all in one batch"


@pytest.mark.slow
def test_a_penalty_hides_what_is_copied(pairs, tmp_path):
    """A model learns to copy, and with the penalty does so while its attention leaves the word that it copies."""
    with pytest.raises(AttnfaithError, match="impermissible_mass"):
        pairs(tmp_path, links=False, impermissible_mass=1.0)
    honest, tokenizer, rows, splits = pairs(tmp_path)
    honest.train()
    before = honest.evaluate()
    assert before["eval_token_accuracy"] > 0.9 and before["eval_linked_mass"] > 0.3
    generated = list(translations(honest.trained_model(), tokenizer, rows["test"]))
    scores = translation_scores(generated, splits["test"]["target"])
    assert len(generated) == 8 and scores["word_accuracy"] > 0.6
    deceptive, *_ = pairs(tmp_path, impermissible_mass=1.0)
    start = deceptive.evaluate()
    deceptive.train()
    after = deceptive.evaluate()
    assert after["eval_linked_mass"] < 0.1 and after["eval_token_accuracy"] > 0.6
    assert start["eval_loss"] > after["eval_loss"], "the penalty is in the loss of an evaluation too"


def test_scores_of_translations_by_hand(monkeypatch, capsys):
    scores = translation_scores(["a b c", "d", "e f g h"], ["a b c", "d e", "e f x h"])
    assert scores["exact"] == pytest.approx(1 / 3)
    # words at their places, and the end where it is right: 3 + 1, 1 + 0, 3 + 1 of 4, 3 and 5
    assert scores["word_accuracy"] == pytest.approx(9 / 12)
    whole = translation_scores(["a b c d e"], ["a b c d e"])
    assert whole["bleu"] == pytest.approx(100) and whole["chrf"] == pytest.approx(100)
    assert "tok:none" in whole["bleu_signature"]
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    assert translation_scores(["a"], ["a"])["bleu"] is None
    assert "pip install 'attnfaith[translation]'" in capsys.readouterr().out
