"""The measurement of a trained run: its record and its translations."""

import dataclasses
import os

import numpy as np
from datasets import Dataset

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, fingerprint
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.data.sources import draw
from attnfaith.measurement import engine
from attnfaith.measurement.registry import build
from attnfaith.record import training_fields
from attnfaith.runs.folder import TRANSLATIONS, note, read_state
from attnfaith.runs.models import load_model, measurable
from attnfaith.runs.preparation import Run
from attnfaith.subjects import subject_of
from attnfaith.support.files import RECORD, write_atomically
from attnfaith.training.translation import translation_scores, translations


def measure(run: Run, output: str | os.PathLike | None = None, device=None) -> None:
    """Measure the model of a run. output: of the record, None is the run's own."""
    recipe, section, loaded, own = run.recipe, run.recipe.measure, run.loaded, output is None
    model = load_model(run.folder).to(device or run.state.device)
    if run.pairs and own:  # first: the record holds the scores
        if run.main:
            _translate(model, run)
        run.state.wait_for_everyone()
    subject = measurable(model, run.tokenizer, run.pairs)
    rows = subject.rows(run.drawn) if run.pairs else run.measured
    attention = None
    if recipe.objective.kind == "guided":
        run.base.check_unchanged(run.folder)
        attention = dict(zip(rows["instance_id"], record.rows(run.base.outputs(rows), "attention"), strict=True))
    facts = {key: value for key, value in read_state(run.folder).items() if key != "seconds"}
    data = {"revision": loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
    settings = {"recipe": dataclasses.asdict(recipe), "run": facts, "provenance": run.origin(section.seed, data)}
    settings |= {} if run.pairs else {"label_names": list(loaded.label_names)}
    cell = record.Identity(
        dataset=loaded.entry.name,
        texts=fingerprint(run.drawn),
        training_texts=facts["texts"]["train"],
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
    """The options of the producers. Those that have to be trained on the model are, on the run's own texts, by one process
    for all, and keep their weights in the run's folder.
    """
    section = run.recipe.measure

    def drawn(split: str, most: int) -> Dataset:
        rows = run.rows(split)
        return rows.select(draw(np.arange(len(rows)), most, section.seed, split))

    options = {name: dict(values) for name, values in section.options.items()}
    for producer in build(section.producers, section.options, run.recipe.reads):
        if not producer.is_trained:
            with run.state.main_process_first():
                prepared = producer.prepare(subject_of(subject), drawn, run.folder, seed=section.seed)
            options[producer.name] = dataclasses.asdict(prepared)
    return options


def _translate(model, run: Run) -> None:
    """Write greedy translations of the measured pairs as translations.txt, and their scores into run.json."""
    lines = translations(model, run.tokenizer, encode_pairs(run.drawn, run.tokenizer))
    lines = [" ".join(line.split()) for line in lines]
    write_atomically(run.folder / TRANSLATIONS, "".join(f"{line}\n" for line in lines))
    scores = translation_scores(lines, run.drawn["target"])
    note(run.folder, translation={"split": run.recipe.measure.split, "pairs": len(lines), **scores})
