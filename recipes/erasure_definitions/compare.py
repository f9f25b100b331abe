"""Sufficiency and comprehensiveness as ERASER, Carton et al. and ferret define them, beside ours, on the same texts.

    python recipes/erasure_definitions/compare.py RUN [RUN ...] --output FOLDER [--measures attention gradient] [--limit 300]

All erase the tokens that a measure ranks first, or all others, and take how far the probability p of a class falls. Which
tokens, which class and which mean differ:

* ours, as ERASER's code: the class predicted for the whole text; the first 1, 5, 10, 20 and 50 % of the tokens, rounded up;
  the mean of five falls. That code averages what it is handed: how a share is rounded is up to those who hand it in.
* ERASER's paper: their sum over six, since the formula counts the empty rationale, where nothing falls.
* Carton et al.: the fall, none below 0, over that of the text without any token; sufficiency is 1 less that.
* ferret 0.4.2, as it comes: the first 10, 20, ... 100 %, rounded down, and of those only tokens with a score above 0; a
  share without a token, or with the tokens of the share before, is left out of the mean. Of measures without a sign, 100 %
  is the whole text: its fall is the same whatever the measure. Where a text has no rationale at all, comprehensiveness is 0
  and sufficiency 1. `explain` and the evaluators take class 1 unless told, `evaluate_samples` the predicted one.

From ours to ferret's the table goes one change at a time, so that each has a size. In all of them tokens are deleted, not
masked, and begin and end markers stay: ferret's defaults too. Tokens of equal score stand in our random order everywhere;
ferret leaves theirs to a sort that is not stable, and in short texts the later one comes first. Probabilities are float64,
ferret's those of the model. Undefined, in every row: a text without tokens (0 and 1 in ferret), a score that is NaN.

FOLDER gets erasure_definitions.csv, .md and .parquet: a row per run x definition x measure.

Sources: DeYoung et al. 2020, section 4.2, and rationale_benchmark/metrics.py of jayded/eraserbenchmark (3ae7641); Carton et
al. 2020, section 3; Attanasio et al. 2023, and evaluators/faithfulness_measures.py of ferret-xai 0.4.2.
"""

import argparse
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoTokenizer

from attnfaith import AttentionClassifierForSequenceClassification, recipes, runs
from attnfaith._random import generator
from attnfaith.cli import guarded
from attnfaith.data.collation import pad_batch
from attnfaith.data.registry import entry_of
from attnfaith.data.tokenization import encode
from attnfaith.experiments._subsets import distinct, read_parts, scores, whole
from attnfaith.experiments.rationale_erasure import rationales
from attnfaith.measurement import PREFIX, load_producers, producers
from attnfaith.metrics.attention_faithfulness.erasure_curves import BINS, comprehensiveness, erasure_results, sufficiency
from attnfaith.recipes import Recipe, RecipeError
from attnfaith.reporting import save_table
from attnfaith.shards import BATCH_INSTANCES
from attnfaith.stats import mean
from attnfaith.subjects import Batch, subject_of


MEASURES = ("attention", "gradient", "gradient_x_input", "integrated_gradients")
TENTHS = np.arange(1, 11)
FERRET_CLASS = 1
QUANTITIES = ("sufficiency", "comprehensiveness")


@dataclass(frozen=True)
class Definition:
    """after: the definition that it differs from in one point. change: which. masks: whose falls are averaged, None for
    those of the metric. repeats: whether a rationale like the one before counts again.
    """

    name: str
    after: str
    change: str
    masks: str | None = None
    repeats: bool = True


