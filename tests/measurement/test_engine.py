"""Records do not depend on batches, processes or interruptions; what cannot be measured is refused."""

import os
import re
import subprocess
import types
from itertools import chain

import datasets
import numpy as np
import pytest
import torch

from attnfaith import record
from attnfaith.data.collation import pad_batch
from attnfaith.data.fingerprint import digest_model
from attnfaith.importance.gradients import Gradient
from attnfaith.measurement import engine, registry
from attnfaith.measurement.engine import measure
from attnfaith.measurement.registry import MeasurementError
from attnfaith.record import Column, Identity
from attnfaith.reporting.cells import split_cells
from attnfaith.runs.base import read_outputs
from tests.measuring import run


pytestmark = pytest.mark.slow


CELL = Identity("tiny", "rev", "test", 7)
LENGTHS = [5, 0, 9, 3, 3, 12, 1, 7, 9, 2, 4, 6, 8, 5, 10, 3, 2, 11, 0, 6]
NAMES = ["gradient", "gradient_norm", "leave_one_out"]


CHANGES = {  # another value in the place of one that is read: the lengths stay
    "input_ids": lambda row: {"input_ids": [2, *([7] * len(row["tokens"])), 3]},
    "labels": lambda row: {"labels": 1 - row["labels"]},
    "tokens": lambda row: {"tokens": [f"{word}!" for word in row["tokens"]]},
    "truncated": lambda row: {"truncated": True},
    "rationale": lambda row: {"rationale": [0] * len(row["tokens"])},
}


@pytest.fixture
def texts(tiny_rows):
    def make(lengths=LENGTHS, **kwargs):
        return datasets.Dataset.from_list(tiny_rows(lengths, **kwargs))

    return make


@pytest.fixture
def go(tiny_model, texts, tmp_path):
    """Measure the usual texts with the usual model, into few small shards; the record."""

    def run(name="r.parquet", *, model=None, dataset=None, cell=CELL, producers=("gradient",), **options):
        options = {"shard_instances": 5, "batch_tokens": 24, "progress": False, **options}
        path = measure(
            tiny_model() if model is None else model,
            texts() if dataset is None else dataset,
            cell,
            list(producers),
            tmp_path / name,
            **options,
        )
        return record.load(path)

    return run


def same(one, other, atol=None):
    """The same rows in the same order, to the bit or within atol, whatever the settings say."""
    assert one.column_names == other.column_names and one.num_rows == other.num_rows
    for name in one.column_names:
        if atol is None or not name.startswith(("importance", "attention", "probs")):
            assert one.column(name).equals(other.column(name)), name
        else:
            for mine, theirs in zip(record.rows(one, name), record.rows(other, name), strict=True):
                np.testing.assert_allclose(mine, theirs, atol=atol, rtol=1e-5, err_msg=name)


def alone(model, row, tiny_batch):
    """The model's output of one text."""
    batch = tiny_batch([row])
    with torch.no_grad():
        return model(batch["input_ids"], batch["attention_mask"])


# ------------------------------------------------------------------------------------------------ what a record holds


def test_rows_are_those_of_the_data_set(go, texts):
    dataset = texts().map(lambda row: {"rationale": [0] * len(row["tokens"])})
    dataset = dataset.map(lambda row, i: {"truncated": i % 3 == 0}, with_indices=True)
    table = go(dataset=dataset, producers=NAMES)
    for name, column in {"label": "labels"}.items() | {(n, n) for n in ("instance_id", "tokens", "truncated", "rationale")}:
        assert table.column(name).to_pylist() == list(dataset[column]), name
    named = {"seed": 7, "texts": "rev", "encoder": "bilstm", "alignment": "additive", "projection": "softmax"}
    for name, value in {**named, "vectors": "random(0.5)"}.items():
        assert table.column(name).unique().to_pylist() == [value]
    assert "rationale" not in go("other.parquet", producers=[]).column_names


