"""Recipes: one YAML a run, read into frozen dataclasses. Unknown keys and wrong values raise before any work is done.

`schema`: the keys, and which recipes each is for. `files`: recipes found, read and written. `options`: the keys on a command
line.
"""

from attnfaith.recipes.files import (
    build,
    check_data,
    differences,
    dump,
    find,
    flat,
    folder,
    load,
    named,
    parse,
    read_file,
    read_value,
)
from attnfaith.recipes.options import parse_overrides
from attnfaith.recipes.schema import (
    Data,
    Model,
    Penalties,
    Recipe,
    RecipeError,
    Removal,
    Report,
    Training,
    make_section,
    section,
)


__all__ = ["Data", "Model", "Penalties", "Recipe", "RecipeError", "Removal", "Report", "Training"]
__all__ += ["build", "check_data", "differences", "dump", "find", "flat", "folder", "load", "make_section", "named", "parse"]
__all__ += ["parse_overrides", "read_file", "read_value", "section"]
