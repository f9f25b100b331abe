"""Records do not depend on batches, processes or interruptions; what cannot be measured is refused."""

import os
import re
import subprocess
import sys

import datasets
import numpy as np
import pytest
import torch

from attnfaith import record
from attnfaith.importance.gradients import Gradient
from attnfaith.measurement import engine, registry
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError
from attnfaith.record import Column, Identity
from tests.measuring import run
from tests.stages import Text, inputs_of


pytestmark = pytest.mark.slow


CELL = Identity("tiny", "rev", "test", 7)
LENGTHS = [5, 0, 9, 3, 3, 12, 1, 7, 9, 2, 4, 6, 8, 5, 10, 3, 2, 11, 0, 6]
NAMES = ["gradient", "gradient_norm", "leave_one_out"]


@pytest.fixture
def texts(tiny_rows):
    def make(lengths=LENGTHS, **kwargs):
        return datasets.Dataset.from_list(tiny_rows(lengths, **kwargs))

    return make


@pytest.fixture
def go(tiny_model, texts, tmp_path, monkeypatch):
    """Measure the usual texts with the usual model, into few small shards; the record."""

    def run(name="r.parquet", *, model=None, dataset=None, producers=("gradient",), cell=CELL, shard=5, **options):
        monkeypatch.setitem(engine.SIZES, "texts", (8192, 64, shard))
        options = {"batch_tokens": 24, "progress": False, **options}
        model, dataset = tiny_model() if model is None else model, texts() if dataset is None else dataset
        return record.load(measure(model, dataset, cell, list(producers), tmp_path / name, **options))

    return run


def same(first, second, atol):
    """The same rows in the same order: importance, attention and predictions within atol, all else to the bit."""
    assert first.column_names == second.column_names and first.num_rows == second.num_rows
    for name in first.column_names:
        if name.startswith(("importance", "attention", "probs")):
            for values, expected in zip(record.rows(first, name), record.rows(second, name), strict=True):
                np.testing.assert_allclose(values, expected, atol=atol, rtol=1e-5, err_msg=name)
        else:
            assert first.column(name).equals(second.column(name)), name


def test_rows_and_values_are_those_of_the_data_and_of_each_text_alone(go, texts, tiny_model, tiny_rows, tiny_batch):
    """The model is measured in eval mode, and its mode is back afterwards."""
    model = tiny_model(dropout=0.5).train()
    dataset = texts().map(lambda row: {"rationale": [0] * len(row["tokens"])})
    dataset = dataset.map(lambda row, i: {"truncated": i % 3 == 0}, with_indices=True)
    table = go(model=model, dataset=dataset)
    assert model.training
    model.eval()
    for name, column in {"label": "labels"}.items() | {(n, n) for n in ("instance_id", "tokens", "truncated", "rationale")}:
        assert table.column(name).to_pylist() == list(dataset[column]), name
    identity = {"seed": 7, "texts": "rev", "encoder": "bilstm", "alignment": "additive", "vectors": "random(0.5)"}
    for name, value in identity.items():
        assert table.column(name).unique().to_pylist() == [value]
    for number, row in enumerate(tiny_rows(LENGTHS)):
        text, (gradient,) = Text(model, tiny_batch([row])), run(Gradient, model, tiny_batch([row]))["importance_gradient"]
        expected = {"probs": text.probs(text.attention), "attention": text.attention, "importance_gradient": gradient}
        for name, values in expected.items():
            np.testing.assert_allclose(record.rows(table, name)[number], values, atol=1e-6)


def test_other_measures_change_nothing_in_a_column(go):
    """Not a bit of it."""
    names, others = ["attention", "probs", "importance_leave_one_out"], ["gradient", "permutation", "gradient_x_input"]
    alone, among = go("alone.parquet", producers=["leave_one_out"]), go(producers=[*others, "leave_one_out"])
    assert alone.select(names).equals(among.select(names))


