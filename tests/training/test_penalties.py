"""Penalties by hand and by loops, and trainings with them: a step by hand, evaluations, and every level of attention."""

import json
import subprocess
import sys
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics.pairwise import cosine_similarity as sklearn_cosine

from attnfaith import cli, recipes
from attnfaith.data.collation import pad_batch
from attnfaith.models.projections import project
from attnfaith.support.errors import AttnfaithError
from attnfaith.training.losses import classification_loss
from attnfaith.training.penalties import (
    FLOOR,
    PREDICTION,
    check_sizes,
    conicity,
    drawn_words,
    impermissible_mass,
    masked_language_model,
    word_tying,
)
from tests.figures import IN_A_PROCESS
from tests.tiny_trainings import ALL, same, weights


LENGTHS = (5, 1, 3, 0, 4)
MARKED = ([0, 1, 0, 0, 1], [0], [1, 1, 1], [], [0, 0, 0, 0])  # both kinds, none, all, no token, none


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def marked_batch(width=5):
    """impermissible (B,T), 1 outside the texts, and mask (B,T) of LENGTHS and MARKED."""
    mask = torch.arange(width) < torch.tensor(LENGTHS).unsqueeze(1)
    impermissible = torch.ones(len(LENGTHS), width, dtype=torch.int64)
    for row, marks in enumerate(MARKED):
        impermissible[row, : len(marks)] = torch.tensor(marks)
    return impermissible, mask


def test_two_heads_by_hand():
    """Impermissible shares 3/4 and 1/2: nats log 4 and log 2."""
    attention = torch.tensor([[[0.25, 0.75], [0.5, 0.5]]])
    mask, impermissible = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    for heads, expected in (("mean", log(8) / 2), ("max", log(4))):
        for scores in (None, attention.log() + 7):
            mass = impermissible_mass(attention, impermissible, mask, heads=heads, scores=scores)
            torch.testing.assert_close(mass, torch.tensor([expected]))


