"""What of a cell's identity its recipe decides, before anything is run."""

from dataclasses import asdict
from pathlib import Path

from attnfaith import recipes
from attnfaith.recipes import Recipe
from attnfaith.record import PENALTY_FIELDS


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


def model_fields(model: recipes.Model) -> dict[str, object]:
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


def objective_fields(recipe: Recipe) -> dict[str, object]:
    """The fields that say what a model is trained for."""
    objective = recipe.objective
    fields = {
        "objective": objective.kind if recipe.model.type is None else "translation",
        "attention_rate": recipe.training.attention_learning_rate_factor,
        "random_erasure": recipe.training.random_erasure,
        **asdict(recipe.penalties),
    }
    stated = ("baseline", "sparsity", "coherence", "lasso", "two_sided")
    fields |= {f"selection_{name}": getattr(recipe.selection, name) for name in stated}
    fields["selection_target"] = recipe.selection.share
    if objective.kind == "adversarial":
        fields |= {f"adversary_{name}": getattr(objective, name) for name in ("weight", "divergence", "frozen")}
    return fields


def training_fields(recipe: Recipe) -> dict[str, object]:
    """`objective_fields`, and those of the run that the model is trained against, read from that run's recipe.

    Raises RecipeError where there is no such run.
    """
    fields = objective_fields(recipe)
    if not recipe.objective.needs_base:
        return fields
    base = recipes.load(Path(recipe.objective.base) / RECIPE)
    known = model_fields(base.model) | objective_fields(base)
    return fields | {f"base_{name}": known.get(name) for name in BASE_FIELDS}
