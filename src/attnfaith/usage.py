"""How a command reads its arguments: help with examples, and a mistake as one line that names what was meant."""

import argparse
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import NoReturn

from attnfaith.errors import AttnfaithError, closest, cut, excerpt


MOST_LISTED = 300  # characters of all that is allowed


class UsageError(AttnfaithError):
    """Arguments that a command does not take. option: the one that it does not know, such as "--exmples"; "" for another
    mistake.
    """

    def __init__(self, message: str, option: str = ""):
        super().__init__(message)
        self.option = option


class Parser(argparse.ArgumentParser):
    """The arguments of one command. examples: what a user may type, without "attnfaith". keys: those of a recipe, in words,
    which the command takes too; "" of one that takes none. sections: the sections of a recipe that they are of; () all.
    """

    def __init__(
        self,
        command: str,
        description: str,
        *,
        examples: Sequence[str] = (),
        keys: str = "",
        sections: Sequence[str] = (),
        **how,
    ):
        shown = "\n\n".join(textwrap.fill(" ".join(part.split()), 100) for part in description.split("\n\n"))
        if examples:
            shown += "\n\nexamples:\n" + "\n".join(f"  attnfaith {example}" for example in examples)
        how = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **how}
        super().__init__(prog=f"attnfaith {command}", description=shown, **{"epilog": keys or None, **how})
        self.command, self.examples, self.keys, self.sections = command, examples, keys, sections

    def format_usage(self) -> str:
        """The synopsis, with the keys of a recipe where the command takes them."""
        return super().format_usage().rstrip() + (" [--key value ...]\n" if self.keys else "\n")

    def format_help(self) -> str:
        return super().format_help().replace(super().format_usage(), self.format_usage(), 1)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError: what was given, the nearest that is allowed, and where all of it is listed."""
        if match := re.fullmatch(r"unrecognized arguments: (.*)", message, re.S):
            raise self._unknown(match[1].split() or [match[1]])
        if match := re.fullmatch(r"argument (.*?): invalid choice: (.*) \(choose from (.*)\)", message, re.S):
            known = re.findall(r"'([^']*)'", match[3])
            raise UsageError(f"{match[1]} {match[2]} is not known{meant(match[2].strip(chr(39)), known)}")
        if match := re.fullmatch(r"the following arguments are required: (.*)", message):
            raise UsageError(f"{self.prog} needs {match[1]}; usage: {' '.join(self.format_usage().split()[1:])}")
        raise UsageError(f"{message.removeprefix('argument ')}; `{self.prog} --help` says what it takes")

    def _unknown(self, words: Sequence[str]) -> UsageError:
        options = [word for word in words if word.startswith("-")]
        if not options and self.keys:
            return UsageError(
                f"{excerpt(words[0])} is not an override; write --key value, for example --training.learning_rate 1e-4"
            )
        if not options:
            return UsageError(
                f"{self.prog} does not take {excerpt(' '.join(words))}; `{self.prog} --help` says what it takes"
            )
        option = options[0].partition("=")[0]
        known = [name for name in self._option_string_actions if name.startswith("--")]
        return UsageError(f"{self.prog} has no option {cut(option, 60)}{meant(option, known)}", option)


def meant(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest, and all that are known where they are few."""
    near, listed = closest(name, known), ", ".join(known)
    return (f"; did you mean {near}?" if near else ".") + (f" Known: {listed}" if len(listed) <= MOST_LISTED else "")
