"""The report as one HTML page that needs nothing beside it: styles, pictures and texts are inside.

Every sentence about results is put together from the numbers of the tables; none is typed by hand.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from markupsafe import Markup

from attnfaith import __version__
from attnfaith.reporting import render, sections
from attnfaith.reporting.blocks import CLASS_COLUMN, Grid, Picture, largest_classes, template
from attnfaith.reporting.cells import CELL, Cell, describe, main_measures, measure_label, name_class
from attnfaith.reporting.chart import agreement_chart, svg
from attnfaith.reporting.heatmap import (
    HUES,
    MOST_TOKENS,
    NEGATIVE,
    SHADES,
    SHORTEST_EXAMPLE,
    choose,
    example,
    hue_of,
    palette,
    shown_measures,
)
from attnfaith.reporting.one_file import script_of
from attnfaith.reporting.page import alternatives
from attnfaith.reporting.page.first_screen import first_screen
from attnfaith.reporting.page.instrument import MOST_BYTES, instrument, scripts_of
from attnfaith.reporting.pairs import choose_pairs, pair, reading_label, shown_reading
from attnfaith.reporting.readings import has_gold
from attnfaith.reporting.sections.agreement import side_by_side
from attnfaith.verdict import RULE


CHAPTERS = {"measures": "Measures", "interventions": "Interventions"}
"""Those that hold what sections say of a cell, by the name that a section gives."""
MOST_CHARTS = 6  # of models, one below the other on the first screen
FINGERPRINTS = {"texts": "fingerprint of the texts", "training_texts": "fingerprint of the training texts"}


@dataclass(frozen=True)
class Part:
    """What one section says of one cell: sentences, figures, charts in the page's own font, and HTML that is safe."""

    sentences: Sequence[str]
    pictures: Sequence[Picture]
    charts: Sequence[tuple[str, Markup, str]]
    html: Markup


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
    pairs = cells[0].of_sequences
    tried = [instrument(cell, place, most_bytes=MOST_BYTES // len(cells)) for place, cell in enumerate(cells)]
    parts = []
    for place, (cell, figures, one) in enumerate(zip(cells, pictures, tried, strict=True)):
        held = {"title": describe(cell.heading), "chapters": _chapters(cell, figures, n_examples, place), "instrument": one}
        parts.append(held | (_pairs_of if pairs else _texts_of)(cell, n_examples))
    chapters = [(name, head) for name, head in CHAPTERS.items() if any(part["chapters"][name] for part in parts)]
    lead = [line for chapter in parts[0]["chapters"].values() for part in chapter for line in part.sentences]
    names = {cell.class_names for cell in cells}
    shared = names.pop() if len(names) == 1 else ()
    grids = [grid for section in sections.registry().values() for grid in render.grids(section, tables, cells) if grid.rows]
    return template("report.html.j2").render(
        title=title,
        question="Does attention align words?" if pairs else "Does attention explain?",
        version=__version__,
        facts=[*_shared(cells), ("cells", str(len(cells))), *_flat(facts)],
        grids=[_of_classes(grid, cells, shared) for grid in grids],
        screens=[] if pairs else [first_screen(cell, f"chart{place}") for place, cell in enumerate(cells)],
        most_charts=MOST_CHARTS,
        rule=RULE,
        lead=lead if len(cells) == 1 else _side_by_side(cells),
        parts=parts,
        pairs=pairs,
        chapters=chapters,
        contents=[
            ("answer", "Verdict"),
            ("texts", "Sentences" if pairs else "Texts"),
            *chapters,
            ("tables", "Tables"),
            ("made", "How it was made"),
        ],
        scripts=[script_of(code) for code in scripts_of(tried)],
        **palette(),
        scale=range(SHADES),
        negative=NEGATIVE,
    )


def _chapters(cell: Cell, pictures: Sequence[Picture], n_examples: int, place: int) -> dict[str, list[Part]]:
    """{chapter: what its sections say of a cell}."""
    chapters: dict[str, list[Part]] = {chapter: [] for chapter in CHAPTERS}
    for section in sections.of_cell(cell):
        charts = list(_charts(cell, place)) if section.name == "agreement" else []
        part = Part(
            render.sentences(section, cell),
            [picture for picture in pictures if picture.section == section.name],
            charts,
            Markup(alternatives.of_section(section.name, cell, n_examples)),
        )
        if part.sentences or part.pictures or charts or part.html:
            chapters[section.chapter].append(part)
    return chapters


def _charts(cell: Cell, place: int) -> Iterator[tuple[str, Markup, str]]:
    """(what folds it, SVG, a remark) of the agreement with measures of inputs, and of encoder states."""
    for hidden, fold in ((False, ""), (True, "Measures of encoder states")):
        chart = agreement_chart(cell, hidden)
        if chart.bars:
            yield fold, svg(chart, f"agreement{place}{'-states' if hidden else ''}"), chart.why


def _side_by_side(cells: Sequence[Cell]) -> list[str]:
    """Sentences on several cells."""
    return [f"{len(cells)} cells are compared; the sentences on each stand above its figures.", *side_by_side(cells)]


def _shared(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """What identifies all cells alike."""
    values = {name: {str(cell.heading[name]) for cell in cells} for name in CELL}
    return [(FINGERPRINTS.get(name, name), found.pop()) for name, found in values.items() if len(found) == 1]


def _flat(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            listed = isinstance(value, list | tuple)
            yield f"{prefix}{name}", json.dumps(value, ensure_ascii=False, default=str) if listed else str(value)


def _of_classes(grid: Grid, cells: Sequence[Cell], names: tuple[str, ...]) -> Grid:
    """The grid with the rows of those predicted classes that `largest_classes` keeps, and the names of classes where the
    cells of the page share them.
    """
    if CLASS_COLUMN not in grid.columns:
        return grid
    place = grid.columns.index(CLASS_COLUMN)
    counts = Counter(str(number) for cell in cells for number in cell.predicted)
    kept, said = largest_classes(counts, "predicted most often")
    rows = [row for row in grid.rows if row[place] in kept or not row[place].isdecimal()]
    rows = tuple((*row[:place], name_class(row[place], names), *row[place + 1 :]) for row in rows)
    return replace(grid, rows=rows, note=grid.note + said)


def _pairs_of(cell: Cell, n_examples: int) -> dict[str, object]:
    """Which pairs of sentences are shown, and how."""
    reading = shown_reading(cell)
    groups = [] if reading is None else choose_pairs(cell, n_examples)
    note = "Nothing was measured that could be shown." if reading is None else f"Shown is {reading_label(reading)}."
    if len(groups) > 1:
        note += " The extremes, not a sample: pairs of lowest and of highest alignment error rate among those that this "
        note += "reading was not chosen on."
    shown = [(head, [pair(cell, row, reading) for row in rows]) for head, rows in groups]
    return {"note": note, "groups": shown, "has_gold": has_gold(cell)}


def _texts_of(cell: Cell, n_examples: int) -> dict[str, object]:
    """Which texts are shown, and how."""
    best, worst, shortest = choose(cell, n_examples)
    measures = shown_measures(cell)
    groups, note = [("First texts", best)], "Shown are the first texts by instance id."
    if len(measures) > 1:
        by = measure_label(main_measures(cell)[-1])  # `choose` orders by the same measure
        groups = [(f"Highest agreement with {by}", best), (f"Lowest agreement with {by}", worst)]
        note = f"The extremes, not a sample: texts of highest and lowest τ between attention and {by}"
        unit = "sentences" if cell.words else "tokens"
        note += f", of at least {shortest} {unit}." if shortest == SHORTEST_EXAMPLE else "."
    if cell.words:
        note += f" Of long texts the first sentences are shown, up to {MOST_TOKENS} words."
    elif (cell.lengths > MOST_TOKENS).any():
        note += f" Of longer texts the first {MOST_TOKENS} tokens are shown."
    return {
        "groups": [(head, [example(cell, row) for row in rows]) for head, rows in groups if rows],
        "legend": _legend(cell, measures),
        "class_names": [name_class(str(number), cell.class_names) for number in range(cell.probs.shape[1])],
        "has_rationale": "rationale" in cell.table.column_names,
        "of_sentences": cell.words is not None,
        "note": note,
    }


def _legend(cell: Cell, measures: Sequence[str]) -> list[tuple[int, str]]:
    """(hue, what has it): of each main measure, of the others together, and of what speaks against the class."""
    legend = [(hue_of(name), measure_label(name)) for name in main_measures(cell) if name in HUES]
    if others := [measure_label(name) for name in measures if name not in HUES]:
        legend.append((len(HUES), others[0] if len(others) == 1 else "other measures"))
    if any(np.nanmin(row, initial=0.0) < 0 for name in measures for row in cell.scores(name)):
        legend.append((NEGATIVE, "below 0: against the class"))
    return legend
