"""Recipes: one YAML a run, read into frozen dataclasses. Unknown keys and wrong values raise before any work is done.

`schema`: the sections. `recipe`: the whole, and which keys go together. `yaml_files`: files, overrides and plugins.
`options`: the keys on a command line. `config`: the configuration of the model. `library`: the recipes of the package.
"""

from attnfaith.recipes.config import check_data, check_model, model_config, projection_fields, sequence_config
from attnfaith.recipes.library import find
from attnfaith.recipes.options import parse_overrides
from attnfaith.recipes.recipe import Recipe
from attnfaith.recipes.schema import Data, Measure, Model, Penalties, RecipeError, Report, Training, make_section, section
from attnfaith.recipes.yaml_files import build, differences, dump, load, named, parse, read_text, read_value


__all__ = (
    ["Data", "Measure", "Model", "Penalties", "Recipe", "RecipeError", "Report", "Training"]
    + ["build", "check_data", "check_model", "differences", "dump", "find", "load", "make_section", "model_config", "named"]
    + ["parse", "parse_overrides", "projection_fields", "read_text", "read_value", "section", "sequence_config"]
)
