"""Pairs of sentences with links between their words: generated, of the registry, and of the user's own files."""
