"""Trained weights for `benchmark.py`, words like those they were trained on, and Jain & Wallace's tests on all of SST.

As a script: what a training step of models that read a selection costs beside the plain classifier's. Both take turns.
"""

import argparse
import os
import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from benchmark_timing import machine, save, turns

from attnfaith import recipes, record
from attnfaith.data.sources import ROOT_VARIABLE
from attnfaith.measurement import measure
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.configuration_rationale_classifier import RationaleClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.models.modeling_rationale_classifier import RationaleClassifierForSequenceClassification
from attnfaith.models.rationale_samplers import bernoulli_log_prob, expected_share, kuma_shape
from attnfaith.objectives import Constraint, Prices, classification_loss, reinforced, selection_price
from attnfaith.record import Identity
from attnfaith.runs.execute import run
from attnfaith.runs.folder import MODEL, RECORD
from attnfaith.runs.prepare import Texts


EPOCHS = 4
SST = "SetFit/sst2"  # below the data root
GENERATED = "{length: [10, 220], redundancy: 2, distractors: 1, sizes: {train: 2000, validation: 200, test: 400}}"
OVERRIDES = []  # of the recipe, beyond those below
TESTS = ("gradient", "leave_one_out", "permutation", "adversary_exact", "minimal_flip_set")
SUITE_AIM = 4.0  # CPU seconds of all of them on SST's test texts
SUITE_SAID = (
    "From the loaded model and the encoded texts to the written record, by `attnfaith.measurement.measure`: attention, "
    "prediction, the tests, checks of the record and its file are included; reading texts and model, and a report, are not."
)


class Trained(NamedTuple):
    """A trained model, the encoded texts of its test split, whether they are SST's, and what was done in a sentence."""

    model: torch.nn.Module
    rows: object
    genuine: bool
    said: str


def train(folder: Path) -> Trained:
    """Train the benchmark's BiLSTM in a folder: on SST where the data root has it, else on generated texts."""
    root = os.environ.get(ROOT_VARIABLE)
    genuine = bool(root) and (Path(root) / SST).is_dir()
    own = ["--output_dir", str(folder / "run"), "--training.num_train_epochs", str(EPOCHS), "--measure.producers", "[]"]
    own += ["--training.use_cpu", "true", *OVERRIDES]
    if genuine:
        recipe = recipes.load("jain_wallace_2019/sst.yaml", own)
    else:
        recipe = recipes.load(None, [*own, "--data.arguments", GENERATED])
    run(recipe)
    table = record.load(folder / "run" / RECORD)
    probs = np.array(table.column("probs").to_pylist())
    accuracy = float((probs.argmax(1) == table.column("label").to_numpy()).mean())
    texts = Texts(recipe, folder / "run", PartialState(cpu=True))
    sizes = {split: len(texts.loaded.splits[split]) for split in ("train", "test")}
    said = (
        f"Trained weights: {texts.loaded.entry.name}, {sizes['train']:,} training texts, seed {recipe.seed}, {EPOCHS} "
        f"epochs, accuracy {accuracy:.3f} on {sizes['test']:,} test texts, whose words, joined, are the texts they "
        "are timed on."
    )
    model = AttentionClassifierForSequenceClassification.from_pretrained(folder / "run" / MODEL).eval()
    return Trained(model, texts.rows("test"), genuine, said)


def windows(trained: Trained, tokens: int, count: int) -> torch.Tensor:
    """Ids (count, tokens + 2) of the test texts' words, joined and cut to one length, between markers."""
    words = [word for ids in trained.rows["input_ids"] for word in ids[1:-1]]
    config = trained.model.config
    parts = torch.tensor(words[: count * tokens]).view(count, tokens)
    begin, end = (torch.full((count, 1), mark) for mark in (config.bos_token_id, config.eos_token_id))
    return torch.cat([begin, parts, end], 1)


