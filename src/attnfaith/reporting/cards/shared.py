"""Cards that many models share: of their records, their results, and the index of their cards; cards of folders of runs."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from attnfaith import record as records
from attnfaith.reporting.cards.checkpoint import Checkpoint, read_checkpoint
from attnfaith.reporting.cards.model import (
    LICENCE,
    answer_files,
    card_figures,
    check_name,
    in_numbers,
    licence,
    model_card,
    public,
)
from attnfaith.reporting.cells import CELL, FINGERPRINTS, one_cell
from attnfaith.reporting.html import template
from attnfaith.support.escaping import Markdown, yaml_head
from attnfaith.support.files import write_atomically
from attnfaith.verdict import RULE


def cell_facts(run: Mapping, record: pa.Table, *, model_repo: str | None) -> dict:
    """The facts about one cell that `records_card` shows, as plain JSON. model_repo: None where the model is on no Hub.

    Raises ValueError for a record of several cells.
    """
    cell = one_cell(record)
    settings = next(iter(records.settings(record)), {})
    columns = {}
    for field in record.schema:
        column = records.column_of(field)
        columns[field.name] = {"axes": list(column.axes), "doc": column.doc}
    provenance = settings.get("provenance") or run.get("provenance") or {}
    return {
        "model": cell.identity.model if model_repo is None else check_name(model_repo),
        "rows": len(cell),
        **{name: _plain(value) for name, value in public(cell.heading).items()},
        "producers": list(settings.get("producers", [])),
        "label_names": list(settings.get("label_names", [])),
        "version": settings.get("version"),
        "commit": provenance.get("commit"),
        "columns": columns,
    }


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def records_card(cells: Mapping[str, Mapping], *, repo_id: str, datasets: Mapping[str, Mapping] | None = None) -> str:
    """README.md of a data set repository of records, one configuration per cell: {configuration: `cell_facts`}.

    The shards of a cell are <configuration>/<split>-*.parquet. Front matter: `configs`, so that load_dataset(repo_id,
    configuration) and the viewer find them. datasets: name -> what `attnfaith.data.registry.facts` knows about it; for the
    terms of the others the card sends the reader there.
    """
    datasets = datasets or {}
    configs = [
        {"config_name": name, "data_files": [{"split": cell["split"], "path": f"{name}/{cell['split']}-*.parquet"}]}
        for name, cell in cells.items()
    ]
    front_matter = {
        "license": "other",
        "license_name": "as-the-texts",
        "pretty_name": "Records of attention classifiers",
        "tags": ["attention", "interpretability", "faithfulness", "attnfaith"],
        "configs": configs,
    }
    used = dict.fromkeys(cell["dataset"] for cell in cells.values())
    columns: dict[str, Mapping] = {}
    for cell in cells.values():
        for name, column in cell["columns"].items():
            columns.setdefault(name, column)
    return template("records_card.md.j2").render(
        front_matter=yaml_head(front_matter),
        repo_id=Markdown(check_name(repo_id)),
        cells=cells,
        cell_names=[name for name in CELL if name not in (*FINGERPRINTS, "split")],
        columns={name: ("".join(f"[{axis}]" for axis in column["axes"]), column["doc"]) for name, column in columns.items()},
        licences={name: licence(datasets.get(name)) for name in used},
        first=next(iter(cells), None),
    )


def results_card(tables: Mapping[str, Mapping], *, repo_id: str) -> str:
    """README.md of a data set repository of result tables, one configuration per table.

    tables: configuration -> {"rows": n, "columns": [names]}; the table is <configuration>/results-*.parquet, its split
    "results".
    """
    configs = [
        {"config_name": name, "data_files": [{"split": "results", "path": f"{name}/results-*.parquet"}]} for name in tables
    ]
    front_matter = {
        "license": LICENCE,
        "pretty_name": "Does attention explain? Result tables",
        "tags": ["attention", "interpretability", "faithfulness", "attnfaith"],
        "configs": configs,
    }
    return template("results_card.md.j2").render(
        front_matter=yaml_head(front_matter),
        repo_id=Markdown(check_name(repo_id)),
        tables=tables,
        first=next(iter(tables), None),
    )


def cards_index(cards: Mapping[str, Checkpoint]) -> str:
    """model_cards/README.md: one row a checkpoint, from {repo id: checkpoint}; the card is <name>.md beside it."""
    rows = []
    for repo_id, checkpoint in cards.items():
        name = check_name(repo_id).partition("/")[2]
        identity, numbers = checkpoint.heading, checkpoint.numbers
        rows.append(
            (
                Markdown(f"[{name}]({name}.md)"),
                *(identity[key] for key in ("dataset", "encoder", "alignment", "projection")),
                identity["seed"],
                f"{len(checkpoint.cell):,}",
                *(
                    in_numbers(numbers[key]) if key in numbers else "not measured"
                    for key in ("accuracy", "kendall_tau.gradient", "kendall_tau.leave_one_out")
                ),
                checkpoint.verdict.outcome,
                str(checkpoint.verdict.ratio) if checkpoint.verdict.n else "",
            )
        )
    columns = ("checkpoint", "data", "encoder", "alignment", "projection", "seed", "texts", "accuracy")
    columns += ("τ attention–gradient", "τ attention–leave-one-out", "may it be shown?", "ρ")
    return template("cards_index.md.j2").render(columns=columns, rows=rows, rules=RULE)


# ------------------------------------------------------------------------------------------------ of folders


def checkpoint_name(name: str) -> str:
    """A recipe's name as that of a repository, which may not hold "--": "sparsegen--100" is "sparsegen-minus-100"."""
    return name.replace("--", "-minus-")


def write_cards(
    folders: Mapping[str, str | os.PathLike],
    output: str | os.PathLike,
    facts: Callable[[Mapping | str], Mapping],
    *,
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> list[Path]:
    """Write <output>/<name>.md of each run, {repo id: folder of the run}, their figures and README.md, the index.

    facts: `attnfaith.data.registry.facts`. Returns the paths written. Raises ReportError as `read_checkpoint`, before
    anything is written.
    """
    output = Path(output)
    files: dict[Path, bytes] = {}
    checkpoints = {}
    for repo_id, folder in folders.items():
        checkpoint = checkpoints[repo_id] = read_checkpoint(folder)
        pictures = Path(folder) / "report" / "figures"
        at_hand = sorted(path.stem for path in pictures.glob("*.png"))
        text = model_card(
            checkpoint,
            repo_id,
            facts(checkpoint.recipe.get("data") or checkpoint.heading["dataset"]),
            figures=at_hand,
            records_repo=records_repo,
            results_repo=results_repo,
        )
        files[output / f"{repo_id.partition('/')[2]}.md"] = text.encode()
        for path, figure in card_figures(repo_id, at_hand).items():
            files[output / path] = (pictures / f"{figure}.png").read_bytes()
        files |= {output / path: content for path, content in answer_files(checkpoint, repo_id).items()}
    files[output / "README.md"] = cards_index(checkpoints).encode()
    return [write_atomically(path, content) for path, content in files.items()]
