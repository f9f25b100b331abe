"""What the documents tell a reader to type is there: files, options, recipe keys, Python that runs."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from accelerate.commands.launch import launch_command_parser

from attnfaith import cli, recipes, runs
from attnfaith.data.registry import get_entry
from attnfaith.study import plan


ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "recipes/README.md", "CONTRIBUTING.md", "docs/how_to/several_machines.md")
PROGRAMS = ("accelerate", "attnfaith", "make", "python")
# where the options of a command stand that starts no parser of a recipe
OPTIONS_OF = {"study": ("study/command",), "release": ("study/command", "study/release"), "roar": ("roar",)}
STANDS_FOR = {"RECIPE": "recipes/quickstart.yaml", "STUDY": "recipes/planted_evidence/encoders.yaml"}


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)


def commands(document):
    """Command lines of a document: those of its shell blocks and those in its sentences."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [line for block in blocks(document, "bash") for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    lines = [shlex.split(line, comments=True) for line in lines if line.startswith(tuple(f"{name} " for name in PROGRAMS))]
    return [[STANDS_FOR.get(word, word) for word in words] for words in lines]


COMMANDS = [(document, words) for document in DOCUMENTS for words in commands(document)]


def parsed(script, arguments, monkeypatch):
    """What a command would do, done up to the point where it starts to work."""
    called = []
    monkeypatch.setattr(runs, "run", lambda recipe, **how: called.append(recipe) or Path("page"))
    monkeypatch.setattr(runs, "measure_run", lambda folder, recipe, output, **how: called.append(recipe) or Path("record"))
    monkeypatch.setattr(cli, "_destination", lambda known, recipe: None)  # would ask the Hub
    load = recipes.load
    # the run's own recipe is not there before it has run
    monkeypatch.setattr(
        recipes, "load", lambda path=None, extra=(): load(None if path and path.name == "recipe.yaml" else path, extra)
    )
    {"recipes/train.py": cli.train, "recipes/measure.py": cli.measure, "train": cli.train, "measure": cli.measure}[script](
        arguments
    )
    (recipe,) = called
    runs.training_arguments(recipe)
    recipes.model_config(recipe, get_entry(recipe.data.name).pair)
    return recipe


def test_there_are_commands():
    assert len(COMMANDS) > 8
    assert {words[0] for _, words in COMMANDS} == set(PROGRAMS)


@pytest.mark.parametrize(("document", "words"), COMMANDS, ids=[" ".join(words[:6]) for _, words in COMMANDS])
def test_command(document, words, monkeypatch, tmp_path):
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(rest) <= set(targets)
        return
    if program == "accelerate":
        assert rest.pop(0) == "launch"
        launch = launch_command_parser().parse_args(rest)
        script, rest = launch.training_script, launch.training_script_args
    elif program == "python":
        script, *rest = rest
    else:
        script, *rest = rest
        assert script in cli.COMMANDS
    if script.endswith(".py"):
        assert (ROOT / script).is_file()
    for word in rest:
        if word.endswith((".yaml", ".csv")):
            assert (ROOT / word).is_file(), word
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    if script in ("recipes/train.py", "recipes/measure.py", "train", "measure"):
        parsed(script, rest, monkeypatch)
    elif script.endswith(".py"):
        source = (ROOT / script).read_text(encoding="utf-8")
        assert all(f'"{option}"' in source for option in options)
    elif script in OPTIONS_OF:
        source = "".join((ROOT / f"src/attnfaith/{name}.py").read_text(encoding="utf-8") for name in OPTIONS_OF[script])
        own = rest[: rest.index("--")] if "--" in rest else rest
        assert all(f'"{word.partition("=")[0]}"' in source for word in own if word.startswith("--"))
    elif script == "report":
        with pytest.raises(ValueError, match="no record at"):
            cli.report([*rest[:-1], str(tmp_path / "report")])
        assert rest[-2] == "--output"


def test_what_is_measured_or_reported_was_made_before(monkeypatch):
    monkeypatch.chdir(ROOT)
    made, used = {recipes.load().output_dir}, set()
    for words in commands("README.md"):
        for option in ("--output_dir", "--output"):
            if option in words:
                made.add(words[words.index(option) + 1])
        if words[:2] == ["attnfaith", "study"]:
            made |= {plan.load_recipe(cell).output_dir for cell in plan.cells(plan.read_study(words[2]))}
        for script in {"recipes/measure.py", "roar", "report"} & set(words[:-1]):
            used.add(words[words.index(script) + 1])
    assert used and used <= made


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (ROOT / document).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_runs(document, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = blocks(document, "python")
    if any("runs/quickstart/model" in block for block in examples):
        from attnfaith.data.tokenization import build_tokenizer

        tokenizer = build_tokenizer(["a moving and brilliant portrait of a clumsy film"], preprocessing="whitespace")
        tokenizer.save_pretrained("runs/quickstart/model")
        tiny_model(vocab_size=len(tokenizer)).save_pretrained("runs/quickstart/model")
    for block in examples:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(block, document, "exec"), {})
        assert ("print(" in block) == bool(shown.getvalue())


def test_there_is_python_in_the_readme():
    assert len(blocks("README.md", "python")) >= 2
