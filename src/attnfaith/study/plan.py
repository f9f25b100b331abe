"""The plan of a study: a YAML file (`Study`) read into cells, each a command, the folder it fills and the cells it needs."""

import dataclasses
import fnmatch
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from attnfaith import recipes, record
from attnfaith.errors import cut, excerpt
from attnfaith.files import read_object
from attnfaith.recipes import Recipe, RecipeError, library, section
from attnfaith.record.identity import model_fields, objective_fields


MOST_CELLS, LONGEST_NAME = 10_000, 200
TRAIN = (sys.executable, "-m", "attnfaith", "train")
# (projection, its parameter) that are an entmax, which is known by its alpha.
ALIKE = {
    ("softmax", None): ("entmax", 1.0),
    ("entmax15", None): ("entmax", 1.5),
    ("sparsemax", None): ("entmax", 2.0),
    ("sparsegen", 0.0): ("entmax", 2.0),
}


@section
class Study:
    """What a study file may say."""

    output_dir: str
    """folder of the runs, one folder and one log for each cell"""
    results: str
    """folder of the tables and figures made from all of them"""
    blocks: list[Any]
    """the cells: see `Block`"""
    analysis: str | None = None
    """the paper's own tables and figures: a Python file, by its path from the study's or among those of the package. It
    is run: a study file is code"""
    published: str | None = None
    """CSV of published numbers, for the analysis to show beside the measured ones"""
    stand_ins: dict[str, str] = field(default_factory=dict)
    """data set: the one of the paper that it stands in for, whose published numbers are shown beside it"""
    tables: list[str] = field(default_factory=list)
    """which tables; where not given, all that single cells allow"""
    mix_versions: bool = False
    """tabulate records together that different code measured"""


@section
class Block:
    """A recipe, what it `set`s in it, and a `grid` of values. Each combination is a cell, called <name>-<values>.

    Values in `set` and `after` may hold {key} of the block's grid, and {output_dir}.
    """

    recipe: str
    name: str | None = None
    """that of the recipe's file unless given"""
    set: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    """names of the cells whose runs a cell reads"""


@dataclass(frozen=True)
class Cell:
    """One run of a study: its name, recipe, what is set in it, the cells whose runs it reads, the name of its block."""

    name: str
    recipe: str
    overrides: Sequence[str]
    after: Sequence[str] = ()
    block: str = ""

    @property
    def command(self) -> list[str]:
        """What makes the run, or goes on with it where it was stopped."""
        return [*TRAIN, "--config", self.recipe, "--resume_from_checkpoint", *self.overrides]


def read_study(path: Path) -> dict:
    """What the study of a YAML file says, checked by `Study`. path: a file, or a study that comes with the package.

    Raises RecipeError for a file that is none, for keys it lacks or nobody knows, and values of another kind than theirs.
    """
    path = recipes.find(path, "study")
    study = recipes.read_value(recipes.read_text(path, "study"), str(path))
    with recipes.named(str(path)):
        recipes.make_section(Study, study, "study")
        if study.get("analysis") is not None:
            own = path.parent / study["analysis"]
            shipped = library.folder() / study["analysis"].removeprefix("recipes/")
            study["analysis"] = str(shipped if shipped.is_file() and not own.is_file() else own)
        if not study["blocks"]:
            raise RecipeError("blocks is empty, so there is nothing to run; give a list of blocks with a recipe each")
        cells(study)
    return study


