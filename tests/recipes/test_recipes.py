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
from attnfaith.support.errors import AttnfaithError


ROOT = Path(__file__).parents[2]
MINIMAL = {"name": "a", "output_dir": "b"}
TEXT = "name: a\noutput_dir: b\n"
PAIRS = "--data.name=copy --type=gru"
MARIAN = "--data.name=copy --type=marian --hidden_size=64 --num_hidden_layers=3"
SELECTOR = "--model.selector.kind=budget --model.selector.budget=0.2"


def read(words="", **keys):
    """The smallest recipe with overrides, or with other keys of a file."""
    return recipes.build(MINIMAL | keys, words.split())


TREES = {  # a recipe -> keys that mean nothing in it, or contradict it
    "": "data.text=x data.encoding=x data.revision=x data.max_sentence_length=9 data.vocabulary=bpe "
    "data.links_from=1 model.recurrence=luong model.revision=x model.separate_impermissible=true "
    "objective.base=b objective.weight=0.1 objective.frozen=true selection.share=0.5 "
    "penalties.impermissible_heads=max penalties.word_tying_distance=norm",
    "penalties.impermissible_mass=1": "penalties.impermissible_heads=max",
    "data.path=a": "data.name=sst data.hub_id=x data.revision=v data.preprocessing=wrds data.arguments={length: 3} "
    "data.impermissible_words=[] data.impermissible_words=[a b]",
    "data.hub_id=a/b": "data.encoding=cp1252 data.quotes=false",
    "objective.kind=untrained": "objective.base=b training.random_erasure=0.5 penalties.diversity=0.5",
    "objective.kind=guided objective.base=b": "objective.frozen=true objective.divergence=jsd measure.producers=[gradient] "
    "penalties.diversity=1",
    "objective.kind=adversarial objective.base=b": "objective.weight=0.0 training.random_erasure=1",
    "model.pretrained=x": "model.encoder=cnn model.readout=tanh data.vectors=x data.min_df=2 "
    "objective.kind=guided training.amsgrad=true training.random_erasure=0.5 model.type=gru "
    "penalties.diversity=1 penalties.word_tying=1 penalties.masked_language_model=1",
    "model.hierarchy=sentence": "penalties.diversity=1",
    "model.selector.kind=bernoulli": "penalties.diversity=0.5 training.random_erasure=0.5 "
    "selection.share=0.1 model.projection=sparsemax model.alignment=dot "
    "objective.kind=adversarial",
    "model.selector.kind=hardkuma": "selection.sparsity=0.1",
    "model.selector.kind=budget model.selector.budget=0.1": "selection.decay=0.1",
    "data.name=copy model.type=gru": "data.hub_id=x "
    "model.num_hidden_layers=3 model.hierarchy=sentence objective.kind=untrained penalties.diversity=1 selection.share=0.5 "
    "penalties.impermissible_heads=max training.amsgrad=true training.balance_classes=false "
    "training.metric_for_best_model=roc_auc",
    "data.name=copy model.type=gru model.projection=none": "penalties.impermissible_mass=1",
    "data.name=copy model.type=marian": "model.projection=sparsemax penalties.impermissible_mass=1 model.encoder=cnn",
    "data.path=x model.type=gru": "data.text=y data.quotes=false",
}


@pytest.mark.parametrize("tree", TREES)
def test_a_key_that_means_nothing_is_refused_unless_it_has_its_default(tree):
    words = "".join(f" --{word}" for word in tree.split())
    plain = read(words)
    assert recipes.build(dataclasses.asdict(plain)) == plain, "a complete recipe holds every key"
    for word in re.findall(r"[\w.]+=(?:\[.*?\]|\{.*?\}|\S+)", TREES[tree]):
        name = word.partition("=")[0].rpartition(".")[2]
        with pytest.raises(RecipeError, match=re.escape(name)):
            recipes.build(MINIMAL, [*words.split(), f"--{word}"])


