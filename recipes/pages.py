"""What the pages of several papers show alike: tables, published numbers beside ours, numbers with intervals as figures."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from attnfaith.reporting.analysis import Analysis, StudyError
from attnfaith.reporting.cells import Cell
from attnfaith.reporting.charts import PALETTE, own_style, titled_figure
from attnfaith.reporting.tables import Grid
from attnfaith.support.errors import counted


if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERVAL = "{mean} [{ci_low}, {ci_high}]"
"""A template of a page's column."""


def analysis(
    cells: Sequence[Cell],
    pages: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, Callable[[Sequence[Cell]], pd.DataFrame]],
    shown: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {},
    made: str = "made",
) -> Analysis:
    """The tables by name, each made from the cells, and those of `pages` as the page shows them; nothing without cells.

    pages: the columns of `page_grid`, word vectors without their scale or digest; a table without rows is left out. shown:
    the part of a table that the page shows, where it is not all. made: name of the text that says which code made them.
    """
    if not cells:
        return Analysis()
    results, grids = {name: table(cells) for name, table in tables.items()}, {}
    for name, columns in pages.items():
        table = results[name]
        if len(table) and name in shown:
            table = shown[name](table)
        if len(table):
            vectors = {"vectors": table["vectors"].str.partition("(")[0]} if "vectors" in table else {}
            grids[name] = page_grid(name.replace("_", " ").capitalize(), table.assign(**vectors), columns)
    return Analysis(results, grids, {f"{made}.md": made_by(cells)})


def page_grid(caption: str, table: pd.DataFrame, columns: Mapping[str, str]) -> Grid:
    """A table as a page shows it.

    columns: heading to template, such as {"accuracy": "{accuracy} ± {accuracy_std}"}; those before the first of one number
    name a row. Numbers that are not whole have two decimals, undefined ones a dash, or no interval.
    """
    keys = [re.fullmatch(r"{(\w+)}", text) for text in columns.values()]
    numeric = [key is not None and pd.api.types.is_numeric_dtype(table[key[1]]) for key in keys]
    lines = []
    for row in table.to_dict("records"):
        texts = {name: shown_number(value) for name, value in row.items()}
        line = [text.format_map(texts).replace(" ± —", "").replace(" [—, —]", "") for text in columns.values()]
        lines.append(tuple(line))
    heads = numeric.index(True) if True in numeric else len(columns)
    return Grid(caption, tuple(columns), tuple(lines), heads)


def shown_number(value: object) -> str:
    """ ".80", "−.06", "1.00", "5,175", "yes"; "—" for an undefined number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if pd.isna(value):
        return "—"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return re.sub(r"^(−?)0\.", r"\1.", f"{value + 0.0:.2f}".replace("-", "−"))


def made_by(cells: Sequence[Cell]) -> str:
    """The line of a page that names the models and the code that made its numbers."""
    provenances = [cell.settings.get("provenance") or {} for cell in cells]
    makers = Counter(
        f"attnfaith {made.get('version', '?')}, commit {(made.get('commit') or '?')[:8]}" for made in provenances
    )
    parts = [f"{counted(count, 'model')} by {maker}" for maker, count in makers.items()]
    return f"Numbers of {'; '.join(parts)}.\n"


def read_published(path: Path, columns: Sequence[str], numbers: Sequence[str] = ()) -> pd.DataFrame:
    """Read a CSV file of published numbers.

    columns: those it must have. numbers: those of them that are read as numbers. Raises StudyError where the file is
    missing, no CSV table, or not such a table.
    """
    try:
        published = pd.read_csv(path, dtype=dict.fromkeys(numbers, float))
    except (OSError, ValueError) as error:
        raise StudyError(f"published: no CSV table at {path}: {error}") from error
    if missing := [name for name in columns if name not in published.columns]:
        raise StudyError(f"published: {path} lacks the columns {missing}; needed: {', '.join(columns)}")
    return published


def over_seeds(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The mean over seeds of the column "value", as "measured", and their number "n_seeds", a row for each of the keys."""
    return rows.groupby(list(keys), as_index=False)["value"].agg(measured="mean", n_seeds="size")


