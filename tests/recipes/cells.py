"""Cells whose numbers are known, for tests of the analyses of papers."""

import numpy as np

from attnfaith import record as records
from attnfaith.reporting.cells import Cell, split_cells
from tests.identities import columns_of


SHARES = (0.1, 0.5)  # of the tokens that tests of erasure take away


def cell_of(identity, rows, kinds=None, settings=None) -> Cell:
    """Return a cell of rows, dictionaries with attention and probs at least; kinds: the columns of the other names."""
    columns: dict[str, list] = {}
    for number, row in enumerate(rows):
        values = {"instance_id": f"t/{number}", **columns_of(identity), "tokens": ["w"] * len(row["attention"])}
        for name, value in (values | {"label": 1, "truncated": False} | row).items():
            columns.setdefault(name, []).append(value)
    table = records.build(columns, kinds or {})
    return split_cells(table if settings is None else records.with_settings(table, settings))[0]


def erased_cell(identity, falls, texts=30, noise=0.03, more=None, kinds=None) -> Cell:
    """Return a cell in which taking away what a measure ranks first costs `falls` {measure: fall} of a probability of .95,
    and leaving nothing else costs as much less than .7; more: columns with one value for all texts.
    """
    names, sizes = list(falls), np.array([*falls.values()])[:, None]
    rows = []
    for number in range(texts):
        random = np.random.default_rng([number, identity.seed, *identity.dataset.encode(), *identity.projection.encode()])
        removed, left = noise * random.normal(size=(2, len(names), len(SHARES)))
        row = {
            "probs": [0.05, 0.95],
            "attention": random.dirichlet(np.ones(6)),
            "rationale_erasure_measures": names,
            "rationale_erasure_shares": list(SHARES),
            "rationale_erasure_removed_probs": np.clip(0.95 - sizes + removed, 0, 1),
            "rationale_erasure_kept_probs": np.clip(0.25 + sizes + left, 0, 1),
            "rationale_erasure_whole_prob": 0.95,
            "rationale_erasure_empty_prob": 0.2,
        }
        scored = [name for name in names if name != "attention" and not name.startswith(records.ABSOLUTE)]
        row |= {f"importance_{name}": random.normal(size=6) for name in scored}
        rows.append(row | (more or {}))
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    declared = {f"importance_{name}": records.Column(("T",)) for name in scored}
    for name in (name for name in rows[0] if name.startswith("rationale_erasure")):
        kind = "string" if name.endswith("measures") else "float64"
        declared[name] = records.Column(axes.get(name.removeprefix("rationale_erasure_"), ()), kind)
    return cell_of(identity, rows, declared | (kinds or {}))
