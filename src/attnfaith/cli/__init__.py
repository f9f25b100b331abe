"""The command line. A command is one module here: its docstring's first line says what it does, `parser` makes its
arguments, `main` does it. None of them imports at its top what takes long: help is there at once.
"""

import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from attnfaith import __version__
from attnfaith.cli.processes import tell_parent
from attnfaith.errors import AttnfaithError, excerpt
from attnfaith.escaping import printable
from attnfaith.files import refusals
from attnfaith.usage import Parser, UsageError


@dataclass(frozen=True)
class Command:
    """One command: its name, and the module of this package that holds it."""

    name: str
    module: str = ""

    def load(self) -> ModuleType:
        return importlib.import_module(f"{__name__}.{self.module or self.name}")

    @property
    def summary(self) -> str:
        """One line on what it does."""
        return self.load().__doc__.splitlines()[0]

    @property
    def __name__(self) -> str:
        return self.name

    def parser(self) -> Parser:
        return self.load().parser()

    def __call__(self, arguments: Sequence[str] | None = None) -> object:
        return self.load().main(arguments)


GROUPS: dict[str, tuple[Command, ...]] = {
    "Train and measure": (Command("train"), Command("measure"), Command("report")),
    "Look": (
        Command("list", "listing"),
        Command("show"),
        Command("view"),
        Command("space"),
        Command("compare"),
        Command("table"),
    ),
    "Many runs": (Command("study"), Command("release"), Command("roar")),
    "On the Hub": (Command("push"), Command("cards"), Command("reproduce"), Command("eraser")),
    "Set up": (Command("completion"), Command("install-metric", "install_metric")),
}
COMMANDS: dict[str, Callable[[Sequence[str] | None], object]] = {
    command.name: command for group in GROUPS.values() for command in group
}


def usage() -> str:
    """What `attnfaith --help` shows."""
    width = max(map(len, COMMANDS))
    lines = [
        "usage: attnfaith COMMAND ...",
        "",
        "Does attention explain what a model does? Train, measure, compare, publish.",
    ]
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {command.name:{width}}  {command.summary}" for command in commands)]
    lines += [
        "",
        "attnfaith COMMAND --help says what a command takes, with examples; attnfaith --version which one this is.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what the user can mend is one line on standard error and exit code 2."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or [""]
    if name in COMMANDS:
        return guarded(COMMANDS[name], rest)
    if name in ("--version", "-V"):
        print(f"attnfaith {__version__}")
        return 0
    if name not in ("", "-h", "--help", "help"):
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        print(f"error: unknown command {excerpt(name)}{hint} Known: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if rest and rest[0] in COMMANDS:  # attnfaith help train
        return main([rest[0], "--help"])
    print(usage())
    return 0 if name else 2


def guarded(command: Callable, arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. An AttnfaithError is told in one line, without its traceback, as is what the system
    refuses (a full disk); any other exception is a fault of the package and goes on.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:  # two processes on two cores must not start two threads each
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["MPLBACKEND"] = "Agg"  # figures become files; a notebook's own backend may be unknown to this Python
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    try:
        with refusals(getattr(command, "__name__", "the command")):
            command(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has seen enough: `attnfaith list recipes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        return 141
    except AttnfaithError as error:
        if os.environ.get("ATTNFAITH_TRACEBACK"):
            raise
        message = printable(" ".join(str(error).split()) + _hint(error))
        if not tell_parent(message):
            print(f"error: {message}\n(set ATTNFAITH_TRACEBACK=1 for the traceback)", file=sys.stderr)
        return 2
    return 0


def _hint(error: AttnfaithError) -> str:
    """Of an unknown option that is the key of a recipe: which commands take it."""
    if not (isinstance(error, UsageError) and error.option):
        return ""
    from attnfaith.recipes.overrides import is_key

    key = error.option.removeprefix("--")
    return f" (--{key} is a key of a recipe: train takes all of them, measure those of `measure`)" if is_key(key) else ""
