"""Every recipe of the project builds; what is wrong in a recipe is said before any work is done."""

import contextlib
import dataclasses
import random
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM, MarianConfig, TrainingArguments

from attnfaith import (
    AttentionClassifierForSequenceClassification,
    AttentionSeq2SeqConfig,
    RationaleClassifierForSequenceClassification,
    recipes,
    runs,
)
from attnfaith.data.pairs import PAIRS
from attnfaith.data.registry import DATASETS, SPLITS, entry_of
from attnfaith.measurement import registry
from attnfaith.models import AttentionClassifierConfig
from attnfaith.recipes import RecipeError
from attnfaith.recipes.options import KEYS
from attnfaith.recipes.recipe import MODEL_KEYS
from attnfaith.reporting.study import DEFAULT, check_names
from attnfaith.study import plan
from attnfaith.support.errors import AttnfaithError, DatasetError


ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "recipes").rglob("*.yaml"))
STUDIES = [path for path in FILES if "blocks" in yaml.safe_load(path.read_text(encoding="utf-8"))]
RECIPES = [path for path in FILES if path not in STUDIES]
MINIMAL = "name: a\noutput_dir: b\n"


def name_of(path):
    return str(path.relative_to(ROOT))


def builds(recipe):
    """The recipe's model, small, reads a batch; everything that the recipe names exists."""
    runs.training_arguments(recipe)
    assert recipe.measure.split in SPLITS
    registry.check_names(recipe.measure.producers, "pairs" if recipe.kind == "translator" else "texts")
    if recipe.kind == "pretrained":  # its files are elsewhere
        return recipes.check_model(recipe)
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, hidden_size=8))
    if recipe.kind == "translator":
        assert recipe.data.name in PAIRS
        model = AutoModelForSeq2SeqLM.from_config(recipes.sequence_config(recipe, vocab_size=30))
        ids = torch.tensor([[5, 6, 7, 3]])
        assert model(ids, labels=ids[:, 1:]).logits.shape == (1, 3, 30)
        return None
    entry = entry_of(recipe.data)
    num_labels = len(entry.label_names) or 3  # where answers are the labels, the training texts decide
    small = {"embedding_size": 8, "intermediate_size": 8, "alignment_size": 4, "vocab_size": 30, "num_labels": num_labels}
    config = recipes.model_config(recipe, entry.pair, **small)
    plain = recipe.model.selector is None
    kind = AttentionClassifierForSequenceClassification if plain else RationaleClassifierForSequenceClassification
    batch = {"input_ids": torch.tensor([[2, 5, 6, 3, 2, 7, 3]])}
    if entry.pair:
        batch["token_type_ids"] = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    assert kind(config)(**batch).logits.shape == (1, num_labels)


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_recipe_builds(path):
    recipe = recipes.load(path)
    builds(recipe)
    assert recipes.parse(recipes.dump(recipe)) == recipe
    assert recipe.name == path.stem and recipe.note


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=name_of)
def test_study_builds(path):
    """Of cells that differ in their seeds alone, the first."""
    study = plan.read_study(path)
    check_names(study.get("tables", DEFAULT))
    apart = ("--seed=", "--name=", "--output_dir=", "--objective.base=")
    cells = {}
    for cell in plan.cells(study):
        cells.setdefault((cell.recipe, *(words for words in cell.overrides if not words.startswith(apart))), cell)
    assert cells
    for cell in cells.values():
        recipe = plan.load_recipe(cell)
        builds(recipe)
        if recipe.objective.base:
            assert Path(recipe.objective.base).name in cell.after, f"{cell.name} reads a run that it does not wait for"


def test_an_output_folder_is_of_one_recipe():
    """Studies may share runs, so that each shows its part of them; then they must agree on how a run is made."""
    assert len({recipes.load(path).output_dir for path in RECIPES}) == len(RECIPES)
    studies = [plan.read_study(path) for path in STUDIES]
    assert len({study["results"] for study in studies}) == len(studies)
    cells = {}
    for cell in (cell for study in studies for cell in plan.cells(study)):
        folder = next(words for words in cell.overrides if words.startswith("--output_dir="))
        cells.setdefault(folder, []).append(cell)
    assert len(cells) >= 100
    for alike in cells.values():
        first, *others = map(plan.load_recipe, alike)
        assert all(recipes.differences(other, first) == [] for other in others), first.output_dir


