"""Links between words against gold: by hand, against sets of links, and against published rates."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import (
    NAMES,
    WITHOUT_FIRST,
    alignment_results,
    alignment_scores,
    link_counts,
    read_links,
)
from attnfaith.metrics.attention_faithfulness.columns import InputError


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)
# gold from 1: five sure links and two possible ones
LINKS, GOLD = ["0-0 1-1 2-2", "0-1", "3-3 3-3"], ["1-1 2p2 2-3", "1-2 2-2", "1-1 4-4 4p4 2p1"]


def read(rows, start=0, **arguments):
    return read_links(rows, "links", start=start, **arguments)


def test_by_hand_and_in_parts(load):
    """A & S: 1, 1 and 1 (a link that is there twice counts once, and sure is more than possible); A & P: 2, 1, 1; A: 3,
    1, 1; S: 2, 2, 2.
    """
    metric = load("alignment")
    whole = metric.compute(links=LINKS, gold_links=GOLD, links_from=0, gold_from=1, per_text=True)
    by_text = whole.pop("per_text")
    assert whole["alignment_error_rate"] == pytest.approx(1 - 7 / 11)
    assert (whole["precision"], whole["recall"]) == (4 / 5, 3 / 6)
    counts = {"n": 3, "links": 5, "links_sure": 3, "links_possible": 4, "gold_sure": 6, "undefined": 0}
    assert {name: whole[name] for name in counts} == counts
    np.testing.assert_allclose(by_text["alignment_error_rate"], [0.4, 1 / 3, 1 / 3])
    np.testing.assert_allclose([by_text["precision"], by_text["recall"]], [[2 / 3, 1, 1], [0.5, 0.5, 0.5]])
    for row, gold in zip(LINKS, GOLD, strict=True):
        metric.add(links=row, gold_links=gold, links_from=0, gold_from=1)
    assert metric.compute() == whole
    metric.add_batch(links=LINKS[:1], gold_links=["0-0 1p1 1-2"], links_from=0, gold_from=0)
    metric.add_batch(links=["1-0", None], gold_links=[GOLD[1], None], links_from=0, gold_from=1, links_reversed=True)
    metric.add_batch(links=LINKS[2:], gold_links=GOLD[2:], links_from=0, gold_from=1)
    results, names = metric.compute(), [*NAMES, "links", "links_sure", "links_possible", "gold_sure"]
    assert {name: results[name] for name in names} == {name: whole[name] for name in names}
    assert (results["n"], results["undefined"]) == (4, 1)


@settings(max_examples=60)
@given(st.lists(st.tuples(PAIRS, PAIRS, PAIRS), min_size=1, max_size=4), st.integers(0, 1), st.integers(0, 1))
def test_by_sets_of_links(sentences, start, gold_start):
    """Whatever each side counts from, and whichever side a link names first, the quotients are those of the sets."""
    sums = np.zeros(4)
    rows, turned, gold = [], [], []
    for links, sure, possible in sentences:
        a, s, p = set(links), set(sure), set(sure) | set(possible)
        sums += len(a & s), len(a & p), len(a), len(s)
        rows.append(" ".join(f"{i + start}-{j + start}" for i, j in links))
        turned.append(" ".join(f"{j + start}-{i + start}" for i, j in links))
        marked = [(mark, i + gold_start, j + gold_start) for part, mark in ((possible, "p"), (sure, "-")) for i, j in part]
        gold.append(" ".join(f"{i}{mark}{j}" for mark, i, j in marked))
    predicted = read(rows, start)
    for row, other in zip(predicted, read(turned, start, reverse=True), strict=True):
        np.testing.assert_array_equal(row, other)
    results = alignment_results(link_counts(predicted, read(gold, gold_start)))
    both, links, sure = sums[0] + sums[1], sums[2], sums[3]
    for name, above, below in zip(NAMES, (both, sums[1], sums[0]), (links + sure, links, sure), strict=True):
        expected = np.nan if below == 0 else above / below
        expected = 1 - expected if name == "alignment_error_rate" else expected
        assert results[name] == pytest.approx(expected, nan_ok=True)


def test_undefined():
    """None enters no sum; no links at all leave precision undefined, no sure ones recall, neither all."""
    links, gold = read(["0-0", None, "0-0"]), read(["0-0", "5-5", None])
    results = alignment_results(link_counts(links, gold))
    assert (results["alignment_error_rate"], results["undefined"], results["gold_sure"]) == (0, 2, 1)
    undefined = [np.isnan(alignment_scores(counts)).tolist() for counts in ([0, 0, 0, 2], [0, 0, 2, 0], [0, 0, 0, 0])]
    assert undefined == [[False, True, False], [False, False, True], [True, True, True]]


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        (["1-1", "3-0"], {"start": 1}, "row 1: links.*3-0"),
        (["0-0"], {"start": None}, "links is None; give 0 or 1"),
        (["0-0", "0:0"], {}, "row 1: links holds '0:0'"),
        (["1-1"] * WITHOUT_FIRST, {}, "none of the 20 sentences of links"),
        (["0-2"], {"lengths": {"target": [2]}}, "row 0: links.*0-2.*target.*does it count from 1"),
        (["1-1", "4-1"], {"start": 1, "lengths": {"source": [1, 3]}}, "row 1: links.*4-1.*source.*exchanged"),
        (["0-0"], {"lengths": {"source": [1, 1]}}, "links has 1 rows and there are 2 source sentences"),
    ],
)
def test_refusals(rows, arguments, message):
    with pytest.raises(InputError, match=message):
        read(rows, **arguments)


GENUINE = Path(os.environ.get("ATTNFAITH_DATA") or "/nowhere") / "alignment/de-en"


@pytest.mark.skipif(not (GENUINE / "gold.talp").is_file(), reason="ATTNFAITH_DATA names no folder with alignment/de-en")
@pytest.mark.parametrize(
    ("aligner", "rate"), [("fastalign", 28.46), ("fastalign.reverse", 31.96), ("giza.grow-diagonal", 21.41)]
)
def test_published_links_have_the_published_rates(aligner, rate):
    """RWTH German-English: 508 sentences, gold from 1, links from 0, those of the other direction target first."""
    rows = {name: (GENUINE / f"{name}.talp").read_text(encoding="utf-8").splitlines() for name in (aligner, "gold")}
    links = read_links(rows[aligner], "links", start=0, reverse=aligner.endswith(".reverse"))
    results = alignment_results(link_counts(links, read_links(rows["gold"], "gold", start=1)))
    assert round(100 * results["alignment_error_rate"], 2) == rate
    assert (results["undefined"], results["gold_sure"]) == (0, 9613)
