"""Trained weights for `benchmark.py`, words like those they were trained on, and Jain & Wallace's tests on all of SST."""

import os
import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import PartialState

from attnfaith import recipes, record
from attnfaith.data.sources import ROOT_VARIABLE
from attnfaith.measurement import measure
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
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