# ------------------------------------------------------------------------------------------------ what a recipe may say


def test_defaults_are_the_papers():
    recipe = recipes.parse(MINIMAL)
    training = recipe.training
    assert (training.num_train_epochs, training.per_device_train_batch_size) == (8, 32)
    assert (training.learning_rate, training.weight_decay, training.amsgrad) == (1e-3, 1e-5, True)
    assert (training.loss_reduction, training.balance_classes, training.max_grad_norm) == ("sum", True, 0.0)
    assert recipe.model.encoder == "bilstm" and recipe.measure.split == "test"
    assert recipe.measure.producers == ["gradient", "gradient_norm", "leave_one_out"] and recipe.measure.batch_tokens == 8192


WRONG_VALUES = {
    "seed": ("x", "1.5", "true", "-1", "4294967296"),
    "model": ("cnn", "{encoderr: cnn}"),
    "model.kernel_sizes": ("[1, 3.5]",),
    "model.dropout": (".nan",),
    "training.learning_rate": ("fast", "true", ".inf", "-1e-3"),
    "training.early_stopping_patience": ("0",),
    "training.select_on": ("test",),
    "training.num_train_epochs": ("1e300", "0"),
    "objective.kind": ("adversary", "guided"),
    "measure.producers": ("gradient", "[1]"),
    "data.limits": ("{train: many}", "{1: 2}", "{test: 0}"),
    "data.arguments": ("{1: 2}", "[1]"),
    "model.selector": ("{kind: gumbel}", "{}", "{kind: bernoulli, buget: 0.1}", "{kind: budget, budget: 1.5}"),
}


def nested(key, value):
    section, _, name = key.rpartition(".")
    return f"{section}: {{{name}: {value}}}" if section else f"{name}: {value}"


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG_VALUES.items() for value in values])
def test_a_value_of_another_kind_is_named(key, value):
    with pytest.raises(RecipeError, match=re.escape(key)):
        recipes.parse(MINIMAL + nested(key, value))


TREES = {  # a recipe -> keys that mean nothing in it, or contradict it
    "": "data.text=x data.encoding=x data.revision=x data.max_sentences=9 data.tokenizer_revision=x data.vocabulary=bpe "
    "data.links_from=1 model.recurrence=luong model.revision=x model.separate_impermissible=true "
    "objective.base=b objective.weight=0.1 objective.frozen=true selection.share=0.5 measure.level=word "
    "penalties.impermissible_heads=max penalties.word_tying_distance=norm penalties.word_tying_padding=false "
    "penalties.masked_share=0.15",
    "penalties.impermissible_mass=1": "penalties.impermissible_heads=max",
    "data.path=a": "data.name=sst data.hub_id=x data.revision=v data.preprocessing=wrds data.arguments={length: 3} "
    "data.test_share=0.9 data.impermissible_words=[] data.impermissible_words=[a b] data.impermissible_removed=true",
    "data.hub_id=a/b": "data.encoding=cp1252 data.quotes=false",
    "data.tokenizer=x": "data.min_df=3 model.hierarchy=sentence",
    "objective.kind=untrained": "objective.base=b training.random_erasure=0.5 penalties.diversity=0.5 "
    "training.attention_learning_rate_factor=10",
    "objective.kind=guided objective.base=b": "objective.frozen=true objective.divergence=jsd measure.producers=[gradient] "
    "penalties.diversity=1",
    "objective.kind=guided objective.base=b model.hierarchy=sentence": "measure.level=word",
    "objective.kind=adversarial objective.base=b": "objective.weight=0.0 model.projection=uniform training.random_erasure=1",
    "model.pretrained=x": "model.encoder=cnn model.readout=tanh data.tokenizer=x data.vectors=x data.min_df=2 "
    "objective.kind=guided training.amsgrad=true training.random_erasure=0.5 measure.outputs=[train] model.type=gru",
    "model.selector.kind=bernoulli": "penalties.diversity=0.5 training.random_erasure=0.5 measure.outputs=[train] "
    "selection.share=0.1 model.hierarchy=sentence model.query=text model.projection=sparsemax model.alignment=dot "
    "objective.kind=adversarial training.attention_learning_rate_factor=2.0 model.selector.transition=0.1",
    "model.selector.kind=hardkuma": "selection.sparsity=0.1 selection.multiplier_range=[2.0,1.0] "
    "model.selector.reads=deleted",
    "model.selector.kind=hardkuma selection.two_sided=true": "selection.multiplier_range=[0.0,1.0]",
    "model.selector.kind=budget model.selector.budget=0.1": "selection.decay=0.1 model.selector.budget=null",
    "data.name=copy model.type=gru": "data.tokenizer=z data.hub_id=x "
    "model.num_hidden_layers=3 model.hierarchy=sentence objective.kind=untrained penalties.diversity=1 selection.share=0.5 "
    "penalties.impermissible_heads=max training.amsgrad=true training.balance_classes=false measure.outputs=[train] "
    "training.metric_for_best_model=roc_auc measure.level=word",
    "data.name=copy model.type=gru model.projection=none": "penalties.impermissible_mass=1",
    "data.name=copy model.type=marian": "model.projection=sparsemax penalties.impermissible_mass=1 model.encoder=cnn",
    "data.path=x model.type=gru": "data.text=y data.quotes=false",
}


