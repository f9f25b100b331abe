"""What every measure of sequences asks first: a model as a subject that can do what is needed."""

import functools
from collections.abc import Callable, Iterable

from attnfaith.subjects.plain import plainly
from attnfaith.subjects.protocol import SubjectError
from attnfaith.subjects.sequences import CAPABILITIES, SequenceSubject, sequence_subject


def asks(needs: Iterable[str]) -> Callable:
    """For a function of (subject, batch, ...): it may be called with a model, see `sequence_subject`.

    Raises SubjectError, before anything is computed, for a subject that lacks one of the capabilities `needs`.
    """
    if unknown := set(needs) - set(CAPABILITIES):
        raise ValueError(f"{sorted(unknown)} are no capabilities; there are {sorted(CAPABILITIES)}")

    def asking(measure: Callable) -> Callable:
        who = measure.__module__.rpartition(".")[2]

        @plainly()
        @functools.wraps(measure)
        def checked(subject, batch, *given, **options):
            subject = sequence_subject(subject)
            require(subject, needs, who)
            return measure(subject, batch, *given, **options)

        return checked

    return asking


def require(subject: SequenceSubject, needs: Iterable[str], who: str) -> None:
    """Raises SubjectError where a subject lacks what `who` needs, and says why."""
    if lacking := sorted(set(needs) - subject.capabilities):
        parts = (
            f"'{name}' ({CAPABILITIES[name]}; of this one: {subject.lacks.get(name, 'it has none')})" for name in lacking
        )
        raise SubjectError(f"'{who}' needs {' and '.join(parts)}, which this subject ({subject.kind}) lacks")
