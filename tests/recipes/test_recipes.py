"""The keys of a recipe: values and combinations that are refused, defaults, overrides, files and plugins."""

import contextlib
import dataclasses
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MarianConfig, TrainingArguments

from attnfaith import AttentionSeq2SeqConfig, recipes, runs
from attnfaith.data.registry import DATASETS
from attnfaith.models import AttentionClassifierConfig
from attnfaith.recipes import RecipeError
from attnfaith.recipes.options import KEYS
from attnfaith.recipes.recipe import MODEL_KEYS
from attnfaith.support.errors import DatasetError


ROOT = Path(__file__).parents[2]
MINIMAL = "name: a\noutput_dir: b\n"


def with_arguments(**arguments):
    return recipes.build({"name": "a", "output_dir": "b", "training": {"arguments": arguments}})


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("seed", "true"),
            ("seed", "4294967296"),
            ("model", "cnn"),
            ("model", "{encoderr: cnn}"),
            ("model.dropout", ".nan"),
        ),
        *(("training.learning_rate", "fast"), ("training.select_on", "test"), ("objective.kind", "guided")),
        *(("measure.producers", "gradient"), ("data.limits", "{test: 0}"), ("data.arguments", "{1: 2}")),
        *(("model.selector", "{}"), ("model.selector", "{kind: bernoulli, buget: 0.1}")),
    ],
)
def test_a_wrong_value_is_named_by_its_key(key, value):
    section, _, name = key.rpartition(".")
    with pytest.raises(RecipeError, match=re.escape(key)):
        recipes.parse(MINIMAL + (f"{section}: {{{name}: {value}}}" if section else f"{name}: {value}"))


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
def test_a_key_that_means_nothing_is_refused_unless_it_has_its_default(tree):
    words = [f"--{word}" for word in tree.split()]
    plain = recipes.parse(MINIMAL, words)
    assert recipes.parse(recipes.dump(plain)) == plain, "a complete recipe holds every key"
    for word in re.findall(r"[\w.]+=(?:\[.*?\]|\{.*?\}|\S+)", TREES[tree]):
        key = word.partition("=")[0]
        with pytest.raises(RecipeError, match=re.escape(key.rpartition(".")[2])):
            recipes.parse(MINIMAL, [*words, f"--{word}"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.name=copy"], "set model.type"),
        (["--data.name=sts"], "did you mean 'sst'"),
        (["--data.name=sst", "--type=gru"], "no set of sentence pairs"),
        (["--data.name=coppy", "--type=gru"], "did you mean 'copy'"),
    ],
)
def test_a_data_set_is_for_a_kind_of_model(words, message):
    with pytest.raises(DatasetError, match=message):
        recipes.check_data(recipes.parse(MINIMAL, words))


def test_values_where_a_recipe_is_silent():
    plain = recipes.parse(MINIMAL)
    training = plain.training  # the papers' (Jain & Wallace 2019)
    rates = (training.num_train_epochs, training.learning_rate, training.weight_decay, training.max_grad_norm)
    assert rates == (8, 1e-3, 1e-5, 0.0) and training.amsgrad and training.loss_reduction == "sum"
    assert plain.measure.producers == ["gradient", "gradient_norm", "leave_one_out"] and plain.measure.batch_tokens == 8192
    pairs = recipes.parse(MINIMAL, ["--data.name=copy", "--type=gru"])
    assert (pairs.model.encoder, pairs.model.recurrence, pairs.training.loss_reduction) == ("bigru", "bahdanau", "mean")
    assert pairs.measure.producers == ["attention", "norm", "gradient_x_input"] and pairs.measure.batch_tokens == 2048
    tuned = recipes.parse(MINIMAL, ["--pretrained=x", "--impermissible_mass=1", "--impermissible_heads=max"])
    assert (tuned.training.num_train_epochs, tuned.training.arguments["warmup_steps"]) == (3, 0.1)
    assert recipes.parse(MINIMAL, ["--kind=guided", "--base=b"]).measure.producers == []
    kuma = recipes.parse(MINIMAL, ["--model.selector={kind: hardkuma, budget: 0.3}", "--two_sided"])
    assert (kuma.selection.share, kuma.selection.multiplier, kuma.selection.lasso) == (0.3, 1e-4, None)
    assert recipes.parse(MINIMAL, ["--model.selector={kind: budget, budget: 0.3}"]).model.selector.temperature == 0.1


