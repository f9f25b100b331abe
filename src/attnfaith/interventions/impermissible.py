"""What the experiments on impermissible tokens share: where these are, and what is said where nothing tells.

Impermissible are, after Pruthi et al. 2020, the tokens that an honest model needs for its task and that one which is trained
to deceive hides from attention.
"""

import torch

from attnfaith.subjects import Batch, Subject, SubjectError
from attnfaith.subjects.removal import marked_places


NAME = "impermissible"
TODO = (
    "name the column of marks, one 0 or 1 for each word of a text, by data.impermissible, or the words themselves by "
    "data.impermissible_words"
)


def check_marked(dataset, who: str) -> None:
    """Raises SubjectError for encoded instances that do not say which of their tokens are impermissible."""
    if NAME not in dataset.column_names:
        raise SubjectError(f"'{who}' is about impermissible tokens, and nothing says which these are: {TODO}")


def impermissible(subject: Subject, batch: Batch, who: str) -> torch.Tensor:
    """(B,T) bool: the places of attention that hold an impermissible token; of sentences, those with such a word.

    Raises SubjectError for a batch without marks.
    """
    if batch.get(NAME) is None:
        raise SubjectError(
            f"'{who}' is about impermissible tokens, and this batch does not mark them: give it '{NAME}', a tensor "
            "(instances, positions) with 1 on them and 0 elsewhere"
        )
    return marked_places(subject, batch, batch[NAME])


def both_kinds(marks: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B,) bool: the texts, marks (B,T) and mask (B,T), that have impermissible tokens and others."""
    return marks.any(1) & (mask & ~marks).any(1)
