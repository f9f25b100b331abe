"""How few tokens carry a decision with everything but them held fixed, and whether the model itself agrees.

Per text, from a record's `frozen_flip_*`: the size of the frozen network's smallest set, its share of the tokens, and
whether the model's decision changes, and to the same class, when these tokens, or as many at random, are taken away.
Undefined where no set changes the frozen decision.
"""

from collections.abc import Iterator

import numpy as np

from attnfaith.reporting.cells import Cell
from attnfaith.reporting.explanation_tests import stacked
from attnfaith.reporting.spec import MAIN, Case, Classes, Mean, Median, Section, Sentence, Table, counts, per_cell


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """frozen_flip_tokens and _share: size of the set, and of the tokens; _agrees and _same_class, 1 or 0: the model's own
    decision changes without it, and to the class of the frozen network; _random: share of random sets that change it.
    """
    sizes, classes, random = (
        cell.table.column(f"frozen_flip_{name}").to_numpy().astype(np.float64) for name in ("size", "class", "random")
    )
    decided = stacked(cell, "frozen_flip_probs").argmax(1)
    defined = ~np.isnan(sizes)
    return {
        "frozen_flip_tokens": sizes,
        "frozen_flip_share": np.divide(sizes, cell.lengths, out=np.full(len(cell), np.nan), where=defined),
        "frozen_flip_agrees": np.where(defined, decided != cell.probs.argmax(1), np.nan),
        "frozen_flip_same_class": np.where(defined, decided == classes, np.nan),
        "frozen_flip_random": random,
    }


def _cases(cell: Cell) -> Iterator[Case]:
    yield Case(per_text(cell))


TABLE = Table(
    name="frozen_flip_set",
    cases=_cases,
    by=(Classes(),),
    columns=(
        *counts("frozen_flip_tokens"),
        Median("tokens_median", "tokens in the set, median", of="frozen_flip_tokens"),
        Mean("share_mean", "share of the tokens", of="frozen_flip_share"),
        Mean("agreement", "the model agrees [95 % interval]", of="frozen_flip_agrees", interval=MAIN),
        Mean("same_class", "and on the class", of="frozen_flip_same_class"),
        Mean("random_share", "as many at random", of="frozen_flip_random"),
    ),
    caption="The fewest tokens that carry the decision",
    note="With attention, divisors and slopes held fixed a logit is a sum of parts of tokens, and the smallest set without "
    "which another class wins is known exactly. The model agrees where its own decision changes when these tokens are taken "
    "away; at random: where as many tokens, drawn by chance, are. Undefined: no set changes the frozen decision, or the "
    "text has no tokens; they are in no mean.",
)
SECTION = Section(
    name="frozen_flip_set",
    source="Modarressi et al. (2023), section 3",
    place=75,
    chapter="interventions",
    needs=("frozen_flip_size", "frozen_flip_class", "frozen_flip_probs", "frozen_flip_random", "probs", "attention"),
    uses=("frozen_flip_set",),
    per_text=per_text,
    compared=True,
    tables=(TABLE,),
    sentences=Sentence(
        TABLE,
        text="With attention and slopes held fixed, {row[tokens_median]:.0f} tokens carry the decision of a text (median "
        "over {texts}, exact); without them the model itself decides otherwise in {row[agreement]:.0%}{interval}, "
        "without as many at random in {row[random_share]:.0%}.",
        left_out="In {undefined} no tokens do.",
        nothing="In no text do tokens carry the decision with attention and slopes held fixed ({row[n_undefined]:,} "
        "undefined).",
    ),
)
