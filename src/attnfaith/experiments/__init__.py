"""Interventions on attention: one module per intervention, found by its file name.

A module has NEEDS, COST, COLUMNS, perhaps COLUMN_NEEDS, and `measure(subject, batch, *, seed, <options>) -> columns`, as a
measure of importance has; and METRIC (which of its columns `attention_faithfulness` compares with what). Options have
defaults; `check` with the same keywords raises ValueError for a value that makes no sense, before any work is done. It asks
what the subject would say under another attention (`_readout`); it never changes the model. An instance it is undefined
for, such as a text of one token, has empty draws or NaN and is counted where tables are made.

A module with AFTER = True tests the scores of others: it is run after all measures of importance, and batch["scores"] holds
theirs and the subject's attention, by the measure's name, one array [T] per instance. It follows the predicted class, and is
refused beside a measure that is told to explain another.
"""
