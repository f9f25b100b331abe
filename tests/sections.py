"""Records made by hand for sections of a report, and what holds of every section."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.interventions.pooled_erasure import RANKINGS
from attnfaith.measurement.registry import find
from attnfaith.reporting import render, sections
from attnfaith.reporting.cells import CELL, Cell, split_cells
from tests.records import build, with_columns


NAN = float("nan")
WORDS = ([0.5, 0.3, 0.2], [0.6, 0.4], [0.3, 0.41, 0.29], [])
IMPERMISSIBLE = ([True, True, False], [False, False], [True, True, True], [])
GROUPS = ["impermissible", "NOUN", "markers"]
SHOWN = ([0.5, 0.3, 0.2], [0.1, 0.9], [1.0], [])
PROBS = ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4])
STACK = {"model": "self_attention", "encoder": "bert", "alignment": "dot", "reduction": "mean", "reduction_layers": "last"}


def appended(record, declared, **columns):
    """The record with more columns. declared: {name: Column}, or the name of the measure that declares them."""
    declared = find(declared).columns if isinstance(declared, str) else declared
    for name, values in columns.items():
        field = declared[name].field(name)
        record = record.append_column(field, pa.array([np.asarray(value).tolist() for value in values], field.type))
    return record


def hidden_words(*, mass=0.72, heads=True, labels=(1, 1, 1, None), **identity):
    """Four texts: with impermissible tokens and others, without, with no other, and without tokens."""
    record = build(
        [
            {"attention": weights, "tokens": [f"<w{t}>" for t in range(len(weights))], "probs": [0.2, 0.8], "label": label}
            for weights, label in zip(WORDS, labels, strict=True)
        ],
        **identity,
    )
    record = appended(record, records.OPTIONAL_COLUMNS, impermissible=IMPERMISSIBLE)
    if heads:
        head_max = [[0.9, 0.4, 0.2], [NAN, 0.6, 0.3], [NAN, 0.4, 0.4], [NAN] * 3]
        record = appended(record, "group_mass", group_mass_head_max=head_max)
        record = appended(record, "value_norm_share", value_norm_share_head_max=[0.95, NAN, NAN, NAN])
    record = appended(
        record,
        "group_mass",
        group_mass_names=[GROUPS] * 4,
        group_mass=[[mass, 0.2, 0.1], [NAN, 0.5, 0.2], [NAN, 0.3, 0.3], [NAN] * 3],
        group_mass_tokens=[[2, 1, 2], [0, 1, 2], [3, 1, 2], [0, 0, 2]],
    )
    record = appended(record, "value_norm_share", value_norm_share=[0.9, NAN, NAN, NAN])
    record = appended(record, "permissible_only", permissible_only_probs=[[0.7, 0.3], *[[NAN, NAN]] * 3])
    return appended(record, "conicity", conicity_absolute=[0.8, 0.6, 0.7, NAN], conicity_signed=[0.8, -0.2, 0.6, NAN])


def flips_and_signs():
    """The same texts. Sets of two tokens of three, of one of two, none, none: the model agrees on the first alone. The sign
    of attention is wrong on the first text, that of the signed measure never.
    """
    record = appended(
        hidden_words(),
        "frozen_flip_set",
        frozen_flip_set=([1, 1, 0], [0, 1], [0, 0, 0], []),
        frozen_flip_size=[2.0, 1.0, NAN, NAN],
        frozen_flip_class=[0.0, 0.0, NAN, NAN],
        frozen_flip_probs=([0.7, 0.3], [0.4, 0.6], [NAN, NAN], [NAN, NAN]),
        frozen_flip_random=[0.2, 0.0, NAN, NAN],
    )
    return appended(
        record,
        "sign_violations",
        sign_violations_measures=[["attention", "lime"]] * 4,
        sign_violations_signs=[[1.0, -1.0], [1.0, 1.0], [1.0, 0.0], [NAN, NAN]],
        sign_violations_effects=[[-0.1, -0.3], [0.2, 0.0], [0.0, 0.1], [NAN, NAN]],
    )


def stack_of_maps():
    """Texts of three, two, one and no tokens under all experiments on maps."""
    record = build([{"attention": a, "probs": p} for a, p in zip(SHOWN, PROBS, strict=True)], **STACK)
    draws = [[[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]], [[0.2, 0.8], [0.24, 0.76]], [], []]
    record = appended(record, "map_permutation", map_permuted_probs=draws)
    record = appended(record, "map_uniform", map_uniform_probs=[[0.8, 0.2], [0.6, 0.4], [0.6, 0.4], [0.6, 0.4]])
    record = appended(record, "marker_attention", marker_attention=[0.2, 0.7, 0.3, 1.0])
    record = appended(
        record,
        "map_erasure",
        map_erasure_gradient=[[0.1, -0.2, 0.3], [0.4, 0.1], [0.0], []],
        map_erasure_attention_gradient=[[0.05, -0.06, 0.04], [0.04, 0.09], [0.0], []],
        map_erasure_probs=[[[0.6, 0.4], [0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.7, 0.3]], [[0.6, 0.4]], []],
        map_erasure_order=[[[1, 0, 2]], [[0, 1]], [], []],
        **{f"map_erasure_flip_size_{name}": [2.0, 1.0, NAN, NAN] for name in ("attention", "attention_gradient")},
        map_erasure_flip_size_gradient=[1.0, NAN, NAN, NAN],
        map_erasure_flip_size_random=[[3.0], [2.0], [], []],
        **{f"map_erasure_flip_mass_{name}": [0.8, 0.9, NAN, NAN] for name in ("attention", "attention_gradient")},
        map_erasure_flip_mass_gradient=[0.2, NAN, NAN, NAN],
        map_erasure_flip_mass_random=[[1.0], [1.0], [], []],
        **{f"map_erasure_flip_empty_{name}": [False] * 4 for name in RANKINGS},
        map_erasure_flip_empty_random=[[True], [True], [], []],
    )
    record = appended(
        record,
        "map_adversary",
        map_adversary_attention=[[0.2, 0.3, 0.5], [0.9, 0.1], [1.0], []],
        map_adversary_probs=[[0.89, 0.11], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]],
        map_adversary_jsd=[0.05, 0.4, NAN, NAN],
        map_adversary_change=[0.01, 0.0, NAN, NAN],
        map_adversary_certainty=["lower bound", "lower bound", "undefined", "undefined"],
    )
    return appended(
        record,
        "aopc_limits",
        aopc_limits_measures=[["attention", "gradient"]] * 4,
        aopc_limits_aopc=[[0.3, 0.1], [0.2, NAN], [0.4, 0.4], [NAN, NAN]],
        aopc_limits_low=[0.1, 0.1, 0.4, NAN],
        aopc_limits_high=[0.5, 0.3, 0.4, NAN],
        aopc_limits_low_bound=[-0.1, 0.1, 0.4, NAN],
        aopc_limits_high_bound=[0.7, 0.3, 0.4, NAN],
        aopc_limits_certainty=["bounded", "exact", "exact", "undefined"],
    )


def with_permutations(record, draws=None, seed=0):
    """The record with permuted predictions, one list of K lists of C per text; drawn unless they are given."""
    if draws is None:
        generator = np.random.default_rng(seed)
        classes = len(records.rows(record, "probs")[0])
        lengths = [len(row) for row in records.rows(record, "attention")]
        draws = [generator.dirichlet(np.ones(classes), 9 if length > 1 else 0) for length in lengths]
    return appended(record, {"permuted_probs": records.Column(("K", "C"), distribution=True)}, permuted_probs=draws)


def with_selection(record, selected, values=None, complement=None, own=None):
    """A record with what a model selects; complement, own: class probabilities from the rest and from the selection."""
    values = selected if values is None else values
    columns = {"selected": selected, "selection": [np.asarray(row, float) for row in values]}
    record = appended(record, records.OPTIONAL_COLUMNS, **columns)
    if complement is None:
        return record
    return appended(record, "selection", complement_probs=complement, selection_probs=own)


SIX = np.array([0.1, 0.11, 0.12, 0.13, 0.14, 0.15])
"""Differences of one sign, of six texts: p = 2 / 64 by sign flips."""


def told(build_record, falls):
    """A cell of texts of ten tokens: what each text {measure: [N]} loses without a rationale, and has of it alone."""
    names, count, shares = [*falls], len(next(iter(falls.values()))), [0.1, 0.5]
    item = {"attention": np.full(10, 0.1)} | {name: np.arange(10.0) for name in names if name != "attention"}
    table = build_record([item] * count, measures=[name for name in names if name != "attention"])

    def for_each_share(start, sign):
        return [[[start + sign * falls[name][row]] * len(shares) for name in names] for row in range(count)]

    columns = {
        "rationale_erasure_measures": [names] * count,
        "rationale_erasure_shares": [shares] * count,
        "rationale_erasure_kept_probs": for_each_share(0.1, 1),
        "rationale_erasure_removed_probs": for_each_share(0.9, -1),
        "rationale_erasure_whole_prob": [0.9] * count,
        "rationale_erasure_empty_prob": [0.1] * count,
    }
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    axes = {name: axes.get(name.removeprefix("rationale_erasure_"), ()) for name in columns}
    return split_cells(with_columns(table, columns, axes))[0]


# --------------------------------------------------------------------------------------------------- the contract


def whole(section, cell):
    """The section's rows of `summary`, over all texts, by quantity."""
    frame = render.summary([cell], [section])
    return frame[frame["class"] == "overall"].set_index("quantity")