def cells(study: Mapping) -> list[Cell]:
    """The cells of a study, in its order.

    Raises RecipeError for a block that is none, a key that no recipe has, more than MOST_CELLS cells, a grid that gives a
    value twice, two cells of one name or a name that is no name of a folder, an `after` that names no cell or leads back to
    its own, and a {key} that the block's grid does not have.
    """
    planned = [
        cell
        for number, block in enumerate(study["blocks"], start=1)
        for cell in _block_cells(study, block, f"block {number}")
    ]
    names = [cell.name for cell in planned]
    if wrong := [name for name in names if not _names_a_folder(name)]:
        raise RecipeError(
            f"the cell {excerpt(wrong[0])} is no name for a folder: keep '/', '{{', '}}' and long values out of the name "
            "and the grid, use `set`"
        )
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise RecipeError(
            f"the study has cells of one name: {excerpt(twice)}; vary a key of the grid, or give the block a name"
        )
    known = set(names)
    for cell in planned:
        if strangers := [name for name in cell.after if name not in known]:
            raise RecipeError(
                f"cell {cell.name} is after {excerpt(strangers)}, which the study does not have; it has "
                f"{excerpt(names, 200)}"
            )
    try:
        TopologicalSorter({cell.name: cell.after for cell in planned}).prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise RecipeError(
            f"cells wait for one another in a circle, so none of them can start: {excerpt(circle, 300)}"
        ) from error
    return planned


def _names_a_folder(name: str) -> bool:
    return Path(name).name == name and not set("{}\n") & set(name) and len(name) <= LONGEST_NAME


