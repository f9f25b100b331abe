"""Where the rows of a data set come from: a folder, the Hub, or a generator of this package."""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from attnfaith.data.registry import SPLITS, DatasetEntry
from attnfaith.support.errors import DatasetError, excerpt


ROOT_VARIABLE = "ATTNFAITH_DATA"
"""Environment variable that names the folder of local data, laid out like the repositories on the Hub."""


def data_root(root: str | os.PathLike | None) -> Path | None:
    """The folder of local data: the one that is given, else that of the environment, if there is one."""
    root = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    return None if root is None else Path(root)


def check_sizes(what: str, sizes: Mapping[str, int]) -> None:
    """Raise DatasetError for sizes or limits of splits that there are not, or that are no positive whole numbers."""
    for split, size in sizes.items():
        if split not in SPLITS:
            raise DatasetError(f"{what} names the split {split!r}; there are {', '.join(SPLITS)}.")
        if type(size) is not int or size < 1:
            raise DatasetError(f"{what}[{split!r}] must be a positive number of rows; {size!r} was given.")


def draw(rows: np.ndarray, limit: int, seed: int, split: str) -> np.ndarray:
    """A random `limit` of the rows, in their order."""
    if len(rows) <= limit:
        return rows
    rng = np.random.default_rng([seed, SPLITS.index(split)])
    return np.sort(rng.permutation(rows)[:limit])


def generate(
    name: str, generator: Callable, task: tuple, seed: int, arguments: Mapping, sizes: Mapping[str, int]
) -> dict[str, list[dict]]:
    """{split: rows} of a generator.

    task: what it takes before the number of rows. arguments: its keyword arguments, and sizes={"train": 2000} in place of
    `sizes`. Raises DatasetError for an argument that it does not know.
    """
    knobs = {key: value for key, value in arguments.items() if key != "sizes"}
    sizes = {**sizes, **arguments.get("sizes", {})}
    check_sizes("sizes", sizes)
    parameters = inspect.signature(generator).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    names.remove("stream")
    if wrong := sorted(set(knobs).difference(names)):
        raise DatasetError(f"{name!r} does not know {wrong}; its arguments are sizes, {', '.join(names)}.")
    return {split: generator(*task, sizes[split], seed, stream=stream, **knobs) for stream, split in enumerate(SPLITS)}


def generated_revision(version: int, seed: int, arguments: Mapping) -> str:
    """How generated rows were made, in place of a revision."""
    settings = ",".join(f"{key}={value}" for key, value in sorted({**arguments, "seed": seed}.items()))
    return f"generated-{version}({settings})"


def read(entry: DatasetEntry, root: str | os.PathLike | None) -> tuple[dict, str]:
    """{source split: table} of published data, and their revision."""
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
        tables = {split: questions(table, f"{entry.name!r}, {split} split") for split, table in tables.items()}
    return tables, revision


def digest_of_files(files: Mapping[str, Path]) -> str:
    """The word local and a digest of files by their names and contents, wherever they lie."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items(), key=lambda item: item[1]):
        digest.update(name.encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return f"local-{digest.hexdigest()[:12]}"


def questions(table, place: str):
    """A row for each question of a table of bAbI's stories, with the statements of its story up to there.

    A row of the table is a story, its lines under `story`, as a struct of lists or a list of structs. Full stop and question
    mark become words of their own. Columns: text, text_pair (the question), label (the answer, a word), rationale: 0/1 per
    word of the text, 1 on the supporting statements with their full stop. Raises DatasetError, with the row, for a story of
    another form and for a question without supporting statements.
    """
    import pyarrow as pa

    if "story" not in table.column_names:
        raise DatasetError(f"{place} needs a column 'story'; it has {table.column_names}.")
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
                rows.append(
                    {
                        "text": " ".join(word for statement in statements.values() for word in statement),
                        "text_pair": " ".join(words),
                        "label": line["answer"],
                        "rationale": [int(key in facts) for key, statement in statements.items() for _ in statement],
                    }
                )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DatasetError(
                f"{place}, row {number}: a story is a list of lines, each with id, type (0 or 1), text, supporting_ids and "
                f"answer, a question after the statements that support it; it is {excerpt(story)}."
            ) from error
    return pa.Table.from_pylist(rows)
