"""Help, versions, mistakes in what is typed, lists and completion: what a user meets before anything is measured."""

import re
import shlex
import subprocess
import sys

import pytest
import shtab

from attnfaith import __version__, cli
from attnfaith.cli import completion, listing
from attnfaith.recipes import overrides


def says(capsys, *words, code=2):
    """What a command that must end with this code prints: on standard error where it fails."""
    assert cli.main(list(words)) == code
    shown = capsys.readouterr()
    if code:
        assert shown.err.endswith("\n(set ATTNFAITH_TRACEBACK=1 for the traceback)\n") and shown.err.count("\n") == 2
        return shown.err.splitlines()[0].removeprefix("error: ")
    return shown.out


def test_the_version(capsys):
    assert says(capsys, "--version", code=0) == f"attnfaith {__version__}\n"


def test_help_groups_every_command_once():
    shown = cli.usage()
    assert [title for title in cli.GROUPS if f"\n{title}:\n" not in shown] == []
    for name in cli.COMMANDS:
        assert len(re.findall(rf"^  {name} ", shown, re.M)) == 1


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_a_command_has_synopsis_examples_and_options(name, capsys):
    with pytest.raises(SystemExit, match="^0$"):
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: attnfaith {name} [-h]")
    places = [shown.index("\noptions:\n")]
    if name != "install-metric":
        examples = re.search(r"\nexamples:\n((?:  attnfaith .*\n)+)", shown)
        places.insert(0, examples.start())
        assert all(line.split()[1] == name for line in examples[1].splitlines())
    assert places == sorted(places)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_examples_are_taken_by_their_parser(name):
    parser = cli.COMMANDS[name].parser()
    assert parser.examples or name == "install-metric"
    for example in parser.examples:
        words = shlex.split(re.split("[#>]", example)[0])
        assert words[0] == name
        own = overrides.split(words[1:], parser._option_string_actions)[0] if parser.keys else words[1:]
        parser.parse_args(own)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["report", "x", "--exmples", "3"],
            "attnfaith report has no option --exmples; did you mean --examples\\? Known: --help, ",
        ),
        (
            ["report", "x", "--seed", "3"],
            r"attnfaith report has no option --seed.*\(--seed is a key of a recipe: train takes",
        ),
        (["report"], r"attnfaith report needs RUN; usage: attnfaith report \[-h\]"),
        (["report", "x", "--examples", "many"], "--examples: invalid int value: 'many'; `attnfaith report --help` says"),
        (["study", "x", "--statu"], "attnfaith study has no option --statu; did you mean --status\\?"),
        (["train", "--overwrite_output"], "unknown option --overwrite_output; did you mean --overwrite_output_dir\\?"),
        (["train", "--encder", "cnn"], "unknown option --encder; did you mean --encoder\\?"),
        (["report", "x", "--examples", "3", "--exmples="], "no option --exmples"),
        (["measure", "run", "--limit", "5", "", " "], "' ' is not an override; write --key value"),
        (["measure", "--limt", "3", "run"], "unknown option --limt; did you mean --limit\\?"),
        (["list", "encodrs"], "KIND 'encodrs' is not known; did you mean encoders\\? Known: measures, "),
        (
            ["list", "recipes", "nothing like it"],
            "no line of recipes holds 'nothing like it'; `attnfaith list recipes` shows all",
        ),
        (["completion", "csh"], "SHELL 'csh' is not known.* Known: bash, zsh, fish"),
        (["table", "x", "--rows", "encoder"], "--rows and --columns go together"),
        (["table", "x", "--rows", "encoder", "--columns", "measure", "--where", "a"], "--where a: write KEY=VALUE"),
        (["table", "x", "--output", "x.pdf"], "--output x.pdf: end it in .md, .tex, .csv, .txt"),
        (["train", "--seeds", "1", "2", "1"], "--seeds 1 2 1: 1 is there twice"),
        (["train", "--seeds", "1", "--push_to_hub"], "--push_to_hub with --seeds: push the runs when all are complete"),
    ],
)
def test_a_mistake_is_one_line_with_what_is_meant(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = says(capsys, *words)
    assert re.search(message, shown), shown


def test_a_command_that_is_no_word_is_cut(capsys):
    assert cli.main(["x" * 5000]) == 2
    assert capsys.readouterr().err.startswith(f"error: unknown command '{'x' * 118}….")


def test_bare_names_where_a_list_is_meant():
    wanted = [("measure.producers", ["gradient", "lime"])]
    for words in (
        ["gradient", "lime"],
        ["gradient,lime"],
        ["[gradient, lime]"],
        ["[gradient,", "lime]"],
        ["gradient,", "lime"],
    ):
        assert overrides.parse_overrides(["--producers", *words]) == wanted, words
    assert overrides.parse_overrides(["--producers=gradient,lime"]) == wanted
    assert overrides.parse_overrides(["--producers", "gradient"]) == [("measure.producers", ["gradient"])]
    assert overrides.parse_overrides(["--producers", "[]"]) == [("measure.producers", [])]
    assert overrides.parse_overrides(["--kernel_sizes", "1", "3,5"]) == [("model.kernel_sizes", [1, 3, 5])]
    assert overrides.parse_overrides(["--name", "a,b"]) == [("name", "a,b")], "a text is no list"


def test_keys_of_a_recipe_and_a_commands_own_words_in_any_order():
    options = {"--output": 1, "--add": 1}
    own, keys = overrides.split(["--limit", "500", "run", "--bf16", "--output", "x", "--split=test"], options)
    assert (own, keys) == (["run", "--output", "x"], ["--limit", "500", "--bf16", "--split=test"])
    own, keys = overrides.split(["run", "--producers", "a", "b", "--add", "c", "d"], options)
    assert (own, keys) == (["run", "--add", "c", "d"], ["--producers", "a", "b"])
    own, keys = overrides.split(["--bf16", "run"], options)
    assert (own, keys) == (["run"], ["--bf16"]), "true or false only is the value of a flag"


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

    def names(*kinds):
        return {name for kind in kinds for name in says(capsys, "list", kind, "--names", code=0).split()}

    assert names("measures") == set(all_measures())
    assert (names("encoders"), names("projections")) == (set(ENCODERS), set(PROJECTIONS))
    assert names("datasets") == {*DATASETS, *PAIRS}
    assert "meister_2021/sst.yaml" in names("recipes") and "planted_evidence/encoders.yaml" in names("studies")
    assert not names("recipes") & names("studies")


def test_a_list_of_what_holds_a_word(capsys):
    lines = says(capsys, "list", "recipes", "SST", code=0).splitlines()
    assert 3 < len(lines) < 20 and all("sst" in line.lower() for line in lines)


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_script_for_each_shell(shell, capsys):
    script = says(capsys, "completion", shell, code=0)
    for word in (*cli.COMMANDS, "attnfaith list encoders --names"):
        assert word in script
    assert "overwrite_output_dir" in script and "learning_rate" in script, "options of commands, and keys of recipes"
    assert shell in shtab.SUPPORTED_SHELLS


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


def test_what_is_only_asked_for_imports_nothing_that_takes_long():
    script = (
        "import sys; from attnfaith import cli\n"
        "for words in ('--help', '--version', 'list encoders', 'nonsense'): cli.main(words.split())\n"
        "print(sorted({'torch', 'transformers', 'datasets', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_mistyped_is_named_before_torch_is_imported(tmp_path):
    (tmp_path / "own.csv").write_text("review,label\na,0\n")
    (tmp_path / "config.json").write_text("{}")
    mistakes = ["measure no/where/at/all", "measure . --data.path own.cvs", "measure . --data.path own.csv --add gradeint"]
    mistakes += ["measure . --data.path own.csv --data.text reveiw", "train --data.path own.csv --data.text reveiw"]
    mistakes += ["train --producers gradeint", "roar . --output o --measures gradeint", "view . text --measure atention"]
    mistakes += [f"{command} no/where/at/all" for command in ("view", "space", "reproduce", "study", "show", "report")]
    script = (
        "import sys; from attnfaith.cli import main; print([main(a.split()) for a in sys.argv[1:]], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *mistakes], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{[2] * len(mistakes)} False\n"
