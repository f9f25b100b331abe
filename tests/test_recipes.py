"""Every recipe of the project builds; what is wrong in a recipe is said before any work is done."""

import contextlib
import dataclasses
import re
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM

from attnfaith import (
    AttentionClassifierForSequenceClassification,
    RationaleClassifierForSequenceClassification,
    recipes,
    runs,
)
from attnfaith.data.pairs import PAIRS
from attnfaith.data.registry import SPLITS, entry_of
from attnfaith.measurement import registry
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.recipes import RecipeError
from attnfaith.reporting.study import DEFAULT, check_names
from attnfaith.study import plan


ROOT = Path(__file__).parents[1]
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
    if recipe.model.type is not None:
        translator_builds(recipe)
        return
    entry = entry_of(recipe.data)
    registry.check_names(recipe.measure.producers)
    if recipe.model.pretrained is not None:  # its files are elsewhere
        recipes.check_model(recipe)
        return
    small = {"embedding_size": 8, "hidden_size": 8, "intermediate_size": 8, "alignment_size": 4}
    fields = {**{name: value for name, value in small.items() if name != "hidden_size"}, "vocab_size": 30}
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, hidden_size=8))
    num_labels = len(entry.label_names) or 3  # where answers are the labels, the training texts decide
    config = recipes.model_config(recipe, entry.pair, num_labels=num_labels, **fields)
    plain = recipe.model.selector is None
    kind = AttentionClassifierForSequenceClassification if plain else RationaleClassifierForSequenceClassification
    model = kind(config)
    batch = {"input_ids": torch.tensor([[2, 5, 6, 3, 2, 7, 3]])}
    if entry.pair:
        batch["token_type_ids"] = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    assert model(**batch).logits.shape == (1, num_labels)


def translator_builds(recipe):
    """The same of a model of sentence pairs."""
    assert recipe.data.name in PAIRS
    registry.check_names(recipe.measure.producers, "pairs")
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, hidden_size=8))
    model = AutoModelForSeq2SeqLM.from_config(recipes.sequence_config(recipe, vocab_size=30))
    ids = torch.tensor([[5, 6, 7, 3]])
    assert model(ids, labels=ids[:, 1:]).logits.shape == (1, 3, 30)


def test_there_are_recipes_and_studies():
    assert len(RECIPES) >= 5 and len(STUDIES) >= 2
    assert ROOT / "recipes" / "quickstart.yaml" in RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_recipe_builds(path):
    recipe = recipes.load(path)
    builds(recipe)
    assert recipes.parse(recipes.dump(recipe)) == recipe
    assert recipe.name == path.stem and recipe.note


def shape(cell):
    """What cells share that differ in seed, name and folder alone."""
    apart = ("--seed=", "--name=", "--output_dir=", "--objective.base=")
    return cell.recipe, *(words for words in cell.overrides if not words.startswith(apart))


def folder(cell):
    return next(words for words in cell.overrides if words.startswith("--output_dir="))


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=name_of)
def test_study_builds(path):
    """Of cells that differ in their seeds alone, the first."""
    study = plan.read_study(path)
    check_names(study.get("tables", DEFAULT))
    cells = {shape(cell): cell for cell in reversed(plan.cells(study))}
    assert cells
    for cell in cells.values():
        recipe = plan.load_recipe(cell)
        builds(recipe)
        if recipe.objective.base:
            assert Path(recipe.objective.base).name in cell.after, f"{cell.name} reads a run that it does not wait for"


def test_an_output_folder_is_of_one_recipe():
    """Studies may share runs, so that each shows its part of them; then they must agree on how a run is made."""
    assert len({recipes.load(path).output_dir for path in RECIPES}) == len(RECIPES)
    cells = {}
    for path in STUDIES:
        for cell in plan.cells(plan.read_study(path)):
            cells.setdefault(folder(cell), []).append(cell)
    shared = [alike for alike in cells.values() if len(alike) > 1]
    assert len(shared) >= 10
    for alike in shared:
        first, *others = map(plan.load_recipe, alike)
        assert all(dataclasses.replace(other, note=first.note) == first for other in others), first.output_dir


