"""bAbI's stories as the Hub publishes them, a story a row, made into questions, a question a row."""

from collections.abc import Iterable, Mapping

from attnfaith.data.registry import DatasetEntry
from attnfaith.errors import DatasetError, cut, excerpt


def rows_of_stories(table, entry: DatasetEntry, split: str) -> dict[str, list]:
    """A row for each question of a table of stories, with the statements of its story up to there.

    A row of the table is a story, its lines under `story`: id, type (0 statement, 1 question), text, supporting_ids and
    answer, as a struct of lists or a list of structs. Full stop and question mark become words of their own.

    Returns columns text, text_pair (the question), label (the answer, a word), rationale: 0/1 per word of the text, 1 on
    the supporting statements with their full stop.

    Raises DatasetError, with the row, for a line that is neither, numbers that do not count on, and supporting numbers that
    are none of the story's statements.
    """
    if "story" not in table.column_names:
        raise DatasetError(f"{entry.name!r} needs a column 'story'; its {split} split has {table.column_names}.")

    def lines(row: int, story):
        for line in _lines_of_story(story, f"{entry.name!r}, {split} split, row {row}"):
            place = f"{entry.name!r}, {split} split, row {row}, line {line['id']}"
            asked = (line["answer"], line["supporting_ids"]) if line["type"] == 1 else (None, None)
            yield place, line["id"], line["text"].strip(), *asked

    columns: dict[str, list] = {"text": [], "text_pair": [], "label": [], "rationale": []}
    for row, story in enumerate(table.column("story").to_pylist()):
        _add_rows(columns, lines(row, story))
    return columns


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


def _add_rows(columns: dict[str, list], lines: Iterable[tuple]) -> None:
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
