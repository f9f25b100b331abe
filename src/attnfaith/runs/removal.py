"""Texts without the words that a measure ranks first, to train a model anew on the rest (ROAR): the key data.removal.

The model of the run `base` ranks the words of every text; the first of them become the unknown word in training, validation
and test. A measure that ranks the words well costs a fresh model more accuracy than words at random. Two limits. Where
evidence is redundant, a new model learns from words that the old model did not use. And the pattern of removed words can
reveal the class (Rong et al. 2022): a signed measure keeps the evidence against the predicted class, from which a new model
can read the prediction backwards. So rank by its size, too (`absolute_`).

Source: Hooker et al. 2019; on words, Madsen et al. 2022; leakage: Rong et al. 2022.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from accelerate import PartialState

from attnfaith import loading, recipes, record
from attnfaith.data.fingerprint import digest_data, digest_model
from attnfaith.data.tokenization import ENCODED_TYPES, encoded_in_memory
from attnfaith.interventions.explanation_tests import rationales
from attnfaith.measurement import engine
from attnfaith.measurement.registry import classes, find
from attnfaith.recipes import Recipe, RecipeError, Removal
from attnfaith.runs.folder import RunError
from attnfaith.runs.models import load_model
from attnfaith.support.draws import generator
from attnfaith.support.errors import excerpt
from attnfaith.support.files import MODEL, RECIPE


SCORES = "scores"  # folder in that of the base: its scores, for all runs that need the same


def check_measure(by: str) -> None:
    """Raise RecipeError for a name that ranks no words."""
    inputs = [measure for measure in classes() if measure.role() == "importance"]
    signed = [record.ABSOLUTE + measure.name for measure in inputs if measure.signed()]
    names = ["random", "attention", *(measure.name for measure in inputs), *signed]
    if by not in names:
        raise RecipeError(f"data.removal.by={excerpt(by)} is no measure of inputs; choose from {', '.join(names)}")


def remove(recipe: Recipe, rows, tokenizer):
    """Return encoded rows of a recipe without the words that its data section removes."""
    removal, scores = recipe.data.removal, None
    if recipe.base is not None:
        if loading.load_tokenizer(Path(removal.base) / MODEL).get_vocab() != tokenizer.get_vocab():
            raise RunError(f"data.removal.base={removal.base} knows other words: give both runs the same data")
        scores = ranking(removal, rows)
    return without(rows, scores, removal.share, tokenizer.unk_token, tokenizer.unk_token_id, recipe.seed)


def ranking(removal: Removal, rows) -> dict[str, np.ndarray]:
    """Return instance id -> scores [T] of encoded rows by the model of the base, measured once for all runs."""
    folder, by = Path(removal.base), removal.by.removeprefix(record.ABSOLUTE)
    model, section = load_model(folder), recipes.load(folder / RECIPE).measure
    names = [] if by == "attention" else [by]
    options = {name: section.options[name] for name in names if name in section.options}
    what = repr([digest_model(model), digest_data(rows), options, section.seed])
    path = folder / SCORES / f"{by}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.parquet"
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        cell, place = record.Identity("", "", "", record.UNKNOWN_SEED), PartialState().device
        how = {"options": options, "seed": section.seed, "progress": False}
        record.save(engine.measure(model.to(place), rows, cell, names, None, **how), path)
    table, declared = record.load(path), find(by).columns if names else {}
    names = [
        "attention",
        *(name for name, column in declared.items() if column.axes == ("T",) and name in table.column_names),
    ]
    scores = engine.scores_by_measure({name: record.rows(table, name) for name in names}, declared)[removal.by]
    return dict(zip(table.column("instance_id").to_pylist(), scores, strict=True))


def without(rows, scores: Mapping[str, np.ndarray] | None, share: float, word: str, number: int, seed: int):
    """Return an encoded data set whose ceil(share T) first words by scores, of T in each text, are an unknown word.

    scores: instance id -> [T]; None takes words at random, others with each seed. Equal scores go in random order. word,
    number: the unknown word, and its number in the vocabulary. A text without words stays as it is.
    """

    def changed(batch: Mapping) -> dict[str, list]:
        ids, words = ([[*row] for row in batch[name]] for name in ("input_ids", "tokens"))
        for row, name in enumerate(batch["instance_id"]):
            if words[row]:
                random = generator(seed, name, "roar")
                values = random.random(len(words[row])) if scores is None else scores[name]
                for place in np.flatnonzero(rationales([values], (share,), random)[0, 0]):
                    words[row][place], ids[row][1 + place] = word, number  # behind the begin marker
        return {"input_ids": ids, "tokens": words}

    return encoded_in_memory(rows, changed, ENCODED_TYPES)
