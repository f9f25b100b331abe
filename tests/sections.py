"""Records made by hand for sections of a report, and the contract of every section."""

import numpy as np
import pyarrow as pa
import pytest

from attnfaith import record as records
from attnfaith.interventions.erasure import RANKINGS
from attnfaith.measurement.registry import find
from attnfaith.reporting import sections
from attnfaith.reporting.cells import CELL, Cell, one_cell
from attnfaith.reporting.charts import draw as draw_chart
from attnfaith.reporting.spec import summary
from tests.records import build, draw


NAN = float("nan")
WORDS = ([0.5, 0.3, 0.2], [0.6, 0.4], [0.3, 0.41, 0.29], [])
STACK = {"model": "self_attention", "encoder": "bert", "alignment": "dot", "reduction": "mean", "reduction_layers": "last"}
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
SIX = np.array([0.1, 0.11, 0.12, 0.13, 0.14, 0.15])
"""Differences of one sign, of six texts: p = 2 / 64 by sign flips."""


def appended(record, declared, **columns):
    """The record with more columns. declared: {name: Column}, or the name of the measure that declares them."""
    declared = find(declared).columns if isinstance(declared, str) else declared
    for name, values in columns.items():
        field = declared[name].field(name)
        record = record.append_column(field, pa.array([np.asarray(value).tolist() for value in values], field.type))
    return record


def hidden_words():
    """Four texts: with impermissible tokens and others, without, with no other, and without tokens. Flip sets of two tokens
    of three and of one of two, with which the model agrees once. The sign of attention is wrong on the first text.
    """
    texts = [
        {"attention": weights, "tokens": [f"<w{t}>" for t in range(len(weights))], "probs": [0.2, 0.8], "label": label}
        for weights, label in zip(WORDS, (1, 1, 1, None), strict=True)
    ]
    record = build(texts)
    marked = [[True, True, False], [False, False], [True, True, True], []]
    record = appended(record, records.OPTIONAL_COLUMNS, impermissible=marked)
    columns = {
        "group_mass": {
            "names": [["impermissible", "NOUN", "markers"]] * 4,
            "": [[0.72, 0.2, 0.1], [NAN, 0.5, 0.2], [NAN, 0.3, 0.3], [NAN] * 3],
            "tokens": [[2, 1, 2], [0, 1, 2], [3, 1, 2], [0, 0, 2]],
            "head_max": [[0.9, 0.4, 0.2], [NAN, 0.6, 0.3], [NAN, 0.4, 0.4], [NAN] * 3],
        },
        "value_norm_share": {"": [0.9, NAN, NAN, NAN], "head_max": [0.95, NAN, NAN, NAN]},
        "permissible_only": {"probs": [[0.7, 0.3], *[[NAN, NAN]] * 3]},
        "conicity": {"absolute": [0.8, 0.6, 0.7, NAN], "signed": [0.8, -0.2, 0.6, NAN]},
        "frozen_flip_set": {
            "set": ([1, 1, 0], [0, 1], [0, 0, 0], []),
            "size": [2.0, 1.0, NAN, NAN],
            "class": [0.0, 0.0, NAN, NAN],
            "probs": ([0.7, 0.3], [0.4, 0.6], [NAN, NAN], [NAN, NAN]),
            "random": [0.2, 0.0, NAN, NAN],
        },
        "sign_violations": {
            "measures": [["attention", "lime"]] * 4,
            "signs": [[1.0, -1.0], [1.0, 1.0], [1.0, 0.0], [NAN, NAN]],
            "effects": [[-0.1, -0.3], [0.2, 0.0], [0.0, 0.1], [NAN, NAN]],
        },
    }
    for measure, ends in columns.items():
        start = measure.removesuffix("_set") if measure == "frozen_flip_set" else measure
        record = appended(record, measure, **{f"{start}_{end}".rstrip("_"): values for end, values in ends.items()})
    return record


