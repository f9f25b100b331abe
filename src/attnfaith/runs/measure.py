"""The measurement of a trained run: its record and its translations; and the run that it was trained against."""

import dataclasses
import os
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from accelerate import PartialState
from datasets import Dataset

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, digest_model, fingerprint
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.data.sources import draw
from attnfaith.measurement import engine
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe
from attnfaith.record import training_fields
from attnfaith.runs.folder import TRANSLATIONS, RunError, note, origin, read_state
from attnfaith.runs.models import load_model, measurable
from attnfaith.runs.texts import Texts
from attnfaith.subjects import subject_of
from attnfaith.support.files import MODEL, RECIPE, RECORD, STATE, write_atomically
from attnfaith.training.translation import translation_scores, translations


KINDS = {"guided": ("classification", "adversarial"), "adversarial": ("classification",)}  # objectives a base may have
WEIGHTS = "weights (SHA-256)"


class Base:
    """A trained run that another is trained against, read once."""

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def model(self):
        return load_model(self.folder)

    @property
    def facts(self) -> dict[str, str]:
        """Its facts in the state of a run that is trained against it."""
        return {"folder": str(self.folder), WEIGHTS: digest_model(self.model)}

    def outputs(self, rows: Dataset) -> pa.Table:
        """Return its probs [C] and attention [T], one row per instance of an encoded data set, in its order."""
        cell = record.Identity("", "", "", record.UNKNOWN_SEED)
        return engine.measure(self.model, rows, cell, [], None, progress=False)

    def check_unchanged(self, folder: Path) -> None:
        """Raise RunError where this is no longer the base that the run in `folder` was trained against."""
        if (read_state(folder).get("base") or {}).get(WEIGHTS) != self.facts[WEIGHTS]:
            raise RunError(f"{self.folder} was trained anew since the run in {folder}: run that with --overwrite_output_dir")


def open_base(recipe: Recipe) -> Base | None:
    """Return the run that a recipe is trained against, or None. Raises RunError where it is none that can serve."""
    objective = recipe.objective
    if not objective.needs_base:
        return None
    folder, kinds = Path(objective.base), KINDS[objective.kind]
    missing = [name for name in (RECIPE, STATE, MODEL) if not (folder / name).exists()]
    if folder.resolve() == Path(recipe.output_dir).resolve():
        reason = "is this run's own output_dir; name the run it is trained against"
    elif missing:
        reason = f"is no trained run ({', '.join(missing)} missing there): train it first"
    else:
        base = recipes.load(folder / RECIPE)
        changed = [key for key in recipes.differences(recipe, base) if key.startswith("model.")]
        if base.kind != "classifier" or base.model.selector is not None:
            reason = "is no model whose attention pools states: leave model.pretrained, .type and .selector out of it"
        elif base.objective.kind not in kinds:
            reason = f"has objective {base.objective.kind}; for {objective.kind!r} it must be {' or '.join(kinds)}"
        elif "model.hierarchy" in changed:
            reason = "attends to words and this model to sentences, or the other way round: give both one model.hierarchy"
        elif objective.frozen and changed:
            reason = f"is another model than objective.frozen starts from: {', '.join(changed)}"
        else:
            return Base(folder)
    raise RunError(f"objective.base={folder} {reason}")


def measure(
    recipe: Recipe,
    folder: Path,
    texts: Texts,
    base: Base | None,
    state: PartialState,
    output: str | os.PathLike | None = None,
    device=None,
) -> Path:
    """Measure the model of a run; return the record's path. output: of the record, None is the run's own."""
    section, own, pairs = recipe.measure, output is None, recipe.kind == "translator"
    model, loaded = load_model(folder).to(device or state.device), texts.loaded
    if pairs and own:  # first: the record holds the scores
        if state.is_main_process:
            _translate(model, texts, folder, section.split)
        state.wait_for_everyone()
    subject = measurable(model, texts.tokenizer, pairs)
    rows = subject.rows(texts.drawn) if pairs else texts.measured
    attention = None
    if recipe.objective.kind == "guided":
        base.check_unchanged(folder)
        attention = dict(zip(rows["instance_id"], record.rows(base.outputs(rows), "attention"), strict=True))
    run = {key: value for key, value in read_state(folder).items() if key != "seconds"}
    data = {"revision": loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
    settings = {"recipe": dataclasses.asdict(recipe), "run": run, "provenance": origin(section.seed, state, data)}
    settings |= {} if pairs else {"label_names": list(loaded.label_names)}
    cell = record.Identity(
        dataset=loaded.entry.name,
        texts=fingerprint(texts.drawn),
        training_texts=run["texts"]["train"],
        split=section.split,
        seed=recipe.seed,
        **training_fields(recipe, recipes.load),
    )
    path = engine.measure(
        subject,
        rows,
        cell,
        section.producers,
        folder / RECORD if own else output,
        options=_prepared(recipe, subject, texts, folder, state),
        seed=section.seed,
        batch_tokens=section.batch_tokens,
        settings=settings,
        discard=own,  # shards of another measurement: the folder is held, so nobody finishes them
        attention=attention,
    )
    if state.is_main_process and own:
        note(folder, status="measured")
    return path


def _prepared(recipe: Recipe, subject, texts: Texts, folder: Path, state: PartialState) -> dict[str, dict]:
    """The options of the producers. Those that have to be trained on the model are, on the run's own texts, by one process
    for all, and keep their weights in the run's folder.
    """
    section = recipe.measure

    def drawn(split: str, most: int) -> Dataset:
        rows = texts.rows(split)
        return rows.select(draw(np.arange(len(rows)), most, section.seed, split))

    options = {name: dict(values) for name, values in section.options.items()}
    for producer in build(section.producers, section.options, recipe.reads):
        if not producer.is_trained:
            with state.main_process_first():
                prepared = producer.prepare(subject_of(subject), drawn, folder, seed=section.seed)
            options[producer.name] = dataclasses.asdict(prepared)
    return options


def _translate(model, texts: Texts, folder: Path, split: str) -> None:
    """Write greedy translations of the measured pairs as translations.txt, and their scores into run.json."""
    lines = translations(model, texts.tokenizer, encode_pairs(texts.drawn, texts.tokenizer))
    lines = [" ".join(line.split()) for line in lines]
    write_atomically(folder / TRANSLATIONS, "".join(f"{line}\n" for line in lines))
    scores = translation_scores(lines, texts.drawn["target"])
    note(folder, translation={"split": split, "pairs": len(lines), **scores})
