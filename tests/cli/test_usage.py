"""Help, versions, mistakes in what is typed, lists and completion: what a user meets before anything is measured."""

import re
import shlex
import subprocess
import sys

import pytest

from attnfaith import __version__, cli
from attnfaith.cli import listing
from attnfaith.data.registry import DATASETS, PAIRS
from attnfaith.measurement.registry import names as all_measures
from attnfaith.models.encoders import ENCODERS
from attnfaith.models.projections import PROJECTIONS
from attnfaith.recipes.options import KEYS
from attnfaith.recipes.schema import SECTIONS


def output_of(capsys, *words):
    """Return what a command that must succeed prints."""
    assert cli.main(list(words)) == 0
    return capsys.readouterr().out


def test_help_groups_every_command_once(capsys):
    text = output_of(capsys, "--help")
    assert "\nTrain and measure:\n" in text
    for name, command in cli.COMMANDS.items():
        assert len(re.findall(rf"^  {name} +{re.escape(command.summary)}$", text, re.M)) == 1
    assert cli.main([]) == 2 and output_of(capsys, "--version").endswith(f"attnfaith {__version__}\n")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_a_command(name, capsys):
    """Synopsis, examples that its parser takes, options; of train and measure the keys of a recipe."""
    with pytest.raises(SystemExit, match="^0$"):
        cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: attnfaith {name} [-h]") and "\noptions:\n" in text
    examples = re.findall(r"^  attnfaith (.*)$", text.partition("\nexamples:\n")[2], re.M)
    assert examples or name == "install-metric"
    for example in examples:
        first, *words = shlex.split(re.split("[#>]", example)[0])
        cli.COMMANDS[name].parser().parse_args(words)
        assert first == name
    sections = {"train": SECTIONS, "measure": {"data", "measure"}}.get(name, set())
    for key in (key for key in KEYS if key.section and name != "reproduce"):
        assert bool(re.search(rf"\n  --{key.name}[ ,]", text)) == (key.section in sections), key


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tran", "did you mean 'train'?"),
        ("report x --exmples 3", "no option --exmples; did you mean --examples?"),
        ("report", "attnfaith report: the following arguments are required: RUN"),
        ("report x --examples many", "--examples: invalid int value: 'many'"),
        ("train --encder cnn", "no option --encder; did you mean --encoder?"),
        ("train --learning_rate fast", "recipe.training.learning_rate='fast'"),
        ("measure run --limit 5 more", "unrecognized arguments: more"),
        ("list encodrs", "argument KIND: invalid choice: 'encodrs'"),
        ("list recipes no-such", "no line of recipes holds 'no-such'"),
        ("table x --rows encoder", "--rows and --columns go together"),
        ("table x --where projection=softmax", "--where only with both"),
        ("table x --output x.pdf", "--output x.pdf: end it in .md, .tex, .csv, .txt"),
        ("train --producers gradent --output_dir o", "did you mean 'gradient'"),
        ("measure model --data.path texts.csv --producer gradient", "did you mean --producers"),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(words, message, capsys):
    assert cli.main(words.split()) == 2
    assert message in capsys.readouterr().err.splitlines()[0]


def test_a_bug_has_its_traceback_and_a_mistake_has_one_on_request(monkeypatch):
    def broken(_words):
        raise OSError("a bug")

    monkeypatch.setitem(cli.COMMANDS, "train", broken)
    with pytest.raises(OSError, match="a bug"):
        cli.main(["train"])
    monkeypatch.setenv("ATTNFAITH_TRACEBACK", "1")
    with pytest.raises(ValueError, match="no run or record at nowhere"):
        cli.main(["report", "nowhere"])


@pytest.mark.parametrize("kind", listing.KINDS)
def test_lists_have_a_line_for_each_name(kind, capsys):
    lines = output_of(capsys, "list", kind).splitlines()
    names = output_of(capsys, "list", kind, "--names").splitlines()
    registered = {"measures": all_measures(), "encoders": ENCODERS, "projections": PROJECTIONS}
    registered["datasets"] = {*DATASETS, *PAIRS}
    assert set(names) == set(registered.get(kind, names)) and len(names) > 1
    for line, name in zip(lines, names, strict=True):
        assert re.match(rf"{re.escape(name)} +\S.{{9,}}", line), line
    if kind == "recipes":
        assert "meister_2021/sst.yaml" in output_of(capsys, "list", kind, "SST", "--names").split() != names
        assert "planted_evidence/study.yaml" not in names


@pytest.mark.parametrize("shell", listing.SHELLS)
def test_completion(shell, tmp_path, capsys):
    """The script of each shell; in a real bash it completes commands, options, and names that it asks the command for."""
    script = output_of(capsys, "completion", shell)
    assert "attnfaith list encoders --names" in script and "learning_rate" in script
    if shell == "bash":
        (tmp_path / "script").write_text(script)
        lines = """
            source ./script
            attnfaith() { echo "asked $*" >&2; echo bilstm cnn; }
            try() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _shtab_attnfaith attnfaith "${@: -1}" "${@: -2:1}"
                    echo "${COMPREPLY[@]}"; }
            try attnfaith tra; try attnfaith train --encode; try attnfaith train --encoder b; try attnfaith list enc"""
        done = subprocess.run(["bash", "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["train", "--encoder", "bilstm", "encoders"]
        assert "asked list encoders --names" in done.stderr


def test_nothing_that_takes_long_is_imported_before_the_arguments_are_read(tmp_path):
    """Help and lists load none of the large libraries, what is mistyped no torch; either within two seconds of CPU."""
    (tmp_path / "own.csv").write_text("review,label\na,0\n")
    (tmp_path / "config.json").write_text("{}")
    light = ["--help", "--version", "list encoders", "nonsense", "train --encder cnn"]
    mistakes = ["measure no/where/at/all", "measure . --data.path own.cvs", "measure . --data.path own.csv --add gradeint"]
    mistakes += ["train --data.path own.csv --data.text reveiw", "train --producers gradeint", "train --data.name sstt"]
    mistakes += [f"train --{part} adittive" for part in ("encoder", "alignment", "projection")]
    mistakes += ["view . text --measure atention"]
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
