"""Where the rows of published data come from, a folder or the Hub, and random subsets of rows."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnfaith.data.generators import check_sizes
from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.data.tokenization import in_memory
from attnfaith.support.errors import DatasetError, excerpt


ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""


def data_root(root: str | os.PathLike | None) -> Path | None:
    """Return the folder of local data: `root`, else the one that ATTNFAITH_DATA names, else None."""
    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    return None if root is None else Path(root)


def file_digest(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file. DatasetError where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DatasetError(f"There is no file {path}: {error.strerror}.") from error


def draw(rows: np.ndarray, limit: int, seed: int, split: str) -> np.ndarray:
    """Draw at most `limit` rows at random, in their order."""
    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])


def draw_limits(splits: Mapping, limits: Mapping[str, int], seed: int) -> tuple[dict, dict[str, int]]:
    """Draw at most so many rows of splits, in their order; return the splits, and the number left out of each limited one.

    Raises DatasetError for limits of unknown splits.
    """
    check_sizes("limits", limits)
    limited, left_out = dict(splits), {}
    for split, limit in limits.items():
        rows = splits[split]
        drawn = draw(np.arange(len(rows)), limit, seed, split)
        left_out[split] = len(rows) - len(drawn)
        if left_out[split]:
            limited[split] = in_memory(rows.data.table.take(drawn))
    return limited, left_out


def read(entry: DatasetEntry, root: str | os.PathLike | None) -> tuple[dict, str]:
    """Read {source split: table} of published data, and their revision."""
    import datasets

    root = data_root(root)
    folder = root / entry.folder if root is not None else None
    advice = f"set {ROOT_VARIABLE} to the data root, which holds {entry.folder}. {entry.notes}"
    if folder is not None and folder.is_dir():
        try:
            configs = datasets.get_dataset_config_names(str(folder))
            loaded = datasets.load_dataset(str(folder), entry.hub_config if entry.hub_config in configs else None)
        except Exception as error:  # datasets and Arrow raise many kinds
            raise DatasetError(f"Cannot read {entry.name!r} from {folder}: {excerpt(error, 300)}. {entry.notes}") from error
        digest = hashlib.sha256()
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."):
            digest.update(str(path.relative_to(folder)).encode() + bytes.fromhex(file_digest(path)))
        revision = f"local-{digest.hexdigest()[:12]}"
    elif entry.hub_id is None:
        raise DatasetError(f"{entry.name!r} is read from your own files, and there are none: {advice}")
    else:
        try:
            loaded, revision = read_hub(entry.hub_id, entry.hub_config, entry.revision)
        except DatasetError as error:
            raise DatasetError(f"Cannot read {entry.name!r}: {error}; or fetch it, and {advice}") from error
    return {split: loaded[split].with_format("arrow")[:] for split in SPLITS if split in loaded}, revision


def read_hub(hub_id: str, config: str | None, revision: str | None) -> tuple[Mapping, str]:
    """Read the splits of a Hub data set, and the commit they were read at. Its code is never run.

    Raises DatasetError where it cannot be read.
    """
    import datasets

    try:
        builder = datasets.load_dataset_builder(hub_id, config, revision=revision)
        builder.download_and_prepare()
        return builder.as_dataset(), str(builder.hash)
    except Exception as error:  # datasets, Arrow and huggingface_hub raise many kinds
        advice = "unset HF_HUB_OFFLINE" if datasets.config.HF_HUB_OFFLINE else "check name, revision and connection"
        raise DatasetError(
            f"the data set {hub_id} at {revision or 'main'} cannot be read from the Hub: {type(error).__name__}: "
            f"{excerpt(error, 300)}. {advice}; a data set that was read before needs no connection"
        ) from error
