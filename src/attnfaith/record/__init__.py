"""The record: what a measurement leaves, and all that tables, figures, pages and cards are made from. Needs no model."""

from attnfaith.record.column import Column, RecordError, column_of
from attnfaith.record.digest import CORE, code_digest, stale
from attnfaith.record.identity import (
    HEADING,
    IDENTITY_COLUMNS,
    UNKNOWN,
    UNKNOWN_SEED,
    Identity,
    as_columns,
    from_row,
    projection_label,
)
from attnfaith.record.io import (
    check_one_code,
    concatenate,
    equal,
    load,
    plain,
    ragged,
    rows,
    save,
    schema_version,
    settings,
    with_settings,
)
from attnfaith.record.schema import (
    ABSOLUTE,
    COLUMNS,
    OPTIONAL_COLUMNS,
    SUM_TOLERANCE,
    VERSION,
    axes,
    build,
    schema,
    validate,
)
from attnfaith.record.words import by_word


__all__ = [
    "ABSOLUTE",
    "COLUMNS",
    "CORE",
    "Column",
    "HEADING",
    "IDENTITY_COLUMNS",
    "Identity",
    "OPTIONAL_COLUMNS",
    "RecordError",
    "SUM_TOLERANCE",
    "UNKNOWN",
    "UNKNOWN_SEED",
    "VERSION",
    "as_columns",
    "axes",
    "build",
    "by_word",
    "check_one_code",
    "code_digest",
    "column_of",
    "concatenate",
    "equal",
    "from_row",
    "load",
    "plain",
    "projection_label",
    "ragged",
    "rows",
    "save",
    "schema",
    "schema_version",
    "settings",
    "stale",
    "validate",
    "with_settings",
]
