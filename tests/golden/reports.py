"""What is made of records and checkpoints: report tables, a card's metadata, predictions."""

import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml

import attnfaith
from attnfaith.__main__ import main
from tests.golden import subjects, values


QUICKSTART = Path(__file__).parents[2] / "recipes" / "quickstart.yaml"


@functools.cache
def quickstart() -> attnfaith.Record:
    """What the recipe of the quickstart measures, on 24 texts and a model whose weights are drawn and not trained."""
    random = np.random.default_rng(0)
    words = [[subjects.WORDS[word] for word in random.integers(0, len(subjects.WORDS), 3 + row % 8)] for row in range(24)]
    names = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))["measure"]["producers"]
    options = {name: some for name, some in subjects.PLAN["few"].items() if name in names}
    how = {"tokenizer": subjects.tokenizer("bilstm"), "name": "planted_evidence", "split": "test", "progress": False}
    texts, labels = subjects.marked(map(" ".join, words), "rationale"), [row % 2 for row in range(24)]
    return attnfaith.measure(subjects.model("bilstm"), texts, labels, [], add=names, options=options, **how)


def frames() -> dict:
    """The numbers of a report as frames: how measures agree, and all numbers in short."""
    return values_of({"agreement": quickstart().agreement(), "summary": quickstart().summary()})


def tables() -> dict:
    """Every table of the report, as its CSV file has it: column -> values."""
    as_written = {"keep_default_na": False, "na_values": ["NaN"]}
    with tempfile.TemporaryDirectory() as folder:
        quickstart().report(Path(folder) / "report")
        paths = sorted((Path(folder) / "report" / "tables").glob("*.csv"))
        read = {path.stem: pd.read_csv(path, **as_written) for path in paths}
    return values_of(read)


def values_of(frames: dict[str, pd.DataFrame]) -> dict[str, dict[str, list]]:
    """The values of frames by name and column."""
    return {name: {column: frame[column].tolist() for column in frame} for name, frame in frames.items()}


def card() -> dict:
    """The YAML head of a card, parsed, from a folder as a run leaves it."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        shutil.copy(QUICKSTART, run / "recipe.yaml")
        (run / "run.json").write_text(json.dumps({"status": "complete", "versions": {}}), encoding="utf-8")
        quickstart().save(run / "record.parquet")
        main(["cards", str(run), "--to", "owner", "--output", str(Path(folder) / "cards")])
        head = (Path(folder) / "cards" / "quickstart.md").read_text(encoding="utf-8").split("---")[1]
    return yaml.safe_load(head)


def diffmask() -> dict:
    """Gates that two steps have trained, on the texts that they then score."""
    texts, scores = subjects.PLAN["texts"], {}
    for name in ("bilstm", "bert"):
        how = {"tokenizer": subjects.tokenizer(name), "progress": False}
        with tempfile.TemporaryDirectory() as folder:
            training = {"validation": texts, "epochs": 2, "batch_size": 6, "warmup_steps": 0}
            gates = attnfaith.train_gates(subjects.model(name), texts, Path(folder) / "gates.safetensors", **training, **how)
            how |= {"measures": ["diffmask"], "options": {"diffmask": {"gates": str(gates)}}}
            columns = values.columns_of(attnfaith.measure(subjects.model(name), texts, **how).table)
        scores[name] = {column: columns[column] for column in ("importance_diffmask", "diffmask_layers")}
    return scores


def loaded(name: str):
    """A checkpoint in float64 by transformers' Auto classes, and what did not fit."""
    folder = subjects.CHECKPOINTS / name
    return subjects.auto_class(name).from_pretrained(folder, dtype=torch.float64, output_loading_info=True)


@torch.no_grad()
def logits(name: str, model) -> list:
    """Of each text the logits of classes; of each pair of sentences the log-probability of each target token."""
    plan, read = subjects.PLAN, functools.partial(subjects.tokenizer(name), return_tensors="pt")
    if not subjects.of_pairs(name):
        texts = zip(plan["texts"], plan["questions"], strict=True)
        return [model(**read(*both if name == "pair" else both[:1])).logits[0].tolist() for both in texts]
    log_probs = []
    for source, target in plan["pairs"]:
        labels = read(target).input_ids
        scores = model(**read(source), labels=labels).logits.log_softmax(-1)
        log_probs.append(scores[0].gather(1, labels.T)[:, 0].tolist())
    return log_probs


def predictions() -> dict:
    return {name: logits(name, loaded(name)[0].eval()) for name in subjects.FAMILIES}
