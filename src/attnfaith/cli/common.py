"""What commands share: options for several processes, and arguments that are keys of a recipe."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from attnfaith.cli.processes import launch
from attnfaith.errors import AttnfaithError
from attnfaith.usage import Parser


RECIPE, RECORD, REPORT = "recipe.yaml", "record.parquet", "report"  # in the folder of a run


def is_main_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def recipe_parser(name: str, description: str, *sections: str, examples: Sequence[str] = ()) -> Parser:
    """A parser whose help lists the keys of a recipe, all or those of some sections, and that leaves them to `recipes`."""
    from attnfaith import recipes

    return Parser(name, description, examples=examples, keys=recipes.describe(*sections), sections=sections)


def add_processes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes", type=int, metavar="N", help="work in so many processes on this machine, on a GPU each where there are"
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="NAME", help="where the model is put, such as cpu or cuda:0")


def add_producers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--add",
        nargs="+",
        default=[],
        metavar="NAME",
        help="measures beside those of the recipe (`attnfaith list measures`)",
    )


def read(parser: Parser, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """A command's own arguments, and the keys of the recipe with their values, as `recipes.load` takes them.

    Raises UsageError, or RecipeError for a key that neither the command nor a recipe has.
    """
    from attnfaith.recipes.overrides import split

    words = sys.argv[1:] if arguments is None else arguments
    own, overrides = split(words, parser._option_string_actions, parser.command, parser.sections)
    return parser.parse_args(own), overrides


def with_producers(known: argparse.Namespace, path: Path | None, overrides: Sequence[str]) -> list[str]:
    """The overrides with what `--add` names beside the producers of the recipe."""
    from attnfaith import recipes

    added = [name for word in known.add for name in word.split(",") if name]
    if not added:
        return list(overrides)
    producers = recipes.load(path, overrides).measure.producers
    return [*overrides, f"--measure.producers={json.dumps([*dict.fromkeys([*producers, *added])])}"]


def check_producers(recipe) -> None:
    """Raises AttnfaithError for a measure or an option that there is not, before what takes long is imported."""
    from attnfaith.measurement import registry

    reads = "texts" if recipe.model.type is None else "pairs"
    registry.check_options(registry.check_names(recipe.measure.producers, reads), recipe.measure.options, reads)


def in_processes(command: str, processes: int, arguments: Sequence[str] | None) -> None:
    """Do a command in several processes: its own arguments but for their number. Raises SystemExit where they fail."""
    if processes < 1:
        raise AttnfaithError(f"--processes {processes}: at least 1")
    words = without_option("--processes", arguments)
    if code := launch(command, words, processes):
        raise SystemExit(code)


def without_option(name: str, arguments: Sequence[str] | None, *, several: bool = False) -> list[str]:
    """The arguments without an option and its value, or its values up to the next option."""
    rest, left = [], list(sys.argv[1:] if arguments is None else arguments)
    while left:
        word = left.pop(0)
        if word == name:
            while left and not left[0].startswith("--"):
                left.pop(0)
                if not several:
                    break
        elif not word.startswith(f"{name}="):
            rest.append(word)
    return rest
