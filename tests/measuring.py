"""A measure applied to a batch, as tests call it, and what it is applied to."""

from attnfaith.measurement.registry import Measure, classes, find
from attnfaith.subjects import Pooled


POOLED = sorted(cls.name for cls in classes() if Pooled.can >= cls.needs)
"""The measures of the classifiers of this package; others need a stack of layers."""


def run(
    measure: str | type[Measure] | Measure,
    model,
    batch,
    *,
    seed: int = 0,
    scores=None,
    reads: str = "texts",
    **options,
) -> dict:
    """The columns of a measure, by its name, class or object, with these options."""
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


def marked(rows):
    """Encoded instances, a third of whose words are impermissible; no marker is."""
    return [{**row, "impermissible": [int(word > 4 and word % 3 == 0) for word in row["input_ids"]]} for row in rows]
