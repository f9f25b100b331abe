"""The report as one HTML page that needs nothing beside it: styles, pictures and texts are inside.

Every sentence about results is put together from the numbers of the tables; none is typed by hand.
"""

import base64
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.reporting import render, sections
from attnfaith.reporting.blocks import CLASS_COLUMN, Grid, Picture, largest_classes, template
from attnfaith.reporting.cells import CELL, Cell, describe, measure_label, name_class
from attnfaith.reporting.page.first_screen import first_screen
from attnfaith.reporting.page.heatmap import (
    HUES,
    MOST_TOKENS,
    NEGATIVE_HUE,
    OTHER_HUE,
    PAPER,
    SHADES,
    SHORTEST_EXAMPLE,
    Example,
    choose,
    example,
    shades,
    shown_measures,
)
from attnfaith.reporting.page.instrument import MOST_BYTES, Instrument, instrument, scripts_of
from attnfaith.reporting.pairs import Pair, choose_pairs, pair, reading_label, shown_reading
from attnfaith.reporting.readings import has_gold
from attnfaith.reporting.sections.agreement import main_measures
from attnfaith.verdict import RULE


CHAPTERS = {"measures": "Measures", "interventions": "Interventions"}
"""Those that hold what sections say of a cell, by the name that a section gives."""
MOST_CHARTS = 6  # of models, one below the other on the first screen


@dataclasses.dataclass(frozen=True)
class SectionPart:
    """What one section says of one cell: sentences, figures, and HTML that is safe."""

    sentences: tuple[str, ...]
    pictures: tuple[Picture, ...]
    html: Markup


@dataclasses.dataclass(frozen=True)
class Script:
    """Code that runs in the page, and its SHA-256 in base64, by which the page's policy lets it run."""

    code: Markup
    digest: str


@dataclasses.dataclass(frozen=True)
class CellPart:
    """What the page says of one cell. chapters: of each of CHAPTERS the sections that say anything. pairs: of a cell of
    sentence pairs these, by heading, and no texts. instrument: all texts, to be tried; None where a cell has none.
    """

    title: str
    chapters: Mapping[str, tuple[SectionPart, ...]]
    groups: tuple[tuple[str, tuple[Example, ...]], ...]
    measures: tuple[tuple[int, str], ...]
    legend: tuple[tuple[int, str], ...]
    class_names: tuple[str, ...]
    has_rationale: bool
    of_sentences: bool
    note: str
    pairs: tuple[tuple[str, tuple[Pair, ...]], ...] | None = None
    has_gold: bool = False
    instrument: Instrument | None = None


FINGERPRINTS = {"texts": "fingerprint of the texts", "training_texts": "fingerprint of the training texts"}


