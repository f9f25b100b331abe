"""The measurement of a trained run: its record, and the outputs that models trained against it need."""

import dataclasses
import os
from pathlib import Path

from accelerate import PartialState

import attnfaith
from attnfaith import recipes, record
from attnfaith.measurement import CODE, Cell, MeasurementError, digest_data, digest_model, measure, read_outputs
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.runs.base import Base
from attnfaith.runs.folder import MODEL, OUTPUTS, RECIPE, RECORD, note, origin, read_state
from attnfaith.runs.prepare import Texts


def is_measured(path: Path, recipe: Recipe) -> bool:
    """Whether a whole record lies there that this recipe's `measure` section made."""
    if not path.is_file():
        return False
    try:
        made = [recipes.build(part["recipe"]).measure for part in record.settings(record.load(path))]
    except (record.RecordError, RecipeError):
        return False
    return [dataclasses.replace(part, outputs=recipe.measure.outputs) for part in made] == [recipe.measure]


def is_measured_by_this_code(path: Path) -> bool:
    return [(part.get("version"), part.get("code")) for part in record.settings(record.load(path))] == [
        (attnfaith.__version__, CODE)
    ]


class Measurement:
    """What all measurements of one run share: its model, loaded once, and its texts, read once."""

    def __init__(self, recipe: Recipe, folder: Path, texts: Texts, base: Base | None, state: PartialState):
        self.recipe, self.folder, self.texts, self.base, self.state = recipe, folder, texts, base, state
        self._model = None

    @property
    def model(self) -> AttentionClassifierForSequenceClassification:
        if self._model is None:
            model = AttentionClassifierForSequenceClassification.from_pretrained(self.folder / MODEL)
            self._model = model.to(self.state.device)
        return self._model

    def record(self, output: str | os.PathLike | None = None) -> Path:
        """Measure as the recipe's `measure` section says; returns the record's path, None is the run's own.

        Shards of another measurement beside the run's own record are deleted: the folder is held, so nobody finishes them.
        """
        section, rows = self.recipe.measure, self.texts.measured
        data = {"revision": self.texts.loaded.revision, "fingerprint": {section.split: digest_data(rows)}}
        made = origin(section.seed, CODE, self.state, data)
        if self.state.is_main_process and output is None and "provenance" not in read_state(self.folder):
            note(self.folder, provenance={**made, "of": "measurement"})  # older code trained it
        path = self._measure(
            section.split,
            rows,
            section.producers,
            self.folder / RECORD if output is None else Path(output),
            level=section.level,
            options=section.options,
            discard=output is None,
            provenance=made,
        )
        if self.state.is_main_process and output is None:
            note(self.folder, status="measured")
        return path

    def outputs(self) -> None:
        """Write attention and predictions of the splits in `measure.outputs`, whole, where they do not lie there already."""
        if not self.recipe.measure.outputs:
            return
        weights = digest_model(self.model)
        for split in self.recipe.measure.outputs:
            path, rows = self.folder / OUTPUTS / f"{split}.parquet", self.texts.rows(split)
            try:
                read_outputs(path, rows, weights)
            except MeasurementError:
                self._measure(split, rows, [], path, discard=True)

    def _measure(self, split: str, rows, producers: list[str], path: Path, *, provenance: dict | None = None, **how) -> Path:
        loaded, section = self.texts.loaded, self.recipe.measure
        settings = {"recipe": dataclasses.asdict(self.recipe), "run": read_state(self.folder)}
        settings |= {"label_names": list(loaded.label_names)} | ({"provenance": provenance} if provenance else {})
        attention = None
        if self.recipe.objective.kind == "guided":
            self.base.check_unchanged(self.folder)
            attention = self.base.attention(split, self.texts.rows(split))
        cell = Cell(self.recipe.data.name, loaded.revision, split, self.recipe.seed, objective_label(self.recipe))
        return measure(
            self.model,
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


def objective_label(recipe: Recipe) -> str:
    """What the model of a recipe is trained for, as records name it: "classification", "classification(attention rate x 10)"
    where the alignment learns at another rate than the rest, "classification(tokens erased 0.5)" where it was trained with
    `training.random_erasure`, "untrained", "adversarial(kl, 0.002)",
    "guided(bilstm+additive+softmax)", "guided(adversarial(kl, 0.002))".
    """
    objective = recipe.objective
    if objective.kind == "adversarial":
        return f"adversarial({objective.divergence}, {objective.weight:g}{', frozen' if objective.frozen else ''})"
    if objective.kind == "guided":
        base = recipes.load(Path(objective.base) / RECIPE)
        config = AttentionClassifierConfig.from_pretrained(Path(objective.base) / MODEL)
        source = f"{config.encoder_label}+{config.alignment_label}+{config.projection_label}"
        return f"guided({source if base.objective.kind == 'classification' else objective_label(base)})"
    if objective.kind == "untrained":
        return objective.kind
    rate, share = recipe.training.attention_learning_rate_factor, recipe.training.random_erasure
    parts = [f"attention rate x {rate:g}"] if rate != 1 else []
    parts += [f"tokens erased {share:g}"] if share else []
    return f"{objective.kind}({', '.join(parts)})" if parts else objective.kind