@pytest.mark.parametrize(
    "name",
    [
        *("output_dir", "logging_dir", "report_to", "push_to_hub", "hub_token", "deepspeed", "fsdp_config", "debug"),
        *("accelerator_config", "torch_compile_backend", "optim_args", "resume_from_checkpoint", "ddp_backend", "seed"),
        *("dataloader_multiprocessing_context", "learning_rate", "load_best_model_at_end", "__class__"),
    ],
)
def test_arguments_that_no_recipe_may_set(name):
    with pytest.raises(RecipeError, match=rf"training\.arguments\.{name}"):
        with_arguments(disable_tqdm=True, **{name: True})


def test_other_arguments_are_those_of_transformers():
    """A name or value that transformers refuses is named as the recipe's."""
    passed = set()
    for name in (key.name for key in dataclasses.fields(TrainingArguments)):
        with contextlib.suppress(RecipeError):
            passed |= {*with_arguments(**{name: None}).training.arguments}
    assert {"max_steps", "lr_scheduler_type", "warmup_steps", "eval_strategy", "full_determinism"} <= passed
    assert not [name for name in passed if re.search("hub|dir$|dir_|compile|deepspeed|fsdp|report|trackio", name)]
    for arguments in ({"nothing": 1}, {"lr_scheduler_type": "up"}, {"warmup_steps": "long"}):
        with pytest.raises(RecipeError, match="training"):
            runs.training_arguments(with_arguments(**arguments))


# ------------------------------------------------------------------------------------------------ configurations


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("encoder: rnn", "encoder='rnn' is not known; choose one of bilstm"),
        ("sparsegen_lambda: 1", "sparsegen_lambda=1.0"),
        ("dropout: 1", "dropout=1.0 is outside"),
    ],
)
def test_the_configuration_checks_the_model(section, message):
    with pytest.raises(RecipeError, match=f"^model: {message}"):
        recipes.check_model(recipes.parse(MINIMAL + f"model: {{{section}}}"))


def test_the_model_section_has_the_defaults_of_the_configuration():
    """All but those that the data and the encoder decide."""
    section, config = recipes.Model(), AttentionClassifierConfig()
    names = set(MODEL_KEYS["classifier"].split()) - {"selector", "encoder", "query", "hidden_size", "kernel_sizes"}
    assert {name: getattr(section, name) for name in names} == {name: getattr(config, name) for name in names}
    assert [*section.kernel_sizes] == [*config.kernel_sizes]


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
    recipe = recipes.parse(MINIMAL, ["--model.selector={kind: budget, budget: 0.2, encoder: cnn, pooling: max}"])
    config = recipes.model_config(recipe, False)
    assert (config.sampler, config.budget, config.selector_encoder, config.pooling) == ("budget", 0.2, "cnn", "max")
    with pytest.raises(RecipeError, match="model.selector with pairs of texts"):
        recipes.model_config(recipe, True)


@pytest.mark.parametrize(("model", "state"), [("{}", 256), ("{encoder: transformer}", 128), ("{hidden_size: 50}", 50)])
def test_tied_words_need_states_of_their_size(model, state, tmp_path, monkeypatch):
    """Checked when a study is planned, and by a run before it reads a text or makes its folder."""
    monkeypatch.chdir(tmp_path)
    recipe = recipes.parse(MINIMAL + f"penalties: {{word_tying: 1}}\ndata: {{path: no_such_file.csv}}\nmodel: {model}")
    for check in (recipes.check_model, runs.run):
        with pytest.raises(RecipeError, match=rf"penalties\.word_tying=1: .* {state} numbers .* 300"):
            check(recipe)
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


