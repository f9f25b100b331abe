"""Recipes of sentence pairs: what they may say, what is written out, and the configuration of their model."""

import pytest
from transformers import MarianConfig

from attnfaith import AttentionSeq2SeqConfig, recipes
from attnfaith.recipes import RecipeError
from attnfaith.runs import training_arguments


MINIMAL = "name: a\noutput_dir: b\ndata: {name: copy}\n"


def test_a_recipe_is_complete_and_reads_back():
    recipe = recipes.parse(MINIMAL + "model: {type: gru}")
    model, training = recipe.model, recipe.training
    assert (model.encoder, model.recurrence, model.alignment) == ("bigru", "bahdanau", "additive")
    assert (training.num_train_epochs, training.learning_rate, training.loss_reduction) == (10, 2e-3, "mean")
    assert recipe.measure.producers == ["attention", "norm", "gradient_x_input"] and recipe.measure.batch_tokens == 2048
    assert recipes.parse(recipes.dump(recipe)) == recipe
    arguments = training_arguments(recipe)
    assert arguments.metric_for_best_model == "eval_loss" and not arguments.greater_is_better
    assert arguments.lr_scheduler_type == "linear" and arguments.max_grad_norm == 1
    best = recipes.parse(MINIMAL + "model: {type: gru}\ntraining: {metric_for_best_model: token_accuracy}")
    assert training_arguments(best).greater_is_better


def test_configurations():
    gru = recipes.parse(MINIMAL + "model: {type: gru, recurrence: luong, alignment: general, embedding_size: 20}")
    config = recipes.sequence_config(gru, vocab_size=30)
    assert isinstance(config, AttentionSeq2SeqConfig) and config.vocab_size == 30
    assert (config.recurrence, config.alignment, config.embedding_size, config.hidden_size) == ("luong", "general", 20, 256)
    words = recipes.parse(MINIMAL + "model: {type: gru, encoder: embedding, embedding_size: 20}")
    assert recipes.sequence_config(words, vocab_size=30).hidden_size == 20
    marian = recipes.parse(MINIMAL + "model: {type: marian, hidden_size: 64, num_attention_heads: 4, num_hidden_layers: 3}")
    config = recipes.sequence_config(marian, vocab_size=30)
    assert isinstance(config, MarianConfig) and config.init_std == 1 / 8
    assert (config.d_model, config.decoder_layers, config.encoder_attention_heads) == (64, 3, 4)
    assert (config.pad_token_id, config.decoder_start_token_id, config.eos_token_id) == (0, 2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {type: rnn}", "recipe.model.type='rnn' must be 'gru' or 'marian'"),
        ("", "data.name='copy' is a set of sentence pairs, which has no classes: set model.type to gru or marian"),
        ("model: {recurrence: luong}", "model.recurrence='luong' is of models from sequences to sequences"),
        ("model: {type: gru}\ndata: {name: sst}", "data.name: 'sst' is no set of sentence pairs"),
        ("model: {type: gru}\ndata: {name: coppy}", "did you mean 'copy'"),
        ("data: {name: sst, vocabulary: bpe}", "data.vocabulary='bpe' is of models from sequences"),
        ("model: {type: gru}\ndata: {path: x, text: y}", "data.text='y' with model.type='gru': it is of texts with classes"),
        ("model: {type: gru}\ndata: {path: x, links_from: 2}", "recipe.data.links_from=2 must be at most 1"),
        ("model: {type: gru}\ndata: {name: copy, tokenizer: z}", "data.tokenizer='z' with model.type='gru'"),
        ("model: {type: gru}\ndata: {name: copy, vocabulary: letters}", "recipe.data.vocabulary='letters' must be"),
        ("model: {type: gru, num_hidden_layers: 3}", "model.num_hidden_layers=3 with model.type='gru', which has no such"),
        ("model: {type: marian, projection: sparsemax}", "model.projection='sparsemax' with model.type='marian'"),
        ("model: {type: marian, pretrained: x}", "model.pretrained='x' with model.type='marian'"),
        ("model: {type: gru}\nobjective: {kind: untrained}", "objective.kind='untrained' with model.type='gru'"),
        ("model: {type: gru}\npenalties: {diversity: 1}", "penalties.diversity=1.0 with model.type='gru'"),
        (
            "model: {type: marian}\npenalties: {impermissible_mass: 1}",
            "is on the one row that model.type='gru' attends with",
        ),
        ("model: {type: gru, projection: none}\npenalties: {impermissible_mass: 1}", "no attention that could change"),
        (
            "model: {type: gru}\npenalties: {impermissible_mass: 1, impermissible_heads: max}",
            "a model whose attention has one head",
        ),
        ("model: {type: gru}\nselection: {share: 0.5}", "selection.share=0.5 with model.type='gru'"),
        ("model: {type: gru}\ntraining: {amsgrad: true}", "training.amsgrad=True with model.type='gru'"),
        ("model: {type: gru}\ntraining: {metric_for_best_model: roc_auc}", "choose one of loss, token_accuracy"),
        ("model: {type: gru}\nmeasure: {outputs: [train]}", r"measure.outputs=\['train'\] with model.type='gru'"),
        ("model: {type: gru}\nmeasure: {level: word}", "measure.level='word' with model.type='gru'"),
    ],
)
def test_keys_that_mean_nothing_are_refused(text, message):
    tree = MINIMAL if "data:" not in text else MINIMAL.partition("data:")[0]
    with pytest.raises(RecipeError, match=message):
        recipes.parse(tree + text)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{type: gru, encoder: cnn}", "encoder='cnn' is not known; choose one of bigru, gru, embedding"),
        ("{type: gru, projection: nothing}", "projection='nothing' is not known"),
        ("{type: marian, hidden_size: 10, num_attention_heads: 3}", "hidden_size=10 must be a multiple of"),
    ],
)
def test_models_that_are_refused(model, message):
    recipe = recipes.parse(f"{MINIMAL}model: {model}")
    with pytest.raises(RecipeError, match=message):
        recipes.check_model(recipe)


def test_a_pretrained_model_keeps_the_encoder_that_nobody_named():
    """`encoder` is written out where a recipe is silent, and is no key that such a recipe has set."""
    text = "name: a\noutput_dir: b\nmodel: {pretrained: x}"
    recipe = recipes.parse(text)
    assert recipes.parse(recipes.dump(recipe)) == recipe
    with pytest.raises(RecipeError, match="model.encoder='cnn' with model.pretrained='x'"):
        recipes.parse(text.replace("x}", "x, encoder: cnn}"))
