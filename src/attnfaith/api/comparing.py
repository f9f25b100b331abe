"""Records side by side: `attnfaith.compare`."""

import os
from collections.abc import Sequence

from attnfaith.api.records import Record
from attnfaith.errors import AttnfaithError, excerpt
from attnfaith.locate import locate_all
from attnfaith.reporting.compare import Comparison
from attnfaith.reporting.compare import compare as compare_tables


def compare(
    *sources: Record | str | os.PathLike, names: Sequence[str] | None = None, mix_versions: bool = False
) -> Comparison:
    """Two or more records over the texts and numbers that all of them hold, every other one against the first, with paired
    intervals. What it returns shows itself and has a `frame`.

    sources: Records, or what `load` takes; a folder of runs stands for each of them. names: what they are called; None takes
    those of files and runs. mix_versions: also numbers that different code made.

    Raises ReportError where they have nothing in common, LocateError where no record lies, AttnfaithError for what is no
    record and for names that are not one for each.
    """
    given = sources[0] if len(sources) == 1 and isinstance(sources[0], list | tuple) else sources
    tables, called = [], []
    for number, one in enumerate(given, start=1):
        if isinstance(one, Record):
            tables.append(one.table)
            called.append(f"record {number}")
        elif isinstance(one, str | os.PathLike):
            located = list(locate_all(one))
            tables += [source.load() for source in located]
            called += [source.name for source in located]
        else:
            raise AttnfaithError(f"record {number} is {excerpt(one)}: give a Record, a path, a run or a name on the Hub")
    if names is not None and (isinstance(names, str) or len(names) != len(tables)):
        raise AttnfaithError(f"names={excerpt(names)}: give one for each of {len(tables)} records")
    return compare_tables(tables, called if names is None else [str(name) for name in names], mix_versions=mix_versions)
