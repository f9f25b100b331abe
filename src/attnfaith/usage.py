"""Where `recipes.options` was."""

from attnfaith.recipes.options import Parser, UsageError


__all__ = ["Parser", "UsageError"]
