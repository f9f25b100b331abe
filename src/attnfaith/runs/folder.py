"""The folder of a run: its files, its state, and its lock.

It holds recipe.yaml (complete), run.json (provenance, scores, status), checkpoints/ while it trains, model/ (the selected
checkpoint with tokenizer and code), record.parquet and report/. One process holds
it from opening to end. The process may be killed at any moment: the same command then goes on.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import transformers
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

import attnfaith
from attnfaith import recipes
from attnfaith.recipes import Recipe
from attnfaith.support import provenance
from attnfaith.support.errors import AttnfaithError, FileError
from attnfaith.support.files import LOCK, MODEL, RECIPE, RECORD, STATE, folder_lock, is_locked, read_object, write_atomically


REPORT, CHECKPOINTS, TRANSLATIONS = "report", "checkpoints", "translations.txt"
SHARDS = f"{RECORD}.shards"  # of a measurement that is under way
MEASURED = ("attention_faithfulness", "seconds")  # keys that a measurement writes, the first in older runs
LOCKS = (LOCK, f"{LOCK}.holder")


class RunError(AttnfaithError):
    """A run that cannot start or go on. The message names the reason and what to do."""


@contextlib.contextmanager
def held(folder: Path, work: str, state: PartialState, check: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the folder of a run for `work`, and delete leftovers of killed processes. One of several processes holds it for
    all, and all of them raise its AttnfaithError. Raises FileError where the folder is in use.

    check: called before the folder is held, so that a refused folder gets no lock file, and again once it is held.
    """
    with contextlib.ExitStack() as lock:
        error = None
        if state.is_main_process:
            try:
                check()
                lock.enter_context(folder_lock(folder, work))
                check()
                _sweep(folder)
            except AttnfaithError as raised:
                error = raised
        (error,) = broadcast_object_list([error])
        if error is not None:
            raise error
        yield


@contextlib.contextmanager
def opened(
    folder: Path, recipe: Recipe, state: PartialState, *, overwrite: bool = False, resume: bool = False
) -> Iterator[None]:
    """Make the run's folder, or take the one that is there, and hold it.

    overwrite, resume: see `run`. Raises RunError where the folder may not be used, FileError where another process holds it.
    """
    changed = []

    def check():
        changed[:] = _changed_keys(folder, recipe, overwrite=overwrite, resume=resume)

    with held(folder, "a run", state, check):
        if state.is_main_process:
            if overwrite and not resume:
                _clear(folder)
            if not (folder / STATE).is_file():  # before the recipe, so that a recipe alone is never taken for a run's
                versions = {module.__name__: module.__version__ for module in (attnfaith, torch, transformers)}
                write_atomically(folder / STATE, json.dumps({"status": "started", "versions": versions}, indent=1))
            if changed and (folder / MODEL).is_dir():
                note(folder, status="trained")
            write_recipe(folder, recipe)
        state.wait_for_everyone()
        yield


def _changed_keys(folder: Path, recipe: Recipe, *, overwrite: bool, resume: bool) -> list[str]:
    """The keys in which the recipe differs from that of a run to be resumed. Raises RunError for a folder in other use."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give another output_dir")
    names = {path.name for path in folder.iterdir()} - {*LOCKS} if folder.is_dir() else set()
    if not {name for name in names if not name.startswith((f".{STATE}.", f".{RECIPE}."))} - {STATE}:
        return []  # empty, or killed before its recipe was written
    if not {RECIPE, STATE} <= names:
        raise RunError(f"{folder} holds files of something else than a run; give another output_dir")
    if resume:
        changed = recipes.differences(recipe, recipes.load(folder / RECIPE))
        trains = [key for key in changed if key != "name" and not key.startswith("measure.")]
        if trains:
            raise RunError(f"{folder} is a run of another recipe (different: {', '.join(trains)}); give another output_dir")
        return changed
    if not overwrite and not names <= {RECIPE, STATE}:
        ways = "go on with --resume_from_checkpoint, replace it with --overwrite_output_dir, or give another --output_dir"
        raise RunError(f"{folder} holds a run already: {ways}")
    return []


def _clear(folder: Path) -> None:
    """Delete the run that lies there: its results first, its recipe and state last."""
    for path in sorted(folder.iterdir(), key=lambda path: (path.name in (STATE, RECIPE), path.name != RECORD)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in LOCKS:
            path.unlink()


def _sweep(folder: Path) -> None:
    """Delete leftovers of killed processes, only while the folder is held. A report may be at work in its own folder."""
    paths = [path for pattern in (".*.tmp", f".{REPORT}.*") for path in folder.glob(pattern)]
    paths += [folder / CHECKPOINTS] if (folder / MODEL).is_dir() else []  # of a training that was killed at its very end
    for path in paths:
        if not path.is_dir():
            path.unlink(missing_ok=True)
        elif not is_locked(path):
            shutil.rmtree(path)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    write_atomically(folder / RECIPE, recipes.dump(recipe))


def read_state(folder: str | os.PathLike) -> dict:
    """Return the content of run.json. Raises RunError where it is missing or broken."""
    try:
        return read_object(Path(folder) / STATE)
    except FileError as error:
        raise RunError(f"{error}: give the folder of a run") from error


def trained_state(folder: Path) -> dict:
    """Return the content of run.json without the results of measurements."""
    return {key: value for key, value in read_state(folder).items() if key not in MEASURED}


def note(folder: Path, **facts) -> None:
    """Add facts to run.json."""
    write_atomically(folder / STATE, json.dumps({**read_state(folder), **facts}, indent=1))


def origin(seed: int, state: PartialState, data: dict) -> dict:
    """Return the provenance of the files that this process makes."""
    device = torch.cuda.get_device_name(state.device) if state.device.type == "cuda" else state.device.type
    return provenance.collect(seed=seed, data=data, device=f"{device}, {torch.get_num_threads()} threads")
