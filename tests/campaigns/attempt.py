"""What a campaign is made of: attempts, each of which tries something hostile many times and says what went wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What an attempt saw. tried: inputs or moments. defects: one sentence each; none is clean. measured: for the table,
    such as seconds or bytes of memory.
    """

    tried: int
    defects: tuple[str, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """name: unique in its campaign; a resumed campaign skips names that are done. What stands before a "/" in it is its line
    of the table. act: called with an empty folder of its own.
    """

    name: str
    act: Callable[[Path], Outcome]
