"""From weights to links: by hand, by rules written out word for word, and against published links."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import link_counts
from attnfaith.metrics.extraction import (
    OF_WEIGHTS,
    Rule,
    count_links,
    diagonal,
    extract_links,
    grow_diagonal,
    halves,
)
from tests.metrics.test_alignment_error_rate import GENUINE, genuine_links


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))
WEIGHTS = SHAPES.flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0, 0.05, 0.2, 0.5, 0.7, 1, np.nan]))
)
FAR = np.array([[0.7, 0.3, 0.0, 0.0], [0.6, 0.1, 0.3, 0.0], [0.0, 0.1, 0.4, 0.5], [0.0, 0.2, 0.3, 0.5]])


def links_of(name, weights, threshold=None):
    return {tuple(pair) for pair in np.argwhere(extract_links(weights, (Rule(name, threshold),))[0]).tolist()}


def test_by_hand():
    """Target words are rows. The third and fourth share their heaviest source word, as do the first two."""
    assert links_of("target_argmax", FAR) == {(0, 0), (1, 0), (2, 3), (3, 3)}
    assert links_of("source_argmax", FAR) == {(0, 0), (0, 1), (2, 2), (2, 3)}
    assert links_of("intersection", FAR) == {(0, 0), (2, 3)}
    assert links_of("union", FAR) == {(0, 0), (1, 0), (2, 3), (3, 3), (0, 1), (2, 2)}
    assert links_of("row_share", FAR, 0.5) == {(0, 0), (1, 0), (1, 2), (2, 2), (2, 3), (3, 2), (3, 3)}
    assert links_of("absolute", FAR, 0.5) == {(0, 0), (1, 0), (2, 3), (3, 3)}


def test_growing_needs_two_words_without_a_link():
    """The second target and second source word are linked by one direction and touch the first link over a corner; the third
    pair is reached from there. A word that has a link gets no other.
    """
    weights = np.array([[0.9, 0.0, 0.0, 0.1], [0.0, 0.4, 0.0, 0.6], [0.0, 0.5, 0.3, 0.2], [0.0, 0.1, 0.2, 0.7]])
    assert links_of("intersection", weights) == {(0, 0), (2, 1), (3, 3)}
    union = links_of("union", weights)
    assert (2, 2) in union and (1, 3) in union
    assert links_of("grow_diagonal", weights) == {(0, 0), (2, 1), (3, 3)}
    chain = np.array([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2], [0.6, 0.0, 0.4]])
    assert links_of("intersection", chain) == {(0, 0)}
    chain[1, 1], chain[2, 2] = 0.4, 0.5
    assert links_of("source_argmax", chain) == {(0, 0), (1, 1), (2, 2)}
    assert links_of("grow_diagonal", chain) == {(0, 0), (1, 1), (2, 2)}


@settings(max_examples=200)
@given(WEIGHTS)
def test_rules_word_for_word(weights):
    """Each rule again with loops over words; growing step by step until nothing can be added."""
    targets, sources = weights.shape
    forward, backward, shares, bounds = set(), set(), set(), set()
    for g in range(targets):
        row = [(-weights[g, t], t) for t in range(sources) if not np.isnan(weights[g, t])]
        forward |= {(g, min(row)[1])} if row else set()
        shares |= {(g, t) for value, t in row if -value > 0 and -value >= 0.5 * -min(row)[0]}
        bounds |= {(g, t) for value, t in row if -value >= 0.2}
    for t in range(sources):
        column = [(-weights[g, t], g) for g in range(targets) if not np.isnan(weights[g, t])]
        backward |= {(min(column)[1], t)} if column else set()
    assert links_of("target_argmax", weights) == forward
    assert links_of("source_argmax", weights) == backward
    assert links_of("intersection", weights) == forward & backward
    assert links_of("union", weights) == forward | backward
    assert links_of("row_share", weights, 0.5) == shares
    assert links_of("absolute", weights, 0.2) == bounds
    links = links_of("grow_diagonal", weights)
    assert forward & backward <= links <= forward | backward
    assert len({g for g, _ in links}) == len({t for _, t in links}) == len(links)
    for g, t in (forward | backward) - links:  # nothing is left that could be added
        touches = any(max(abs(g - g2), abs(t - t2)) == 1 for g2, t2 in links)
        assert not touches or g in {g2 for g2, _ in links} or t in {t2 for _, t2 in links}


def test_leading_axes_are_kept():
    weights = np.random.default_rng(0).random((3, 2, 5, 4))
    together = extract_links(weights, OF_WEIGHTS)
    assert together.shape == (3, 2, len(OF_WEIGHTS), 5, 4)
    for layer in range(3):
        for head in range(2):
            np.testing.assert_array_equal(together[layer, head], extract_links(weights[layer, head], OF_WEIGHTS))


def test_what_links_nothing():
    """NaN, a sentence without words, and for a share of the largest, no positive weight."""
    nothing = np.full((2, 3), np.nan)
    assert not extract_links(nothing, OF_WEIGHTS).any()
    assert extract_links(np.zeros((0, 3)), OF_WEIGHTS).shape == (len(OF_WEIGHTS), 0, 3)
    assert extract_links(np.zeros((3, 0)), OF_WEIGHTS).shape == (len(OF_WEIGHTS), 3, 0)
    assert not links_of("row_share", np.array([[-1.0, -2.0]]), 0.5) and not links_of("row_share", np.zeros((2, 2)), 0.5)
    assert links_of("target_argmax", np.array([[-1.0, -2.0]])) == {(0, 0)}


@settings(max_examples=100)
@given(SHAPES.flatmap(lambda shape: st.tuples(arrays(bool, shape), arrays(np.int64, shape, elements=st.integers(0, 2)))))
def test_counts_are_those_of_lists_of_links(both):
    links, gold = both
    listed = np.array([(t, g, 2) for g, t in np.argwhere(links)], np.int64).reshape(-1, 3)
    gold_listed = np.array([(t, g, gold[g, t]) for g, t in np.argwhere(gold > 0)], np.int64).reshape(-1, 3)
    np.testing.assert_array_equal(count_links(links, gold), link_counts([listed], [gold_listed])[0])


def test_the_diagonal():
    np.testing.assert_allclose(diagonal(3, 3).argmax(axis=1), [0, 1, 2])
    assert links_of("intersection", diagonal(4, 4)) == {(place, place) for place in range(4)}
    assert diagonal(0, 3).shape == (0, 3)


def test_halves():
    names = [f"text {number}" for number in range(101)]
    chosen = halves(names)
    assert chosen.sum() == 51 and chosen[:50].any() and not chosen[:50].all()
    turned = halves(names[::-1])[::-1]
    np.testing.assert_array_equal(chosen, turned)
    assert (halves(names, seed=1) != chosen).any()
    assert halves([]).shape == (0,) and halves(["one"]).tolist() == [True]


@pytest.mark.skipif(not (GENUINE / "gold.talp").is_file(), reason="ATTNFAITH_DATA names no folder with alignment/de-en")
@pytest.mark.parametrize(("aligner", "least"), [("fastalign", 503), ("giza", 508)])
def test_grown_links_are_the_published_ones(aligner, least):
    """Of 508 sentences; in the others the published script met the neighbours of a link in another order."""
    forward, backward, published = (
        genuine_links(f"{aligner}{end}", 0, reverse=end == ".reverse") for end in ("", ".reverse", ".grow-diagonal")
    )
    same, sizes = 0, np.zeros(2)
    for first, second, links in zip(forward, backward, published, strict=True):
        grown = set(_grown_of(first, second))
        expected = {(source, target) for source, target, _ in links.tolist()}
        same += grown == expected
        sizes += len(grown), len(expected)
    assert same == least and sizes[0] == sizes[1]


def _grown_of(first, second):
    """The grown links, (source, target), of two lists of links."""
    size = max(int(part[:, :2].max(initial=0)) for part in (first, second)) + 1
    ways = np.zeros((2, size, size), bool)
    for way, part in zip(ways, (first, second), strict=True):
        way[part[:, 1], part[:, 0]] = True
    return [(s, t) for t, s in np.argwhere(grow_diagonal(ways[0] & ways[1], ways[0] | ways[1])).tolist()]
