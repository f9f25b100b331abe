"""The command line. A command is a function of the modules here, which import nothing slow at their top: help comes at once,
and mistakes in arguments are reported before a model is loaded.
"""

import os
import sys
from collections.abc import Sequence

from attnfaith import __version__
from attnfaith.cli import hub, listing, records, run
from attnfaith.cli.command import COMMANDS
from attnfaith.support.errors import AttnfaithError, excerpt, nearest
from attnfaith.support.files import refusals


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
    """Run a command and return its exit code. An AttnfaithError, or a refusal of the system such as a full disk, is printed
    in one line, with exit code 2; any other exception is a fault of the package and goes on.
    """
    name, *rest = list(sys.argv[1:] if words is None else words) or [""]
    os.environ["MPLBACKEND"] = "Agg"  # figures become files; a notebook's own backend may be unknown to this Python
    try:
        with refusals(f"{name} stopped"):
            if name in COMMANDS:
                COMMANDS[name](rest)
            elif name in ("", "-h", "--help", "--version"):
                print(f"attnfaith {__version__}" if name == "--version" else usage(), flush=True)
            else:
                raise AttnfaithError(f"unknown command {excerpt(name)}{nearest(name, COMMANDS)}")
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
    return 0 if name else 2
