"""The plan of a study: a YAML file (`Study`) read into cells, each a command, the folder it fills and the cells it needs."""

import fnmatch
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from attnfaith import recipes, record
from attnfaith.recipes import Recipe, RecipeError, section
from attnfaith.record import model_fields, objective_fields
from attnfaith.reporting.analysis import DEFAULT
from attnfaith.support.errors import cut, excerpt
from attnfaith.support.files import RECORD, STATE, read_object


LONGEST_NAME = 200


@section
class Block:
    """A recipe, what it `set`s in it, and a `grid` of values. Each combination is a cell, called <name>-<values>.

    Values in `set` and `after` may hold {key} of the block's grid, and {output_dir}.
    """

    recipe: str
    name: str | None = None
    """that of the recipe's file unless given"""
    set: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    """names of the cells whose runs a cell reads; they stand above it"""


@section
class Study:
    """The keys of a study file."""

    output_dir: str
    """folder of the runs, one folder and one log for each cell"""
    results: str
    """folder of the tables and figures made from all of them"""
    blocks: Annotated[list[Block], Field(min_length=1)]
    """the cells"""
    analysis: str | None = None
    """the paper's own tables and figures: a Python file, by its path from the study's or among those of the package. It
    is run: a study file is code"""
    published: str | None = None
    """CSV of published numbers, for the analysis to show beside the measured ones"""
    tables: list[str] = field(default_factory=lambda: [*DEFAULT])
    """which tables; where not given, all that single cells allow"""


@dataclass(frozen=True)
class Cell:
    """One run of a study: its name, folder, recipe and overrides, the cells whose runs it reads, and its block."""

    name: str
    folder: Path
    recipe: str
    overrides: Sequence[str]
    after: Sequence[str] = ()
    block: str = ""

    @property
    def command(self) -> list[str]:
        """The command that makes the run, or goes on with it."""
        train = [sys.executable, "-m", "attnfaith", "train", "--config", self.recipe]
        return [*train, "--resume_from_checkpoint", *self.overrides]

    @property
    def log(self) -> Path:
        """The log, beside the folder."""
        return self.folder.with_name(f"{self.name}.log")

    @cached_property
    def whole_recipe(self) -> Recipe:
        """The recipe with the overrides. Raises RecipeError with the name of the cell for one that is missing or wrong."""
        with recipes.named(f"cell {self.name}"):
            return recipes.load(self.recipe, self.overrides)


def read_study(path: Path) -> Study:
    """Read a study from a file, or one that comes with the package. Raises RecipeError for a file that is none."""
    path = recipes.find(path, "study")
    tree = recipes.read_file(path, "study")
    with recipes.named(str(path)):
        study = recipes.make_section(Study, tree, "study")
        if study.analysis is None:
            return study
        own = path.parent / study.analysis
        return replace(study, analysis=str(own if own.is_file() else recipes.find(study.analysis, "analysis")))


def trial(study: Study, settings: Sequence[str]) -> Study:
    """Return the study with other settings ("KEY=VALUE") in the recipe of every cell, in folders of its own.

    The runs go to <output_dir>/trial-<digest of the settings> and the tables to results/ in it, unless output_dir and
    results are among the settings. Raises RecipeError for an unknown key and one that a grid varies.
    """
    values = dict(recipes.parse_overrides([f"--{word}" for word in settings]))
    places = {key: str(values.pop(key)) for key in ("output_dir", "results") if key in values}
    for block in study.blocks:
        varied = values.keys() & dict(recipes.parse_overrides([f"--{key}=" for key in block.grid])).keys()
        if varied:
            raise RecipeError(f"--set {min(varied)}: the grid of the study varies it; choose cells with --only")
    if values:
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
        folder = f"{study.output_dir}/trial-{digest}"
        blocks = [replace(block, set={**block.set, **values}) for block in study.blocks]
        study = replace(study, blocks=blocks, output_dir=folder, results=f"{folder}/results")
    return replace(study, **places)