def test_values_are_those_of_each_text_alone(go, tiny_model, tiny_rows, tiny_batch):
    model = tiny_model()
    table = go(model=model)
    for number, row in enumerate(tiny_rows(LENGTHS)):
        output = alone(model, row, tiny_batch)
        np.testing.assert_allclose(record.rows(table, "probs")[number], output.logits.softmax(-1)[0], atol=1e-6)
        attention = output.attention[0, 1 : 1 + len(row["tokens"])]
        np.testing.assert_allclose(record.rows(table, "attention")[number], attention, atol=1e-6)
        (gradient,) = run(Gradient, model, tiny_batch([row]))["importance_gradient"]
        np.testing.assert_allclose(record.rows(table, "importance_gradient")[number], gradient, atol=1e-6)


def test_documents_by_sentences_and_by_words(go, texts, tiny_model, tiny_batch):
    """Word attention is that of its sentence times its weight within it; both levels are one model on the same texts."""
    model, dataset = tiny_model(encoder="bigru", hierarchy="sentence"), texts(hierarchy="sentence")
    marks = [[[len(word) % 2 for word in sentence] for sentence in row] for row in dataset["words"]]
    dataset = dataset.add_column("rationale", [[max(sentence) for sentence in row] for row in marks])
    dataset = dataset.add_column("word_rationale", marks)
    levels = {
        level: go(f"{level}.parquet", model=model, dataset=dataset, producers=[*NAMES, "permutation"], level=level)
        for level in ("sentence", "word")
    }
    for level, table in levels.items():
        identity = record.from_row(table.to_pylist()[0])
        assert (identity.encoder, identity.hierarchy, identity.level) == ("bigru", "sentence", level)
    sentences, words = levels["sentence"], levels["word"]
    assert sentences.column("words").to_pylist() == list(dataset["words"])
    assert words.column("tokens").to_pylist() == [list(chain(*row)) for row in dataset["words"]]
    assert [row.tolist() for row in record.rows(words, "rationale")] == [list(chain(*row)) for row in marks]
    assert {"words", "word_attention"}.isdisjoint(words.column_names)
    columns = (record.rows(sentences, name) for name in ("attention", "word_attention", "importance_leave_one_out"))
    rows = zip(dataset, *columns, record.rows(words, "attention"), record.rows(words, "probs"), strict=True)
    for row, attention, word_attention, importance, by_word, probs in rows:
        assert len(attention) == len(importance) == len(word_attention) == len(row["tokens"])
        output, items = alone(model, row, tiny_batch), model.items(tiny_batch([row])["input_ids"])[0]
        within = output.word_attention[0, items >= 0]
        np.testing.assert_allclose(attention, output.attention[0, : len(attention)], atol=1e-6)
        np.testing.assert_allclose([weight for one in word_attention for weight in one], within, atol=1e-6)
        np.testing.assert_allclose(by_word, output.attention[0, items[items >= 0]] * within, atol=1e-6)
        np.testing.assert_allclose(probs, output.logits.softmax(-1)[0], atol=1e-6)
    together = record.concatenate([words, sentences])
    assert sorted(cell.identity.level for cell in split_cells(together)) == ["sentence", "word"]


@pytest.mark.parametrize("target", ["gold", 0, {"of": 1, "against": 0}])
def test_no_explanation_of_one_class_is_judged_by_another(target):
    options = {"occlusion": {"target": target}, "lrp": {"target": "predicted"}}
    alone = ["occlusion", "lrp"]
    assert [one.name for one in registry.build(alone, options)] == alone
    for test in ("rationale_erasure", "soft_erasure"):
        assert registry.build([*alone, "permutation", test], {"lrp": {"target": "predicted"}})
        message = rf"'occlusion' explains target={re.escape(repr(target))}, and \['{test}'\] would judge it by the predicted"
        with pytest.raises(MeasurementError, match=message):
            registry.build([*alone, test], options)


