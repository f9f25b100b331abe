"""A recipe carried out: training, measurement and report, in one folder that is never mixed with another run's."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import PartialState
from transformers.utils.logging import disable_progress_bar

from attnfaith.files import real_path
from attnfaith.loading import device_of
from attnfaith.measurement.engine import configured, delete_finished
from attnfaith.recipes import Recipe, RecipeError, check_model
from attnfaith.reporting.page.pair_facts import in_words
from attnfaith.runs import train, translation
from attnfaith.runs.base import Base, check_base
from attnfaith.runs.folder import (
    MODEL,
    RECIPE,
    RECORD,
    REPORT,
    RunError,
    changed_keys,
    held,
    note,
    opened,
    read_state,
    shards_of,
    write_recipe,
)
from attnfaith.runs.measure import Measurement, is_measured, is_measured_by_this_version, other_measurement
from attnfaith.runs.prepare import Texts, check_splits, training_arguments
from attnfaith.runs.summary import faithfulness, print_results, report
from attnfaith.training import check_processes


def run(recipe: Recipe, *, overwrite: bool = False, resume: bool = False, remeasure: bool = False) -> Path:
    """Train, measure and report; returns the path of the report's page.

    overwrite: delete the run that lies in the output folder. resume: go on with it, from its last checkpoint and its
    measured shards; the recipe must be the same but for `measure` and `report`: with another `measure` section the trained
    model is kept and measured anew. Without either, a folder that is not empty is refused. remeasure: measure a model anew
    whose record another version of the package made, its outputs for other models left as they are; with resume.

    Raises RunError, RecipeError, DatasetError or MeasurementError before work is lost, FileError where another process
    works in the folder, and DivergedError where loss or weights stop being numbers: then no model is kept, nor any
    checkpoint.
    """
    if recipe.model.type is not None:
        return _run_pairs(recipe, overwrite=overwrite, resume=resume, remeasure=remeasure)
    started = time.perf_counter()
    disable_progress_bar()  # of loading and saving, which take no time; training and measuring keep theirs
    state = PartialState(cpu=recipe.training.use_cpu or not torch.cuda.is_available())
    configured(recipe.measure.producers, recipe.measure.options)
    check_splits(recipe)
    folder = Path(recipe.output_dir)
    arguments = training_arguments(recipe)
    check_processes(arguments)
    check_model(recipe)
    check_base(recipe)
    with opened(folder, recipe, state, overwrite=overwrite, resume=resume), _stoppable(folder, state):
        texts, base = Texts(recipe, folder, state), Base.of(recipe)
        if not (folder / MODEL).is_dir():
            train.train(recipe, arguments, folder, texts, base, state)
        measurement = Measurement(recipe, folder, texts, base, state)
        measurement.outputs()
        path = folder / RECORD
        if not is_measured(path, recipe) or (remeasure and not is_measured_by_this_version(path)):
            if state.is_main_process and path.is_file():
                print(f"{path} is measured anew: {other_measurement(path, recipe) or 'by another version'}")
            path = measurement.record()
        elif state.is_main_process:  # of another measurement that was killed
            shutil.rmtree(folder / shards_of(RECORD), ignore_errors=True)
        _finish(recipe, folder, state, started)
    return folder.resolve() / REPORT / "index.html"


@contextmanager
def _stoppable(folder: Path, state: PartialState) -> Iterator[None]:
    """Within, a user who stops the work is told how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if state.is_main_process:
            print(f"\nstopped; go on with --resume_from_checkpoint: what {folder} holds is whole", file=sys.stderr)
        raise


def _run_pairs(recipe: Recipe, *, overwrite: bool, resume: bool, remeasure: bool) -> Path:
    """`run` of a recipe of sentence pairs."""
    started = time.perf_counter()
    disable_progress_bar()
    state = PartialState(cpu=recipe.training.use_cpu or not torch.cuda.is_available())
    configured(recipe.measure.producers, recipe.measure.options, "pairs")
    check_splits(recipe)
    folder = Path(recipe.output_dir)
    arguments = training_arguments(recipe)
    check_processes(arguments)
    check_model(recipe)
    with opened(folder, recipe, state, overwrite=overwrite, resume=resume), _stoppable(folder, state):
        texts, path = translation.PairTexts(recipe, folder, state), folder / RECORD
        if not (folder / MODEL).is_dir():
            translation.train(recipe, arguments, folder, texts, state)
        if not is_measured(path, recipe) or (remeasure and not is_measured_by_this_version(path)):
            if state.is_main_process and path.is_file():
                print(f"{path} is measured anew: {other_measurement(path, recipe) or 'by another version'}")
            translation.translate(recipe, folder, texts, state)  # first: the record says how well the model translates
            path = translation.measure(recipe, folder, texts, state)
        elif state.is_main_process:  # of another measurement that was killed
            shutil.rmtree(folder / shards_of(RECORD), ignore_errors=True)
        _finish_pairs(recipe, folder, state, started)
    return folder.resolve() / REPORT / "index.html"


