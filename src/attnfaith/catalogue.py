"""What can be measured: every measure of importance and every experiment, of texts and of pairs of sentences, read from the
modules that hold them.

Nothing is imported but the standard library: names are those of the files, and what a module says of itself (docstring,
NEEDS, COST, COLUMNS, the options of `measure` and the source) is read from its text, without torch.
"""

import ast
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attnfaith.errors import AttnfaithError, excerpt, nearest


KINDS = {"measure": "importance", "experiment": "experiments"}
"""Kind of a producer -> the folder that holds its module."""
SEQUENCES = "sequences"
"""The folder of both kinds for models from sequences to sequences; a measure adds a column alignment_…."""
COSTS = {
    "nothing": "the model is not asked",
    "reading": "about what reading the text once costs",
    "gradient": "a few readings with gradients",
    "tokens": "a reading or a gradient for every token, or more",
    "draws": "as many readings as it takes steps or draws samples",
}
"""What a module's COST may be, cheapest first."""
_SOURCE = re.compile(r"Source: (.*?)(?:\n\s*\n|\Z)", re.S)
_SENTENCE = re.compile(r"\. (?=[A-Z])")


@dataclass(frozen=True)
class Entry:
    """One measure or experiment.

    of: "texts" or "sequences", what it is of. kind: "measure" or "experiment". what: a line on it. needs: capabilities that
    it asks of a model, by name. options: {keyword: default as it is written}. cost: one of COSTS. signed: of a measure,
    whether a negative score is evidence against what is explained. source: the paper, "" where there is none. module: its
    full name.
    """

    name: str
    kind: str
    what: str
    needs: tuple[str, ...]
    options: dict[str, str]
    cost: str
    signed: bool
    source: str
    module: str
    of: str = "texts"


@cache
def entries(of: str = "texts") -> tuple[Entry, ...]:
    """Every measure, then every experiment, each kind from cheap to dear and then by name; of "texts" or "sequences".

    Raises AttnfaithError for anything else.
    """
    if of not in ("texts", SEQUENCES):
        raise AttnfaithError(f"there are no measures of {excerpt(of)}: there are those of 'texts' and of 'sequences'")
    here, folders = Path(__file__).parent, [(None, SEQUENCES)] if of == SEQUENCES else KINDS.items()
    listed = [
        _entry(path, kind, folder)
        for kind, folder in folders
        for path in (here / folder).glob("*.py")
        if not path.name.startswith("_")
    ]
    order = [*KINDS], [*COSTS]
    return tuple(sorted(listed, key=lambda one: (order[0].index(one.kind), order[1].index(one.cost), one.name)))


def named(names: str | Iterable[str], kind: str | None = None, of: str = "texts") -> list[Entry]:
    """The entries of one name or several, in this order; of one kind, or of either; of texts or of sequences.

    Raises AttnfaithError for a name that there is not, with the nearest one, for one of the other kind, and for one twice.
    """
    known, chosen = {one.name: one for one in entries(of)}, []
    what = kind or "measure or experiment"
    if not isinstance(names, Iterable):
        raise AttnfaithError(f"{kind or 'name'}s={excerpt(names)}: give a list of names of measures or experiments")
    for name in [names] if isinstance(names, str) else names:
        one = known.get(name) if isinstance(name, str) else None
        if one is None:
            there = sorted(one.name for one in known.values() if kind in (None, one.kind))
            raise AttnfaithError(f"no {what} is called {excerpt(name)}{nearest(name, there)}")
        if kind is not None and one.kind != kind:
            raise AttnfaithError(f"'{name}' is no {kind} but a{'n' * (one.kind[0] in 'aeiou')} {one.kind}: name it there")
        if one in chosen:
            raise AttnfaithError(f"'{name}' is named twice")
        chosen.append(one)
    return chosen


def _entry(path: Path, kind: str | None, folder: str) -> Entry:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = _constants(tree)
    if kind is None:
        kind = "measure" if "'alignment_" in ast.unparse(constants["COLUMNS"]) else "experiment"
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    measure = functions["measure"]
    documented = [ast.get_docstring(node) or "" for node in (measure, tree, *functions.values())]
    return Entry(
        name=path.stem,
        kind=kind,
        what=inspect.cleandoc(documented[1]).partition("\n\n")[0].replace("\n", " "),
        needs=tuple(sorted(node.value for node in ast.walk(constants["NEEDS"]) if isinstance(node, ast.Constant))),
        options=_options(measure, constants),
        cost=ast.literal_eval(constants["COST"]),
        signed=kind == "measure"
        and any(
            word.arg == "signed" and ast.literal_eval(word.value)
            for call in ast.walk(constants["COLUMNS"])
            if isinstance(call, ast.Call)
            for word in call.keywords
        ),
        source=next((_source(said[1]) for text in documented if (said := _SOURCE.search(text))), ""),
        module=f"attnfaith.{folder}.{path.stem}",
        of=SEQUENCES if folder == SEQUENCES else "texts",
    )


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What names at the top of a module stand for."""
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
                constants |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return constants


def _options(measure: ast.FunctionDef, constants: dict[str, ast.expr]) -> dict[str, str]:
    """The keywords of `measure` beside the seed; a default that is a constant of the module by its value."""
    options = {}
    for argument, default in zip(measure.args.kwonlyargs, measure.args.kw_defaults, strict=True):
        if argument.arg != "seed":
            value = constants.get(default.id, default) if isinstance(default, ast.Name) else default
            options[argument.arg] = ast.unparse(value)
    return options


def _source(text: str) -> str:
    return _SENTENCE.split(" ".join(text.split()))[0].rstrip(".")