@pytest.mark.parametrize(
    ("producer", "options", "model", "message"),
    [
        (
            "exact_contribution",
            {},
            {"readout": "tanh"},
            "'exact_contribution' needs 'affine read-out'.*can have: .*integrated_gradients",
        ),
        ("occlusion", {"target": 2}, {}, "'occlusion': target=2: class 2 is no possible answer of instance 'tiny/test/0'"),
        ("occlusion", {"target": "gold"}, {}, "'occlusion': target='gold', and instance 'tiny/test/3' has no label"),
        ("integrated_gradients", {"baseline": "padding"}, {"pad_token_id": None}, "the model has no pad_token_id"),
    ],
)
def test_what_cannot_be_measured_is_said_before_any_work(
    go, texts, tiny_model, counted, tmp_path, producer, options, model, message
):
    rows = [{**row, "labels": None if row["instance_id"] == "tiny/test/3" else 0} for row in texts()]
    with pytest.raises(MeasurementError, match=message):
        go(
            model=tiny_model(**model),
            dataset=datasets.Dataset.from_list(rows),
            producers=[producer],
            options={producer: options},
        )
    assert not counted.done and not list(tmp_path.iterdir())


def test_the_model_is_measured_in_eval_mode_and_given_back(go, tiny_model):
    model = tiny_model(dropout=0.5).train()
    found = go(model=model)
    assert model.training
    same(found, go("b.parquet", model=model.eval()))


# ------------------------------------------------------------------------------------------------ given attention


def guides(dataset, seed=0):
    generator = np.random.default_rng(seed)
    return {
        name: generator.dirichlet(np.ones(len(tokens))).astype(np.float32) if tokens else np.empty(0, np.float32)
        for name, tokens in zip(dataset["instance_id"], dataset["tokens"], strict=True)
    }


@pytest.mark.parametrize(("pair", "hierarchy"), [(False, "none"), (True, "none"), (False, "sentence")])
def test_given_attention_takes_the_place_of_the_models(go, texts, tiny_model, pair, hierarchy):
    model = tiny_model(**({"query": "text", "readout": "tanh"} if pair else {}), hierarchy=hierarchy)
    dataset = texts(pair=pair, hierarchy=hierarchy)
    given = guides(dataset)
    table = go(model=model, dataset=dataset, producers=[], attention=dict(reversed(given.items())))
    own = go("own.parquet", model=model, dataset=dataset, producers=[])
    for row, attention, probs in zip(dataset, record.rows(table, "attention"), record.rows(table, "probs"), strict=True):
        np.testing.assert_array_equal(attention, given[row["instance_id"]])
        with torch.no_grad():
            ids = {key: row[key] for key in ("input_ids", "token_type_ids") if key in row}
            hidden, mask, query = model.encode(**pad_batch([ids]))
            weights = torch.zeros(mask.shape).masked_scatter(mask, torch.tensor(attention))
            np.testing.assert_allclose(probs, model.decode(hidden, weights, query).softmax(-1)[0], atol=1e-6)
    assert np.abs(np.stack(record.rows(table, "probs")) - np.stack(record.rows(own, "probs"))).max() > 0.04
    digests = [record.settings(made)[0]["attention"] for made in (table, own)]
    assert len(digests[0]) == 64 and digests[1] is None


def test_no_measure_runs_under_given_attention(go, texts, tmp_path):
    with pytest.raises(MeasurementError, match="'gradient'"):
        go(attention=guides(texts()))
    assert list(tmp_path.iterdir()) == []  # no shards that the next measurement would be refused for


def test_outputs_are_read_back_by_instance(go, texts, tiny_model, tmp_path):
    made = go(producers=[])
    order = np.random.default_rng(1).permutation(20)
    record.save(made.take(order), tmp_path / "shuffled.parquet")
    digest = digest_model(tiny_model())
    for name in ("r.parquet", "shuffled.parquet"):
        found = read_outputs(tmp_path / name, texts(), digest)
        assert found.column("instance_id").to_pylist() == texts()["instance_id"]
        for column in ("attention", "probs"):
            for mine, theirs in zip(record.rows(found, column), record.rows(made, column), strict=True):
                np.testing.assert_array_equal(mine, theirs)


