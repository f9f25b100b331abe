"""The record: what a measurement leaves, and all that tables, figures, pages and cards are made from. Needs no model."""

# ruff: noqa: F401 (what other modules import from here)

from attnfaith.record.identity import (
    HEADING,
    PENALTY_FIELDS,
    UNKNOWN,
    UNKNOWN_SEED,
    Identity,
    as_columns,
    from_row,
    projection_label,
)
from attnfaith.record.io import (
    check_one_version,
    concatenate,
    equal,
    is_current,
    load,
    plain,
    rows,
    save,
    schema_of,
    schema_version,
    settings,
)
from attnfaith.record.schema import (
    ABSOLUTE,
    COLUMNS,
    IDENTITY_COLUMNS,
    OPTIONAL_COLUMNS,
    OUTPUTS,
    SEQUENCE_COLUMNS,
    SUM_TOLERANCE,
    VERSION,
    Column,
    axes,
    build,
    column_of,
    common_columns,
    has_classes,
    list_lengths,
    of_sequences,
    ragged,
    schema,
    validate,
    with_settings,
)
from attnfaith.record.words import by_word
from attnfaith.support.errors import RecordError
