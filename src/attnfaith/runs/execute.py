"""A recipe carried out in one folder: prepare, train, measure, report."""

import dataclasses
import hashlib
import os
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from transformers.utils.logging import disable_progress_bar

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, fingerprint
from attnfaith.data.loading import draw
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.loading import device_of
from attnfaith.measurement import engine
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.record import training_fields
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.facts import translation_in_words
from attnfaith.reporting.page import write_report
from attnfaith.reporting.sections.performance import accuracy_in_words
from attnfaith.reporting.verdicts import verdict
from attnfaith.runs.folder import REPORT, SHARDS, TRANSLATIONS, RunError, check_free, held, note, prepare, read_state
from attnfaith.runs.models import check_model, load_model
from attnfaith.runs.preparation import Run, check_base
from attnfaith.runs.removal import remove
from attnfaith.runs.train import train, training_arguments
from attnfaith.subjects import subject_of
from attnfaith.support.errors import excerpt
from attnfaith.support.escaping import printable
from attnfaith.support.files import MODEL, RECIPE, RECORD, write_atomically
from attnfaith.training.translation import translation_scores, translations


def run(recipe: Recipe, *, overwrite: bool = False, resume: bool = False) -> Path:
    """Train, measure and report; return the path of the report's page, or of the record where the recipe wants no page.

    overwrite: delete the run that lies in the output folder. resume: go on with it; a recipe with another `measure` section
    keeps the trained model, which is measured anew. Without either, a folder that is not empty is refused.

    Raises RunError, RecipeError, DatasetError or MeasurementError before work is lost, FileError where another process
    works in the folder, and DivergedError where loss or weights stop being numbers: then no model is kept.
    """
    started = time.perf_counter()
    disable_progress_bar()  # of loading and saving, which take no time; training and measuring keep theirs
    state = PartialState(cpu=recipe.training.use_cpu or not torch.cuda.is_available())
    build(recipe.measure.producers, recipe.measure.options, recipe.reads)
    arguments, folder = training_arguments(recipe), Path(recipe.output_dir)
    check_model(recipe, files=overwrite or not (folder / MODEL).is_dir())  # a trained model needs them no more
    check_base(recipe)
    check_free(folder, recipe, overwrite=overwrite, resume=resume)
    with held(folder, "a run", state):
        if state.is_main_process:
            prepare(folder, recipe, clear=overwrite and not resume)
        state.wait_for_everyone()
        trained, other = (folder / MODEL).is_dir(), _other_measurement(folder / RECORD, recipe)
        if not trained or other or not (folder / RECORD).is_file():
            work = Run(recipe, folder, state)
            if not trained:
                train(work, arguments)
            if other and work.main:
                print(f"{folder / RECORD} is measured anew: {other}")
            measure(work)
        if state.is_main_process:
            _finish(recipe, folder, started)
        state.wait_for_everyone()
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

    output: of the record; None measures the run itself anew, with its recipe and its report. overwrite: replace a record of
    another measurement, or whatever lies at `output`. device: as `attnfaith.measure` takes it; None: the accelerator, where
    there is one.

    Raises ModelError for a device that is not there, RunError where no model is there or something would be replaced,
    RecipeError where the recipe differs from the run's in more than `measure`, FileError as `run`.
    """
    started, folder = time.perf_counter(), Path(folder)
    device = None if device is None else device_of(device)
    path = folder / RECORD if output is None else Path(output)
    own = path.resolve() == (folder / RECORD).resolve()
    if not (folder / MODEL).is_dir():
        raise RunError(f"{folder} holds no trained model ({MODEL}/); train first")
    build(recipe.measure.producers, recipe.measure.options, recipe.reads)
    changed = recipes.differences(recipe, recipes.load(folder / RECIPE))
    if other := [key for key in changed if not key.startswith("measure.")]:
        raise RecipeError(f"the model was trained with another {', '.join(other)}: a measurement may change measure.* only")
    check_base(recipe)
    state = PartialState(cpu=not torch.cuda.is_available())
    other = _other_measurement(path, recipe) if own else ""
    if not overwrite and path.is_file() and (other or not own):
        what = f" with another {other}" if other else ""
        raise RunError(f"{path} is there already{what}: name another --output, or replace it with --overwrite")
    with held(folder, "a measurement", state):
        if own and state.is_main_process:
            prepare(folder, recipe)
            note(folder, status="trained")
        measure(Run(recipe, folder, state), None if own else path, device)
        if state.is_main_process and own:
            _finish(recipe, folder, started)
        elif state.is_main_process and recipe.kind != "translator":
            _print_results(path)
        state.wait_for_everyone()
    return path


def measure(run: Run, output: str | os.PathLike | None = None, device=None) -> None:
    """Measure the model of a run. output: of the record, None is the run's own."""
    recipe, section, loaded, own = run.recipe, run.recipe.measure, run.loaded, output is None
    model = load_model(run.folder).to(device or run.state.device)
    if run.pairs and own:  # first: the record holds the scores
        if run.main:
            _translate(model, run)
        run.state.wait_for_everyone()
    subject = subject_of(model, run.tokenizer)
    rows, attention, removal = subject.rows(run.drawn), None, recipe.data.removal
    if removal is not None:
        rows = remove(recipe, rows, run.tokenizer)
    if recipe.base and recipe.objective.kind != "adversarial":  # the measurement reads it, too
        run.check_base_unchanged()
    if recipe.objective.kind == "guided":
        attention = dict(zip(rows["instance_id"], record.rows(run.base_outputs(rows), "attention"), strict=True))
    facts = {key: value for key, value in read_state(run.folder).items() if key != "seconds"}
    data = {"revision": loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
    texts, training_texts = fingerprint(run.drawn), facts["texts"]["train"]
    if removal is not None:  # what is left of them; two measures may leave the same
        left = f"{removal.by} {removal.share} {facts['provenance']['data']['fingerprint']['train']}"
        texts, training_texts = data["fingerprint"][section.split][:12], hashlib.sha256(left.encode()).hexdigest()[:12]
    settings = {"recipe": dataclasses.asdict(recipe), "run": facts, "provenance": run.origin(section.seed, data)}
    settings |= {} if run.pairs else {"label_names": list(loaded.label_names)}
    cell = record.Identity(
        dataset=loaded.entry.name,
        texts=texts,
        training_texts=training_texts,
        split=section.split,
        seed=recipe.seed,
        **training_fields(recipe, recipes.load),
    )
    engine.measure(
        subject,
        rows,
        cell,
        section.producers,
        run.folder / RECORD if own else output,
        options=_prepared(run, subject),
        seed=section.seed,
        batch_tokens=section.batch_tokens,
        settings=settings,
        discard=own,  # shards of another measurement: the folder is held, so nobody finishes them
        attention=attention,
    )
    if run.main and own:
        note(run.folder, status="measured")


def _prepared(run: Run, subject) -> dict[str, dict]:
    """The options of the producers. Those that are trained on the model are, and keep their weights in the run's folder."""
    section = run.recipe.measure

    def drawn(split: str, most: int) -> Dataset:
        rows = run.rows(split)
        return rows.select(draw(np.arange(len(rows)), most, section.seed, split))

    options = {name: dict(values) for name, values in section.options.items()}
    for producer in build(section.producers, section.options, run.recipe.reads):
        if not producer.is_trained:
            with run.state.main_process_first():
                prepared = producer.prepare(subject, drawn, run.folder, seed=section.seed)
            options[producer.name] = dataclasses.asdict(prepared)
    return options


def _translate(model, run: Run) -> None:
    """Write greedy translations of the measured pairs as translations.txt, and their scores into run.json."""
    lines = translations(model, run.tokenizer, encode_pairs(run.drawn, run.tokenizer))
    lines = [" ".join(line.split()) for line in lines]
    write_atomically(run.folder / TRANSLATIONS, "".join(f"{line}\n" for line in lines))
    scores = translation_scores(lines, run.drawn["target"])
    note(run.folder, translation={"split": run.recipe.measure.split, "pairs": len(lines), **scores})


def _other_measurement(path: Path, recipe: Recipe) -> str:
    """The keys in which a record and the recipe differ as measurements; "" where they agree or there is no record."""
    if not path.is_file():
        return ""
    try:
        (section,) = [recipes.build(part["recipe"]).measure for part in record.settings(record.load(path))]
    except (record.RecordError, RecipeError, KeyError, TypeError, ValueError) as error:
        return f"it cannot be read: {excerpt(error)}"
    own, other = vars(recipe.measure), vars(section)
    return ", ".join(f"measure.{key}" for key, value in own.items() if value != other[key])


def _finish(recipe: Recipe, folder: Path, started: float) -> None:
    """Draw the page of the run's record, if there is to be one, and note and print that the run is complete."""
    shutil.rmtree(folder / SHARDS, ignore_errors=True)  # of another measurement that was killed
    if recipe.report.page or (folder / REPORT).is_dir():
        table, section = record.load(folder / RECORD), recipe.report
        write_report(table, folder / REPORT, title=section.title, n_examples=section.examples)
    note(folder, status="complete", seconds=round(time.perf_counter() - started, 1))
    if recipe.kind == "translator":
        print(f"translates: {translation_in_words(read_state(folder)['translation'])}")
    else:
        _print_results(folder / RECORD)


def _print_results(path: Path) -> None:
    """Print the scores of a classifier and the verdict on its attention, in two lines a cell."""
    for cell in split_cells(record.load(path)):
        if accuracy := accuracy_in_words(cell):
            print(printable(f"{cell.heading['dataset']} {cell.heading['split']}: {accuracy}"))
        answer = verdict([cell])
        print(printable(f"attention: {answer.headline}. {answer.reason}"))
