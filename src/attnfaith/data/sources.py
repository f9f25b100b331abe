"""Where the rows of published data come from: a folder or the Hub."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.support.errors import DatasetError, excerpt


ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""


def data_root(root: str | os.PathLike | None) -> Path | None:
    """Return the folder of local data: `root`, else the one that ATTNFAITH_DATA names, else None."""
    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    return None if root is None else Path(root)


def draw(rows: np.ndarray, limit: int, seed: int, split: str) -> np.ndarray:
    """Draw at most `limit` rows at random, in their order."""
    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])


def read(entry: DatasetEntry, root: str | os.PathLike | None) -> tuple[dict, str]:
    """Read {source split: table} of published data, and their revision."""
    import datasets

    root = data_root(root)
    folder = root / entry.folder / (entry.hub_data_dir or "") if root is not None else None
    advice = f"set {ROOT_VARIABLE} to the data root, which holds {entry.folder}. {entry.notes}"
    if folder is not None and folder.is_dir():
        try:
            configs = datasets.get_dataset_config_names(str(folder))
            loaded = datasets.load_dataset(str(folder), entry.hub_config if entry.hub_config in configs else None)
        except Exception as error:  # datasets and Arrow raise many kinds
            raise DatasetError(f"Cannot read {entry.name!r} from {folder}: {excerpt(error, 300)}. {entry.notes}") from error
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."):
            digest.update(str(path.relative_to(folder)).encode())
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        revision = f"local-{digest.hexdigest()[:12]}"
    elif entry.hub_id is None:
        raise DatasetError(f"{entry.name!r} is read from your own files, and there are none: {advice}")
    else:
        try:
            loaded, revision = read_hub(entry.hub_id, entry.hub_config, entry.revision, entry.hub_data_dir)
        except DatasetError as error:
            raise DatasetError(f"Cannot read {entry.name!r}: {error}; or fetch it, and {advice}") from error
    tables = {split: loaded[split].with_format("arrow")[:] for split in SPLITS if split in loaded}
    if entry.stories:
        tables = {split: questions(table, f"{entry.name!r}, {split} split") for split, table in tables.items()}
    return tables, revision


def read_hub(hub_id: str, config: str | None, revision: str | None, data_dir: str | None = None) -> tuple[Mapping, str]:
    """Read the splits of a Hub data set, and the commit they were read at. Its code is never run.

    Raises DatasetError where it cannot be read.
    """
    import datasets

    try:
        options = {} if data_dir is None else {"data_dir": data_dir}
        builder = datasets.load_dataset_builder(hub_id, config, revision=revision, **options)
        builder.download_and_prepare()
        return builder.as_dataset(), str(builder.hash)
    except Exception as error:  # datasets, Arrow and huggingface_hub raise many kinds
        advice = "unset HF_HUB_OFFLINE" if datasets.config.HF_HUB_OFFLINE else "check name, revision and connection"
        raise DatasetError(
            f"the data set {hub_id} at {revision or 'main'} cannot be read from the Hub: {type(error).__name__}: "
            f"{excerpt(error, 300)}. {advice}; a data set that was read before needs no connection"
        ) from error


def questions(table, place: str):
    """Return a row for each question in a table of bAbI stories, with the statements of its story up to it.

    A row of the table is a story, its lines under `story`, as a struct of lists or a list of structs. Full stop and question
    mark become words. Columns: text, text_pair (the question), label (the answer, a word), rationale: 0/1 per word of the
    text, 1 on the supporting statements with their full stop. Raises DatasetError, with the row, for another form.
    """
    import pyarrow as pa

    rows = []
    for number, story in enumerate(table.column("story").to_pylist()):
        try:
            if isinstance(story, dict):
                story = [dict(zip(story, values, strict=True)) for values in zip(*story.values(), strict=True)]
            statements: dict[str, list[str]] = {}
            for line in story:
                if line["id"] == "1":
                    statements = {}
                ending = "?" if line["type"] == 1 else "."
                words = [*line["text"].strip().removesuffix(ending).split(), ending]
                if line["type"] == 0:
                    statements[line["id"]] = words
                    continue
                facts = set(line["supporting_ids"])
                if not facts or not facts <= statements.keys() or not line["answer"]:
                    raise ValueError
                text = " ".join(word for statement in statements.values() for word in statement)
                marks = [int(key in facts) for key, statement in statements.items() for _ in statement]
                row = {"text": text, "text_pair": " ".join(words), "label": line["answer"], "rationale": marks}
                rows.append(row)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DatasetError(
                f"{place}, row {number}: a story is a list of lines, each with id, type (0 or 1), text, supporting_ids and "
                f"answer, a question after the statements that support it; it is {excerpt(story)}."
            ) from error
    return pa.Table.from_pylist(rows)
