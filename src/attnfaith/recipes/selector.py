"""Recipes of models that read a selection: what selects, what the selection is trained by, and what then has no meaning."""

from dataclasses import MISSING, asdict, fields, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from attnfaith.errors import excerpt
from attnfaith.recipes.sections import NotNegative, Positive, RecipeError, Share, make_section, section


PLACE = "recipe.model.selector"
Below = Annotated[float, Field(ge=0, lt=1)]


@section
class Selector:
    """What selects the tokens that the classifier reads: the fields of RationaleClassifierConfig that say so."""

    kind: Literal["bernoulli", "hardkuma", "budget"]
    """draws of 0 or 1 (Lei et al. 2016), of fractions too (Bastings et al. 2019), or a budget (SPECTRA, 2021)"""
    encoder: str | None = None
    """of the states that tokens are selected by; null: of the kind of model.encoder, with weights of its own"""
    budget: Annotated[float, Field(gt=0, le=1)] | None = None
    """largest share of its tokens that a text may keep; of bernoulli and hardkuma at test time only; null: no bound"""
    contiguous: bool = False
    """at test time the selected tokens are one window"""
    transition: NotNegative = 0.0
    """of a budget: what two neighbours are worth more when both are selected, beside scores over the temperature"""
    temperature: Positive | None = None
    """of a budget: what scores are divided by; null: 0.1"""
    test_temperature: Positive | None = None
    """of a budget: the same at test time; null: that of training"""
    threshold: Below | None = None
    """what a token's value must be above to be selected at test time; null: 0.5 of bernoulli, else 0"""
    pooling: Literal["average", "max", "attention"] = "average"
    """what the classifier makes of the states of selected tokens; attention: by model.alignment and model.projection"""
    reads: Literal["zeroed", "deleted"] = "zeroed"
    """tokens that are not selected keep their places as zeros, or, of bernoulli, are left out"""
    share_embeddings: bool = True
    """selector and classifier have the same word vectors"""


@section
class Selection:
    """What the selection of model.selector is trained by, beside the labels; of a budget nothing.

    See `attnfaith.training.RationaleConfig`: sparsity, coherence and baseline are of bernoulli, share, lasso and the
    multiplier of hardkuma.
    """

    sparsity: NotNegative | None = None
    """of bernoulli: price of a selected token; null: 0.0003"""
    coherence: NotNegative | None = None
    """of bernoulli: price of a change from one token to the next, in units of sparsity; null: 2"""
    baseline: Literal["none", "moving_average"] | None = None
    """of bernoulli: what the cost of a draw is compared with; null: none"""
    share: Share | None = None
    """of hardkuma: the share of tokens that training aims at; null: model.selector.budget, else 0.2"""
    lasso: Share | None = None
    """of hardkuma: the number of changes a token that training aims at; null: it is left free"""
    multiplier: Positive | None = None
    """of hardkuma: the multiplier of a constraint at first; null: 0.0001"""
    multiplier_rate: Positive | None = None
    """of hardkuma: how fast it follows the constraint; null: 0.01"""
    multiplier_range: list[float] | None = None
    """of hardkuma: least and greatest multiplier, [least, greatest]; null: no bounds"""
    two_sided: bool | None = None
    """of hardkuma: aim at the share from below too; null: false, as in the authors' code"""
    decay: Below | None = None
    """how much of a moving average stays at each batch; null: 0.99 of hardkuma, 0.9 of bernoulli's baseline"""


