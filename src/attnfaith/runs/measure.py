"""The measurement of a trained run: its record, and the outputs that models trained against it need."""

import dataclasses
import os
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from transformers import PreTrainedModel

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, digest_model, fingerprint
from attnfaith.data.sources import draw
from attnfaith.data.tokenization import by_words
from attnfaith.errors import excerpt
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import build
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.record.identity import training_fields
from attnfaith.runs.base import Base, OutputsError, read_outputs
from attnfaith.runs.checkpoint import load_model, measurable
from attnfaith.runs.folder import OUTPUTS, RECORD, check_trained, note, origin, read_state, trained_state
from attnfaith.runs.prepare import Texts
from attnfaith.subjects import subject_of


def is_measured(path: Path, recipe: Recipe) -> bool:
    """Whether a whole record lies there that this recipe's `measure` section made."""
    return path.is_file() and not other_measurement(path, recipe)


def other_measurement(path: Path, recipe: Recipe) -> str:
    """In what the record at `path` is of another measurement than this recipe's, in words; "" where it is of this one."""
    try:
        (made,) = [recipes.build(part["recipe"]).measure for part in record.settings(record.load(path))]
    except (record.RecordError, RecipeError, KeyError, TypeError, ValueError) as error:
        return f"it cannot be read: {excerpt(error)}"
    keys = (key.name for key in dataclasses.fields(made) if key.name != "outputs")
    return ", ".join(f"measure.{key}" for key in keys if getattr(made, key) != getattr(recipe.measure, key))


def is_measured_by_this_version(path: Path) -> bool:
    """Whether the installed version of the package, by major.minor, measured the record."""
    return record.is_current(record.load(path))


class Measurement:
    """What all measurements of one run share: its model, loaded once, and its texts, read once."""

    def __init__(self, recipe: Recipe, folder: Path, texts: Texts, base: Base | None, state: PartialState, device=None):
        self.recipe, self.folder, self.texts, self.base, self.state = recipe, folder, texts, base, state
        self.device, self._model = device or state.device, None
        check_trained(folder)

    @property
    def model(self) -> PreTrainedModel:
        if self._model is None:
            self._model = load_model(self.folder).to(self.device)
        return self._model

    def record(self, output: str | os.PathLike | None = None) -> Path:
        """Measure as the recipe's `measure` section says; returns the record's path, None is the run's own.

        Shards of another measurement beside the run's own record are deleted: the folder is held, so nobody finishes them.
        """
        section, rows = self.recipe.measure, self.texts.measured
        data = {"revision": self.texts.loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
        made = origin(section.seed, self.state, data)
        if self.state.is_main_process and output is None and "provenance" not in read_state(self.folder):
            note(self.folder, provenance={**made, "of": "measurement"})  # older code trained it
        path = self._measure(
            section.split,
            self.texts.drawn,
            rows,
            section.producers,
            self.folder / RECORD if output is None else Path(output),
            level=section.level,
            options=self._prepared(),
            discard=output is None,
            provenance=made,
        )
        if self.state.is_main_process and output is None:
            note(self.folder, status="measured")
        return path

    def _prepared(self) -> dict[str, dict]:
        """The options of the producers. Those that have to be trained on the model are, on the run's own texts, by one
        process for all; what they learned is kept in the run's folder.
        """
        section = self.recipe.measure
        options = {name: dict(given) for name, given in section.options.items()}
        pending = [one for one in build(section.producers, section.options) if not one.is_trained]
        if not pending:
            return options
        subject = subject_of(measurable(self.model, self.texts.tokenizer), section.level)
        with self.state.main_process_first():
            for one in pending:
                prepared = one.prepare(subject, self._some, self.folder, seed=section.seed)
                options[one.name] = dataclasses.asdict(prepared)
        return options

    def _some(self, split: str, most: int) -> Dataset:
        """At most so many encoded texts of a split, drawn by the seed of the measurement."""
        rows, section = self.texts.rows(split), self.recipe.measure
        rows = rows.select(draw(np.arange(len(rows)), most, section.seed, split))
        return by_words(rows) if section.level == "word" else rows

    def outputs(self) -> None:
        """Write attention and predictions of the splits in `measure.outputs`, whole, where they do not lie there already."""
        if not self.recipe.measure.outputs:
            return
        weights = digest_model(self.model)
        for split in self.recipe.measure.outputs:
            path, rows = self.folder / OUTPUTS / f"{split}.parquet", self.texts.rows(split)
            try:
                read_outputs(path, rows, weights)
            except OutputsError:
                self._measure(split, self.texts.loaded.splits[split], rows, [], path, discard=True)

    def _measure(
        self,
        split: str,
        drawn: Dataset,
        rows: Dataset,
        producers: list[str],
        path: Path,
        *,
        provenance: dict | None = None,
        **how,
    ) -> Path:
        """drawn: the texts of a split as they were read; rows: the same, encoded."""
        section, state = self.recipe.measure, trained_state(self.folder)
        settings = {
            "recipe": dataclasses.asdict(self.recipe),
            "run": state,
            "label_names": list(self.texts.loaded.label_names),
        }
        if provenance:
            settings["provenance"] = provenance
        attention = None
        if self.recipe.objective.kind == "guided":
            self.base.check_unchanged(self.folder)
            attention = self.base.attention(split, self.texts.rows(split))
        trained = state.get("texts") or {"train": fingerprint(self.texts.loaded.splits["train"])}
        cell = record.Identity(
            dataset=self.texts.loaded.entry.name,
            texts=fingerprint(drawn),
            training_texts=trained["train"],
            split=split,
            seed=self.recipe.seed,
            **training_fields(self.recipe, recipes.load),
        )
        return measure(
            measurable(self.model, self.texts.tokenizer),
            rows,
            cell,
            producers,
            path,
            attention=attention,
            seed=section.seed,
            batch_tokens=section.batch_tokens,
            settings=settings,
            **how,
        )
