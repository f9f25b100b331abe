"""Data sets in the form of their first publication: text files that are no table, or a table without a header.

One function per form, in `FORMATS` at the foot. It takes the files of one split and gives its rows by column, named as
the entry of the data set expects them. A line that does not keep to the form is an error that names file and line.
"""

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from attnfaith.data.eraser import read_annotations
from attnfaith.data.registry import DatasetEntry
from attnfaith.errors import DatasetError, cut, excerpt


_ENTITY = re.compile(r"@entity\d+")


def _lines(path: Path) -> list[str]:
    with _opened(path) as file:
        return file.read().splitlines()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The characters of a file, line ends as they are. Raises DatasetError where it cannot be read or is no UTF-8."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text: {error}") from error


# ------------------------------------------------------------------------------------------------------ bAbI


def read_babi(paths: Sequence[Path], entry: DatasetEntry) -> dict[str, list]:
    """One row per question of bAbI's text files (Weston et al., 2015), with the statements of its story up to there.

    A line is `number statement.` or `number question?<tab>answer<tab>numbers of the supporting statements`; the number 1
    begins a new story. Full stop and question mark become words of their own.

    Returns columns text, text_pair (the question), label (the answer, a word), rationale: 0/1 per word of the text, 1 on
    the supporting statements with their full stop.

    Raises DatasetError, with file and line, for a line that is neither, numbers that do not count on, and supporting
    numbers that are none of the story's statements.
    """
    return _babi_rows(map(_babi_lines, paths))


def _babi_lines(path: Path):
    """(place, number, text, answer, supporting numbers) of each line; the last two are None for a statement."""
    for row, line in enumerate(_lines(path), start=1):
        place = f"{path}, line {row}"
        number, _, rest = line.partition(" ")
        fields = [field.strip() for field in rest.split("\t")]
        if not (number.isdecimal() and len(number) < 10) or len(fields) not in (1, 3):
            raise DatasetError(
                f"{place}: neither 'number statement.' nor 'number question?<tab>answer<tab>supporting numbers' "
                f"({excerpt(line)})."
            )
        yield place, number, fields[0], *((None, None) if len(fields) == 1 else (fields[1], fields[2].split()))


def babi_table(table, entry: DatasetEntry, split: str) -> dict[str, list]:
    """The rows of `read_babi` from the copy on the Hub, where a row is a story: its lines under `story`.

    `story` holds id, type (0 statement, 1 question), text, supporting_ids and answer, as a struct of lists or a list of
    structs. Raises DatasetError as `read_babi` does, with the row.
    """
    if "story" not in table.column_names:
        raise DatasetError(f"{entry.name!r} needs a column 'story'; its {split} split has {table.column_names}.")

    def lines(row: int, story):
        for line in _lines_of_story(story, f"{entry.name!r}, {split} split, row {row}"):
            place = f"{entry.name!r}, {split} split, row {row}, line {line['id']}"
            asked = (line["answer"], line["supporting_ids"]) if line["type"] == 1 else (None, None)
            yield place, line["id"], line["text"].strip(), *asked

    return _babi_rows(lines(row, story) for row, story in enumerate(table.column("story").to_pylist()))


def _lines_of_story(story: object, place: str) -> list[Mapping]:
    """The lines of a story as one mapping each. Raises DatasetError where it is of another form."""
    try:
        if isinstance(story, dict):
            story = [dict(zip(story, values, strict=True)) for values in zip(*story.values(), strict=True)]
        whole = all(
            isinstance(line["id"], str) and line["id"].isdecimal() and len(line["id"]) < 10
            and isinstance(line["text"], str) and isinstance(line["answer"], str | None)
            and line["type"] in (0, 1) and isinstance(line["supporting_ids"], list | None)
            and all(isinstance(fact, str) for fact in line["supporting_ids"] or ())
            for line in story
        )  # fmt: skip
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole:
        raise DatasetError(
            f"{place}: a story is a list of lines, each with id (a number written as text), type (0 or 1), text, "
            f"supporting_ids and answer; it is {excerpt(story)}."
        )
    return story


def _babi_rows(parts: Iterable[Iterable[tuple]]) -> dict[str, list]:
    """Rows of the lines of each part; a part begins with a story of its own."""
    columns: dict[str, list] = {"text": [], "text_pair": [], "label": [], "rationale": []}
    for part in parts:
        _add_babi_rows(columns, part)
    return columns


def _add_babi_rows(columns: dict[str, list], lines: Iterable[tuple]) -> None:
    story: dict[str, list[str]] = {}
    last = 0
    for place, number, text, answer, facts in lines:
        if number == "1":
            story = {}
        elif number != str(last + 1):
            raise DatasetError(
                f"{place}: the number {cut(str(number))} follows {last}; lines of a story are counted from 1."
            )
        last = int(number)
        ending = "." if answer is None else "?"
        if not text.endswith(ending):
            tabs = "; a question has tabs before its answer and before its supporting numbers" if "?" in text else ""
            kind = "statement" if answer is None else "question"
            raise DatasetError(f"{place}: a {kind} ends in {ending!r}; {excerpt(text)}{tabs}.")
        words = [*text[:-1].split(), ending]
        if answer is None:
            story[number] = words
            continue
        if not answer:
            raise DatasetError(f"{place}: the question has no answer.")
        if not facts or not set(facts) <= set(story):
            raise DatasetError(
                f"{place}: the supporting numbers {excerpt(' '.join(facts))} are not all among its statements "
                f"{cut(' '.join(story))}."
            )
        columns["text"].append(" ".join(word for statement in story.values() for word in statement))
        columns["text_pair"].append(" ".join(words))
        columns["label"].append(answer)
        columns["rationale"].append([int(key in facts) for key, statement in story.items() for _ in statement])


