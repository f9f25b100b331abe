"""The record: the result of a measurement, and the source of all tables, figures, pages and cards. Needs no model."""

from attnfaith.record.identity import (
    LABELS,
    PENALTY_FIELDS,
    UNKNOWN,
    UNKNOWN_SEED,
    Identity,
    as_columns,
    from_row,
    labelled,
    model_fields,
    objective_fields,
    training_fields,
)
from attnfaith.record.io import (
    check_one_version,
    concatenate,
    equal,
    load,
    plain,
    rows,
    save,
    schema_of,
    settings,
)
from attnfaith.record.schema import (
    ABSOLUTE,
    COLUMNS,
    CONTINUES,
    IDENTITY_COLUMNS,
    OPTIONAL_COLUMNS,
    OUTPUTS,
    REPEATS,
    SEQUENCE_COLUMNS,
    VERSION,
    Column,
    build,
    column_of,
    common_columns,
    has_classes,
    list_lengths,
    of_sequences,
    ragged,
    validate,
    with_settings,
)
from attnfaith.support.errors import RecordError


__all__ = (
    ["ABSOLUTE", "COLUMNS", "CONTINUES", "IDENTITY_COLUMNS", "LABELS", "OPTIONAL_COLUMNS", "OUTPUTS", "PENALTY_FIELDS"]
    + ["REPEATS", "SEQUENCE_COLUMNS", "UNKNOWN", "UNKNOWN_SEED", "VERSION", "Column", "Identity", "RecordError"]
    + ["as_columns", "build", "check_one_version", "column_of", "common_columns", "concatenate", "equal", "from_row"]
    + ["has_classes", "labelled", "list_lengths", "load", "model_fields", "objective_fields", "of_sequences", "plain"]
    + ["ragged", "rows", "save", "schema_of", "settings", "training_fields", "validate", "with_settings"]
)