def _block_cells(study: Mapping, values, where: str) -> Iterator[Cell]:
    """The cells of one block, the values of its grid checked."""
    block = recipes.make_section(Block, values, where)
    for key in (*block.set, *block.grid):
        if not re.fullmatch(r"[\w.]+", key):
            raise RecipeError(f"{where}: {excerpt(key)} is no key of a recipe, such as seed or model.encoder")
    if (count := math.prod(map(len, block.grid.values()))) > MOST_CELLS:
        raise RecipeError(f"{where}: the grid makes {count:,} cells; {MOST_CELLS:,} at most")
    for key, given in block.grid.items():
        if not given:
            raise RecipeError(f"{where}: grid.{key} is {given!r}; give a list of one or more values")
        if twice := [value for place, value in enumerate(given) if any(_equal(value, it) for it in given[:place])]:
            raise RecipeError(
                f"{where}: grid.{key} is {excerpt(given)}: {excerpt(twice[0])} is there twice; give each value once"
            )
    prefix = block.name or Path(block.recipe).stem
    for combination in itertools.product(*block.grid.values()):
        chosen = dict(zip(block.grid, combination, strict=True))
        name = "-".join([prefix, *map(str, combination)])
        known = {**chosen, "output_dir": study["output_dir"]}
        settings = {**_fill(block.set, known, f"{where}, set"), **chosen}
        settings |= {"output_dir": str(Path(study["output_dir"]) / name), "name": name}
        # JSON is YAML that can be read in one way only: "yes" stays a text, and "a #1" keeps its end
        overrides = [f"--{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
        yield Cell(name, block.recipe, overrides, _fill(block.after, known, f"{where}, after"), prefix)


def _equal(one, other) -> bool:
    """Whether two values of a grid are the same, 0 and -0.0 too; false is no number."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _fill(value, known: Mapping[str, object], where: str):
    """A value with each {key} in it replaced; lists and dictionaries item by item."""
    if isinstance(value, Mapping):
        return {key: _fill(item, known, where) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, known, where) for item in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match) -> str:
        if match[1] not in known:
            raise RecipeError(
                f"{where}: {cut(match[0])} in {excerpt(value)} is no key of the block's grid; known: {', '.join(known)}"
            )
        return str(known[match[1]])

    return re.sub(r"\{([^{}]*)\}", replaced, value)


def choose(planned: Sequence[Cell], pattern: str | None) -> list[Cell]:
    """The cells whose names match a shell pattern, and those they wait for. Raises RecipeError where none does."""
    if pattern is None:
        return list(planned)
    by_name = {cell.name: cell for cell in planned}
    wanted = fnmatch.filter(by_name, pattern)
    if not wanted:
        raise RecipeError(f"--only {pattern}: no cell has such a name; the study has {', '.join(by_name)}")
    chosen = set()
    while wanted:
        name = wanted.pop()
        if name not in chosen:
            chosen.add(name)
            wanted += by_name[name].after
    return [cell for cell in planned if cell.name in chosen]


def load_recipe(cell: Cell) -> Recipe:
    """Raises RecipeError, naming the cell, for a recipe that is missing or wrong."""
    try:
        return recipes.load(cell.recipe, cell.overrides)
    except RecipeError as error:
        raise RecipeError(f"cell {cell.name}: {error}") from error


def check_distinct(wanted: Mapping[str, Recipe]) -> None:
    """Raises RecipeError where two recipes differ in nothing that a record tells cells apart by, or only in the name of the
    projection: sparsegen at lambda 0 is sparsemax.

    Sooner than `reporting.study.check_identities`, which sees the records.
    """
    owners: dict[str, str] = {}
    for name, recipe in wanted.items():
        other = owners.setdefault(repr(_identity(recipe)), name)
        named = [_projection_name(wanted[each].model) for each in (other, name)]
        if named[0] != named[1]:
            raise RecipeError(
                f"cells {other!r} and {name!r} are one model under two names: {' and '.join(named)} attend alike; leave one "
                "of them out"
            )
        if other != name:
            raise RecipeError(
                f"cells {other!r} and {name!r} have the same data, split, model, objective and seed: tables cannot "
                "tell them apart; give them different seeds or keep them in different studies"
            )


def _identity(recipe: Recipe) -> tuple:
    """What decides the fields of a record's identity, with one projection for one mapping."""
    fields, data = model_fields(recipe.model) | objective_fields(recipe), recipe.data
    named = fields.pop("projection"), fields.pop("projection_parameter")
    return (
        ALIKE.get(named, named),
        fields,
        recipe.objective.base,
        data,
        None if data.vectors else recipe.model.embedding_std,
        (recipe.measure.split, recipe.measure.level),
        recipe.seed,
    )


def _projection_name(model: recipes.Model) -> str:
    fields = model_fields(model)
    name, parameter = fields["projection"], fields["projection_parameter"]
    return name if parameter is None else f"{name}({parameter + 0.0:g})"  # -0.0 + 0.0 is 0.0


def complete(recipe: Recipe) -> bool:
    """Whether the recipe's folder holds its whole run: a page, and a record made by this very recipe."""
    folder = Path(recipe.output_dir)
    try:
        state = read_object(folder / "run.json")
        made = pq.read_schema(folder / "record.parquet")
        parts = json.loads((made.metadata or {}).get(b"attnfaith", b"[]"))
        same = [_deciding(recipes.build(part["recipe"])) for part in parts] == [_deciding(recipe)]
        if recipe.objective.base and same:
            same = state["base"]["weights (SHA-256)"] == _weights(Path(recipe.objective.base))
    except (OSError, ValueError, KeyError, TypeError):  # absent, half-written, or of another version: to be run
        return False
    page = folder / "report" / "index.html"
    whole = record.common_columns(made.names).keys() <= set(made.names)
    return state.get("status") == "complete" and page.is_file() and same and whole


def kept(recipe: Recipe, *, remeasure: bool = False) -> bool:
    """Whether nothing is to be done; with remeasure, a record that another version measured is to be made anew."""
    return complete(recipe) and not (remeasure and not of_this_version(recipe))


def of_this_version(recipe: Recipe) -> bool:
    """Whether this version of the package, by major.minor, measured the record in the recipe's folder."""
    return record.is_current(pq.read_schema(Path(recipe.output_dir) / "record.parquet"))


def _weights(folder: Path) -> str:
    """The digest of the model that a run's record was measured with."""
    return json.loads(pq.read_schema(folder / "record.parquet").metadata[b"attnfaith"])[0]["model"]


def _deciding(recipe: Recipe) -> dict:
    """What decides a run's numbers: all but its place, its words and its report."""
    return {key: value for key, value in dataclasses.asdict(recipe).items() if key not in ("output_dir", "note", "report")}