REFUSED = {
    "--seed=true": "recipe.seed=True",
    "--model.dropout=.nan": "model.dropout",
    "--training.learning_rate=fast": "training.learning_rate='fast'",
    "--data.arguments=3": "data.arguments=3",
    "--model.selector={}": "model.selector.kind is missing",
    "--model.selector.kind=bernoulli --model.selector.buget=1": "selector.buget; did you mean 'budget'",
    "--objective.kind=guided": "objective.kind='guided' needs objective.base",
    "--arguments={}": "did you mean --data.arguments or --training.arguments",
    "--seed=[": "the value of --seed is not YAML",
    "--model.encodr=cnn": r"did you mean --model.encoder\?",
    "--data.name=copy": "set model.type",
    "--data.name=sst --type=gru": "no set of sentence pairs",
    "--encoder=bilstn": "^model: Field 'encoder' expected one of",
    f"{PAIRS} --alignment=dott": "'alignment' expected one of",
    f"{MARIAN} --num_attention_heads=3": "hidden_size=64 must be a multiple",
    "--model.selector.kind=budget": "^model: sampler='budget' needs a budget",
    f"--data.path=a --data.text_pair=b {SELECTOR}": "model.selector with pairs of texts",
    "--metric_for_best_model=objective": "='objective': choose one of roc_auc",
    "--training.arguments.lr_scheduler_type=up": "training.arguments: transformers refuses these",
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals_name_the_key_and_the_nearest_name(words):
    with pytest.raises(AttnfaithError, match=REFUSED[words]):
        recipe = read(words)
        runs.check_model(recipe)
        runs.training_arguments(recipe)


def test_values_where_a_recipe_is_silent():
    plain, own, pairs = read(), read("--data.path=a.csv"), read(PAIRS)
    training = plain.training  # the papers' (Jain & Wallace 2019)
    rates = (training.num_train_epochs, training.learning_rate, training.weight_decay, training.max_grad_norm)
    assert rates == (8, 1e-3, 1e-5, 0.0) and training.amsgrad and training.loss_reduction == "sum"
    assert plain.measure.producers == ["gradient", "gradient_norm", "leave_one_out"] and plain.measure.batch_tokens == 8192
    assert own.measure.producers[3:] == ["integrated_gradients", "comprehensiveness"]
    assert (pairs.model.encoder, pairs.model.recurrence, pairs.training.loss_reduction) == ("bigru", "bahdanau", "mean")
    assert pairs.measure.producers == ["attention", "norm", "gradient_x_input"] and pairs.measure.batch_tokens == 2048
    tuned = read("--pretrained=x --impermissible_mass=1 --impermissible_heads=max").training
    assert (tuned.num_train_epochs, tuned.arguments["warmup_steps"]) == (3, 0.1)
    assert read("--kind=guided --base=b").measure.producers == []
    kuma = read("--model.selector.kind=hardkuma --model.selector.budget=0.3").selection
    assert (kuma.share, kuma.multiplier, kuma.multiplier_range) == (0.3, 1e-4, None)


def test_arguments_are_those_of_transformers_that_name_no_place_and_load_no_code():
    passed = set()
    for name in (*(key.name for key in dataclasses.fields(TrainingArguments)), "__class__"):
        with contextlib.suppress(RecipeError):
            passed |= {*read(f"--training.arguments.{name}=null").training.arguments}
    assert {"max_steps", "lr_scheduler_type", "warmup_steps", "eval_strategy", "full_determinism"} <= passed
    foreign = (
        "hub|dir|compile|deepspeed|fsdp|report|trackio|debug|^seed$|resume|ddp|accelerator|optim|^learning_rate$|best|__"
    )
    assert not [name for name in passed if re.search(foreign, name)]


# ------------------------------------------------------------------------------------------------ configurations


def test_the_model_section_has_the_defaults_of_the_configuration():
    """All but those that the data and the encoder decide."""
    recipe, config = read(), AttentionClassifierConfig()
    names = {*recipe.keys("model")} - {"selector", "pretrained", "encoder", "hidden_size", "kernel_sizes"}
    assert {name: getattr(recipe.model, name) for name in names} == {name: getattr(config, name) for name in names}


def test_configurations_of_other_kinds():
    gru = read(f"{PAIRS} --recurrence=luong --alignment=dot --embedding_size=20")
    config = runs.model_config(gru, vocab_size=30)
    assert isinstance(config, AttentionSeq2SeqConfig) and config.vocab_size == 30
    assert (config.recurrence, config.alignment, config.embedding_size, config.hidden_size) == ("luong", "dot", 20, 256)
    config = runs.model_config(read(f"{MARIAN} --num_attention_heads=4"), vocab_size=30)
    assert isinstance(config, MarianConfig) and config.init_std == 1 / 8
    assert (config.d_model, config.decoder_layers, config.encoder_attention_heads) == (64, 3, 4)
    config = runs.model_config(read(SELECTOR))
    assert (config.sampler, config.budget, config.selector_encoder, config.pooling) == ("budget", 0.2, "bilstm", "average")


def test_the_metric_that_a_checkpoint_is_chosen_by():
    adversary = "--kind=adversarial --base=b"
    for words, metric in (
        (adversary, "eval_objective"),
        (f"{adversary} --metric_for_best_model=accuracy", "eval_accuracy"),
        (f"{PAIRS} --impermissible_mass=0.5", "eval_loss"),
    ):
        arguments = runs.training_arguments(read(words))
        assert (arguments.metric_for_best_model, arguments.greater_is_better) == (metric, metric == "eval_accuracy")
    assert arguments.impermissible_mass == 0.5, "a translator is trained with its penalty"


# ------------------------------------------------------------------------------------------------ overrides


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--seed 3", 3),
        ("--producers gradient lime", ["gradient", "lime"]),
        ("--producers=gradient,lime", ["gradient", "lime"]),
        ("--kernel_sizes 1 3,5", [1, 3, 5]),
        ("--data.arguments.length [3,4]", [3, 4]),
        ("--training.arguments.disable_tqdm", True),
    ],
)
def test_forms_of_overrides(words, value):
    (key, read_value), last = recipes.parse_overrides([*words.split(), "--encoder=cnn"])
    assert key.endswith(words[2:].partition(" ")[0].partition("=")[0]) and read_value == value
    assert last == ("model.encoder", "cnn")