# ------------------------------------------------------------------------------------------------ overrides


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["--seed", "3"], [("seed", 3)]),
        (["--encoder=cnn"], [("model.encoder", "cnn")]),
        (["--bf16", "--seed", "3"], [("training.bf16", True), ("seed", 3)]),
        (["--producers", "[gradient, lime]"], [("measure.producers", ["gradient", "lime"])]),
        (["--producers", "gradient", "lime"], [("measure.producers", ["gradient", "lime"])]),
        (["--producers=gradient,lime"], [("measure.producers", ["gradient", "lime"])]),
        (["--kernel_sizes", "1", "3,5"], [("model.kernel_sizes", [1, 3, 5])]),
        (["--data.arguments.length", "[3, 4]"], [("data.arguments.length", [3, 4])]),
        (["--training.arguments.disable_tqdm", "--seed=3"], [("training.arguments.disable_tqdm", True), ("seed", 3)]),
    ],
)
def test_forms_of_overrides(words, pairs):
    assert recipes.parse_overrides(words) == pairs


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed", "3"], "'seed 3'"),
        (["--arguments", "{}"], "did you mean --data.arguments or --training.arguments"),
        (["--model", "cnn"], "--model is a section; name a key of it, such as --model.type"),
        (["--seed", "["], "the value of --seed is not YAML"),
        (["--model.encodr", "cnn"], r"no option --model.encodr; did you mean --model.encoder\?"),
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


def test_every_key_is_an_option_with_help():
    assert all(len(key.help) > 5 and key.default and key.kind for key in KEYS)
    keys = {key.name: key for key in KEYS}
    assert len(keys) == len(KEYS) and {"name", "data.limits", "model.selector.budget", "selection.lasso"} <= set(keys)
    assert keys["training.learning_rate"].kind == "number or null" and keys["output_dir"].default == "required"
    assert keys["measure.producers"].kind == "list of texts or null" and keys["objective.divergence"].kind == "kl or jsd"


VARIANT = "A variant of a recipe, with another {}. The recipe itself says: As the paper has it."


@pytest.mark.parametrize(
    ("overrides", "note"),
    [
        (["--name=x", "--output_dir=y", "--report.examples=3", "--seed=4", "--encoder=bilstm"], "As the paper has it."),
        (["--encoder", "cnn", "--seed=5"], VARIANT.format("model.encoder, seed")),
        (["--data.arguments.length", "[4, 9]"], VARIANT.format("data.arguments.length")),
        (["--encoder=cnn", "--note=Mine."], "Mine."),
    ],
)
def test_the_note_of_a_variant_calls_it_a_variant(overrides, note):
    text = MINIMAL + "seed: 4\nnote: As the paper has it.\ndata: {arguments: {length: [4, 8]}}\n"
    recipe = recipes.parse(text, overrides)
    assert recipe.note == note and recipes.parse(recipes.dump(recipe)).note == note


# ------------------------------------------------------------------------------------------------ files


def test_values_of_yaml():
    for text in ("1e-3", "0.001", ".001", "1.0e-3", "1E-3", "+1e-3"):
        assert recipes.parse(MINIMAL + f"training: {{learning_rate: {text}}}").training.learning_rate == 1e-3
    recipe = recipes.parse(MINIMAL + "note: 2026-01-01\nmodel: {dropout: 0, entmax_alpha: 2}")
    assert recipe.note == "2026-01-01" and repr((recipe.model.dropout, recipe.model.entmax_alpha)) == "(0.0, 2.0)"
    merged = recipes.read_value("one: &a {x: 1, y: 2}\ntwo: {<<: *a, y: 3}", "it")
    assert merged == {"one": {"x": 1, "y": 2}, "two": {"x": 1, "y": 3}}


LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 8)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"note: !!python/object/apply:os.system [ls]", "os.system' is no plain value"),
        (b"seed: 1\nseed: 2", "the key 'seed' is given twice"),
        (b"data: &a [*a]", "is nested too deep"),
        (LAUGHS.encode(), "is nested too deep"),
        (b"note: \xff", "is not UTF-8 text"),
        (b"note: " + b"a" * (1 << 18), "has more than 262,144 bytes"),
        (b"- a", "is not YAML"),
    ],
)
def test_hostile_files(tmp_path, content, message):
    (tmp_path / "mine.yaml").write_bytes(MINIMAL.encode() + content)
    with pytest.raises(RecipeError, match=message):
        recipes.load(tmp_path / "mine.yaml")