@pytest.mark.parametrize("tree", TREES)
def test_a_key_that_means_nothing_is_refused_unless_it_says_what_silence_says(tree):
    words = [f"--{word}" for word in tree.split()]
    plain = recipes.parse(MINIMAL, words)
    assert recipes.parse(recipes.dump(plain)) == plain, "a complete recipe holds every key"
    for word in re.findall(r"[\w.]+=(?:\[.*?\]|\{.*?\}|\S+)", TREES[tree]):
        key = word.partition("=")[0]
        with pytest.raises(RecipeError, match=re.escape(key.rpartition(".")[2])):
            recipes.parse(MINIMAL, [*words, f"--{word}"])


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["--data.name=copy"], "set model.type"),
        (["--data.name=sts"], "did you mean 'sst'"),
        (["--data.name=sst", "--type=gru"], "no set of sentence pairs"),
        (["--data.name=coppy", "--type=gru"], "did you mean 'copy'"),
    ],
)
def test_a_data_set_is_one_for_the_kind_of_model(words, key):
    with pytest.raises(DatasetError, match=key):
        recipes.check_data(recipes.parse(MINIMAL, words))


def test_what_a_recipe_is_silent_about():
    pairs = recipes.parse(MINIMAL, ["--data.name=copy", "--type=gru"])
    assert (pairs.model.encoder, pairs.model.recurrence, pairs.training.loss_reduction) == ("bigru", "bahdanau", "mean")
    assert pairs.measure.producers == ["attention", "norm", "gradient_x_input"] and pairs.measure.batch_tokens == 2048
    tuned = recipes.parse(MINIMAL, ["--pretrained=x", "--impermissible_mass=1", "--impermissible_heads=max"])
    assert (tuned.training.num_train_epochs, tuned.training.arguments["warmup_steps"]) == (3, 0.1)
    assert recipes.parse(MINIMAL, ["--kind=guided", "--base=b"]).measure.producers == []
    kuma = recipes.parse(MINIMAL, ["--model.selector={kind: hardkuma, budget: 0.3}", "--two_sided"])
    assert (kuma.selection.share, kuma.selection.multiplier, kuma.selection.lasso) == (0.3, 1e-4, None)
    assert recipes.parse(MINIMAL, ["--model.selector={kind: budget, budget: 0.3}"]).model.selector.temperature == 0.1


@pytest.mark.parametrize("text", ["", "- a", "a: [", "a: !!python/object:os.system x", "name: a", "name: 3\noutput_dir: b"])
def test_what_is_no_recipe(text):
    with pytest.raises(RecipeError):
        recipes.parse(text)


