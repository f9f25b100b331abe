"""The list of planted bugs fits the code: each right line stands once in its file, and its tests exist."""

import pytest

from tests.mutations import PACKAGE, ROOT, read


@pytest.mark.parametrize("bug", read(), ids=lambda bug: f"{bug['file']}: {bug['wrong'].strip()[:60]}")
def test_a_bug_can_be_planted(bug):
    text = (PACKAGE / bug["file"]).read_text(encoding="utf-8")
    assert text.count(bug["right"]) == 1
    assert bug["wrong"] != bug["right"]
    compile(text.replace(bug["right"], bug["wrong"]), bug["file"], "exec")
    assert all((ROOT / "tests" / name.partition("::")[0]).exists() for name in bug["tests"].split())
