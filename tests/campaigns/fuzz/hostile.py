"""Hostile input: values that break assumptions, trees of values with some of them put in, and bytes that are damaged.

All of it is drawn from a `random.Random`, so that a seed and a number repeat it.
"""

import codecs
import copy
import json
import math
from pathlib import Path
from random import Random


LONG = 10_000_000  # letters of the longest text
WORDS = (
    "", " ", "\0", "\ud800", "\u202eabc", "\x1b[2J", "\n", "a\nb", "é", "ﬁ", "日本", "🏴\u200d☠️", "-", "--help", "~", "..",
    "../..", "/", "/dev/null", "a/b", "{x}", "{0}", "%s%n", "$(ls)", "<script>", "'", '"', "NaN", "null", "true", "1e999",
    "0x10", "1_000", "²", "٣", "9" * 5000, "x" * 300, "[" * 300, "tokens", "label", "text", "gradient", "\ufeff", "a\tb",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 3, 2**15, 2**31, 2**31 - 1, -(2**31), 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1.5, 1e-320,
    1e308, -1e308, math.nan, math.inf, -math.inf,
)  # fmt: skip
OTHERS = (None, True, False, [], {}, [[]], [None], {"": None}, [1, "a"], {"a": [1]}, [[[[[[1]]]]]], [0] * 1000)
INSERTED = (
    b"\0", b"\xff", b"\xff\xfe", codecs.BOM_UTF8, b"\r\n", b"\r", b"\n\n", b"\t", b"  ", b",", b";", b'"', b"'", b"\\",
    b"{", b"}", b"[", b"]", b": ", b"- ", b"&a ", b"*a", b"<<: ", b"!!python/object:os.system ", b"1e999", b"-1", b"NaN",
    b"null", b"\\ud800", b"\\u0000", b"\xed\xa0\x80", b"9" * 5000, b"[" * 2000, b'{"a":' * 2000, b"\x85", b"\xe2\x80\xa8",
    b"\x1b[2J", b"PAR1",
)  # fmt: skip


def value(chance: Random) -> object:
    """A value that is none of those expected."""
    if chance.random() < 0.002:
        return "x" * LONG
    kind = chance.choice((WORDS, NUMBERS, OTHERS))
    return copy.deepcopy(chance.choice(kind))


def places(tree: object, path: tuple = ()) -> list[tuple]:
    """The path of every value in lists and mappings, the tree itself as ()."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, one in inside for place in places(one, (*path, key)))]


def changed(chance: Random, tree: object) -> tuple[object, str]:
    """A copy with one to three values replaced, taken away, renamed, given twice or exchanged; and what was done."""
    tree, said = copy.deepcopy(tree), []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        path = chance.choice(places(tree))
        if not path:
            if chance.random() < 0.9:
                continue
            tree = value(chance)
            said.append(f"all = {_cut(tree)}")
            continue
        *above, last = path
        home = tree
        for key in above:
            home = home[key]
        kind = chance.choice(("value", "value", "value", "gone", "renamed", "number", "exchanged"))
        if kind == "gone":
            del home[last]
        elif kind == "renamed" and isinstance(home, dict):
            home[chance.choice([*WORDS, *NUMBERS])] = home.pop(last)
        elif kind == "exchanged":
            other = chance.choice(places(tree))
            one = tree
            for key in other:
                one = one[key]
            home[last] = copy.deepcopy(one)
        elif kind == "number" and isinstance(home[last], int | float) and not isinstance(home[last], bool):
            home[last] = chance.choice((-home[last], home[last] + 1, home[last] * 1e9, str(home[last]), [home[last]]))
        else:
            home[last] = value(chance)
        said.append(f"{'.'.join(map(str, path))} {kind}" + (f" = {_cut(home[last])}" if kind in ("value", "number") else ""))
    return tree, "; ".join(said) or "unchanged"


def _cut(one: object) -> str:
    try:
        shown = repr(one)
    except ValueError:
        shown = f"a {type(one).__name__} of many digits"
    return shown if len(shown) < 80 else f"{shown[:60]}… ({len(shown)} characters)"


def as_json(tree: object) -> bytes:
    """A tree as JSON, as Python writes it: NaN and halves of letters included."""
    try:
        return json.dumps(tree).encode()
    except (ValueError, TypeError):  # numbers of too many digits, keys that are none
        return json.dumps(_writable(tree)).encode()


def _writable(tree: object) -> object:
    if isinstance(tree, dict):
        return {str(key)[:5000] if not isinstance(key, int) else hex(key): _writable(one) for key, one in tree.items()}
    if isinstance(tree, list):
        return [_writable(one) for one in tree]
    return hex(tree) if isinstance(tree, int) and abs(tree) > 10**100 else tree


def damaged(chance: Random, content: bytes) -> tuple[bytes, str]:
    """Bytes with some changed, put in, taken away, repeated or exchanged, cut off or in another encoding; what was done."""
    made, said = bytearray(content), []
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        size = len(made)
        start = chance.randrange(size + 1)
        stop = min(size, start + chance.choice((1, 1, 2, 8, 40)))
        kind = chance.choice(("flip", "flip", "gone", "insert", "insert", "repeat", "exchange", "line", "cut", "encoding"))
        if kind == "flip" and start < size:
            made[start] ^= 1 << chance.randrange(8)
        elif kind == "gone":
            del made[start:stop]
        elif kind == "insert":
            made[start:start] = chance.choice(INSERTED)
        elif kind == "repeat":
            made[start:start] = made[start:stop] * chance.choice((1, 2, 50))
        elif kind == "exchange" and size:
            other = chance.randrange(size)
            made[start:stop], made[other:other] = made[other : other + stop - start], made[start:stop]
        elif kind == "line" and b"\n" in made:
            lines = bytes(made).split(b"\n")
            place = chance.randrange(len(lines))
            one = lines.pop(place)
            for _ in range(chance.choice((0, 1, 2))):
                lines.insert(chance.randrange(len(lines) + 1), one)
            made = bytearray(b"\n".join(lines))
        elif kind == "cut" and chance.random() < 0.4:
            del made[start:]
        elif kind == "encoding" and chance.random() < 0.4:
            text = bytes(made).decode("utf-8", "replace")
            way = chance.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "crlf", "cr"))
            if way in ("crlf", "cr"):
                made = bytearray(text.replace("\n", "\r\n" if way == "crlf" else "\r").encode())
            else:
                made = bytearray(text.encode(way, "replace"))
            kind = way
        said.append(f"{kind} at {start}")
    return bytes(made), ", ".join(said)


def displaced(chance: Random, path: Path) -> str:
    """Put something that is no such file at a path; what it is."""
    kind = chance.choice(("nothing", "folder", "link to nothing", "link to itself", "empty", "link to a folder"))
    if path.is_symlink() or path.exists():
        path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link to nothing":
        path.symlink_to(path.with_name("not there"))
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "link to a folder":
        path.symlink_to(path.parent)
    elif kind == "empty":
        path.write_bytes(b"")
    return kind
