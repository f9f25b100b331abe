"""Measures of token importance that are not attention: one module per measure, found by its file name.

A module has COLUMNS (what it adds to a record) and `measure(model, batch, *, seed) -> columns`: batch holds tensors
input_ids, attention_mask (B,L), token_type_ids for pairs, the list instance_id and, where a measurement made them, `encoded`
and `attention`, what `model.encode` and `model.attend` give for them; a column is a list with one array of length T per
instance, T its attendable tokens.
"""
