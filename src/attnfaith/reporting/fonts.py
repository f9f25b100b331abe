"""Fonts for what a figure says, in whatever script: others that are installed where ours has no glyph, and what none has."""

import textwrap
import unicodedata
import warnings
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTE = "missing glyphs"
"""Name of the line in a figure that says which characters no font has."""
SHOWN = 6  # characters that the line names
ADVISED = {name: "Noto Sans CJK" for name in ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO")}
ADVISED["EMOJI"] = "Noto Emoji"


class MissingGlyphs(UserWarning):
    """A figure has characters that no installed font can draw."""


def system_fonts() -> list[str]:
    """Paths of the fonts that are installed now, without ours, the plain ones of Noto first."""
    from matplotlib.font_manager import findSystemFonts

    return sorted(findSystemFonts(), key=lambda path: ("NotoSans" not in path, "Regular" not in path, path))


def cover(figure: "Figure") -> None:
    """Give the texts of a figure, behind their own fonts, installed ones that have the glyphs which their own lack.

    Characters that no font has are drawn as boxes that show their script; a line below the figure, and one MissingGlyphs
    warning for all figures, say which they are and what to install.
    """
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if not text.get_text().isascii()]
    if figure.findobj(lambda part: part.get_gid() == NOTE):
        return
    lacking = {}
    for text in texts:
        own = _glyphs(findfont(FontProperties(family=text.get_fontfamily(), weight=text.get_fontweight())))
        lacking[text] = {character for character in text.get_text() if _is_drawn(character)} - own
    missing = set().union(*lacking.values())
    if not missing:
        return
    families, missing = _families(missing)
    for text, characters in lacking.items():
        if characters:
            text.set_fontfamily([*text.get_fontfamily(), *families])
    if missing:
        said = in_words(missing)
        _warn(said)
        _note(figure, said)


@cache
def _warn(said: str) -> None:
    """Say it, once: the figures of a report lack the same characters."""
    warnings.warn(said, MissingGlyphs, stacklevel=4)


def in_words(missing: Iterable[str]) -> str:
    """What is said of characters that no font has: how many, which, and fonts that have them."""
    missing = sorted(missing)
    scripts = dict.fromkeys(_script(character) for character in missing)
    fonts = dict.fromkeys(ADVISED.get(script, f"Noto Sans {script.title()}") for script in scripts)
    codes = ", ".join(f"U+{ord(character):04X}" for character in missing[:SHOWN]) + (", …" if len(missing) > SHOWN else "")
    return (
        f"Boxes stand for {len(missing)} characters that no installed font has "
        f"({', '.join(map(str.title, scripts))}: {codes}). Install {' and '.join(fonts)}, and report again."
    )


def _script(character: str) -> str:
    """The first word of a character's name, which is its script; EMOJI for a pictograph."""
    return "EMOJI" if unicodedata.category(character) == "So" else unicodedata.name(character, "UNNAMED").split()[0]


def _is_drawn(character: str) -> bool:
    selectors = "\ufe0e\ufe0f"
    return not (character.isspace() or character in selectors or unicodedata.category(character) in ("Cc", "Cf"))


@cache
def _glyphs(path: str) -> frozenset[str]:
    """The characters that a font has a glyph for; none of a file that is no font."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (RuntimeError, OSError):
        return frozenset()


def _families(missing: set[str]) -> tuple[list[str], set[str]]:
    """Fewest installed fonts, by a greedy choice, that have these characters; and the characters that none has."""
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    families, left, paths = [], set(missing), system_fonts()
    while left and paths:
        best = max(paths, key=lambda path: len(left & _glyphs(path)))
        if not left & _glyphs(best):
            break
        fontManager.addfont(best)  # one installed since matplotlib listed them is not known to it
        families.append(FT2Font(best).family_name)
        left -= _glyphs(best)
    return families, left


def _note(figure: "Figure", said: str) -> None:
    lines = textwrap.wrap(said, width=int(figure.get_figwidth() * 14))
    share = (0.18 * len(lines) + 0.05) / figure.get_figheight()
    engine = figure.get_layout_engine()
    if engine is not None:
        left, bottom, width, height = engine.get()["rect"]
        engine.set(rect=(left, bottom + share, width, height - share))
    place = {"ha": "left", "va": "bottom", "fontsize": 8.5, "parse_math": False}
    figure.text(0.02, 0.005, "\n".join(lines), gid=NOTE, **place)