@pytest.mark.parametrize(
    "name",
    [
        *("output_dir", "logging_dir", "run_name", "report_to", "project", "trackio_space_id", "push_to_hub", "hub_token"),
        *("hub_model_id", "deepspeed", "fsdp", "fsdp_config", "accelerator_config", "parallelism_config", "debug"),
        *("torch_compile", "torch_compile_backend", "optim", "optim_args", "use_liger_kernel", "resume_from_checkpoint"),
        *("dataloader_multiprocessing_context", "ddp_backend", "local_rank", "seed", "learning_rate", "label_names"),
        *("load_best_model_at_end", "remove_unused_columns", "length_column_name", "__class__"),
    ],
)
def test_arguments_that_no_recipe_may_set(name):
    with pytest.raises(RecipeError, match=rf"training\.arguments\.{name}"):
        recipes.build({"name": "a", "output_dir": "b", "training": {"arguments": {"disable_tqdm": True, name: True}}})


def test_other_arguments_are_those_of_transformers():
    """What is passed through is known to transformers; a name or value that it refuses is told as the recipe's."""
    names = {key.name for key in dataclasses.fields(TrainingArguments)}
    taken = {}
    for name in names:
        with contextlib.suppress(RecipeError):
            recipe = recipes.build({"name": "a", "output_dir": "b", "training": {"arguments": {name: None}}})
            taken |= recipe.training.arguments
    assert {"max_steps", "lr_scheduler_type", "warmup_steps", "eval_strategy", "full_determinism"} <= set(taken)
    assert not [name for name in taken if re.search("hub|dir$|dir_|compile|deepspeed|fsdp|report|trackio", name)]
    for arguments in ({"nothing": 1}, {"lr_scheduler_type": "up"}, {"warmup_steps": "long"}):
        with pytest.raises(RecipeError, match="training"):
            runs.training_arguments(recipes.build({"name": "a", "output_dir": "b", "training": {"arguments": arguments}}))


# ------------------------------------------------------------------------------------------------ configurations


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("encoder: rnn", "encoder='rnn' is not known; choose one of bilstm"),
        ("sparsegen_lambda: 1", "sparsegen_lambda=1.0"),
        ("entmax_alpha: 0.5", "entmax_alpha=0.5"),
        ("dropout: 1", "dropout=1.0 is outside"),
        ("hidden_size: 0", "hidden_size=0 is outside"),
    ],
)
def test_the_configuration_says_what_a_model_may_be(section, message):
    """Its rules are written there alone; many recipes are asked before the first is run, and the message names the one."""
    recipe = recipes.parse(MINIMAL + f"model: {{{section}}}")
    with pytest.raises(RecipeError, match=f"^model: {message}"):
        recipes.check_model(recipe)


def test_the_model_section_is_the_configuration():
    """The same fields and defaults, but for what the recipe leaves to the data and to the encoder."""
    section, config = recipes.Model(), AttentionClassifierConfig()
    for name in set(MODEL_KEYS["classifier"].split()) - {"selector", "encoder", "query", "hidden_size"}:
        value = getattr(section, name)
        assert (tuple(value) if isinstance(value, list) else value) == (
            tuple(config.kernel_sizes) if name == "kernel_sizes" else getattr(config, name)
        ), name


