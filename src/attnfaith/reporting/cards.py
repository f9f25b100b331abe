"""Cards of what is released: models, records, results and their index, as Markdown made from records and run.json.

Every number is computed from the record here; every sentence about results is put together from the numbers by rules that
the card prints. Texts of data and recipes are escaped. The same inputs give the same bytes.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa


def model_card(
    run: Mapping,
    record: pa.Table,
    *,
    repo_id: str,
    dataset: Mapping,
    figures: Sequence[str] = (),
    records_repo: str | None = None,
    results_repo: str | None = None,
) -> str:
    """README.md of a model repository, with its YAML front matter (model-index inside).

    run: the parsed run.json. record: the run's record, of one cell; the recipe and the names of the classes are read from
    its settings. repo_id: "owner/name". dataset: `attnfaith.data.registry.facts(name)`. figures: names of the report's
    figures that are at hand (the stems of report/figures/*.png); the card shows those of `card_figures`.
    records_repo, results_repo: the data set repositories that are pushed beside it, named where they are given.

    Raises ValueError for a name that the Hub does not allow, and for a record of several cells.
    """
    raise NotImplementedError


def card_figures(repo_id: str, names: Sequence[str]) -> dict[str, str]:
    """{path in the model repository: name of the report's figure} of the figures that the card shows; the PNG belongs there."""
    raise NotImplementedError


def eval_results(record: pa.Table, *, dataset: Mapping, records_repo: str | None = None) -> dict[str, str]:
    """{path in the model repository: YAML} of its `.eval_results/`; {} where the data set has no repository on the Hub."""
    raise NotImplementedError


def cell_facts(run: Mapping, record: pa.Table, *, model_repo: str) -> dict:
    """What `records_card` says of one cell, as plain JSON."""
    raise NotImplementedError


def records_card(cells: Mapping[str, Mapping], *, repo_id: str) -> str:
    """README.md of a data set repository of records, one configuration per cell: {configuration: `cell_facts`}.

    The shards of a cell are <configuration>/<split>-*.parquet. Front matter: `configs`, so that load_dataset(repo_id,
    configuration) and the viewer find them.
    """
    raise NotImplementedError


def results_card(tables: Mapping[str, Mapping], *, repo_id: str) -> str:
    """README.md of a data set repository of result tables, one configuration per table.

    tables: configuration -> {"rows": n, "columns": [names]}; the table is <configuration>/results-*.parquet, its split
    "results".
    """
    raise NotImplementedError


def cards_index(cards: Mapping[str, tuple[Mapping, pa.Table]]) -> str:
    """model_cards/README.md: one row a checkpoint, from {repo id: (run.json, record)}."""
    raise NotImplementedError
