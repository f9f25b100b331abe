"""Recipes: one YAML a run, read into frozen dataclasses. Unknown keys and wrong values raise before any work is done."""
# ruff: noqa: F401  (the names of the package)

from attnfaith.recipes.files import build, differences, dump, find, flat, folder, load, named, read_file
from attnfaith.recipes.options import parse_overrides, read_value
from attnfaith.recipes.schema import Recipe, RecipeError, Removal, Report, make_section, section
