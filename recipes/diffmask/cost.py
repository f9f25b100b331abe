"""What DiffMask costs a text, beside a reading, integrated gradients and occlusion; and what a step of its training costs.

python recipes/diffmask/cost.py RUN [--texts 32] [--seconds 10] [--output recipes/diffmask/results]: of a run whose gates are
trained, on texts of its test split. CPU time of this process, medians, the sides taking turns. The log of the gates'
training is put beside it.
"""

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from benchmark_timing import machine, save, take_turns
from datasets import Dataset

from attnfaith import recipes
from attnfaith.importance.diffmask import FOLDER, DiffMask, train_gates
from attnfaith.importance.gates import about_gates
from attnfaith.importance.integrated import IntegratedGradients
from attnfaith.importance.perturbation import Occlusion
from attnfaith.runs import load_data, load_model, load_tokenizer
from attnfaith.runs.models import measurable
from attnfaith.subjects import subject_of


def costs(subject, rows: Dataset, gates: str, seconds: float, by: str = "delete") -> list[dict]:
    """Milliseconds a text of each measure on encoded texts, and of a step of training on all of them as one batch."""
    instances = rows.to_list()

    def once(measure):
        with torch.no_grad():
            return measure(subject, subject.collate(instances))

    settings = DiffMask(**{**about_gates(gates)["settings"], "epochs": 1, "batch_size": len(rows), "warmup_steps": 0})
    sides = {
        "reading": lambda: once(lambda model, batch: model.predict(batch)),
        "diffmask": lambda: once(DiffMask(gates=gates)),
        "integrated gradients": lambda: once(IntegratedGradients()),
        "occlusion": lambda: once(Occlusion(by=by)),
        "training step of diffmask, and its validation on one text": lambda: train_gates(
            subject, rows, rows.select([0]), settings, 0
        ),
    }
    with subject.evaluating():
        spent = [side.median for side in take_turns([*sides.values()], seconds)]
    lengths = float(np.mean([len(tokens) for tokens in rows["tokens"]]))
    return [
        {
            "what": name,
            "tokens": lengths,
            "texts": len(rows),
            "ms_per_text": 1e3 * one / len(rows),
            "readings": one / spent[0],
        }
        for name, one in zip(sides, spent, strict=True)
    ]


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10, help="the least that each side is timed for")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    known = parser.parse_args(arguments)
    torch.set_num_threads(1)
    made = sorted((known.run / FOLDER).glob("*.safetensors"))
    if not made:
        raise SystemExit(f"{known.run} has no trained gates: attnfaith measure {known.run} --add diffmask")
    recipe = recipes.load(known.run / "recipe.yaml")
    subject = subject_of(measurable(load_model(known.run), load_tokenizer(known.run)))
    subject.tokenizer = load_tokenizer(known.run)
    rows = subject.rows(load_data(recipe, {"test": known.texts}).splits["test"])
    by = recipe.measure.options.get("occlusion", {}).get("by", "delete")
    save(costs(subject, rows, str(made[0]), known.seconds, by), known.output / f"cost_{known.run.name}", machine())
    shutil.copyfile(made[0].with_suffix(".csv"), known.output / f"training_{known.run.name}.csv")


if __name__ == "__main__":
    main()
