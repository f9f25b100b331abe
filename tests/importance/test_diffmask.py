"""DiffMask: its gates by their closed forms, masking by hand, the training on tiny tasks, the file that keeps them."""

import csv
import io
import json
from unittest import mock

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import save_file
from scipy import stats

import attnfaith
from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification, AttnfaithError
from attnfaith.importance import diffmask
from attnfaith.importance.diffmask import DiffMask, Gates, divergence_of, load_gates, train_gates
from attnfaith.measurement.registry import MeasurementError, build
from attnfaith.subjects import SelfAttention, SubjectError, subject_of
from attnfaith.support.draws import default_dtype
from attnfaith.support.errors import FileError
from tests import tolerances
from tests.gates import untrained
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer


@pytest.mark.parametrize("logit", [-5.0, 0.3, 15.0])
def test_probability_of_an_open_gate_in_closed_form(logit):
    """Against all quantiles of the noise, and against the distribution of a logistic variable."""
    logits = torch.tensor(logit, dtype=torch.float64)
    gates = diffmask.sampled(logits, (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    assert float((gates > 0).double().mean()) == pytest.approx(float(diffmask.log_open(logits).exp()), abs=1e-5)
    # z > 0 where s > 1/6, that is where logit + noise > 0.2 log(1/5)
    assert float(diffmask.log_open(logits)) == pytest.approx(stats.logistic.logsf(0.2 * np.log(0.2), loc=logit), rel=1e-9)
    assert gates.min() >= 0 and gates.max() <= 1 and (gates.diff() >= 0).all()


def test_divergence_against_scipy():
    first, second = (torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    expected = [stats.entropy(p, q) for p, q in zip(first.softmax(1), second.softmax(1), strict=True)]
    tolerances.close(divergence_of(first, second), expected, dtype=torch.float32)


@pytest.mark.parametrize("name", ["pairs", "sentence", "bert", "gpt2", "albert"])
def test_open_gates_change_nothing_and_shut_ones_leave_the_placeholder(name, tiny_model, tiny_rows):
    """Of tokens, pairs, sentences, stacks of layers, and of one module for two layers."""
    if name in ("bert", "gpt2", "albert"):
        subject = SelfAttention(classifier(name), tokenizer(name != "gpt2"))
        batch = subject.encode(["the old ship sank slowly", "good film", "the music was never bad but very good !"])
    else:
        fields = {"query": "text"} if name == "pairs" else {"hierarchy": name}
        subject = subject_of(tiny_model(**fields, dtype=torch.float32))
        rows = tiny_rows((7, 1, 4), pair="query" in fields, hierarchy=fields.get("hierarchy", "none"))
        batch = subject.collate(rows)
    whole, states, mask = subject.predict(batch).detach(), diffmask.states_of(subject, batch), subject.attendable(batch)
    assert len(states) == subject.depth + 1 and all(part.shape[:2] == mask.shape for part in states)
    with torch.no_grad(), subject.evaluating():
        gates, nothing = Gates.of(subject, batch, 0), torch.zeros(mask.shape)
        torch.testing.assert_close(gates.masked(subject, batch, mask.float()), whole, atol=2e-5, rtol=1e-4)
        shut = gates.masked(subject, batch, nothing)
        assert not torch.allclose(shut, whole, rtol=0, atol=1e-6)
        positions = diffmask.of_positions(subject, batch, nothing).bool()
        embedded = torch.where(positions.unsqueeze(2), subject.embed(batch), gates.placeholders[0])
        torch.testing.assert_close(shut, subject.predict(batch, embedded))


def decided_by_one_word(words=(7, 9)):
    """A classifier of three classes: word 7 decides for 1, word 9 for 2, a text without either is of class 0; and rows."""
    config = AttentionClassifierConfig(
        vocab_size=20, embedding_size=4, hidden_size=4, num_labels=3, encoder="embedding", projection="uniform"
    )
    model = AttentionClassifierForSequenceClassification(config).eval()
    random, table, weights = np.random.default_rng(0), torch.zeros(20, 4), torch.zeros(3, 4)
    table[:, 2:] = torch.from_numpy(random.normal(size=(20, 2)).astype(np.float32))
    table[words[0], 0], table[words[1], 1] = 1.0, 1.0
    weights[1, 0] = weights[2, 1] = 60.0  # of which a text of 6 words lets a sixth through
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(table)
        model.decoder.context.weight.copy_(weights)
        model.decoder.context.bias.copy_(torch.tensor([4.0, 0.0, 0.0]))
    rows, neutral = [], [word for word in range(4, 20) if word not in words]
    for number in range(240):
        text = random.choice(neutral, 6)
        text[random.integers(6)] = words[number % 2]
        row = {"instance_id": str(number), "input_ids": [2, *text.tolist(), 3], "tokens": [f"w{word}" for word in text]}
        rows.append({**row, "length": 8, "truncated": False})
    return model, Dataset.from_list(rows)


SETTINGS = {"epochs": 50, "batch_size": 16, "warmup_steps": 200, "learning_rate": 0.01, "placeholder": "zeros"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_the_word_that_decides_is_open(seed, tmp_path):
    """Whatever the seed, and the model stays as it was. Of 6 words one decides: .167 of gates should be open."""
    model, rows = decided_by_one_word()
    path, subject = tmp_path / "gates.safetensors", subject_of(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    texts, validation = rows.select(range(200)), rows.select(range(200, 240))
    assert DiffMask(**SETTINGS).train(subject, texts, validation, path, seed=seed, say=lambda line: None) == path
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    batch = subject.collate(validation.to_list())
    scores = np.stack(run(DiffMask, subject, batch, gates=str(path))["importance_diffmask"])
    decides = np.array([[token in ("w7", "w9") for token in tokens] for tokens in validation["tokens"]])
    assert (scores.argmax(1) == decides.argmax(1)).mean() > 0.9
    assert scores[decides].mean() > 0.8 and scores[~decides].mean() < 0.2
    log = csv.DictReader(io.StringIO(path.with_suffix(".csv").read_text()))
    chosen = next(row for row in log if row["chosen"] == "1")
    assert float(chosen["validation_constraint"]) <= 0.8 and float(chosen["validation_open"]) < 0.3


def test_the_seed_decides():
    """Whatever the default dtype; a layer that no step drew has NaN in the log."""
    model, rows = decided_by_one_word()
    settings = DiffMask(epochs=1, batch_size=64, placeholder="zeros")
    trainings = [train_gates(subject_of(model), rows, rows.select(range(9)), settings, seed) for seed in (1, 1, 2)]
    with default_dtype(torch.float64):
        trainings.append(train_gates(subject_of(model), rows, rows.select(range(9)), settings, 1))
    first, again, other, wide = (gates.state_dict() for gates, _ in trainings)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert wide.keys() == first.keys() and all(torch.allclose(first[name], wide[name], atol=1e-5) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    assert all(not part.any() for name, part in first.items() if name.startswith("placeholders"))
    assert str(trainings[0][1]) == str(trainings[1][1])


def test_foreign_and_broken_files_are_refused(tiny_model, tiny_rows, tmp_path, monkeypatch):
    subject = subject_of(tiny_model())
    path = untrained(subject, subject.collate(tiny_rows([3])))
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors", {"format": "pt"})
    (tmp_path / "no tensors").write_bytes(b"no tensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "lacking.safetensors", {"attnfaith": json.dumps(load_gates(path).about)})
    for name in ("other.safetensors", "no tensors", "nowhere", "lacking.safetensors"):
        with pytest.raises(FileError, match="holds no gates"):
            load_gates(tmp_path / name)
    with pytest.raises(SubjectError, match=r"were trained for another model \(digest [0-9a-f]{12}, here [0-9a-f]{12}\)"):
        DiffMask(gates=path).check(subject_of(tiny_model(seed=1)), None)
    measure, digest = DiffMask(gates=path), mock.Mock(return_value=subject.digest())
    monkeypatch.setattr(type(subject), "digest", digest)
    for _ in range(3):  # as of three batches: the weights are hashed once
        measure.check(subject, None)
    assert digest.call_count == 1


@pytest.mark.parametrize("options", [{"gates": "a.safetensors", "epochs": 3}, {"penalty": "log"}, {"hidden": 3}])
def test_options_are_refused_beforehand(options):
    with pytest.raises(MeasurementError, match="|".join(options)):
        build(["diffmask"], {"diffmask": options})


def test_gates_of_a_model_that_is_no_run(tmp_path):
    model, how = classifier("bert"), {"tokenizer": tokenizer(), "progress": False}
    texts = ["the old ship sank slowly", "good film", "the music was never bad but very good !", "a new ship sailed", ""]
    with pytest.raises(AttnfaithError, match=r"'diffmask': gates=None, .*attnfaith measure RUN --add diffmask.*train_gates"):
        attnfaith.measure(model, texts, measures=["diffmask"], **how)
    path = attnfaith.train_gates(model, texts, tmp_path / "g.safetensors", epochs=1, batch_size=2, **how)
    assert path.with_suffix(".csv").is_file()
    table = attnfaith.measure(model, texts, measures=["diffmask"], options={"diffmask": {"gates": str(path)}}, **how).table
    assert [len(row) for row in table.column("importance_diffmask").to_pylist()] == [5, 2, 9, 4, 0]
    stated = attnfaith.record.settings(table)[0]["options"]["diffmask"]
    assert len(stated["gates"]) == 12 and stated["epochs"] == 1 and str(tmp_path) not in json.dumps(stated)
    for count, bad, message in (
        (5, {"epochs": 0}, "settings of diffmask: epochs=0"),
        (5, {"layers": 2}, "settings of diffmask: layers=2"),
        (1, {}, "1 text: give two or more"),
    ):
        with pytest.raises(AttnfaithError, match=message):
            attnfaith.train_gates(model, texts[:count], tmp_path / "h.safetensors", **how, **bad)