def _finish_pairs(recipe: Recipe, folder: Path, state: PartialState, started: float) -> None:
    """`_finish` of a recipe of sentence pairs."""
    if state.is_main_process:
        report(folder / RECORD, folder / REPORT, recipe)
        note(folder, status="complete", seconds=round(time.perf_counter() - started, 1))
        print(f"translates: {in_words(read_state(folder)['translation'])}")
    state.wait_for_everyone()


def measure_run(
    folder: str | os.PathLike,
    recipe: Recipe,
    output: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
    device=None,
) -> Path:
    """Measure the model of a finished training, with the given recipe's `measure` section; returns the record's path.

    output None measures the run itself anew: its record is replaced once the new one is whole, its recipe says how it was
    measured, and a report that lies there is written anew. Outputs that the section names and the run lacks are made too.
    overwrite: replace a record of another measurement, or whatever lies at `output`. device: where the model is measured, as
    `attnfaith.measure` takes it; None: on the accelerator, where there is one.

    Raises ModelError for a device that is not there, RunError where no model is there, or something would be replaced that
    only overwrite replaces, RecipeError where the recipe differs from the run's in more than `measure`, FileError where
    another process works in the folder.
    """
    started = time.perf_counter()
    device = None if device is None else device_of(device)
    folder, pairs = Path(folder), recipe.model.type is not None
    if output is not None and real_path(output) == real_path(folder / RECORD):
        output = None
    if not (folder / MODEL).is_dir():
        raise RunError(f"{folder} holds no trained model ({MODEL}/); train first")
    configured(recipe.measure.producers, recipe.measure.options, "pairs" if pairs else "texts")
    check_splits(recipe)
    changed = changed_keys(recipe, folder / RECIPE)
    if others := [key for key in changed if not key.startswith("measure.")]:
        raise RecipeError(
            f"the model in {folder} was trained with another {', '.join(others)}: a measurement may change measure.* only "
            "(the seed of a measurement is measure.seed)"
        )
    check_base(recipe)
    state = PartialState(cpu=not torch.cuda.is_available())
    device = state.device if device is None else device
    with held(folder, "a measurement", state, check=lambda: overwrite or _check_replaces_nothing(folder, recipe, output)):
        if output is None and state.is_main_process:  # what lies there is not of this measurement until all of it is made
            note(folder, status="trained")
            write_recipe(folder, recipe)
        if pairs:
            texts = translation.PairTexts(recipe, folder, state)
            if output is None:
                translation.translate(recipe, folder, texts, state, device)
            path = translation.measure(recipe, folder, texts, state, output, device=device)
        else:
            measurement = Measurement(recipe, folder, Texts(recipe, folder, state), Base.of(recipe), state, device)
            measurement.outputs()
            path = measurement.record(output)
        if output is None and (folder / REPORT).is_dir():
            (_finish_pairs if pairs else _finish)(recipe, folder, state, started)
        elif state.is_main_process and not pairs:
            print_results(path)
        state.wait_for_everyone()
    return path


def _check_replaces_nothing(folder: Path, recipe: Recipe, output: str | os.PathLike | None) -> None:
    """Raise RunError where a measurement would take the place of another's record."""
    path = folder / RECORD if output is None else Path(output)
    if output is not None and path.exists() and not path.is_dir():
        delete_finished(path)
        raise RunError(f"{path} is there already: name another --output, or replace it with --overwrite")
    if output is None and path.is_file() and (other := other_measurement(path, recipe)):
        raise RunError(
            f"{path} is of another measurement (different: {other}): keep it and give the new one a name with --output, or "
            "replace it and its report with --overwrite"
        )


def _finish(recipe: Recipe, folder: Path, state: PartialState, started: float) -> None:
    """Report the run's record, and note that the run is complete."""
    if state.is_main_process:
        report(folder / RECORD, folder / REPORT, recipe)
        scores = faithfulness(folder / RECORD)
        note(folder, status="complete", seconds=round(time.perf_counter() - started, 1), attention_faithfulness=scores)
        print_results(folder / RECORD)
    state.wait_for_everyone()
