"""Rules of recipes that fine-tune a pretrained model, and the settings of a training where a recipe is silent."""

from dataclasses import fields, replace

from attnfaith.errors import excerpt
from attnfaith.recipes.sections import RecipeError
from attnfaith.recipes.sequences import OF_SEQUENCES


OF_OURS = {
    "num_train_epochs": 8,
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
    "max_grad_norm": 0.0,
    "amsgrad": True,
    "loss_reduction": "sum",
}
"""The papers' settings (Jain & Wallace 2019)."""
OF_PRETRAINED = {
    "num_train_epochs": 3,
    "learning_rate": 5e-5,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "amsgrad": False,
    "loss_reduction": "mean",
}
"""What is usual for fine-tuning (Devlin et al. 2019, appendix A.3), with AdamW."""
SCHEDULE = {"lr_scheduler_type": "linear", "warmup_steps": 0.1}
"""How its learning rate changes, and that of a model of sentence pairs: it rises over a tenth of the updates, and falls to 0
in a straight line.
"""
OWN_FIELDS = ("pretrained", "revision", "projection", "sparsegen_lambda", "entmax_alpha", "separate_impermissible")
OWN_FIELDS += ("selector",)
"""The keys of the model section that say something of a pretrained model."""
ITS_OWN = {
    "tokenizer": "its tokenizer",
    "tokenizer_revision": "its tokenizer",
    "vectors": "its embeddings",
    "min_df": "its vocabulary",
}
"""Keys of the data section in whose place a pretrained model brings something."""


def completed(training, pretrained: bool, pairs: bool = False):
    """The training section with what is usual for its kind of model, or for sentence pairs, where it says nothing, written
    out.
    """
    defaults = OF_SEQUENCES if pairs else OF_PRETRAINED if pretrained else OF_OURS
    made = {key: value for key, value in defaults.items() if getattr(training, key) is None}
    if pretrained or pairs:
        made["arguments"] = SCHEDULE | training.arguments
    return replace(training, **made)


def check_pretrained(recipe) -> None:
    """Raise RecipeError for the first key that a pretrained model leaves no room for, or that is of one where none is."""
    model, name = recipe.model, recipe.model.pretrained
    if name is None:
        if model.revision is not None:
            raise RecipeError(
                f"model.revision={excerpt(model.revision)} is of model.pretrained, which is not given: give it, or leave "
                "out the revision"
            )
        if model.separate_impermissible:
            raise RecipeError(
                "model.separate_impermissible=true is for model.pretrained, which is not given: attention that pools states "
                "is from no token to another; leave it out"
            )
        return
    given, usual = f"model.pretrained={excerpt(name)}", type(model)()
    for key in fields(model):
        value = getattr(model, key.name)
        if key.name not in OWN_FIELDS and value != getattr(usual, key.name):
            raise RecipeError(
                f"model.{key.name}={excerpt(value)} with {given}, which is made as it was trained: leave it out; its "
                "attention may have another model.projection"
            )
    for key, what in ITS_OWN.items():
        if getattr(recipe.data, key) is not None:
            raise RecipeError(
                f"data.{key}={excerpt(getattr(recipe.data, key))} with {given}, which has {what}: leave it out"
            )
    kind = recipe.objective.kind
    if kind not in ("classification", "untrained"):
        raise RecipeError(
            f"objective.kind={kind!r} with {given}: what is given to such models, or compared with a base's, is the "
            "attention that pools states; choose classification or untrained"
        )
    for key, usual in {"amsgrad": False, "attention_learning_rate_factor": 1, "random_erasure": 0}.items():
        if (value := getattr(recipe.training, key)) != usual:
            raise RecipeError(
                f"training.{key}={excerpt(value)} with {given}, which is trained by AdamW on whole texts, with one learning "
                "rate: leave it out"
            )
    if recipe.measure.outputs:
        raise RecipeError(
            f"measure.outputs={excerpt(recipe.measure.outputs)} with {given}: outputs are kept for models trained against "
            "this one, which none can be; leave it out"
        )
