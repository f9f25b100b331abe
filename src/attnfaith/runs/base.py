"""The run that a model is trained against: its checks, its predictions and its attention."""

from functools import cached_property
from pathlib import Path

import pyarrow as pa
from datasets import Dataset

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_model
from attnfaith.measurement.engine import measure
from attnfaith.recipes import Recipe
from attnfaith.runs.folder import RunError, read_state
from attnfaith.runs.models import load_model
from attnfaith.support.files import MODEL, RECIPE, STATE


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
        return measure(self.model, rows, cell, [], None, progress=False)

    def check_unchanged(self, folder: Path) -> None:
        """Raise RunError where this is no longer the base that the run in `folder` was trained against."""
        if (read_state(folder).get("base") or {}).get(WEIGHTS) != self.facts[WEIGHTS]:
            raise RunError(f"{self.folder} was trained anew since the run in {folder}: run that with --overwrite_output_dir")


def open_base(recipe: Recipe) -> Base | None:
    """Return the run that a recipe is trained against; None where its objective needs none. Raises RunError where its folder
    does not hold the parts that are needed, or it is a run of another kind.
    """
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
