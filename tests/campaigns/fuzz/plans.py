"""Recipes and studies: YAML that may come from a stranger."""

from pathlib import Path
from random import Random

import yaml

from attnfaith import recipes
from attnfaith.recipes import library
from attnfaith.study.plan import cells, read_study
from tests.campaigns.fuzz.hostile import changed, damaged, displaced
from tests.campaigns.fuzz.probe import Case, Unclean


STUDY = """
output_dir: runs/mine
results: results/mine
tables: [agreement]
compare: [encoder]
blocks:
  - recipe: {}
    name: one
    set: {{note: mine, seed: 4}}
    grid: {{model.encoder: [bilstm, average], seed: [1, 2]}}
  - recipe: {}
    name: two
    after: [one-bilstm-1]
    set: {{objective.kind: adversarial, objective.base: "{{output_dir}}/one-bilstm-1"}}
"""


def written(chance: Random, content: str, path: Path) -> str:
    """Write a damaged YAML text at a path; what was done to it."""
    kind = chance.random()
    if kind < 0.03:
        return displaced(chance, path)
    if kind < 0.5:
        tree, said = changed(chance, yaml.safe_load(content))
        try:
            made = yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass")
        except (ValueError, yaml.YAMLError):  # a number of too many digits
            return written(chance, content, path)
    else:
        made, said = damaged(chance, content.encode())
    path.write_bytes(made)
    return said


class Recipes:
    """A file of a recipe, read, written out and read again."""

    name, inputs, batch = "recipes", 2000, 250

    def __init__(self, folder: Path):
        files = sorted(
            path for path in library.folder().rglob("*.yaml") if "\nblocks:" not in path.read_text(encoding="utf-8")
        )
        self.texts = [path.read_text(encoding="utf-8") for path in files]
        self.texts += [recipes.dump(recipes.load(path)) for path in files[::5]]

    def case(self, chance: Random, folder: Path) -> Case:
        path = folder / "mine.yaml"
        said = written(chance, chance.choice(self.texts), path)

        def act():
            recipe = recipes.load(path)
            if recipes.parse(recipes.dump(recipe)) != recipe and "nan" not in repr(recipe):
                raise Unclean("the recipe is another one when it is written and read again")

        return Case(act, said, path)


class Studies:
    """A file of a study, its cells planned."""

    name, inputs, batch = "studies", 1000, 250

    def __init__(self, folder: Path):
        known = [name for name in ("quickstart.yaml",) if (library.folder() / name).is_file()]
        recipe = str(library.folder() / known[0]) if known else str(next(library.folder().rglob("*.yaml")))
        self.text = STUDY.format(recipe, recipe)

    def case(self, chance: Random, folder: Path) -> Case:
        path = folder / "study.yaml"
        said = written(chance, self.text, path)
        return Case(lambda: cells(read_study(path)), said, path)