def test_configurations_of_other_kinds():
    gru = ["--data.name=copy", "--type=gru", "--recurrence=luong", "--alignment=general", "--embedding_size=20"]
    config = recipes.sequence_config(recipes.parse(MINIMAL, gru), vocab_size=30)
    assert isinstance(config, AttentionSeq2SeqConfig) and config.vocab_size == 30
    assert (config.recurrence, config.alignment, config.embedding_size, config.hidden_size) == ("luong", "general", 20, 256)
    words = recipes.parse(MINIMAL, ["--data.name=copy", "--type=gru", "--encoder=embedding", "--embedding_size=20"])
    assert recipes.sequence_config(words, vocab_size=30).hidden_size == 20
    marian = ["--data.name=copy", "--type=marian", "--hidden_size=64", "--num_attention_heads=4", "--num_hidden_layers=3"]
    config = recipes.sequence_config(recipes.parse(MINIMAL, marian), vocab_size=30)
    assert isinstance(config, MarianConfig) and config.init_std == 1 / 8
    assert (config.d_model, config.decoder_layers, config.encoder_attention_heads) == (64, 3, 4)
    with pytest.raises(RecipeError, match="hidden_size=64 must be a multiple"):
        recipes.check_model(recipes.parse(MINIMAL, [*marian[:3], "--num_attention_heads=3"]))
    selector = "{kind: budget, budget: 0.2, encoder: cnn, temperature: 0.05, transition: 0.1, pooling: max}"
    recipe = recipes.parse(MINIMAL, [f"--model.selector={selector}"])
    config = recipes.model_config(recipe, False)
    stated = (config.sampler, config.budget, config.selector_encoder, config.temperature, config.transition)
    assert stated == ("budget", 0.2, "cnn", 0.05, 0.1) and config.pooling == "max" and config.encoder == "bilstm"
    with pytest.raises(RecipeError, match="model.selector with pairs of texts"):
        recipes.model_config(recipe, True)


@pytest.mark.parametrize(
    ("model", "state", "vector"), [("{}", 256, 300), ("{encoder: transformer}", 128, 300), ("{hidden_size: 50}", 50, 300)]
)
def test_tying_needs_one_size(model, state, vector, tmp_path, monkeypatch):
    """Asked when a study is planned, and by a run before it reads a text or makes its folder."""
    monkeypatch.chdir(tmp_path)
    recipe = recipes.parse(MINIMAL + f"penalties: {{word_tying: 1}}\ndata: {{path: no_such_file.csv}}\nmodel: {model}")
    message = rf"penalties\.word_tying=1: .* {state} numbers .* {vector}"
    for check in (lambda: recipes.check_model(recipe), lambda: runs.run(recipe)):
        with pytest.raises(RecipeError, match=message):
            check()
    assert not list(tmp_path.iterdir())
    for words in (["--embedding_size=256"], ["--encoder=embedding"], ["--data.vectors=some.vec"]):
        recipes.check_model(recipes.parse(MINIMAL, ["--penalties.word_tying=1", *words]))


def test_an_adversary_is_selected_by_its_objective():
    recipe = recipes.parse(MINIMAL, ["--kind=adversarial", "--base=b"])
    arguments = runs.training_arguments(recipe)
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("eval_objective", False)
    arguments = runs.training_arguments(recipes.parse(recipes.dump(recipe), ["--metric_for_best_model=accuracy"]))
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("eval_accuracy", True)
    with pytest.raises(ValueError, match="metric_for_best_model='objective' is not known"):
        runs.training_arguments(recipes.parse(MINIMAL, ["--metric_for_best_model=objective"]))
    pairs = runs.training_arguments(recipes.parse(MINIMAL, ["--data.name=copy", "--type=gru"]))
    assert pairs.metric_for_best_model == "eval_loss" and not pairs.greater_is_better
    assert pairs.lr_scheduler_type == "linear" and pairs.max_grad_norm == 1


def test_the_family_of_wiegreffe_and_pinter_fits_together():
    """What the guided model and the adversary read is what the base keeps, under the same data section."""
    folder = ROOT / "recipes" / "wiegreffe_pinter_2019"
    family = {name: recipes.load(folder / f"{name}.yaml") for name in ("base", "mlp", "guided", "adversarial")}
    base = family["base"]
    for name in ("guided", "adversarial"):
        assert family[name].objective.kind == name and family[name].objective.base == base.output_dir
        assert set(runs.base.needed_outputs(family[name])) <= set(base.measure.outputs)
    assert set(runs.base.needed_outputs(family["guided"])) <= set(family["adversarial"].measure.outputs)
    assert family["adversarial"].model == base.model and family["guided"].model == family["mlp"].model
    assert all(recipe.data == base.data and recipe.seed == base.seed for recipe in family.values())