def test_overrides_win_over_the_recipe_and_its_note_says_so():
    tree = {"seed": 1, "note": "as published", "data": {"arguments": {"length": [1, 2], "distractors": 3}}}
    recipe = read("--seed 2 --data.arguments.distractors 4 --seed=5 --learning_rate=2e-3", **tree)
    assert recipe.seed == 5 and recipe.data.arguments == {"length": [1, 2], "distractors": 4}
    changed = "seed, data.arguments.distractors, training.learning_rate"
    assert recipe.note == f"A variant of a recipe, with another {changed}. The recipe itself says: as published"
    assert recipe.training.learning_rate == 0.002 and read("--name=x --report.examples=3", **tree).note == "as published"
    whole = dataclasses.asdict(recipe)  # data.removal is null there
    assert recipes.build(whole, ["--data.removal.share=0.3"]).data.removal == recipes.Removal(0.3)


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"note: !!python/object/apply:os.system [ls]", "is not YAML: could not determine a constructor"),
        (b"data: &a [*a]", "is none of JSON"),
        (b"note: !!binary aGk=", "is none of JSON"),
        (b"note: \xff", "can be read from .*utf-8"),
        (b"model: {encoderr: cnn}", "unknown key recipe.model.encoderr; did you mean 'encoder'"),
    ],
)
def test_files_that_are_no_recipe(tmp_path, content, message):
    (tmp_path / "mine.yaml").write_bytes(TEXT.encode() + content)
    with pytest.raises(RecipeError, match=message):
        recipes.load(tmp_path / "mine.yaml")


def test_shipped_recipes_are_found_from_anywhere_after_files_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("recipes/meister_2021/sst.yaml", Path("meister_2021") / "sst.yaml"):
        assert recipes.find(name) == ROOT / "recipes" / "meister_2021" / "sst.yaml"
    for name, message in (
        ("meister_2021/sts.yaml", "no recipe at .*did you mean 'meister_2021/sst.yaml'"),
        ("zzz.yaml", "there are alignment/"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipes.load(name)
    (tmp_path / "meister_2021").mkdir()
    (tmp_path / "meister_2021" / "sst.yaml").write_text(TEXT)
    assert recipes.load("meister_2021/sst.yaml").name == "a"


def test_without_a_file():
    """The quickstart; where a data set is named, the defaults on it, without the quickstart's settings."""
    assert recipes.load() == recipes.load(ROOT / "recipes" / "quickstart.yaml")
    recipe = recipes.load(None, ["--data.name", "sst", "--seed", "4"])
    assert recipe == read(name="sst", output_dir="runs/sst", seed=4, data={"name": "sst"})
    for place, name in {"some/where/reviews.csv.gz": "reviews", "Ärger & Co.csv": "Ärger-Co"}.items():
        recipe = recipes.load(None, ["--data.path", place])
        assert (recipe.name, recipe.output_dir, recipe.data.path) == (name, f"runs/{name}", place)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words
leaves |= st.sampled_from(["1e-3", "1.", "no", "null", "0x1", "~"])
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))


@settings(max_examples=50, deadline=None)
@given(name=words, note=words, rate=st.floats(0, 1e300), arguments=st.dictionaries(words, values, max_size=3))
def test_a_dumped_recipe_is_read_as_the_same(name, note, rate, arguments):
    recipe = read(name=name, output_dir="1e5", note=note, data={"arguments": arguments}, training={"learning_rate": rate})
    again = recipes.build(recipes.read_value(recipes.dump(recipe), "the dump"))
    assert again == recipe and repr(again.data) == repr(recipe.data)  # 1, 1.0 and True are equal, and are not the same
    assert recipes.read_value("[1e-3, 2026-01-01]", "a user's") == [0.001, "2026-01-01"]


def test_plugins_are_imported_from_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = "DatasetEntry('mine_of_a_plugin', 'me', ('no', 'yes'), folder='mine')"
    source = f"from attnfaith.data.registry import DatasetEntry, register\nregister({entry})\n"
    (tmp_path / "my_data_sets.py").write_text(source)
    (tmp_path / "mine.yaml").write_text(TEXT + "plugins: [my_data_sets]\ndata: {name: mine_of_a_plugin}\n")
    (tmp_path / "broken_plugin.py").write_text("1 / 0\n")
    for words, options, message in (
        (["--plugins=nowhere"], {}, "plugins.*'nowhere'"),
        ([], {"untrusted": True}, "plugins.*recipe from the Hub"),
        (["--plugins=broken_plugin"], {}, "'broken_plugin' cannot be imported from .*ZeroDivisionError"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipes.load("mine.yaml", words, **options)
    try:
        runs.check_model(recipes.load("mine.yaml"))
    finally:
        DATASETS.pop("mine_of_a_plugin", None)
        sys.modules.pop("my_data_sets", None)
