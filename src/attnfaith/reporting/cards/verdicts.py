"""What a record says that the attention of its model may be shown for: the same on a card, a page and in a notebook."""

from collections.abc import Sequence

from attnfaith.reporting.cards.findings import CARE, MAY, MAY_NOT, UNKNOWN, Checkpoint, Use
from attnfaith.reporting.cells import Cell


VERDICTS = {MAY: "It may be used", CARE: "With care", MAY_NOT: "It may not be used", UNKNOWN: "Not known"}


def by_verdict(uses: Sequence[Use]) -> list[tuple[str, list[Use]]]:
    """The uses of each verdict that there is, in the order of VERDICTS."""
    grouped = [(words, [use for use in uses if use.verdict == verdict]) for verdict, words in VERDICTS.items()]
    return [(words, of_verdict) for words, of_verdict in grouped if of_verdict]


def verdicts(cells: Sequence[Cell]) -> list[tuple[str, list[Use]]]:
    """What the attention of one cell may be used for; of several cells nothing is said."""
    return by_verdict(Checkpoint({}, cells[0]).uses) if len(cells) == 1 else []
