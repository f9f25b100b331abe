"""The place of a recipe: at its path, else among those that come with the package."""

import difflib
from pathlib import Path

from attnfaith.recipes.schema import RecipeError
from attnfaith.support.errors import cut, excerpt


QUICKSTART = Path("quickstart.yaml")


def folder() -> Path:
    """Return the folder of the shipped recipes: in the installed package, else at the top of the checkout."""
    installed = Path(__file__).with_name("shipped")
    return installed if installed.is_dir() else Path(__file__).parents[3] / "recipes"


def find(path: str | Path, kind: str = "recipe") -> Path:
    """Return the file of a recipe, a study (kind: for the message) or anything else that ships with them.

    A path that exists is taken as it is; any other is looked for in `folder()`, "recipes/meister_2021/sst.yaml" and
    "meister_2021/sst.yaml" alike. Raises RecipeError with near names where it is in neither place.
    """
    path = Path(path)
    try:
        if path.exists():
            return path
    except (OSError, ValueError) as error:  # too long for a path, or a character that none may have
        raise RecipeError(f"no {kind} can lie at {excerpt(str(path))}: {error.args[-1]}") from error
    shipped, name = folder(), path.as_posix().removeprefix("recipes/")
    files = {file.relative_to(shipped).as_posix(): file for file in sorted(shipped.rglob(f"*{path.suffix or '.yaml'}"))}
    if name in files:
        return files[name]
    near = difflib.get_close_matches(name, files, 2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"they lie in {shipped}"
    raise RecipeError(f"no {kind} at {cut(str(path))}, nor of that name among those that come with attnfaith: {hint}")