def test_documents_by_sentences(go, texts, tiny_model, tiny_batch):
    model, dataset = tiny_model(encoder="bigru", hierarchy="sentence"), texts(hierarchy="sentence")
    marks = [[[len(word) % 2 for word in sentence] for sentence in row] for row in dataset["words"]]
    dataset = dataset.add_column("rationale", [[max(sentence) for sentence in row] for row in marks])
    table = go(model=model, dataset=dataset, producers=NAMES)
    identity = record.from_row(table.to_pylist()[0])
    assert (identity.encoder, identity.hierarchy, identity.level) == ("bigru", "sentence", "sentence")
    assert table.column("words").to_pylist() == list(dataset["words"])
    for number, row in enumerate(dataset):
        batch = tiny_batch([row])
        with torch.no_grad():
            output, items = model(**inputs_of(batch)), model.items(batch["input_ids"])[0]
        attention = record.rows(table, "attention")[number]
        np.testing.assert_allclose(attention, output.attention[0, : len(attention)], atol=1e-6)
        word_attention = [weight for weights in record.rows(table, "word_attention")[number] for weight in weights]
        np.testing.assert_allclose(word_attention, output.word_attention[0, items >= 0], atol=1e-6)


def fake(monkeypatch, columns, compute, name="fake"):
    """A measure that is registered within a test."""

    def call(self, subject, batch, *, seed):
        return compute(batch)

    whole = {"__doc__": "A measure.", "name": name, "cost": "nothing", "columns": columns, "__call__": call}
    registry.classes()
    monkeypatch.setattr(registry, "_CLASSES", {reads: dict(classes) for reads, classes in registry._CLASSES.items()})
    registry.register(type("Fake", (registry.Measure,), whole))


def test_tests_of_scores_come_after_all_that_make_them(go, monkeypatch):
    """Named first, they judge attention and every measure of inputs; a signed one by its size too, another order."""

    def scores(batch):
        rows = [np.resize([1.0, -3.0, 2.0], length) for length in (batch["attention_mask"].sum(1) - 2).tolist()]
        return {"importance_a": rows, "importance_b": rows}

    columns = {"importance_a": Column(("T",), signed=True, doc="evidence"), "importance_b": Column(("T",), doc="a size")}
    fake(monkeypatch, columns, scores, "signed")
    options = {"rationale_erasure": {"shares": [0.5]}}
    table = go(producers=["rationale_erasure", "leave_one_out", "signed"], options=options)
    names = table.column("rationale_erasure_measures").to_pylist()
    assert names == [["attention", "leave_one_out", "a", "absolute_a", "b"]] * 20
    alone = go("alone.parquet", producers=["rationale_erasure"], options=options)
    assert alone.column("rationale_erasure_measures").to_pylist() == [["attention"]] * 20
    probs = [record.rows(part, "rationale_erasure_kept_probs") for part in (table, alone)]
    for values, expected in zip(*probs, strict=True):
        np.testing.assert_allclose(values[:1], expected, atol=1e-6)
    defined = [row for row in probs[0] if not np.isnan(row).any()]
    assert all(np.array_equal(row[2], row[4]) for row in defined)
    assert any(not np.array_equal(row[2], row[3]) for row in defined)


def test_attention_that_is_given_takes_the_place_of_the_models(go, texts, tiny_model, tiny_batch, tmp_path):
    """Without measures, which would measure the model's own; such outputs are read back by instance."""
    dataset, random = texts(pair=True), np.random.default_rng(0)
    model = tiny_model(query="text", readout="tanh")
    guides = {
        name: random.dirichlet(np.ones(len(tokens))).astype(np.float32) if tokens else np.empty(0, np.float32)
        for name, tokens in zip(dataset["instance_id"], dataset["tokens"], strict=True)
    }
    with pytest.raises(MeasurementError, match="'gradient'"):
        go(attention=guides)
    assert list(tmp_path.iterdir()) == []  # no shards that the next measurement would be refused for
    table = go(model=model, dataset=dataset, producers=[], attention=dict(reversed(guides.items())))
    for number, row in enumerate(dataset):
        np.testing.assert_array_equal(record.rows(table, "attention")[number], guides[row["instance_id"]])
        probs = Text(model, tiny_batch([row])).probs(guides[row["instance_id"]])
        np.testing.assert_allclose(record.rows(table, "probs")[number], probs, atol=1e-6)
    assert len(record.settings(table)[0]["attention"]) == 64


