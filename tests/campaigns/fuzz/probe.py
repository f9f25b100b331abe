"""One input at a time: what it gives is a result or a clean refusal, and all else is a defect.

Clean is an error of the project's own, in one line that shows no control character and is not longer than a person reads.
Not clean: any other error, a hang, a warning, a process that is ended.
"""

import contextlib
import io
import logging
import signal
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnfaith.errors import AttnfaithError


SECONDS = 20  # of work that one input may take
WAITS = 6  # times as long may pass: on a machine with other work, or for what waits
LONGEST = 1500  # characters of a refusal, paths left out
REFUSED = "refused"  # what an act gives that was refused otherwise than by an error
SHRINKINGS = 150  # trials to make an input smaller


class Hang(BaseException):
    """An input that takes longer than SECONDS. No Exception, so that nothing takes it for an error of its own."""


class Unclean(Exception):
    """A result that is none, such as a file that is left behind. The message says what is wrong."""


@dataclass
class Case:
    """One input. act: what is done with it. shown: what it is, in a line. file: the one that holds it, where one does: made
    smaller where there is a defect.
    """

    act: Callable[[], object]
    shown: str
    file: Path | None = None


@dataclass(frozen=True)
class Defect:
    """kind: what goes wrong and where, the same for all inputs that meet it. said: of this input."""

    kind: str
    said: str


@dataclass(frozen=True)
class End:
    """What an input came to: a refusal, a result, or a defect."""

    refused: bool = False
    defect: Defect | None = None


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_):
        raise Hang

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, seconds * WAITS))
    before = {number: signal.signal(number, ring) for _, number, _ in timers}
    for timer, _, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for timer, number, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def probe(act: Callable[[], object], folder: Path, seconds: float = SECONDS) -> End:
    """What an input comes to. folder: whose path counts in no message."""
    refused = False
    try:
        with warnings.catch_warnings(record=True) as loud, _silent(), _alarm(seconds):
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", ResourceWarning)  # told whenever rubbish is collected, of whichever input it is
            refused = act() == REFUSED
    except Hang:
        return End(defect=Defect("a hang", f"takes longer than {seconds:g} s"))
    except Exception as error:
        if not is_refusal(error):
            return End(defect=Defect(f"{type(error).__name__} at {_where(error)}", " ".join(f"{error}"[:300].split())))
        if wrong := unclear(str(error).replace(str(folder), "")):
            return End(True, Defect(f"{_where(error)}: {wrong}", f"{wrong}: {str(error)[:300]!r}"))
        refused = True
    if loud:
        first = loud[0]
        place = f"{first.category.__name__} at {Path(first.filename).name}:{first.lineno}"
        return End(refused, Defect(place, f"{first.message}"[:300]))
    return End(refused)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)


def is_refusal(error: BaseException) -> bool:
    """Whether it is an error of the project's own. The metric stands alone, and `evaluate` loads a copy of its modules."""
    return isinstance(error, AttnfaithError) or type(error).__name__ == "InputError"


def unclear(said: str) -> str:
    """What is wrong with the words of a refusal, "" for nothing."""
    if not said.strip():
        return "an error without words"
    if "\n" in said.strip():
        return "an error of several lines"
    if len(said) > LONGEST:
        return f"an error of {len(said):,} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in said):
        return "an error with a control character"
    return ""


def _where(error: BaseException) -> str:
    """The innermost place of the project that an error passed, and the one that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/attnfaith/" in frame.filename or "/evaluate_modules/" in frame.filename]
    last = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (own[-1:] + frames[-1:])]
    return " < ".join(dict.fromkeys(reversed(last))) if last else "nowhere"


def smallest(case: Case, kind: str, folder: Path) -> bytes | None:
    """The file of a case made as small as some trials make it, with the same defect; None where it has none of text."""
    if case.file is None or not case.file.is_file():
        return None
    kept = content = case.file.read_bytes()
    if len(content) > 200_000:
        return None
    tries, size = 0, max(1, len(kept) // 2)

    def same(made: bytes) -> bool:
        case.file.write_bytes(made)
        defect = probe(case.act, folder, 3).defect
        return defect is not None and defect.kind == kind

    if kind == "a hang" or not same(kept):
        return kept
    while size and tries < SHRINKINGS:
        start = 0
        while start < len(kept) and tries < SHRINKINGS:
            made, tries = kept[:start] + kept[start + size :], tries + 1
            if same(made):
                kept = made
            else:
                start += size
        size //= 2
    case.file.write_bytes(kept)
    return kept
