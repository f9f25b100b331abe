"""What of a cell's identity its recipe decides, before anything is run."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import yaml

from attnfaith.record import PENALTY_FIELDS


if TYPE_CHECKING:
    from attnfaith.recipes import Model, Recipe


RECIPE = "recipe.yaml"
"""Name of the recipe in the folder of a run."""
BASE_FIELDS = (
    "encoder",
    "hierarchy",
    "alignment",
    "score_scale",
    "projection",
    "projection_parameter",
    "objective",
    "adversary_weight",
    "adversary_divergence",
    "adversary_frozen",
    *PENALTY_FIELDS,
)


def written_recipe(path: Path) -> SimpleNamespace:
    """A recipe as a run wrote it, complete, with its sections as attributes; read without a check and in little time.

    Raises OSError, ValueError, TypeError or yaml.YAMLError where it cannot be read, AttributeError where it lacks a section.
    """
    sections = yaml.safe_load(path.read_text(encoding="utf-8"))
    return json.loads(json.dumps(sections), object_hook=lambda keys: SimpleNamespace(**keys))


def model_fields(model: "Model") -> dict[str, object]:
    """The fields of `record.Identity` that the model section decides; not those of the word vectors. Of sentence pairs what
    else tells models of a study apart.
    """
    parameter = {"sparsegen": model.sparsegen_lambda, "entmax": model.entmax_alpha}.get(model.projection)
    names = ("encoder", "hierarchy", "alignment", "score_scale", "projection", "readout")
    fields = {**{name: getattr(model, name) for name in names}, "projection_parameter": parameter}
    if model.selector is not None:
        said = model.selector
        names = ("kind", "budget", "contiguous", "transition", "temperature", "test_temperature", "pooling", "reads")
        fields |= {f"selection_{name}": said[name] for name in (*names, "encoder", "threshold")}
        fields |= {"selection_vectors_shared": said["share_embeddings"], "attention_kind": "selection"}
        fields |= {"alignment": "selector", "projection": said["kind"], "projection_parameter": said["budget"]}
    if model.type is not None:
        fields |= {"model": model.type, "readout": model.recurrence, "hidden_size": model.hidden_size}
    if model.pretrained is not None:  # its kind is read from its files, when it is trained
        fields["separate_impermissible"] = model.separate_impermissible
        fields["encoder"] = model.pretrained if model.revision is None else f"{model.pretrained}@{model.revision}"
    return fields


def objective_fields(recipe: "Recipe") -> dict[str, object]:
    """The fields that say what a model is trained for."""
    objective = recipe.objective
    fields = {
        "objective": objective.kind if recipe.model.type is None else "translation",
        "attention_rate": recipe.training.attention_learning_rate_factor,
        "random_erasure": recipe.training.random_erasure,
        **vars(recipe.penalties),
    }
    stated = ("baseline", "sparsity", "coherence", "lasso", "two_sided")
    fields |= {f"selection_{name}": getattr(recipe.selection, name) for name in stated}
    fields["selection_target"] = recipe.selection.share
    if objective.kind == "adversarial":
        fields |= {f"adversary_{name}": getattr(objective, name) for name in ("weight", "divergence", "frozen")}
    return fields


def training_fields(recipe: "Recipe", read: Callable | None = None) -> dict[str, object]:
    """`objective_fields`, and those of the run that the model is trained against, read from that run's recipe.

    read: reads the recipe of that run; None: `attnfaith.recipes.load`, which raises RecipeError where there is none.
    """
    fields = objective_fields(recipe)
    if recipe.objective.base is None:
        return fields
    if read is None:
        from attnfaith.recipes import load as read
    base = read(Path(recipe.objective.base) / RECIPE)
    known = model_fields(base.model) | objective_fields(base)
    return fields | {f"base_{name}": known.get(name) for name in BASE_FIELDS}