@pytest.mark.parametrize("options", [{"batch_tokens": 10_000, "shard": 512}, {"batch_tokens": 1}])
def test_batches_and_shards_do_not_matter(go, tiny_model, options):
    model = tiny_model(projection="sparsemax")
    same(go("a.parquet", model=model, producers=NAMES), go("b.parquet", model=model, producers=NAMES, **options), atol=1e-6)


def test_batches_and_shards_are_bounded_and_whole():
    lengths = np.array(LENGTHS) + 2
    shards = engine.in_shards(lengths, 24, 64, 5)
    batches = [batch for shard in shards for batch in shard]
    assert np.concatenate(batches).tolist() == np.argsort(lengths, kind="stable").tolist()
    assert all(len(batch) * lengths[batch].max() <= 24 for batch in batches)
    assert all(sum(map(len, shard)) <= 5 or len(shard) == 1 for shard in shards)
    assert all(len(batch) == 1 for shard in engine.in_shards(lengths, 1, 64, 5) for batch in shard)
    assert max(len(batch) for shard in engine.in_shards(np.full(200, 3), 10**6, 64, 128) for batch in shard) == 64


class Counter:
    """The batches that are measured; from number `stop_at` on there is a KeyboardInterrupt."""

    def __init__(self):
        self.batches, self.stop_at, self.read = [], None, engine._read_texts

    def __call__(self, model, batch, rows, *arguments):
        if len(self.batches) == self.stop_at:
            raise KeyboardInterrupt
        self.batches.append(rows["instance_id"])
        return self.read(model, batch, rows, *arguments)

    def stop(self, at):
        self.batches, self.stop_at = [], at


@pytest.fixture
def counter(monkeypatch):
    counter = Counter()
    monkeypatch.setattr(engine, "_read_texts", counter)
    return counter


@pytest.mark.parametrize("stop_at", [0, 1, 7])
def test_a_measurement_that_was_stopped_goes_on(go, counter, tmp_path, stop_at):
    """The default measures hold an option that is a list of numbers: the shares of `comprehensiveness`."""
    names = ["gradient", "leave_one_out", "comprehensiveness"]
    whole, old = go("whole.parquet", producers=names), go()
    counter.stop(stop_at)
    with pytest.raises(KeyboardInterrupt):
        go(producers=names)
    assert record.equal(record.load(tmp_path / "r.parquet"), old)  # it stays until the new one is whole
    shards = [record.load(path) for path in (tmp_path / "r.parquet.shards").glob("*.parquet")]
    rows = {name for table in shards for name in table.column("instance_id").to_pylist()}
    counter.stop(None)
    assert record.equal(go(producers=names), whole)
    again = [name for batch in counter.batches for name in batch]
    assert not rows & set(again) and len(rows) + len(again) == 20  # whole shards are not measured again
    assert bool(shards) == (stop_at > 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.parquet", "whole.parquet"]


CHANGES = {  # another value in the place of one that is read: the lengths stay
    "input_ids": lambda row: {"input_ids": [2, *([7] * len(row["tokens"])), 3]},
    "labels": lambda row: {"labels": 1 - row["labels"]},
    "tokens": lambda row: {"tokens": [f"{word}!" for word in row["tokens"]]},
    "truncated": lambda row: {"truncated": True},
    "rationale": lambda row: {"rationale": [0] * len(row["tokens"])},
}


@pytest.mark.parametrize(
    ("second", "different"),
    [
        ({"model": {"seed": 1}}, "model"),
        ({"model": {"projection": "sparsemax"}}, "identity, model"),
        ({"producers": ["leave_one_out"]}, "options, producers"),
        ({"seed": 1}, "seed"),
        ({"cell": Identity("tiny", "rev", "validation", 7)}, "identity"),
        ({"batch_tokens": 30}, "batch_tokens, shards"),
        *(({"change": column}, "data") for column in CHANGES),
    ],
)
def test_shards_of_another_measurement_are_refused(go, texts, counter, tiny_model, tmp_path, second, different):
    def begin(model=None, change=None, **options):
        dataset = texts().map(lambda row: {"rationale": [1] * len(row["tokens"])})
        dataset = dataset.map(CHANGES[change]) if change else dataset
        return go(model=tiny_model(**(model or {})), dataset=dataset, **options)

    counter.stop(5)
    with pytest.raises(KeyboardInterrupt):
        begin()
    counter.stop(None)
    before = sorted((tmp_path / "r.parquet.shards").iterdir())
    with pytest.raises(MeasurementError, match=rf"another measurement \(different: {different}\)"):
        begin(**second)
    assert sorted((tmp_path / "r.parquet.shards").iterdir()) == before
    begin()
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


PADDING = {"deeplift": {"baseline": "padding"}}


@pytest.mark.parametrize(
    ("model", "change", "options", "message"),
    [
        ({"num_labels": 1}, None, {}, "num_labels=1"),
        ({}, lambda rows: rows.select([]), {}, "no texts"),
        ({}, lambda rows: rows.remove_columns(["tokens", "length"]), {}, r"\['length', 'tokens'\]"),
        ({}, None, {"name": "."}, "is a folder"),
        ({}, None, {"producers": ["gradient", "gradient"]}, "'gradient' is named twice"),
        ({"hierarchy": "sentence"}, None, {}, "hierarchy='sentence'"),
        ({}, None, {"producers": ["occlusion"], "options": {"occlusion": {"target": 2}}}, "the model has no class 2"),
        ({"pad_token_id": None}, None, {"producers": ["deeplift"], "options": PADDING}, "no pad_token_id"),
    ],
)
def test_refusals_come_before_any_work(go, texts, tiny_model, counter, tmp_path, model, change, options, message):
    with pytest.raises(MeasurementError, match=message):
        go(model=tiny_model(**model), dataset=(change or (lambda rows: rows))(texts()), **options)
    assert not counter.batches and not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["gold", {"of": 1, "against": 0}])
