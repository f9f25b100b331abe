"""For griffe, which reads docstrings as Markdown: shapes are no links, examples and aligned columns are code."""

import re

import griffe


EXAMPLE = re.compile(r"(^>>> .*?)(?=\n\s*\n|\s*\Z)", re.M | re.S)
ALIGNED = re.compile(r"(?:^ {4,}\S+(?:,? \S+)* {2,}\S.*\n?(?:^ {8,}\S.*\n?)*){2,}", re.M)
SHAPE = re.compile(r"\](\s?)\[")
FENCED = re.compile(r"(^```.*?^```)", re.M | re.S)


def as_markdown(text: str) -> str:
    """A docstring that shows as it reads in the code."""
    text = EXAMPLE.sub(r"```pycon\n\1\n```", text)
    text = ALIGNED.sub(lambda block: f"\n```text\n{block[0].rstrip()}\n```\n", text)
    return "".join(part if part.startswith("```") else SHAPE.sub(r"]\1\\[", part) for part in FENCED.split(text))


class Docstrings(griffe.Extension):
    """Every docstring of the package."""

    def on_instance(self, *, obj, **rest):
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
