"""The metric, its alignment among it: columns of whoever calls `compute`."""

from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from attnfaith.metrics.registration import METRIC_DIR
from tests.campaigns.fuzz.hostile import NUMBERS, OTHERS, WORDS
from tests.campaigns.fuzz.probe import Case, Unclean


ANYTHING = st.sampled_from((*WORDS, *NUMBERS, *OTHERS)) | st.binary(max_size=4) | st.text(max_size=6)
WEIGHTS = st.lists(st.floats(0, 1), max_size=5)
SHARES = WEIGHTS.map(lambda row: [one / sum(row) for one in row] if sum(row) > 0 else row)
ROW = SHARES | SHARES.map(np.array) | st.lists(ANYTHING | st.floats(), max_size=4) | ANYTHING | st.none()
LINKS = st.lists(st.sampled_from(("0-0", "1-1", "2p1", "1?2", "9-9", "a", "-", "1-1-1", "999999999999-1")), max_size=4)
TEXT = LINKS.map(" ".join) | ANYTHING


@st.composite
def _columns(draw, names, row):
    """Some of the columns, mostly of one number of rows; one of them may be anything."""
    count = draw(st.integers(0, 4))
    usual = draw(st.lists(USUAL[names[0]], min_size=count, max_size=count)) if draw(st.integers(0, 3)) else None
    columns = {}
    for name in names if draw(st.booleans()) else draw(st.lists(st.sampled_from(names), unique=True, min_size=1)):
        if usual is None:
            columns[name] = draw(st.lists(row, min_size=count, max_size=count))
        elif name in SINGLE:
            columns[name] = [SINGLE[name]] * count
        else:
            columns[name] = [one.copy() if isinstance(one, list) else one for one in usual]
        if draw(st.integers(0, 9)) == 0 and columns[name]:
            columns[name][draw(st.integers(0, count - 1))] = draw(row)
    if draw(st.integers(0, 9)) == 0:
        columns[draw(st.sampled_from(names))] = draw(ANYTHING | st.lists(ANYTHING, max_size=3))
    return columns


@st.composite
def _few(draw, arguments):
    """At most one of the arguments, of links those that have to be there too."""
    given = draw(arguments)
    kept = draw(st.lists(st.sampled_from(sorted(given)), max_size=1)) if given else []
    usual = {"links_from": 0, "gold_from": 0} if "links_from" in given else {}
    return usual | {name: given[name] for name in kept}


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "alpha": st.floats() | ANYTHING,
        "n_bootstrap": st.integers(-1, 20) | st.sampled_from([True, 2.5, "3", None, -(10**30)]),
        "seed": st.integers(-1, 5) | ANYTHING,
        "per_text": st.booleans() | ANYTHING,
        "mask": st.lists(st.lists(st.integers(0, 1), max_size=5), max_size=4) | ANYTHING,
    },
)
ALIGNING = st.fixed_dictionaries(
    {"links_from": st.sampled_from([0, 0, 1, 1]) | ANYTHING, "gold_from": st.sampled_from([0, 0, 1]) | ANYTHING},
    optional={"links_reversed": st.booleans() | ANYTHING, "per_text": st.booleans()},
)
CONFIGURATIONS = {
    "default": (("attention", "importance", "probs", "counterfactual_attention", "counterfactual_probs"), ROW, ARGUMENTS),
    "erasure": (("whole_prob", "kept_probs", "removed_probs", "empty_prob"), ROW | st.floats(0, 1), ARGUMENTS),
    "plausibility": (("scores", "rationale"), ROW | st.lists(st.integers(0, 1), max_size=4), ARGUMENTS),
    "alignment": (("links", "gold_links", "source_length", "target_length"), TEXT | st.integers(0, 9), ALIGNING),
}
SINGLE = {"whole_prob": 0.75, "empty_prob": 0.5, "source_length": 10, "target_length": 10}
USUAL = {
    "attention": SHARES,
    "whole_prob": st.lists(st.floats(0, 1), min_size=3, max_size=3),
    "scores": st.lists(st.integers(0, 1), max_size=4),
    "links": st.lists(st.sampled_from(("0-0", "1-1", "2p1", "1?2")), max_size=4).map(" ".join),
}


@cache
def _metric(configuration: str):
    import evaluate

    return evaluate.load(str(METRIC_DIR), configuration, keep_in_memory=True)


class Metric:
    """`evaluate.load("attention_faithfulness").compute` of each configuration, with columns and arguments of any kind."""

    name, inputs, batch = "metric", 1200, 150
    strategy = st.sampled_from([*CONFIGURATIONS]).flatmap(
        lambda name: st.tuples(st.just(name), _columns(*CONFIGURATIONS[name][:2]), _few(CONFIGURATIONS[name][2]))
    )

    def __init__(self, folder: Path):
        for name in CONFIGURATIONS:
            _metric(name)

    def case(self, drawn: tuple, folder: Path) -> Case:
        name, columns, arguments = drawn

        def act():
            metric = _metric(name)
            columns_of = {column: list(rows) if isinstance(rows, list) else rows for column, rows in columns.items()}
            results = metric.compute(**columns_of, **arguments)
            if not isinstance(results["n"], int) or any(not isinstance(one, int | float | dict) for one in results.values()):
                raise Unclean(f"results are {results}")

        return Case(act, f"{name}: {_shown(columns)}, {_shown(arguments)}")


def _shown(one: object) -> str:
    try:
        return repr(one)[:400]
    except ValueError:  # a number of too many digits
        return f"a {type(one).__name__} with a number of many digits"