def test_results_of_studies_lie_apart():
    results = [plan.read_study(path)["results"] for path in STUDIES]
    assert len(set(results)) == len(results)


# ------------------------------------------------------------------------------------------------ parsing


def test_defaults_are_the_papers():
    recipe = recipes.parse(MINIMAL)
    training = recipe.training
    assert (training.num_train_epochs, training.per_device_train_batch_size) == (8, 32)
    assert (training.learning_rate, training.weight_decay, training.amsgrad) == (1e-3, 1e-5, True)
    assert (training.loss_reduction, training.balance_classes, training.max_grad_norm) == ("sum", True, 0.0)
    assert recipe.model.encoder == "bilstm" and recipe.measure.split == "test"


WRONG_VALUES = {
    "seed": ("x", "1.5", "true", "", "-1", "4294967296"),
    "model": ("cnn", "", "{encoderr: cnn}"),
    "model.sparsegen_lambda": (".nan",),
    "model.kernel_sizes": ("[1, 3.5]",),
    "model.dropout": (".nan",),
    "training.learning_rate": ("fast", "true", ".nan", ".inf", "-1e-3"),
    "training.bf16": ("1",),
    "training.loss_reduction": ("max",),
    "training.early_stopping_patience": ("two", "0"),
    "training.select_on": ("test", "1"),
    "training.random_erasure": ("1.5", "-0.1", ".nan"),
    "training.num_train_epochs": (".nan", "1e300", "0"),
    "training.weight_decay": (".nan",),
    "training.per_device_train_batch_size": ("0",),
    "objective.kind": ("adversary", "guided"),
    "objective.divergence": ("tvd",),
    "objective.weight": ("0.1",),
    "objective.base": ("b",),
    "measure.level": ("words", "word"),
    "measure.limit": ("0", "1e3"),
    "measure.batch_tokens": ("-5",),
    "measure.outputs": ("test",),
    "measure.producers": ("gradient", "[1]"),
    "report.examples": ("0",),
    "data.limits": ("{train: many}", "{1: 2}", "{test: 0}"),
    "data.arguments": ("{1: 2}", "[1]"),
    "data.max_length": ("-3",),
    "data.max_sentences": ("9",),
    "data.min_df": ("0",),
}
WRONG_TOGETHER = [
    ("sed: 3", "sed"),
    ("1: 2", "1"),
    ("seed: 1\nseed: 2", "seed"),
    ("model: {encoder: cnn, dropout: 0, encoder: bilstm}", "encoder"),
    ("model: {hierarchy: sentence}\ndata: {max_sentence_length: 0}", "data.max_sentence_length"),
    ("objective: {kind: untrained, base: b}", "objective.base"),
    ("objective: {kind: untrained, weight: 0.1}", "objective.weight"),
    (
        "objective: {kind: untrained}\ntraining: {attention_learning_rate_factor: 10}",
        "training.attention_learning_rate_factor",
    ),
    ("objective: {kind: untrained}\ntraining: {random_erasure: 0.5}", "training.random_erasure"),
    ("objective: {kind: adversarial, base: ''}", "objective.kind"),
    *(
        (f"objective: {{kind: adversarial, base: b, weight: {value}}}", "objective.weight")
        for value in ("0", "-1", ".nan", ".inf")
    ),
    ("objective: {kind: guided, base: b, frozen: true}", "objective.frozen"),
    ("objective: {kind: guided, base: b, divergence: jsd}", "objective.divergence"),
    ("objective: {kind: guided, base: b}", "measure.producers"),
    ("objective: {kind: adversarial, base: b}\nmodel: {projection: uniform}", "model.projection"),
    (
        "model: {hierarchy: sentence}\nobjective: {kind: guided, base: b}\nmeasure: {level: word, producers: []}",
        "measure.level",
    ),
]


def nested(key, value):
    section, _, name = key.rpartition(".")
    return f"{section}: {{{name}: {value}}}" if section else f"{name}: {value}"


