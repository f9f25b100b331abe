"""Which measure a report advises, where numbers stand at the edge: p-values by brute force, and Holm by hand."""

import itertools

import numpy as np
import pytest

from attnfaith.reporting import render
from attnfaith.reporting.cells import split_cells
from attnfaith.reporting.sections import saliency
from tests.records import with_columns


SHARES = (0.1, 0.5)


def table_of(cell):
    return render.frames(saliency.SECTION, [cell])["saliency_tests"]


def told(build_record, falls, kept=None):
    """A cell of texts of ten tokens: what each text {measure: [N]} loses without a measure's rationale, as comprehensiveness
    and deletion area see it; and what it has of it alone, as sufficiency and insertion area do, else the same.
    """
    names, count = [*falls], len(next(iter(falls.values())))
    kept = falls if kept is None else kept
    one = {"attention": np.full(10, 0.1)} | {name: np.arange(10.0) for name in names if name != "attention"}
    table = build_record([one] * count, measures=[name for name in names if name != "attention"])

    def for_each_share(values, start, sign):
        return [[[start + sign * values[name][row]] * len(SHARES) for name in names] for row in range(count)]

    columns = {
        "rationale_erasure_measures": [names] * count,
        "rationale_erasure_shares": [list(SHARES)] * count,
        "rationale_erasure_kept_probs": for_each_share(kept, 0.1, 1),
        "rationale_erasure_removed_probs": for_each_share(falls, 0.9, -1),
        "rationale_erasure_whole_prob": [0.9] * count,
        "rationale_erasure_empty_prob": [0.1] * count,
    }
    axes = {"measures": ("M",), "shares": ("S",), "kept_probs": ("M", "S"), "removed_probs": ("M", "S")}
    return split_cells(
        with_columns(table, columns, {name: axes.get(name.removeprefix("rationale_erasure_"), ()) for name in columns})
    )[0]


SIX = np.array([0.1, 0.11, 0.12, 0.13, 0.14, 0.15])
"""Differences of one sign, of six texts: every other deal of signs but the opposite has a smaller mean, p = 2 / 64."""
MIXED = np.array([0.1, -0.11, 0.12, -0.13, 0.14, -0.05])  # a mean above 0 that signs dealt at random often exceed


def p_by_brute_force(differences):
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=len(differences))]
    return np.mean(np.array(sums) >= abs(np.sum(differences)) - 1e-12)


def test_the_six_differences():
    assert p_by_brute_force(SIX) == 2 / 64
    assert MIXED.mean() > 0 and p_by_brute_force(MIXED) > 0.5


def test_among_the_best_is_corrected_for_the_other_measures_alone():
    """One other measure at p = .031 is worse. Two at .031 each are .062 by Holm, and the best is no test of the family."""
    best = np.full(6, 0.5)
    one, two = np.stack([best, best - SIX], axis=1), np.stack([best - SIX, best, best - 2 * SIX], axis=1)
    assert saliency._among_best(one, one.mean(0)).tolist() == [1, 0]
    assert saliency._among_best(two, two.mean(0)).tolist() == [1, 1, 1]
    # over thirteen texts all of one sign, p = 2 / 8192, the third is worse by Holm too
    longer = np.stack([np.full(13, 0.5), 0.5 - np.tile(MIXED, 3)[:13] / 9, 0.5 - np.arange(1, 14) / 100], axis=1)
    assert saliency._among_best(longer, longer.mean(0)).tolist() == [1, 1, 0]


def test_differences_to_one_measure_are_corrected_for_the_others():
    """Holm by hand from brute force: the smallest p times three, the next times two or the one before."""
    attention = np.full(6, 0.3)
    columns = {"attention": attention, "a": attention + SIX, "b": attention - np.abs(MIXED) * [1, 1, 1, 1, 1, -1]}
    columns["c"] = attention + MIXED
    raw = {name: p_by_brute_force(column - attention) for name, column in columns.items() if name != "attention"}
    assert raw["a"] < raw["b"] < raw["c"]
    expected = {"a": 3 * raw["a"], "b": max(3 * raw["a"], 2 * raw["b"]), "c": raw["c"]}
    found = saliency._against(np.stack(list(columns.values()), axis=1), list(columns), "attention")
    assert found["to_attention"][1:] == pytest.approx([SIX.mean(), (columns["b"] - attention).mean(), MIXED.mean()])
    assert found["to_attention_p_holm"][1:] == pytest.approx(list(expected.values()))
    assert np.isnan([numbers[0] for numbers in found.values()]).all()


def test_a_measure_beats_chance_by_more_than_its_mean(build_record):
    """Each of two is better than random scores at p = .031 in every test, at .062 by Holm: neither is recommended."""
    random = np.full(6, 0.2)
    cell = told(build_record, {"attention": random + SIX, "good": random + 2 * SIX, "random": random})
    table = table_of(cell)
    assert (table.loc[table["measure"] != "random", "to_random"] > 0).all()
    assert table.loc[table["measure"] != "random", "to_random_p_holm"].tolist() == [4 / 64] * 8
    assert saliency.advise(cell).measure is None
    # one alone is its own family
    assert saliency.advise(told(build_record, {"attention": random + SIX, "random": random})).measure == "attention"


def test_half_of_the_tests_are_not_most(build_record):
    falls = {"attention": np.full(6, 0.2) + SIX, "random": np.full(6, 0.2)}
    kept = {"attention": np.full(6, 0.2) + MIXED, "random": np.full(6, 0.2)}
    cell = told(build_record, falls, kept)
    table = table_of(cell).query("measure == 'attention'")
    assert (table["to_random"] > 0).all() and (table["to_random_p_holm"] <= saliency.ALPHA).sum() == 2
    assert saliency.advise(cell) == saliency.Advice(None, 4, 0, 4, 0)


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_of_equal_wins_the_better_mean_rank_is_recommended(build_record, names):
    """Both are among the best in every test; "first" has the better mean in each, and stands first or second."""
    low = np.full(12, 0.1)
    higher = low + np.tile(SIX, 2)
    falls = {"attention": low + np.tile(MIXED, 2) / 9, "first": higher + 0.01 + np.tile(MIXED, 2), "second": higher}
    cell = told(build_record, {name: falls[name] for name in ("attention", *names)} | {"random": low})
    table = table_of(cell).pivot(index="test", columns="measure", values=["rank", "among_best"])
    assert (table["rank"][["first", "second"]] == [1, 2]).all(axis=None)
    assert (table["among_best"][["first", "second", "attention"]] == [1, 1, 0]).all(axis=None)
    assert saliency.advise(cell) == saliency.Advice("first", 4, wins=4, attention_wins=0, attention_loses=4)


def test_attention_loses_where_the_difference_is_significant(build_record):
    """The better measure has the better mean in all four tests, in two of them by chance."""
    low, steps = np.full(12, 0.2), np.tile(SIX, 2)
    falls = {"attention": low + steps, "good": low + 2 * steps, "random": low}
    kept = {"attention": low + steps, "good": low + steps + np.tile(MIXED, 2) / 9, "random": low}
    cell = told(build_record, falls, kept)
    table = table_of(cell).query("measure == 'good'")
    assert (table["to_attention"] > 0).all() and (table["to_random_p_holm"] <= saliency.ALPHA).all()
    assert saliency.advise(cell) == saliency.Advice("good", 4, wins=4, attention_wins=2, attention_loses=2)
