"""Remove and retrain (ROAR): does a model learn less from texts without the words that a measure ranks first?

    attnfaith roar RUN --output FOLDER [--measures attention gradient] [--shares 0.1 0.5] [--seeds 10 11]

RUN is a finished run. Its model ranks the words of every training, validation and test text by each measure; the first of
them become the unknown word, in all three splits; a fresh model of the same recipe is trained on what is left, once for each
measure, share and seed, and classifies the test texts. A measure that knows what mattered costs more accuracy than words
taken at random, which are always among the measures. Since each model is trained on texts like those that it is tested on,
none is shown anything new; but where evidence is redundant, removing what one model used does not keep another from
learning, and what a new model learns says little of the old one. And which words are gone can itself tell the class (Rong et
al. 2022): a signed measure takes the evidence for the class that the old model predicted and leaves that against it, from
which a new model can read the prediction backwards. So each signed measure is there by its size as well (`absolute_`), and a
measure that seems worse than chance at a large share may have removed too well.

FOLDER holds scores-<split>.parquet (records of the run's model), roar.csv, a row for each trained model, and
roar_summary.csv. Stopped and called again, it goes on with the models that are missing.

Source: Hooker et al. 2019; on words and with a summary over shares, Madsen et al. 2022; leakage: Rong et al. 2022.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from accelerate import PartialState
from datasets import disable_progress_bars
from transformers import set_seed

from attnfaith import recipes, record, runs
from attnfaith.data.fingerprint import digest_data, digest_model, fingerprint
from attnfaith.data.tokenization import encode
from attnfaith.draws import generator
from attnfaith.escaping import csv_frame, read_csv
from attnfaith.files import write_atomically
from attnfaith.interventions.explanation_tests import RationaleErasure, rationales
from attnfaith.measurement.engine import measure, scores_by_measure
from attnfaith.measurement.registry import classes, find
from attnfaith.metrics.classification import classification_scores
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.runs.train import make_trainer


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SPLITS = ("train", "validation", "test")
RANDOM, NOTHING = "random", "none"
KEYS = ["measure", "share", "seed"]
ROWS = "roar.csv"
SUMMARY = "roar_summary.csv"


def roar(
    run: Path, output: Path, names: Sequence[str], shares: Sequence[float] = SHARES, seeds: Sequence[int] | None = None
) -> pd.DataFrame:
    """Train all models that are missing in `output` and return its rows: one per measure x share x seed.

    names: "attention", or measures of inputs by their file names. seeds: of the fresh models, by default the run's own.
    Columns: dataset, encoder, alignment, projection, measure ("none" with share 0: texts as they are), share, seed, n (test
    texts with a label), accuracy, macro F1.

    Raises RecipeError for a run that is hierarchical or was not trained on labels, a measure that nobody has or that is not
    of inputs, and where `output` holds the scores of another model.
    """
    recipe = recipes.load(run / runs.RECIPE)
    seeds = [recipe.seed] if seeds is None else list(seeds)
    RationaleErasure(shares=tuple(shares))
    names = [name for name in dict.fromkeys(names) if name != RANDOM]
    _check(recipe, names)
    state = PartialState(cpu=not torch.cuda.is_available())
    if state.num_processes > 1:
        raise RecipeError(f"{state.num_processes} processes would train the same models: start one, with python")
    model, tokenizer = runs.load_model(run).to(state.device), runs.load_tokenizer(run)
    loaded = runs.load_data(recipe)
    encoded = {split: encode(loaded.splits[split], tokenizer) for split in SPLITS}
    scores = {split: _scores(model, recipe, loaded, split, rows, names, output) for split, rows in encoded.items()}
    done = _read(output / ROWS)
    known = set(zip(*(done[key] for key in KEYS), strict=True))
    wanted = [(NOTHING, 0.0, seed) for seed in seeds]
    wanted += [(name, share, seed) for seed in seeds for share in shares for name in (RANDOM, *scores["train"])]
    start = 1 if model.config.markers else 0
    cell = {
        "dataset": loaded.entry.name,
        **{name: getattr(recipe.model, name) for name in ("encoder", "alignment", "projection")},
    }
    for key in wanted:
        if key in known:
            continue
        measure_name, share, seed = key
        splits = encoded
        if measure_name != NOTHING:
            splits = {
                split: without(rows, scores[split].get(measure_name), share, tokenizer.unk_token_id, start, seed)
                for split, rows in encoded.items()
            }
        result = _retrain(dataclasses.replace(recipe, seed=seed), loaded, tokenizer, splits)
        print(f"{measure_name} {share:.0%} seed {seed}: accuracy {result['accuracy']:.3f}")
        done = pd.concat([done, pd.DataFrame([{**cell, **dict(zip(KEYS, key, strict=True)), **result}])], ignore_index=True)
        write_atomically(output / ROWS, csv_frame(done, undefined="").encode())
    write_atomically(output / SUMMARY, csv_frame(summary(done)).encode())
    return done


def without(dataset, scores: Mapping[str, np.ndarray] | None, share: float, unknown: int, start: int, seed: int):
    """An encoded data set in which the first words by scores are the unknown one: ceil(share T) of the T words of each text.

    scores: instance id -> [T]; None takes words at random, others with each seed. Equal scores go in random order. start:
    where the first word stands, behind a begin marker or not. A text without words stays as it is.
    """

    def changed(row):
        length = len(row["tokens"])
        if not length:
            return {"input_ids": row["input_ids"]}
        random = generator(seed, row["instance_id"], "roar")
        values = random.random(length) if scores is None else scores[row["instance_id"]]
        first = rationales([values], (share,), random)[0, 0]
        ids = np.array(row["input_ids"])
        ids[start : start + length][first] = unknown
        return {"input_ids": ids.tolist()}

    return dataset.map(changed)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """How much more accuracy each measure costs than words taken at random: one row per measure.

    loss: mean over shares of accuracy without random words - accuracy without those of the measure, positive where the
    measure knows better than chance; mean over seeds, with the least and the largest. n_seeds: seeds of which all shares are
    there.
    """
    wide = rows[rows["measure"] != NOTHING].pivot_table(index=["seed", "share"], columns="measure", values="accuracy")
    rows = []
    for name in (name for name in wide.columns if name != RANDOM):
        losses = (wide[RANDOM] - wide[name]).groupby("seed").agg(lambda part: part.mean(skipna=False)).dropna()
        rows.append(
            {
                "measure": name,
                "n_seeds": len(losses),
                "loss": losses.mean(),
                "loss_min": losses.min(),
                "loss_max": losses.max(),
            }
        )
    return pd.DataFrame(rows, columns=["measure", "n_seeds", "loss", "loss_min", "loss_max"])


def _check(recipe: Recipe, names: Sequence[str]) -> None:
    if recipe.model.type is not None:
        raise RecipeError(f"the run has model.type={recipe.model.type!r}: take one of texts with classes")
    if recipe.model.pretrained is not None:
        raise RecipeError("the run has model.pretrained: words are removed where a model of this package is trained anew")
    if recipe.model.selector is not None:
        raise RecipeError("the run has model.selector, which leaves words out itself: take one that reads whole texts")
    if recipe.model.hierarchy != "none":
        raise RecipeError("the run attends to sentences and words are removed: take one with model.hierarchy='none'")
    if recipe.objective.kind != "classification":
        raise RecipeError(f"the run has objective.kind={recipe.objective.kind!r}: take one that was trained on labels")
    of_inputs = sorted(measure.name for measure in classes() if measure.role() == "importance")
    if unknown := [name for name in names if name not in ("attention", *of_inputs)]:
        raise RecipeError(f"no measure is called {unknown}; choose from attention, {', '.join(of_inputs)}")


def _scores(model, recipe: Recipe, loaded, split: str, rows, names, output: Path) -> dict[str, dict[str, np.ndarray]]:
    """Measure -> instance id -> [T], of one split: from the record in `output`, which is made where it is not there."""
    path = output / f"scores-{split}.parquet"
    wanted = [name for name in names if name != "attention"]
    if not path.exists():
        cell = record.Identity(loaded.entry.name, fingerprint(loaded.splits[split]), split, recipe.seed)
        options = {name: given for name, given in recipe.measure.options.items() if name in wanted}
        measure(model, rows, cell, wanted, path, options=options, seed=recipe.measure.seed)
    table = record.load(path)
    (made,) = record.settings(table)
    if (made["model"], made["data"]) != (digest_model(model), digest_data(rows)) or made["producers"] != wanted:
        raise RecipeError(f"{path} holds scores of another model, other texts or other measures: give another --output")
    ids = table.column("instance_id").to_pylist()
    declared = {name: column for measure in wanted for name, column in find(measure).columns.items()}
    columns = {
        name: record.rows(table, name)
        for name in ("attention", *declared)
        if record.axes(table.schema.field(name)) == ("T",)
    }
    scores = scores_by_measure(columns, declared)
    return {
        name: dict(zip(ids, values, strict=True)) for name, values in scores.items() if name not in {"attention"} - {*names}
    }


def _retrain(recipe: Recipe, loaded, tokenizer, splits: Mapping) -> dict[str, float]:
    """Train a fresh model of the recipe on encoded splits; its scores on the test split."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        recipe = dataclasses.replace(recipe, output_dir=folder)
        arguments = runs.training_arguments(recipe)
        set_seed(recipe.seed)
        model = runs.make_model(recipe, loaded, tokenizer)
        trainer = make_trainer(recipe, model, tokenizer, splits, arguments)
        trainer.train()
        predicted = trainer.predict(splits["test"].select_columns(trainer.train_dataset.column_names))
    logits = predicted.predictions[0] if isinstance(predicted.predictions, tuple) else predicted.predictions
    logits = np.asarray(logits, np.float64)
    probs = np.exp(logits - logits.max(1, keepdims=True))
    scored = classification_scores(probs / probs.sum(1, keepdims=True), predicted.label_ids)
    f1 = [value for name, value in scored.items() if name.startswith("f1_class_")]
    return {"n": scored["n_scored"], "accuracy": scored["accuracy"], "macro_f1": float(np.mean(f1))}


def _read(path: Path) -> pd.DataFrame:
    return read_csv(path, dtype={"measure": str}, keep_default_na=False) if path.exists() else pd.DataFrame(columns=KEYS)


def command(
    run: Path,
    output: Path,
    measures: Sequence[str],
    shares: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
) -> None:
    """`roar`, and its summary printed. Raises RecipeError for a folder without a trained model."""
    if not (run / runs.MODEL).is_dir():
        raise RecipeError(f"{run} holds no trained model ({runs.MODEL}/); train first")
    disable_progress_bars()
    rows = roar(run, output, measures, SHARES if shares is None else shares, seeds)
    print(summary(rows).to_string(index=False))
