"""From weights to links: by hand, and by rules written out word for word."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnfaith.metrics.attention_faithfulness.alignment_error_rate import link_counts
from attnfaith.metrics.extraction import (
    SHARE_RULES,
    Rule,
    count_links,
    diagonal,
    extract_links,
    halves,
)


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))
WEIGHTS = SHAPES.flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0, 0.05, 0.2, 0.5, 0.7, 1, np.nan]))
)


def links_of(name, weights, threshold=None):
    return {tuple(pair) for pair in np.argwhere(extract_links(weights, (Rule(name, threshold),))[0]).tolist()}


def test_by_hand():
    """Target words are rows. Of the chain, each direction links a pair over a corner, which growing adds."""
    weights = np.array([[0.7, 0.3, 0.0, 0.0], [0.6, 0.1, 0.3, 0.0], [0.0, 0.1, 0.4, 0.5], [0.0, 0.2, 0.3, 0.5]])
    assert links_of("target_argmax", weights) == {(0, 0), (1, 0), (2, 3), (3, 3)}
    assert links_of("source_argmax", weights) == {(0, 0), (0, 1), (2, 2), (2, 3)}
    assert links_of("union", weights) == {(0, 0), (1, 0), (2, 3), (3, 3), (0, 1), (2, 2)}
    assert links_of("row_share", weights, 0.5) == {(0, 0), (1, 0), (1, 2), (2, 2), (2, 3), (3, 2), (3, 3)}
    assert links_of("absolute", weights, 0.5) == {(0, 0), (1, 0), (2, 3), (3, 3)}
    chain = np.array([[0.9, 0.1, 0.0], [0.5, 0.4, 0.2], [0.6, 0.0, 0.5]])
    assert links_of("intersection", chain) == {(0, 0)}
    assert links_of("grow_diagonal", chain) == {(0, 0), (1, 1), (2, 2)}


@settings(max_examples=150)
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


def test_leading_axes_and_sentences_without_links():
    weights = np.random.default_rng(0).random((3, 2, 5, 4))
    together = extract_links(weights, SHARE_RULES)
    assert together.shape == (3, 2, len(SHARE_RULES), 5, 4)
    np.testing.assert_array_equal(together[2, 1], extract_links(weights[2, 1], SHARE_RULES))
    assert not extract_links(np.full((2, 3), np.nan), SHARE_RULES).any()
    assert extract_links(np.zeros((0, 3)), SHARE_RULES).shape == (len(SHARE_RULES), 0, 3)
    assert extract_links(np.zeros((3, 0)), SHARE_RULES).shape == (len(SHARE_RULES), 3, 0)
    assert not links_of("row_share", np.array([[-1.0, -2.0]]), 0.5)  # of the largest, if it is positive


@settings(max_examples=50)
@given(SHAPES.flatmap(lambda shape: st.tuples(arrays(bool, shape), arrays(np.int64, shape, elements=st.integers(0, 2)))))
def test_counts_are_those_of_lists_of_links(both):
    links, gold = both
    listed = np.array([(t, g, 2) for g, t in np.argwhere(links)], np.int64).reshape(-1, 3)
    gold_listed = np.array([(t, g, gold[g, t]) for g, t in np.argwhere(gold > 0)], np.int64).reshape(-1, 3)
    np.testing.assert_array_equal(count_links(links, gold), link_counts([listed], [gold_listed])[0])


def test_diagonal_and_halves():
    assert links_of("intersection", diagonal(4, 4)) == {(place, place) for place in range(4)}
    names = [f"text {number}" for number in range(101)]
    chosen = halves(names)
    assert chosen.sum() == 51 and chosen[:50].any() and not chosen[:50].all()
    np.testing.assert_array_equal(chosen, halves(names[::-1])[::-1])
    assert halves([]).shape == (0,)