def test_no_explanation_of_one_class_is_judged_by_another(target):
    options = {"occlusion": {"target": target}, "lrp": {"target": "predicted"}}
    assert [measure.name for measure in registry.build(["occlusion", "lrp"], options)] == ["occlusion", "lrp"]
    assert registry.build(["occlusion", "lrp", "soft_erasure"], {"lrp": {"target": "predicted"}})
    message = (
        rf"'occlusion' explains target={re.escape(repr(target))}, and \['soft_erasure'\] would judge it by the predicted"
    )
    with pytest.raises(MeasurementError, match=message):
        registry.build(["occlusion", "lrp", "soft_erasure"], options)


def test_measures_that_do_not_give_what_they_declare(go, monkeypatch):
    declared = {"importance_a": Column(("T",))}
    fake(monkeypatch, declared, lambda batch: {"importance_b": []})
    with pytest.raises(MeasurementError, match=r"'fake' declares \['importance_a'\] and returned \['importance_b'\]"):
        go(producers=["fake"])
    fake(monkeypatch, declared, lambda batch: {"importance_a": [[1.0] * 99] * len(batch["instance_id"])}, "longer")
    with pytest.raises(record.RecordError, match="'importance_a' has 99 values"):
        go("longer.parquet", producers=["longer"])
    fake(monkeypatch, {"importance_gradient": Column(("T",))}, lambda batch: {}, "two")
    with pytest.raises(MeasurementError, match="'two' declares columns that another measure has"):
        go(producers=["gradient", "two"])


TWO = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",  # any free port
]  # fmt: skip


def test_two_processes_write_the_same_record(tiny_recipe, tmp_path):
    from attnfaith import runs

    sizes = {"train": 64, "validation": 24, "test": 300}  # three shards, two for the first process
    recipe = tiny_recipe(
        training__num_train_epochs=1,
        data__arguments={"length": [2, 5], "vocabulary_size": 40, "sizes": sizes},
        measure__producers=["gradient", "leave_one_out"],
    )
    folder, state = tmp_path / "run", engine.PartialState(cpu=True)
    with runs.folder.held(folder, "a test", state):
        runs.folder.prepare(folder, recipe)
        work = runs.preparation.Run(recipe, folder, state)
        runs.train.train(work, runs.training_arguments(recipe))
    alone = record.load(runs.measure_run(folder, recipe))
    command = [sys.executable, *TWO, "-m", "attnfaith", "measure", str(folder), "--output", str(tmp_path / "two.parquet")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    two = record.load(tmp_path / "two.parquet")
    assert record.equal(two, alone)
    assert done.stdout.count("record: ") == 1 and record.settings(two)[0]["shards"] == 3
    assert not (tmp_path / "two.parquet.shards").exists()