@pytest.mark.parametrize(
    ("text", "key"),
    [(nested(key, value), key) for key, values in WRONG_VALUES.items() for value in values] + WRONG_TOGETHER,
)
def test_mistakes_are_named(text, key):
    with pytest.raises(RecipeError, match=re.escape(key)):
        recipes.parse(MINIMAL + text)


@pytest.mark.parametrize("text", ["", "- a", "a: [", "a: !!python/object:os.system x", "name: a", "name: 3\noutput_dir: b"])
def test_what_is_no_recipe(text):
    with pytest.raises(RecipeError):
        recipes.parse(text)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("encoder: rnn", "model: encoder='rnn' is not known; choose one of bilstm"),
        ("hierarchy: word", "model: hierarchy='word' is not known; choose one of none, sentence"),
        ("sparsegen_lambda: 1", "model: sparsegen_lambda=1.0: sparsegen needs a finite lambda < 1"),
        ("entmax_alpha: 0.5", "model: entmax_alpha=0.5: entmax needs a finite alpha >= 1"),
        ("score_scale: 0", "model: score_scale=0.0: scores are held at a finite deviation above 0"),
        ("dropout: -0.1", "model: dropout=-0.1 is outside"),
        ("dropout: 1", "model: dropout=1.0 is outside"),
        ("hidden_size: 0", "model: hidden_size=0 must be at least 1"),
        ("embedding_size: -2", "model: embedding_size=-2 must be at least 1"),
        ("{encoder: cnn, kernel_sizes: []}", r"model: kernel_sizes=\[\]: widths must be odd"),
        ("embedding_std: -1", "model: embedding_std=-1.0: a standard deviation"),
    ],
)
def test_the_configuration_says_what_a_model_may_be(section, message):
    """Its rules are written there alone; many recipes are asked before the first is run, and the message names the one."""
    recipe = recipes.parse(MINIMAL + f"model: {section if section[0] == '{' else '{' + section + '}'}")
    with pytest.raises(RecipeError, match=message):
        recipes.model_config(recipe, pair=False)
    with pytest.raises(RecipeError, match=f"^second: {message}"):
        recipes.check_models({"first": recipes.parse(MINIMAL), "second": recipe})


OF_OTHERS = ("pretrained", "revision", "separate_impermissible", "selector", "type", "recurrence")


def test_the_model_section_is_the_configuration():
    """The same fields and defaults, but for what the recipe leaves to the data and to the encoder, and for what is of a
    pretrained model, of a selector, or of sentence pairs alone.
    """
    section, config = recipes.Model(), AttentionClassifierConfig()
    assert (section.pretrained, section.revision, section.separate_impermissible) == (None, None, False)
    assert (section.selector, section.type, section.recurrence) == (None, None, None)
    for key in (key for key in dataclasses.fields(section) if key.name not in OF_OTHERS):
        value = getattr(section, key.name)
        if key.name in ("query", "hidden_size"):
            assert value is None and hasattr(config, key.name)
        else:
            assert value == (list(config.kernel_sizes) if key.name == "kernel_sizes" else getattr(config, key.name)), (
                key.name
            )


@pytest.mark.parametrize("text", ["1e-3", "0.001", ".001", "1.0e-3", "1E-3", "+1e-3"])
def test_floats(text):
    assert recipes.parse(MINIMAL + f"training: {{learning_rate: {text}}}").training.learning_rate == 1e-3


def test_whole_numbers_are_floats_where_floats_are_wanted():
    recipe = recipes.parse(MINIMAL + "model: {dropout: 0, entmax_alpha: 2}\ntraining: {num_train_epochs: 3}")
    values = (recipe.model.dropout, recipe.model.entmax_alpha, recipe.training.num_train_epochs)
    assert values == (0, 2, 3) and all(type(value) is float for value in values)


def test_none_where_it_is_allowed():
    assert recipes.parse(MINIMAL + "data: {max_length: null}").data.max_length is None
    assert recipes.parse(MINIMAL + "training: {early_stopping_patience: }").training.early_stopping_patience is None


