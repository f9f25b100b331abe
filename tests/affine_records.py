"""Cells of models whose logits are affine in attention, drawn at random, for tests of pages that show their texts."""

from dataclasses import asdict

import numpy as np

from attnfaith import record as records
from attnfaith.interventions.targets import softmax
from attnfaith.measurement.registry import find
from attnfaith.reporting.cells import Cell, one_cell
from tests.identities import identity
from tests.records import of_rows


WORDS = ("good", "bad", "film", "the", "a", "plot", "dull", "bright", "not", "scene", "of", "and")
MEASURES = ("gradient", "exact_contribution", "token_logits")
KINDS = {name: column for measure in MEASURES for name, column in find(measure).columns.items()}
KINDS["rationale"] = records.OPTIONAL_COLUMNS["rationale"]


def drawn_cell(count, *, classes=2, tokens=None, label_names=None, without=(), **fields) -> Cell:
    """A cell of random texts, the first empty and the second of one token. Attention, scores and the values of tokens are
    float32, and predictions follow from them.

    tokens: of the third text. without: columns that are left out. fields: of the identity.
    """
    generator, rows = np.random.default_rng(0), []
    for number in range(count):
        words = tokens if number == 2 else None
        length = len(words) if words else {0: 0, 1: 1}.get(number, int(generator.integers(4, 21)))
        attention = _float32(generator.dirichlet(np.full(length, 0.5))) if length else np.zeros(0, np.float32)
        values, bias = _float32(2 * generator.normal(size=(length, classes))), _float32(generator.normal(size=classes) / 3)
        probs = softmax(attention.astype(np.float64) @ values + bias)
        row = {
            "instance_id": f"t/{number:04d}",
            "tokens": list(words or generator.choice(WORDS, length)),
            "label": None if number % 5 == 4 else int(generator.integers(classes)),
            "truncated": number % 3 == 0,
            "probs": _float32(probs),
            "attention": attention,
            "rationale": (generator.random(length) < 0.2).astype(np.float32),
            "importance_gradient": _float32(np.abs(generator.normal(size=length)) + attention),
            "importance_exact_contribution": _float32(attention * (values[:, -1] - values[:, 0])),
            "token_logits": values,
            "token_logits_bias": bias,
        }
        rows.append({name: value for name, value in row.items() if name not in without})
    table = of_rows(identity(**fields), rows, KINDS)
    if label_names is not None:
        table = records.with_settings(table, [{"identity": asdict(identity(**fields)), "label_names": list(label_names)}])
    return one_cell(table)


def _float32(values):
    return np.asarray(values, np.float32)
