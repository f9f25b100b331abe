"""What a command is: a function that takes parsed arguments, and what its help and its parser are made of."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from attnfaith.recipes.options import Parser


COMMANDS: dict[str, Callable[[Sequence[str] | None], object]] = {}
"""Name -> command, which takes words, those of the process where it is given None."""


@dataclass(frozen=True)
class Command:
    """One command. The first line of its function's docstring is its summary, the rest its description."""

    name: str
    function: Callable[[SimpleNamespace], object]
    arguments: Sequence[tuple[tuple[str, ...], dict]]
    how: dict = field(default_factory=dict)

    @property
    def summary(self) -> str:
        return self.function.__doc__.partition("\n")[0]

    def parser(self) -> "Parser":
        from attnfaith.recipes.options import Parser

        parser = Parser(self.name, self.function.__doc__, **self.how)
        for names, how in self.arguments:
            parser.add_argument(*names, **how)
        return parser.finish()

    def __call__(self, words: Sequence[str] | None = None) -> object:
        """Read the words and carry out the command. What follows a lone -- is `rest`, for whom the command starts."""
        words, rest = list(sys.argv[1:] if words is None else words), []
        if "--" in words:
            words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
        args = self.parser().parse_args(words)
        args.rest = rest
        return self.function(args)


def argument(*names: str, **how) -> tuple[tuple[str, ...], dict]:
    """One argument, as argparse's `add_argument` takes it."""
    return names, how


def flag(*names: str, **how) -> tuple[tuple[str, ...], dict]:
    """An option without a value."""
    return names, {"action": "store_true", **how}


def command(*arguments, name: str | None = None, **how) -> Callable:
    """Make a function a command. how: `examples` and `keys` of its parser."""

    def add(function):
        made = Command(name or function.__name__.rstrip("_"), function, arguments, how)
        COMMANDS[made.name] = made
        return function

    return add
