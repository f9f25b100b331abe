"""The folder of a run: its files, its state, and how it is opened.

It holds recipe.yaml (complete), run.json (what was used and how far it got), checkpoints/ while it trains, model/ (the
selected checkpoint with tokenizer and code), outputs/ (what models trained against it need), record.parquet and report/. One
process holds it from opening to end; it may be killed at any moment: what it leaves can be gone on with or overwritten.
"""

import contextlib
import dataclasses
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
from attnfaith import provenance, recipes
from attnfaith.errors import AttnfaithError, FileError
from attnfaith.files import LOCK, folder_lock, is_locked, read_object, write_atomically
from attnfaith.recipes import Recipe
from attnfaith.record.identity import RECIPE


STATE, MODEL, RECORD, REPORT, OUTPUTS = "run.json", "model", "record.parquet", "report", "outputs"
CHECKPOINTS = "checkpoints"
TOLD = ("versions", "dataset", "sizes", "vocabulary")  # of run.json, by a training
CONCLUDED = ("attention_faithfulness", "seconds")  # of run.json, by a measurement and its report
LOCKS = (LOCK, f"{LOCK}.holder")
LEFTOVERS = (".*.tmp", f".{REPORT}.*", f"{OUTPUTS}/.*.tmp")
"""What killed processes leave: half-written files, half-made folders."""


class RunError(AttnfaithError):
    """A run that cannot start or go on. The message says why and what to do."""


@contextlib.contextmanager
def opened(
    folder: Path, recipe: Recipe, state: PartialState, *, overwrite: bool = False, resume: bool = False
) -> Iterator[None]:
    """Make the run's folder, or take the one that is there, and hold it. Of several processes one does, for all.

    overwrite, resume: see `run`. Raises RunError where the folder may not be used, FileError where another process holds it.
    """
    with contextlib.ExitStack() as lock:
        _in_one_process(state, lambda: _open(lock, folder, recipe, overwrite=overwrite, resume=resume))
        yield


@contextlib.contextmanager
def held(folder: Path, work: str, state: PartialState, check: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the folder of a run for `work`; what killed processes left there goes. Raises FileError where it is in use.

    check: asked, by one of several processes for all, once the folder is held; what it raises ends the work.
    """

    def hold():
        lock.enter_context(folder_lock(folder, work))
        check()
        _sweep(folder)

    with contextlib.ExitStack() as lock:
        _in_one_process(state, hold)
        yield


def _in_one_process(state: PartialState, step: Callable[[], None]) -> None:
    """Take a step in the main process; the others wait, and what a user can mend is raised in all of them."""
    error = None
    if state.is_main_process:
        try:
            step()
        except AttnfaithError as raised:
            error = raised
    (error,) = broadcast_object_list([error])
    if error is not None:
        raise error


def _open(lock: contextlib.ExitStack, folder: Path, recipe: Recipe, *, overwrite: bool, resume: bool) -> None:
    _check_usable(
        folder, recipe, overwrite=overwrite, resume=resume
    )  # first: a lock is not left in a folder of somebody else
    lock.enter_context(folder_lock(folder, "a run"))
    changed = _check_usable(folder, recipe, overwrite=overwrite, resume=resume)  # another process may have been at work
    _sweep(folder)
    if overwrite and not resume and not _is_unstarted(folder):
        _replace(lock, folder)
    if not (folder / STATE).is_file():  # before the recipe, so that a recipe alone is never taken for a run's
        versions = {module.__name__: module.__version__ for module in (attnfaith, torch, transformers)}
        _write_state(folder, {"status": "started", "versions": versions})
    if changed and (folder / MODEL).is_dir():
        note(folder, status="trained")
    write_recipe(folder, recipe)


def _check_usable(folder: Path, recipe: Recipe, *, overwrite: bool, resume: bool) -> list[str]:
    """Keys in which the recipe differs from that of the run to go on with. Raises RunError where the folder is not free."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give another output_dir")
    if _is_unstarted(folder):
        return []
    if not ((folder / RECIPE).is_file() and (folder / STATE).is_file()):
        raise RunError(f"{folder} holds files that are no run of ours; give another output_dir")
    if resume:
        changed = changed_keys(recipe, folder / RECIPE)
        if trains := [key for key in changed if not key.startswith("measure.")]:
            raise RunError(f"{folder} is a run of another recipe (different: {', '.join(trains)}); give another output_dir")
        return changed
    if not overwrite:
        raise RunError(
            f"{folder} holds a run already: go on with --resume_from_checkpoint, replace it with "
            "--overwrite_output_dir, or give another --output_dir"
        )
    return []