def test_shipped_recipes_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("recipes/meister_2021/sst.yaml", Path("meister_2021") / "sst.yaml"):
        assert recipes.find(name) == ROOT / "recipes" / "meister_2021" / "sst.yaml"
    (tmp_path / "meister_2021").mkdir()
    (tmp_path / "meister_2021" / "sst.yaml").write_text(MINIMAL)
    assert recipes.load("meister_2021/sst.yaml").name == "a", "a file of the user's own comes first"
    for name, message in (
        ("meister_2021/sts.yaml", "no recipe at .*did you mean meister_2021/sst.yaml"),
        ("quikstart.yaml", "did you mean quickstart.yaml"),
        ("nowhere.yaml", "they lie in .*recipes$"),
        (tmp_path, "Is a directory"),
        ("x" * 5000, "File name too long"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipes.load(name)


def test_without_a_file(tmp_path, monkeypatch):
    """The quickstart; where a data set is named, the defaults on it, without the quickstart's settings."""
    monkeypatch.chdir(tmp_path)
    assert recipes.load() == recipes.load(ROOT / "recipes" / "quickstart.yaml")
    recipe = recipes.load(None, ["--data.name", "sst", "--seed", "4"])
    assert recipe == recipes.build({"name": "sst", "output_dir": "runs/sst", "seed": 4, "data": {"name": "sst"}})
    names = {"some/where/reviews.csv.gz": "reviews", "my folder/": "my-folder", "Ärger & Co.csv": "Ärger-Co"}
    for place, name in names.items():
        recipe = recipes.load(None, ["--data.path", place])
        assert (recipe.name, recipe.output_dir, recipe.data.path) == (name, f"runs/{name}", place)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words
leaves |= st.sampled_from(["1e-3", "1.", "no", "null", "0x1", "~"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))


@pytest.mark.slow
@settings(max_examples=100)
@given(name=words, note=words, rate=st.floats(0, 1e300), arguments=st.dictionaries(words, values, max_size=3))
def test_a_dumped_recipe_is_parsed_to_the_same(name, note, rate, arguments):
    sections = {"data": recipes.Data(arguments=arguments), "training": recipes.Training(learning_rate=rate)}
    recipe = recipes.Recipe(name=name, output_dir="1e5", note=note, **sections)
    again = recipes.parse(recipes.dump(recipe))
    assert again == recipe and repr(again.data) == repr(recipe.data)  # 1, 1.0 and True are equal, and are not the same


@settings(max_examples=60)
@given(st.lists(st.text(max_size=8), max_size=4), st.text(max_size=30))
def test_any_words_and_any_text_are_read_or_refused(words, text):
    for read in (lambda: recipes.parse(MINIMAL, words), lambda: recipes.parse(text)):
        with contextlib.suppress(RecipeError):
            read()


def test_plugins_are_imported_from_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_data_sets.py").write_text(
        "from attnfaith.data.registry import DatasetEntry, register\n"
        "register(DatasetEntry('mine_of_a_plugin', 'me', ('no', 'yes'), folder='mine'))\n"
    )
    (tmp_path / "mine.yaml").write_text(MINIMAL + "plugins: [my_data_sets]\ndata: {name: mine_of_a_plugin}\n")
    (tmp_path / "broken_plugin.py").write_text("1 / 0\n")
    for words, options, message in (
        (["--plugins=nowhere"], {}, "plugins.*'nowhere'"),
        ([], {"of_stranger": True}, "plugins.*recipe from the Hub"),
        (["--plugins=broken_plugin"], {}, "'broken_plugin' cannot be imported from .*ZeroDivisionError"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipes.load("mine.yaml", words, **options)
    try:
        recipes.check_data(recipes.load("mine.yaml"))
    finally:
        DATASETS.pop("mine_of_a_plugin", None)
        sys.modules.pop("my_data_sets", None)
