"""The catalogue says of every measure and experiment what its module says, and is read without importing it."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from attnfaith import catalogue, measurement
from attnfaith.errors import AttnfaithError
from attnfaith.subjects import CAPABILITIES


def test_every_producer_is_listed_once():
    listed = {one.name: one.module for one in catalogue.entries()}
    assert listed == measurement.producers() and len(listed) == len(catalogue.entries())


@pytest.mark.parametrize("one", catalogue.entries(), ids=lambda one: one.name)
def test_an_entry_is_what_the_module_is(one):
    module = import_module(one.module)
    assert set(one.needs) == module.NEEDS <= set(CAPABILITIES)
    assert one.cost == module.COST and one.cost in catalogue.COSTS
    assert one.signed == (one.kind == "measure" and any(column.signed for column in module.COLUMNS.values()))
    assert one.what == " ".join(inspect.getdoc(module).split("\n\n")[0].split()) and one.what.endswith((".", "?"))
    parameters = inspect.signature(module.measure).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "seed"}
    assert {name: eval(value, {}) for name, value in one.options.items()} == options
    assert ("Source:" in inspect.getsource(module)) == bool(one.source)


@pytest.mark.parametrize(
    ("names", "kind", "said"),
    [
        (["lmie"], "measure", "no measure is called 'lmie'; did you mean 'lime'?"),
        (["Leave One-Out"], None, "did you mean 'leave_one_out'?"),
        (["permutation"], "measure", "'permutation' is no measure but an experiment"),
        (["gradient"], "experiment", "'gradient' is no experiment but a measure"),
        (["zzz"], "experiment", "no experiment is called 'zzz'; there are adversary_exact"),
        ([3], None, "no measure or experiment is called 3"),
        (["lime", "lime"], None, "'lime' is named twice"),
    ],
)
def test_names_that_are_not_there(names, kind, said):
    with pytest.raises(AttnfaithError) as raised:
        catalogue.named(names, kind)
    assert said in str(raised.value)


def test_names_that_are():
    assert [one.name for one in catalogue.named(["lime", "gradient"], "measure")] == ["lime", "gradient"]


def test_it_is_read_without_torch():
    script = "import sys; from attnfaith import catalogue as c; c.entries(); print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