def check_section(section, cell):
    """What a section declares is what its frames hold; undefined texts are counted; words and grids are whole."""
    frames = sections.frames([cell], [section.name])
    assert frames
    own = [table for table in section.tables if table.name in frames]
    for table in own:
        frame = frames[table.name]
        assert list(frame.columns)[: len(CELL)] == list(CELL) and set(list(table.headings)[: table.heads]) <= set(
            frame.columns
        )
        if "class" in frame.columns and {"n", "n_undefined"} <= set(frame.columns):
            overall = frame[frame["class"] == "overall"]
            assert len(overall) and (overall["n"] + overall["n_undefined"] == len(cell)).all()
    numbers = section.numbers(cell)
    assert len(numbers) == len(whole(section, cell))
    for name, values in numbers.items():
        assert values.shape == (len(cell),) and values.dtype == np.float64, name
        row = whole(section, cell).loc[name]
        assert (row["n"], row["n_undefined"]) == ((~np.isnan(values)).sum(), np.isnan(values).sum())
        assert np.isnan(row["mean"]) if np.isnan(values).all() else row["mean"] == pytest.approx(np.nanmean(values))
        assert "{" not in section.quantity(name).label
    grids = render.grids(section, frames, [cell])
    assert all(len(row) == len(grid.columns) and "nan" not in row for grid in grids for row in grid.rows)
    assert all(sentence and "nan" not in sentence and "{" not in sentence for sentence in render.sentences(section, cell))
    check_columns(section, cell)


def check_columns(section, cell):
    """A section depends on the columns that it names and on no others, and has nothing without the columns that it needs."""
    table = cell.table
    if "importance_x" not in table.column_names and "attention" in table.column_names:
        table = table.append_column("importance_x", table.column("attention"))
    cell = Cell(cell.identity, table)
    remaining = {"instance_id", *records.IDENTITY_COLUMNS, "tokens", *section.columns(table.column_names)}
    assert set(section.needs) <= remaining <= set(table.column_names)
    bare = Cell(cell.identity, table.select([name for name in table.column_names if name in remaining]))
    frames, again = (sections.frames([item], [section.name]) for item in (cell, bare))
    assert frames and frames.keys() == again.keys()
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(again[name], frame)
    assert render.sentences(section, bare) == render.sentences(section, cell)
    without = Cell(cell.identity, table.drop_columns([*section.needs, *set(section.one_of) & set(table.column_names)]))
    assert render.frames(section, [without]) == {} and render.sentences(section, without) == []
    assert section.numbers(without) == {} and section not in sections.of_cell(without)
