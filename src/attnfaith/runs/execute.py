"""A recipe carried out in one folder: prepare, train, measure, report."""

import dataclasses
import hashlib
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from accelerate import PartialState
from datasets import Dataset
from transformers.utils.logging import disable_progress_bar

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, fingerprint
from attnfaith.data.loading import draw
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.loading import device_of, load_model
from attnfaith.measurement import engine
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe
from attnfaith.record import training_fields
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.facts import translation_in_words
from attnfaith.reporting.page import write_report
from attnfaith.reporting.sections.performance import accuracy_in_words
from attnfaith.reporting.verdicts import verdict
from attnfaith.runs.folder import REPORT, TRANSLATIONS, RunError, check_free, check_trained_alike, held, note, prepare
from attnfaith.runs.models import check_model
from attnfaith.runs.preparation import Run, check_readings
from attnfaith.runs.train import train, training_arguments
from attnfaith.subjects import subject_of
from attnfaith.support.escaping import printable
from attnfaith.support.files import MODEL, RECORD, STATE, read_object, write_atomically
from attnfaith.training.translation import translation_scores, translations


def run(recipe: Recipe, *, overwrite: bool = False, resume: bool = False, device=None) -> Path:
    """Train, measure and report; return the path of the report's page, or of the record where the recipe wants no page.

    overwrite: delete the run that lies in the output folder; with resume, only its record. resume: go on with it; a recipe
    with another `measure` section keeps the trained model, which is measured anew. Without either, a folder that is not
    empty is refused. device: of the measurement; None: that of the training.

    Raises RunError, RecipeError, DatasetError or MeasurementError before work is lost, FileError where another process
    works in the folder, and DivergedError where loss or weights stop being numbers: then no model is kept.
    """
    started = time.perf_counter()
    state, folder, clear = _processes(recipe), Path(recipe.output_dir), overwrite and not resume
    arguments, path = training_arguments(recipe), folder / RECORD
    check_model(recipe, files=clear or not (folder / MODEL).is_dir())  # a trained model needs them no more
    check_readings(recipe)
    check_free(folder, recipe, overwrite=overwrite, resume=resume)
    other = [] if clear else _measured_otherwise(path, recipe)
    disable_progress_bar()  # of loading and saving, which take no time; training and measuring keep theirs
    with held(folder, "a run", state):
        if state.is_main_process:
            prepare(folder, recipe, clear=clear)
        state.wait_for_everyone()
        trained = (folder / MODEL).is_dir()
        if overwrite or other or not trained or not path.is_file():
            work = Run(recipe, folder, state)
            if not trained:
                train(work, arguments)
            if other and work.main:
                print(f"{path} is measured anew: {', '.join(other)}")
            measure(work, path, device, own=True)
        if state.is_main_process:
            table = record.load(path)
            if recipe.report.page or (folder / REPORT).is_dir():
                write_report(table, folder / REPORT, title=recipe.report.title, n_examples=recipe.report.examples)
            note(folder, status="complete", seconds=round(time.perf_counter() - started, 1))
            _print_results(table)
        state.wait_for_everyone()
    return (folder / REPORT / "index.html" if recipe.report.page else path).resolve()


def measure_run(folder: Path, recipe: Recipe, output: Path | None = None, *, overwrite: bool = False, device=None) -> Path:
    """Measure the model of a finished training, with the given recipe's `measure` section; return the record's path.

    output: of the record; None completes the run itself, with its recipe and its report. overwrite: measure anew and replace
    the record, also one of another measurement. device: as `attnfaith.measure` takes it; None: that of the training.

    Raises ModelError for a device that is not there, RunError where no model is there, something would be replaced, or the
    recipe differs from the run's in more than `measure`, FileError as `run`.
    """
    device = None if device is None else device_of(device)
    path = output or folder / RECORD
    own = path.resolve() == (folder / RECORD).resolve()
    if not (folder / MODEL).is_dir():
        raise RunError(f"{folder} holds no trained model ({MODEL}/); train first")
    check_trained_alike(folder, recipe)
    other = _measured_otherwise(path, recipe) if own else []
    if not overwrite and path.is_file() and (other or not own):
        what = f" with another {', '.join(other)}" if other else ""
        raise RunError(f"{path} is there already{what}: name another --output, or replace it with --overwrite")
    if own:
        run(dataclasses.replace(recipe, output_dir=str(folder)), overwrite=overwrite, resume=True, device=device)
        return path
    check_readings(recipe)
    state = _processes(recipe)
    with held(folder, "a measurement", state):
        measure(Run(recipe, folder, state), path, device)
        if state.is_main_process:
            _print_results(record.load(path))
        state.wait_for_everyone()
    return path


def _processes(recipe: Recipe) -> PartialState:
    """The processes at work, which accelerate started."""
    return PartialState(cpu=recipe.training.use_cpu or not torch.cuda.is_available())


def measure(run: Run, path: Path, device, *, own: bool = False) -> None:
    """Measure the model of a run. path: of the record. own: whether it is the run's own."""
    recipe, section, loaded, removal = run.recipe, run.recipe.measure, run.loaded, run.recipe.data.removal
    model = load_model(run.folder / MODEL, attn_implementation="eager").to(device or run.state.device)
    if run.pairs and own:  # first: the record holds the scores
        if run.main:
            _translate(model, run)
        run.state.wait_for_everyone()
    subject = subject_of(model, run.tokenizer)
    rows, attention = run.without_removed(subject.rows(run.drawn)), None
    if recipe.base and recipe.objective.kind != "adversarial":  # the measurement reads it, too
        run.check_base_unchanged()
    if recipe.objective.kind == "guided":
        weights = record.rows(run.base_record(rows), "attention")
        attention = dict(zip(rows["instance_id"], weights, strict=True))
    facts = read_object(run.folder / STATE)
    facts.pop("seconds", None)  # records are the same again
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
        path,
        options=_prepared(run, subject),
        seed=section.seed,
        batch_tokens=section.batch_tokens,
        settings=settings,
        discard=own,  # shards of another measurement: the folder is held, so nobody finishes them
        attention=attention,
    )


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


def _measured_otherwise(path: Path, recipe: Recipe) -> list[str]:
    """The keys of `measure` in which a record and the recipe differ; none without a record. Raises RecordError."""
    if not path.is_file():
        return []
    settings = next(iter(record.settings(record.load(path))), {})
    measured, wanted = settings.get("recipe", {}).get("measure", {}), dataclasses.asdict(recipe.measure)
    return [f"measure.{key}" for key, value in wanted.items() if measured.get(key, ...) != value]


def _print_results(table: pa.Table) -> None:
    """Print the scores of a model, and of a classifier the verdict on its attention, in two lines a cell."""
    if record.of_sequences(table):
        if scores := record.settings(table)[0]["run"].get("translation"):
            print(f"translates: {translation_in_words(scores)}")
        return
    for cell in split_cells(table):
        if accuracy := accuracy_in_words(cell):
            print(printable(f"{cell.heading['dataset']} {cell.heading['split']}: {accuracy}"))
        answer = verdict([cell])
        print(printable(f"attention: {answer.headline}. {answer.reason}"))
