"""DiffMask: its gates by their closed forms, masking by hand, the training on tiny tasks, the file that keeps them."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy import stats
from transformers import AlbertConfig, AlbertForSequenceClassification

import attnfaith
from attnfaith import AttentionClassifierConfig, AttentionClassifierForSequenceClassification, AttnfaithError
from attnfaith.importance.diffmask import FIRST_MULTIPLIER, DiffMask, Lookahead, divergence_of, train, train_gates
from attnfaith.importance.gates import Gates, about_gates, load_gates, log_open, of_positions, sampled, states_of
from attnfaith.measurement.registry import MeasurementError, build
from attnfaith.subjects import SelfAttention, SubjectError, subject_of
from attnfaith.support.draws import default_dtype
from attnfaith.support.errors import FileError
from tests import tolerances
from tests.measuring import run
from tests.small_classifiers import classifier, tokenizer


def quiet(line):
    """Progress that nobody reads."""


@pytest.mark.parametrize("logit", [-5.0, -1.0, 0.0, 0.3, 2.0, 15.0])
def test_probability_of_an_open_gate_in_closed_form(logit):
    """Against all quantiles of the noise, and against the distribution of a logistic variable."""
    logits = torch.tensor(logit, dtype=torch.float64)
    uniform = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    drawn = sampled(logits, uniform)
    assert float((drawn > 0).double().mean()) == pytest.approx(float(log_open(logits).exp()), abs=1e-5)
    # z > 0 where s > 1/6, that is where logit + noise > 0.2 log(1/5)
    assert float(log_open(logits)) == pytest.approx(stats.logistic.logsf(0.2 * np.log(0.2), loc=logit), rel=1e-9)
    assert drawn.min() >= 0 and drawn.max() <= 1 and (drawn.diff() >= 0).all()


def test_divergence_against_scipy_and_of_barred_classes():
    one, other = (torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    expected = [stats.entropy(p, q) for p, q in zip(one.softmax(1), other.softmax(1), strict=True)]
    tolerances.close(divergence_of(one, other), expected, dtype=torch.float32)
    barred = torch.full((5, 1), -torch.inf)
    more = [torch.cat([part, barred], 1).requires_grad_() for part in (one, other)]
    with_barred = divergence_of(*more)
    torch.testing.assert_close(with_barred.detach(), divergence_of(one, other))
    (slope,) = torch.autograd.grad(with_barred.sum(), [more[1]])
    assert torch.isfinite(slope).all()


def test_a_gate_by_hand():
    """10 tanh(w2 . tanh(W1 [h0; h1] + b1) + b2) + shift, the rows of W1 and w2 a length times a direction."""
    torch.manual_seed(0)
    gates = Gates("inputs", [2, 3], 4)
    states = [torch.randn(1, 5, 2), torch.randn(1, 5, 3)]
    logits = gates.logits(states, [0, 1])
    gate = gates.gates[1]
    (length1, direction1), (length2, direction2) = (
        (layer.parametrizations.weight.original0, layer.parametrizations.weight.original1) for layer in (gate[0], gate[2])
    )
    inner = torch.cat(states, 2) @ (length1 * direction1 / direction1.norm(dim=1, keepdim=True)).T + gate[0].bias
    outer = inner.tanh() @ (length2 * direction2 / direction2.norm(dim=1, keepdim=True)).T + gate[2].bias
    torch.testing.assert_close(logits[..., 1], 10 * outer.squeeze(2).tanh() + 5)
    assert logits.shape == (1, 5, 2) and gate.shift.item() == 5
    assert gates.layers_of(1) == [0, 1] and Gates("states", [2, 3], 4).layers_of(1) == [1]


def subjects(tiny_model, tiny_rows):
    """(subject, batch) of all kinds: tokens, pairs, sentences, words, stacks of layers, one module for two layers."""
    for fields in ({"encoder": "bigru"}, {"query": "text"}, {"hierarchy": "sentence"}, {"hierarchy": "word"}):
        rows = tiny_rows((7, 1, 4), pair="query" in fields, hierarchy=fields.get("hierarchy", "none"))
        subject = subject_of(tiny_model(**fields))
        yield subject, subject.collate(rows)
    torch.manual_seed(0)
    albert = AlbertConfig(
        vocab_size=99,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
        attn_implementation="eager",
    )
    for model in (classifier("bert"), classifier("gpt2"), AlbertForSequenceClassification(albert).eval()):
        subject = SelfAttention(model, tokenizer(model.config.model_type != "gpt2"))
        yield subject, subject.encode(["the old ship sank slowly", "good film", "the music was never bad but very good !"])


def test_open_gates_change_nothing_and_shut_ones_leave_the_placeholder(tiny_model, tiny_rows):
    for subject, batch in subjects(tiny_model, tiny_rows):
        own, states, mask = subject.predict(batch).detach(), states_of(subject, batch), subject.attendable(batch)
        assert len(states) == subject.depth + 1 and all(part.shape[:2] == mask.shape for part in states)
        for kind in ("inputs", "states"):
            gates = Gates.of(subject, batch, kind, 0)
            for layer in range(len(states)):
                with torch.no_grad(), subject.evaluating():
                    same = gates.masked(subject, batch, layer, states, mask.float())
                    shut = gates.masked(subject, batch, layer, states, torch.zeros(mask.shape))
                torch.testing.assert_close(same, own, atol=2e-5, rtol=1e-4)
                if kind == "inputs" or layer < subject.depth:  # after the last layer some read a marker alone
                    assert not torch.allclose(shut, own, rtol=0, atol=1e-6)
        with torch.no_grad(), subject.evaluating():
            inputs = Gates.of(subject, batch, "inputs", 0)
            positions = of_positions(subject, batch, torch.zeros(mask.shape)).bool()
            embedded = torch.where(positions.unsqueeze(2), subject.embed(batch), inputs.placeholders[0])
            torch.testing.assert_close(
                inputs.masked(subject, batch, 0, states, torch.zeros(mask.shape)), subject.predict(batch, embedded)
            )


def decided_by_one_word(words=(7, 9), seed=0):
    """A classifier of three classes: word 7 says class 1, word 9 class 2, a text without either is of class 0; and rows."""
    config = AttentionClassifierConfig(
        vocab_size=20, embedding_size=4, hidden_size=4, num_labels=3, encoder="embedding", projection="uniform"
    )
    model = AttentionClassifierForSequenceClassification(config).eval()
    generator = np.random.default_rng(seed)
    table = torch.zeros(20, 4)
    table[:, 2:] = torch.from_numpy(generator.normal(size=(20, 2)).astype(np.float32))
    table[words[0], 0], table[words[1], 1] = 1.0, 1.0
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(table)
        weights = torch.zeros(3, 4)
        weights[1, 0] = weights[2, 1] = 60.0  # of which a text of 6 words lets a sixth through
        model.decoder.context.weight.copy_(weights)
        model.decoder.context.bias.copy_(torch.tensor([4.0, 0.0, 0.0]))
    rows = []
    neutral = [word for word in range(4, 20) if word not in words]
    for number in range(240):
        text = generator.choice(neutral, 6)
        text[generator.integers(6)] = words[number % 2]
        ids = [2, *text.tolist(), 3]
        rows.append({"instance_id": str(number), "input_ids": ids, "tokens": [f"w{word}" for word in text]})
    return model, Dataset.from_list([{**row, "length": 8, "truncated": False} for row in rows])


SHORT = {"epochs": 3, "batch_size": 16, "warmup_steps": 200, "learning_rate": 0.01, "placeholder": "zeros"}
LONG = SHORT | {"epochs": 50, "valid_constraint": 0.2, "valid_agreement": 0.9}


def trained_on_one_word(folder, perturbed=0, seed=0, **settings):
    """A model that one word decides, texts, and gates trained on them; perturbed: draws a change of weights by one ulp."""
    model, rows = decided_by_one_word()
    if perturbed:
        noise = torch.Generator().manual_seed(perturbed)
        with torch.no_grad():
            for weights in model.parameters():
                weights *= 1 + (torch.randint(3, weights.shape, generator=noise) - 1) * torch.finfo(weights.dtype).eps
    path, subject = folder / "gates.safetensors", subject_of(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    texts, validation = rows.select(range(200)), rows.select(range(200, 240))
    assert train(subject, texts, validation, path, seed=seed, say=quiet, **settings) == path
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    return subject, rows, path


@pytest.fixture(scope="module")
def trained_gates(tmp_path_factory):
    """Gates of a training so short that they find nothing."""
    return trained_on_one_word(tmp_path_factory.mktemp("gates"), margin=0.5, **SHORT)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "perturbed"), [(0, 0), (1, 1), (3, 2)])
def test_it_finds_the_word_that_decides(seed, perturbed, tmp_path):
    """Whatever the seed, and whatever rounding does. Of 6 words one decides: .167 of gates should be open."""
    subject, rows, path = trained_on_one_word(tmp_path, perturbed, seed, **LONG)
    batch = subject.collate(rows.select(range(200, 240)).to_list())
    scores = np.stack(run(DiffMask, subject, batch, gates=str(path))["importance_diffmask"])
    decides = np.array([[token in ("w7", "w9") for token in rows[row]["tokens"]] for row in range(200, 240)])
    assert (scores.argmax(1) == decides.argmax(1)).mean() > 0.9
    assert scores[decides].mean() > 0.8 and scores[~decides].mean() < 0.2
    chosen = next(row for row in log_of(path) if row["chosen"] == "1")
    assert float(chosen["validation_constraint"]) <= 0.2 and float(chosen["validation_open"]) < 0.3


def log_of(path):
    return list(csv.DictReader(io.StringIO(path.with_suffix(".csv").read_text())))


def test_gates_of_more_layers_are_multiplied(trained_gates):
    subject, rows, path = trained_gates
    columns = run(DiffMask, subject, subject.collate(rows.select(range(9)).to_list()), gates=str(path))
    for scores, layers in zip(*columns.values(), strict=True):
        assert (np.diff(layers, axis=0) <= 0).all()
        np.testing.assert_array_equal(layers[-1], scores)


@pytest.mark.parametrize(("margin", "up"), [(1e-6, True), (50.0, False)])
def test_the_multiplier_rises_above_the_margin_and_falls_below_it(margin, up):
    """By exp(rate (KL - margin)), no more than 1 nat down at a step."""
    model, rows = decided_by_one_word()
    settings = DiffMask(epochs=4, batch_size=32, warmup_steps=0, learning_rate=0.01, margin=margin)
    _, log = train_gates(subject_of(model), rows, rows.select(range(20)), settings, 0)
    for layer in (0, 1):
        of_layer = [row for row in log if row["layer"] == layer]
        steps, last = sum(row["steps"] for row in of_layer), of_layer[-1]["multiplier"]
        assert last > FIRST_MULTIPLIER if up else last == pytest.approx(FIRST_MULTIPLIER * np.exp(-0.1 * steps), rel=1e-4)


def test_the_same_seed_gives_the_same_gates_and_another_others():
    model, rows = decided_by_one_word()
    settings = DiffMask(kind="states", epochs=1, batch_size=64, penalty="l0", placeholder="zeros")
    trainings = [train_gates(subject_of(model), rows, rows.select(range(9)), settings, seed) for seed in (1, 1, 2)]
    with default_dtype(torch.float64):
        trainings.append(train_gates(subject_of(model), rows, rows.select(range(9)), settings, 1))
    one, again, other, wide = (gates.state_dict() for gates, _ in trainings)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert wide.keys() == one.keys() and all(torch.allclose(one[name], wide[name], atol=1e-5) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    assert all(not part.any() for name, part in one.items() if name.startswith("placeholders"))
    assert str(trainings[0][1]) == str(trainings[1][1])  # a layer that no step drew has NaN there


def test_lookahead_by_hand():
    """Steps of 1 downwards: after six of them half of the way is kept."""
    weight = torch.nn.Parameter(torch.tensor(10.0))
    optimizer = Lookahead(torch.optim.SGD([weight], lr=1.0))
    seen = []
    for _ in range(12):
        weight.grad = torch.tensor(1.0)
        optimizer.step()
        seen.append(weight.item())
    assert seen == [9, 8, 7, 6, 5, 7, 6, 5, 4, 3, 2, 4]


def test_foreign_and_broken_files_are_refused(trained_gates, tiny_model, tmp_path):
    from safetensors.torch import save_file

    subject, _, path = trained_gates
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors", {"format": "pt"})
    (tmp_path / "no tensors").write_bytes(b"no tensors")
    for name in ("other.safetensors", "no tensors", "nowhere"):
        with pytest.raises(FileError, match="holds no gates"):
            load_gates(tmp_path / name, torch.device("cpu"))
    about = about_gates(path)
    save_file({"x": torch.zeros(1)}, tmp_path / "lacking.safetensors", {"attnfaith": json.dumps(about)})
    with pytest.raises(FileError, match="holds other tensors than it says"):
        load_gates(tmp_path / "lacking.safetensors", torch.device("cpu"))
    with pytest.raises(SubjectError, match=r"were trained for another model \(digest [0-9a-f]{12}, here [0-9a-f]{12}\)"):
        DiffMask(gates=str(path)).check(subject_of(tiny_model()), None)
    DiffMask(gates=str(path)).check(subject, None)


@pytest.mark.parametrize("options", [{"gates": "a.safetensors", "epochs": 3}, {"valid_agreement": 75}, {"hidden": 3}])
def test_options_are_refused_beforehand(options):
    with pytest.raises(MeasurementError, match="|".join(options)):
        build(["diffmask"], {"diffmask": options})


def test_gates_of_a_model_that_is_no_run(tmp_path):
    model, words = classifier("bert"), tokenizer()
    texts = ["the old ship sank slowly", "good film", "the music was never bad but very good !", "a new ship sailed", ""]
    settings = {"epochs": 1, "batch_size": 2}
    with pytest.raises(AttnfaithError, match=r"'diffmask': gates=None, .*attnfaith measure RUN --add diffmask.*train_gates"):
        attnfaith.measure(model, texts, measures=["diffmask"], tokenizer=words, progress=False)
    path = attnfaith.train_gates(model, texts, tmp_path / "g.safetensors", tokenizer=words, progress=False, **settings)
    assert path.with_suffix(".csv").is_file()
    options = {"diffmask": {"gates": str(path)}}
    table = attnfaith.measure(model, texts, measures=["diffmask"], tokenizer=words, options=options, progress=False).table
    scores = table.column("importance_diffmask").to_pylist()
    assert [len(row) for row in scores] == [5, 2, 9, 4, 0]
    stated = attnfaith.record.settings(table)[0]["options"]["diffmask"]
    assert len(stated["gates"]) == 12 and stated["epochs"] == 1 and str(tmp_path) not in json.dumps(stated)
    for bad, message in (
        ({"epochs": 0}, "settings of diffmask: epochs=0"),
        ({"layers": 2}, "settings of diffmask: .* no option 'layers'"),
    ):
        with pytest.raises(AttnfaithError, match=message):
            attnfaith.train_gates(model, texts, tmp_path / "h.safetensors", tokenizer=words, progress=False, **bad)
    with pytest.raises(AttnfaithError, match="1 text: give two or more"):
        attnfaith.train_gates(model, texts[:1], tmp_path / "h.safetensors", tokenizer=words, progress=False)
