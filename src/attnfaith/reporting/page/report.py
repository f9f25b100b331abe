"""The whole report in one folder: tables, figures and the page."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import pyarrow as pa

from attnfaith import record as records
from attnfaith.errors import counted
from attnfaith.escaping import file_name
from attnfaith.files import folder_lock, real_path, write_atomically
from attnfaith.reporting import sections
from attnfaith.reporting.blocks import picture
from attnfaith.reporting.cells import CELL, Cell, describe, split_cells
from attnfaith.reporting.errors import FolderError, ReportError
from attnfaith.reporting.own_data import in_words
from attnfaith.reporting.page.page import render_page
from attnfaith.reporting.page.pair_facts import facts_of_pairs
from attnfaith.reporting.sections import figures
from attnfaith.reporting.sections.performance import selected_by
from attnfaith.reporting.style import require_matplotlib, save_figure
from attnfaith.reporting.tables import save_table


MARK = '<meta name="generator" content="attnfaith report'
_KINDS = {"tables": {".csv", ".md", ".parquet"}, "figures": {".png", ".svg", ".pdf"}}


def write_report(
    record: pa.Table,
    out_dir: str | os.PathLike,
    *,
    title: str | None = None,
    facts: Mapping[str, object] | None = None,
    n_examples: int = 5,
) -> Path:
    """Write a record's report into `out_dir` and return the path of its index.html.

    The folder holds index.html (one page that needs nothing beside it), tables/*.csv, *.md and *.parquet, and
    figures/*.png, *.svg and *.pdf. The same record gives the same bytes. facts: what the page says
    of the run, by name; without it `run_facts`, or the settings stored in a record of several runs. n_examples: texts shown
    of highest and of lowest agreement per cell.

    All is made in a folder beside `out_dir` and put in its place when complete: an error leaves the old report whole. One
    process makes it at a time; what a killed one left goes with the next.

    Raises RecordError where the record breaks a rule or has no rows, ReportError for n_examples below 1 and for a column
    after which no file can be named, FolderError where `out_dir` is a file or a folder with anything in it but a report,
    FileError where another process makes it, PlotsError where matplotlib is missing.
    """
    if n_examples < 1:
        raise ReportError(f"n_examples is {n_examples}; a report shows at least 1 text")
    require_matplotlib()
    records.validate(record)
    if record.num_rows == 0:
        raise records.RecordError("a record without rows has nothing to report: measure at least one instance")
    target = real_path(out_dir)
    _refuse_foreign(target)
    cells = split_cells(record)
    if facts is None:
        facts = run_facts(record) or _stored_facts(record)
    place = target.with_name(f".{target.name}.tmp")
    with folder_lock(place, "a report"):
        try:
            for left in ("new", "old"):
                shutil.rmtree(place / left, ignore_errors=True)
            (place / "new").mkdir()
            _fill(place / "new", cells, title=title, facts=facts, n_examples=n_examples)
            _put_in_place(place / "new", target, place / "old")
        finally:
            shutil.rmtree(place, ignore_errors=True)  # its lock is held until the end: nobody takes what is going
    return target / "index.html"


def _subject(cell: Cell) -> str:
    """The model's own name and its data set; what tells cells apart where the record names no model."""
    settings = cell.settings
    name = settings.get("recipe", {}).get("name") or PurePath(settings.get("source", "")).name
    return f"{name} on {cell.heading['dataset']} ({cell.heading['split']})" if name else describe(cell.heading)


def _fill(folder: Path, cells: Sequence[Cell], *, title: str | None, facts: Mapping[str, object], n_examples: int) -> None:
    tables = sections.frames(cells)
    for name, table in tables.items():
        save_table(table, folder / "tables" / name)
    pictures = []
    for cell, prefix in zip(cells, _prefixes(cells), strict=True):
        of_cell = []
        for section, drawing in figures(cell):
            stem = f"figures/{prefix}{drawing.name}"
            png, *_ = save_figure(drawing.draw(cell), folder / stem)
            of_cell.append(picture(png.read_bytes(), *drawing.words(cell), stem, section))
        pictures.append(of_cell)
    if title is None:
        title = _subject(cells[0]) if len(cells) == 1 else f"{len(cells)} models"
    page = render_page(cells, tables, pictures, title=title, facts=facts, n_examples=n_examples)
    write_atomically(folder / "index.html", page.encode())


def run_facts(record: pa.Table, note: str | None = None) -> dict[str, str]:
    """What a page says of the one run that a record comes from: enough to tell what was done. {} where it is not one run.

    note: what the run is, in place of its recipe's. All else is in the settings stored in the record.

    Raises RecordError where these lack what every run has.
    """
    cells = records.settings(record)
    if len(cells) != 1 or not {"recipe", "run"}.issubset(cells[0]):
        return {}
    try:
        return _facts_of_run(record, cells, note)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise records.RecordError(
            f"the record's settings are not those of a run ({type(error).__name__}: {str(error)[:80]}): measure the model "
            "anew"
        ) from error


def facts_of(record: pa.Table) -> dict[str, object] | None:
    """What a page says of a record that no run made: where model and texts come from. None where a run made it, or several
    did, and `write_report` says it by itself.
    """
    (made, *more) = records.settings(record) or [{}]
    if more or "recipe" in made or "source" not in made:
        return None
    pairs = records.of_sequences(record)
    return {
        "what it is": f"{'pairs of sentences' if pairs else 'texts'} measured with a given model",
        "model is from": made["source"],
        **({} if pairs else {"classes": _classes(made["label_names"]) or "without names"}),
        "measured by": ", ".join(made["producers"]) or "nothing beside its predictions",
        "attnfaith": made["version"],
        "weights (SHA-256)": made["model"][:16],
    }


def _facts_of_run(record: pa.Table, cells: list[dict], note: str | None) -> dict[str, str]:
    made, run = cells[0]["recipe"], cells[0]["run"]
    training, sizes = made["training"], run["sizes"]
    if records.of_sequences(record):
        return facts_of_pairs(cells[0], note, _training_facts(training, run))
    dropped = sum(count for part in run["dataset"]["dropped"].values() for count in part.values())
    return {
        "what it is": note or made["note"] or made["name"],
        **({"trained against": run["base"]["folder"]} if "base" in run else {}),
        **({"fine-tuned from": _fine_tuned_from(run)} if "pretrained" in run else {}),
        "texts": ", ".join(f"{split} {count:,}" for split, count in sizes.items()) + f"; left out {dropped:,}",
        **in_words(run["dataset"]),
        "classes": _classes(cells[0]["label_names"]),
        "attention is over": _unit(record, cells[0]),
        "vocabulary": f"{run['vocabulary']:,} entries",
        **_training_facts(training, run, cells[0]["label_names"]),
        "measured by": ", ".join(cells[0]["producers"]),
        "versions": ", ".join(f"{name} {version}" for name, version in run["versions"].items()),
        "weights (SHA-256)": cells[0]["model"][:16],
    }


def _fine_tuned_from(run: Mapping) -> str:
    """The pretrained model of a run, its revision and the digest of its weights, in words."""
    made = run["pretrained"]
    return f"{made['name']} (revision {made['revision']}, weights {made['digest']})"


def _unit(record: pa.Table, settings: Mapping) -> str:
    """What the tokens of a record are."""
    if "words" in settings:
        rules = settings["words"]["rules"].items()
        made = "; ".join(f"{name.removeprefix('importance_')} by {rule}" for name, rule in rules)
        left_out = ", ".join(name.removeprefix("importance_") for name in settings["words"]["left_out"]) or "nothing"
        return f"words, each made of its subwords: {made}. Left out, for it does not follow from subwords: {left_out}"
    if "words" in record.column_names:
        return "sentences, which are the tokens below"
    if "word_of_token" in record.column_names:
        return "subwords; ## stands before one that goes on with a word, ##⋯ before another part of the character before it"
    return "tokens"


def _classes(names: Sequence[str]) -> str:
    """The classes with their numbers; of very many the first and the last."""
    shown = [f"{number} {name}" for number, name in enumerate(names)]
    return ", ".join(shown) if len(shown) <= 20 else f"{len(shown)}: {', '.join(shown[:10])}, …, {shown[-1]}"


def _training_facts(training: Mapping, run: Mapping, names: Sequence[str] = ()) -> dict[str, str]:
    if "best" not in run:
        return {"training": "none: the model as it was drawn"}
    rate = training.get("attention_learning_rate_factor", 1)
    faster = "" if rate == 1 else f" (of the alignment x {rate:g})"
    share = training.get("random_erasure", 0)
    erased = f", up to {share:.0%} of a text's words erased at each step" if share else ""
    return {
        "training": f"{counted(run['epochs'], 'epoch')} of batches of {training['per_device_train_batch_size']}, learning "
        f"rate {training['learning_rate']:g}{faster}, weight decay {training['weight_decay']:g}, "
        f"loss {training['loss_reduction']}, {run['training_seconds']:g} s, processes {run['processes']}{erased}",
        "selected on validation": f"{selected_by(run, names)} {run['best']['value']:.4f}",
    }


def _stored_facts(record: pa.Table) -> dict[str, object]:
    """The settings that all cells share; the names of the others."""
    stored = records.settings(record)
    names = list(dict.fromkeys(name for settings in stored for name in settings))
    shared = {n: stored[0][n] for n in names if all(n in one and one[n] == stored[0][n] for one in stored)}
    differing = ", ".join(name for name in names if name not in shared)
    return shared | ({"settings that differ between cells": differing} if differing else {})


def _prefixes(cells: Sequence[Cell]) -> Iterator[str]:
    """Start of each cell's figure names: nothing for one cell, else a number and what tells the cells apart."""
    if len(cells) == 1:
        yield ""
        return
    differing = [name for name in CELL if len({str(cell.heading[name]) for cell in cells}) > 1]
    for number, cell in enumerate(cells, start=1):
        words = "_".join(f"{cell.heading[name]}" for name in differing)
        yield f"{number:02d}_{file_name(words)}_"


def _refuse_foreign(target: Path) -> None:
    """Raises FolderError unless `target` is absent, an empty folder, or a report and nothing else."""
    if not target.exists():
        return
    if not target.is_dir():
        raise FolderError(f"{target} is a file; a report is a folder: give another path")
    entries = sorted(path.relative_to(target) for path in target.rglob("*"))
    if not entries:
        return
    index = target / "index.html"
    if not index.is_file() or MARK not in index.read_text(encoding="utf-8", errors="replace"):
        raise FolderError(f"{target} is not empty and not a report: give another path, or empty it first")
    for entry in entries:
        inside = len(entry.parts) == 2 and entry.suffix in _KINDS.get(entry.parts[0], ())
        if not inside and str(entry) not in ("index.html", *_KINDS):
            raise FolderError(f"{target} holds '{entry}', which no report wrote: move it away first")


def _put_in_place(building: Path, target: Path, aside: Path) -> None:
    """Rename the finished folder to `target`; an old report steps aside first and comes back if that fails."""
    if not target.exists():
        os.rename(building, target)
        return
    os.rename(target, aside)
    try:
        os.rename(building, target)
    except BaseException:
        os.rename(aside, target)
        raise