# ------------------------------------------------------------------------------------------------ overrides


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["--seed", "3"], [("seed", 3)]),
        (["--model.encoder", "cnn"], [("model.encoder", "cnn")]),
        (["--encoder=cnn"], [("model.encoder", "cnn")]),
        (["--bf16", "--seed", "3"], [("training.bf16", True), ("seed", 3)]),
        (["--learning_rate", "1e-4"], [("training.learning_rate", 1e-4)]),
        (["--producers", "[gradient, lime]"], [("measure.producers", ["gradient", "lime"])]),
        (["--producers", "gradient", "lime"], [("measure.producers", ["gradient", "lime"])]),
        (["--producers=gradient,lime"], [("measure.producers", ["gradient", "lime"])]),
        (["--kernel_sizes", "1", "3,5"], [("model.kernel_sizes", [1, 3, 5])]),
        (["--data.arguments.length", "[3, 4]"], [("data.arguments.length", [3, 4])]),
        (["--model.selector.kind", "budget"], [("model.selector.kind", "budget")]),
        (["--training.arguments.disable_tqdm", "--seed=3"], [("training.arguments.disable_tqdm", True), ("seed", 3)]),
        ([], []),
    ],
)
def test_override_forms(words, pairs):
    assert recipes.parse_overrides(words) == pairs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed", "3"], "'seed 3'"),
        (["--seed", "3", "4"], "'4'"),
        (["--arguments", "{}"], "did you mean --data.arguments or --training.arguments"),
        (["--model", "cnn"], "--model is a section; name a key of it, such as --model.type"),
        (["--seed", "["], "the value of --seed is not YAML"),
        (["--model.encodr", "cnn"], r"no option --model.encodr; did you mean --model.encoder\?"),
        (["--seed"], "--seed"),
        (["--encoder", "3"], "recipe.model.encoder=3"),
    ],
)
def test_wrong_overrides(words, message):
    with pytest.raises(RecipeError, match=message):
        recipes.parse(MINIMAL + "seed: 1", words)


def test_overrides_win_over_the_file_and_later_over_earlier():
    text = MINIMAL + "seed: 1\ndata: {arguments: {length: [1, 2], distractors: 3}}"
    recipe = recipes.parse(text, ["--seed", "2", "--data.arguments.distractors", "4", "--seed=5"])
    assert recipe.seed == 5 and recipe.data.arguments == {"length": [1, 2], "distractors": 4}
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.seed = 3


def test_every_key_is_an_option_with_help():
    assert all(len(key.help) > 5 and key.default and key.kind for key in KEYS)
    by_name = {key.name: key for key in KEYS}
    assert len(by_name) == len(KEYS) and {"name", "data.limits", "model.selector.budget", "selection.lasso"} <= set(by_name)
    assert by_name["training.learning_rate"].kind == "number or null" and by_name["model.embedding_std"].kind == "number"
    assert by_name["measure.producers"].kind == "list of texts or null" and by_name["output_dir"].default == "required"
    assert by_name["objective.divergence"].kind == "kl or jsd" and by_name["objective.divergence"].default == "default kl"


NOTED = MINIMAL + "seed: 4\nnote: As the paper has it.\ndata: {arguments: {length: [4, 8]}}\n"
VARIANT = "A variant of a recipe, with another {}. The recipe itself says: As the paper has it."


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        ([], "As the paper has it."),
        (["--name=x", "--output_dir=y", "--report.examples=3", "--seed=4", "--encoder=bilstm"], "As the paper has it."),
        (["--encoder", "cnn", "--seed=5"], VARIANT.format("model.encoder, seed")),
        (["--data.arguments.length", "[4, 9]"], VARIANT.format("data.arguments.length")),
        (["--encoder=cnn", "--note=Mine."], "Mine."),
    ],
)
def test_the_note_of_a_variant_is_not_told_as_its_own(overrides, note):
    recipe = recipes.parse(NOTED, overrides)
    assert recipe.note == note
    assert recipes.parse(recipes.dump(recipe)).note == note, "the run's recipe as it stands is no variant of itself"


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("text", ["1e-3", "0.001", ".001", "1.0e-3", "1E-3", "+1e-3"])
def test_floats(text):
    assert recipes.parse(MINIMAL + f"training: {{learning_rate: {text}}}").training.learning_rate == 1e-3