DEFINITIONS = (
    Definition("ours", "ours", "mean over 1, 5, 10, 20, 50 % of the tokens, rounded up: as ERASER's code"),
    Definition("eraser_paper", "ours", "five falls are divided by six: the empty rationale counts"),
    Definition("carton", "ours", "relative to the fall of the empty text, none below 0; sufficiency is 1 less it"),
    Definition("ferret_on_our_masks", "ours", "a rationale like the one before is left out", "bins", repeats=False),
    Definition("tenths", "ours", "mean over 10, 20, ... 100 % of the tokens", "tenths"),
    Definition("rounded_down", "tenths", "shares are rounded down, those below one token left out", "down"),
    Definition("repeats_out", "rounded_down", "a rationale like the one before is left out", "down", repeats=False),
    Definition("ferret", "repeats_out", "only tokens with a score above 0; none at all: 1 and 0", "positive", repeats=False),
    Definition("ferret_class_1", "ferret", "class 1 is explained, whatever is predicted", "class_1", repeats=False),
)


@dataclass(frozen=True)
class Said:
    """What a model says of one text's rationales of M measures and S growing shares: masks (M,S,T) bool, and the probability
    of one class for each of them alone (kept) and for the text without it (removed), (M,S), for all and for no token.
    """

    masks: np.ndarray
    kept: np.ndarray
    removed: np.ndarray
    whole: float
    empty: float


def masks(values: Sequence[np.ndarray], seed: int, instance_id: str) -> dict[str, np.ndarray]:
    """The rationales (M,S,T) of one text by name, given one array of scores (T,) per measure.

    bins: those of `experiments.rationale_erasure`. tenths: rounded up likewise. down: rounded down, so that some hold no
    token. positive: of these only the tokens with a score above 0, as ferret chooses.
    """

    def first(shares) -> np.ndarray:
        return rationales(values, shares, generator(seed, instance_id, "rationale_erasure"))  # one order of ties for all

    length = len(values[0])
    counts = length * TENTHS // 10
    down = first(np.maximum(counts, 1) / max(length, 1)) & (counts > 0)[:, None]
    positive = np.stack([np.asarray(row) > 0 for row in values])[:, None]
    return {"bins": first(BINS), "tenths": first(TENTHS / 10), "down": down, "positive": down & positive}


def by_definition(said: Mapping[str, Said]) -> dict[str, np.ndarray]:
    """Sufficiency and comprehensiveness (M,2) of one text by definition, from what is said of the masks of each name."""
    ours = said["bins"]
    ends = (np.full(len(ours.kept), end) for end in (ours.whole, ours.empty))
    results = erasure_results(next(ends), ours.kept, ours.removed, next(ends))
    numbers = {
        "ours": [results[f"{quantity}_aopc"] for quantity in QUANTITIES],
        "eraser_paper": [results[f"{quantity}_aopc_paper"] for quantity in QUANTITIES],
        "carton": [results[f"normalised_{quantity}"] for quantity in QUANTITIES],
    }
    for definition in DEFINITIONS:
        if definition.masks in said:
            one = said[definition.masks]
            full = np.full(len(one.kept), one.whole)
            numbers[definition.name] = [
                [averaged(*row, nothing, definition.repeats) for row in zip(falls, one.masks, strict=True)]
                for falls, nothing in ((sufficiency(full, one.kept), 1.0), (comprehensiveness(full, one.removed), 0.0))
            ]
    return {name: np.array(values, np.float64).T for name, values in numbers.items()}


def averaged(falls: np.ndarray, masks: np.ndarray, nothing: float, repeats: bool) -> float:
    """Mean of falls (S,) over the rationales (S,T) that hold a token and, unless repeats, more than the one before.

    nothing: what it is where no rationale does.
    """
    sizes = masks.sum(1)
    counted = sizes > 0 if repeats else np.diff(sizes, prepend=0) > 0
    return float(falls[counted].mean()) if counted.any() else nothing


