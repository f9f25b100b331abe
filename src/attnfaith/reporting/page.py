"""The report of a record: a folder with tables, figures and one HTML page that needs nothing beside it.

Every sentence about results is put together from the numbers of the tables; none is typed by hand. Numbers of texts are
those of the record, to the bit, so that what a reader tries on the page is what the library computes.
Shapes: N texts or pairs of sentences, T tokens of a text or source words, C classes, G target words.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import numpy as np
import pandas as pd
import pyarrow as pa
from markupsafe import Markup

from attnfaith import record as records
from attnfaith.metrics.attention_faithfulness.alignment_error_rate import POSSIBLE, SURE, alignment_scores
from attnfaith.metrics.extraction import extract_links
from attnfaith.reporting import heatmap, sections
from attnfaith.reporting.cells import (
    CELL,
    FINGERPRINTS,
    Cell,
    ReportError,
    describe,
    differing_keys,
    main_measures,
    per_cell,
    readable,
    split_cells,
)
from attnfaith.reporting.charts import Chart, draw, figure_files, svg
from attnfaith.reporting.facts import record_facts
from attnfaith.reporting.html import packed, script, template
from attnfaith.reporting.sections.agreement import measures_chart, side_by_side
from attnfaith.reporting.sections.alignment import ANY, AXES, Reading, at, columns, readings, weights
from attnfaith.reporting.tables import table_files
from attnfaith.reporting.verdicts import UNMEASURED, verdict
from attnfaith.support.errors import FileError
from attnfaith.support.escaping import file_name
from attnfaith.support.files import write_atomically
from attnfaith.verdict import CANNOT_TELL, RULE


CHAPTERS = {"measures": "Measures", "interventions": "Are these weights the only reason?"}
"""Chapters that hold sentences and charts of sections, by the name in `Section.chapter`."""
MOST_CHARTS = 6  # of models, one below the other on the first screen
MOST_BYTES = 6_000_000
"""Of the numbers of all texts of a page, before they are packed. Above it the texts are a sample."""
SAMPLE_SEED = 0
AFFINE = ("token_logits", "token_logits_bias")
PAGE, MARK = "index.html", '<meta name="generator" content="attnfaith report'
KINDS = {"tables": {".csv", ".md", ".parquet", ".tmp"}, "figures": {".png", ".svg", ".pdf", ".tmp"}}
"""Endings of a report's files by folder; .tmp of those whose writing was killed."""
MOST_WORDS = 60  # of either sentence on the page; more cannot be looked over
LINKS = {SURE: "sure", POSSIBLE: "possible", 0: ""}
BEGUN = ".begun"
"""The mark of a report that is not finished: it was stopped, or the disk was full."""


