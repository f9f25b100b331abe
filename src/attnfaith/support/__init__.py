"""Errors, files, escapes, random streams and provenance, for all parts. Imports no part of the package."""
