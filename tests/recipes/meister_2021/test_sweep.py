"""What identities say of a cell's sparsity knob and of its variant."""

from importlib import import_module
from pathlib import Path

import pytest

from attnfaith.reporting.analysis import load_analysis
from attnfaith.reporting.cells import Cell
from tests.identities import typed


analysis = load_analysis(Path(__file__).parents[3] / "recipes" / "meister_2021" / "analysis.py")
sweep = import_module(".sparsity.sweep", analysis.__package__)


def cell(**labels):
    one = object.__new__(Cell)  # an identity is all that is read
    one.identity = typed(**labels)
    one.heading = one.identity.heading
    return one


@pytest.mark.parametrize(
    ("projection", "value", "alpha"),
    [
        ("softmax", None, 1.0),
        ("sparsemax", 0.0, 2.0),
        ("uniform", None, None),
        ("entmax15", None, 1.5),
        ("sparsegen(-100)", -100.0, None),
        ("sparsegen(0.5)", 0.5, None),
        ("sparsegen(-1e-05)", -1e-5, None),
        ("entmax(1.25)", None, 1.25),
    ],
)
def test_knobs(projection, value, alpha):
    assert sweep.sparsegen_lambda(cell(projection=projection)) == value
    assert sweep.entmax_alpha(cell(projection=projection)) == alpha


def test_scale_and_rate():
    assert sweep.score_scale(cell()) is None and sweep.plain_alignment(cell()) == "additive"
    held = cell(alignment="dot(scale 0.5)")
    assert sweep.score_scale(held) == 0.5 and sweep.plain_alignment(held) == "dot"
    assert sweep.attention_rate(cell()) == 1
    assert sweep.attention_rate(cell(objective="classification(attention rate x 10)")) == 10
    assert sweep.attention_rate(cell(objective="untrained")) == 1


@pytest.mark.parametrize("projection", ["softmax", "sparsemax", "uniform", "sparsegen(-3)"])
def test_the_papers_own(projection):
    assert sweep.is_plain(cell(projection=projection)) and sweep.is_of_the_paper(cell(projection=projection))


@pytest.mark.parametrize(
    "variant",
    [
        {"objective": "untrained"},
        {"objective": "classification(attention rate x 10)"},
        {"objective": "adversarial(jsd, 1)"},
        {"objective": "guided(bilstm+additive+softmax)"},
        {"alignment": "additive(scale 1)"},
    ],
)
def test_variants_are_not_plain(variant):
    for projection in ("softmax", "sparsemax", "sparsegen(0.5)"):
        assert not sweep.is_plain(cell(projection=projection, **variant))
        assert not sweep.is_of_the_paper(cell(projection=projection, **variant))


@pytest.mark.parametrize("projection", ["entmax15", "entmax(1.25)"])
def test_entmax_is_plain_and_not_the_papers(projection):
    assert sweep.is_plain(cell(projection=projection)) and not sweep.is_of_the_paper(cell(projection=projection))


def test_untrained():
    assert sweep.is_untrained(cell(objective="untrained")) and not sweep.is_untrained(cell())
