"""Measures of token importance that are not attention: one module per measure, found by its file name.

A module has NEEDS, the capabilities that it asks of a subject (`attnfaith.subjects.protocol.CAPABILITIES` says what each
is), COST, about what it costs (`attnfaith.catalogue.COSTS`), COLUMNS, what it adds to a record, and

    @asks(NEEDS)
    def measure(subject, batch, *, seed=0, ...) -> {column: one value per instance}

`asks` makes a subject of a model and a `Batch` of what a tokenizer gives, and refuses a subject that lacks a need. So a
measure asks the protocol alone, and never looks into a model. A column of tokens is a list with one array of length T per
instance, T its attendable tokens. Columns that not every subject can give are in COLUMN_NEEDS, by name, with what they need
besides; measure returns those that the subject can give, in the order of COLUMNS.

Keywords of `measure` beside seed are options. A module with options has `check(**options)`, which raises ValueError for a
value that no subject has; one that not every subject or instance suits for other reasons has
`check_model(subject, dataset, **options)`, which raises ValueError beforehand. What is explained is an option of the
measures that ask for it: `target` and `output`, see `_explained`. A signed measure, whose column says so, ranks by value: a
token with a negative score is evidence against what is explained. Shorter ways through a BiLSTM are in `lstm`.
"""
