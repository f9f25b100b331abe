"""Records, run folders and checkpoints: what the project keeps, damaged where it lies."""

import json
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path
from random import Random
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import attnfaith
from attnfaith import record
from attnfaith.reporting import sections
from tests import records, sequence_records
from tests.campaigns.fuzz.command_line import called
from tests.campaigns.fuzz.hostile import as_json, changed, damaged, displaced
from tests.campaigns.fuzz.probe import Case
from tests.figures import REPORT, one_small_figure


MEMORY = 6 * 2**30  # bytes that a damaged checkpoint may make a library ask for


def used(made: attnfaith.Record) -> None:
    """Everything that a record says of itself without drawing figures."""
    repr(made), made._repr_html_()
    made.show(0)._repr_html_()
    if made.of_sequences:
        [made.alignment(name) for name in made.measures]
    else:
        made.agreement(), made.scores(), made.per_text(), made.summary()
    sections.frames(made.cells)


class Records:
    """A parquet file of a record: its bytes, its columns, their types and values, and the settings in its metadata."""

    name, inputs, batch = "records", 1500, 125

    def __init__(self, folder: Path):
        self.tables = [records.draw(5), records.draw(3, classes=3, measures=()), sequence_records.draw(3)]
        self.contents = []
        for number, table in enumerate(self.tables):
            record.save(table, folder / f"{number}.parquet")
            self.contents.append((folder / f"{number}.parquet").read_bytes())

    def case(self, chance: Random, folder: Path) -> Case:
        path, number = folder / "record.parquet", chance.randrange(len(self.tables))
        if (kind := chance.random()) < 0.03:
            path.write_bytes(b"")
            said = displaced(chance, path)
        elif kind < 0.25:
            content, said = damaged(chance, self.contents[number])
            path.write_bytes(content)
        else:
            table, said = _other(chance, pq.read_table(pa.BufferReader(self.contents[number])))
            try:
                pq.write_table(table, path)
            except (pa.ArrowException, ValueError):  # no file holds such a type
                return self.case(chance, folder)
        return Case(lambda: used(attnfaith.load(path)), said, path if kind < 0.03 else None)


def _other(chance: Random, table: pa.Table) -> tuple[pa.Table, str]:
    """A table with a column of other values, type, name or place, other rows or other metadata; and what was done."""
    own = [name for name in table.column_names if name not in record.IDENTITY_COLUMNS]
    name = chance.choice(own if chance.random() < 0.8 else table.column_names)
    place, kind = table.column_names.index(name), chance.randrange(16)
    field = table.schema.field(name)
    if kind == 0:
        return table.drop_columns([name]), f"without {name}"
    if kind == 1:
        other = chance.choice(("attention", "tokens", "probs", "label", "importance_nothing", "", "alignment_attention"))
        return table.rename_columns(
            [other if one == name else one for one in table.column_names]
        ), f"{name} is called {other!r}"
    if kind == 2:
        rows = chance.choice(([], [0], [0, 0], [table.num_rows - 1]))
        return table.take(pa.array(rows, pa.int64())), f"rows {rows}"
    if kind == 3:
        key = chance.choice([*(table.schema.metadata or {b"attnfaith": b""})])
        metadata = dict(table.schema.metadata or {})
        try:
            tree, said = changed(chance, json.loads(metadata.get(key, b"[]")))
            metadata[key] = as_json(tree)
        except ValueError:
            metadata[key], said = damaged(chance, metadata[key])
        return table.replace_schema_metadata(metadata), f"metadata {key}: {said}"
    if kind == 4 and field.metadata:
        key = chance.choice([*field.metadata])
        content, said = damaged(chance, field.metadata[key])
        made = field.with_metadata({**field.metadata, key: content})
        return table.set_column(place, made, table.column(name)), f"{name}: metadata {key}: {said}"
    if kind == 5:
        other = chance.choice((pa.int8(), pa.float16(), pa.string(), pa.list_(pa.string()), pa.binary(), pa.null()))
        nothing = pa.array([None] * table.num_rows, other)
        return table.set_column(place, field.with_type(other), nothing), f"{name} is nothing, of type {other}"
    rows, said = changed(chance, table.column(name).to_pylist())
    for column in (field.type, None):
        try:
            array = pa.array(rows, column)
            if len(array) == table.num_rows:
                return table.set_column(place, field.with_type(array.type), array), f"{name}: {said}"
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
            continue
    return table.append_column(field, table.column(name)), f"{name} twice"


