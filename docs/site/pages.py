"""Pages with measured numbers: docs/templates/ rendered from the tables below recipes/.

    python docs/site/pages.py            write README.md and the pages below docs/
    python docs/site/pages.py --check    exit code 1 where one of them is not what its template gives

They are kept in the repository, so that they are read where the code is. Edit the template.
"""

import argparse
import re
import sys
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


sys.path.insert(0, str(Path(__file__).parent))
import evidence  # noqa: E402


TEMPLATES = evidence.ROOT / "docs" / "templates"
PARTS = "parts"  # of pages, below TEMPLATES


def templates() -> list[Path]:
    """Every template of a page."""
    return sorted(path for path in TEMPLATES.rglob("*.md") if path.parent.name != PARTS)


def target(template: Path) -> Path:
    """The page that a template is of: README.md at the top, all others below docs/."""
    relative = template.relative_to(TEMPLATES)
    return evidence.ROOT / relative if relative == Path("README.md") else evidence.ROOT / "docs" / relative


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= evidence.FILTERS
    made.globals |= evidence.GLOBALS
    return made


def render(template: Path) -> str:
    """The page as its template and the tables of today make it."""
    text = environment().get_template(template.relative_to(TEMPLATES).as_posix()).render()
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.M))


def stale() -> list[Path]:
    """Pages that are not what their template gives."""
    pages = ((target(template), render(template)) for template in templates())
    return [page for page, text in pages if not page.is_file() or page.read_text(encoding="utf-8") != text]


def write() -> list[Path]:
    """Write every page; those that changed."""
    changed = stale()
    for template in templates():
        if (page := target(template)) in changed:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(render(template), encoding="utf-8")
    return changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    pages = stale() if check else write()
    for page in pages:
        print(f"{'not up to date' if check else 'written'}: {page.relative_to(evidence.ROOT)}")
    sys.exit(bool(check and pages))
