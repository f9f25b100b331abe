"""The questions of other tools' users: each has its thread as a source, and something that runs as an answer."""

import re

from tests.docs.documents import ROOT, text_of


PAGE = "docs/questions.md"
THREAD = re.compile(r"\]\(https://github\.com/(jessevig/bertviz|PAIR-code/lit|meta-pytorch/captum)/issues/\d+\)")


def test_every_question_has_its_thread_and_an_answer_that_runs():
    _, *questions = re.split(r"^## ", text_of(PAGE), flags=re.M)
    assert len(questions) == 5
    for question in questions:
        assert question.split("\n", 1)[0].endswith("?")
        assert THREAD.search(question), question[:40]
        assert re.search(r"^```(bash|python)$", question, re.M), question[:40]
    assert {project for question in questions for project in THREAD.findall(question)} == {
        "jessevig/bertviz",
        "PAIR-code/lit",
        "meta-pytorch/captum",
    }


def test_the_page_is_in_the_site():
    assert "      - questions.md\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
