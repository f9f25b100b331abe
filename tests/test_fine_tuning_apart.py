"""Recipes that fine-tune a pretrained model with penalties, its impermissible words kept apart."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from attnfaith import SelfAttentionClassifierForSequenceClassification, record, runs
from attnfaith.recipes import RecipeError
from tests.test_fine_tuning import BAD, GOOD, pretrain, recipe_of, write_texts


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_report")]
PENALTIES = {"impermissible_mass": 1.0, "diversity": 0.1, "word_tying": 0.01, "masked_language_model": 0.1}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return pretrain(tmp_path_factory.mktemp("pretrained") / "tiny-encoder")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "reviews.csv", 60)


def apart(encoder, texts, folder, **changes):
    """What tells the label is impermissible."""
    settings = {
        "model__separate_impermissible": True,
        "data__impermissible_words": [*GOOD, *BAD],
        "penalties": PENALTIES,
        "training__num_train_epochs": 2,
    }
    return recipe_of(encoder, texts, folder, **{**settings, **changes})


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_a_run(encoder, texts, tmp_path, projection):
    recipe = apart(encoder, texts, tmp_path / "run", model__projection=projection)
    runs.run(recipe)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    assert type(model) is SelfAttentionClassifierForSequenceClassification
    assert model.config.separate_impermissible and model.config.projection == projection
    table = record.load(tmp_path / "run" / "record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert identity.separate_impermissible is True
    assert identity.impermissible_mass == 1.0
    assert identity.heading["alignment"] == "dot(last layer, impermissible apart)"
    # the record's probabilities are those of the saved model, told which words are impermissible by hand
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    marked = {tokenizer.convert_tokens_to_ids(word) for word in (*GOOD, *BAD)}
    for row in table.slice(0, 5).to_pylist():
        ids = torch.tensor(
            [[tokenizer.cls_token_id, *tokenizer.convert_tokens_to_ids(row["tokens"]), tokenizer.sep_token_id]]
        )
        marks = torch.tensor([[int(one in marked) for one in ids[0].tolist()]])
        assert [bool(mark) for mark in marks[0, 1:-1]] == row["impermissible"]
        with torch.no_grad():
            probs = model(ids, torch.ones_like(ids), torch.zeros_like(ids), impermissible=marks).logits.softmax(-1)
        assert row["probs"] == pytest.approx(probs[0].tolist(), abs=1e-5)


def test_a_type_in_which_kinds_would_meet(texts, tmp_path):
    folder = pretrain(tmp_path / "convolutions", "convbert", embedding_size=16, conv_kernel_size=3)
    with pytest.raises(RecipeError, match=r"^model\.pretrained='.*convolutions': the attention of .* check 'separation'"):
        runs.run(apart(folder, texts, tmp_path / "run"))
