"""The rules of a record of sentence pairs, each broken in turn; its arrays of several axes, kept to the bit."""

import numpy as np
import pytest

from attnfaith import Record, load, record
from attnfaith.record import Column, RecordError
from attnfaith.support.errors import AttnfaithError
from tests.records import draw as texts
from tests.sequence_records import columns, draw


PAIRS = [(["ein", "Hund"], ["a", "dog", "!"]), (["ja"], ["yes"])]
LINKS = [np.array([[2, 0], [0, 2], [0, 1]]), np.array([[2]])]


def arrays(axes, **sizes):
    """One array a pair, of increasing numbers."""
    for source, target in PAIRS:
        shape = [{"T": len(source), "G": len(target), "R": 2, "L": 2, "A": 3, **sizes}[axis] for axis in axes]
        yield np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("axes", [("G", "T"), ("L", "A", "R", "G", "T")])
def test_arrays_of_many_axes_come_back_as_they_were(axes, tmp_path):
    values = [*arrays(axes)]
    for column in (values, [value.tolist() for value in values]):
        own = record.build(columns(PAIRS, measures={"x": column}), {"x": Column(axes)})
        record.save(own, tmp_path / "r.parquet")
        rows = record.rows(record.load(tmp_path / "r.parquet"), "x")
        assert all(np.array_equal(row, value) for row, value in zip(rows, values, strict=True))
        assert np.array_equal(record.rows(own.take([1]), "x")[0], values[1])


RAGGED = [[[[[0.0] * 2] * 3] * 2] * 3, [[[[0.0] * 2] * 3] * 2]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_tokens": [["a", "dog", "!"], []], "target_probs": [[0.5] * 3, []]}, "row 1: the target sentence has no w"),
        ({"target_probs": [[0.5, float("nan"), 0.5], [0.5]]}, "column 'target_probs' row 0: nan is outside 0..1"),
        ({"gold_links": [LINKS[0], np.array([[3]])]}, "column 'gold_links' row 1: 3 is outside 0..2"),
        ({"gold_links": [LINKS[0].T, LINKS[1]]}, "row 0: column 'gold_links' has 2 values and 'target_tokens' 3"),
        ({"x": [*arrays("LARGT", R=1)]}, "row 0: column 'x' has 1 values and 'the rule' 2"),
        ({"y": [*arrays("LRG", L=3)]}, "row 0: column 'y' has 3 values and 'x' 2; all columns over L"),
        ({"x": [RAGGED, [*arrays("LARGT")][1].tolist()]}, "row 0: column 'x' has"),
    ],
)
def test_broken_rules_are_named(change, message):
    values = {"gold_links": LINKS, "x": [*arrays("LARGT")], "y": [*arrays("LRG")]} if "target_tokens" not in change else {}
    axes = {"gold_links": ("G", "T"), "x": tuple("LARGT"), "y": tuple("LRG")}
    extra = {name: record.OPTIONAL_COLUMNS.get(name, Column(axes[name])) for name in values}
    with pytest.raises(RecordError) as caught:
        record.build(columns(PAIRS, measures=values) | change, extra)
    assert message in str(caught.value)


def test_in_the_hands_of_a_person(tmp_path):
    own = Record(draw(4))
    assert own.of_sequences and own.measures == ["attention", "attention_mean", "norm", "occlusion"]
    words = (own.table.column(name) for name in ("tokens", "target_tokens"))
    shapes = [(2, 3, 2, len(target), len(source)) for source, target in zip(*words, strict=True)]
    assert [values.shape for values in own.alignment()] == shapes
    assert "4 pairs of sentences" in repr(own) and "attention_mean, norm" in own._repr_html_()
    assert load(own.save(tmp_path / "r.parquet")) == own
    with pytest.raises(AttnfaithError, match="holds no alignment 'gradient'; it holds attention, attention_mean"):
        own.alignment("gradient")
    for name in ("agreement", "scores", "per_text", "summary"):
        with pytest.raises(AttnfaithError, match=name):
            getattr(own, name)()
    with pytest.raises(AttnfaithError, match="measure a model on pairs"):
        Record(texts(3)).alignment()
    with pytest.raises(RecordError, match="record 1 has other columns than record 0"):
        record.concatenate([texts(3), draw(3)])