@pytest.mark.parametrize("projection", ["softmax", "sparsegen", "entmax"])
def test_impermissible_mass_by_loops(projection):
    impermissible, mask = marked_batch()
    scores = drawn(5, 5, seed=3) / 10
    config = SimpleNamespace(projection=projection, sparsegen_lambda=0.5, entmax_alpha=1.3)
    attention, expected = project(scores, mask, config), []
    for text, marks, inside in zip(attention.numpy(), impermissible.numpy(), mask.numpy(), strict=True):
        mass = sum(w for w, m, i in zip(text, marks, inside, strict=True) if m and i)
        tokens = marks[inside]
        expected.append(-np.log(max(1 - mass, FLOOR)) if 0 < tokens.sum() < len(tokens) else 0.0)
    assert expected[0] > 0 and expected[1:] == [0.0] * 4
    for read in (None, scores) if projection == "softmax" else (None,):
        np.testing.assert_allclose(impermissible_mass(attention, impermissible, mask, scores=read), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_far_apart_keep_value_and_gradient(dtype):
    """From scores exactly; from weights that are rounded to 0 and 1 down to the floor, without a gradient."""
    scores = torch.tensor([[-200.0, 200.0], [200.0, -200.0]], dtype=dtype, requires_grad=True)
    mask, impermissible = torch.ones(2, 2, dtype=torch.bool), torch.tensor([[0, 1], [0, 1]])
    penalty = impermissible_mass(scores.softmax(-1), impermissible, mask, scores=scores)
    assert penalty.dtype == torch.float32 and penalty.tolist() == [400, 0]
    (slope,) = torch.autograd.grad(penalty.sum(), scores)
    torch.testing.assert_close(slope, torch.tensor([[-1.0, 1.0], [0.0, 0.0]], dtype=dtype))
    attention = torch.tensor([[FLOOR / 2, 1 - FLOOR / 2]], requires_grad=True)
    penalty = impermissible_mass(attention, impermissible[:1], mask[:1])
    torch.testing.assert_close(penalty.detach(), torch.tensor([-log(FLOOR)]))
    assert torch.autograd.grad(penalty.sum(), attention)[0].eq(0).all()


def test_conicity_by_loops():
    states, mask = drawn(5, 5, 7, seed=1), marked_batch()[1]
    values = conicity(states, mask)
    assert values[1] == 0 and values[3] == 0  # a single token, and none
    for row in (0, 2, 4):
        inside = states[row, : LENGTHS[row]].numpy()
        expected = np.abs(sklearn_cosine(inside, inside.mean(0, keepdims=True))).mean()
        np.testing.assert_allclose(values[row], expected, atol=1e-12)


@pytest.mark.parametrize(("distance", "power"), [("norm", 1), ("squared", 2)])
def test_word_tying_by_loops(distance, power):
    mask = marked_batch()[1]
    states, vectors = (drawn(5, 5, 7, seed=seed).requires_grad_() for seed in (1, 2))
    norms = np.linalg.norm((states - vectors).detach().numpy(), axis=-1) ** power
    expected = [norms[row, :length].mean() if length else 0.0 for row, length in enumerate(LENGTHS)]
    values = word_tying(states, vectors, mask, distance)
    np.testing.assert_allclose(values.detach(), expected, atol=1e-12)
    slopes = torch.autograd.grad(values.sum(), (states, vectors))
    torch.testing.assert_close(slopes[0], -slopes[1])
    assert slopes[0][~mask].eq(0).all() and slopes[0][mask].ne(0).all()
    with pytest.raises(AttnfaithError, match="a state of 3 numbers with a word vector of 4"):
        check_sizes(3, 4)


def test_masked_words_by_loops():
    masked = marked_batch()[1] & (drawn(5, 5, seed=8) > 0)
    words = torch.arange(25).reshape(5, 5) % 6
    logits = drawn(int(masked.sum()), 6, seed=9)
    probs = iter(np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(1, keepdims=True))
    expected = np.zeros(5)
    for row in range(5):
        right = [next(probs)[words[row, place]] for place in range(5) if masked[row, place]]
        expected[row] = -np.mean(np.log(right)) if right else 0
    assert (expected > 0).sum() >= 3
    np.testing.assert_allclose(masked_language_model(logits, words, masked), expected, rtol=1e-5)


def test_the_words_that_are_masked_depend_on_text_seed_and_step():
    ids = torch.arange(1, 121).reshape(2, 60)
    present, words = torch.ones_like(ids), torch.ones_like(ids, dtype=torch.bool)
    words[:, 0] = False
    masked = drawn_words(ids, present, words, 0.3, seed=1, step=5)
    assert not masked[:, 0].any() and 20 < int(masked.sum()) < 55
    assert drawn_words(ids.flip(0), present, words, 0.3, seed=1, step=5).flip(0).equal(masked)
    padded = [torch.nn.functional.pad(values[:1], (0, 7)) for values in (ids, present, words)]
    assert drawn_words(*padded, 0.3, seed=1, step=5)[:, :60].equal(masked[:1])
    for stream in ({"seed": 2, "step": 5}, {"seed": 1, "step": 6}):
        assert not drawn_words(ids, present, words, 0.3, **stream).equal(masked)
    assert drawn_words(ids, present, words, 1.0, seed=1, step=5).equal(words)


def penalties_by_stages(model, batch, step=0, share=0.5):
    """The four penalties (B,) of a flat model of single texts, stage by stage."""
    ids, present = batch["input_ids"], batch["attention_mask"]
    hidden, mask, _ = model.encode(ids, present)
    masked = drawn_words(ids, present, mask & (ids != 1), share, seed=0, step=step)
    states = model.encode(ids.masked_fill(masked, 1), present)[0]
    attention, scores = model.attend(hidden, mask), model.model.alignment(hidden)
    return {
        "impermissible_mass": impermissible_mass(attention, batch["impermissible"], mask, scores=scores),
        "diversity": conicity(hidden, mask),
        "word_tying": word_tying(hidden, model.model.embeddings(ids), mask),
        "masked_language_model": masked_language_model(getattr(model, PREDICTION)(states[masked]), ids, masked),
    }


@pytest.mark.slow
def test_an_evaluation_and_a_step_of_all_four_by_hand(make):
    trainer = make(penalties=ALL, lengths=[5, 3, 8, 2] * 8, balance_classes=False, per_device_eval_batch_size=5)
    model, scores, batch = trainer.model, trainer.evaluate(), pad_batch(list(trainer.eval_dataset))
    with torch.no_grad():
        logits, parts = model(batch["input_ids"], batch["attention_mask"]).logits, penalties_by_stages(model, batch, step=-1)
    losses = classification_loss(logits, batch["labels"]) + sum(ALL[name] * values for name, values in parts.items())
    for name, values in {"loss": losses, "diversity": parts["diversity"], "word_tying": parts["word_tying"]}.items():
        assert scores[f"eval_{name}"] == pytest.approx(float(values.mean()), rel=1e-5), name
    assert trainer.evaluate()["eval_loss"] == scores["eval_loss"]  # the same words are masked
    model.train()
    before, batch = weights(trainer), pad_batch(list(trainer.train_dataset))
    losses = classification_loss(model(batch["input_ids"], batch["attention_mask"]).logits, batch["labels"])
    parts = penalties_by_stages(model, batch)
    for name, values in parts.items():
        assert values.min() >= 0 and values.max() > 0.01, name
        losses = losses + ALL[name] * values
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True)
    losses.sum().backward()
    optimizer.step()
    expected = weights(trainer)
    optimizer.zero_grad()
    model.load_state_dict(before)
    trainer.train()
    same(weights(trainer), expected, atol=2e-6)
    (logs,) = [logs for logs in trainer.state.log_history if "loss" in logs]
    inside = batch["attention_mask"].bool()
    defined = (inside[:, 2:] & ~batch["impermissible"].bool()[:, 1:-1]).any(-1)
    parts["impermissible_mass"] = parts["impermissible_mass"][defined]
    for name, values in {"loss": losses, **parts}.items():
        if name != "masked_language_model":  # undefined where no word is masked
            assert logs[name] == pytest.approx(values.detach().mean().item(), rel=1e-4), name
    assert logs.get("impermissible_mass_undefined", 0) == int((~defined).sum())