def suite(trained: Trained, turns, repeats: int, folder: Path) -> list[dict]:
    """Rows of CPU seconds for all of the test texts: predictions and attention alone, and with all of the tests."""
    cell, output = Identity("sst", "benchmark", "test", 0), folder / "suite.parquet"
    measured = {"attention and prediction alone": (), "all of Jain & Wallace's tests": TESTS}
    calls = [
        lambda names=names: measure(trained.model, trained.rows, cell, names, output, progress=False)
        for names in measured.values()
    ]
    return [
        {
            "measured": what,
            "producers": ", ".join(names),
            "texts": len(trained.rows),
            "seconds": statistics.median(spent),
            "least_seconds": min(spent),
            "most_seconds": max(spent),
            "seconds_aim": SUITE_AIM if names else None,
            "repeats": repeats,
        }
        for (what, names), spent in zip(measured.items(), turns(calls, repeats), strict=True)
    ]


SELECTORS = {
    "bernoulli": {"sampler": "bernoulli"},
    "hardkuma": {"sampler": "hardkuma"},
    "budget": {"sampler": "budget", "budget": 0.2},
    "budget, transition": {"sampler": "budget", "budget": 0.2, "transition": 0.01},
}
"""The models whose training steps are timed, BiLSTMs of the plain classifier's sizes in both places."""


def selections(tokens: int, texts: int, repeats: int) -> list[dict]:
    """Rows of CPU milliseconds a text: a training step of each kind of selection, and of the plain classifier."""
    torch.manual_seed(0)
    ids = torch.randint(4, 10_000, (texts, tokens + 2))
    ids[:, 0], ids[:, -1] = 2, 3
    labels = torch.randint(0, 2, (texts,))
    steps = {"plain": _step(AttentionClassifierForSequenceClassification(AttentionClassifierConfig(**SIZES)), ids, labels)}
    for name, fields in SELECTORS.items():
        model = RationaleClassifierForSequenceClassification(RationaleClassifierConfig(**SIZES, **fields))
        with torch.no_grad():  # as after some training: scores that differ, not all alike
            model.selector.score.weight.normal_(std=0.1)
        steps[name] = _step(model, ids, labels)
    spent = dict(zip(steps, turns(list(steps.values()), repeats), strict=True))
    plain = statistics.median(spent["plain"])
    return [
        {
            "model": name,
            "tokens": tokens,
            "texts": texts,
            "ms_per_text": 1000 * statistics.median(times) / texts,
            "least_ms": 1000 * min(times) / texts,
            "most_ms": 1000 * max(times) / texts,
            "times_plain": statistics.median(times) / plain,
            "repeats": repeats,
        }
        for name, times in spent.items()
    ]


SIZES = {"vocab_size": 10_000, "embedding_size": 300, "hidden_size": 256}


def _step(model, ids: torch.Tensor, labels: torch.Tensor):
    """A call that trains the model by one step on these texts: forward, loss, backward, optimiser."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True, fused=True)
    sampler, prices, constraint = getattr(model.config, "sampler", None), Prices(), Constraint("share", 0.2)
    model.train()

    def step():
        outputs = model(ids)
        losses = classification_loss(outputs.logits, labels)
        if sampler == "bernoulli":
            inside = model.attendable(ids)
            logs = bernoulli_log_prob(outputs.selection_scores.squeeze(-1), outputs.gates, inside)
            losses = reinforced(losses + selection_price(outputs.gates, inside, prices), logs)
        if sampler == "hardkuma":
            share = expected_share(*kuma_shape(outputs.selection_scores), model.attendable(ids))
            losses = losses + constraint.loss(share, *constraint.after(constraint.start, 0.0, share.mean().item()))
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()

    return step


def main():
    known = argparse.ArgumentParser(description=__doc__)
    known.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "benchmark_results", help="folder of the table"
    )
    known.add_argument("--repeats", type=int, default=9, help="steps of each model")
    given = known.parse_args()
    torch.set_num_threads(1)
    rows = [row for tokens in (20, 200) for row in selections(tokens, 32, given.repeats)]
    given.output.mkdir(parents=True, exist_ok=True)
    said = "CPU time of one thread a text of a training step, batches of 32, the median of the repetitions and their range."
    save(rows, given.output / "selections", f"{said} {machine()}.")


if __name__ == "__main__":
    main()
