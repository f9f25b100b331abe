"""The command line. A command is a function of the modules here, which import nothing slow at their top: help comes at once,
and mistakes in arguments are reported before a model is loaded.
"""

import os
import sys
import warnings
from collections.abc import Callable, Sequence

from attnfaith import __version__
from attnfaith.cli import hub, listing, records, run
from attnfaith.cli.command import COMMANDS
from attnfaith.support.errors import AttnfaithError, excerpt, nearest
from attnfaith.support.files import refusals


__all__ = ["guarded", "main", "usage"]


def usage() -> str:
    """Return the text of `attnfaith --help`."""
    width = max(map(len, COMMANDS))
    lines = ["usage: attnfaith COMMAND ...", ""]
    lines += ["Does attention explain what a model does? Train, measure, compare, publish."]
    for module in (run, records, hub, listing):
        commands = [command for command in COMMANDS.values() if command.function.__module__ == module.__name__]
        lines += ["", module.__doc__.partition(":")[0] + ":"]
        lines += [f"  {command.name:{width}}  {command.summary}" for command in commands]
    lines += ["", "attnfaith COMMAND --help lists what a command takes, with examples; attnfaith --version its version."]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; an AttnfaithError becomes one line on standard error and exit code 2."""
    name, *rest = list(sys.argv[1:] if words is None else words) or [""]
    if name in COMMANDS:
        return guarded(COMMANDS[name], rest)
    if name in ("", "-h", "--help", "--version"):
        text = f"attnfaith {__version__}" if name == "--version" else usage()
        return guarded(lambda _: print(text, flush=True), rest) or (0 if name else 2)
    print(f"error: unknown command {excerpt(name)}{nearest(name, COMMANDS)}", file=sys.stderr)
    return 2


def guarded(command: Callable, words: Sequence[str]) -> int:
    """Run one command and return its exit code. An AttnfaithError, or a refusal of the system such as a full disk, is
    printed in one line; any other exception is a fault of the package and goes on.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:  # two processes on two cores must not start two threads each
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["MPLBACKEND"] = "Agg"  # figures become files; a notebook's own backend may be unknown to this Python
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    try:
        with refusals(f"{getattr(command, 'name', 'the command')} stopped"):
            command(words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has seen enough: `attnfaith list recipes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        return 141
    except AttnfaithError as error:
        if os.environ.get("ATTNFAITH_TRACEBACK"):
            raise
        print(f"error: {error}\n(set ATTNFAITH_TRACEBACK=1 for the traceback)", file=sys.stderr)
        return 2
    return 0
