"""The report as one HTML page that needs nothing beside it: styles, pictures and texts are inside.

Every sentence about results is put together from the numbers of the tables; none is typed by hand.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from attnfaith.reporting import render, sections
from attnfaith.reporting.cells import CELL, FINGERPRINTS, Cell, describe, name_class
from attnfaith.reporting.chart import agreement_chart, svg
from attnfaith.reporting.heatmap import SHADES
from attnfaith.reporting.html import CLASS_COLUMN, Grid, Picture, largest_classes, script, template
from attnfaith.reporting.page.explorer import MOST_BYTES, explorer
from attnfaith.reporting.page.first_screen import first_screen
from attnfaith.reporting.pairs import page_pairs
from attnfaith.reporting.sections.agreement import side_by_side
from attnfaith.verdict import RULE


CHAPTERS = {"measures": "Measures", "interventions": "Are these weights the only reason?"}
"""Chapters that hold sentences and figures of sections, by the name in `Section.chapter`."""
MOST_CHARTS = 6  # of models, one below the other on the first screen


def render_page(
    cells: Sequence[Cell],
    tables: Mapping[str, pd.DataFrame],
    pictures: Sequence[Sequence[Picture]],
    *,
    title: str,
    facts: Mapping[str, object],
    n_examples: int = 5,
) -> str:
    """Return the page's HTML.

    tables: those of `reporting.sections`, by file name. pictures: those of each cell. facts: how the record was made, by
    name; nested ones are written out with dots. n_examples: pairs of sentences of lowest and of highest error. No code runs
    in it but that of its explorers.
    """
    pairs = cells[0].of_sequences
    parts = [
        {
            "title": describe(cell.heading),
            "chapters": _chapters(cell, figures, place),
            "texts": page_pairs(cell, n_examples) if pairs else explorer(cell, place, most_bytes=MOST_BYTES // len(cells)),
        }
        for place, (cell, figures) in enumerate(zip(cells, pictures, strict=True))
    ]
    chapters = {name: head for name, head in CHAPTERS.items() if any(part["chapters"][name] for part in parts)}
    names = {cell.class_names for cell in cells}
    shared = names.pop() if len(names) == 1 else ()
    grids = [grid for section in sections.registry().values() for grid in render.grids(section, tables, cells) if grid.rows]
    if len(cells) == 1:
        lead = [line for chapter in parts[0]["chapters"].values() for part in chapter for line in part["sentences"]]
    else:
        lead = [f"{len(cells)} cells are compared; the sentences on each stand above its figures.", *side_by_side(cells)]
    headings = {name: {str(cell.heading[name]) for cell in cells} for name in CELL}
    heading = [(FINGERPRINTS.get(name, name), *values) for name, values in headings.items() if len(values) == 1]
    contents = {"answer": "Verdict", "texts": "Sentences" if pairs else "Texts"}
    return template("report.html.j2").render(
        title=title,
        facts=[*heading, ("cells", str(len(cells))), *_flat(facts)],
        grids=[_with_classes(grid, cells, shared) for grid in grids],
        screens=[] if pairs else [first_screen(cell, f"chart{place}") for place, cell in enumerate(cells)],
        most_charts=MOST_CHARTS,
        rule=RULE,
        lead=lead,
        parts=parts,
        pairs=pairs,
        contents={**contents, **chapters, "tables": "Tables", "made": "How it was made"},
        chapters=chapters,
        script=None if pairs or not any(part["texts"] for part in parts) else script("parts", "what_if", "explorer"),
        **SHADES,
    )


def _chapters(cell: Cell, pictures: Sequence[Picture], place: int) -> dict[str, list[dict]]:
    """{chapter: what its sections report about a cell}; chart: None, or (SVG, remark)."""
    chapters: dict[str, list[dict]] = {chapter: [] for chapter in CHAPTERS}
    for section in sections.of_cell(cell):
        chart = agreement_chart(cell) if section.name == "agreement" else None
        drawing = (svg(chart, f"agreement{place}"), chart.why) if chart and chart.bars else None
        figures = [picture for picture in pictures if picture.section == section.name]
        sentences = render.sentences(section, cell)
        if sentences or figures or drawing:
            chapters[section.chapter].append({"sentences": sentences, "pictures": figures, "chart": drawing})
    return chapters


def _flat(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            listed = isinstance(value, list | tuple)
            yield f"{prefix}{name}", json.dumps(value, ensure_ascii=False, default=str) if listed else str(value)


def _with_classes(grid: Grid, cells: Sequence[Cell], names: tuple[str, ...]) -> Grid:
    """The grid with the rows of those predicted classes that `largest_classes` keeps, and the names of classes where the
    cells of the page share them.
    """
    if CLASS_COLUMN not in grid.columns:
        return grid
    place = grid.columns.index(CLASS_COLUMN)
    counts = Counter(str(number) for cell in cells for number in cell.predicted)
    largest, note = largest_classes(counts, "predicted most often")
    rows = [row for row in grid.rows if row[place] in largest or not row[place].isdecimal()]
    rows = tuple((*row[:place], name_class(row[place], names), *row[place + 1 :]) for row in rows)
    return replace(grid, rows=rows, note=grid.note + note)
