"""Data: the registry of data sets, word-level tokenizers, collation, pretrained vectors and built-in generators.

The modules are imported by name (`from attnfaith.data.loading import load_splits`); importing this package is free.
"""
