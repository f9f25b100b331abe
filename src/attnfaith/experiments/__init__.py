"""Interventions on attention: one module per intervention, found by its file name.

A module has COLUMNS (what it adds to a record) and `measure(model, batch, *, seed) -> columns`, as a measure of importance
has. It calls the model's stages with another attention; it never changes the model.
"""