# ------------------------------------------------------------------------------------------------ independence


@pytest.mark.parametrize(
    "options", [{"batch_tokens": 10_000, "shard_instances": 512}, {"batch_tokens": 1}, {"shard_instances": 1}]
)
@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_batches_and_shards_do_not_matter(go, tiny_model, options, projection):
    model = tiny_model(projection=projection)
    same(go("a.parquet", model=model, producers=NAMES), go("b.parquet", model=model, producers=NAMES, **options), atol=1e-6)


def test_batches_are_bounded_and_whole():
    lengths = np.array(LENGTHS) + 2
    batches = engine.batches(lengths, 24)
    assert sorted(np.concatenate(batches)) == list(range(20))
    assert all(len(batch) * lengths[batch].max() <= 24 for batch in batches)
    assert all(len(batch) == 1 for batch in engine.batches(lengths, 1))
    assert max(map(len, engine.batches(np.full(200, 3), 10**6))) == 64
    parts = engine.in_shards(batches, 5)
    assert [id(batch) for shard in parts for batch in shard] == [id(batch) for batch in batches]
    assert all(sum(map(len, shard)) <= 5 or len(shard) == 1 for shard in parts)


# ------------------------------------------------------------------------------------------------ interrupted


@pytest.fixture
def counted(monkeypatch):
    """Counts the batches that are measured, from `stop(at)` on, which raises KeyboardInterrupt at that one."""
    inner = engine._read_texts
    counter = types.SimpleNamespace(done=[], stop_at=None)

    def stop(at):
        counter.done, counter.stop_at = [], at

    def spy(model, batch, rows, *args):
        if len(counter.done) == counter.stop_at:
            raise KeyboardInterrupt
        counter.done.append(rows["instance_id"])
        return inner(model, batch, rows, *args)

    counter.stop = stop

    monkeypatch.setattr(engine, "_read_texts", spy)
    return counter