TINY = """
name: tiny
output_dir: run
seed: 3
data: {arguments: {length: [4, 8], vocabulary_size: 40, sizes: {train: 40, validation: 16, test: 6}}}
model: {embedding_size: 8, hidden_size: 8}
training: {num_train_epochs: 1, learning_rate: 1e-2, arguments: {disable_tqdm: true}}
measure: {producers: [gradient]}
"""
FILES = (
    "run.json",
    "recipe.yaml",
    "record.parquet",
    "model/config.json",
    "model/tokenizer.json",
    "model/tokenizer_config.json",
)
RUN_COMMANDS = (
    ("show", "run"), ("table", "run"), ("compare", "run", "run"), ("push", "run", "--to", "me", "--dry-run"),
    ("cards", "run", "--to", "me"), ("eraser", "run", "--output", "new"),
    ("measure", "run", "--output", "new.parquet"), ("view", "run", "a text", "--output", "new.html"),
    ("train", "--config", "run/recipe.yaml", "--resume_from_checkpoint"),
)  # fmt: skip


class Runs:
    """The folder of a run with one or two files damaged, as every command that takes a run reads it."""

    name, inputs, batch = "runs", 400, 50

    def __init__(self, folder: Path):
        from attnfaith import recipes, runs

        recipe = recipes.parse(TINY, [f"--output_dir={folder / 'run'}"])
        folder.mkdir(exist_ok=True)
        runs.run(recipe)
        self.folder = folder / "run"
        shutil.rmtree(self.folder / "report", ignore_errors=True)
        text = (self.folder / "recipe.yaml").read_text().replace(str(self.folder), "run")
        (self.folder / "recipe.yaml").write_text(text)

    def case(self, chance: Random, folder: Path) -> Case:
        shutil.copytree(self.folder, folder / "run")
        said = []
        for name in chance.sample(FILES, chance.choice((1, 1, 2))):
            said.append(f"{name}: {_damage(chance, folder / 'run' / name)}")
        command = chance.choice(RUN_COMMANDS)

        def act():
            with mock.patch(REPORT, one_small_figure()):  # the other figures take seconds, and read nothing else
                return called(command, folder, ("new.parquet", "new.html"))

        return Case(act, f"{' '.join(command)} with {'; '.join(said)}")


def _damage(chance: Random, path: Path) -> str:
    """Damage a file where it lies; what was done."""
    if (kind := chance.random()) < 0.1:
        return displaced(chance, path)
    if path.suffix == ".json" and kind < 0.6:
        tree, said = changed(chance, json.loads(path.read_bytes()))
        path.write_bytes(as_json(tree))
    else:
        content, said = damaged(chance, path.read_bytes())
        path.write_bytes(content)
    return said


class Checkpoints:
    """The folder of a model, of this package or of transformers, with a file damaged, opened and asked about a text."""

    name, inputs, batch = "checkpoints", 500, 50

    def __init__(self, folder: Path):
        from tests.campaigns.fuzz.models import affine, stack

        self.folders = [affine(folder / "affine"), stack(folder / "stack")]

    def case(self, chance: Random, folder: Path) -> Case:
        shutil.copytree(chance.choice(self.folders), folder / "model")
        names = sorted(path.name for path in (folder / "model").iterdir())
        name = chance.choice([*names, "config.json", "config.json", "tokenizer_config.json"])
        said = _damage(chance, folder / "model" / name)

        def act():
            with bounded_memory():
                made = attnfaith.measure(
                    folder / "model", ["the old ship"], measures=["gradient"], experiments=[], progress=False
                )
            assert len(made) == 1

        return Case(act, f"{name}: {said}")


@contextmanager
def bounded_memory():
    """Within, memory beyond MEMORY is refused: what a damaged file asks for must not take that of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_in_use() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _in_use() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").is_file() else 0
    return pages * resource.getpagesize()
