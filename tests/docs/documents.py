"""What the tests of documents share: which there are, and what stands in them."""

import re
from pathlib import Path


ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "docs" / "templates"


def _documents():
    inside = [path for path in (ROOT / "docs").rglob("*.md") if not path.is_relative_to(TEMPLATES)]
    outside = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "recipes/README.md")]
    return sorted(str(path.relative_to(ROOT)) for path in [*inside, *outside])


DOCUMENTS = _documents()


def text_of(document):
    return (ROOT / document).read_text(encoding="utf-8")


def source_of(document):
    """What a document is written in: its template where it has one."""
    place = document.removeprefix("docs/")
    return TEMPLATES / place if (TEMPLATES / place).is_file() and document != "docs/README.md" else ROOT / document


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(document), re.M | re.S)
