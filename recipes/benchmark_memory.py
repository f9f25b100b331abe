"""What memory a measurement takes: the peak of processes that measure many texts and long ones. About 20 minutes."""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from benchmark import VOCABULARY
from datasets import Dataset

from attnfaith.measurement import measure
from attnfaith.models.configuration_attention_classifier import AttentionClassifierConfig
from attnfaith.models.modeling_attention_classifier import AttentionClassifierForSequenceClassification
from attnfaith.record import Identity
from attnfaith.reporting import save_table


PLANS = (
    (25000, 250, ["gradient", "gradient_norm"]),
    (1000, 250, ["gradient", "gradient_norm", "leave_one_out"]),
    (100, 250, ["gradient_hidden_to_input"]),
    (2, 4000, ["gradient_hidden_to_input"]),
)
"""Texts, tokens of each, and producers."""


def peak(texts, tokens, producers):
    """Peak resident memory in MiB of measuring so many texts of so many tokens, in a process of its own."""
    command = [sys.executable, __file__, "--run", str(texts), str(tokens), *producers]
    result = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return float(result.stdout.split()[-1])


def run(texts, tokens, producers):
    def rows():
        rng = np.random.default_rng(0)
        for number in range(texts):
            words = rng.integers(4, VOCABULARY, tokens)
            yield {
                "instance_id": f"generated/test/{number}",
                "input_ids": [2, *words.tolist(), 3],
                "labels": int(number % 2),
                "tokens": [f"w{word}" for word in words],
                "length": tokens + 2,
                "truncated": False,
            }

    with tempfile.TemporaryDirectory() as folder:
        dataset = Dataset.from_generator(rows, cache_dir=folder)
        model = AttentionClassifierForSequenceClassification(AttentionClassifierConfig(vocab_size=VOCABULARY))
        cell = Identity("generated", "benchmark", "test", 0)
        measure(model, dataset, cell, producers, Path(folder) / "record.parquet")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("recipes/benchmark_results"))
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    known = parser.parse_args()
    torch.set_num_threads(1)
    if known.run:
        texts, tokens, *producers = known.run
        return run(int(texts), int(tokens), producers)
    rows = [{"texts": n, "tokens": t, "producers": ", ".join(p), "peak_mib": peak(n, t, p)} for n, t, p in PLANS]
    save_table(pd.DataFrame(rows), known.output / "memory")
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
