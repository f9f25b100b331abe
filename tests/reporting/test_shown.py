"""A text in the terminal: every score under its token, whatever the script; colours only where they are seen."""

import io

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith import terminal
from attnfaith.errors import AttnfaithError
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.page.heatmap import scores_of
from attnfaith.reporting.shown import row_of, show
from tests.records import build, draw


def cell_of(tokens, attention, **scores):
    instances = [{"id": "d/test/7", "tokens": tokens, "attention": attention, "label": 1, "probs": [0.25, 0.75], **scores}]
    return split_cells(build(instances, measures=tuple(scores)))[0]


@pytest.fixture
def cell():
    return cell_of(["a", "moving", "film"], [0.1, 0.5, 0.4], gradient=[-2.0, 4.0, 0.0], lime=[1.0, 0.5, 2.0])


def test_scores_stand_under_their_tokens(cell):
    lines = show(cell, 0, columns=80).splitlines()
    assert lines[0] == "d/test/7  (text 0 of 1)"
    assert "predicted: 1 (0.75), right   label: 1" in lines and "measures explain: 1, the predicted class" in lines
    place = lines.index("           a   moving film")
    assert lines[place + 1 : place + 3] == ["attention  20  100    80", "gradient   −50 100    0"]
    assert lines[-1] == "Numbers: percent of the largest of each measure in this text; below 0: against the class."


def test_measures_that_are_named(cell):
    assert "LIME" in show(cell, 0, ["lime"]) and "gradient  " not in show(cell, 0, ["lime"])
    with pytest.raises(AttnfaithError, match="holds no measure 'limes'; did you mean lime?"):
        show(cell, 0, ["limes"])


def test_no_line_is_wider_than_the_terminal():
    words = ["超长的文字"] * 9 + ["é" * 3, "naïve", "👩‍🔬", "x" * 90] * 5
    cell = cell_of(words, [1 / len(words)] * len(words), gradient=list(range(len(words))))
    for columns in (40, 60, 100):
        for colour in (False, True):
            shown = show(cell, 0, columns=columns, colour=colour)
            block = shown[shown.index("\n\n") : shown.rindex("\n\n")]
            assert max(map(terminal.width, block.splitlines())) <= columns


def test_wide_characters_line_up():
    assert [terminal.width(text) for text in ("ab", "电影", "e\u0301", "ｱ", "が", "\x1b[1mab\x1b[0m")] == [2, 4, 1, 1, 2, 2]
    cell = cell_of(["电影", "很", "good"], [0.2, 0.3, 0.5], gradient=[1.0, 2.0, 4.0])
    lines = show(cell, 0, columns=80).splitlines()
    head = next(line for line in lines if "电影" in line)
    scores = lines[lines.index(head) + 1]
    assert terminal.width(head[: head.index("good")]) == terminal.width(scores[: scores.index("100")])


def test_signs_have_two_colours_and_plain_text_none(cell):
    plain, coloured = show(cell, 0, columns=80), show(cell, 0, columns=80, colour=True)
    without = terminal.ESCAPE.sub("", coloured).replace(", in red", "")
    assert "\x1b" not in plain and [line.rstrip() for line in without.splitlines()] == plain.splitlines()
    row = next(line for line in coloured.splitlines() if line.startswith("gradient"))
    backgrounds = [part.split(";38")[0] for part in row.split("\x1b[48;5;")[1:]]
    assert len(backgrounds) == 2 and backgrounds[0] != backgrounds[1], "−50 and 100; 0 has none"


def test_a_text_cannot_write_to_the_terminal():
    cell = cell_of(["\x1b[2J", "a\rb", "\u202e"], [0.2, 0.3, 0.5], gradient=[1.0, 2.0, 3.0])
    shown = show(cell, 0, columns=80)
    assert not {"\x1b", "\r", "\u202e"} & set(shown) and "[U+202E]" in shown


def test_second_texts_gold_evidence_and_undefined_scores():
    cell = split_cells(
        build(
            [{"attention": [1.0, 0.0], "gold": [1.0, 0.0], "lime": [float("nan"), 1.0]}], measures=("lime",), rationale=True
        )
    )[0]
    shown = show(cell, 0, columns=80)
    assert "*w0" in shown and "*: gold evidence" in shown and "label: unknown" in shown
    assert any(line.split() == ["LIME", "–", "100"] for line in shown.splitlines())


def test_an_infinite_score_has_no_share():
    cell = split_cells(build([{"attention": [0.5, 0.5, 0.0], "lime": [float("inf"), 2.0, -1.0]}], measures=("lime",)))[0]
    shown = show(cell, 0, columns=80)
    assert any(line.split() == ["LIME", "–", "100", "−50"] for line in shown.splitlines())
    assert scores_of(np.array([np.inf, 1.0]), "lime")[0].value == "lime: infinite"


def test_a_text_by_number_and_by_id():
    cell = split_cells(draw(30))[0]
    assert row_of(cell, "17") == 17 and row_of(cell, "t/017") == 17 and row_of(cell, "017") == 17
    with pytest.raises(AttnfaithError, match="there is no text 30: the record holds 30, numbered from 0"):
        row_of(cell, "30")
    with pytest.raises(AttnfaithError, match="no text is called 't/0177'; did you mean t/017?"):
        row_of(cell, "t/0177")
    with pytest.raises(AttnfaithError, match="give a number from 0 to 29, or an id such as t/000"):
        row_of(cell, "xyz")


def test_sentences_are_lines():
    cell = cell_of(["one two", "three"], [0.4, 0.6], gradient=[1.0, 2.0])
    table = cell.table
    for name, values in (("words", [[["one", "two"], ["three"]]]), ("word_attention", [[[0.5, 0.5], [1.0]]])):
        field = records.OPTIONAL_COLUMNS[name].field(name)
        table = table.append_column(field, pa.array(values, field.type))
    shown = show(split_cells(table)[0], 0, columns=60)
    assert "       67        50  one two" in shown and "      100       100  three" in shown


@pytest.mark.parametrize(
    ("environment", "tty", "seen"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False)]
    + [
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
    ],
)
def test_when_colours_are_seen(environment, tty, seen, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    stream.isatty = lambda: tty
    assert terminal.coloured(stream) == seen