FIELDS = [
    {"encoder": "transformer", "projection": "sparsemax"},
    {"encoder": "cnn", "hidden_size": 8},
    {"projection": "uniform"},
    {"pair": True},
    {"projection": "sparsegen", "encoder": "bigru", "pair": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: "-".join(map(str, fields.values())))
def test_the_penalties_of_a_text_do_not_depend_on_its_batch(make, fields):
    pair, fields = fields.get("pair", False), {name: value for name, value in fields.items() if name != "pair"}
    trainer = make(penalties=ALL | {"masked_share": 0.9}, fields={**fields, "dropout": 0.0}, pair=pair)
    trainer.model.eval()
    rows = list(trainer.eval_dataset)[:9]

    @torch.no_grad()
    def values_of(places):
        batch = pad_batch([rows[place] for place in places])
        batch.pop("labels")
        return trainer.outputs_and_penalties(trainer.model, batch, batch.pop("impermissible"))[1]

    together = values_of(range(9))
    assert all(values.shape == (9,) and values.isfinite().all() for values, _ in together.values())
    for places in ([4, 2, 8, 0, 1, 3, 7, 6, 5], [0], [3], [8]):
        for name, (values, defined) in values_of(places).items():
            torch.testing.assert_close(values, together[name][0][places], msg=name)
            assert defined.equal(together[name][1][places])


@pytest.mark.slow
def test_a_hierarchy_is_refused(make):
    with pytest.raises(AttnfaithError, match="penalties are for models without a hierarchy"):
        make(penalties={"diversity": 1.0}, fields={"hierarchy": "sentence"})


@pytest.mark.slow
def test_a_resumed_training_ends_as_a_whole_one(make):
    """The layer that predicts masked words is in the checkpoint, and the same words are masked at each step."""
    options = {"num_train_epochs": 3, "per_device_train_batch_size": 16, "save_strategy": "epoch", "eval_strategy": "epoch"}
    trainers = [make(penalties=ALL, train_sampling_strategy="group_by_length", **options) for _ in range(2)]
    with torch.no_grad():
        for parameter in trainers[1].model.parameters():
            parameter.zero_()
    for trainer, checkpoint in zip(trainers, (None, "checkpoint-4"), strict=True):
        trainer.processing_class = None  # which a checkpoint would hold
        trainer.train(resume_from_checkpoint=checkpoint and f"{trainer.args.output_dir}/{checkpoint}")
    assert [trainer.state.global_step for trainer in trainers] == [12, 12]
    same(weights(trainers[1]), weights(trainers[0]))


@pytest.mark.slow
def test_two_processes_train_as_a_single_one(tiny_recipe, tmp_path, quick_figures):
    """The layer for masked words takes part in what processes exchange, and each text has its own penalties."""
    recipe = tiny_recipe(
        penalties={"diversity": 0.5, "word_tying": 0.1, "masked_language_model": 0.2, "masked_share": 0.5},
        training__train_sampling_strategy="sequential",
        training__num_train_epochs=1,
        training__use_cpu=True,
        measure__producers=["gradient"],
    )
    (tmp_path / "tiny.yaml").write_text(recipes.dump(recipe))
    script = f"{IN_A_PROCESS}\nfrom attnfaith import cli\nsys.exit(cli.main(['train', *sys.argv[1:]]))\n"
    (tmp_path / "train.py").write_text(script)
    launch = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--main_process_port", "0", "train.py"]

    def arguments(size, folder):
        return ["--config", str(tmp_path / "tiny.yaml"), "--per_device_train_batch_size", size, "--output_dir", str(folder)]

    command = [sys.executable, "-m", "accelerate.commands.launch", *launch, *arguments("8", tmp_path / "by_2")]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-3000:]
    assert cli.main(["train", *arguments("16", tmp_path / "by_1")]) == 0
    states = [json.loads((tmp_path / f"by_{count}" / "run.json").read_text()) for count in (1, 2)]
    assert [state["processes"] for state in states] == [1, 2]
    same(*(load_file(tmp_path / f"by_{count}" / "model" / "model.safetensors") for count in (1, 2)), atol=2e-5)