def stack_of_maps():
    """Texts of three, two, one and no tokens under all experiments on maps."""
    weights = ([0.5, 0.3, 0.2], [0.1, 0.9], [1.0], [])
    probs = ([0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4])
    record = build([{"attention": a, "probs": p} for a, p in zip(weights, probs, strict=True)], **STACK)
    columns = {
        "map_permutation": {
            "map_permuted_probs": [[[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]], [[0.2, 0.8], [0.24, 0.76]], [], []]
        },
        "map_uniform": {"map_uniform_probs": [[0.8, 0.2], [0.6, 0.4], [0.6, 0.4], [0.6, 0.4]]},
        "marker_attention": {"marker_attention": [0.2, 0.7, 0.3, 1.0]},
        "map_erasure": {
            "map_erasure_gradient": [[0.1, -0.2, 0.3], [0.4, 0.1], [0.0], []],
            "map_erasure_attention_gradient": [[0.05, -0.06, 0.04], [0.04, 0.09], [0.0], []],
            "map_erasure_probs": [[[0.6, 0.4], [0.9, 0.1], [0.3, 0.7]], [[0.2, 0.8], [0.7, 0.3]], [[0.6, 0.4]], []],
            "map_erasure_order": [[[1, 0, 2]], [[0, 1]], [], []],
            **{f"map_erasure_flip_size_{name}": [2.0, 1.0, NAN, NAN] for name in ("attention", "attention_gradient")},
            "map_erasure_flip_size_gradient": [1.0, NAN, NAN, NAN],
            "map_erasure_flip_size_random": [[3.0], [2.0], [], []],
            **{f"map_erasure_flip_mass_{name}": [0.8, 0.9, NAN, NAN] for name in ("attention", "attention_gradient")},
            "map_erasure_flip_mass_gradient": [0.2, NAN, NAN, NAN],
            "map_erasure_flip_mass_random": [[1.0], [1.0], [], []],
            **{f"map_erasure_flip_empty_{name}": [False] * 4 for name in RANKINGS},
            "map_erasure_flip_empty_random": [[True], [True], [], []],
        },
        "map_adversary": {
            "map_adversary_attention": [[0.2, 0.3, 0.5], [0.9, 0.1], [1.0], []],
            "map_adversary_probs": [[0.89, 0.11], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]],
            "map_adversary_jsd": [0.05, 0.4, NAN, NAN],
            "map_adversary_change": [0.01, 0.0, NAN, NAN],
            "map_adversary_certainty": ["lower bound", "lower bound", "undefined", "undefined"],
        },
        "aopc_limits": {
            "aopc_limits_measures": [["attention", "gradient"]] * 4,
            "aopc_limits_aopc": [[0.3, 0.1], [0.2, NAN], [0.4, 0.4], [NAN, NAN]],
            "aopc_limits_low": [0.1, 0.1, 0.4, NAN],
            "aopc_limits_high": [0.5, 0.3, 0.4, NAN],
            "aopc_limits_certainty": ["met", "exact", "exact", "undefined"],
        },
    }
    for measure, values in columns.items():
        record = appended(record, measure, **values)
    return record


def identifiable():
    """Largest weight .5 in .0 to .7, .6 in .6 to .6, .41 in .25 to .67; a text of one token and one without."""
    weights = (*WORDS[:3], [1.0], [])
    texts = [{"attention": row, "tokens": [f"<w{t}>" for t in range(len(row))]} for row in weights]
    columns = {
        "low": ([0.0, 0.1, 0.2], [0.6, 0.4], [0.1, 0.25, 0.2], [1.0], []),
        "high": ([0.7, 0.5, 0.9], [0.6, 0.4], [0.4, 0.67, 0.5], [1.0], []),
        "attention": ([0.0, 0.3, 0.7], [0.6, 0.4], [0.13, 0.67, 0.2], [1.0], []),
        "tvd": [0.5, 0.0, 0.26, NAN, NAN],
        "bound": [0.5, 0.0, 0.4, NAN, NAN],
        "certainty": ["exact", "exact", "bounded", "undefined", "undefined"],
        "support": [2, 2, 3, NAN, NAN],
        "top_attention": [0.8, 1.0, 0.71, NAN, NAN],
        "top_low": [0.3, 1.0, 0.5, NAN, NAN],
        "logit_change": [1e-8, 0.0, 3e-7, NAN, NAN],
    }
    columns = {f"identifiability_{name}": values for name, values in columns.items()}
    return appended(build(texts), "identifiability", **columns)


def with_permutations(record, draws=None, seed=0):
    """The record with permuted predictions, one list of K lists of C per text; drawn unless they are given."""
    if draws is None:
        generator = np.random.default_rng(seed)
        classes = len(records.rows(record, "probs")[0])
        lengths = [len(row) for row in records.rows(record, "attention")]
        draws = [generator.dirichlet(np.ones(classes), 9 if length > 1 else 0) for length in lengths]
    return appended(record, "permutation", permuted_probs=draws)