@pytest.mark.parametrize("stop_at", [0, 1, 4, 7])
def test_stopped_in_the_middle(go, counted, tmp_path, stop_at):
    whole = go("whole.parquet", producers=NAMES)
    assert len(counted.done) == 8
    old = go()
    counted.stop(stop_at)
    with pytest.raises(KeyboardInterrupt):
        go(producers=NAMES)
    same(record.load(tmp_path / "r.parquet"), old)  # it stays until the new one is whole
    folder = tmp_path / "r.parquet.shards"
    kept = sorted(path.name for path in folder.glob("*.parquet"))
    rows = {name for path in folder.glob("*.parquet") for name in record.load(path).column("instance_id").to_pylist()}
    counted.stop(None)
    same(go(producers=NAMES), whole)
    again = [name for batch in counted.done for name in batch]
    assert not rows & set(again) and len(rows) + len(again) == 20  # whole shards are not measured again
    assert bool(kept) == (stop_at > 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.parquet", "whole.parquet"]


def test_a_stopped_measurement_with_a_list_of_numbers_goes_on(go, counted, tmp_path):
    """The default measures hold such an option: the shares of `comprehensiveness`."""
    names = ["gradient", "integrated_gradients", "comprehensiveness"]
    counted.stop(5)
    with pytest.raises(KeyboardInterrupt):
        go(producers=names)
    shards = sorted((tmp_path / "r.parquet.shards").glob("*.parquet"))
    assert shards
    counted.stop(None)
    assert go(producers=names).num_rows == 20
    assert 0 < len(counted.done) < 8


@pytest.mark.parametrize(
    ("first", "second", "different"),
    [
        ({}, {"model": {"seed": 1}}, "model"),
        ({}, {"model": {"projection": "sparsemax"}}, "identity, model"),
        ({"model": {"encoder": "transformer"}}, {"model": {"encoder": "transformer", "num_attention_heads": 2}}, "model"),
        ({}, {"producers": ["leave_one_out"]}, "options, producers"),
        ({}, {"seed": 1}, "seed"),
        ({}, {"cell": Identity("tiny", "rev", "validation", 7)}, "identity"),
        ({}, {"batch_tokens": 30}, "batch_tokens, shards"),
        ({"attention": 0}, {"attention": 1}, "attention"),
        ({"attention": 0}, {"producers": []}, "attention, identity"),
        *(({}, {"change": column}, "data") for column in ("input_ids", "labels", "tokens", "truncated", "rationale")),
        ({"hierarchy": "sentence"}, {"hierarchy": "sentence", "level": "word"}, "data, identity"),
    ],
)
def test_shards_of_another_measurement_are_refused(go, texts, counted, tiny_model, tmp_path, first, second, different):
    def begin(model=None, change=None, hierarchy="none", attention=None, **options):
        dataset = texts(hierarchy=hierarchy)
        if hierarchy == "none":
            dataset = dataset.map(lambda row: {"rationale": [1] * len(row["tokens"])})
        if attention is not None:
            options |= {"attention": guides(dataset, attention), "producers": []}
        model = tiny_model(hierarchy=hierarchy, **(model or {}))
        return go(model=model, dataset=dataset.map(CHANGES[change]) if change else dataset, **options)

    counted.stop(5)
    with pytest.raises(KeyboardInterrupt):
        begin(**first)
    counted.stop(None)
    before = sorted((tmp_path / "r.parquet.shards").iterdir())
    with pytest.raises(MeasurementError, match=rf"another measurement \(different: {different}\)"):
        begin(**second)
    assert sorted((tmp_path / "r.parquet.shards").iterdir()) == before
    begin(**first)
    assert [path.name for path in tmp_path.iterdir()] == ["r.parquet"]


# ------------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("model", "change", "options", "message"),
    [
        ({"num_labels": 1}, None, {}, "num_labels=1"),
        ({}, lambda rows: rows.select([]), {}, "no texts"),
        ({}, lambda rows: rows.remove_columns(["tokens", "length"]), {}, r"\['length', 'tokens'\]"),
        ({}, None, {"name": "."}, "is a folder"),
        ({}, None, {"producers": ["gradient", "gradient"]}, "'gradient' is named twice"),
        ({}, None, {"level": "words"}, "level='words'"),
        ({}, None, {"level": "word"}, "hierarchy='none'"),
        ({"hierarchy": "sentence"}, None, {}, "hierarchy='sentence'"),
    ],
)
def test_what_is_refused_before_any_work(go, texts, tiny_model, counted, tmp_path, model, change, options, message):
    with pytest.raises(MeasurementError, match=message):
        go(model=tiny_model(**model), dataset=(change or (lambda rows: rows))(texts()), **options)
    assert not counted.done and not list(tmp_path.iterdir())


def fake(monkeypatch, columns, made, called="fake"):
    """A measure that is there within a test."""

    def give(self, subject, batch, *, seed):
        return made(batch, seed)

    whole = {"__doc__": "A measure.", "name": called, "cost": "nothing", "columns": columns, "__call__": give}
    registry.classes()
    monkeypatch.setattr(registry, "_CLASSES", {reads: dict(classes) for reads, classes in registry._CLASSES.items()})
    registry.register(type("Fake", (registry.Measure,), whole))


