"""Is attention needed, and is it stable? Wiegreffe & Pinter's comparisons between the models of a study.

A base is a BiLSTM trained for classification under learned attention; uniform models, adversaries and guided models stand
beside the base of their seed, and the bases of other seeds show what another training changes. Texts are matched by id.

Source: Wiegreffe & Pinter (2019), "Attention is not not Explanation"; frozen adversaries: Meister et al. (2021), Table 5.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from attnfaith.metrics.attention_faithfulness.divergences import jensen_shannon_divergence, total_variation_distance
from attnfaith.record import Identity
from attnfaith.reporting.analysis import Analysis, Settings
from attnfaith.reporting.cells import Cell

from ..pages import INTERVAL, analysis
from ..shared import CORRECT, Models, Number, answer, as_table, first, heading, kinds, match, row_of, text_ids, values


BASE, UNIFORM, OTHERS = "base", "uniform attention", "other seeds"
MLP, MLP_UNIFORM, GUIDED = "MLP", "MLP, uniform attention", "MLP guided by "
DISTANCES = ("jsd", "tvd")
PAGES = {
    "models": {"data": "{dataset}", "model": "{model}", "seeds": "{n_seeds}", "accuracy": "{accuracy} ± {accuracy_std}"}
    | {"JSD to the base": "{jsd} ± {jsd_std}", "TVD to the base": "{tvd} ± {tvd_std}"},
    "claims": {"data": "{dataset}", "claim": "{claim}", "model": "{model}", "seeds": "{n_seeds}"}
    | {"difference [95 %]": INTERVAL, "verdict": "{verdict}"},
}


def tables(cells: Sequence[Cell], settings: Settings) -> Analysis:
    """ "models" and "claims", see the functions of these names, and both as the page shows them."""
    return analysis(cells, PAGES, {"models": models_table, "claims": claims})


def name_of(identity: Identity) -> str:
    """The kind of model of a cell, its seed apart."""
    if identity.objective == "adversarial":
        return identity.model_label
    if identity.objective == "guided":
        return GUIDED + (identity.base if identity.base.startswith("adversarial") else BASE)
    names = {("average", "softmax"): MLP, ("average", "uniform"): MLP_UNIFORM, ("bilstm", "uniform"): UNIFORM}
    return names.get((identity.encoder, identity.projection), BASE)


def families(cells: Sequence[Cell]) -> list[dict[str, Models]]:
    """The kinds of models by name, for each data set with its word vectors."""
    groups: dict[tuple, dict[str, Models]] = {}
    for models in kinds(cells):
        labels = heading(models)
        groups.setdefault((labels["dataset"], labels["vectors"]), {})[name_of(first(models).identity)] = models
    return [family for family in groups.values() if BASE in family]


def distance(base: Cell, cell: Cell, name: str) -> np.ndarray:
    """JSD of attentions (nats) or TVD of predictions between a model and its base, [N of the model]; NaN unmatched."""
    numbers = np.full(len(cell), np.nan)
    rows, base_rows = match(cell, base)
    if name == "jsd":
        numbers[rows] = jensen_shannon_divergence([cell.attention[i] for i in rows], [base.attention[j] for j in base_rows])
    else:
        numbers[rows] = total_variation_distance(cell.probs[rows], base.probs[base_rows])
    return numbers


def to_base(bases: Models, name: str) -> Number:
    """The distance to the base of the same seed; None without one."""
    return lambda cell: distance(bases[cell.identity.seed], cell, name) if cell.identity.seed in bases else None


def to_other_seeds(bases: Models, name: str) -> Number:
    """The mean distance of a base to the bases of other seeds; None without another."""

    def number(cell: Cell) -> np.ndarray | None:
        rest = [base for seed, base in bases.items() if seed != cell.identity.seed]
        return np.mean([distance(base, cell, name) for base in rest], axis=0) if rest else None

    return number


@as_table
def models_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row for each kind of model, means over seeds and texts, _std over seeds: accuracy; jsd (nats) and tvd to the base of
    the same seed, of uniform models and adversaries; of "other seeds" the distance of the bases to one another.
    """
    for family in families(cells):
        bases = family[BASE]
        for name, models in [*family.items(), (OTHERS, bases)]:
            numbers: dict[str, Number] = {"accuracy": CORRECT}
            if name == UNIFORM or name.startswith("adversarial"):
                numbers |= {part: to_base(bases, part) for part in DISTANCES}
            elif name == OTHERS:
                numbers |= {part: to_other_seeds(bases, part) for part in DISTANCES}
            yield {"model": name} | row_of(models, numbers)


@as_table
def claims(cells: Sequence[Cell]) -> pd.DataFrame:
    """The paper's claims as differences per text over the seeds that both kinds have (`shared.answer`)."""
    for family in families(cells):
        texts = text_ids([cell for models in family.values() for cell in models.values()])
        for claim, name, *sides in compared(family):
            seeds = sorted(set.intersection(*({*models} for models, _ in sides)))
            if seeds:
                larger, smaller = (values({seed: of[seed] for seed in seeds}, number, texts) for of, number in sides)
                yield heading(family[BASE]) | {"claim": claim, "model": name} | answer(larger - smaller)


def compared(family: dict[str, Models]) -> Iterator[tuple[str, str, tuple[Models, Number], tuple[Models, Number]]]:
    """Claim, kind of model, and the models with the number that is larger and with that which is smaller where it holds."""

    def accuracy(name: str) -> tuple[Models, Number]:
        return family.get(name, {}), CORRECT

    bases = family[BASE]
    yield "learned attention classifies better than uniform", BASE, accuracy(BASE), accuracy(UNIFORM)
    yield "and in the MLP", MLP, accuracy(MLP), accuracy(MLP_UNIFORM)
    by_base = accuracy(GUIDED + BASE)
    yield "the base's attention guides an MLP better than uniform weights", MLP, by_base, accuracy(MLP_UNIFORM)
    for name, models in family.items():
        if name.startswith("adversarial"):
            far, near = ((models, to_base(bases, part)) for part in DISTANCES)
            other_far, other_near = ((bases, to_other_seeds(bases, part)) for part in DISTANCES)
            yield "its attention is further from the base's than another seed's", name, far, other_far
            yield "its predictions are nearer to the base's than another seed's", name, other_near, near
            yield "its attention guides an MLP worse than the base's own", name, by_base, accuracy(GUIDED + name)
