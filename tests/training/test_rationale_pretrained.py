"""A Hugging Face encoder as selector and as classifier: as its files have it at first, fine-tuned, measured, loaded."""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

import attnfaith
from attnfaith import recipes, record, runs
from attnfaith.recipes import RecipeError
from attnfaith.runs import load_data, load_tokenizer, make_model, make_tokenizer
from tests.training.test_fine_tuning import pretrain, recipe_of, write_texts


pytestmark = pytest.mark.usefixtures("quick_report")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return pretrain(tmp_path_factory.mktemp("pretrained") / "tiny-encoder")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "reviews.csv", count=90)


def selecting(encoder, texts, output_dir, **selector):
    model = {"pretrained": str(encoder), "selector": {"kind": "budget", "budget": 0.3, **selector}}
    return recipe_of(encoder, texts, output_dir, model=model)


@pytest.mark.parametrize("share", [True, False])
def test_both_begin_as_the_encoder_of_the_files(encoder, texts, tmp_path, share):
    recipe = selecting(encoder, texts, tmp_path, share_embeddings=share)
    loaded = load_data(recipe)
    model = make_model(recipe, loaded, make_tokenizer(recipe, loaded)).eval()
    own = AutoModel.from_pretrained(encoder, attn_implementation="eager").eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    with torch.no_grad():
        states = own(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        embedded = model.embed(ids)
        for part, vectors in zip((model.selector.encoder, model.encoder), model._parts(embedded.vectors), strict=True):
            torch.testing.assert_close(part(vectors, embedded.present)[0], states, atol=1e-5, rtol=1e-4)
    assert not model.selector.score.weight.any()
    assert model.config.vectors_digest and model.config.encoder == "pretrained"


@pytest.mark.slow
def test_it_is_fine_tuned_and_measured(encoder, texts, tmp_path):
    """Selector and classifier learn apart, the record says what was selected, and the folder is loaded as others are."""
    recipe = selecting(encoder, texts, tmp_path / "run")
    assert runs.run(recipe).is_file()
    table = record.load(tmp_path / "run" / "record.parquet")
    identity = record.from_row(table.slice(0, 1).to_pylist()[0])
    assert (identity.encoder, identity.selection_encoder, identity.selection_kind) == ("bert", "bert", "budget")
    for chosen, tokens in zip(record.rows(table, "selected"), table.column("tokens").to_pylist(), strict=True):
        assert len(chosen) == len(tokens) and chosen.sum() <= max(1, round(0.3 * len(tokens)))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    weights = [part.network.encoder.layer[0].output.dense.weight for part in (model.selector.encoder, model.encoder)]
    assert not torch.equal(*weights)
    again = attnfaith.measure(tmp_path / "run", ["a warm film", ""], measures=[], progress=False).table
    tokenizer = load_tokenizer(tmp_path / "run")
    output = model(**tokenizer(["a warm film"], return_tensors="pt"))
    np.testing.assert_allclose(record.rows(again, "selection")[0], output.selection[0, 1:-1].detach(), atol=1e-6)


def test_what_it_is_not_for(encoder, texts, tmp_path):
    recipe = selecting(pretrain(tmp_path / "gpt2", "gpt2"), texts, tmp_path / "run")
    loaded = load_data(recipe)
    with pytest.raises(RecipeError, match=r"cannot be loaded as an encoder|give a plain encoder, such as a BERT"):
        make_model(recipe, loaded, make_tokenizer(recipe, loaded))
    with pytest.raises(RecipeError, match="model.encoder='cnn' is only for"):
        recipes.build(
            {
                "name": "a",
                "output_dir": "b",
                "model": {"pretrained": "x", "encoder": "cnn", "selector": {"kind": "bernoulli"}},
            }
        )