def test_a_missing_file(tmp_path):
    with pytest.raises(
        RecipeError, match=r"no recipe at .*none.yaml, nor of that name among those that come with attnfaith"
    ):
        recipes.load(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match="no recipe at"):
        recipes.load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\noutput_dir: b\n")
    with pytest.raises(RecipeError, match="not UTF-8"):
        recipes.load(tmp_path / "latin.yaml")


def test_an_adversary_and_a_guided_model():
    objective = recipes.parse(MINIMAL, ["--kind=adversarial", "--base=runs/b", "--weight=1e-3", "--frozen"]).objective
    assert objective == recipes.Objective("adversarial", "runs/b", 0.001, "kl", True)
    guided = recipes.parse(MINIMAL, ["--objective.kind=guided", "--objective.base=b", "--measure.producers=[]"])
    assert guided.objective == recipes.Objective("guided", "b")
    assert recipes.parse(MINIMAL).objective == recipes.Objective() and recipes.parse(MINIMAL).measure.outputs == []


def test_an_adversary_is_selected_by_its_objective():
    recipe = recipes.parse(MINIMAL, ["--kind=adversarial", "--base=b"])
    arguments = runs.training_arguments(recipe)
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("eval_objective", False)
    arguments = runs.training_arguments(recipes.parse(recipes.dump(recipe), ["--metric_for_best_model=accuracy"]))
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("eval_accuracy", True)
    with pytest.raises(ValueError, match="metric_for_best_model='objective' is not known"):
        runs.training_arguments(recipes.parse(MINIMAL, ["--metric_for_best_model=objective"]))


def test_the_family_of_wiegreffe_and_pinter_fits_together():
    """What the guided model and the adversary read is what the base keeps, under the same data section."""
    family = {
        name: recipes.load(ROOT / "recipes" / "wiegreffe_pinter_2019" / f"{name}.yaml")
        for name in ("base", "mlp", "guided", "adversarial")
    }
    base = family["base"]
    for name in ("guided", "adversarial"):
        assert family[name].objective.kind == name and family[name].objective.base == base.output_dir
        assert set(runs.base.needed_outputs(family[name])) <= set(base.measure.outputs)
    assert set(runs.base.needed_outputs(family["guided"])) <= set(family["adversarial"].measure.outputs)
    assert family["adversarial"].model == base.model and family["guided"].model == family["mlp"].model
    assert all(recipe.data == base.data and recipe.seed == base.seed for recipe in family.values())


# ------------------------------------------------------------------------------------------------ overrides


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--seed", "3"], [("seed", 3)]),
        (["--seed=3"], [("seed", 3)]),
        (["--model.encoder", "cnn"], [("model.encoder", "cnn")]),
        (["--encoder", "cnn"], [("model.encoder", "cnn")]),
        (["--bf16"], [("training.bf16", True)]),
        (["--bf16", "--seed", "3"], [("training.bf16", True), ("seed", 3)]),
        (["--bf16", "false"], [("training.bf16", False)]),
        (["--learning_rate", "1e-4"], [("training.learning_rate", 1e-4)]),
        (["--sparsegen_lambda", "-1.5"], [("model.sparsegen_lambda", -1.5)]),
        (["--producers", "[gradient, leave_one_out]"], [("measure.producers", ["gradient", "leave_one_out"])]),
        (["--kernel_sizes=[1]"], [("model.kernel_sizes", [1])]),
        (["--data.arguments.length", "[3, 4]"], [("data.arguments.length", [3, 4])]),
        (["--max_length", "null"], [("data.max_length", None)]),
        (["--note=a=b"], [("note", "a=b")]),
        (["--split", "train"], [("measure.split", "train")]),
        ([], []),
    ],
)
def test_override_forms(arguments, expected):
    assert recipes.parse_overrides(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed", "3"], "'seed' is not an override; write --key value"),
        (["-s", "3"], "'-s' is not an override"),
        (["--"], "'--' is not an override"),
        (["--seed", "3", "4"], "'4' is not an override"),
        (["--arguments", "{}"], "--arguments is in several sections; write one of --data.arguments, --training.arguments"),
        (["--model", "cnn"], "--model is a section; name a key of it, such as --model.type"),
        (["--seed", "["], "the value of --seed is not YAML"),
        (["--model.encodr", "cnn"], "unknown key recipe.model.encodr; did you mean recipe.model.encoder"),
        (["--modell.encoder", "cnn"], "unknown key recipe.modell; did you mean recipe.model"),
        (["--seed.x", "cnn"], "--seed.x: 'seed' is a value, not a section"),
        (["--seed"], "recipe.seed=True must be a whole number"),
        (["--encoder", "3"], "recipe.model.encoder=3 must be a text"),
    ],
)
def test_wrong_overrides(arguments, message):
    with pytest.raises(RecipeError, match=message):
        recipes.parse(MINIMAL + "seed: 1", arguments)