def test_values_of_yaml():
    recipe = recipes.parse(MINIMAL + "note: 2026-01-01\nmodel: {dropout: 0, entmax_alpha: 2}\ndata: {max_length: null}")
    assert (recipe.note, recipe.model.dropout, recipe.model.entmax_alpha) == ("2026-01-01", 0, 2)
    assert type(recipe.model.dropout) is float and recipe.data.max_length is None
    merged = recipes.read_value("one: &a {x: 1, y: 2}\ntwo: {<<: *a, y: 3}", "it")
    assert merged == {"one": {"x": 1, "y": 2}, "two": {"x": 1, "y": 3}}


LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 8)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
VALUES = [
    *("!!python/object/apply:os.system [ls]", "!!binary x", "!!set {a, b}", "!!int x", "!!float abc", "!!bool maybe"),
    *("!!timestamp x", "2026-13-45", "9" * 400, "0x" + "f" * 6000, "0x_", "1e400", ".nan", "&a [*a]", "&a {b: *a}"),
    *("{<<: [1]}", "*nowhere", "[" * 3000, "{a: " * 300, "{[a]: 1}", "{1: 2}", "{null: 1}", "'a", '"\\ud800"', '"\\0"'),
    *("\x00", "\t", "=", "~", "[]", "{}", "-1", "x" * 5000, "'{x}'", "'../..'", "{a: 1, a: 2}", f"\n  {LAUGHS!r}"),
]


def refusal(path, *, study):
    """What is said of a file that is refused, "" of one that is read."""
    try:
        plan.read_study(path) if study else recipes.load(path)
    except AttnfaithError as error:
        return str(error)
    return ""


def mutated(text, chance):
    """A text with a value replaced, its end cut off, something put in, or bytes changed."""
    kind, place = chance.choice(["value", "end", "bytes", "within"]), chance.randrange(len(text))
    if kind == "value":
        lines = text.split("\n")
        number = chance.randrange(len(lines))
        lines[number] = f"{lines[number].partition(':')[0]}: {chance.choice(VALUES)}"
        return "\n".join(lines).encode()
    if kind == "end":
        return text[:place].encode()
    if kind == "within":
        return (text[:place] + chance.choice(VALUES) + text[place + chance.randrange(20) :]).encode()
    content = bytearray(text.encode())
    content[place : place + 1] = bytes([chance.randrange(256)])
    return bytes(content)


def test_whatever_a_file_says_it_is_read_or_refused_in_one_line(tmp_path):
    chance, ends = random.Random(15), {"read": 0, "refused": 0}
    path = tmp_path / "mine.yaml"
    for number in range(150):
        text = FILES[number % len(FILES)].read_text(encoding="utf-8")
        path.write_bytes(mutated(text, chance))
        said = refusal(path, study="\nblocks:" in text)
        assert len(said) <= 700 + len(str(path)) and "\n" not in said and (not said or "mine.yaml" in said), said
        ends["refused" if said else "read"] += 1
    assert min(ends.values()) > 15, ends


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"note: !!python/object/apply:os.system [ls]", "os.system' is no plain value"),
        (b"seed: 1\nseed: 2", "the key 'seed' is given twice"),
        (b"data: &a [*a]", "is nested too deep"),
        (LAUGHS.encode(), "is nested too deep"),
        (b"note: \xff", "is not UTF-8 text"),
        (b"note: " + b"a" * (1 << 18), "has more than 262,144 bytes"),
    ],
)
def test_what_is_said_of_hostile_files(tmp_path, content, says):
    (tmp_path / "mine.yaml").write_bytes(MINIMAL.encode() + content)
    with pytest.raises(RecipeError, match=says):
        recipes.load(tmp_path / "mine.yaml")
    with pytest.raises(RecipeError, match="Is a directory"):
        recipes.load(tmp_path)
    with pytest.raises(RecipeError, match="File name too long"):
        recipes.load("x" * 5000)