OF_KIND = {
    "bernoulli": {"sparsity": 3e-4, "coherence": 2.0, "baseline": "none", "decay": 0.9},
    "hardkuma": {"share": 0.2, "multiplier": 1e-4, "multiplier_rate": 0.01, "two_sided": False, "decay": 0.99},
    "budget": {},
}
"""Of each kind the keys of `selection` that mean something, and what they are where a recipe is silent."""
MAY_BE_NULL = {"hardkuma": ("lasso", "multiplier_range")}
OF_BUDGETS = ("transition", "temperature", "test_temperature")
OF_POOLING = ("alignment", "alignment_size", "projection", "sparsegen_lambda", "entmax_alpha", "score_scale")


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The keys of model.selector, all of them, with their defaults. RecipeError for one that is unknown or wrong."""
    given = make_section(Selector, values, PLACE)
    if given.kind == "budget" and given.temperature is None:
        given = replace(given, temperature=0.1)
    return asdict(given)


def completed_selection(recipe) -> Selection:
    """The selection section, with what is usual for its kind where it says nothing.

    Raises RecipeError for the first key that has no meaning there, in it or elsewhere in the recipe.
    """
    section, selector = recipe.selection, recipe.model.selector
    given = {key.name: getattr(section, key.name) for key in fields(section) if getattr(section, key.name) is not None}
    if selector is None:
        for key, value in given.items():
            raise RecipeError(
                f"selection.{key}={excerpt(value)} without model.selector: there is no selection; leave it out, or give "
                "model.selector"
            )
        return section
    kind, said = selector["kind"], f"model.selector.kind={selector['kind']}"
    usual = OF_KIND[kind]
    for key, value in given.items():
        if key not in usual and key not in MAY_BE_NULL.get(kind, ()):
            homes = [name for name in OF_KIND if key in OF_KIND[name] or key in MAY_BE_NULL.get(name, ())]
            raise RecipeError(f"selection.{key}={excerpt(value)} with {said}: it is of {' and '.join(homes)}; leave it out")
    bounds = section.multiplier_range
    if bounds is not None and not (len(bounds) == 2 and bounds[0] < bounds[1]):
        raise RecipeError(f"selection.multiplier_range={excerpt(bounds)} must be [least, greatest]")
    if section.two_sided and bounds is not None and bounds[0] >= 0:
        raise RecipeError(
            f"selection.multiplier_range={excerpt(bounds)} with selection.two_sided: a multiplier that is never below 0 "
            "pulls nothing up; give a least below 0, such as [-5, 5], or leave one of the two out"
        )
    _check_rest(recipe, selector, said)
    if kind == "hardkuma" and selector["budget"] is not None:
        usual = usual | {"share": selector["budget"]}
    return replace(section, **{key: value for key, value in usual.items() if key not in given})


def _check_rest(recipe, selector: dict[str, Any], said: str) -> None:
    model = recipe.model
    if selector["kind"] == "budget" and selector["budget"] is None:
        raise RecipeError(f"{said} needs model.selector.budget, the share of its tokens that a text may keep, such as 0.2")
    for key in OF_BUDGETS:
        if selector["kind"] != "budget" and selector[key]:
            raise RecipeError(f"model.selector.{key}={excerpt(selector[key])} with {said}: it is of budget; leave it out")
    if selector["reads"] == "deleted" and selector["kind"] != "bernoulli":
        raise RecipeError(f"model.selector.reads='deleted' with {said}, whose gates are fractions in training: leave it out")
    for key in fields(model):
        name, value = key.name, getattr(model, key.name)
        refused = ("hierarchy", "query", "separate_impermissible")
        refused += () if selector["pooling"] == "attention" else OF_POOLING
        default = key.default if key.default is not MISSING else key.default_factory()
        if name in refused and value != default:
            why = "with model.selector.pooling='attention' alone" if name in OF_POOLING else "not of models with a selector"
            raise RecipeError(f"model.{name}={excerpt(value)} is {why}: leave it out")
    kind, training = recipe.objective.kind, recipe.training
    if kind not in ("classification", "untrained"):
        raise RecipeError(
            f"objective.kind={kind!r} with model.selector: what is given to such models, or compared with a base's, is the "
            "attention that pools states; choose classification or untrained"
        )
    if recipe.penalties.taken:
        name, weight = next(iter(recipe.penalties.taken.items()))
        raise RecipeError(f"penalties.{name}={weight:g} with model.selector, which has no such attention: leave it out")
    if training.random_erasure:
        raise RecipeError(
            f"training.random_erasure={training.random_erasure:g} with model.selector, which reads parts of texts anyway: "
            "leave it out"
        )
    if training.attention_learning_rate_factor != 1 and selector["pooling"] != "attention":
        raise RecipeError(
            f"training.attention_learning_rate_factor={training.attention_learning_rate_factor:g} is with "
            "model.selector.pooling='attention' alone: leave it out"
        )
    if recipe.measure.outputs:
        raise RecipeError(
            f"measure.outputs={excerpt(recipe.measure.outputs)} with model.selector: outputs are kept for models trained "
            "against this one, which none can be; leave it out"
        )
