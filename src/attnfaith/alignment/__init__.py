"""Measures of pairs of sentences: of models from sequences to sequences. One class a measure."""
