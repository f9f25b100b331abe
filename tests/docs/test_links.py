"""What a document links to is kept in the repository, not left out by .gitignore: a clone must have it too."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.documents import DOCUMENTS, ROOT, text_of


LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)")

pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="what is kept is told by git, from a clone"
)


def linked(document):
    """Files of the repository to which a document links."""
    places = ((ROOT / document).parent / target for target in LINK.findall(text_of(document)))
    inside = (place.resolve() for place in places if place.resolve().is_relative_to(ROOT.resolve()))
    return sorted({str(place.relative_to(ROOT.resolve())) for place in inside if place != ROOT.resolve()})


def left_out(paths, root=ROOT):
    """Those that .gitignore leaves out of the repository and that were not added all the same."""
    asked = "\0".join(map(str, paths))
    answer = subprocess.run(
        ["git", "check-ignore", "--stdin", "-z"], cwd=root, input=asked, capture_output=True, text=True, check=False
    )
    assert answer.returncode in (0, 1), answer.stderr
    return [path for path in answer.stdout.split("\0") if path]


def test_every_linked_file_is_kept():
    wanted = sorted({path for document in DOCUMENTS for path in linked(document)})
    assert len(wanted) > 50
    assert left_out(wanted) == []
    assert [path for path in wanted if not (ROOT / path).exists()] == []


def test_a_file_that_is_left_out_is_named(tmp_path: Path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("*_over_seeds.csv\n", encoding="utf-8")
    assert left_out(["kept.csv", "a_over_seeds.csv"], tmp_path) == ["a_over_seeds.csv"]
