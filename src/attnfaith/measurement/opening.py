"""A model and a batch as a measure asks for them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from attnfaith.subjects import Batch, require, subject_of
from attnfaith.subjects.modes import plainly
from attnfaith.subjects.translator import sequence_subject


@contextmanager
def opened(model, batch, name: str, needs: Iterable[str], reads: str) -> Iterator[tuple]:
    """The subject of a model, and a batch of it, for the measure `name`; within, torch is without modes of a caller.

    Raises SubjectError, before anything is computed, for a subject that lacks one of the capabilities `needs`.
    """
    with plainly():
        subject = sequence_subject(model) if reads == "pairs" else subject_of(model)
        require(subject, needs, name)
        yield subject, batch if reads == "pairs" else Batch.of(batch, subject)