def _is_unstarted(folder: Path) -> bool:
    """Whether a folder holds nothing, or a part of what a run writes before it does anything; another recipe may have it."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    names = {name for name in names if name not in LOCKS and not name.startswith((f".{STATE}.", f".{RECIPE}."))}
    if not names:
        return True
    if not names <= {STATE, RECIPE}:
        return False
    try:
        return {"status", "versions"} <= set(read_state(folder))
    except RunError:
        return False


def _replace(lock: contextlib.ExitStack, folder: Path) -> None:
    """Put the run that lies there aside, then delete it: at any moment the folder holds the old run, or nothing of it."""
    place = folder.resolve()  # of a link, the folder it leads to
    aside = _aside(folder)
    try:
        os.rename(place, aside)
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be replaced ({error.strerror or error}); give another output_dir") from error
    lock.enter_context(folder_lock(folder, "a run"))  # the lock that was held went with the old run
    shutil.rmtree(aside)


def _aside(folder: Path) -> Path:
    place = folder.resolve()
    return place.with_name(f".{place.name}.replaced")


def _sweep(folder: Path) -> None:
    """Delete what killed processes left; only while the folder is held. A report may be at work in a folder of its own."""
    left = [path for pattern in LEFTOVERS for path in folder.glob(pattern)] + [_aside(folder)]
    left += [folder / CHECKPOINTS] if (folder / MODEL).is_dir() else []  # of a training that was killed at its very end
    for path in left:
        if path.is_dir() and not path.is_symlink():
            if not is_locked(path):
                shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def shards_of(name: str) -> str:
    """The folder, beside a record, of its parts while it is measured."""
    return f"{name}.shards"


def changed_keys(recipe: Recipe, path: Path) -> list[str]:
    """Dotted keys in which a recipe differs from a written one; where the run lies and how it is reported do not count."""

    def flat(tree, prefix=""):
        for key, value in tree.items():
            if isinstance(value, dict) and value:
                yield from flat(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    new, old = dict(flat(dataclasses.asdict(recipe))), dict(flat(dataclasses.asdict(recipes.load(path))))
    changed = sorted(key for key in {*new, *old} if new.get(key) != old.get(key))
    return [key for key in changed if key not in ("output_dir", "note") and not key.startswith("report.")]


def write_recipe(folder: Path, recipe: Recipe) -> None:
    write_atomically(folder / RECIPE, recipes.dump(recipe))


def read_state(folder: str | os.PathLike) -> dict:
    """What run.json says. Raises RunError where it is missing or broken."""
    try:
        return read_object(Path(folder) / STATE)
    except FileError as error:
        raise RunError(f"{error}: give the folder of a run") from error


def trained_state(folder: str | os.PathLike) -> dict:
    """What run.json says of the run before it was measured: a measurement holds nothing of an earlier one's results."""
    return {key: value for key, value in read_state(folder).items() if key not in CONCLUDED}


def check_trained(folder: Path) -> None:
    """Raise RunError where run.json does not tell of the training whose model lies there."""
    if missing := [name for name in TOLD if name not in read_state(folder)]:
        raise RunError(
            f"{folder / STATE} lacks {', '.join(missing)}, so nothing tells how the model there was trained: copy it anew, "
            "or train the run again with --overwrite_output_dir"
        )


def note(folder: Path, **facts) -> None:
    """Add facts to run.json."""
    _write_state(folder, {**read_state(folder), **facts})


def _write_state(folder: Path, facts: dict) -> None:
    write_atomically(folder / STATE, json.dumps(facts, indent=1))


def origin(seed: int, state: PartialState, data: dict) -> dict:
    """The provenance of what this process makes."""
    device = torch.cuda.get_device_name(state.device) if state.device.type == "cuda" else state.device.type
    return provenance.collect(seed=seed, data=data, device=f"{device}, {torch.get_num_threads()} threads")
