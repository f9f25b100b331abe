"""Measures and how they are run: `registry` holds them, `options` the types of their options, `engine` the loop."""
