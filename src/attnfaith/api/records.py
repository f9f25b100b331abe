"""The record as an object that shows, summarises, saves and publishes itself."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.record.lookup import find_record, find_records
from attnfaith.reporting.cells import Cell, describe, differing_keys, pair_name, split_cells
from attnfaith.support.errors import AttnfaithError, counted, excerpt
from attnfaith.support.escaping import html


if TYPE_CHECKING:
    import pandas as pd

    from attnfaith.reporting.compare import Comparison
    from attnfaith.reporting.notebook import ShownText
    from attnfaith.reporting.view import PairView
    from attnfaith.verdict import Verdict


ALIGNMENT = "alignment_"
MARKERS = "alignment_marker_mass"
"""Attention to markers, which align with nothing."""
AGREEMENT = ("measure", "tau_mean", "tau_median", "ci_low", "ci_high", "n", "n_undefined", "tie_ceiling")


class Record:
    """Predictions of a model and what was measured, a row a text. In a notebook it shows itself.

    The record of a model from sequences to sequences has a row for each pair of sentences; `alignment` takes the place of
    what needs classes. Two records are equal where all columns hold the same values. len() counts the texts.

    table: a `pyarrow.Table` as `attnfaith.record` describes it. checked: it was validated when it was built or read. Raises
    RecordError where it breaks a rule or has no rows.
    """

    __hash__ = None  # pyright: ignore[reportAssignmentType] (Python's own way)

    def __init__(self, table: pa.Table, *, checked: bool = False):
        if not checked:
            records.validate(table)
        if not table.num_rows:
            raise records.RecordError("a record without rows is empty: measure at least one text")
        self.table = table  # every column that was measured, with its meaning in the metadata of its field

    @cached_property
    def cells(self) -> list[Cell]:
        """Its parts, of one model and one set of texts each; `measure` gives one."""
        return split_cells(self.table)

    @property
    def of_sequences(self) -> bool:
        """Whether its rows are pairs of sentences, and not texts with classes."""
        return records.of_sequences(self.table)

    @property
    def measures(self) -> list[str]:
        """The names of its measures of importance; of pairs of sentences, of those that `alignment` takes."""
        names = (name for name in self.table.column_names if name.startswith(ALIGNMENT) and name != MARKERS)
        return [name.removeprefix(ALIGNMENT) for name in names] if self.of_sequences else list(self.cells[0].measures)

    def alignment(self, measure: str = "attention") -> list[np.ndarray]:
        """How a measure, one of `measures`, links the target words of each pair of sentences to its source words.

        An array a pair, with the axes of its column (`record.table.field`): (L,A,R,G,T) of attention, (L,R,G,T) of sums over
        heads, (G,T) without layers; L layers of the decoder, A heads, R the row that predicts the word and the row in which
        it is the input, G target words, T source words. Raises AttnfaithError for a measure that the record does not hold.
        """
        if not self.of_sequences:
            raise AttnfaithError("this is a record of texts, which align with nothing: measure a model on pairs")
        if measure not in self.measures:
            raise AttnfaithError(f"the record holds no alignment {excerpt(measure)}; it holds {', '.join(self.measures)}")
        return records.rows(self.table, ALIGNMENT + measure)

    def __len__(self) -> int:
        return self.table.num_rows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and records.equal(self.table, other.table)

    def __repr__(self) -> str:
        from attnfaith.reporting.notebook import Overview

        if not self.of_sequences:
            return str(Overview(self.cells))
        lines = [f"{describe(cell.heading)} · {counted(len(cell), 'pair')} of sentences" for cell in self.cells]
        return "\n".join([*lines, f"measures: {', '.join(self.measures) or 'none'}"])

    def _repr_html_(self) -> str:
        from attnfaith.reporting.notebook import Overview

        return f"<pre>{html(repr(self))}</pre>" if self.of_sequences else Overview(self.cells).html()

    @property
    def verdict(self) -> "Verdict":
        """Whether the attention may be shown as which words mattered, by the rule of `attnfaith.verdict`.

        Raises AttnfaithError for several models or data sets, and for a record of pairs of sentences.
        """
        from attnfaith.reporting.verdicts import verdict

        if self.of_sequences or len(self.cells) != 1:
            raise AttnfaithError("a verdict is about one model of texts with classes: take one of the record's cells")
        return verdict(self.cells)

    def agreement(self) -> "pd.DataFrame":
        """How far attention ranks the tokens of a text as each measure does: Kendall's tau-b, text by text.

        A row for each measure. Columns: measure; tau_mean, tau_median (-1..1, over texts); ci_low, ci_high (Student's 95 %
        interval of the mean over texts, NaN below two texts); n (texts with a tau), n_undefined (texts without: fewer than
        two tokens, or all scores equal); tie_ceiling (the largest mean that tied scores allow). Of several models the
        columns that differ between them come first.
        """
        import pandas as pd

        from attnfaith.reporting.sections.agreement import TABLE

        def lines(cell: Cell) -> list[dict]:
            overall = {row["pair"]: row for row in TABLE.rows_of(cell) if row["class"] == "overall"}
            medians = {name: pd.Series(cell.tau("attention", name)).median() for name in cell.measures}
            rows = {name: overall[pair_name("attention", name)] for name in medians}
            return [row | {"measure": name, "tau_median": medians[name]} for name, row in rows.items()]

        return self._frame("agreement", lines, AGREEMENT)

    def scores(self) -> "pd.DataFrame":
        """Every token's scores, a row a token.

        Columns: instance_id; position (from 0); token; attention (0..1, summing to 1 over a text); then each measure, in its
        own unit, as `attnfaith.measures()` says. A text without tokens has no row.
        """
        return self._frame(
            "scores",
            lambda cell: {
                "instance_id": np.repeat(np.array(cell.instance_ids, dtype=object), cell.lengths),
                "position": np.concatenate([np.arange(length) for length in cell.lengths]),
                "token": cell.table.column("tokens").combine_chunks().flatten().to_pylist(),
                **{name: np.concatenate(cell.scores(name)) for name in ("attention", *cell.measures)},
            },
        )

    def per_text(self) -> "pd.DataFrame":
        """Every text's numbers, a row a text.

        Columns: instance_id; label (gold class, <NA> where unknown); predicted (class); probability (of that class, 0..1);
        n_tokens; truncated (whether it was cut); then the numbers that models are compared by, NaN where undefined, such as
        "tau attention–gradient".
        """
        import pandas as pd

        from attnfaith.reporting import sections

        return self._frame(
            "per_text",
            lambda cell: {
                "instance_id": cell.instance_ids,
                "label": pd.array([None if np.isnan(label) else int(label) for label in cell.labels], "Int64"),
                "predicted": cell.predicted,
                "probability": cell.probs[np.arange(len(cell)), cell.predicted],
                "n_tokens": cell.lengths,
                "truncated": cell.table.column("truncated").to_numpy(),
                **sections.numbers(cell),
            },
        )

    def summary(self) -> "pd.DataFrame":
        """The numbers of `per_text` over all texts, a row for each.

        Columns: quantity; mean; ci_low, ci_high (95 % interval of the mean over texts: Student's of a τ, Wilson's of a
        share, else that of the BCa bootstrap; NaN below two texts); median; n (texts with this number); n_undefined (texts
        without it). They are those of the page's tables.
        """
        from attnfaith.reporting import sections

        def lines(cell: Cell) -> list[dict]:
            rows = {name: row for section in sections.of_cell(cell) for name, row in section.summary(cell).items()}
            return [rows[name] for name in sections.numbers(cell)]

        names = ("quantity", "mean", "ci_low", "ci_high", "median", "n", "n_undefined")
        return self._frame("summary", lines, names)

    def _frame(self, method: str, part, names: Sequence[str] | None = None) -> "pd.DataFrame":
        """The rows that `part` gives for each cell, as a frame, after the parts of the heading that differ between cells."""
        import pandas as pd

        if self.of_sequences:
            raise AttnfaithError(
                f"{method}() is about texts with classes, and this record holds pairs of sentences: use alignment(), of "
                f"{', '.join(self.measures)}"
            )
        differing = differing_keys(self.cells)
        frames = [pd.DataFrame(part(cell), columns=None if names is None else list(names)) for cell in self.cells]
        headings = [{name: cell.heading[name] for name in differing} for cell in self.cells]
        parts = [frame.assign(**heading) for frame, heading in zip(frames, headings, strict=True)]
        return pd.concat(parts, ignore_index=True).reindex(columns=[*differing, *frames[0].columns])

    def show(self, text: int | str = 0, measures: str | Sequence[str] | None = None) -> "ShownText | PairView":
        """One text, as a heat map in a notebook and as a table of scores where it is printed. Of a pair of sentences its
        view, as `attnfaith.view` gives it.

        text: its row, from 0 (negative from the end), or its instance id. measures: of a text, those to show beside
        attention; None shows all. Raises AttnfaithError for a text or a measure that the record does not hold.
        """
        from attnfaith.reporting.notebook import ShownText, row_of
        from attnfaith.reporting.view import PairView

        cells = self.cells
        if isinstance(text, int | np.integer) and -len(self) <= text < len(self):
            cells = split_cells(self.table.slice(int(text) % len(self), 1))  # the cell of this row alone
            cells = [cell for cell in self.cells if cell.identity == cells[0].identity]
            text = self.table.column("instance_id")[int(text)].as_py()
        if not isinstance(text, str):
            raise AttnfaithError(f"text {excerpt(text)}: give a row from 0 to {len(self) - 1}, or an instance id")
        cell = next((cell for cell in cells if text in cell.instance_ids), cells[0])
        row = row_of(cell, text)
        if self.of_sequences:
            return PairView.of(cell.table, row)
        return ShownText(cell, row, [measures] if isinstance(measures, str) else measures)

    def report(self, folder: str | os.PathLike, *, title: str | None = None, examples: int = 5) -> Path:
        """Write tables, figures and a page into a folder; returns the path of the page. examples: pairs of
        sentences shown of lowest and of highest error. Raises what `attnfaith.reporting.page.write_report` raises.
        """
        from attnfaith.reporting.page import write_report

        return write_report(self.table, folder, title=title, n_examples=examples)

    def save(self, path: str | os.PathLike) -> Path:
        """Write the record as a parquet file, whole or not at all; returns its path."""
        records.save(self.table, path)
        return Path(path)

    def push_to_hub(self, repo_id: str, *, private: bool = False, config: str = "default") -> str:
        """Put the record on the Hub, as a data set with a card, which `load` and `load_dataset` read; returns its address.

        repo_id: owner/name. private: where the repository is made, only its owner sees it. config: what this record is
        called among others in the repository; one of that name there is replaced. The token is that of `hf auth login` or
        HF_TOKEN. Raises HubError as `attnfaith push` does.
        """
        from attnfaith import hub

        (address,) = hub.push(hub.plan_record(self.table, repo_id, config=config), private=private)
        return address


def compare(
    *sources: Record | str | os.PathLike, names: Sequence[str] | None = None, mix_versions: bool = False
) -> "Comparison":
    """Two or more records over the texts and numbers that all of them hold, every other one against the first, with paired
    intervals. What it returns shows itself and has a `frame`.

    sources: Records, or what `load` takes; a folder of runs stands for each of them. names: what they are called; None takes
    those of files and runs. mix_versions: also numbers that different versions of the package made. Raises ReportError where
    they have nothing in common, NotFoundError where no record lies, AttnfaithError for wrong sources and names.
    """
    from attnfaith.reporting.compare import compare as compare_tables

    tables = {}
    for number, source in enumerate(sources, start=1):
        if isinstance(source, Record):
            tables[f"record {number}"] = source.table
        elif isinstance(source, str | os.PathLike):
            tables |= {name: records.load(path) for path, name in find_records(source).items()}
        else:
            raise AttnfaithError(f"record {number} is {excerpt(source)}: give a Record, a path, a run or a name on the Hub")
    if names is not None and (isinstance(names, str) or len(names) != len(tables)):
        raise AttnfaithError(f"names={excerpt(names)}: give one for each of {len(tables)} records")
    labels = [*tables] if names is None else [*map(str, names)]
    return compare_tables([*tables.values()], labels, mix_versions=mix_versions)


def load(source: str | os.PathLike, *, revision: str | None = None) -> Record:
    """Read a record.

    source: a parquet file, the folder of a run, or on the Hub the name (owner/name) of a model with a record, or of a data
    set of records; owner/name:configuration of one that holds several. revision: of the repository.

    Raises RecordError for a file that is no record, NotFoundError where nothing lies there, naming what is near.
    """
    if not isinstance(source, str | os.PathLike):
        raise AttnfaithError(f"a record is loaded from a path or a name on the Hub, not from {excerpt(source)}")
    return Record(records.load(find_record(source, revision=revision)), checked=True)
