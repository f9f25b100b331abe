"""Where the rows of a data set come from: a folder, the Hub, or a generator of this package."""

import hashlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.data.stories import rows_of_stories
from attnfaith.errors import DatasetError, excerpt


ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""


def generate(
    name: str, generator: ModuleType, task: tuple, seed: int, arguments: Mapping, sizes: Mapping[str, int]
) -> dict[str, list[dict]]:
    """{split: rows} of a generator.

    task: what `generate` takes before the number of rows. arguments: its keyword arguments, and sizes={"train": 2000} in
    place of `sizes`. Raises DatasetError for an argument that it does not know.
    """
    knobs = {key: value for key, value in arguments.items() if key != "sizes"}
    sizes = {**sizes, **arguments.get("sizes", {})}
    check_sizes("sizes", sizes)
    names = [
        name for name, spec in inspect.signature(generator.generate).parameters.items() if spec.kind is spec.KEYWORD_ONLY
    ]
    names.remove("stream")
    if wrong := sorted(set(knobs).difference(names)):
        raise DatasetError(f"{name!r} does not know {wrong}; its arguments are sizes, {', '.join(names)}.")
    return {
        split: generator.generate(*task, sizes[split], seed, stream=stream, **knobs) for stream, split in enumerate(SPLITS)
    }


def generated_revision(generator: ModuleType, seed: int, arguments: Mapping) -> str:
    """How generated rows were made, in place of a revision."""
    settings = ",".join(f"{key}={value}" for key, value in sorted({**arguments, "seed": seed}.items()))
    return f"generated-{generator.VERSION}({settings})"


def data_root(root: str | os.PathLike | None) -> Path | None:
    """The folder of local data: the one that is given, else that of the environment, if there is one."""
    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    return None if root is None else Path(root)


def read(entry: DatasetEntry, root: str | os.PathLike | None) -> tuple[dict, str]:
    """{source split: table} and the revision of published data or the user's own files."""
    import datasets
    import pyarrow as pa

    root = data_root(root)
    folder = root / entry.folder / (entry.hub_data_dir or "") if root is not None else None
    local = folder is not None and folder.is_dir()
    place = f"the folder {folder}" if folder is not None else f"{ROOT_VARIABLE} is not set"
    if not local and entry.hub_id is None:
        raise DatasetError(
            f"{entry.name!r} is read from your own files, and there are none ({place}). {entry.notes} Set {ROOT_VARIABLE} "
            "or root to the data root."
        )
    try:
        if local:
            configs = datasets.get_dataset_config_names(str(folder))
            loaded = datasets.load_dataset(str(folder), entry.hub_config if entry.hub_config in configs else None)
            files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
            revision = digest_of_files({str(path.relative_to(folder)): path for path in files})
        else:
            place = f"the Hub, {entry.hub_id} at {entry.revision}"
            loaded = datasets.load_dataset(
                entry.hub_id, entry.hub_config, data_dir=entry.hub_data_dir, revision=entry.revision
            )
            revision = entry.revision
    except (OSError, ValueError, RuntimeError, pa.ArrowException, datasets.exceptions.DatasetsError) as error:
        advice = entry.notes
        if entry.hub_id is not None:
            advice = (
                f"Fetch it from the Hub (for use offline, into <root>/{entry.folder}) and set {ROOT_VARIABLE} to <root>."
            )
        raise DatasetError(
            f"Cannot read {entry.name!r} from {place}: {type(error).__name__}: {excerpt(error, 300)} {advice}"
        ) from error
    tables = {split: loaded[split].with_format("arrow")[:] for split in SPLITS if split in loaded}
    if entry.stories:
        tables = {split: pa.table(rows_of_stories(table, entry, split)) for split, table in tables.items()}
    return tables, revision


def digest_of_files(files: Mapping[str, Path]) -> str:
    """The word local and a digest of files by their names and contents, wherever they lie."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items(), key=lambda item: item[1]):
        digest.update(name.encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return f"local-{digest.hexdigest()[:12]}"


def check_sizes(what: str, sizes: Mapping[str, int]) -> None:
    """Raise DatasetError for sizes or limits of splits that there are not, or that are no positive whole numbers."""
    for split, size in sizes.items():
        if split not in SPLITS:
            raise DatasetError(f"{what} names the split {split!r}; there are {', '.join(SPLITS)}.")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise DatasetError(f"{what}[{split!r}] must be a positive number of rows; {size!r} was given.")
