"""Find and set up: lists of measures, parts, data sets, recipes and studies; completion in a shell; the metric."""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from attnfaith.cli.command import COMMANDS, argument, command, flag
from attnfaith.support.errors import AttnfaithError


PACKAGE = Path(__file__).parents[1]
PARTS = ("encoders", "alignments", "projections")
Lines = Iterator[tuple[str, str]]


def _catalogued(kind: str) -> Lines:
    """Measures and parts of models from their catalogue, without torch; and measures of installed packages."""
    own = json.loads((PACKAGE / "measurement" / "measures.json").read_text(encoding="utf-8"))[kind]
    yield from ((name, entry["line"]) for name, entry in own.items())
    if kind not in PARTS:
        from attnfaith.measurement import registry

        yield from ((name, line_of(registry.find(name, kind))) for name in registry.names(kind) if name not in own)


def line_of(measure) -> str:
    """Return the line of a measure: what it does, its role, cost and needs."""
    needs = f"; needs {', '.join(sorted(measure.needs))}" if measure.needs else ""
    facts = f"{measure.role()}, {measure.cost}{', signed' if measure.signed() else ''}{needs}"
    return f"{sentence(measure.summary())} [{facts}]"


def _data_sets() -> Lines:
    from attnfaith.data.registry import DATASETS, PAIRS

    for name, entry in (DATASETS | PAIRS).items():
        facts = ["pairs" if entry.pair else "texts", ", ".join(entry.label_names)]
        if entry.gold:
            facts = ["sentence pairs", f"links {entry.gold.partition(':')[0]}"]
        place = "generated" if entry.built_in else entry.hub_id or "files of your own"
        yield name, " · ".join(filter(None, (*facts, place, entry.citation)))


def _files(*, studies: bool) -> Lines:
    """The YAML files that come with the package: recipes, or studies, which have blocks."""
    from attnfaith import recipes

    for path in sorted(recipes.folder().rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if bool(re.search(r"^blocks:", text, re.M)) == studies:
            comment = re.match(r"(#[^\n]*\n)*", text)[0]
            yield path.relative_to(recipes.folder()).as_posix(), sentence(re.sub(r"^# ?", "", comment, flags=re.M))


KINDS: dict[str, tuple[str, Callable[[], Lines]]] = {
    "measures": ("of texts: importance of tokens, and interventions", partial(_catalogued, "texts")),
    "alignment": ("measures of pairs of sentences, for models from sequences to sequences", partial(_catalogued, "pairs")),
    "encoders": ("which make states of words: --encoder", partial(_catalogued, "encoders")),
    "alignments": ("which make scores of states: --alignment", partial(_catalogued, "alignments")),
    "projections": ("which make attention of scores: --projection", partial(_catalogued, "projections")),
    "datasets": ("that are known by name: --data.name", _data_sets),
    "recipes": ("that come with the package: train --config", partial(_files, studies=False)),
    "studies": ("that come with the package: study", partial(_files, studies=True)),
}


@command(
    argument("kind", nargs="?", choices=tuple(KINDS), metavar="KIND", help=", ".join(KINDS)),
    argument("word", nargs="?", default="", metavar="WORD", help="only lines that hold this"),
    flag("--names", help="names alone, for scripts"),
    examples=("list measures", "list recipes sst", "list datasets --names"),
)
def list_(args):
    """List measures, encoders, projections, data sets, recipes and studies, a line each."""
    lines = KINDS[args.kind][1]() if args.kind else [(name, text) for name, (text, _) in KINDS.items()]
    lines = [(name, text) for name, text in lines if args.word.lower() in f"{name} {text}".lower()]
    if not lines:
        raise AttnfaithError(f"no line of {args.kind} holds {args.word!r}; `attnfaith list {args.kind}` shows all")
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(name if args.names else f"{name:{width}}  {text}".rstrip())


def sentence(text: str) -> str:
    """Return the first sentence of a text, in one line."""
    text = " ".join(text.split())
    return re.split(r"(?<=[a-z0-9)\"'])\. (?=[A-Z])", text, maxsplit=1)[0].rstrip(".")


SHELLS = ("bash", "zsh", "fish")
LISTS = {
    "config": "recipes",
    "measure.producers": "measures",
    "add": "measures",
    "measures": "measures",
    "model.encoder": "encoders",
    "model.alignment": "alignments",
    "model.projection": "projections",
    "data.name": "datasets",
}
"""Options and keys of a recipe, and the list of their values; others are completed as files."""


@command(
    argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS)),
    examples=(
        "completion bash > ~/.local/share/bash-completion/completions/attnfaith",
        "completion zsh > ~/.zfunc/_attnfaith       # a folder of fpath",
        "completion fish > ~/.config/fish/completions/attnfaith.fish",
    ),
)
def completion(args):
    """A script that completes commands, options and names in bash, zsh or fish."""
    import shtab

    whole = argparse.ArgumentParser(prog="attnfaith", description="Does attention explain what a model does?")
    whole.add_argument("--version", action="store_true", help="which version this is")
    subparsers = whole.add_subparsers(dest="command", parser_class=argparse.ArgumentParser)
    for name, entry in COMMANDS.items():
        parser = entry.parser()
        for action in parser._actions:
            if action.dest in LISTS:
                action.complete = shtab.cmd(f"attnfaith list {LISTS[action.dest]} --names")
            elif action.choices is None:
                action.complete = shtab.FILE
        subparsers.add_parser(name, help=entry.summary, parents=[parser], add_help=False)
    print(shtab.complete(whole, shell=args.shell))


@command()
def install_metric(_args):
    """Make `evaluate.load("attention_faithfulness")` work without importing attnfaith."""
    from attnfaith.metrics import registration

    print(f"installed: {registration.install_metric()}")
