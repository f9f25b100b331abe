"""Measures of which source word a target word depends on, and interventions on cross-attention: one module each.

A module has NEEDS, the capabilities that it asks of a model from sequences to sequences
(`attnfaith.subjects.protocol.PAIR_CAPABILITIES`), COST (`attnfaith.catalogue.COSTS`), COLUMNS, what it adds to a record, and

    @asks(NEEDS)
    def measure(subject, batch, *, seed=0, ...) -> {column: one value per pair}

A column that begins with "alignment_" is a measure: it links target words, axis G, to source words, axis T. L are the layers
of the decoder, A their heads; of R, row 0 is the one that predicts the target word and row 1 the one in which it is the
input. What is said of the tokens of a word is summed over those of a source word, and is the mean over those of a target
word, unless its column says otherwise. Markers are no words; rows are not divided by what is left of their sum.

Columns that not every model can give are in COLUMN_NEEDS; options, and what `check(**options)` raises, are as in
`attnfaith.importance`.
"""
