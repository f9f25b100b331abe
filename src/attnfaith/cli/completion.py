"""A script that completes commands, options and names in bash, zsh or fish."""

from argparse import Action, ArgumentParser
from collections.abc import Iterable, Iterator, Sequence

from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


SHELLS = ("bash", "zsh", "fish")
EXAMPLES = (
    "completion bash > ~/.local/share/bash-completion/completions/attnfaith",
    "completion zsh > ~/.zfunc/_attnfaith       # a folder of fpath",
    "completion fish > ~/.config/fish/completions/attnfaith.fish",
)
NAMES = {
    "config": "list recipes",
    "producers": "list measures",
    "add": "list measures",
    "measures": "list measures",
    "encoder": "list encoders",
    "alignment": "list alignments",
    "projection": "list projections",
    "data.name": "list datasets",
}
"""The lists that hold what an option may be; of a key of a recipe by the last word, or the whole."""
FOLDERS, FILES = ("run", "source", "output_dir", "base"), ("study", "output", "cards", "vectors")


def parser() -> Parser:
    made = Parser(
        "completion",
        "Print a script that the shell reads, so that Tab completes commands, options and names.",
        examples=EXAMPLES,
    )
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return made


def main(arguments: Sequence[str] | None = None) -> str:
    known = parser().parse_args(arguments)
    try:
        import shtab
    except ImportError as error:
        raise AttnfaithError("completion needs shtab: pip install shtab") from error

    script = shtab.complete(_whole(), shell=known.shell)
    print(script)
    return script


def _whole() -> ArgumentParser:
    """One parser with every command, and the keys of a recipe as options of those that take them."""
    from attnfaith.cli import GROUPS

    whole = ArgumentParser(prog="attnfaith", description="Does attention explain what a model does?")
    whole.add_argument("--version", action="store_true", help="which version this is")
    commands = whole.add_subparsers(dest="command", parser_class=ArgumentParser)
    for command in (command for group in GROUPS.values() for command in group):
        one = command.parser()
        for name, doc in _keys(command.name, one._option_string_actions):
            one.add_argument(f"--{name}", help=doc)
        for action in one._actions:
            _say_what_completes(action)
        commands.add_parser(command.name, help=command.summary, parents=[one], add_help=False)
    return whole


def _keys(command: str, options: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Keys of a recipe that a command with these options takes, short where that is clear, and what they mean."""
    from attnfaith.recipes.overrides import keys

    sections = {"train": (), "measure": ("measure",)}.get(command)
    yield from () if sections is None else keys(*sections, taken=options)


def _say_what_completes(action: Action) -> None:
    import shtab

    last = action.dest.rpartition(".")[2]
    if lists := NAMES.get(action.dest, NAMES.get(last)):
        calls = "; ".join(f"attnfaith list {kind} --names" for kind in lists.split() if kind != "list")
        action.complete = shtab.cmd(calls)
    elif last in FOLDERS:
        action.complete = shtab.DIRECTORY
    elif last in FILES:
        action.complete = shtab.FILE