def render_page(
    cells: Sequence[Cell],
    tables: Mapping[str, pd.DataFrame],
    pictures: Sequence[Sequence[Picture]],
    *,
    title: str,
    facts: Mapping[str, object],
    n_examples: int,
) -> str:
    """The page's HTML.

    tables: those of `reporting.sections`, by file name. pictures: those of each cell. facts: what to say of the run, by
    name; nested ones are written out with dots. No code runs in it but that of its instruments.
    """
    shown = zip(cells, pictures, strict=True)
    tried = [instrument(cell, place, most_bytes=MOST_BYTES // len(cells)) for place, cell in enumerate(cells)]
    parts = tuple(_cell_part(cell, of_cell, n_examples, one) for (cell, of_cell), one in zip(shown, tried, strict=True))
    known = {cell.class_names for cell in cells}
    names = known.pop() if len(known) == 1 else ()
    grids = [grid for section in sections.known().values() for grid in render.grids(section, tables, cells)]
    hues = [(place, hue) for place, hue in enumerate((*HUES.values(), OTHER_HUE, NEGATIVE_HUE))]
    return template("report.html.j2").render(
        title=title,
        version=__version__,
        facts=_facts(cells, facts),
        grids=[_with_class_names(_of_classes(grid, cells), names) for grid in grids if grid.rows],
        conventions=_conventions(tables),
        screens=()
        if cells[0].of_sequences
        else tuple(first_screen(cell, f"chart{place}") for place, cell in enumerate(cells)),
        most_charts=MOST_CHARTS,
        rule=RULE,
        lead=_lead(parts[0]) if len(cells) == 1 else _across(tables, len(cells)),
        sections=parts,
        chapters=CHAPTERS,
        contents=_contents(parts),
        scripts=[_script(code) for code in scripts_of(tried)],
        themes={theme: [(place, shades(hue, theme)) for place, hue in hues] for theme in PAPER},
        paper=PAPER,
        scale=range(SHADES),
        negative=len(HUES) + 1,
    )


def _contents(parts: Sequence[CellPart]) -> list[tuple[str, str]]:
    """(id, name) of each chapter that the page has."""
    held = [(chapter, name) for chapter, name in CHAPTERS.items() if any(part.chapters[chapter] for part in parts)]
    texts = "Texts" if parts[0].pairs is None else "Sentences"
    return [("answer", "Verdict"), ("texts", texts), *held, ("tables", "Tables"), ("made", "How it was made")]


def _script(code: str) -> Script:
    return Script(Markup(code), base64.b64encode(hashlib.sha256(code.encode()).digest()).decode())


def _lead(part: CellPart) -> list[str]:
    """All sentences on one cell."""
    return [sentence for chapter in part.chapters.values() for section in chapter for sentence in section.sentences]


def _conventions(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """How the sentences of those sections are put that have rows."""
    spoken = [section for section in sections.known().values() if any(table.name in tables for table in section.tables)]
    return [section.conventions for section in spoken if section.conventions]


def _across(tables: Mapping[str, pd.DataFrame], count: int) -> list[str]:
    """What the numbers of several cells say side by side."""
    spoken = [section for section in sections.known().values() if section.across]
    said = [sentence for section in spoken for sentence in section.across(tables.get(section.tables[0].name))]
    return [f"{count} cells are compared; the sentences on each stand above its figures.", *said]


def _facts(cells: Sequence[Cell], facts: Mapping[str, object]) -> list[tuple[str, str]]:
    """Identity values that all cells share, then the given facts, one line each."""
    shared = [
        (FINGERPRINTS.get(name, name), str(cells[0].heading[name]))
        for name in CELL
        if len({str(cell.heading[name]) for cell in cells}) == 1
    ]
    return [*shared, ("cells", str(len(cells))), *_flat(facts)]


def _flat(facts: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    lines = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines.extend(_flat(value, f"{prefix}{name}."))
        elif isinstance(value, list | tuple):
            lines.append((f"{prefix}{name}", json.dumps(value, ensure_ascii=False, default=str)))
        else:
            lines.append((f"{prefix}{name}", str(value)))
    return lines


def _of_classes(grid: Grid, cells: Sequence[Cell]) -> Grid:
    """The grid with the rows of those predicted classes that `largest_classes` keeps, the others named in its note."""
    if CLASS_COLUMN not in grid.columns:
        return grid
    place = grid.columns.index(CLASS_COLUMN)
    counts = Counter(str(number) for cell in cells for number in cell.predicted)
    kept, said = largest_classes(counts, "predicted most often")
    rows = tuple(row for row in grid.rows if row[place] in kept or not row[place].isdecimal())
    return dataclasses.replace(grid, rows=rows, note=grid.note + said)


def _with_class_names(grid: Grid, names: tuple[str, ...]) -> Grid:
    """The grid with each class's name beside its number, where the cells of the page share them."""
    if CLASS_COLUMN in grid.columns:
        place = grid.columns.index(CLASS_COLUMN)
        rows = tuple((*row[:place], name_class(row[place], names), *row[place + 1 :]) for row in grid.rows)
        grid = dataclasses.replace(grid, rows=rows)
    return grid


def _cell_part(cell: Cell, pictures: Sequence[Picture], n_examples: int, tried: Instrument | None) -> CellPart:
    chapters: dict[str, list[SectionPart]] = {chapter: [] for chapter in CHAPTERS}
    for section in sections.of_cell(cell):
        part = SectionPart(
            sentences=tuple(render.sentences(section, cell)),
            pictures=tuple(picture for picture in pictures if picture.section == section.name),
            html=Markup(section.part(cell, n_examples) if section.part else ""),
        )
        if part.sentences or part.pictures or part.html:
            chapters[section.chapter].append(part)
    shared = {"title": describe(cell.heading), "chapters": {chapter: tuple(held) for chapter, held in chapters.items()}}
    shared["instrument"] = tried
    return CellPart(**shared, **(_pairs_of if cell.of_sequences else _texts_of)(cell, n_examples))


def _pairs_of(cell: Cell, n_examples: int) -> dict[str, object]:
    """Of a part those fields that say which pairs of sentences are shown, and how."""
    reading = shown_reading(cell)
    groups = [] if reading is None else choose_pairs(cell, n_examples)
    note = "Nothing was measured that could be shown." if reading is None else f"Shown is {reading_label(reading)}."
    if len(groups) > 1:
        note += " The extremes, not a sample: pairs of lowest and of highest alignment error rate among those that this "
        note += "reading was not chosen on."
    shown = [(head, tuple(pair(cell, row, reading) for row in rows)) for head, rows in groups]
    return {
        **dict.fromkeys(("groups", "measures", "legend", "class_names"), ()),
        **{"has_rationale": False, "of_sentences": False},
        **{"note": note, "pairs": tuple(shown), "has_gold": has_gold(cell)},
    }


def _texts_of(cell: Cell, n_examples: int) -> dict[str, object]:
    """Of a part those fields that say which texts are shown, and how."""
    best, worst, shortest = choose(cell, n_examples)
    measures = shown_measures(cell)
    if len(measures) == 1:
        groups, note = [("First texts", best)], "Shown are the first texts by instance id."
    else:
        # choose() orders by leave-one-out before gradient, and main_measures ends in the same measure
        by = measure_label(main_measures(cell)[-1])
        groups = [(f"Highest agreement with {by}", best), (f"Lowest agreement with {by}", worst)]
        note = f"The extremes, not a sample: texts of highest and lowest τ between attention and {by}"
        unit = "sentences" if cell.words else "tokens"
        note += f", of at least {shortest} {unit}." if shortest == SHORTEST_EXAMPLE else "."
    if cell.words:
        note += f" Of long texts the first sentences are shown, up to {MOST_TOKENS} words."
    elif (cell.lengths > MOST_TOKENS).any():
        note += f" Of longer texts the first {MOST_TOKENS} tokens are shown."
    hues = [*HUES]
    return {
        "groups": tuple((head, tuple(example(cell, row) for row in rows)) for head, rows in groups if rows),
        "measures": tuple((hues.index(name) if name in hues else len(hues), measure_label(name)) for name in measures),
        "legend": _legend(cell, measures),
        "class_names": tuple(name_class(str(number), cell.class_names) for number in range(cell.probs.shape[1])),
        "has_rationale": "rationale" in cell.table.column_names,
        "of_sentences": cell.words is not None,
        "note": note,
    }


def _legend(cell: Cell, measures: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """(hue, what has it): of each main measure, of the others together, and of what speaks against the class."""
    main = main_measures(cell)
    hues = [*HUES]
    legend = [(hues.index(name), measure_label(name)) for name in main if name in hues]
    if others := [measure_label(name) for name in measures if name not in hues]:
        legend.append((len(hues), others[0] if len(others) == 1 else "other measures"))
    if any(np.nanmin(row, initial=0.0) < 0 for name in measures for row in cell.scores(name)):
        legend.append((len(hues) + 1, "below 0: against the class"))
    return tuple(legend)