# ------------------------------------------------------------------------------------------- news questions


def read_news_questions(paths: Sequence[Path], entry: DatasetEntry) -> dict[str, list]:
    """One row per `.question` file of the CNN and Daily Mail questions (Hermann et al., 2015).

    A file has the article's address, the passage, the question with `@placeholder` and the answer, an entity such as
    `@entity3`, each on a line of its own and followed by an empty line; then `@entity3:name` for every entity. Names are
    checked and left out, as in the papers.

    Returns columns text (the passage), text_pair and label (the answer, a word).

    Raises DatasetError, with file and line, for a part that is missing or not of that form.
    """
    columns: dict[str, list] = {"text": [], "text_pair": [], "label": []}
    for path in paths:
        lines = _lines(path)

        def broken(row: int, what: str, path=path):
            return DatasetError(f"{path}, line {row + 1}: {what}")

        for row, part in ((0, "address of the article"), (2, "passage"), (4, "question"), (6, "answer")):
            if row >= len(lines) or not lines[row].strip():
                raise broken(row, f"the {part} is missing.")
            if row + 1 < len(lines) and lines[row + 1].strip():
                raise broken(row + 1, f"an empty line must follow the {part}; {lines[row + 1][:60]!r} does.")
        text, question, answer = (lines[row].strip() for row in (2, 4, 6))
        if "@placeholder" not in question:
            raise broken(4, f"the question has no @placeholder ({question[:60]!r}).")
        if not _ENTITY.fullmatch(answer):
            raise broken(6, f"the answer must be an entity such as @entity3; it is {answer[:60]!r}.")
        for row, line in enumerate(lines[8:], start=8):
            if line.strip() and not re.match(r"@entity\d+:", line):
                raise broken(row, f"'@entity3:name' is expected; {line[:60]!r} was found.")
        for column, value in zip(columns, (text, question, answer), strict=True):
            columns[column].append(value)
    return columns


# ------------------------------------------------------------------------------------------ header-less csv


def read_csv(paths: Sequence[Path], entry: DatasetEntry) -> dict[str, list]:
    """Rows of the comma-separated files of Zhang, Zhao & LeCun (2015): a class counted from 1, then texts; no header.

    The columns are called as in `entry.original_columns`, and the class, the first of them, is counted from 0.

    Raises DatasetError, with file and line, for a row with another number of fields, broken quotes, and a class that is
    not a whole number from 1 to the number of classes.
    """
    names = entry.original_columns
    columns: dict[str, list] = {name: [] for name in names}
    for path in paths:
        with _opened(path) as file:
            reader = csv.reader(file, strict=True)
            try:
                for row in reader:
                    place = f"{path}, line {reader.line_num}"
                    if len(row) != len(names):
                        raise DatasetError(f"{place}: {len(row)} fields instead of {len(names)} ({', '.join(names)}).")
                    if not (row[0].isdecimal() and len(row[0]) < 10 and 1 <= int(row[0]) <= entry.published_labels):
                        raise DatasetError(f"{place}: the class {row[0][:60]!r} is not one of 1..{entry.published_labels}.")
                    for name, value in zip(names, [int(row[0]) - 1, *row[1:]], strict=True):
                        columns[name].append(value)
            except csv.Error as error:
                raise DatasetError(f"{path}, line {reader.line_num}: {error}.") from error
    return columns


# ---------------------------------------------------------------------------------------------------- ERASER


def read_eraser(paths: Sequence[Path], entry: DatasetEntry) -> dict[str, list]:
    """One row per annotation of <split>.jsonl files in ERASER's form, see `attnfaith.data.eraser.read_annotations`.

    Returns columns text, text_pair (the query), label (its place in `entry.original_labels`), rationale: 0/1 per word.

    Raises DatasetError as `read_annotations`, and for a class that the entry does not name.
    """
    columns: dict[str, list] = {"text": [], "text_pair": [], "label": [], "rationale": []}
    for path in paths:
        for row in read_annotations(path.parent, path.stem):
            if row["label"] not in entry.original_labels:
                raise DatasetError(
                    f"{path}, annotation {row['instance_id']!r}: the class {row['label'][:60]!r} is not one of "
                    f"{', '.join(entry.original_labels)}."
                )
            tokens = [token for line in row["text"].split("\n") for token in line.split(" ")]
            marks = zip(tokens, row["rationale"], strict=True)
            columns["text"].append(row["text"])
            columns["text_pair"].append(row["text_pair"])
            columns["label"].append(entry.original_labels.index(row["label"]))
            # a token of theirs may hold a blank of another kind, where our words part
            columns["rationale"].append([mark for token, mark in marks for _ in token.split()])
    return columns


FORMATS = {"babi": read_babi, "news_questions": read_news_questions, "csv": read_csv, "eraser": read_eraser}
"""The forms, by name: (files of a split, entry) -> rows by column."""

TABLES = {"babi": babi_table}
"""Forms whose copy on the Hub is a table of other columns too: (table, entry, split) -> rows by column."""