def with_selection(record, selected, complement=None, own=None):
    """A record with what a model selects; complement, own: class probabilities from the rest and from the selection."""
    columns = {"selected": selected, "selection": [np.asarray(row, float) for row in selected]}
    record = appended(record, records.OPTIONAL_COLUMNS, **columns)
    if complement is None:
        return record
    return appended(record, "selection", complement_probs=complement, selection_probs=own)


def drawn_texts():
    """Texts with permutations, marked tokens and a selection of every second token."""
    record = with_permutations(draw(30, rationale=True))
    return with_selection(record, [np.arange(len(row)) % 2 == 0 for row in records.rows(record, "attention")])


def erasure_tested(record, falls, *, noise=0.0, soft=False):
    """The record with tests by erasure: without the first tokens of a measure a text loses what `falls` says, {measure:
    number or [N]}, and it has as much of them alone; with noise per text and share.
    """
    generator, count, names = np.random.default_rng(0), record.num_rows, list(falls)
    fall = np.stack([np.broadcast_to(falls[name], count) for name in names], axis=1)[..., None]  # [N, M, 1]
    draws = noise * generator.normal(size=(4, count, len(names), len(SHARES)))
    starts = ((0.95, -1), (0.25, 1)) * 2
    parts = [np.clip(start + sign * fall + draw, 0, 1) for (start, sign), draw in zip(starts, draws, strict=True)]
    for values in parts[:2]:
        values[[len(tokens) == 0 for tokens in records.rows(record, "tokens")]] = NAN
    columns = {"measures": [names] * count, "whole_prob": [0.95] * count, "empty_prob": [0.2] * count}
    for measure, (removed, kept) in (("rationale_erasure", parts[:2]), ("soft_erasure", parts[2:])):
        if measure == "rationale_erasure" or soft:
            more = {"shares": [SHARES] * count} if measure == "rationale_erasure" else {}
            columns |= {"removed_probs": removed, "kept_probs": kept}
            values = {f"{measure}_{name}": column for name, column in (columns | more).items()}
            record = appended(record, measure, **values)
    return record


def ten_tokens(falls):
    """A cell of texts of ten tokens of equal attention, with the tests by erasure of `erasure_tested`."""
    names, count = [name for name in falls if name != "attention"], len(next(iter(falls.values())))
    text = {"attention": np.full(10, 0.1)} | {name: np.arange(10.0) for name in names}
    return one_cell(erasure_tested(build([text] * count, measures=names), falls))


def whole(section, cell):
    """The section's rows of `summary`, by quantity."""
    return summary([cell], [section]).set_index("quantity")


def check_section(section, cell):
    """What a section declares is what its frames hold; undefined texts are counted; words and grids are whole."""
    frames = sections.frames([cell], [section.name])
    assert frames
    for table in (table for table in section.tables if table.name in frames):
        frame = frames[table.name]
        assert list(frame.columns)[: len(CELL)] == list(CELL)
        assert set(list(table.headings)[: table.heads]) <= set(frame.columns)
        if {"class", "n", "n_undefined"} <= set(frame.columns):
            overall = frame[frame["class"] == "overall"]
            assert len(overall) and (overall["n"] + overall["n_undefined"] == len(cell)).all()
    numbers, rows = section.numbers(cell), whole(section, cell)
    assert len(numbers) == len(rows)
    for name, values in numbers.items():
        assert values.shape == (len(cell),) and values.dtype == np.float64, name
        row = rows.loc[name]
        assert (row["n"], row["n_undefined"]) == ((~np.isnan(values)).sum(), np.isnan(values).sum())
        assert np.isnan(row["mean"]) if np.isnan(values).all() else row["mean"] == pytest.approx(np.nanmean(values))
        assert "{" not in section.quantity(name).label
    grids = section.grids(frames, [cell])
    assert all(len(row) == len(grid.columns) and "nan" not in row for grid in grids for row in grid.rows)
    assert all(sentence and "nan" not in sentence and "{" not in sentence for sentence in section.sentences(cell))
    chart = section.chart_of(cell)
    assert chart is None or (draw_chart(chart, "a model", len(cell)).axes and "nan" not in chart.words)
    left = set(cell.table.column_names) - {*section.needs, *section.one_of}
    without = Cell(cell.identity, cell.table.select([name for name in cell.table.column_names if name in left]))
    assert section.frames([without]) == {} and section.sentences(without) == []
    assert section.numbers(without) == {} and section not in sections.of_cell(without)
