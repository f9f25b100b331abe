"""Material for a survey of people: heat maps of the same texts by several models, which the reader cannot tell apart.

Nothing in it is an answer: what people say is theirs to give, and the columns for it are empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnfaith import __version__
from attnfaith.escaping import csv_text
from attnfaith.files import write_atomically
from attnfaith.reporting.blocks import template
from attnfaith.reporting.cells import CELL, Cell, describe, name_class
from attnfaith.reporting.errors import FolderError, ReportError
from attnfaith.reporting.page.heatmap import HUES, PAPER, SHADES, direction_of, query_of, shades, visible


PAGE, ANSWERS, KEY = "survey.html", "answers.csv", "key.csv"
QUESTIONS = (
    "Which words did the model rely on?",
    "Are the dark words good reasons for this prediction? (1 not at all, 5 entirely)",
)


@dataclass(frozen=True)
class Word:
    """text: nothing unseen in it. shade: 0..10, its weight in tenths of the largest of its text."""

    text: str
    shade: int


@dataclass(frozen=True)
class Item:
    """One heat map. number: by which answers are given, from 1. part: each holds every text once. run, row: whose text it
    is; they stand in the key alone. query: words of a second text, which nothing attends to, None where there is none.
    """

    number: int
    part: int
    run: int
    row: int
    prediction: str
    words: tuple[Word, ...]
    query: tuple[str, ...] | None
    sentences: bool
    direction: str


def survey_items(cells: Sequence[Cell], texts: int, seed: int) -> list[Item]:
    """Heat maps of so many texts by every model, in an order that says nothing of the model.

    The texts are drawn without replacement from those that all cells hold with a token, the same whatever the order of cells
    or rows. There is a part for each cell: each holds every text once and every model equally often (but for one text where
    they do not divide), so that who reads one part meets no text twice; over all parts every model has every text. Items of
    a part are shuffled.

    Raises ReportError for cells of other texts, two of one identity, no cell, and more texts than they share.
    """
    if not cells:
        raise ReportError("a survey needs the record of at least one model: the records hold no rows")
    names = {(cell.heading["dataset"], cell.heading["split"], cell.identity.texts): cell for cell in cells}
    if len(names) > 1:
        one, other = (f"{describe(cell.heading)} (texts {cell.identity.texts})" for cell in list(names.values())[:2])
        raise ReportError(f"the models read different texts: {one}; {other}; give runs that were measured on the same ones")
    if len({cell.identity for cell in cells}) < len(cells):
        raise ReportError("two of the runs are of one model and seed: give each once, or people would judge it twice")
    places = [dict(zip(cell.instance_ids, range(len(cell)), strict=True)) for cell in cells]
    shared = sorted(
        name
        for name in set.intersection(*map(set, places))
        if all(cell.lengths[place[name]] for cell, place in zip(cells, places, strict=True))
    )
    if texts < 1:
        raise ReportError(f"--texts {texts}: a survey has at least 1 text")
    if texts > len(shared):
        raise ReportError(
            f"--texts {texts}: the runs share {len(shared)} texts that have a token; ask for at most that many, or measure "
            "more"
        )
    generator = np.random.default_rng(seed)
    drawn = generator.permutation(len(shared))[:texts]
    models = generator.permutation(len(cells))
    items = []
    for part in range(len(cells)):
        for place in generator.permutation(texts):
            run = int(models[(place + part) % len(cells)])
            row = places[run][shared[drawn[place]]]
            items.append(_item(cells[run], row, len(items) + 1, part + 1, run))
    return items


def _item(cell: Cell, row: int, number: int, part: int, run: int) -> Item:
    tokens, weights = cell.table.column("tokens")[row].as_py(), cell.attention[row].astype(np.float64)
    steps = np.rint(weights / weights.max() * (SHADES - 1)).astype(int)
    return Item(
        number=number,
        part=part,
        run=run,
        row=row,
        prediction=visible(name_class(str(cell.predicted[row]), cell.class_names)),
        words=tuple(Word(visible(token), int(step)) for token, step in zip(tokens, steps, strict=True)),
        query=query_of(cell, row),
        sentences=cell.words is not None,
        direction=direction_of(tokens),
    )


def write_survey(
    cells: Sequence[Cell],
    names: Sequence[str],
    folder: Path,
    *,
    texts: int,
    seed: int = 0,
    questions: Sequence[str] = QUESTIONS,
) -> list[Path]:
    """Write the page to hand out, the sheet for its answers, and the key, which is to be kept back; returns their paths.

    names: of the runs, as the key has them. survey.html needs nothing outside it. answers.csv: a line per item in the order
    of the page, with an empty column per question. key.csv: which run and text an item is. The same records, texts and seed
    give the same bytes.

    Raises FolderError where the folder holds anything, which may be answers; ReportError as `survey_items` does, and
    for an empty question.
    """
    if not questions or not all(question.strip() for question in questions):
        raise ReportError("--questions: each is at least one word")
    items = survey_items(cells, texts, seed)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FolderError(f"{folder} is there and not empty: it may hold answers; give a new folder")
    page = template("survey.html.j2").render(
        parts=[[item for item in items if item.part == part] for part in range(1, len(cells) + 1)],
        questions=questions,
        colours=shades(HUES["attention"], "light"),
        paper=PAPER["light"],
        version=__version__,
        of_sentences=any(item.sentences for item in items),
    )
    sheet = [("item", "part", "prediction", "text", *questions)]
    sheet += [
        (item.number, item.part, item.prediction, " ".join(word.text for word in item.words), *("" for _ in questions))
        for item in items
    ]
    key = [("item", "instance_id", "run", *CELL, "predicted", "probability", "label")]
    key += [(item.number, *_kept_back(cells[item.run], names[item.run], item.row)) for item in items]
    return [
        write_atomically(folder / name, content)
        for name, content in ((PAGE, page), (ANSWERS, csv_text(sheet)), (KEY, csv_text(key)))
    ]


def _kept_back(cell: Cell, name: str, row: int) -> tuple[object, ...]:
    predicted, label = int(cell.predicted[row]), cell.labels[row]
    gold = "" if np.isnan(label) else int(label)
    return (cell.instance_ids[row], name, *cell.heading.values(), predicted, float(cell.probs[row, predicted]), gold)
