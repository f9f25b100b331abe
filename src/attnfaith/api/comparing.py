"""Records side by side: `attnfaith.compare`."""

import os

from attnfaith.api.records import Record
from attnfaith.api.sources import name_of, table_of
from attnfaith.errors import AttnfaithError, excerpt
from attnfaith.reporting.compare import Comparison
from attnfaith.reporting.compare import compare as compare_tables


def compare(
    *sources: "Record | str | os.PathLike", names: list[str] | None = None, mix_versions: bool = False
) -> Comparison:
    """Two or more records over the texts and numbers that all of them hold, every other one against the first, with paired
    intervals. What it returns shows itself and has a `frame`.

    sources: Records, paths of records, runs, or names on the Hub. names: what they are called; None takes the names of
    files and runs. mix_versions: also numbers that different code made.

    Raises ReportError where they have nothing in common, AttnfaithError for what is no record and for names that are not one
    for each.
    """
    if len(sources) == 1 and isinstance(sources[0], list | tuple):
        sources = tuple(sources[0])
    for number, one in enumerate(sources):
        if not isinstance(one, Record | str | os.PathLike):
            raise AttnfaithError(f"record {number} is {excerpt(one)}: give a Record, a path, a run or a name on the Hub")
    if names is None:
        names = [name_of(one, number) for number, one in enumerate(sources, start=1)]
    elif isinstance(names, str) or len(names) != len(sources):
        raise AttnfaithError(f"names={excerpt(names)}: give one for each of {len(sources)} records")
    tables = [one.table if isinstance(one, Record) else table_of(one) for one in sources]
    return compare_tables(tables, [str(name) for name in names], mix_versions=mix_versions)
