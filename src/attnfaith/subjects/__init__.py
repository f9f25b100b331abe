"""Subjects: what measures and experiments ask of a model, one module per kind of model."""
