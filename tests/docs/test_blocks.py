"""What the documents tell a reader to type is there: files, options, recipe keys, Python and YAML that work."""

import argparse
import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from packaging.requirements import Requirement

from attnfaith import cli, files, locate, recipes, record, runs
from attnfaith.cli import common, train
from attnfaith.data import own_data
from attnfaith.data.registry import read_entries
from attnfaith.study import every, plan
from attnfaith.study.arguments import ALL
from tests.docs.documents import DOCUMENTS, ROOT, blocks, text_of
from tests.records import draw


PROGRAMS = ("accelerate", "attnfaith", "make", "pip", "python")
LANGUAGES = {"bash", "py", "python", "yaml"}
OTHER_LINES = ("source .venv/bin/activate", "export ATTNFAITH_DATA=/path/to/data", "hf auth login")
STANDS_FOR = {
    "RECIPE": "recipes/quickstart.yaml",
    "STUDY": "recipes/planted_evidence/encoders.yaml",
    "RUN": "runs/quickstart",
}
READERS = {"recipes/measure.py", "measure", "roar", "report", "view", "eraser", "push", "cards"}
"""Scripts and commands whose first argument is a run or a record."""
RUN_ELSEWHERE = {"docs/how_to/publish.md": "needs the Hub: tests/test_hub.py runs it on a Hub of its own"}
"""Documents with ```py blocks, which are not run here, and why."""


class Parsed(Exception):
    """A command line that its parser took."""


def lines(document):
    return [line.strip() for block in blocks(document, "bash") for line in block.splitlines() if line.strip()]


def commands(document):
    """Command lines of a document: those of its shell blocks and those in its sentences."""
    prose = re.sub(r"^```.*?^```", "", text_of(document), flags=re.M | re.S)
    written = lines(document) + re.findall(r"`([^`\n]+)`", prose)
    written = [
        shlex.split(line, comments=True) for line in written if line.startswith(tuple(f"{name} " for name in PROGRAMS))
    ]
    return [[STANDS_FOR.get(word, word) for word in words] for words in written]


COMMANDS = [(document, words) for document in DOCUMENTS for words in commands(document)]


def recipe_of(script, arguments, monkeypatch):
    """What training or measuring would do, done up to the point where it starts to work."""
    called = []
    monkeypatch.setattr(runs, "run", lambda recipe, **how: called.append(recipe) or Path("page"))
    monkeypatch.setattr(runs, "measure_run", lambda folder, recipe, output, **how: called.append(recipe) or Path("record"))
    monkeypatch.setattr(train, "_destination", lambda known, recipe: None)  # would ask the Hub
    monkeypatch.setattr(locate, "locate_folder", lambda word, needs: Path(word))  # it is not there before it has run
    monkeypatch.setattr(locate, "is_repository", lambda word: False)
    load = recipes.load
    # the run's own recipe is not there before it has run
    monkeypatch.setattr(
        recipes, "load", lambda path=None, extra=(): load(None if path and path.name == "recipe.yaml" else path, extra)
    )
    launched = []
    monkeypatch.setattr(common, "launch", lambda command, rest, processes: launched.append(rest) or 0)
    command = cli.COMMANDS[script]
    arguments = common.without_option("--seeds", arguments, several=True)  # each of them is a run of this recipe
    command(arguments)
    if launched:  # what each of several processes is told
        command(launched[0])
    (recipe,) = called
    runs.training_arguments(recipe)
    recipes.check_model(recipe)


def model_measured(arguments, monkeypatch):
    """A model measured on a reader's own texts, up to the point where these are read."""

    def stop(data, split, limit, seed):
        raise Parsed(data)

    monkeypatch.setattr(own_data, "read_texts", stop)
    monkeypatch.setattr(Path, "mkdir", lambda *given, **how: None)
    monkeypatch.setattr(files, "folder_lock", lambda folder, work: contextlib.nullcontext())
    with pytest.raises(Parsed) as parsed:
        cli.COMMANDS["measure"](arguments)
    assert parsed.value.args[0].path == arguments[arguments.index("--data.path") + 1]


def parse(call, arguments, monkeypatch):
    """A command's own parser takes its arguments; nothing after it is done."""
    parse_args = argparse.ArgumentParser.parse_args

    def stop(self, given=None, namespace=None):
        raise Parsed(parse_args(self, given, namespace))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(Parsed):
        call(arguments)


