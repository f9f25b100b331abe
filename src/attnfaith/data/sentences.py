"""Sentences of a text, found by rules that travel inside tokenizer.json; see `build_tokenizer(hierarchy="sentence")`.

A sentence ends at a line break, at `<br />`, and after `.`, `!`, `?` or `…` with the quotes and brackets that close there,
if a blank and a possible start follow: a digit or a letter that is not lower-case, after opening quotes and brackets. In
texts that come split into words, where the mark stands between blanks, any word can start a sentence, except after an
ellipsis (`. . .`). A full stop after an initial (a single letter but I) or one of ABBREVIATIONS ends no sentence, nor does
a full stop after NUMBERED if a digit follows.

`U.S.` at the end of a sentence is taken as within it, and sentences of a text that is all lower-case and not split into
words are not found. Only languages with these marks are covered.
"""

import functools
import re
from itertools import groupby

from tokenizers import Regex, normalizers


MARK = "<sent>"
"""The special token between two sentences of a text."""

ABBREVIATIONS = (
    *("mr", "mrs", "ms", "messrs", "dr", "prof", "st", "rev", "hon", "gov", "sen", "rep", "pres"),
    *("gen", "col", "maj", "capt", "cmdr", "lt", "sgt", "mt", "vs", "cf", "approx", "e.g", "i.e"),
)
NUMBERED = ("no", "nos", "vol", "ch", "fig", "pp", "p")

# Stands for MARK while a text is prepared: a letter, which preparations leave unchanged, of Linear A, which no text holds.
_PLACE = "\U00010600"
_WORD = rf"(?!{MARK}(?!\S))\S+"

_STOP = ".!?…"
_CLOSING = "\"'”’»)\\]}"
_NO_START = ",;:%)\\]}.!?…"
_OPENING = "\"'“‘«(\\[{*_—–-"


def _not_after(words) -> str:
    """An assertion behind a full stop: it follows none of these words, as listed, capitalised or in capitals."""
    forms = {form for word in words for form in (word, word.capitalize(), word.upper())}
    ways = [rf"(?<![^\W_]){re.escape(form)}{blank}\." for form in sorted(forms) for blank in ("", " ")]
    return f"(?<!{'|'.join(ways)})"


def _ends() -> list[str]:
    """Patterns of the blank behind a sentence: after a mark attached to a word, a mark between blanks, an ellipsis."""
    initial = r"(?<!(?<![^\W_])[A-HJ-Za-hj-z]\.|(?<![^\W_])[A-HJ-Za-hj-z] \.)"
    stop = rf"\.{initial}{_not_after(ABBREVIATIONS)}(?:{_not_after(NUMBERED)}|(?!\s+\d))"
    closed = r"(?:\s+(?:''|[”’»)\]}]|-[Rr][RrSsCc][Bb]-)(?=\s))*"
    capital = rf"(?=[{_OPENING}]*\s?[\p{{Lu}}\p{{Lt}}\p{{Lo}}\p{{Nd}}])"
    attached = rf"(?:{stop}|[!?…])(?<=\S.)[{_STOP}]*[{_CLOSING}]*{closed}\K\s+{capital}"
    alone = rf"(?:{stop}|[!?])(?<=\s.)(?<!\.\s.)(?:\s?[!?])*{closed}\K\s+(?=[^\s{_NO_START}])"
    ellipsis = rf"\.(?<=\s\.)(?:\s?[{_STOP}])+{closed}\K\s+{capital}"
    return [attached, alone, ellipsis]


@functools.cache  # the patterns are long, and compiling them takes longer than to prepare many texts
def mark_places() -> tuple:
    """Return the first normalizers of a preparation: they put the letter that stands for MARK between sentences."""
    return (
        normalizers.Replace(_PLACE, " "),
        normalizers.Replace(Regex(rf"<[Bb][Rr]\s*/?>|[\n\r\v\f\x85\u2028\u2029]++(?!\s*[{_NO_START}])"), f" {_PLACE} "),
        *(normalizers.Replace(Regex(pattern), f" {_PLACE} ") for pattern in _ends()),
    )


def set_marks(max_sentence_length: int | None = None) -> list:
    """Return the last normalizers of a preparation: they turn these letters into one MARK between two sentences.

    max_sentence_length: a longer sentence continues as another after so many words.
    """
    steps = [(rf"{_PLACE}(?:\s*{_PLACE})*", f" {MARK} "), (rf"\A\s*{MARK}(?!\S)\s*", "")]
    if max_sentence_length is not None:
        start = rf"(?:\A\s*|(?<!\S){MARK}\s+|\G)"  # of a sentence, or where the last one was divided
        steps.append((rf"{start}(?>{_WORD}\s+){{{max_sentence_length}}}\K(?={_WORD})", f"{MARK} "))
    steps.append((rf"\s*(?<!\S){MARK}\s*\z", ""))
    return [normalizers.Replace(Regex(pattern), content) for pattern, content in steps]


def divide(words: list[str]) -> list[list[str]]:
    """Divide words with MARK between sentences into sentences, none of them empty."""
    return [list(sentence) for is_mark, sentence in groupby(words, key=MARK.__eq__) if not is_mark]
