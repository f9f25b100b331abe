"""Help, versions, mistakes in what is typed, lists and completion: what a user meets before anything is measured."""

import re
import runpy
import shlex
import subprocess
import sys

import pytest

from attnfaith import __version__, cli
from attnfaith.cli import listing, setup
from attnfaith.recipes.options import KEYS
from attnfaith.recipes.recipe import SECTIONS


def says(capsys, *words, code=2):
    """What a command that must end with this code prints: on standard error where it fails."""
    assert cli.main(list(words)) == code
    shown = capsys.readouterr()
    if code:
        assert shown.err.endswith("\n(set ATTNFAITH_TRACEBACK=1 for the traceback)\n") and shown.err.count("\n") == 2
        return shown.err.splitlines()[0].removeprefix("error: ")
    return shown.out


def test_help_groups_every_command_once(capsys):
    shown = says(capsys, "--help", code=0)
    assert [title for title in cli.GROUPS if f"\n{title}:\n" not in shown] == []
    for name, command in cli.COMMANDS.items():
        assert len(re.findall(rf"^  {name} +{re.escape(command.summary)}$", shown, re.M)) == 1
    assert cli.main([]) == 2 and says(capsys, "--version", code=0).endswith(f"attnfaith {__version__}\n")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_a_command(name, capsys):
    """Synopsis, examples that its parser takes, options; of train and measure the keys of a recipe."""
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["help", name])
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: attnfaith {name} [-h]") and "\noptions:\n" in shown
    examples = re.findall(r"^  attnfaith (.*)$", shown.partition("\nexamples:\n")[2], re.M)
    assert examples or name == "install-metric"
    for example in examples:
        first, *words = shlex.split(re.split("[#>]", example)[0])
        cli.COMMANDS[name].parser().parse_args(words)
        assert first == name
    shown_sections = {"train": {"", *SECTIONS}, "measure": {"measure"}}.get(name, set())
    for key in (key for key in KEYS if key.section and name != "reproduce"):
        assert bool(re.search(rf"\n  --{key.name}[ ,]", shown)) == (key.section in shown_sections), key


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tran"], "unknown command 'tran'; did you mean train?"),
        (["report", "x", "--exmples", "3"], "no option --exmples; did you mean --examples?"),
        (["report", "x", "--seed", "3"], "no option --seed: it is a key of a recipe"),
        (["report"], "attnfaith report needs RUN; usage: attnfaith report [-h]"),
        (["report", "x", "--examples", "many"], "--examples: invalid int value: 'many'"),
        (["study", "x", "--statu"], "no option --statu; did you mean --status?"),
        (["train", "--overwrite_output"], "did you mean --overwrite_output_dir?"),
        (["train", "--encder", "cnn"], "no option --encder; did you mean --encoder?"),
        (["train", "--training.learning_rat=1"], "did you mean --training.learning_rate?"),
        (["train", "--learning_rate", "fast"], "recipe.training.learning_rate='fast'"),
        (["train", "--config", "recipes/quikstart.yaml"], "did you mean quickstart.yaml?"),
        (["measure", "run", "--limit", "5", "", " "], "does not take"),
        (["measure", "--limt", "3", "run"], "did you mean --limit?"),
        (["list", "encodrs"], "KIND 'encodrs' is not known; did you mean encoders? Known: measures, "),
        (["list", "recipes", "nothing like it"], "no line of recipes holds 'nothing like it'"),
        (["table", "x", "--rows", "encoder"], "--rows and --columns go together"),
        (["table", "x", "--rows", "encoder", "--columns", "measure", "--where", "a"], "--where a: write KEY=VALUE"),
        (["table", "x", "--output", "x.pdf"], "--output x.pdf: end it in .md, .tex, .csv, .txt"),
        (["train", "--remeasure"], "--remeasure is for a run that lies there"),
    ],
)
def test_a_mistake_is_one_line_with_what_is_meant(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err.splitlines()[0]


def test_a_bug_is_no_mistake_of_the_user(monkeypatch):
    """What is no AttnfaithError keeps its traceback, whatever its kind; so does one that is asked for."""
    for error in (ValueError("a"), OSError("b"), ImportError("c"), KeyError("e")):

        def broken(_words, error=error):
            raise error

        monkeypatch.setitem(cli.COMMANDS, "train", broken)
        with pytest.raises(type(error)):
            cli.main(["train"])
    monkeypatch.setenv("ATTNFAITH_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no run or record at nowhere"):
        cli.main(["report", "nowhere"])


@pytest.mark.parametrize("kind", listing.KINDS)
def test_lists_have_a_line_each(kind, capsys):
    shown = says(capsys, "list", kind, code=0).splitlines()
    names = says(capsys, "list", kind, "--names", code=0).splitlines()
    assert len(shown) == len(names) > 1
    for line, name in zip(shown, names, strict=True):
        assert re.match(rf"{re.escape(name)} +\S.{{9,}}", line), line


def test_lists_are_what_the_package_has(capsys):
    from attnfaith.data.pairs import PAIRS
    from attnfaith.data.registry import DATASETS
    from attnfaith.measurement.registry import names as all_measures
    from attnfaith.models.encoders import ENCODERS
    from attnfaith.models.projections import PROJECTIONS

    def names(kind, *words):
        return set(says(capsys, "list", kind, *words, "--names", code=0).split())

    assert names("measures") == set(all_measures())
    assert (names("encoders"), names("projections")) == (set(ENCODERS), set(PROJECTIONS))
    assert names("datasets") == {*DATASETS, *PAIRS}
    assert "meister_2021/sst.yaml" in names("recipes") and "planted_evidence/study.yaml" in names("studies")
    assert not names("recipes") & names("studies")
    assert {"meister_2021/sst.yaml"} < names("recipes", "SST") < names("recipes")


@pytest.mark.parametrize("shell", setup.SHELLS)
def test_a_script_for_each_shell(shell, capsys):
    script = says(capsys, "completion", shell, code=0)
    for word in (*cli.COMMANDS, "attnfaith list encoders --names", "overwrite_output_dir", "learning_rate"):
        assert word in script


def test_bash_completes(tmp_path, capsys):
    """The script in a real bash: commands, options, and names that it asks the command for."""
    (tmp_path / "script").write_text(says(capsys, "completion", "bash", code=0))
    asked = (
        "source ./script\n"
        'attnfaith() { echo "asked $*" >&2; echo bilstm cnn; }\n'
        'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); '
        '_shtab_attnfaith attnfaith "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; echo "${COMPREPLY[@]}"; }\n'
        "try attnfaith tra; try attnfaith train --encode; try attnfaith train --encoder b; try attnfaith list enc\n"
    )
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["train", "--encoder", "bilstm", "encoders"]
    assert "asked list encoders --names" in done.stderr


def test_nothing_that_takes_long_is_imported_before_the_arguments_are_read(tmp_path):
    """Help and lists load none of the large libraries, what is mistyped no torch; either within two seconds of CPU."""
    (tmp_path / "own.csv").write_text("review,label\na,0\n")
    (tmp_path / "config.json").write_text("{}")
    light = ["--help", "--version", "list encoders", "nonsense", "train --encder cnn"]
    mistakes = ["measure no/where/at/all", "measure . --data.path own.cvs", "measure . --data.path own.csv --add gradeint"]
    mistakes += ["measure . --data.path own.csv --data.text reveiw", "train --data.path own.csv --data.text reveiw"]
    mistakes += ["train --producers gradeint", "roar . --output o --measures gradeint", "view . text --measure atention"]
    mistakes += [f"{command} no/where/at/all" for command in ("view", "space", "reproduce", "study", "show", "report")]
    script = (
        "import sys, time; from attnfaith.cli import main\n"
        f"for words in {light!r}: main(words.split())\n"
        "large = {'torch', 'transformers', 'datasets', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "print(sorted(large), time.process_time() < 2)\n"
        f"print([main(words.split()) for words in {mistakes!r}] == [2] * {len(mistakes)}, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[] True", "True False"], done.stdout[-500:]


@pytest.mark.parametrize("name", ["train", "measure"])
def test_launchers_are_the_commands(name, repository, monkeypatch, capsys):
    """recipes/<name>.py gives the command of that name what stands on its command line; so does `python -m attnfaith`."""
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(repository / "recipes" / f"{name}.py"), run_name="__main__")
    assert not ended.value.code
    assert f"usage: attnfaith {name} " in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["attnfaith", name, "--help"])
    monkeypatch.delitem(sys.modules, "attnfaith.__main__", raising=False)
    with pytest.raises(SystemExit):
        runpy.run_module("attnfaith", run_name="__main__")
    assert f"usage: attnfaith {name} " in capsys.readouterr().out
