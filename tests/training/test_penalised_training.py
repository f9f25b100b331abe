"""Trainings with penalties: a step by hand, what gradients reach, logs and evaluations, and every level of attention."""

import json
import subprocess
import sys

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from attnfaith import cli, recipes
from attnfaith.data.collation import pad_batch
from attnfaith.training import AttentionTrainer
from attnfaith.training.losses import classification_loss
from attnfaith.training.penalties import conicity, drawn_words, impermissible_mass, masked_language_model, word_tying
from attnfaith.training.trainers import erase_tokens
from attnfaith.training.word_states import PREDICTION, ClassifierReader
from tests.figures import IN_A_PROCESS
from tests.tiny_trainings import make_trainer, penalties_by_name, same, weights


pytestmark = pytest.mark.slow


ALL = {"impermissible_mass": 0.7, "diversity": 0.4, "word_tying": 0.3, "masked_language_model": 0.2, "masked_share": 0.5}


def marked_rows(tiny_rows, lengths, seed=1, **kinds):
    """Rows with marks at about a third of the words, and a label to learn."""
    generator = np.random.default_rng(seed)
    rows = tiny_rows([generator.integers(5, 60, length).tolist() for length in lengths], **kinds)
    for row in rows:
        row["impermissible"] = [int(number % 3 == 0) for number in row["input_ids"]]
        row["labels"] = sum(row["impermissible"]) % 2
        row["length"] = len(row["input_ids"])
    return rows


@pytest.fixture
def make(tiny_model, tiny_rows, tmp_path):
    """A Trainer of penalties on 64 tiny texts in which a third of the words are impermissible."""

    def trainer(penalties=None, *, lengths=None, kinds=None, kind=AttentionTrainer, **arguments):
        kinds = kinds or {}
        lengths = lengths or np.random.default_rng(3).integers(2, 9, 64).tolist()
        rows = {name: kinds[name] for name in ("pair", "hierarchy") if name in kinds}
        columns = ["input_ids", "labels", "length", "impermissible", *(["token_type_ids"] if rows.get("pair") else [])]
        model = {name: value for name, value in kinds.items() if name != "pair"}
        splits = (marked_rows(tiny_rows, lengths, **rows), marked_rows(tiny_rows, lengths[:24], 2, **rows))
        return make_trainer(
            tiny_model(seed=5, scale=1.0, dtype=torch.float32, query="text" if rows.get("pair") else "learned", **model),
            *(datasets.Dataset.from_list(split).select_columns(columns) for split in splits),
            tmp_path,
            kind=kind,
            penalties=penalties_by_name(**penalties or {}),
            **{"balance_classes": False, **arguments},
        )

    return trainer


def penalties_by_hand(model, batch, *, seed=0, step=0, share=0.5):
    """The four penalties (B,) of a flat model of single texts, stage by stage."""
    ids, present = batch["input_ids"], batch["attention_mask"]
    hidden, mask, _ = model.encode(ids, present)
    masked = drawn_words(ids, present, mask & (ids != 1), share, seed=seed, step=step)
    states = model.encode(ids.masked_fill(masked, 1), present)[0]
    return {
        "impermissible_mass": impermissible_mass(
            model.attend(hidden, mask), batch["impermissible"], mask, scores=model.model.alignment(hidden)
        ),
        "diversity": conicity(hidden, mask),
        "word_tying": word_tying(hidden, model.model.embeddings(ids), mask),
        "masked_language_model": masked_language_model(getattr(model, PREDICTION)(states[masked]), ids, masked),
    }


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_step_of_all_four_by_hand(make, reduction):
    trainer = make(ALL, loss_reduction=reduction, lengths=[5, 3, 8, 2] * 8)
    model = trainer.model
    before, batch = weights(trainer), pad_batch(list(trainer.train_dataset))
    losses = classification_loss(model(batch["input_ids"], batch["attention_mask"]).logits, batch["labels"])
    parts = penalties_by_hand(model, batch)
    for name, value in parts.items():
        assert value.min() >= 0 and value.max() > 0.01, name
        losses = losses + ALL[name] * value
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True)
    (losses.sum() if reduction == "sum" else losses.mean()).backward()
    optimizer.step()
    expected = weights(trainer)
    optimizer.zero_grad()
    model.load_state_dict(before)
    trainer.train()
    same(weights(trainer), expected, atol=2e-6)
    (logs,) = [logs for logs in trainer.state.log_history if "loss" in logs]
    assert logs["loss"] == pytest.approx(losses.mean().item(), rel=1e-4)
    parts = {name: value.detach() for name, value in parts.items()}
    marks, masked = batch["impermissible"].bool(), batch["attention_mask"].bool()
    defined = (masked[:, 2:] & ~marks[:, 1:-1]).any(-1)
    assert logs["impermissible_mass"] == pytest.approx(float(parts["impermissible_mass"][defined].mean()), rel=1e-4)
    assert logs.get("impermissible_mass_undefined", 0) == int((~defined).sum())
    assert logs["diversity"] == pytest.approx(float(parts["diversity"].mean()), rel=1e-4)
    assert logs["word_tying"] == pytest.approx(float(parts["word_tying"].mean()), rel=1e-4)


