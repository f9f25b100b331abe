"""The text of a file: its encoding, its lines, and what a system, a codec or Arrow say of it in one error.

A file is read in parts, compressed or not; nothing here holds more than a part and a line.
"""

import bz2
import codecs
import contextlib
import difflib
import encodings.aliases
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path

from attnfaith.errors import DatasetError, excerpt


COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
LONGEST = 50_000_000
"""Characters of a line or a field: a longer one is a quotation mark that is never closed, or no text."""
CHUNK = 1 << 20  # bytes or characters read at a time
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"} | {
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MAGIC = {
    b"PK\x03\x04": "a spreadsheet or a zip archive: open it and save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old format: open it and save the sheet as CSV (UTF-8)",
    b"PAR1": "a parquet file: give it a name that ends in .parquet",
    b"\x1f\x8b": "compressed by gzip: give it a name that ends in .gz",
    b"%PDF": "a PDF: texts must be in a table, such as CSV",
}


def check_encoding(name: str) -> None:
    """Raise DatasetError, with the nearest name, for an encoding that Python does not know or that is none of text."""
    try:
        "".encode(name)
    except (LookupError, ValueError, UnicodeError) as error:
        known = sorted({*encodings.aliases.aliases.values()})
        near = difflib.get_close_matches(name.lower().replace("-", "_"), known, 1)
        hint = f"; did you mean {near[0].replace('_', '-')}?" if near else ", such as utf-8, utf-16, cp1252 or latin-1"
        raise DatasetError(f"encoding={excerpt(name)} is none that Python knows{hint}") from error


def examine(path: Path, kind: str, encoding: str | None) -> tuple[str, str | None, str]:
    """SHA-256 of a file, its encoding (None: not text) and what is assumed of that, "" for nothing; in little memory.

    encoding: the one that was given. None: by its byte order mark, else UTF-8, else Windows-1252. Raises DatasetError where
    it is none of these, or no text.
    """
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if kind == "parquet" or encoding is not None:
        return digest, encoding, ""
    with binary(path) as stream:
        chunk = stream.read(CHUNK)
        if not chunk:
            raise DatasetError(f"{path} is empty")
        for mark, name in _BOMS.items():
            if chunk.startswith(mark):
                return digest, name, ""
        for magic, what in MAGIC.items():
            if chunk.startswith(magic):
                raise DatasetError(f"{path} is no {kind}; it is {what}")
        if (place := chunk.find(b"\0")) >= 0:
            raise DatasetError(
                f"{path} is no text: byte {place} is NUL. Where it is text of another encoding, name it (--data.encoding "
                "utf-16-le, say)"
            )
        utf8, done = codecs.getincrementaldecoder("utf-8")(), 0
        try:
            while chunk:
                utf8.decode(chunk)
                done += len(chunk)
                chunk = stream.read(CHUNK)
            utf8.decode(b"", final=True)
            return digest, "utf-8", ""
        except UnicodeDecodeError as error:
            place = done + error.start
    with contextlib.suppress(UnicodeDecodeError), opened(path, "cp1252") as stream:
        while stream.read(CHUNK):
            pass
        said = f"{path.name}: no UTF-8 at byte {place}, read as Windows-1252; --data.encoding says otherwise"
        return digest, "cp1252", said
    raise DatasetError(
        f"{path} is neither UTF-8 (see byte {place}) nor Windows-1252: name its encoding (--data.encoding), or save it as "
        "UTF-8"
    )


def binary(path: Path):
    """The bytes of a file, uncompressed."""
    return COMPRESSED.get(path.suffix.lower(), open)(path, "rb")


@contextlib.contextmanager
def opened(path: Path, encoding: str):
    """The characters of a file, line ends as they are."""
    with binary(path) as raw, io.TextIOWrapper(raw, encoding, newline="") as stream:
        yield stream


def lines(path: Path, stream) -> Iterator[str]:
    """The lines of a text, each with its end, the byte order mark left out."""
    number = 0
    while line := stream.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise DatasetError(f"{path}, line {number}: more than {LONGEST:,} characters in a line: it is no table of texts")
        if "\0" in line:
            raise DatasetError(f"{path}, line {number}: a NUL character, which no text has: the file is damaged or no text")
        yield line.removeprefix("\ufeff") if number == 1 else line


@contextlib.contextmanager
def refusals(path: Path) -> Iterator[None]:
    """What the system, a codec or Arrow says of a file, as one DatasetError."""
    import pyarrow as pa

    try:
        yield
    except DatasetError:
        raise
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path} is not in the encoding {error.encoding} ({error.reason}): name its own (--data.encoding)"
        ) from error
    except (OSError, EOFError, UnicodeError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise DatasetError(f"{path} cannot be read: {excerpt(error, 200)}") from error