def test_overrides_win_over_the_file_and_later_over_earlier():
    text = MINIMAL + "seed: 1\ndata: {arguments: {length: [1, 2], distractors: 3}}"
    recipe = recipes.parse(text, ["--seed", "2", "--data.arguments.distractors", "4", "--seed=5"])
    assert recipe.seed == 5 and recipe.data.arguments == {"length": [1, 2], "distractors": 4}


def test_a_recipe_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipes.parse(MINIMAL).seed = 3


# ------------------------------------------------------------------------------------------------ round trips

words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
numbers = st.floats(allow_nan=False)
rates = st.floats(0, allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | numbers
    | words
    | st.sampled_from(["1e-3", "1.", ".5", "no", "null", "0x1", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    name=words,
    note=words,
    rate=rates,
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


LEAVES = [
    (f"{name}.{key}", field.annotation)
    for name, section in recipes.schema.SECTIONS.items()
    if name not in ("objective", "penalties")  # whose values depend on one another
    for key, field in section.__pydantic_fields__.items()
    if field.annotation in (int, float, bool)
]
FINITE = {"allow_nan": False, "allow_infinity": False}
RATES = ("learning_rate", "weight_decay", "max_grad_norm", "attention_learning_rate_factor")
SIZES = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
ALLOWED = {
    **{f"training.{name}": st.floats(0, **FINITE) for name in RATES},
    **{f"training.{name}": st.integers(1, 10**9) for name in SIZES},
    "training.num_train_epochs": st.floats(0, 2**31 - 1, exclude_min=True),
    "training.random_erasure": st.floats(0, 1),
    "data.seed": st.integers(0, 2**32 - 1),
    "measure.seed": st.integers(0, 2**32 - 1),
    "measure.batch_tokens": st.integers(1, 10**9),
    "report.examples": st.integers(1, 10**9),
    "model.separate_impermissible": st.just(False),  # true is for pretrained models
}
VALUES = {int: st.integers(-(10**9), 10**9), float: st.floats(**FINITE), bool: st.booleans()}


@settings(max_examples=100)
@given(st.data())
def test_overrides_set_what_they_name(data):
    key, kind = data.draw(st.sampled_from(LEAVES))
    value = data.draw(ALLOWED.get(key, VALUES[kind]))
    written = str(value).lower() if kind is bool else repr(value)
    section, name = key.split(".")
    given = [f"--{key}={written}"] if data.draw(st.booleans()) else [f"--{key}", written]
    recipe, plain = recipes.parse(MINIMAL, given), recipes.parse(MINIMAL)
    assert getattr(getattr(recipe, section), name) == value
    rest = dataclasses.replace(getattr(recipe, section), **{name: getattr(getattr(plain, section), name)})
    assert dataclasses.replace(recipe, **{section: rest}) == plain


@settings(max_examples=100)
@given(st.data())
def test_what_is_outside_a_range_is_refused(data):
    key = data.draw(st.sampled_from([key for key, kind in LEAVES if key in ALLOWED and kind is int]))
    with pytest.raises(RecipeError, match=rf"^the recipe with --{key}: recipe\.{key}=-\d+ must be at least [01]$"):
        recipes.parse(MINIMAL, [f"--{key}={data.draw(st.integers(-(10**9), -1))}"])


def test_the_help_lists_every_key():
    lines = recipes.describe().splitlines()
    assert lines[0] == "keys of the recipe; a section needs naming only where two have that key"
    for name, section in {"": recipes.Recipe, **recipes.schema.SECTIONS}.items():
        assert not name or any(line.startswith(f"{name}: ") for line in lines)
        for key, field in section.__pydantic_fields__.items():
            if key not in recipes.schema.SECTIONS:
                (place,) = [n for n, line in enumerate(lines) if line.startswith(f"  --{name}{name and '.'}{key}  ")]
                assert "required" in lines[place] or ", default " in lines[place]
                assert lines[place + 1] == f"      {field.description}" and len(field.description) > 5
    assert "  --training.learning_rate  number or null, default null" in lines
    assert "  --model.embedding_std  number, default 0.25" in lines
    assert "  --measure.producers  list of texts, default [gradient, gradient_norm, leave_one_out]" in lines
    assert "  --data.max_length  whole number or null, default null" in lines
    assert "  --objective.divergence  kl or jsd, default kl" in lines
    assert "  --output_dir  text, required" in lines and "  --note  text, default ''" in lines
    assert "  --data.name" not in recipes.describe("measure") and "  --measure.limit" in recipes.describe("measure")


# ------------------------------------------------------------------------------------------------ where they are found


def test_shipped_recipes_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("recipes/meister_2021/sst.yaml", "meister_2021/sst.yaml", Path("meister_2021") / "sst.yaml"):
        assert recipes.find(name) == ROOT / "recipes" / "meister_2021" / "sst.yaml"
        assert recipes.load(name) == recipes.load(ROOT / "recipes" / "meister_2021" / "sst.yaml")
    assert recipes.find("meister_2021/published.csv").is_file()
    (tmp_path / "meister_2021").mkdir()
    (tmp_path / "meister_2021" / "sst.yaml").write_text(MINIMAL)
    assert recipes.load("meister_2021/sst.yaml").name == "a", "a file of the user's own comes first"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("meister_2021/sts.yaml", "did you mean meister_2021/sst.yaml"),
        ("adversarial.yaml", "did you mean meister_2021/adversarial.yaml or wiegreffe_pinter_2019/adversarial.yaml"),
        ("recipes/quikstart.yaml", r"did you mean quickstart.yaml\?"),
        ("/nowhere/at/all.yaml", "they lie in .*recipes$"),
    ],
)
def test_near_names_of_recipes(name, message):
    with pytest.raises(RecipeError, match=f"no recipe at {name}, nor of that name.*{message}"):
        recipes.load(name)
    with pytest.raises(RecipeError, match=f"no study at {name}"):
        recipes.find(name, "study")


def test_without_a_file(tmp_path, monkeypatch):
    """The quickstart; where a data set is named, the defaults on it, of which the quickstart's settings are no part."""
    monkeypatch.chdir(tmp_path)
    assert recipes.load() == recipes.load(ROOT / "recipes" / "quickstart.yaml")
    assert recipes.load(None, ["--seed", "4"]).name == "quickstart"
    recipe = recipes.load(None, ["--data.name", "sst", "--seed", "4"])
    assert recipe == recipes.build({"name": "sst", "output_dir": "runs/sst", "seed": 4, "data": {"name": "sst"}})
    assert recipes.load(None, ["--data.name=a/b c", "--name=mine"]).output_dir == "runs/a-b-c"


@settings(max_examples=100)
@given(st.lists(st.text(max_size=8), max_size=4))
def test_any_command_line_is_read_or_refused(arguments):
    with contextlib.suppress(RecipeError):
        recipes.parse(MINIMAL, arguments)


@settings(max_examples=100)
@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(RecipeError):
        recipes.parse(text)
