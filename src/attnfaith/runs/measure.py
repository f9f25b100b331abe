"""The measurement of a trained run: its record, its outputs for models trained against it, translations, report."""

import dataclasses
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import Dataset

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, digest_model, fingerprint
from attnfaith.data.pair_encoding import encode_pairs
from attnfaith.data.sources import draw
from attnfaith.data.tokenization import by_words
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.record import training_fields
from attnfaith.reporting import write_report
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.facts import translation_in_words
from attnfaith.reporting.sections.performance import accuracy_in_words
from attnfaith.reporting.verdicts import verdict
from attnfaith.runs.base import Base, OutputsError, read_outputs
from attnfaith.runs.folder import OUTPUTS, RECORD, TRANSLATIONS, note, origin, read_state, trained_state
from attnfaith.runs.models import load_model, measurable
from attnfaith.runs.texts import Texts
from attnfaith.subjects import subject_of
from attnfaith.support.errors import excerpt
from attnfaith.support.escaping import printable
from attnfaith.support.files import write_atomically
from attnfaith.training.translation import translation_scores, translations


def other_measurement(path: Path, recipe: Recipe) -> str:
    """Return the keys in which the record at `path` and the recipe differ as measurements; "" where they agree."""
    try:
        (section,) = [recipes.build(part["recipe"]).measure for part in record.settings(record.load(path))]
    except (record.RecordError, RecipeError, KeyError, TypeError, ValueError) as error:
        return f"it cannot be read: {excerpt(error)}"
    keys = [key.name for key in dataclasses.fields(section) if key.name != "outputs"]
    return ", ".join(f"measure.{key}" for key in keys if getattr(section, key) != getattr(recipe.measure, key))


class Measurement:
    """The measurements of one run, whose model is loaded once and whose texts are read once."""

    def __init__(self, recipe: Recipe, folder: Path, texts: Texts, base: Base | None, state: PartialState, device=None):
        self.recipe, self.folder, self.texts, self.base, self.state = recipe, folder, texts, base, state
        self.device, self.pairs = device or state.device, recipe.kind == "translator"
        trained_state(folder)

    @cached_property
    def model(self):
        return load_model(self.folder).to(self.device)

    @cached_property
    def _measurable(self):
        return measurable(self.model, self.texts.tokenizer, self.pairs)

    def record(self, output: str | os.PathLike | None = None) -> Path:
        """Measure by the recipe's `measure` section; return the record's path. output: None is the run's own.

        Shards of another measurement beside the run's own record are deleted: the folder is held, so nobody finishes them.
        """
        section, drawn, own = self.recipe.measure, self.texts.drawn, output is None
        if self.pairs and own:
            self._translate()  # first: the record holds the scores
        rows = self._measurable.rows(drawn) if self.pairs else self.texts.measured
        data = {"revision": self.texts.loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
        how = {"options": self._prepared(), "provenance": origin(section.seed, self.state, data)}
        how |= {} if self.pairs else {"level": section.level}
        path = self.folder / RECORD if own else Path(output)
        self._measure(section.split, drawn, rows, section.producers, path, discard=own, **how)
        if self.state.is_main_process and own:
            note(self.folder, status="measured")
        return path

    def _prepared(self) -> dict[str, dict]:
        """The options of the producers. Those that have to be trained on the model are, on the run's own texts, by one
        process for all, and keep their weights in the run's folder.
        """
        section = self.recipe.measure
        options = {name: dict(values) for name, values in section.options.items()}
        for producer in build(section.producers, section.options, self.recipe.reads):
            if not producer.is_trained:
                subject = subject_of(self._measurable, section.level)
                with self.state.main_process_first():
                    prepared = producer.prepare(subject, self._drawn_rows, self.folder, seed=section.seed)
                options[producer.name] = dataclasses.asdict(prepared)
        return options

    def _drawn_rows(self, split: str, most: int) -> Dataset:
        """At most so many encoded texts of a split, drawn by the seed of the measurement."""
        rows, section = self.texts.rows(split), self.recipe.measure
        rows = rows.select(draw(np.arange(len(rows)), most, section.seed, split))
        return by_words(rows) if section.level == "word" else rows

    def outputs(self) -> None:
        """Write attention and predictions of the splits in `measure.outputs`, whole, where they do not lie there already."""
        for split in self.recipe.measure.outputs:
            path, rows = self.folder / OUTPUTS / f"{split}.parquet", self.texts.rows(split)
            try:
                read_outputs(path, rows, digest_model(self.model))
            except OutputsError:
                self._measure(split, self.texts.loaded.splits[split], rows, [], path, discard=True)

    def _measure(
        self, split: str, drawn: Dataset, rows: Dataset, producers: list[str], path: Path, *, provenance=None, **how
    ) -> None:
        """Write the record of a split at `path`. drawn: its texts as they were read; rows: the same, encoded."""
        section, state, loaded = self.recipe.measure, trained_state(self.folder), self.texts.loaded
        settings = {"recipe": dataclasses.asdict(self.recipe), "run": state}
        settings |= {} if self.pairs else {"label_names": list(loaded.label_names)}
        settings |= {"provenance": provenance} if provenance else {}
        if self.recipe.objective.kind == "guided":
            self.base.check_unchanged(self.folder)
            how["attention"] = self.base.attention(split, self.texts.rows(split))
        trained = state.get("texts") or {"train": fingerprint(loaded.splits["train"])}
        cell = record.Identity(
            dataset=loaded.entry.name,
            texts=fingerprint(drawn),
            training_texts=trained["train"],
            split=split,
            seed=self.recipe.seed,
            **training_fields(self.recipe, recipes.load),
        )
        how |= {"seed": section.seed, "batch_tokens": section.batch_tokens, "settings": settings}
        measure(self._measurable, rows, cell, producers, path, **how)

    def _translate(self) -> None:
        """Write greedy translations of the measured pairs as translations.txt, and their scores into run.json; one process
        does, and all wait.
        """
        if self.state.is_main_process:
            drawn, tokenizer = self.texts.drawn, self.texts.tokenizer
            lines = translations(self.model, tokenizer, encode_pairs(drawn, tokenizer))
            lines = [" ".join(line.split()) for line in lines]
            write_atomically(self.folder / TRANSLATIONS, "".join(f"{line}\n" for line in lines))
            scores = translation_scores(lines, drawn["target"])
            note(self.folder, translation={"split": self.recipe.measure.split, "pairs": len(lines), **scores})
        self.state.wait_for_everyone()


def report(path: Path, output: Path, recipe: Recipe) -> Path:
    """Write tables, figures and page of a record; return the page's path."""
    return write_report(record.load(path), output, title=recipe.report.title, n_examples=recipe.report.examples)


def print_results(path: Path, folder: Path, recipe: Recipe) -> None:
    """Print the scores of a run's model and, of classifiers, the verdict on its attention, in two lines a cell."""
    if recipe.kind == "translator":
        print(f"translates: {translation_in_words(read_state(folder)['translation'])}")
        return
    for cell in split_cells(record.load(path)):
        accuracy = accuracy_in_words(cell)
        if accuracy:
            print(printable(f"{cell.heading['dataset']} {cell.heading['split']}: {accuracy}"))
        answer = verdict([cell.of_inputs])
        print(printable(f"attention: {answer.headline}. {answer.reason}"))
