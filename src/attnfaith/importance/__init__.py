"""Measures of token importance that are not attention: one module per measure, found by its file name.

A module has COLUMNS (what it adds to a record) and `measure(model, batch, *, seed, ...) -> columns`: batch holds tensors
input_ids, attention_mask (B,L), token_type_ids for pairs, the list instance_id and, where a measurement made them, `encoded`
and `attention`, what `model.encode` and `model.attend` give for them, and the list `label` (None where unknown); a column is
a list with one array of length T per instance, T its attendable tokens.

Keywords of `measure` beside seed are options. A module with options has `check(**options)`, which raises ValueError for a
value that no model has; one that not every model or instance suits has `check_model(model, dataset, **options)`, which
raises ValueError beforehand and says which measures the model can have. What is explained is an option of the measures that
ask for it: `target` and `output`, see `_explained`. A signed measure, whose column says so, ranks by value: a token with a
negative score is evidence against what is explained.
"""
