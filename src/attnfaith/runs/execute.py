"""A recipe carried out in one folder: prepare, train, measure, report."""

import os
import shutil
import time
from pathlib import Path

import torch
from accelerate import PartialState
from transformers.utils.logging import disable_progress_bar

from attnfaith.loading import device_of
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe, RecipeError, check_model, differences, load
from attnfaith.runs import train
from attnfaith.runs.base import open_base
from attnfaith.runs.folder import MODEL, RECIPE, RECORD, REPORT, SHARDS, RunError, held, note, opened, write_recipe
from attnfaith.runs.measure import measure, other_measurement, print_results, report
from attnfaith.runs.texts import Texts


def run(recipe: Recipe, *, overwrite: bool = False, resume: bool = False) -> Path:
    """Train, measure and report; return the path of the report's page, or of the record where the recipe wants no page.

    overwrite: delete the run that lies in the output folder. resume: go on with it, from its last checkpoint and its
    measured shards; the recipe must be the same but for `measure` and `report`: with another `measure` section the trained
    model is kept and measured anew. Without either, a folder that is not empty is refused.

    Raises RunError, RecipeError, DatasetError or MeasurementError before work is lost, FileError where another process
    works in the folder, and DivergedError where loss or weights stop being numbers: then no model is kept, nor any
    checkpoint.
    """
    started = time.perf_counter()
    disable_progress_bar()  # of loading and saving, which take no time; training and measuring keep theirs
    state = PartialState(cpu=recipe.training.use_cpu or not torch.cuda.is_available())
    build(recipe.measure.producers, recipe.measure.options, recipe.reads)
    arguments, folder = train.training_arguments(recipe), Path(recipe.output_dir)
    check_model(recipe)
    base = open_base(recipe)
    with opened(folder, recipe, state, overwrite=overwrite, resume=resume):
        texts, path = Texts(recipe, folder, state), folder / RECORD
        if not (folder / MODEL).is_dir():
            train.train(recipe, arguments, folder, texts, base, state)
        reason = other_measurement(path, recipe) if path.is_file() else "there is none"
        if reason:
            if path.is_file() and state.is_main_process:
                print(f"{path} is measured anew: {reason}")
            measure(recipe, folder, texts, base, state)
        elif state.is_main_process:  # of another measurement that was killed
            shutil.rmtree(folder / SHARDS, ignore_errors=True)
        _finish(recipe, folder, state, started, page=recipe.report.page)
    return folder.resolve() / (f"{REPORT}/index.html" if recipe.report.page else RECORD)


def measure_run(
    folder: str | os.PathLike,
    recipe: Recipe,
    output: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
    device=None,
) -> Path:
    """Measure the model of a finished training, with the given recipe's `measure` section; return the record's path.

    output None measures the run itself anew: its record is replaced once the new one is whole, its recipe says how it was
    measured, and a report that lies there is written anew.
    overwrite: replace a record of another measurement, or whatever lies at `output`. device: where the model is measured, as
    `attnfaith.measure` takes it; None: on the accelerator, where there is one.

    Raises ModelError for a device that is not there, RunError where no model is there, or something would be replaced that
    only overwrite replaces, RecipeError where the recipe differs from the run's in more than `measure`, FileError where
    another process works in the folder.
    """
    started = time.perf_counter()
    device = None if device is None else device_of(device)
    folder = Path(folder)
    if output is not None and Path(output).resolve() == (folder / RECORD).resolve():
        output = None
    if not (folder / MODEL).is_dir():
        raise RunError(f"{folder} holds no trained model ({MODEL}/); train first")
    build(recipe.measure.producers, recipe.measure.options, recipe.reads)
    changed = [key for key in differences(recipe, load(folder / RECIPE)) if not key.startswith("measure.")]
    if changed:
        raise RecipeError(
            f"the model was trained with another {', '.join(changed)}: a measurement may change measure.* only"
        )
    base = open_base(recipe)
    state = PartialState(cpu=not torch.cuda.is_available())

    def check():
        path = folder / RECORD if output is None else Path(output)
        other = other_measurement(path, recipe) if output is None and path.is_file() else ""
        if not overwrite and path.is_file() and (other or output is not None):
            what = f" with another {other}" if other else ""
            raise RunError(f"{path} is there already{what}: name another --output, or replace it with --overwrite")

    with held(folder, "a measurement", state, check):
        if output is None and state.is_main_process:  # the old record is not of this measurement
            note(folder, status="trained")
            write_recipe(folder, recipe)
        path = measure(recipe, folder, Texts(recipe, folder, state), base, state, output, device)
        if output is None:
            _finish(recipe, folder, state, started, page=(folder / REPORT).is_dir())
        elif state.is_main_process and recipe.kind != "translator":
            print_results(path, folder, recipe)
        state.wait_for_everyone()
    return path


def _finish(recipe: Recipe, folder: Path, state: PartialState, started: float, *, page: bool) -> None:
    """Draw the page of the run's record, if there is to be one, and note that the run is complete."""
    if state.is_main_process:
        if page:
            report(folder / RECORD, folder / REPORT, recipe)
        note(folder, status="complete", seconds=round(time.perf_counter() - started, 1))
        print_results(folder / RECORD, folder, recipe)
    state.wait_for_everyone()
