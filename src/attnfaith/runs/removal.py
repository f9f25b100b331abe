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

from attnfaith import recipes, record
from attnfaith.data.fingerprint import digest_data, digest_model
from attnfaith.data.tokenization import ENCODED_TYPES, encoded_in_memory
from attnfaith.interventions.explanation_tests import rationales
from attnfaith.measurement import engine
from attnfaith.measurement.registry import find
from attnfaith.recipes import RecipeError
from attnfaith.support.draws import generator
from attnfaith.support.files import RECIPE


def check_measure(by: str) -> None:
    """Raise RecipeError for a measure that ranks no words, MeasurementError for a name that no measure has."""
    if by in ("random", "attention"):
        return
    measure = find(by.removeprefix(record.ABSOLUTE))
    if measure.role() != "importance" or (by != measure.name and not measure.signed()):
        raise RecipeError(f"data.removal.by={by!r} ranks no words: choose random, attention or a measure of importance")


def remove(run, rows):
    """Return encoded rows of a `Run` without the words that its recipe removes."""
    removal, unknown = run.recipe.data.removal, (run.tokenizer.unk_token, run.tokenizer.unk_token_id)
    return without(rows, ranking(run, rows) if run.recipe.base else None, removal.share, *unknown, run.recipe.seed)


def ranking(run, rows) -> dict[str, np.ndarray]:
    """Return instance id -> scores [T] of encoded rows by the model of the base, measured once for all runs."""
    removal = run.recipe.data.removal
    folder, by = Path(removal.base), removal.by.removeprefix(record.ABSOLUTE)
    section, names = recipes.load(folder / RECIPE).measure, [] if by == "attention" else [by]
    how = {"options": {name: section.options[name] for name in names if name in section.options}, "seed": section.seed}
    what = repr([digest_model(run.base), digest_data(rows), how])
    path = folder / "scores" / f"{by}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.parquet"
    if not path.is_file():
        record.save(run.base_record(rows, names, **how), path)
    table = record.load(path)
    declared = {name: column for name, column in find(by).columns.items() if column.axes == ("T",)} if names else {}
    columns = {name: record.rows(table, name) for name in ("attention", *declared) if name in table.column_names}
    scores = engine.scores_by_measure(columns, declared)[removal.by]
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