def write_report(
    record: pa.Table,
    out_dir: str | os.PathLike,
    *,
    title: str | None = None,
    n_examples: int = 5,
) -> Path:
    """Write a record's report into `out_dir` and return the path of its index.html.

    The folder holds index.html (one page that needs nothing beside it), tables/*.csv, *.md and *.parquet, and
    figures/*.png, *.svg and *.pdf. The same record gives the same bytes. n_examples: pairs of sentences shown of lowest and
    of highest error in each cell.

    Nothing is written before all is made, and each file whole or not at all, the page last; then what an older report had
    more goes. Other files in the folder stay.

    Raises RecordError where the record breaks a rule or has no rows, ReportError for n_examples below 1, FileError where
    `out_dir` is a file or a folder with anything in it but a report, PlotsError where matplotlib is missing.
    """
    if n_examples < 1:
        raise ReportError(f"examples={n_examples}: give the number of pairs of sentences to show, at least 1")
    records.validate(record)
    if record.num_rows == 0:
        raise records.RecordError("a record without rows has nothing to report: measure at least one instance")
    target = Path(out_dir).resolve()
    if target.exists() and not target.is_dir():
        raise FileError(f"{target} is a file; a report is a folder: give another path")
    index, begun = target / PAGE, target / BEGUN
    is_report = begun.exists() or (index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace"))
    if target.exists() and any(path.name[0] != "." for path in target.iterdir()) and not is_report:
        raise FileError(f"{target} is not empty and not a report: give another path, or empty it first")
    cells = split_cells(record)
    tables = sections.frames(cells)
    contents = {path: file for name, table in tables.items() for path, file in table_files(table, f"tables/{name}").items()}
    for place, cell in enumerate(cells):
        for chart in filter(None, (section.chart_of(cell) for section in sections.of_cell(cell))):
            stem = figure_stem(cell, place, differing_keys(cells), chart)
            contents |= figure_files(draw(chart, describe(cell.heading), len(cell)), stem)
    facts, title = record_facts(record), title or _title(cells)
    page = render_page(cells, tables, title=title, facts=facts, n_examples=n_examples, files=True)
    write_atomically(begun, "")
    for path, content in {**contents, PAGE: page}.items():
        write_atomically(target / path, content)
    begun.unlink()
    for path in (path for kind in KINDS for path in (target / kind).glob("*")):
        if path.suffix in KINDS[path.parent.name] and f"{path.parent.name}/{path.name}" not in contents:
            path.unlink()
    return index


def _title(cells: Sequence[Cell]) -> str:
    """The model's own name and its data set; what tells cells apart where the record names no model."""
    if len(cells) > 1:
        return f"{len(cells)} models"
    settings, heading = cells[0].settings, cells[0].heading
    name = settings.get("recipe", {}).get("name") or PurePath(settings.get("source", "")).name
    return f"{name} on {heading['dataset']} ({heading['split']})" if name else describe(heading)


def render_page(
    cells: Sequence[Cell],
    tables: Mapping[str, pd.DataFrame],
    *,
    title: str,
    facts: Mapping[str, object],
    n_examples: int = 5,
    files: bool = False,
) -> str:
    """Return the page's HTML.

    tables: those of `reporting.sections`, by file name. facts: how the record was made, by name. n_examples: pairs of
    sentences of lowest and of highest error. files: whether the files of tables and figures lie beside it. No code runs in
    it but that of its explorers.
    """
    pairs, keys = records.of_sequences(cells[0].table), differing_keys(cells)
    parts = []
    for place, cell in enumerate(cells):
        chapters: dict[str, list[dict]] = {chapter: [] for chapter in CHAPTERS}
        for section in sections.of_cell(cell):
            chart, sentences, drawing = section.chart_of(cell), section.sentences(cell), {}
            if chart:
                stem = figure_stem(cell, place, keys, chart) if files else ""
                drawing = {"svg": svg(chart, f"{chart.name}{place}"), "title": chart.title, "why": chart.why, "stem": stem}
            if sentences or drawing:
                chapters[section.chapter].append({"name": section.name, "sentences": sentences, "chart": drawing})
        texts = page_pairs(cell, n_examples) if pairs else explorer(cell, place, most_bytes=MOST_BYTES // len(cells))
        parts.append({"title": describe(cell.heading), "chapters": chapters, "texts": texts})
    if len(cells) == 1:
        lead = [line for chapter in parts[0]["chapters"].values() for part in chapter for line in part["sentences"]]
    else:
        lead = [f"{len(cells)} cells are compared; the sentences on each stand above its figures.", *side_by_side(cells)]
    chapters = {name: head for name, head in CHAPTERS.items() if any(part["chapters"][name] for part in parts)}
    contents = {"answer": "Verdict", "texts": "Sentences" if pairs else "Texts"}
    heading = [(FINGERPRINTS.get(name, name), str(cells[0].heading[name])) for name in CELL if name not in keys]
    grids = [grid for section in sections.registry().values() for grid in section.grids(tables, cells) if grid.rows]
    return template("report.html.j2").render(
        title=title,
        facts=[*heading, ("cells", len(cells)), *facts.items()],
        grids=grids,
        files=files,
        screens=[] if pairs else [first_screen(cell, f"chart{place}") for place, cell in enumerate(cells)],
        most_charts=MOST_CHARTS,
        rule=RULE,
        lead=lead,
        parts=parts,
        pairs=pairs,
        contents={**contents, **chapters, "tables": "Tables", "made": "How it was made"},
        chapters=chapters,
        script=None if pairs or not any(part["texts"] for part in parts) else script("parts", "what_if", "explorer"),
        **heatmap.SHADES,
    )


def figure_stem(cell: Cell, place: int, keys: Sequence[str], chart: Chart) -> str:
    """Where the files of a chart of the `place`-th cell lie, without ending, as seen from the page."""
    words = file_name("_".join(str(cell.heading[name]) for name in keys))
    return f"figures/{f'{place + 1:02d}_{words}_' if keys else ''}{chart.name}"


def first_screen(cell: Cell, key: str = "chart") -> dict[str, object]:
    """The first screen of one cell of texts. key: names its chart among those of the page.

    ratio: places of ρ on a scale of 0 to 100, by name; {} where it was not computed. command: what to do, as a command; ""
    where the record names no run, or it takes other texts or another model. chart: SVG; None without a measure. why_chart:
    a remark on it. text: the one that is shown; why: this one.
    """
    outcome, chart = verdict([cell]), measures_chart([cell])
    measures = ["integrated_gradients"] if "integrated_gradients" in cell.measures else main_measures(cell)[-1:]
    row, why = heatmap.middle_text(cell)
    ratio = outcome.ratio
    ends = {} if np.isnan(ratio.low) else {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    run = cell.settings.get("recipe", {}).get("output_dir")
    words = ["show", run, *(["--measures", *measures] if measures else [])] if outcome.outcome != CANNOT_TELL else []
    if outcome == UNMEASURED:
        words = ["measure", run, "--add", "integrated_gradients", "comprehensiveness"]
    return {
        "title": describe(cell.heading),
        "verdict": outcome,
        "command": shlex.join(["attnfaith", *words]) if run and words else "",
        "ratio": {name: 100 * min(max(place, 0.0), 1.0) for name, place in ends.items()},
        "chart": chart and svg(chart, key),
        "why_chart": chart.why if chart else "",
        "text": heatmap.example(cell, row, [*dict.fromkeys(["attention", *measures])], heatmap.LONGEST),
        "why": why,
    }


def explorer(cell: Cell, place: int, *, most_bytes: int = MOST_BYTES) -> Markup:
    """The texts of a cell, the `place`-th of its page, to search, sort and try other attentions on; empty for sentence
    pairs, and where no text has a token.

    Where the numbers of all texts are larger than most_bytes, as many texts as fit are drawn at random with a fixed seed,
    and the page states it. All text in it is escaped.
    """
    if records.of_sequences(cell.table) or not cell.lengths.any():
        return Markup()
    classes, affine = cell.probs.shape[1], cell.has(*AFFINE)
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(cell))
    sizes = np.cumsum(4 * cell.lengths[order] * (len(heatmap.heat_measures(cell)) + classes * affine) + 4 * classes)
    rows = np.sort(order[: max(1, int(np.searchsorted(sizes, most_bytes, side="right")))])
    unit, labels = "sentence" if cell.nested else "token", [heatmap.class_label(cell, number) for number in range(classes)]
    # the measures whose agreement with attention texts are sorted by; first the one that the page speaks of
    compared = [name for name in dict.fromkeys((*main_measures(cell)[-1:], *cell.measures)) if name != "attention"]
    data = {
        "ids": [heatmap.visible(cell.instance_ids[row]) for row in rows],
        "classes": labels,
        "measures": [[readable(name), heatmap.hue_of(name)] for name in heatmap.heat_measures(cell)],
        "main": len(main_measures(cell)),
        "negative": heatmap.NEGATIVE,
        "compared": list(map(readable, compared)),
        "unit": unit,
        "queries": None if cell.queries is None else [" ".join(map(heatmap.visible, cell.queries[row])) for row in rows],
        **_packed_numbers(cell, rows, compared),
    }
    return Markup(
        template("explorer.html.j2").render(
            id=f"texts{place}",
            data=data,
            shown=len(rows),
            total=len(cell),
            seed=SAMPLE_SEED,
            unit=unit,
            measures=list(enumerate(data["compared"])),
            classes=list(enumerate(labels)),
            has_labels=not np.isnan(cell.labels).all(),
            has_rationale=cell.has("rationale"),
            affine=affine,
            closed_form=affine and classes == 2,
            renormalises=cell.identity.removal_renormalises,
        )
    )


def _packed_numbers(cell: Cell, rows: Sequence[int], compared: Sequence[str]) -> dict[str, object]:
    """Numbers of these texts one after the other as one packed string, their places in it as `layout`, and the words."""

    def flat(values: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(values[row]) for row in rows]).astype(np.float32)

    texts = cell.table.column("tokens").take(rows).to_pylist()
    tokens = [token for text in texts for token in text]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    numbers = {
        "lengths": cell.lengths[rows].astype(np.uint32),
        "truncated": cell.table.column("truncated").to_numpy()[rows].astype(np.uint8),
        "labels": np.nan_to_num(cell.labels[rows], nan=-1).astype(np.int32),
        "probs": cell.probs[rows].astype(np.float32).ravel(),
        "backward": np.array([heatmap.direction_of(text) == "rtl" for text in texts], np.uint8),
        "tokens": np.array([vocabulary[token] for token in tokens], np.uint32),
    }
    numbers |= {f"scores{number}": flat(cell.scores(name)) for number, name in enumerate(heatmap.heat_measures(cell))}
    for number, name in enumerate(compared):
        numbers[f"tau{number}"] = cell.tau("attention", name)[rows].astype(np.float32)
    if cell.has("rationale"):
        numbers["gold"] = (flat(cell.rows("rationale")) > 0).astype(np.uint8)
    if cell.has(*AFFINE):
        numbers["values"], numbers["bias"] = (flat(cell.rows(name)) for name in AFFINE)
    # the first byte of each little-endian number, then the second: so they deflate better
    planes = [np.ascontiguousarray(values.reshape(-1, 1).view(np.uint8).T) for values in numbers.values()]
    return {
        "vocabulary": [heatmap.visible(token) for token in vocabulary],
        "layout": [[name, values.dtype.str.lstrip("<|"), values.size] for name, values in numbers.items()],
        "numbers": packed(*planes),
    }


@per_cell
def page_reading(cell: Cell) -> Reading | None:
    """How the pairs of a cell are shown: with gold links by the reading that is chosen of all; without, by the first measure
    that has layers and no heads, else the first that there is, in its last layer, first head and the row that predicts the
    word. None of a cell without any measure.
    """
    measures = columns(cell)
    if cell.has("gold_links") and ANY in readings(cell).chosen:
        return readings(cell).readings[readings(cell).chosen[ANY]]
    without_heads = [name for name, column in measures.items() if "L" in column.axes and "A" not in column.axes]
    for name in (without_heads or [*measures])[:1]:
        axes = [AXES[axis] for axis in measures[name].axes[:-2]]
        return Reading(name, **{axis: len(weights(cell, name)[0]) - 1 if axis == "layer" else 0 for axis in axes})
    return None


def page_pairs(cell: Cell, count: int) -> dict[str, object]:
    """The pairs that a page shows: groups [(heading, pairs)], a note on them, and whether gold links are known."""
    reading = page_reading(cell)
    groups = [] if reading is None else extreme_pairs(cell, count)
    note = "Nothing was measured that could be shown." if reading is None else f"Shown is {reading.label}."
    if len(groups) > 1:
        note += " The extremes, not a sample: pairs of lowest and of highest alignment error rate among those that this "
        note += "reading was not chosen on."
    pairs = [(heading, [pair(cell, row, reading) for row in rows]) for heading, rows in groups]
    return {"note": note, "groups": pairs, "has_gold": cell.has("gold_links")}


def extreme_pairs(cell: Cell, count: int) -> list[tuple[str, list[int]]]:
    """(heading, rows) of the pairs of lowest and of highest error by the shown reading, among those that it was not chosen
    on; without gold the first by instance id.
    """
    ids, rates = cell.instance_ids, errors(cell, page_reading(cell))
    if rates is None:
        return [("First pairs", sorted(range(len(cell)), key=lambda row: ids[row])[:count])]
    judged = np.flatnonzero(~np.isnan(rates) & ~readings(cell).chooses).tolist()
    best = sorted(judged, key=lambda row: (rates[row], ids[row]))[: min(count, (len(judged) + 1) // 2)]
    worst = sorted({*judged} - {*best}, key=lambda row: (-rates[row], ids[row]))[:count]
    return [(heading, rows) for heading, rows in (("Lowest error rate", best), ("Highest error rate", worst)) if rows]


def errors(cell: Cell, reading: Reading | None) -> np.ndarray | None:
    """The alignment error rate of each pair by a reading, [N]; None without gold."""
    if reading is None or not cell.has("gold_links"):
        return None
    return alignment_scores(readings(cell).counts[:, readings(cell).readings.index(reading)])[:, 0]


def pair(cell: Cell, row: int, reading: Reading) -> dict[str, object]:
    """A pair of sentences as a page shows it, of each at most MOST_WORDS words.

    lines: of each target word it, its probability, and for each source word (score, kind of gold link, words, whether it is
    read as a link). error: the alignment error rate, "" without gold. sizes: words of either.
    """
    values, rates = at(cell, reading, row), errors(cell, reading)
    source, target, probs, truncated = (
        cell.table.column(name)[row].as_py() for name in ("tokens", "target_tokens", "target_probs", "truncated")
    )
    scores = heatmap.scores_of(values.ravel(), readable(reading.measure))
    gold = cell.rows("gold_links")[row] if cell.has("gold_links") else np.zeros(values.shape, int)
    read = extract_links(values, (reading.rule,))[0]
    sources, targets = (list(map(heatmap.visible, words[:MOST_WORDS])) for words in (source, target))
    lines = []
    for g, word in enumerate(targets):
        line = []
        for t, other in enumerate(sources):
            score, link = scores[g * len(source) + t], LINKS[int(gold[g, t])]
            parts = [f"{word} – {other}", score.words, f"{link} link in gold" if link else ""]
            parts += ["read as a link" if read[g, t] else ""]
            line.append((score, link, "; ".join(filter(None, parts)), bool(read[g, t])))
        lines.append((word, probs[g], line))
    return {
        "instance_id": heatmap.visible(cell.instance_ids[row]),
        "source": sources,
        "lines": lines,
        "error": "" if rates is None else "undefined" if np.isnan(rates[row]) else f"{rates[row]:.2f}",
        "sizes": (len(source), len(target)),
        "truncated": bool(truncated),
        "directions": (heatmap.direction_of(source), heatmap.direction_of(target)),
    }