def cells(study: Study) -> list[Cell]:
    """Return the cells of a study, in its order.

    Raises RecipeError for two cells of one name or a name that is no name of a folder, an `after` that names no
    cell above it, and a {key} that the block's grid does not have.
    """
    planned = [cell for block in study.blocks for cell in _block_cells(block, study.output_dir)]
    for number, cell in enumerate(planned):
        earlier = [other.name for other in planned[:number]]
        if cell.name in earlier:
            raise RecipeError(f"two cells are called {cell.name}: vary a key of the grid, or give the block a name")
        if Path(cell.name).name != cell.name or set("{}\n") & set(cell.name) or len(cell.name) > LONGEST_NAME:
            raise RecipeError(f"the cell {excerpt(cell.name)} is no name for a folder: put long values into `set`")
        missing = [name for name in cell.after if name not in earlier]
        if missing:
            raise RecipeError(f"cell {cell.name} is after {excerpt(missing)}, and above it are {excerpt(earlier, 200)} only")
    return planned


def _block_cells(block: Block, output: str) -> Iterator[Cell]:
    prefix = block.name or Path(block.recipe).stem
    for combination in itertools.product(*block.grid.values()):
        chosen = dict(zip(block.grid, combination, strict=True))
        name = "-".join([prefix, *map(str, combination)])
        filled = _fill({"set": block.set, "after": block.after}, {**chosen, "output_dir": output}, f"block {prefix}")
        folder = Path(output) / name
        settings = {"report.page": False, **filled["set"], **chosen, "output_dir": str(folder), "name": name}
        # JSON is YAML that can be read in one way only: "yes" stays a text, and "a #1" keeps its end
        overrides = [f"--{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
        yield Cell(name, folder, block.recipe, overrides, filled["after"], prefix)


def _fill(value: Mapping, words: Mapping[str, object], where: str) -> dict:
    """Return a value with each {key} in its texts replaced."""

    def word(match: re.Match) -> str:
        if match[1] not in words:
            raise RecipeError(f"{where}: {{{cut(match[1])}}} is no key of the block's grid; known: {', '.join(words)}")
        return json.dumps(str(words[match[1]]))[1:-1]

    return json.loads(re.sub(r'\{([^{}"]+)\}', word, json.dumps(value)))  # the braces of JSON itself hold quotes


def choose(planned: Sequence[Cell], pattern: str | None) -> list[Cell]:
    """Return the cells whose names match a shell pattern, and those they wait for. Raises RecipeError where none does."""
    chosen = set(fnmatch.filter([cell.name for cell in planned], pattern or "*"))
    if not chosen:
        raise RecipeError(f"--only {pattern}: no cell has such a name; the study has {', '.join(c.name for c in planned)}")
    while more := {name for cell in planned if cell.name in chosen for name in cell.after} - chosen:
        chosen |= more
    return [cell for cell in planned if cell.name in chosen]


def check_distinct(wanted: Mapping[str, Recipe]) -> None:
    """Raise RecipeError where the records of two recipes would have one identity (`reporting.analysis.check_identities`)."""
    owners: dict[str, str] = {}
    for name, recipe in wanted.items():
        vectors = None if recipe.data.vectors else recipe.model.embedding_std
        identity = [model_fields(recipe.model), objective_fields(recipe), recipe.objective.base, recipe.data, vectors]
        other = owners.setdefault(repr([*identity, recipe.measure.split, recipe.seed]), name)
        if other != name:
            raise RecipeError(f"cells {other!r} and {name!r} are one model on the same data: give them different seeds")


def complete(recipe: Recipe) -> bool:
    """Whether the recipe's folder holds its whole run, with a record made by this very recipe and its base."""
    folder = Path(recipe.output_dir)
    try:
        state, settings = read_object(folder / STATE), _settings(folder)
        whole = state["status"] == "complete" and not recipes.differences(recipes.build(settings["recipe"]), recipe)
        return whole and (not recipe.base or state["base"]["weights (SHA-256)"] == _settings(Path(recipe.base))["model"])
    except (OSError, ValueError, KeyError, TypeError):  # absent, broken, or of another version: to be run
        return False


def _settings(folder: Path) -> dict:
    """The settings of the record of a run, read without its rows."""
    return json.loads(record.schema_of(folder / RECORD).metadata[b"attnfaith"])[0]
