"""Cards of data sets: the records of models, and the tables of their results."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import numpy as np
import pyarrow as pa
from huggingface_hub import DatasetCardData

from attnfaith import record as records
from attnfaith.reporting.cells import CELL, FINGERPRINTS, one_cell
from attnfaith.reporting.html import template
from attnfaith.support.escaping import Markdown, markdown_table, yaml_head


LICENCE = "apache-2.0"  # of code and weights
UNKNOWN_LICENCE = "none is known here to be stated by its publisher; ask before you pass its texts on"
TAGS = ["attention", "interpretability", "faithfulness", "attnfaith"]


def licence(dataset: Mapping | None) -> str:
    """The terms of a data set's texts, in words."""
    return "see the data set’s own card" if dataset is None else dataset["licence"] or UNKNOWN_LICENCE


def public(value: object) -> object:
    """Settings without the folders of a machine: of an absolute path the last part."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def cell_facts(run: Mapping, record: pa.Table, *, model_repo: str | None) -> dict:
    """The facts about one cell that `records_card` shows, as plain JSON. model_repo: None where the model is on no Hub.

    Raises ValueError for a record of several cells.
    """
    cell = one_cell(record)
    settings = next(iter(records.settings(record)), {})
    provenance = settings.get("provenance") or run.get("provenance") or {}
    columns = {field.name: records.column_of(field) for field in record.schema}
    return {
        "model": cell.identity.model if model_repo is None else model_repo,
        "rows": len(cell),
        **{name: value.item() if isinstance(value, np.generic) else value for name, value in public(cell.heading).items()},
        "producers": list(settings.get("producers", [])),
        "label_names": list(settings.get("label_names", [])),
        "version": settings.get("version"),
        "commit": provenance.get("commit"),
        "columns": {name: {"axes": list(column.axes), "doc": column.doc} for name, column in columns.items()},
    }


def records_card(cells: Mapping[str, Mapping], *, repo_id: str, datasets: Mapping[str, Mapping] | None = None) -> str:
    """README.md of a data set repository of records, one configuration per cell: {configuration: `cell_facts`}.

    The shards of a cell are <configuration>/<split>-*.parquet. datasets: name -> what `attnfaith.data.registry.facts` knows
    about it; for the terms of the others the card sends the reader there.
    """
    names = [name for name in CELL if name not in (*FINGERPRINTS, "split")]
    columns = {name: column for cell in reversed(cells.values()) for name, column in cell["columns"].items()}
    rows = [
        [
            name,
            cell["model"],
            *(cell[key] for key in names),
            f"{cell['rows']:,}",
            ", ".join(cell["producers"]),
            cell["version"],
        ]
        for name, cell in cells.items()
    ]
    docs = [[name, "".join(f"[{axis}]" for axis in column["axes"]), column["doc"]] for name, column in columns.items()]
    used = dict.fromkeys(cell["dataset"] for cell in cells.values())
    return _card(
        repo_id,
        DatasetCardData(license="other", license_name="as-the-texts", pretty_name="Records of attention classifiers"),
        {name: (cell["split"], f"{name}/{cell['split']}-*.parquet") for name, cell in cells.items()},
        about="Prediction, attention and importance of every token, and the predictions under other attentions, of models "
        "with attention on every text of a split. One configuration per trained model, one row per text. All published "
        "numbers on these models are made from these rows, without the models.",
        rows=[["configuration", "model", *names, "rows", "measured"], *rows],
        columns=[["column", "axes", "meaning"], *docs],
        licences={name: licence((datasets or {}).get(name)) for name in used},
    )


def results_card(tables: Mapping[str, Mapping], *, repo_id: str) -> str:
    """README.md of a data set repository of result tables, one configuration per table.

    tables: configuration -> {"rows": n, "columns": [names]}; the table is <configuration>/results-*.parquet, its split
    "results".
    """
    rows = [[name, f"{table['rows']:,}", ", ".join(table["columns"])] for name, table in tables.items()]
    return _card(
        repo_id,
        DatasetCardData(license=LICENCE, pretty_name="Does attention explain? Result tables"),
        {name: ("results", f"{name}/results-*.parquet") for name in tables},
        about="Tidy tables of measurements on text classifiers with attention, made from their records. One configuration "
        "per table; a number that is undefined is NaN, never 0, and the count of texts it leaves out stands beside it. "
        "Columns that end in ci_low and ci_high are 95 % intervals over texts of one trained model; a row with a checkpoint "
        "is about that model alone.",
        rows=[["configuration", "rows", "columns"], *rows],
    )


def _card(
    repo_id: str,
    data: DatasetCardData,
    configs: Mapping[str, tuple[str, str]],
    *,
    about: str,
    rows: Sequence[Sequence],
    columns: Sequence[Sequence] = (),
    licences: Mapping[str, str] | None = None,
) -> str:
    """README.md of a data set. configs: {configuration: (split, files)}. rows, columns: tables, head first."""
    head = data.to_dict() | {"tags": TAGS}
    head["configs"] = [
        {"config_name": name, "data_files": [{"split": split, "path": path}]} for name, (split, path) in configs.items()
    ]
    return template("dataset_card.md.j2").render(
        front_matter=yaml_head(head),
        title=data.pretty_name,
        about=Markdown(about),
        repo_id=Markdown(repo_id),
        first=next(((name, split) for name, (split, _) in configs.items()), None),
        tables=[Markdown(markdown_table(table, numeric=[False] * len(table[0]))) for table in (rows, columns) if table],
        licences=licences,
    )
