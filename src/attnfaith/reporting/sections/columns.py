"""All other numbers that a record holds for each text, such as those of a plugin's measure: from its columns alone."""

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting import sections
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.spec import Section, per_cell


@per_cell
def per_text(cell: Cell) -> dict[str, np.ndarray]:
    """The scalar columns of a cell that are no common column of records and that no other section reads, [N]."""
    others = [section for section in sections.registry().values() if section is not SECTION]
    common = {*records.COLUMNS, *records.IDENTITY_COLUMNS}
    names = [
        field.name for field in cell.table.schema if pa.types.is_floating(field.type) or pa.types.is_integer(field.type)
    ]
    names = [name for name in names if name not in common and not any(section.reads(name) for section in others)]
    return {name: cell.column(name) for name in names}


SECTION = Section(
    name="columns",
    place=95,
    per_text=per_text,
    compared=(),
    caption="Other numbers",
    note="Numbers that a measure stored for each text and that no section above reads, under the names of their columns.",
)
