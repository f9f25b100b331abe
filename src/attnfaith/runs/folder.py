"""The folder of a run: its files, its state, and its lock.

It holds recipe.yaml (complete), run.json (provenance, scores, status), checkpoints/ while it trains, model/ (the selected
checkpoint with tokenizer and code), record.parquet and report/. One process holds it from opening to end. The process may
be killed at any moment: the same command then goes on.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from accelerate import PartialState

from attnfaith import recipes
from attnfaith.recipes import Recipe
from attnfaith.support.errors import AttnfaithError
from attnfaith.support.files import LOCK, MODEL, RECIPE, STATE, folder_lock, read_object, write_atomically


REPORT, CHECKPOINTS, TRANSLATIONS = "report", "checkpoints", "translations.txt"
TEMPORARY = ".*.tmp"  # what the writer leaves when it is killed
UNFINISHED_MODEL = f".{MODEL}.tmp"


class RunError(AttnfaithError):
    """A run that cannot start or go on. The message names the reason and what to do."""


@contextlib.contextmanager
def held(folder: Path, work: str, state: PartialState) -> Iterator[None]:
    """Hold the folder of a run, one process for all, and delete leftovers of killed ones. Raises as `folder_lock`."""
    state.wait_for_everyone()  # all have looked at the folder before anything in it changes
    with folder_lock(folder, work) if state.is_main_process else contextlib.nullcontext():
        if state.is_main_process:
            trained = (folder / MODEL).is_dir()
            _delete([*folder.rglob(TEMPORARY), *([folder / CHECKPOINTS] if trained else [])])
        yield


def check_free(folder: Path, recipe: Recipe, *, overwrite: bool = False, resume: bool = False) -> None:
    """Raise RunError for a folder that a run of the recipe may not use. overwrite, resume: see `run`."""
    if folder.is_file():
        raise RunError(f"{folder} is a file; give another output_dir")
    names = {path.name for path in folder.glob("*") if not path.name.startswith(LOCK) and not path.match(TEMPORARY)}
    if names <= {STATE}:
        return  # empty, or killed before its recipe was written
    if not {RECIPE, STATE} <= names:
        raise RunError(f"{folder} holds files of something else than a run; give another output_dir")
    if resume:
        check_trained_alike(folder, recipe)
    elif not overwrite and not names <= {RECIPE, STATE}:
        ways = "go on with --resume_from_checkpoint, replace it with --overwrite_output_dir, or give another --output_dir"
        raise RunError(f"{folder} holds a run already: {ways}")


def check_trained_alike(folder: Path, recipe: Recipe) -> None:
    """Raise RunError where a recipe differs from that of a run in what its training reads."""
    changed = recipes.differences(recipe, recipes.load(folder / RECIPE))
    if changed := [key for key in changed if key != "name" and not key.startswith("measure.")]:
        raise RunError(f"{folder} is a run of another recipe (different: {', '.join(changed)}); give another output_dir")


def prepare(folder: Path, recipe: Recipe, *, clear: bool = False) -> None:
    """Write state and recipe into a folder that is held. clear: delete the run that lies there."""
    if clear and (folder / MODEL).is_dir():
        os.replace(folder / MODEL, folder / UNFINISHED_MODEL)  # a model that is half deleted is none
    if clear or not (folder / STATE).is_file():  # before the recipe, so that a recipe alone is never taken for a run's
        write_atomically(folder / STATE, json.dumps({"status": "started"}))
    elif (folder / MODEL).is_dir():
        note(folder, status="trained")  # the record may become another
    if clear:
        _delete([path for path in folder.iterdir() if path.name not in (STATE, RECIPE) and not path.name.startswith(LOCK)])
    write_atomically(folder / RECIPE, recipes.dump(recipe))


def _delete(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def note(folder: Path, **facts) -> None:
    """Add facts to run.json."""
    write_atomically(folder / STATE, json.dumps({**read_object(folder / STATE), **facts}, indent=1))