def test_measures_that_do_not_give_what_they_declare(go, monkeypatch):
    declared = {"importance_a": Column(("T",))}
    fake(monkeypatch, declared, lambda batch, seed: {"importance_b": []})
    with pytest.raises(MeasurementError, match=r"'fake' declares \['importance_a'\] and returned \['importance_b'\]"):
        go(producers=["fake"])
    fake(monkeypatch, declared, lambda batch, seed: {"importance_a": [[1.0] * 99] * len(batch["instance_id"])}, "longer")
    with pytest.raises(record.RecordError, match="'importance_a' has 99 values"):
        go("longer.parquet", producers=["longer"])
    fake(monkeypatch, {"importance_gradient": Column(("T",))}, lambda batch, seed: {}, "two")
    with pytest.raises(MeasurementError, match="'two' declares columns that another measure has"):
        go(producers=["gradient", "two"])


def test_tests_of_scores_come_after_all_that_make_them(go):
    """Named first, it still tests attention and every measure of inputs; measures of states it does not."""
    how = {"options": {"rationale_erasure": {"shares": [0.5]}}}
    table = go(producers=["rationale_erasure", "leave_one_out", "gradient"], **how)
    names = table.column("rationale_erasure_measures").to_pylist()
    assert names == [names[0]] * 20 and names[0][0] == "attention" and {*names[0]} == {"attention", *NAMES[::2]}
    attention = go("alone.parquet", producers=["rationale_erasure"], **how)
    assert attention.column("rationale_erasure_measures").to_pylist() == [["attention"]] * 20
    kept = [record.rows(made, "rationale_erasure_kept_probs") for made in (table, attention)]
    for mine, theirs in zip(*kept, strict=True):
        np.testing.assert_allclose(mine[:1], theirs, atol=1e-6)
    assert any(abs(row[0, 0] - row[names[0].index("gradient"), 0]) > 0 for row in kept[0])


def test_signed_measures_are_tested_by_their_size_too(go, monkeypatch):
    """The order by size is another one."""
    columns = {
        "importance_a": Column(("T",), signed=True, doc="evidence"),
        "importance_b": Column(("T",), doc="a size"),
    }
    values = [1.0, -3.0, 2.0]

    def made(batch, seed):
        lengths = (batch["attention_mask"].sum(1) - 2).tolist()
        rows = [np.resize(values, length) for length in lengths]
        return {"importance_a": rows, "importance_b": rows}

    fake(monkeypatch, columns, made, "signed")
    table = go(producers=["rationale_erasure", "signed"])
    assert table.column("rationale_erasure_measures").to_pylist()[0] == ["attention", "a", "absolute_a", "b"]
    kept = [row for row in record.rows(table, "rationale_erasure_kept_probs") if not np.isnan(row).any()]
    assert all(np.array_equal(row[1], row[3]) for row in kept)
    assert any(not np.array_equal(row[1], row[2]) for row in kept)


# ------------------------------------------------------------------------------------------------ processes


TWO = [
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",  # any free port
]  # fmt: skip


def test_two_processes_write_the_same_record(tiny_recipe, repository, tmp_path, warm_attnfaith):
    from attnfaith import runs

    sizes = {"train": 64, "validation": 24, "test": 300}  # three shards, two for the first process
    recipe = tiny_recipe(
        training__num_train_epochs=1,
        data__arguments={"length": [2, 5], "vocabulary_size": 40, "sizes": sizes},
        measure__producers=["gradient", "leave_one_out"],
    )
    folder = tmp_path / "run"
    state = engine.PartialState(cpu=True)
    with runs.folder.opened(folder, recipe, state):
        texts, arguments = runs.texts.Texts(recipe, folder, state), runs.training_arguments(recipe)
        runs.train.train(recipe, arguments, folder, texts, None, state)
    alone = record.load(runs.measure_run(folder, recipe))
    script = repository / "recipes" / "measure.py"
    command = [warm_attnfaith, *TWO, str(script), str(folder), "--output", str(tmp_path / "two.parquet")]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("record: ") == 1
    two = record.load(tmp_path / "two.parquet")
    assert two.num_rows == 300
    same(two, alone)
    (settings,) = record.settings(two)
    assert settings["shards"] == 3
    assert not (tmp_path / "two.parquet.shards").exists()
