"""Remove and retrain (ROAR): does a model learn less from texts without the words that a measure ranks first?

    attnfaith roar RUN --output FOLDER [--measures attention gradient] [--shares 0.1 0.5] [--seeds 10 11]

RUN is a finished run. Its model ranks the words of every text by each measure; the first of them become the unknown word in
training, validation and test; a fresh model of the same recipe is trained on the rest, once for each measure, share and
seed. A measure that ranks the words well costs more accuracy than random words, which are always among the measures.
Two limits. Where evidence is redundant, a new model learns from words that the old model did not use. And the pattern of
removed words can reveal the class (Rong et al. 2022): a signed measure keeps the evidence against the predicted class, from
which a new model can read the prediction backwards. So each signed measure is also ranked by its size (`absolute_`).

FOLDER holds scores-<split>.parquet (records of the run's model), roar.csv, a row for each trained model, and
roar_summary.csv. Stopped and called again, it goes on with the models that are missing.

Source: Hooker et al. 2019; on words and with a summary over shares, Madsen et al. 2022; leakage: Rong et al. 2022.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from accelerate import PartialState
from scipy.special import softmax
from transformers import set_seed

from attnfaith import recipes, record, runs
from attnfaith.data.fingerprint import digest_model
from attnfaith.interventions.explanation_tests import RationaleErasure, rationales
from attnfaith.measurement.engine import scores_by_measure
from attnfaith.measurement.registry import classes, find
from attnfaith.metrics.classification import classification_scores
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.runs.execute import measure
from attnfaith.runs.preparation import Run
from attnfaith.runs.train import make_trainer
from attnfaith.support.draws import generator
from attnfaith.support.files import MODEL, RECIPE, write_atomically


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SPLITS = ("train", "validation", "test")
RANDOM, NOTHING = "random", "none"
KEYS = ["measure", "share", "seed"]
ROWS, SUMMARY = "roar.csv", "roar_summary.csv"


def roar(
    run: Path, output: Path, names: Sequence[str], shares: Sequence[float] = SHARES, seeds: Sequence[int] | None = None
) -> pd.DataFrame:
    """Train all models that are missing in `output` and return its rows: one per measure x share x seed.

    names: "attention", or measures of inputs. seeds: of the fresh models, by default the run's own. Columns: dataset,
    encoder, alignment, projection, measure ("none" with share 0: texts as they are), share, seed, n (test texts with a
    label), accuracy, macro F1.

    Raises RecipeError for a run that has no model, is hierarchical or was not trained on labels, a measure that is not of
    inputs, and where `output` holds the scores of another model.
    """
    if not (run / MODEL).is_dir():
        raise RecipeError(f"{run} holds no trained model ({MODEL}/); train first")
    recipe = recipes.load(run / RECIPE)
    RationaleErasure(shares=tuple(shares))  # checks them
    names = [name for name in dict.fromkeys(names) if name != RANDOM]
    check(recipe, names)
    work, model = Run(recipe, run, PartialState(cpu=not torch.cuda.is_available())), runs.load_model(run)
    loaded, tokenizer, encoded = work.loaded, work.tokenizer, {split: work.rows(split) for split in SPLITS}
    scores = {split: _scores(work, model, names, split, output) for split in SPLITS}
    path, cell = output / ROWS, {"dataset": loaded.entry.name}
    cell |= {name: getattr(recipe.model, name) for name in ("encoder", "alignment", "projection")}
    done = pd.read_csv(path, keep_default_na=False) if path.exists() else pd.DataFrame(columns=KEYS)
    ready = set(done[KEYS].itertuples(index=False, name=None))
    for seed in [recipe.seed] if seeds is None else seeds:
        keys = [(NOTHING, 0.0, seed), *((name, share, seed) for share in shares for name in (RANDOM, *scores["train"]))]
        for name, share, _ in [key for key in keys if key not in ready]:
            where = {"share": share, "unknown": tokenizer.unk_token_id, "start": int(model.config.markers), "seed": seed}
            splits = {split: without(rows, scores[split].get(name), **where) for split, rows in encoded.items()}
            result = _retrain(replace(recipe, seed=seed), loaded, tokenizer, splits)
            print(f"{name} {share:.0%} seed {seed}: accuracy {result['accuracy']:.3f}", flush=True)
            row = pd.DataFrame([{**cell, "measure": name, "share": share, "seed": seed, **result}])
            done = pd.concat([done, row], ignore_index=True)
            write_atomically(path, done.to_csv(index=False))
    write_atomically(output / SUMMARY, summary(done).to_csv(index=False))
    return done


def without(dataset, scores: Mapping[str, np.ndarray] | None, share: float, unknown: int, start: int, seed: int):
    """Return an encoded data set whose ceil(share T) first words by scores, of T in each text, are the unknown word.

    scores: instance id -> [T]; None takes words at random, others with each seed. Equal scores go in random order. start:
    where the first word stands, behind a begin marker or not. A text without words stays as it is, and all with share 0.
    """

    def changed(row):
        if not (length := len(row["tokens"])) or share == 0:
            return {"input_ids": row["input_ids"]}
        random = generator(seed, row["instance_id"], "roar")
        values = random.random(length) if scores is None else scores[row["instance_id"]]
        ids = np.array(row["input_ids"])
        ids[start : start + length][rationales([values], (share,), random)[0, 0]] = unknown
        return {"input_ids": ids.tolist()}

    return dataset.map(changed)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how much more accuracy each measure costs than random words: one row per measure.

    loss: mean over shares of accuracy without random words - accuracy without those of the measure, positive where the
    measure knows better than chance; mean over seeds, with the least and the largest. n_seeds: seeds of which all shares are
    there.
    """
    wide = rows[rows["measure"] != NOTHING].pivot_table(index=["seed", "share"], columns="measure", values="accuracy")
    losses = wide.drop(columns=RANDOM).rsub(wide[RANDOM], axis=0).groupby("seed").agg(lambda part: part.mean(skipna=False))
    names = {"count": "n_seeds", "mean": "loss", "min": "loss_min", "max": "loss_max"}
    return losses.agg([*names]).T.rename(columns=names).astype({"n_seeds": int}).rename_axis("measure").reset_index()


