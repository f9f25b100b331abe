"""Records of models whose logits are affine in attention, drawn at random, for tests of what shows their texts."""

from dataclasses import asdict

import numpy as np

from attnfaith import record as records
from attnfaith.interventions.targets import softmax
from attnfaith.measurement.registry import find
from attnfaith.record import from_row
from attnfaith.reporting.cells import Cell, one_cell
from tests.identities import columns_of, typed


WORDS = ("good", "bad", "film", "the", "a", "plot", "dull", "bright", "not", "scene", "of", "and")


def drawn_record(
    count, *, classes=2, longest=20, seed=0, affine=True, tokens=None, label_names=None, without=(), **identity
):
    """A cell of random texts, the first empty and the second of one token; tokens: those of the third. Attention, scores
    and what tokens add are float32, predictions what these give. affine: whether it says what each token adds; else it has
    answers that were measured beforehand.
    """
    generator = np.random.default_rng(seed)
    columns = {}
    for number in range(count):
        words = tokens if number == 2 else None
        length = len(words) if words else {0: 0, 1: 1}.get(number, int(generator.integers(4, longest + 1)))
        attention = _float32(generator.dirichlet(np.full(length, 0.5))) if length else np.zeros(0, np.float32)
        values, bias = _float32(2 * generator.normal(size=(length, classes))), _float32(generator.normal(size=classes) / 3)
        probs = softmax(attention.astype(np.float64) @ values + bias)
        other = _float32(generator.dirichlet(np.ones(max(length, 1)), int(length > 1)))[:, :length]
        other_probs = softmax(other @ values + bias).reshape(len(other), classes)
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
        }
        if affine:
            row |= {"token_logits": values, "token_logits_bias": bias}
        else:
            taken = np.zeros(length, np.float32)
            taken[:2] = length > 2
            row |= {
                "adversary_exact_epsilon": np.full(len(other), 0.05),
                "adversary_exact_attention": other,
                "adversary_exact_probs": _float32(other_probs),
                "adversary_exact_certainty": "lower bound" if length > 1 else "undefined",
                "minimal_flip_set": taken,
                "minimal_flip_size": 2.0 if length > 2 else np.nan,
                "permuted_probs": _float32(other_probs),
            }
        for name, value in (columns_of(typed(seed=seed, **identity)) | row).items():
            columns.setdefault(name, []).append(value)
    kinds = {
        **find("gradient").columns,
        **find("exact_contribution").columns,
        **find("token_logits").columns,
        **find("adversary_exact").columns,
        **find("minimal_flip_set").columns,
        **find("permutation").columns,
    }
    kinds["rationale"] = records.OPTIONAL_COLUMNS["rationale"]
    columns = {name: values for name, values in columns.items() if name not in without}
    table = records.build(columns, {name: column for name, column in kinds.items() if name in columns})
    if label_names is None:
        return table
    identity = from_row(table.slice(0, 1).select([*records.IDENTITY_COLUMNS]).to_pylist()[0])
    return records.with_settings(table, [{"identity": asdict(identity), "label_names": list(label_names)}])


def drawn_cell(count, **fields) -> Cell:
    return one_cell(drawn_record(count, **fields))


def _float32(values):
    return np.asarray(values, np.float32)