def test_shipped_recipes_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("recipes/meister_2021/sst.yaml", Path("meister_2021") / "sst.yaml"):
        assert recipes.find(name) == ROOT / "recipes" / "meister_2021" / "sst.yaml"
    (tmp_path / "meister_2021").mkdir()
    (tmp_path / "meister_2021" / "sst.yaml").write_text(MINIMAL)
    assert recipes.load("meister_2021/sst.yaml").name == "a", "a file of the user's own comes first"
    for name, near in (("meister_2021/sts.yaml", "meister_2021/sst.yaml"), ("quikstart.yaml", "quickstart.yaml")):
        with pytest.raises(RecipeError, match=f"no recipe at {name}.*did you mean {near}"):
            recipes.load(name)
    with pytest.raises(RecipeError, match="no study at /nowhere.yaml.*they lie in .*recipes$"):
        recipes.find("/nowhere.yaml", "study")


def test_without_a_file(tmp_path, monkeypatch):
    """The quickstart; where a data set is named, the defaults on it, of which the quickstart's settings are no part."""
    monkeypatch.chdir(tmp_path)
    assert recipes.load() == recipes.load(ROOT / "recipes" / "quickstart.yaml")
    recipe = recipes.load(None, ["--data.name", "sst", "--seed", "4"])
    assert recipe == recipes.build({"name": "sst", "output_dir": "runs/sst", "seed": 4, "data": {"name": "sst"}})
    names = {"some/where/reviews.csv.gz": "reviews", "my folder/": "my-folder", "Ärger & Co.csv": "Ärger-Co"}
    for place, name in names.items():
        recipe = recipes.load(None, ["--data.path", place])
        assert (recipe.name, recipe.output_dir, recipe.data.path) == (name, f"runs/{name}", place)


# ------------------------------------------------------------------------------------------------ round trips

words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
numbers = st.floats(allow_nan=False)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | words | st.sampled_from(["1e-3", "1.", "no", "null", "0x1", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    name=words,
    note=words,
    rate=st.floats(0, allow_nan=False, allow_infinity=False),
    arguments=st.dictionaries(words, anything, max_size=3),
    limit=st.none() | st.integers(1, 2**31 - 1),
)
def test_dump_and_parse(name, note, rate, arguments, limit):
    recipe = recipes.Recipe(
        name=name,
        output_dir="1e5",
        note=note,
        data=recipes.Data(arguments=arguments),
        training=recipes.Training(learning_rate=rate),
        measure=recipes.Measure(limit=limit),
    )
    again = recipes.parse(recipes.dump(recipe))
    assert again == recipe
    assert repr(again.data) == repr(recipe.data)  # 1, 1.0 and True are equal, and are not the same


@settings(max_examples=60)
@given(st.lists(st.text(max_size=8), max_size=4), st.text(max_size=30))
def test_anything_is_read_or_refused(words, text):
    for read in (lambda: recipes.parse(MINIMAL, words), lambda: recipes.parse(text)):
        with contextlib.suppress(RecipeError):
            read()


# ------------------------------------------------------------------------------------------------ plugins


def test_plugins_are_imported_from_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_data_sets.py").write_text(
        "from attnfaith.data.registry import DatasetEntry, register\n"
        "register(DatasetEntry('mine_of_a_plugin', 'me', ('no', 'yes'), folder='mine'))\n"
    )
    (tmp_path / "mine.yaml").write_text(MINIMAL + "plugins: [my_data_sets]\ndata: {name: mine_of_a_plugin}\n")
    (tmp_path / "broken_plugin.py").write_text("1 / 0\n")
    for options, key in (({}, "'nowhere'"), ({"of_stranger": True}, "recipe from the Hub")):
        with pytest.raises(RecipeError, match=f"plugins.*{key}"):
            recipes.load("mine.yaml", ["--plugins", "nowhere"], **options)
    with pytest.raises(RecipeError, match="'broken_plugin' cannot be imported from .*ZeroDivisionError"):
        recipes.load("mine.yaml", ["--plugins=broken_plugin"])
    try:
        recipes.check_data(recipes.load("mine.yaml"))
    finally:
        DATASETS.pop("mine_of_a_plugin", None)
        sys.modules.pop("my_data_sets", None)
