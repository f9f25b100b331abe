"""The run that a model is trained against: its checks, its predictions and its attention."""

from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_model
from attnfaith.measurement.engine import measure
from attnfaith.recipes import Recipe
from attnfaith.runs.folder import MODEL, RECIPE, STATE, RunError, note, read_state
from attnfaith.runs.models import load_model, load_tokenizer


KINDS = {"guided": ("classification", "adversarial"), "adversarial": ("classification",)}  # objectives a base may have
WEIGHTS = "weights (SHA-256)"


class Base:
    """A trained run that another is trained against, read once."""

    def __init__(self, folder: Path):
        self.folder = folder

    @cached_property
    def model(self):
        return load_model(self.folder)

    @cached_property
    def digest(self) -> str:
        return digest_model(self.model)

    def outputs(self, rows: Dataset) -> pa.Table:
        """Return its probs [C] and attention [T], one row per instance of an encoded data set, in its order."""
        cell = record.Identity("", "", "", record.UNKNOWN_SEED)
        return measure(self.model, rows, cell, [], None, progress=False)

    def attention(self, rows: Dataset) -> dict[str, np.ndarray]:
        """Return {instance id: weights [T]} of an encoded data set."""
        return dict(zip(rows["instance_id"], record.rows(self.outputs(rows), "attention"), strict=True))

    def note(self, folder: Path) -> None:
        """Write into a run's state that it is trained against this base."""
        note(folder, base={"folder": str(self.folder), WEIGHTS: self.digest})

    def check_vocabulary(self, tokenizer) -> None:
        """Raise RunError where it reads texts by another vocabulary."""
        if load_tokenizer(self.folder).get_vocab() != tokenizer.get_vocab():
            raise RunError(f"objective.base={self.folder} knows other words: give both runs the same data")

    def check_unchanged(self, folder: Path) -> None:
        """Raise RunError where this is no longer the base that the run in `folder` was trained against."""
        base = read_state(folder).get("base")
        if not isinstance(base, dict) or base.get(WEIGHTS) != self.digest:
            raise RunError(f"{self.folder} was trained anew since the run in {folder}: run that with --overwrite_output_dir")


def open_base(recipe: Recipe) -> Base | None:
    """Return the run that a recipe is trained against; None where its objective needs none. Raises RunError where its folder
    does not hold the parts that are needed, or it is a run of another kind.
    """
    objective = recipe.objective
    if not objective.needs_base:
        return None
    folder, kinds = Path(objective.base), KINDS[objective.kind]

    def refuse(reason: str) -> None:
        raise RunError(f"objective.base={folder} {reason}")

    if folder.resolve() == Path(recipe.output_dir).resolve():
        refuse("is this run's own output_dir; name the run it is trained against")
    missing = [name for name in (RECIPE, STATE, MODEL) if not (folder / name).exists()]
    if missing:
        refuse(f"is no trained run ({', '.join(missing)} missing there): train it first")
    base = recipes.load(folder / RECIPE)
    if base.kind != "classifier" or base.model.selector is not None:
        refuse("is no model whose attention pools states: leave model.pretrained, model.type and model.selector out of it")
    if base.objective.kind not in kinds:
        refuse(f"has objective {base.objective.kind}; that of a base of {objective.kind!r} must be {' or '.join(kinds)}")
    changed = [key for key in recipes.differences(recipe, base) if key.startswith("model.")]
    if "model.hierarchy" in changed:
        refuse("attends to words and this model to sentences, or the other way round: give both the same model.hierarchy")
    if objective.frozen and changed:
        refuse(f"is another model than objective.frozen starts from: {', '.join(changed)}")
    return Base(folder)