def join_published(published: pd.DataFrame, measured: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """A row for each published number and each measured one that agrees in the keys, with difference = measured - published.

    published: column `value`, renamed `published`. measured: column `measured`. Keys are compared as texts. A published
    number that nothing measured keeps its row, with measured NaN.
    """
    texts = dict.fromkeys(keys, str)
    published = published.rename(columns={"value": "published"}).astype(texts)
    joined = published.merge(measured.astype(texts), how="left", on=list(keys))
    joined["difference"] = joined["measured"] - joined["published"]
    return joined


def beside_published(
    published: pd.DataFrame, cells: Sequence[Cell], rows: Callable[[Cell], Iterable[Mapping]], keys: Sequence[str]
) -> pd.DataFrame:
    """A row for each published number of a data set that was measured, with the mean over n_seeds seeds of the "value" in
    our rows of each cell, and the difference; measured is NaN where nothing was.
    """
    measured = over_seeds(pd.DataFrame([row for cell in cells for row in rows(cell)]), keys)
    joined = join_published(published[published["dataset"].isin(measured["dataset"])], measured, keys)
    return joined[[*keys, "published", "measured", "difference", "n_seeds", "by", "source"]]


def only_measured(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `beside_published` that were measured."""
    return table.dropna(subset="measured").astype({"n_seeds": int})


NAMING = ("encoder", "alignment", "projection", "vectors", "objective", "dataset", "split", "training_texts", "texts")
"""Which columns name a model, the best first; the last two are fingerprints."""


def panels(table: pd.DataFrame, without: Sequence[str] = ()) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each kind of model under the shortest name that tells it from the others, in order of first appearance.

    A name is made of as few labels as will do, without what stands in their brackets where that will do. without: columns
    of KIND that name no kind.
    """
    keys = [name for name in NAMING if name not in without]
    parts = [part for _, part in table.groupby(keys, sort=False, dropna=False)]
    for size, bare in product(range(1, len(keys) + 1), (True, False)):
        for chosen in combinations(keys, size):
            labels = [[str(part.iloc[0][name]) for name in chosen] for part in parts]
            names = [" · ".join(label.split("(", 1)[0] or label if bare else label for label in row) for row in labels]
            if len(set(names)) == len(names):
                return list(zip(names, parts, strict=True))
    return []


def interval_figures(table: pd.DataFrame, stem: str, subject: str, without: Sequence[str], **words) -> "dict[str, Figure]":
    """`interval_figure` of each data set, a panel for each kind of model, by file name: the data set and the stem.

    table: with the columns of `panels`, and n, texts of all of its n_seeds. subject: what is drawn. words: title, note and
    reference.
    """
    figures = {}
    for dataset, part in table.groupby("dataset", sort=False):
        count = int(part["n"].max() / max(1, part["n_seeds"].max()))
        figures[f"{dataset}-{stem}"] = interval_figure(panels(part, without), f"{dataset} · {subject}", count, **words)
    return figures


@own_style()
def interval_figure(
    parts: Sequence[tuple[str, pd.DataFrame]], subject: str, count: int, *, title: str, reference: float, note: str
) -> "Figure":
    """Numbers with their intervals: a panel for each part, a line for each label, a colour and a mark for each series.

    parts: (name of the panel, table) with the columns label, series, value, ci_low, ci_high, and stands: True for a full
    mark, False for a hollow one. count: texts. reference: where a vertical line stands for "nothing".
    """
    labels = list(dict.fromkeys(label for _, part in parts for label in part["label"]))
    names = list(dict.fromkeys(name for _, part in parts for name in part["series"]))
    width, height = 3.4 + max(5.0, 2.1 * len(parts)), 1.6 + len(labels) * max(0.3, 0.08 * len(names))
    figure = titled_figure(title, subject, count, width, height)
    axes = figure.subplots(1, len(parts), sharex=True, sharey=True, squeeze=False)[0]
    styles = {name: (PALETTE[place % len(PALETTE)], "oDs^vPX"[place % 7]) for place, name in enumerate(names)}
    for panel, (head, part) in zip(axes, parts, strict=True):
        panel.set_title("\n".join(textwrap.wrap(head, 21)), parse_math=False)
        panel.axvline(reference, color="#777777", linewidth=1)
        panel.grid(axis="y", color="#eeeeee", linewidth=0.8)
        for number, (name, rows) in enumerate(part.groupby("series", sort=False)):
            colour, mark = styles[name]
            places = rows["label"].map(labels.index) + 0.7 * ((number + 0.5) / part["series"].nunique() - 0.5)
            panel.hlines(places, rows["ci_low"], rows["ci_high"], color=colour, linewidth=1.4, alpha=0.8)
            faces = np.where(rows["stands"], colour, "white")
            panel.scatter(rows["value"], places, 25, c=faces, marker=mark, edgecolors=colour, zorder=3)
        panel.set_yticks(range(len(labels)), [label.replace("$", r"\$") for label in labels])
        panel.set_ylim(len(labels) - 0.5, -0.5)
    handles = [
        axes[0].plot([], [], styles[name][1], color=styles[name][0], label=name.replace("$", r"\$"))[0] for name in names
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title=note)
    return figure
