"""Result tables of several checkpoints in one repository."""

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from attnfaith.hub.repo import CARD, SPLIT, HubError, Repo
from attnfaith.reporting import cards
from attnfaith.reporting.cells import CELL


CHECKPOINT = "checkpoint"


def with_checkpoint(table: pa.Table, identities: Mapping[str, Mapping]) -> pa.Table:
    """The table with a first column that names the one checkpoint a row is about; null where there are several, or none."""
    table = _plain(table)
    known = [name for name in CELL if name in table.column_names]
    rows = table.select(known).to_pylist()
    owners = []
    for row in rows:
        same = [repo_id for repo_id, identity in identities.items() if all(_same(row[k], identity[k]) for k in known)]
        owners.append(same[0] if known and len(same) == 1 else None)
    return table.add_column(0, CHECKPOINT, pa.array(owners, pa.string()))


def _same(one, other) -> bool:
    return str(one) == str(other)


def _plain(table: pa.Table) -> pa.Table:
    """Without dictionaries and pandas' notes, so that tables of several pushes join."""
    arrays = [
        pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(arrays, names=table.column_names)


def joined(parts: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """The tables of several runs, rows of one table below each other."""
    gathered: dict[str, list[pa.Table]] = {}
    for part in parts:
        for name, table in part.items():
            gathered.setdefault(name, []).append(table)
    return {name: ordered(name, tables) for name, tables in sorted(gathered.items())}


def ordered(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """One table of the rows of all, sorted by checkpoint; columns that only some have are null in the others' rows."""
    try:
        joined = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise HubError(
            f"the table {name!r} that is there holds a column of another type, so this one cannot join it ({error}): push "
            "again the runs that made it, or delete it there"
        ) from error
    owners = joined.column(CHECKPOINT).to_pylist()
    places = sorted(range(len(owners)), key=lambda place: (owners[place] is None, owners[place] or ""))
    return joined.take(places)


def repo_of_results(repo_id: str, tables: Mapping[str, pa.Table], checkpoints: tuple[str, ...]) -> Repo:
    return Repo("dataset", repo_id, table_files(repo_id, tables), "results", checkpoints)


def table_files(repo_id: str, tables: Mapping[str, pa.Table]) -> dict[str, bytes]:
    files = {}
    for name, table in tables.items():
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        files[_table_path(name)] = buffer.getvalue().to_pybytes()
    said = {name: {"rows": table.num_rows, "columns": table.column_names} for name, table in sorted(tables.items())}
    return {**files, CARD: cards.results_card(said, repo_id=repo_id).encode()}


def _table_path(name: str) -> str:
    return f"{name}/{SPLIT}-00000-of-00001.parquet"
