"""What a model says of selected tokens alone, and of all others: its own selection, and every measure's of the same size.

Shapes: B instances, L input positions, T tokens, M measures, S sizes, C classes, K = M S selections of one text, those of a
measure one after the other.
"""

from collections.abc import Sequence

import numpy as np
import torch

from attnfaith.draws import generator
from attnfaith.interventions.rationale_erasure import ranks
from attnfaith.interventions.subsets import check_absent_model, distinct, read_parts, scores_of
from attnfaith.interventions.targets import softmax
from attnfaith.measurement.options import Absent, Shares
from attnfaith.measurement.registry import Measure, register
from attnfaith.record import Column


SHARES = (0.1, 0.2, 0.3)
OWN = 0.0
"""Stands for as many tokens as the model itself selects."""


@register
class Selection(Measure):
    """What a model says of selected tokens alone, and of all others: its own selection, and every measure's of the same
    size.

    Every measure cut to the same number of tokens, read alone and left out, all classes.

    A selection of a share s are the s T tokens of highest score, rounded (halves to even numbers) and at least one, as many
    as a model of that budget may select (`rationale_samplers.budget_tokens`); equal scores are put in a random order, drawn
    once per text and the same for all measures. A model that selects ("selection") reads what it is told to and no
    other token, whatever its selector would say: a selector that reads the rest anew could choose again. Its own selection
    is among what is read, and each measure's selection of that very number of tokens. Other models read a text without the
    other tokens, which are gone as `absent` says (`subjects.removal.read_parts`).

    By construction a model that selects says of its own selection what it says of the text: its accuracy from the selection
    alone is its accuracy. What it can tell from the complement says whether what it left out would have done as well.

    A text in which nothing is selected is read without any token, and counted. The measures are those of `scores`,
    attention first; without it attention alone. Undefined (NaN): a measure with a NaN score.

    Source: Lei et al. 2016 and Bastings et al. 2019 (selections); DeYoung et al. 2020, section 4.2 (cut to one size).

    Shapes: B instances, L input positions, T tokens, M measures, S sizes, C classes, K = M S selections of one text,
    those of a measure one after the other.
    """

    name, cost = "selection", "draws"
    needs = frozenset({"classes", "token deletion"})
    columns = {
        "selection_measures": Column(("K",), "string", doc="whose selection each of K is: names of measures"),
        "selection_shares": Column(
            ("K",),
            "float64",
            range=(0.0, 1.0),
            doc="the share of the tokens that each holds, rounded and at least one token, as a budget is; 0, of a model "
            "that "
            "selects: as many as it selects itself, maybe none",
        ),
        "selection_chosen": Column(
            ("K", "T"),
            "bool",
            doc="which tokens each holds, none where the measure is undefined; attention's of the model's own size is "
            "what the "
            "model itself selects",
        ),
        "selection_kept_probs": Column(
            ("K", "C"),
            "float64",
            range=(0.0, 1.0),
            undefined="the measure is undefined here",
            doc="probability of each class from the selected tokens alone",
        ),
        "selection_removed_probs": Column(
            ("K", "C"),
            "float64",
            range=(0.0, 1.0),
            undefined="the measure is undefined here",
            doc="the same from all other tokens",
        ),
        "selection_probs": Column(
            ("C",),
            "float64",
            distribution=True,
            doc="class probabilities from the tokens that the model itself selects",
            needs=frozenset({"selection"}),
        ),
        "complement_probs": Column(
            ("C",),
            "float64",
            distribution=True,
            doc="the same from all tokens that it does not select, read in their place",
            needs=frozenset({"selection"}),
        ),
    }

    shares: Shares = SHARES
    absent: Absent = "deleted"

    def check(self, subject, dataset) -> None:
        """Raises SubjectError for an absence that the subject cannot read."""
        check_absent_model(subject, self.absent, "selection")

    @torch.no_grad()
    def __call__(self, subject, batch, *, seed: int = 0, scores=None) -> dict[str, list]:
        """Return the columns, one value an instance."""
        self.check(subject, None)
        given, inside = scores_of(subject, batch, scores), subject.attendable(batch)
        selects = "selection" in subject.capabilities
        own = None
        if selects:
            own = [row[mask].cpu().numpy() for row, mask in zip(subject.selected(batch), inside, strict=True)]
        sizes = (OWN, *self.shares) if selects else tuple(self.shares)
        chosen = []
        for row, name in enumerate(batch["instance_id"]):
            values = [one[row] for one in given.values()]
            chosen.append(_chosen(values, sizes, None if own is None else own[row], generator(seed, name, "selection")))
        if own is not None and "attention" in given:
            place = list(given).index("attention")
            for of_text, mine in zip(chosen, own, strict=True):
                of_text[place, 0] = mine
        parts = [_parts(one, None if own is None else own[row]) for row, one in enumerate(chosen)]
        if selects:
            said = [_read(subject, batch, row, inside[row], part) for row, part in enumerate(parts)]
        else:
            different = [distinct(part) for part in parts]
            read = read_parts(subject, batch, [part for part, _ in different], self.absent)
            said = [probs[number] for probs, (_, number) in zip(read, different, strict=True)]
        columns: dict[str, list] = {name: [] for name in self.columns_for(subject)}
        names, all_sizes = np.repeat(list(given), len(sizes)).tolist(), np.tile(np.array(sizes), len(given))
        for row, probs in enumerate(said):
            undefined = np.repeat([bool(np.isnan(values[row]).any()) for values in given.values()], len(sizes))
            both = probs[: 2 * len(names)].reshape(2, len(names), probs.shape[1])
            both[:, undefined] = np.nan
            flat = chosen[row].reshape(len(names), -1) & ~undefined[:, None]
            made = [names, all_sizes, flat, *both, *(probs[-2:] if selects else ())]
            for column, value in zip(columns.values(), made, strict=True):
                column.append(value)
        return columns


def _chosen(values, sizes: Sequence[float], own: np.ndarray | None, random: np.random.Generator) -> np.ndarray:
    """Which tokens (M,S,T) bool each measure selects, values: one array (T,) a measure."""
    length = len(values[0])
    counts = [int(own.sum()) if share == OWN else size_of(share, length) for share in sizes]
    return ranks(values, random)[:, None] < np.array(counts)[None, :, None]


def size_of(share: float, length: int) -> int:
    """How many of so many tokens a share holds, as a budget does."""
    return max(1, round(share * length))


def _parts(chosen: np.ndarray, own: np.ndarray | None) -> np.ndarray:
    """All parts (K,T) of one text that are read: the selections (M,S,T), the text without each, its own and the rest."""
    flat = chosen.reshape(chosen.shape[0] * chosen.shape[1], chosen.shape[2])
    return np.concatenate([flat, ~flat, *([] if own is None else [own[None], ~own[None]])])


def _read(subject, batch, row: int, inside: torch.Tensor, parts: np.ndarray) -> np.ndarray:
    """Class probabilities (K,C) of parts (K,T) of the instance `row`, by a subject that is told what to read."""
    different, number = distinct(parts)
    selected = torch.zeros(1, len(different), len(inside), dtype=torch.bool, device=inside.device)
    selected[:, :, inside] = torch.from_numpy(different).to(inside.device)
    text = batch.take(torch.tensor([row], device=inside.device))
    return softmax(subject.read_selected(text, selected)[0].double().cpu().numpy())[number]