def compare(run: Path, names: Sequence[str], limit: int) -> pd.DataFrame:
    """The table of one run: a row per definition x measure.

    names: "attention", or measures of inputs by their file names; signed ones rank by signed value. limit: texts of the
    split that the run measures, drawn as `measure.limit` draws them. Columns: the run's, definition, measure, n,
    n_undefined, and of both quantities the mean, its difference to ours and the one to compared_with, which differs in the
    change alone; differences are means over the texts where both are defined.

    Raises RecipeError as `check` says, ValueError where a measure cannot be given for the model.
    """
    recipe = check(run, names, limit)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AttentionClassifierForSequenceClassification.from_pretrained(run / runs.MODEL).to(device)
    tokenizer = AutoTokenizer.from_pretrained(run / runs.MODEL, trust_remote_code=False)
    split = recipe.measure.split
    rows = encode(runs.load_data(recipe, {**recipe.data.limits, split: limit}).splits[split], tokenizer)
    measured, values = instances(model, rows, recipe, names)
    cell = {key: getattr(recipe.model, key) for key in ("encoder", "alignment", "projection")}
    cell = {"run": run.name, "dataset": entry_of(recipe.data).name, **cell, "seed": recipe.seed}
    return pd.DataFrame([{**cell, **row} for row in table_rows(measured, values)])


def check(run: Path, names: Sequence[str], limit: int) -> Recipe:
    """The recipe of a finished run. Raises RecipeError for a folder that holds none, a run whose model has no attention of
    its own, a measure that nobody has or that is not of inputs, and a limit below 1.
    """
    if not (run / runs.MODEL).is_dir():
        raise RecipeError(f"{run} holds no trained model ({runs.MODEL}/); train first")
    if limit < 1:
        raise RecipeError(f"--limit {limit}: at least 1 text")
    of_inputs = sorted(name for name, module in producers().items() if ".importance." in module)
    if unknown := [name for name in names if name not in ("attention", *of_inputs)]:
        raise RecipeError(f"no measure is called {unknown}; choose from attention, {', '.join(of_inputs)}")
    recipe = recipes.load(run / runs.RECIPE)
    if recipe.objective.kind == "guided":
        raise RecipeError(f"{run}: the model is guided by another one's attention; take a run with one of its own")
    return recipe


def instances(model, rows, recipe: Recipe, names: Sequence[str]) -> tuple[list[str], dict[str, np.ndarray]]:
    """The measures' names and, by definition, their numbers (N,M,2) of each text; NaN where undefined.

    Where texts name their possible answers, class 1 may be none of them, and nothing is asked of it.
    """
    subject, modules = subject_of(model), load_producers([name for name in dict.fromkeys(names) if name != "attention"])
    options = {name: recipe.measure.options.get(name, {}) for name in modules}
    targets = {"predicted": "predicted"} | ({} if "candidates" in rows.column_names else {"class_1": FERRET_CLASS})
    aimed = {
        key: {name: {**given, **_target(modules[name], target)} for name, given in options.items()}
        for key, target in targets.items()
    }
    for name, module in modules.items():
        if hasattr(module, "check_model"):
            module.check_model(subject, rows, **aimed["predicted"][name])
    by_name: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(rows), BATCH_INSTANCES):
        batch = Batch.of(_batch(model, rows[start : start + BATCH_INSTANCES]), subject)
        values = {key: _scores(subject, batch, modules, given, names, recipe.measure.seed) for key, given in aimed.items()}
        for result in _by_text(subject, batch, values, recipe.measure.seed):
            for name, numbers in result.items():
                by_name.setdefault(name, []).append(numbers)
    return list(values["predicted"]), {name: np.stack(numbers) for name, numbers in by_name.items()}


def _target(module, target) -> dict:
    return {"target": target} if "target" in inspect.signature(module.measure).parameters else {}


def _batch(model, rows: Mapping[str, list]) -> dict:
    inputs = [name for name in ("input_ids", "token_type_ids", "candidates") if name in rows]
    features = [dict(zip(inputs, row, strict=True)) for row in zip(*(rows[name] for name in inputs), strict=True)]
    padded = pad_batch(features, model.config.pad_token_id, model.config.num_labels)
    return {**{name: part.to(model.device) for name, part in padded.items()}, "instance_id": rows["instance_id"]}


def _scores(subject, batch, modules: Mapping, options: Mapping, names: Sequence[str], seed: int) -> dict[str, list]:
    """Measure -> one array (T,) per text of a batch."""
    by_measure = scores(subject, batch) if "attention" in names else {}
    for name, module in modules.items():
        made = module.measure(subject, batch, seed=seed, **options[name])
        kept = [key for key, column in module.COLUMNS.items() if column.axes == ("T",) and not key.endswith("_hidden")]
        by_measure |= {key.removeprefix(PREFIX): made[key] for key in kept if key.startswith(PREFIX)}
    return by_measure