def test_there_are_commands():
    assert len(COMMANDS) > 40
    assert {words[0] for _, words in COMMANDS} == set(PROGRAMS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_line_of_a_shell_block_is_known(document):
    """A line that no test looks at is named here."""
    others = [line for line in lines(document) if not line.startswith(tuple(f"{name} " for name in PROGRAMS))]
    assert not [line for line in others if line not in OTHER_LINES]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_is_of_a_language_that_is_tested(document):
    opened = re.findall(r"^```(\w*)", text_of(document), re.M)[::2]
    assert set(opened) <= LANGUAGES
    assert ("py" in opened) == (document in RUN_ELSEWHERE)


@pytest.mark.parametrize(
    ("document", "words"), COMMANDS, ids=[f"{place}-{' '.join(words[:6])}" for place, words in COMMANDS]
)
def test_command(document, words, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(rest) <= set(targets)
        return
    if program == "pip":
        assert rest.pop(0) in ("install", "download")
        check_packages([word for word in rest if word != "--no-deps"])
        return
    if program == "accelerate":
        assert rest.pop(0) == "launch"
        launch = launch_command_parser().parse_args(rest)
        script, rest = launch.training_script, launch.training_script_args
    elif rest[:2] in (["-m", "http.server"], ["-m", "zipfile"]):
        return
    else:
        script, *rest = rest
    if program == "attnfaith":
        assert script in {*cli.COMMANDS, "--help"}
    else:
        assert (ROOT / script).is_file()
    for before, word in zip(["", *rest], rest, strict=False):
        if word.endswith((".yaml", ".csv")) and before != "--data.path":  # which the reader has
            assert (ROOT / word).is_file(), word
    name = Path(script).stem
    if not rest:
        return  # a command that a sentence names
    if rest == ["--help"]:
        with pytest.raises(SystemExit, match="^0$"):
            cli.COMMANDS[name](rest)
    elif name == "measure" and "--data.path" in rest:
        model_measured(rest, monkeypatch)
    elif name in ("train", "measure"):
        recipe_of(name, rest, monkeypatch)
    elif name in cli.COMMANDS:
        parse(cli.COMMANDS[name], rest, monkeypatch)
    else:
        source = (ROOT / script).read_text(encoding="utf-8")
        assert all(f'"{word}"' in source for word in rest if word.startswith("--"))


def check_packages(words):
    """What is installed is ours, with extras that it has, a file of requirements, or well formed."""
    extras = re.findall(
        r"^(\w+) =$", (ROOT / "setup.cfg").read_text().partition("extras_require]")[2].partition("\n[")[0], re.M
    )
    while words:
        word = words.pop(0)
        if word == "-r":
            assert (ROOT / words.pop(0)).is_file()
            continue
        wanted = Requirement(word)
        assert wanted.extras <= set(extras if wanted.name == "attnfaith" else ())


def test_what_is_measured_or_reported_was_made_before(monkeypatch):
    monkeypatch.chdir(ROOT)
    made, used = {recipes.load().output_dir}, set()
    for document in DOCUMENTS:
        for words in commands(document):
            for option in ("--output_dir", "--output"):
                if option in words:
                    made.add(words[words.index(option) + 1])
            if words[:2] == ["attnfaith", "study"]:
                for name in every.STUDIES if words[2] == ALL else [words[2]]:
                    made |= {plan.load_recipe(cell).output_dir for cell in plan.cells(plan.read_study(Path(name)))}
            for before, script, after in zip(words, words[1:], words[2:], strict=False):
                if script in READERS and not before.startswith("--"):
                    used.add(after)
    assert used and used - {"OWNER/MODEL"} <= made  # the reader has that model


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"^```.*?^```", "", text_of(document), flags=re.M | re.S)):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (ROOT / document).parent.joinpath(target).exists(), target


@pytest.fixture
def quickstart(tiny_model, tmp_path, monkeypatch):
    """A folder in which the quickstart has been run, in small."""
    from attnfaith.data.tokenization import build_tokenizer

    monkeypatch.chdir(tmp_path)
    tokenizer = build_tokenizer(["a moving and brilliant portrait of a clumsy film"], preprocessing="whitespace")
    tokenizer.save_pretrained("runs/quickstart/model")
    tiny_model(vocab_size=len(tokenizer)).save_pretrained("runs/quickstart/model")
    return tmp_path


PYTHON = [(document, block) for document in DOCUMENTS for block in blocks(document, "python")]


@pytest.mark.parametrize(("document", "block"), PYTHON, ids=[document for document, _ in PYTHON])
def test_python_runs(document, block, quickstart):
    if "record.parquet" in block:
        record.save(draw(5), quickstart / "runs" / "quickstart" / "record.parquet")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(block, document, "exec"), {})
    assert ("print(" in block) == bool(shown.getvalue())


@pytest.mark.parametrize("document", RUN_ELSEWHERE)
def test_python_that_runs_elsewhere_compiles(document):
    (block,) = blocks(document, "py")
    compile(block, document, "exec")
    assert 'publish.md").read_text' in (ROOT / "tests" / "test_hub.py").read_text(encoding="utf-8")


YAML = [(document, block) for document in DOCUMENTS for block in blocks(document, "yaml")]


@pytest.mark.parametrize(("document", "block"), YAML, ids=[document for document, _ in YAML])
def test_yaml_is_accepted(document, block, tmp_path, monkeypatch):
    """An entry of the registry, a recipe, or a study whose cells are planned."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "given.yaml").write_text(block, encoding="utf-8")
    if isinstance(tree := yaml.safe_load(block), list):
        assert read_entries(tmp_path / "given.yaml")
    elif "blocks" not in tree:
        assert recipes.load(tmp_path / "given.yaml").name == tree["name"]
    else:
        assert plan.cells(plan.read_study(tmp_path / "given.yaml"))


def test_there_are_blocks():
    assert len(blocks("README.md", "python")) >= 1 and len(PYTHON) >= 7 and len(YAML) >= 2
