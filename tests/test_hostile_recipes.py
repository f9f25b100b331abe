"""Recipes and studies from strangers: whatever a file says, it is read, or refused in one line that names the file."""

import random
import sys
from pathlib import Path

import pytest

from attnfaith import recipes, runs
from attnfaith.errors import AttnfaithError, FileError, cut, excerpt
from attnfaith.recipes import RecipeError
from attnfaith.recipes.arguments import ALLOWED, Arguments
from attnfaith.study.plan import read_study


ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "recipes").rglob("*.yaml"))
MINIMAL = "name: a\noutput_dir: b\n"
LONGEST = 600  # characters of a message
LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 8)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
VALUES = [
    "!!python/object/apply:os.system [ls]", "!!binary x", "!!set {a, b}", "!!pairs [a, b]", "!!int x", "!!float abc",
    "!!bool maybe", "!!map x", "!!merge x", "!!timestamp x", "2026-13-45", "2026-01-01", "9" * 400, "0x" + "f" * 6000,
    "0x_", "0b", "1e400", ".nan", "-.inf", "&a [*a]", "&a {b: *a}", "&a {<<: *a}", "{<<: [1]}", "{<<: 1}", "*nowhere",
    "[" * 3000, "{a: " * 300, "[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]", "{[a]: 1}", "{1: 2}", "{null: 1}", "'a",
    '"\\ud800"', '"\\0"', '"\\x85"', "\x00", "\t", "=", "~", "[]", "{}", "-1", "0", "x" * 5000, "'{'", "'{x}'", "'../..'",
]  # fmt: skip


def refusal(path, *, study):
    """What is said of a file that is refused, "" of one that is read."""
    try:
        read_study(path) if study else recipes.load(path)
    except AttnfaithError as error:
        return str(error)
    return ""


def mutated(text, chance):
    """A text with a value replaced, a line put in, taken away or swapped, its end cut off, or bytes changed."""
    lines = text.split("\n")
    place, value = chance.randrange(len(lines)), chance.choice(VALUES)
    kind = chance.choice(["value", "line", "swap", "end", "bytes", "within"])
    if kind == "value":
        lines[place] = f"{lines[place].partition(':')[0]}: {value}"
    elif kind == "line":
        lines.insert(place, chance.choice(["", "  "]) + value)
    elif kind == "swap":
        other = chance.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == "end":
        return text[: chance.randrange(len(text))].encode()
    elif kind == "bytes":
        content = bytearray(text.encode())
        for _ in range(chance.randint(1, 5)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        return bytes(content)
    else:
        start = chance.randrange(len(text))
        return (text[:start] + value + text[start + chance.randrange(20) :]).encode()
    return "\n".join(lines).encode()


def test_whatever_a_file_says_it_is_read_or_refused_in_one_line(tmp_path):
    chance, ends = random.Random(15), {"read": 0, "refused": 0}
    path = tmp_path / "mine.yaml"
    for number in range(200):
        text = FILES[number % len(FILES)].read_text(encoding="utf-8")
        path.write_bytes(mutated(text, chance))
        said = refusal(path, study="\nblocks:" in text)
        assert len(said) <= LONGEST + len(str(path)), said
        assert not said or "mine.yaml" in said, said
        ends["refused" if said else "read"] += 1
    assert min(ends.values()) > 20, ends


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["note", "training.learning_rate", "data.arguments", "measure.producers"])
def test_each_value_in_each_kind_of_place(tmp_path, key, value):
    section, _, name = key.rpartition(".")
    (tmp_path / "mine.yaml").write_text(MINIMAL + (f"{section}:\n  {name}: {value}\n" if section else f"{name}: {value}\n"))
    said = refusal(tmp_path / "mine.yaml", study=False)
    assert len(said) <= LONGEST + len(str(tmp_path)) and ("mine.yaml" in said or not said) and "\n" not in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"note: !!python/object/apply:os.system [ls]", r"the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not"),
        (b"seed: !!int x", "is not YAML: 'x' is no int"),
        (b"training: {learning_rate: " + b"9" * 400 + b"}", "is not YAML: a number of 400 characters; 100 at most"),
        (b"measure: {limit: 99999999999999999999}", "recipe.measure.limit=99999999999999999999 must be at most 2147483647"),
        (b"seed: 2026-13-45", "recipe.seed='2026-13-45' must be a whole number"),
        (b"data: &a [*a]", "is nested more than 20 deep, or in itself"),
        (b"data: " + b"[" * 10_000, "is nested more than 20 deep, or in itself"),
        (LAUGHS.encode(), "is nested more than 20 deep, or in itself"),
        (b"note: \xff", "is not UTF-8 text: invalid start byte at byte 29"),
        (b"note: " + b"a" * (1 << 18), "has more than 262,144 bytes; a recipe is a few lines of YAML"),
        (b"note: [" + b"a, " * 3000 + b"]", r"mine.yaml: recipe.note=\['a', 'a'.*… must be a text"),
        (b"x" * 500 + b": 1", r"unknown key recipe.x{59}…\. Known: name, output_dir, seed"),
        (b'note: "a\\0b"', r"is not YAML: a text with the character '\\x00'"),
        (b"note: {" + b", ".join(b"k%d: 1" % number for number in range(1001)) + b"}", "more than 1000 keys"),
    ],
)
def test_what_is_said_of_hostile_files(tmp_path, content, says):
    (tmp_path / "mine.yaml").write_bytes(MINIMAL.encode() + b"\n" + content)
    with pytest.raises(RecipeError, match=says) as refused:
        recipes.load(tmp_path / "mine.yaml")
    assert "mine.yaml" in str(refused.value) and len(str(refused.value)) <= LONGEST + len(str(tmp_path))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(RecipeError, match="no recipe at .*: Is a directory"):
        recipes.load(tmp_path)
    with pytest.raises(RecipeError, match="no recipe can lie at 'x{118}…: File name too long"):
        recipes.load("x" * 5000)


