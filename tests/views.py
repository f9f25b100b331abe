"""Views drawn at random, for tests of what shows them."""

import numpy as np

from attnfaith.reporting.view import View


HOSTILE = [
    "<img src=x onerror='window.hit=1'>",
    "</script><script>window.hit=1</script>",
    "${window.hit=1}",
    "{{window.hit=1}}",
    "\u202eesrever",
    "]]>--><!--<script>",
    "'\"&amp;",
    "long" * 40,
]


def rows(generator, *shape):
    """Random rows that sum to 1, far from flat."""
    scores = np.exp(2 * generator.normal(size=shape))
    return scores / scores.sum(-1, keepdims=True)


def drawn_view(length, *, layers=3, heads=2, tokens=None, **fields):
    """A view of so many positions, the first a marker, which alone the answer reads."""
    generator = np.random.default_rng(0)
    maps = [rows(generator, heads, length, length).astype(np.float32) for _ in range(layers)]
    mean = np.stack([weights.astype(np.float64).mean(0) for weights in maps])
    matrices = {
        "attention": mean,
        "rollout": (mean + np.eye(length)) / 2,
        "alti": rows(generator, layers, length, length),
        "value_zeroing": rows(generator, layers, length, length),
    }
    values = {
        "model": "drawn",
        "tokens": tuple(tokens or ["[CLS]", *(f"word{place}" for place in range(1, length))]),
        "inside": np.arange(length) > 0,
        "words": (None, *range(length - 1)),
        "classes": ("bad", "good"),
        "probs": np.array([0.25, 0.75]),
        "reads": np.eye(length)[0],
    }
    return View(**{**values, "heads": tuple(maps), "matrices": matrices, **fields})
