"""Measures that are still modules of functions, as classes."""

import inspect
from dataclasses import replace

from attnfaith.measurement.registry import Measure


def adapt(module, called: str, read: str) -> type[Measure]:
    """A class of a module with NEEDS, COST, COLUMNS and `measure`."""
    needs_of_columns = getattr(module, "COLUMN_NEEDS", {})
    parameters = {
        key: parameter.default
        for key, parameter in inspect.signature(module.measure).parameters.items()
        if key not in ("subject", "batch", "seed", "gates_")
    }

    class Adapted(Measure):
        __doc__ = inspect.getdoc(module.measure)
        name, reads, cost = called, read, module.COST
        needs = module.NEEDS
        columns = {
            key: replace(column, needs=frozenset(needs_of_columns[key])) if key in needs_of_columns else column
            for key, column in module.COLUMNS.items()
        }
        metric = getattr(module, "METRIC", {})
        most_tokens = getattr(module, "MOST_TOKENS", None)
        takes_seed, takes_scores = True, getattr(module, "AFTER", False)

        def __init__(self, **options):
            if unknown := sorted(set(options) - set(parameters)):
                raise ValueError(f"{called} has no option {unknown}; its options: {list(parameters) or 'none'}")
            self.given = options
            if hasattr(module, "check"):
                module.check(**options)

        def __call__(self, subject, batch, *, seed=0, scores=None):
            if scores is not None:
                batch["scores"] = scores
            return module.measure(subject, batch, seed=seed, **self.given)

        def check(self, subject, dataset):
            if hasattr(module, "check_model"):
                module.check_model(subject, dataset, **self.given)

        @property
        def is_trained(self):
            return not (hasattr(module, "pending") and module.pending(**self.given))

        def prepare(self, subject, splits, folder, *, seed):
            return (
                self if self.is_trained else type(self)(**module.prepare(subject, splits, folder, seed=seed, **self.given))
            )

        def stated(self):
            return module.stated(**self.given) if hasattr(module, "stated") else dict(self.given)

        @classmethod
        def options(cls):
            return parameters

        @classmethod
        def summary(cls):
            return " ".join(inspect.getdoc(module).partition("\n\n")[0].split())

    return Adapted
