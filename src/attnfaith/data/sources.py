"""Where the rows of a data set come from: a folder, the Hub, or a generator of this package."""

import hashlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path

from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.data.stories import rows_of_stories
from attnfaith.errors import DatasetError


ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""

GENERATED_SIZES = {"train": 2000, "validation": 500, "test": 500}


def generate(entry: DatasetEntry, seed: int, arguments: dict):
    """{split: table}, revision and label names of generated data; arguments as `load_splits` has them."""
    import pyarrow as pa

    from attnfaith.data import babi, counting, planted_evidence

    arguments = dict(arguments)
    sizes = dict(arguments.pop("sizes", {}))
    check_sizes("sizes", sizes)
    sizes = {**GENERATED_SIZES, **sizes}
    module = {"planted_evidence": planted_evidence, "counting": counting}.get(entry.name, babi)
    task = (int(entry.name.removeprefix("babi_")),) if module is babi else ()
    known = [
        parameter
        for parameter, spec in inspect.signature(module.generate).parameters.items()
        if spec.kind is spec.KEYWORD_ONLY and parameter != "stream"
    ]
    wrong = sorted(set(arguments).difference(known))
    if wrong:
        raise DatasetError(f"{entry.name!r} does not know {wrong}; its arguments are sizes, {', '.join(known)}.")
    tables = {
        split: pa.Table.from_pylist(module.generate(*task, sizes[split], seed, stream=stream, **arguments))
        for stream, split in enumerate(SPLITS)
    }
    classes = arguments.get("n_classes", 2)
    names = planted_evidence.class_names(classes) if module is planted_evidence else entry.label_names
    said = ",".join(f"{key}={value}" for key, value in sorted({**arguments, "seed": seed}.items()))
    return tables, f"generated-{module.VERSION}({said})", list(names)


def read(entry: DatasetEntry, root: str | os.PathLike | None) -> tuple[dict, str]:
    """{source split: table} and the revision of published data or the user's own files."""
    import datasets
    import pyarrow as pa

    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    folder = Path(root) / entry.folder / (entry.hub_data_dir or "") if root is not None else None
    where = f"the folder {folder}" if folder is not None else f"{ROOT_VARIABLE} is not set"
    try:
        if folder is not None and folder.is_dir():
            names = datasets.get_dataset_config_names(str(folder))
            config = entry.hub_config if entry.hub_config in names else None
            loaded = datasets.load_dataset(str(folder), config)
            revision = _digest(folder, [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."])
        elif entry.hub_id is None:
            raise DatasetError(
                f"{entry.name!r} is read from your own files, and there are none ({where}). {entry.notes} "
                f"Set {ROOT_VARIABLE} or root to the data root."
            )
        else:
            where = f"the Hub, {entry.hub_id} at {entry.revision}"
            loaded = datasets.load_dataset(
                entry.hub_id, entry.hub_config, data_dir=entry.hub_data_dir, revision=entry.revision
            )
            revision = entry.revision
    except DatasetError:
        raise
    except (OSError, ValueError, RuntimeError, pa.ArrowException, datasets.exceptions.DatasetsError) as error:  # of a script
        advice = (
            f"Fetch the data set {entry.hub_id} from the Hub (for use offline, into <root>/{entry.folder}) and set "
            f"{ROOT_VARIABLE} to <root>."
            if entry.hub_id is not None
            else entry.notes
        )
        raise DatasetError(f"Cannot read {entry.name!r} from {where}: {type(error).__name__}: {error} {advice}") from error
    tables = {split: loaded[split].with_format("arrow")[:] for split in SPLITS if split in loaded}
    if entry.stories:
        tables = {split: pa.table(rows_of_stories(table, entry, split)) for split, table in tables.items()}
    return tables, revision


def _digest(folder: Path, files: list[Path]) -> str:
    """Names data by the content of its files, which lie somewhere under the folder."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"local-{digest.hexdigest()[:12]}"


def check_sizes(what: str, sizes: Mapping[str, int]) -> None:
    for split, size in sizes.items():
        if split not in SPLITS:
            raise DatasetError(f"{what} names the split {split!r}; there are {', '.join(SPLITS)}.")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise DatasetError(f"{what}[{split!r}] must be a positive number of rows; {size!r} was given.")