KINDS = [
    {},
    {"projection": "sparsemax"},
    {"encoder": "transformer"},
    {"encoder": "cnn", "hidden_size": 8, "score_scale": 1.0},
    {"encoder": "average", "alignment": "dot"},
    {"encoder": "embedding", "projection": "entmax15"},
    {"projection": "uniform"},
    {"pair": True},
    {"hierarchy": "sentence"},
    {"hierarchy": "sentence", "projection": "sparsegen", "encoder": "bigru"},
    {"hierarchy": "sentence", "pair": True, "dropout": 0.1},
]


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(map(str, kinds.values())) or "plain")
def test_a_text_has_its_penalties_in_any_batch(make, kinds):
    trainer = make({**ALL, "masked_share": 0.9}, kinds={**kinds, "dropout": 0.0})
    trainer.model.eval()
    rows = list(trainer.eval_dataset)[:9]

    def values(rows):
        batch = pad_batch(rows)
        batch.pop("labels")
        _, values = trainer.outputs_and_penalties(trainer.model, batch, batch.pop("impermissible"))
        return values

    with torch.no_grad():
        whole = values(rows)
        assert all(value.shape == (9,) and value.isfinite().all() for value, _ in whole.values())
        order = [4, 2, 8, 0, 1, 3, 7, 6, 5]
        for name, (value, defined) in values([rows[place] for place in order]).items():
            torch.testing.assert_close(value, whole[name][0][order], msg=name)
            assert defined.equal(whole[name][1][order])
        for place, row in enumerate(rows):
            for name, (value, defined) in values([row]).items():
                torch.testing.assert_close(value, whole[name][0][[place]], msg=name)
                assert defined.equal(whole[name][1][[place]])


@pytest.mark.parametrize("projection", ["softmax", "sparsemax"])
def test_words_of_sentences_weigh_what_both_levels_give_them(tiny_model, tiny_rows, projection):
    """Against loops over sentences and words."""
    model = tiny_model(hierarchy="sentence", projection=projection, scale=1.0, dtype=torch.float32)
    batch = pad_batch(marked_rows(tiny_rows, [8, 2, 5], hierarchy="sentence"))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    reader = ClassifierReader(model)
    with reader.reading(inputs) as read:
        outputs = model(**inputs)
    actual, items = reader.word_states(inputs, outputs, read), model.items(**inputs)
    assert actual.words.equal(items >= 0) and (actual.scores is None) == (projection != "softmax")
    torch.testing.assert_close(actual.attention.sum(-1), torch.ones(3))
    for row in range(3):
        for place in range(items.shape[1]):
            item = int(items[row, place])
            weight = outputs.attention[row, item] * outputs.word_attention[row, place] if item >= 0 else torch.tensor(0.0)
            torch.testing.assert_close(actual.attention[row, place], weight)
    if actual.scores is not None:
        torch.testing.assert_close(actual.scores.exp()[actual.words], actual.attention[actual.words])


