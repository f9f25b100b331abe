"""Letters that our font lacks: drawn in an installed one that has them, or said; texts that run from right to left."""

import warnings

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from attnfaith.reporting import fonts, save_figure
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.fonts import MissingGlyphs, cover, in_words
from attnfaith.reporting.page.heatmap import direction_of, example
from attnfaith.reporting.style import own_style
from tests.records import build


CHINESE, HINDI = "电影", "कख"


@own_style
def figure(text):
    from matplotlib.figure import Figure

    made = Figure(figsize=(6, 3), layout="constrained")
    made.add_subplot().set_ylabel(text)
    return made


def a_font(path, characters, family):
    """A font whose glyphs are blocks, one for each character."""
    names = [".notdef", *(f"g{ord(character):X}" for character in characters)]
    pen = TTGlyphPen(None)
    for place in ((100, 0), (100, 700), (800, 700), (800, 0)):
        (pen.moveTo if place == (100, 0) else pen.lineTo)(place)
    pen.closePath()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(character): f"g{ord(character):X}" for character in characters})
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (900, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    builder.setupPost()
    builder.save(path)
    return str(path)


@pytest.fixture
def installed(monkeypatch):
    """What `system_fonts` lists; matplotlib's own list is as before afterwards."""
    from matplotlib.font_manager import fontManager

    paths = []
    monkeypatch.setattr(fonts, "system_fonts", lambda: list(paths))
    known = list(fontManager.ttflist)
    fonts._warn.cache_clear()
    yield paths
    fontManager.ttflist[:] = known
    fontManager._findfont_cached.cache_clear()


def notes(made):
    return [part.get_text() for part in made.findobj(lambda part: part.get_gid() == fonts.NOTE)]


@pytest.mark.parametrize(
    "text", ["a title", "schöner Film – τ ≥ 0.5 …", "هذا الفيلم رائع", "שלום", "тест", "a\n\u200fb\ufe0f"]
)
def test_letters_that_our_font_has_need_no_other(text, installed, tmp_path):
    made = figure(text)
    save_figure(made, tmp_path / "figure")
    assert made.axes[0].yaxis.label.get_fontfamily() == ["DejaVu Sans"] and notes(made) == []


def test_other_fonts_that_are_installed_are_used(installed, tmp_path):
    installed += [
        a_font(tmp_path / "little.ttf", CHINESE[:1], "Little"),
        a_font(tmp_path / "chinese.ttf", CHINESE, "Chinese"),
        a_font(tmp_path / "hindi.ttf", HINDI, "Hindi"),
    ]
    made = figure(f"class 1 {CHINESE} {HINDI}")
    paths = save_figure(made, tmp_path / "figure")
    assert made.axes[0].yaxis.label.get_fontfamily() == ["DejaVu Sans", "Chinese", "Hindi"]  # the fewest
    assert made.axes[0].xaxis.label.get_fontfamily() == ["DejaVu Sans"]
    assert notes(made) == [] and all(path.stat().st_size > 500 for path in paths[:3])
    assert paths[1].read_bytes() == save_figure(figure(f"class 1 {CHINESE} {HINDI}"), tmp_path / "again")[1].read_bytes()


def test_what_no_font_has_is_said_once(installed, tmp_path):
    installed.append(a_font(tmp_path / "chinese.ttf", CHINESE, "Chinese"))
    made = figure(f"{CHINESE} {HINDI}")
    with pytest.warns(MissingGlyphs, match=r"Boxes stand for 2 characters .* \(Devanagari: U\+0915, U\+0916\)") as said:
        save_figure(made, tmp_path / "figure")
    assert len(said) == 1
    (note,) = notes(made)
    assert note.replace("\n", " ") == str(said[0].message) and "Install Noto Sans Devanagari" in note
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_figure(made, tmp_path / "figure")  # and stays said
        other = figure(HINDI)
        save_figure(other, tmp_path / "other")
    assert len(notes(made)) == len(notes(other)) == 1


def test_the_line_lies_below_the_axes(installed, tmp_path):
    made = figure(CHINESE)
    with pytest.warns(MissingGlyphs):
        save_figure(made, tmp_path / "figure")
    (note,) = made.findobj(lambda part: part.get_gid() == fonts.NOTE)
    drawn = note.get_window_extent().y1, made.axes[0].xaxis.get_tightbbox().y0
    assert drawn[0] <= drawn[1] + 1


def test_what_to_install_is_named():
    said = in_words({"电", "あ", "ก", "😵"})
    assert "4 characters" in said and "Install Noto Sans Thai and Noto Sans CJK and Noto Emoji" in said
    assert in_words(set(map(chr, range(0x4E00, 0x4E20)))).count("U+") == fonts.SHOWN


def test_a_file_that_is_no_font_is_passed_over(installed, tmp_path):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    installed += [str(broken), a_font(tmp_path / "chinese.ttf", CHINESE, "Chinese")]
    made = figure(CHINESE)
    cover(made)
    assert made.axes[0].yaxis.label.get_fontfamily() == ["DejaVu Sans", "Chinese"]


def test_fonts_of_the_system_are_listed():
    assert all(isinstance(path, str) for path in fonts.system_fonts())


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["هذا", "##ل", "ok"], "rtl"),
        (["שלום", "!"], "rtl"),
        (["a", "good", "فيلم"], "ltr"),
        (["电影"], "ltr"),
        (["12", "!"], "ltr"),
        ([], "ltr"),
    ],
)
def test_direction_of_a_text(tokens, expected):
    assert direction_of(tokens) == expected


def test_a_heat_map_has_the_direction_of_its_text():
    instances = [{"tokens": ["هذا", "فيلم"], "attention": [0.5, 0.5]}, {"tokens": ["a", "b"], "attention": [0.5, 0.5]}]
    cell = one_cell(build(instances))
    assert [example(cell, row).direction for row in range(2)] == ["rtl", "ltr"]