def check(recipe: Recipe, names: Sequence[str]) -> None:
    """Raise RecipeError for a run whose words cannot be removed, and for a name that is no measure of inputs."""
    if recipe.kind != "classifier" or recipe.model.selector or recipe.model.hierarchy != "none":
        raise RecipeError("words are removed from single texts that an attention of this package pools: give another run")
    if recipe.objective.kind != "classification":
        raise RecipeError(f"objective.kind={recipe.objective.kind!r}: words are removed where a model was trained on labels")
    inputs = sorted(measure.name for measure in classes() if measure.role() == "importance")
    unknown = [name for name in names if name not in ("attention", *inputs)]
    if unknown:
        raise RecipeError(f"no measure of inputs is called {unknown}; choose from attention, {', '.join(inputs)}")


def _scores(work: Run, model, names: Sequence[str], split: str, output: Path) -> dict[str, dict[str, np.ndarray]]:
    """Measure -> instance id -> [T], of one split: from the record in `output`, which is made where it is not there."""
    path, section = output / f"scores-{split}.parquet", work.recipe.measure
    wanted = [name for name in names if name != "attention"]
    options = {name: values for name, values in section.options.items() if name in wanted}
    section = replace(section, producers=wanted, options=options, split=split, limit=None)
    recipe = replace(work.recipe, measure=section)
    if not path.exists():
        measure(Run(recipe, work.folder, work.state), path)
    table = record.load(path)
    (settings,) = record.settings(table)
    if [settings["model"], settings["recipe"]] != [digest_model(model), asdict(recipe)]:
        raise RecipeError(f"{path} holds scores of another model, other texts or other measures: give another --output")
    ids = table.column("instance_id").to_pylist()
    declared = {name: column for producer in wanted for name, column in find(producer).columns.items()}
    by_word = [name for name in ("attention", *declared) if record.column_of(table.schema.field(name)).axes == ("T",)]
    scores = scores_by_measure({name: record.rows(table, name) for name in by_word}, declared)
    return {name: dict(zip(ids, rows, strict=True)) for name, rows in scores.items() if name != "attention" or name in names}


def _retrain(recipe: Recipe, loaded, tokenizer, splits: Mapping) -> dict[str, float]:
    """Train a fresh model of the recipe on encoded splits; its scores on the test split."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        recipe = replace(recipe, output_dir=folder)
        set_seed(recipe.seed)
        model = runs.make_model(recipe, loaded, tokenizer)
        trainer = make_trainer(recipe, model, tokenizer, splits, runs.training_arguments(recipe))
        trainer.train()
        predicted = trainer.predict(splits["test"].select_columns(trainer.train_dataset.column_names))
    logits = predicted.predictions[0] if isinstance(predicted.predictions, tuple) else predicted.predictions
    scored = classification_scores(softmax(np.asarray(logits, np.float64), 1), predicted.label_ids)
    f1 = [value for name, value in scored.items() if name.startswith("f1_class_")]
    return {"n": scored["n_scored"], "accuracy": scored["accuracy"], "macro_f1": float(np.mean(f1))}
