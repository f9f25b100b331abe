"""The run that a model is trained against: its checks and its outputs."""

import os
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, digest_model
from attnfaith.data.registry import SPLITS
from attnfaith.recipes import Recipe
from attnfaith.runs.folder import MODEL, OUTPUTS, RECIPE, STATE, RunError, note, read_state
from attnfaith.runs.models import load_model
from attnfaith.support.errors import AttnfaithError


KINDS = {"guided": ("classification", "adversarial"), "adversarial": ("classification",)}  # objectives a base may have
WEIGHTS = "weights (SHA-256)"


class OutputsError(AttnfaithError):
    """Outputs that cannot be used. The message names the reason and what to do."""


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

    def outputs(self, split: str, rows: Dataset) -> pa.Table:
        """Return `read_outputs` of an encoded split. Raises RunError for outputs of other texts."""
        try:
            return read_outputs(self.folder / OUTPUTS / f"{split}.parquet", rows, self.digest)
        except OutputsError as error:
            raise RunError(f"objective.base={self.folder}: {error}") from error

    def attention(self, split: str, rows: Dataset) -> dict[str, np.ndarray]:
        """Return {instance id: weights [T]} of an encoded split."""
        outputs = self.outputs(split, rows)
        return dict(zip(outputs.column("instance_id").to_pylist(), record.rows(outputs, "attention"), strict=True))

    def note(self, folder: Path) -> None:
        """Write into a run's state that it is trained against this base."""
        note(folder, base={"folder": str(self.folder), WEIGHTS: self.digest})

    def check_unchanged(self, folder: Path) -> None:
        """Raise RunError where this is no longer the base that the run in `folder` was trained against."""
        base = read_state(folder).get("base")
        if not isinstance(base, dict) or base.get(WEIGHTS) != self.digest:
            raise RunError(f"{self.folder} was trained anew since the run in {folder}: run that with --overwrite_output_dir")


def read_outputs(path: str | os.PathLike, dataset: Dataset, model: str) -> pa.Table:
    """Return predictions and attention of a model on an encoded data set, from the record at `path`: instance_id, probs [C]
    and attention [T], one row per instance of the data set, in its order.

    model: `digest_model` of the model that the record must come from.

    Raises OutputsError where the record cannot be read, or another model made it or on other texts.
    """
    try:
        table = record.load(path)
    except record.RecordError as error:
        raise OutputsError(f"{path} cannot be used: {error}") from error
    settings = record.settings(table)
    measured = settings[0] if len(settings) == 1 else {}
    if measured.get("model") != model:
        raise OutputsError(f"{path} was made by another model than the one beside it: measure that model anew")
    places = pc.index_in(pa.array(dataset["instance_id"]), table.column("instance_id").combine_chunks())
    if measured.get("data") != digest_data(dataset) or places.null_count:
        raise OutputsError(f"{path} was made of other texts, labels or another vocabulary: give both runs the same data")
    return table.select(["instance_id", "probs", "attention"]).take(places)


def needed_outputs(recipe: Recipe) -> list[str]:
    """Return the splits whose outputs the base must keep. A guided model cannot be measured without them."""
    section = recipe.measure
    needed = {"train", "validation"} if recipe.objective.needs_base else set()
    if recipe.objective.kind == "guided":
        needed |= {section.split, *section.outputs}
    return [split for split in SPLITS if split in needed]


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
    lacking = [split for split in needed_outputs(recipe) if not (folder / OUTPUTS / f"{split}.parquet").is_file()]
    if lacking:
        refuse(
            f"keeps no outputs of {', '.join(lacking)}: go on with that run with --resume_from_checkpoint "
            f"--measure.outputs '[{', '.join(SPLITS)}]'"
        )
    return Base(folder)
