"""A measure applied to a batch, as tests call it."""

from types import ModuleType

from attnfaith.measurement.registry import Measure, find


def run(
    measure: str | ModuleType | type[Measure] | Measure,
    model,
    batch,
    *,
    seed: int = 0,
    scores=None,
    reads: str = "texts",
    **options,
) -> dict:
    """The columns of a measure, by its name, class or object, with these options."""
    if isinstance(measure, ModuleType):
        measure = measure.__name__.rpartition(".")[2]
    if isinstance(measure, str):
        measure = find(measure, reads)
    if isinstance(measure, type):
        measure = measure(**options)
    keywords = {"seed": seed} if measure.takes_seed else {}
    if measure.takes_scores:
        keywords["scores"] = batch.get("scores") if scores is None else scores
    return measure(model, batch, **keywords)


def run_pairs(measure: str, model, batch, **options) -> dict:
    """The columns of a measure of pairs, by its name."""
    return run(measure, model, batch, reads="pairs", **options)


def classifier_of(model):
    """The classifier itself, where attention is over the words of a hierarchical one."""
    return getattr(model, "classifier", model)
