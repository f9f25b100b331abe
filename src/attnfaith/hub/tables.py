"""Result tables of several checkpoints in one repository."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from attnfaith import record as records
from attnfaith.hub.repo import CARD, HubError
from attnfaith.reporting import cards
from attnfaith.reporting.cells import CELL


CHECKPOINT = "checkpoint"


def with_checkpoint(table: pa.Table, headings: Mapping[str, Mapping]) -> pa.Table:
    """The table with a first column that names the one checkpoint a row is about; null where there are several, or none.

    headings: {checkpoint: what identifies it in a table}.
    """
    table = records.plain(table)  # without dictionaries and notes, in which tables of several pushes differ
    columns = [name for name in CELL if name in table.column_names]
    checkpoints = []
    for row in table.select(columns).to_pylist():
        same = [
            checkpoint
            for checkpoint, heading in headings.items()
            if all(str(row[name]) == str(heading[name]) for name in columns)
        ]
        checkpoints.append(same[0] if columns and len(same) == 1 else None)
    return table.add_column(0, CHECKPOINT, pa.array(checkpoints, pa.string()))


def join(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables, sorted by checkpoint; columns that only some tables have are null in the others' rows."""
    try:
        joined = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise HubError(
            f"the table {name!r} that is there holds a column of another type, so this one cannot join it ({error}): push "
            "again the runs that made it, or delete it there"
        ) from error
    return joined.sort_by([(CHECKPOINT, "ascending")])  # stable; null last


def parquet(table: pa.Table, compression: str = "snappy") -> bytes:
    """The content of a parquet file."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression=compression)
    return buffer.getvalue().to_pybytes()


def table_files(repo_id: str, tables: Mapping[str, pa.Table]) -> dict[str, bytes]:
    """The files of a repository of result tables, the card included."""
    files, shapes = {}, {}
    for name, table in sorted(tables.items()):
        files[f"{name}/results-00000-of-00001.parquet"] = parquet(table)
        shapes[name] = {"rows": table.num_rows, "columns": table.column_names}
    return {**files, CARD: cards.results_card(shapes, repo_id=repo_id).encode()}