def test_a_date_is_a_text_and_a_key_may_be_merged():
    tree = "note: 2026-01-01\ndata: &a {seed: 3, limits: {test: 4}}\n"
    assert recipes.parse(MINIMAL + tree).note == "2026-01-01"
    merged = recipes.read_value("one: &a {x: 1, y: 2}\ntwo: {<<: *a, y: 3}\nthree: {<<: *a, z: 4}", "it")
    assert merged == {"one": {"x": 1, "y": 2}, "two": {"x": 1, "y": 3}, "three": {"x": 1, "y": 2, "z": 4}}
    # a set of keys that was merged into another before it was made itself
    later = recipes.read_value("a: {b: {c: &c {<<: &d {x: 1}, x: 2}}}\ne: {<<: *c}", "it")
    assert later == {"a": {"b": {"c": {"x": 2}}}, "e": {"x": 2}}


def test_an_error_is_one_line_that_can_be_shown():
    """Whatever a file or a library put into it: no line end, nothing that moves a cursor, half a letter, or no end."""
    assert str(AttnfaithError("a  b")) == "a  b"
    assert str(AttnfaithError("a\n\tb\x1b[2J \ud800\u202e\0")) == r"a b\x1b[2J \ud800\u202e\x00"
    assert str(FileError("cut\noff")) == "cut off"
    said = str(AttnfaithError("x" * 5000 + "do this"))
    assert len(said) == 1200 and said.startswith("xxx") and said.endswith("do this") and " … " in said


def test_excerpts():
    assert excerpt("a") == "'a'" and excerpt(ValueError("a\n  b")) == "a b"
    assert len(excerpt("x" * 1000)) == 120 and excerpt("x" * 1000).endswith("x…") and cut("abcdef", 4) == "abc…"
    assert excerpt(16**6000) == "a int too long to be shown"


# ------------------------------------------------------------------------------------------------ arguments


def with_arguments(**given):
    return recipes.build({"name": "a", "output_dir": "b", "training": {"arguments": given}})


@pytest.mark.parametrize(
    "name",
    [
        "output_dir", "logging_dir", "run_name", "report_to", "project", "trackio_space_id", "push_to_hub", "hub_token",
        "hub_model_id", "deepspeed", "fsdp", "fsdp_config", "accelerator_config", "parallelism_config", "debug",
        "torch_compile", "torch_compile_backend", "optim", "optim_args", "use_liger_kernel", "resume_from_checkpoint",
        "dataloader_multiprocessing_context", "ddp_backend", "local_rank", "seed", "learning_rate", "label_names",
        "load_best_model_at_end", "remove_unused_columns", "length_column_name", "nothing", "__class__", "x" * 300,
    ],
)  # fmt: skip
def test_arguments_that_no_recipe_may_set(name):
    with pytest.raises(RecipeError, match=r"training\.arguments\.") as refused:
        with_arguments(disable_tqdm=True, **{name: True})
    assert name[:59] in str(refused.value) and len(str(refused.value)) <= LONGEST


def test_the_defaults_of_arguments_are_those_of_a_training(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # else there is no progress bar
    recipe = recipes.build({"name": "a", "output_dir": str(tmp_path)})
    made, silent = runs.training_arguments(recipe), Arguments()
    for name in ALLOWED:
        unset = getattr(made, name) is None  # where transformers has none before it is used
        assert unset or getattr(made, name) == getattr(silent, name), name
        assert hasattr(made, name) and f"--training.arguments.{name}  " in recipes.describe("training")


# ------------------------------------------------------------------------------------------------ notes


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
    assert recipes.parse(MINIMAL, ["--encoder=cnn"]).note == ""
