"""bAbI's stories as the Hub publishes them, a story a row, made into questions, a question a row."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from attnfaith.data.registry import DatasetEntry
from attnfaith.errors import DatasetError, cut, excerpt


class Line(TypedDict):
    id: Annotated[str, Field(pattern=r"^\d{1,9}$")]  # counted from 1 in each story
    type: Literal[0, 1]  # statement, question
    text: str
    supporting_ids: list[str] | None
    answer: str | None


_STORY = TypeAdapter(list[Line])


def rows_of_stories(table, entry: DatasetEntry, split: str) -> dict[str, list]:
    """A row for each question of a table of stories, with the statements of its story up to there.

    A row of the table is a story, its lines under `story`, as a struct of lists or a list of structs. Full stop and question
    mark become words of their own.

    Returns columns text, text_pair (the question), label (the answer, a word), rationale: 0/1 per word of the text, 1 on
    the supporting statements with their full stop.

    Raises DatasetError, with the row, for a line that is neither, numbers that do not count on, and supporting numbers that
    are none of the story's statements.
    """
    if "story" not in table.column_names:
        raise DatasetError(f"{entry.name!r} needs a column 'story'; its {split} split has {table.column_names}.")
    columns: dict[str, list] = {"text": [], "text_pair": [], "label": [], "rationale": []}
    for row, story in enumerate(table.column("story").to_pylist()):
        place = f"{entry.name!r}, {split} split, row {row}"
        try:
            if isinstance(story, dict):
                story = [dict(zip(story, values, strict=True)) for values in zip(*story.values(), strict=True)]
            _add_questions(columns, _STORY.validate_python(story), place)
        except (ValidationError, ValueError) as error:
            if isinstance(error, DatasetError):
                raise
            raise DatasetError(
                f"{place}: a story is a list of lines, each with id (a number written as text), type (0 or 1), text, "
                f"supporting_ids and answer; it is {excerpt(story)}."
            ) from error
    return columns


def _add_questions(columns: dict[str, list], story: list[Line], place: str) -> None:
    statements: dict[str, list[str]] = {}
    last = 0
    for line in story:
        number, text, question = line["id"], line["text"].strip(), line["type"] == 1
        here = f"{place}, line {number}"
        if number == "1":
            statements = {}
        elif number != str(last + 1):
            raise DatasetError(f"{here}: the number {number} follows {last}; lines of a story are counted from 1.")
        last = int(number)
        ending = "?" if question else "."
        if not text.endswith(ending):
            raise DatasetError(f"{here}: a {'question' if question else 'statement'} ends in {ending!r}; {excerpt(text)}.")
        words = [*text[:-1].split(), ending]
        if not question:
            statements[number] = words
            continue
        facts = line["supporting_ids"] or []
        if not line["answer"]:
            raise DatasetError(f"{here}: the question has no answer.")
        if not facts or not set(facts) <= set(statements):
            raise DatasetError(
                f"{here}: the supporting numbers {excerpt(' '.join(facts))} are not all among its statements "
                f"{cut(' '.join(statements))}."
            )
        columns["text"].append(" ".join(word for statement in statements.values() for word in statement))
        columns["text_pair"].append(" ".join(words))
        columns["label"].append(line["answer"])
        columns["rationale"].append([int(key in facts) for key, statement in statements.items() for _ in statement])
