"""Commands: functions of parsed arguments, with their help and their parser."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace


COMMANDS: dict[str, "Command"] = {}
"""The commands by name."""


@dataclass(frozen=True)
class Command:
    """One command. The first line of its function's docstring is its summary, the rest its description."""

    name: str
    function: Callable[[SimpleNamespace], object]
    arguments: Sequence[tuple[tuple[str, ...], dict]]
    options: dict

    @property
    def summary(self) -> str:
        return self.function.__doc__.partition("\n")[0]

    def parser(self):
        from attnfaith.recipes.options import Parser

        return Parser(self.name, self.function.__doc__, self.arguments, **self.options)

    def __call__(self, words: Sequence[str]) -> object:
        """Parse the words and carry out the command. Words after a lone -- become `rest`, for Snakemake."""
        place = [*words, "--"].index("--")
        args = self.parser().parse_args(words[:place])
        args.rest = words[place + 1 :]
        return self.function(args)


def argument(*names: str, **settings) -> tuple[tuple[str, ...], dict]:
    """Return one argument, as argparse's `add_argument` takes it."""
    return names, settings


def flag(*names: str, **settings) -> tuple[tuple[str, ...], dict]:
    """Return an option without a value."""
    return names, {"action": "store_true", **settings}


def command(*arguments, **options) -> Callable:
    """Make a function a command. options: `examples`, `keys` and `epilog` of its parser."""

    def add(function):
        entry = Command(function.__name__.rstrip("_").replace("_", "-"), function, arguments, options)
        COMMANDS[entry.name] = entry
        return function

    return add


RECORDS = argument("run", nargs="+", metavar="RUN", help="run, record, Hub id, or a folder of runs")
RUNS = argument("run", nargs="+", metavar="RUN", help="folders of finished runs")
OWNER = argument("--to", metavar="OWNER", required=True, help="user or organisation on the Hub that it will belong to")
DEVICE = argument("--device", metavar="NAME", help="where the model is put, such as cpu or cuda:0")
MIX = flag("--mix-versions", help="join records even if different code measured them")
"""Arguments of several commands."""


def is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0