@pytest.mark.parametrize("size", [5, 24])
def test_an_evaluation_has_the_means(make, size):
    trainer = make(ALL, per_device_eval_batch_size=size)
    scores, batch = trainer.evaluate(), pad_batch(list(trainer.eval_dataset))
    with torch.no_grad():
        logits = trainer.model(batch["input_ids"], batch["attention_mask"]).logits
        parts = penalties_by_hand(trainer.model, batch, step=-1)
    losses = classification_loss(logits, batch["labels"]) + sum(ALL[name] * value for name, value in parts.items())
    assert scores["eval_loss"] == pytest.approx(float(losses.mean()), rel=1e-5)
    assert scores["eval_diversity"] == pytest.approx(float(parts["diversity"].mean()), rel=1e-5)
    assert scores["eval_impermissible_mass"] > 0 and scores["eval_masked_language_model"] > 3
    assert trainer.evaluate()["eval_loss"] == scores["eval_loss"]  # the same words are masked


def test_erased_words_take_their_marks_along(make):
    trainer = make({"impermissible_mass": 1.0}, random_erasure=0.9)
    batch = pad_batch(list(trainer.train_dataset))
    remaining = erase_tokens(trainer.model, batch, 0.9, seed=0, step=0)
    assert remaining["attention_mask"].sum() < batch["attention_mask"].sum() - 50
    ids, mask = remaining["input_ids"], remaining["attention_mask"]
    assert remaining["impermissible"].equal(((ids % 3 == 0) & (mask == 1) & (ids > 0)).long())
    trainer.train()
    assert all(value.isfinite().all() for value in weights(trainer).values())


def test_a_training_goes_on_where_it_was_stopped(make):
    """The layer that predicts masked words is in the checkpoint, and the same words are masked at each step."""

    def trainer():
        result = make(ALL, num_train_epochs=3, per_device_train_batch_size=16, save_strategy="epoch", eval_strategy="epoch")
        result.processing_class = None
        return result

    whole = trainer()
    whole.train()
    again = trainer()
    with torch.no_grad():
        for parameter in again.model.parameters():
            parameter.zero_()
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-4")
    assert whole.state.global_step == again.state.global_step == 12
    same(weights(again), weights(whole))


TRAIN = f"""{IN_A_PROCESS}
from attnfaith import cli
sys.exit(cli.main(["train", *sys.argv[1:]]))
"""


def test_two_processes_learn_what_a_single_process_learns(tiny_recipe, tmp_path, quick_report):
    """The layer for masked words takes part in what processes exchange, and each text has its own penalties."""
    recipe = tiny_recipe(
        penalties={"diversity": 0.5, "word_tying": 0.1, "masked_language_model": 0.2, "masked_share": 0.5},
        training__train_sampling_strategy="sequential",
        training__num_train_epochs=1,
        training__use_cpu=True,
        measure__producers=["gradient"],
    )
    (tmp_path / "tiny.yaml").write_text(recipes.dump(recipe))
    (tmp_path / "train.py").write_text(TRAIN)
    launch = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--main_process_port", "0", "train.py"]

    def arguments(size, folder):
        return ["--config", str(tmp_path / "tiny.yaml"), "--per_device_train_batch_size", size, "--output_dir", str(folder)]

    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", *launch, *arguments("8", tmp_path / "by_2")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert cli.main(["train", *arguments("16", tmp_path / "by_1")]) == 0
    learned = []
    for processes in (1, 2):
        folder = tmp_path / f"by_{processes}"
        assert json.loads((folder / "run.json").read_text())["processes"] == processes
        learned.append(load_file(folder / "model" / "model.safetensors"))
    same(*learned, atol=2e-5)