def _by_text(subject, batch, values: Mapping[str, Mapping[str, list]], seed: int) -> list[dict[str, np.ndarray]]:
    """`by_definition` of every text of a batch. values: "predicted" and "class_1" -> measure -> one array (T,) per text."""
    chosen = []
    for row, name in enumerate(batch["instance_id"]):
        each = {key: masks([rows[row] for rows in given.values()], seed, name) for key, given in values.items()}
        chosen.append({**each["predicted"], **{key: each[key]["positive"] for key in each if key != "predicted"}})
    parts, numbers = zip(*(distinct(_parts(one)) for one in chosen), strict=True)
    results = []
    for row, (said, probs) in enumerate(zip(read_parts(subject, batch, parts), whole(subject, batch), strict=True)):
        results.append(by_definition(_said(chosen[row], said[numbers[row]], probs)))
        given = [rows[row] for rows in values["predicted"].values()]
        undefined = [not len(scored) or bool(np.isnan(scored).any()) for scored in given]
        for pair_of_numbers in results[-1].values():
            pair_of_numbers[undefined] = np.nan
    return results


def _parts(chosen: Mapping[str, np.ndarray]) -> np.ndarray:
    """All parts (V,T) that are asked about: the masks (M,S,T), the text without each, the empty text."""
    flat = np.concatenate([rationale for one in chosen.values() for rationale in one])
    return np.concatenate([flat, ~flat, np.zeros_like(flat[:1])])


def _said(chosen: Mapping[str, np.ndarray], answers: np.ndarray, probs: np.ndarray) -> dict[str, Said]:
    """What the answers (V,C) to `_parts` say of each set of masks; probs (C,): of the whole text."""
    both, answers_by_name, start = answers[:-1].reshape(2, -1, len(probs)), {}, 0
    for key, one in chosen.items():
        number = FERRET_CLASS if key == "class_1" else int(probs.argmax())
        stop = start + one.shape[0] * one.shape[1]
        kept, removed = both[:, start:stop, number].reshape(2, *one.shape[:2])
        answers_by_name[key] = Said(one, kept, removed, probs[number], answers[-1, number])
        start = stop
    return answers_by_name


def table_rows(measured: Sequence[str], values: Mapping[str, np.ndarray]) -> list[dict]:
    """Means and differences, a row per definition x measure, of numbers (N,M,2) by definition."""
    rows = []
    for definition in DEFINITIONS:
        if definition.name not in values:
            continue
        for place, name in enumerate(measured):
            own = values[definition.name][:, place]
            defined = ~np.isnan(own).any(1)
            row = {"definition": definition.name, "measure": name, "n": defined.sum(), "n_undefined": (~defined).sum()}
            for number, quantity in enumerate(QUANTITIES):
                row[quantity] = mean(own[defined, number])
                for column, other in (("to_ours", "ours"), ("by_change", definition.after)):
                    gaps = own[:, number] - values[other][:, place, number]
                    row[f"{quantity}_{column}"] = mean(gaps[~np.isnan(gaps)])
            rows.append({**row, "compared_with": definition.after, "change": definition.change})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="compare_erasure_definitions", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--output", type=Path, required=True, help="the folder of the table")
    parser.add_argument("--measures", nargs="+", default=list(MEASURES), metavar="NAME")
    parser.add_argument("--limit", type=int, default=300, help="texts of each run (default: %(default)s)")
    given = parser.parse_args(arguments)
    for run in given.run:  # before the first of them takes time
        check(run, given.measures, given.limit)
    table = pd.concat([compare(run, given.measures, given.limit) for run in given.run], ignore_index=True)
    save_table(table, given.output / "erasure_definitions")
    print(table.drop(columns=["change", "compared_with"]).to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    sys.exit(guarded(main))
