"""Measures: how they are declared, registered, named and given options; also by a package from outside."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from attnfaith.measurement import registry
from attnfaith.measurement.options import Draws, Layers, Target
from attnfaith.measurement.registry import (
    COSTS,
    READS,
    Measure,
    MeasurementError,
    build,
    check_names,
    classes,
    find,
    names,
    register,
)
from attnfaith.record import Column
from attnfaith.subjects import CAPABILITIES
from attnfaith.subjects.protocol import PAIR_CAPABILITIES
from tests.entry_points import offer
from tests.measurement.catalogue import written_catalogue


ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    for reads in READS:
        classes(reads)
    monkeypatch.setattr(registry, "_CLASSES", {reads: dict(classes) for reads, classes in registry._CLASSES.items()})


@pytest.mark.parametrize("reads", READS)
def test_every_measure_declares_itself(reads):
    capabilities = set(CAPABILITIES if reads == "texts" else PAIR_CAPABILITIES)
    assert names(reads) == sorted(cls.name for cls in classes(reads))
    for cls in classes(reads):
        assert cls.needs <= capabilities and cls.cost in COSTS and cls.reads == reads
        assert all(column.doc and column.needs <= capabilities for column in cls.columns.values())
        assert cls.summary().endswith((".", "?")) and "\n" not in cls.summary()
        assert cls().stated().keys() <= cls.options().keys()


def test_a_measure_without_its_package_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    for options in ({}, {"lime": {"samples": 9}}):
        with pytest.raises(MeasurementError, match=r"'lime'.*captum"):
            build(["lime"], options)


@pytest.mark.parametrize(
    ("wanted", "offending"), [(["lmie"], "'lime'"), (["Leave One-Out"], "'leave_one_out'"), ([3], "3"), (5, "5")]
)
def test_names_that_do_not_exist(wanted, offending):
    with pytest.raises(MeasurementError, match=offending):
        check_names(wanted)


def test_names_and_options_are_checked_and_listed_without_torch():
    script = (
        "import sys\nfrom attnfaith import cli\nfrom attnfaith.measurement import registry\nregistry.check_names(['lime'])\n"
        "for wrong in (['lmie'], {}), (['lime'], {'lime': {'smples': 3}}):\n    try:\n        registry.build(*wrong)\n"
        "    except registry.MeasurementError as error:\n        print(error)\n"
        "cli.main(['list', 'measures'])\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    name, option, *listed, loaded = done.stdout.splitlines()
    assert "'lime'" in name and "'samples'" in option and loaded == "False", done.stderr
    own = registry.catalogue()["texts"]
    assert [line.split()[0] for line in listed] == [cls.name for cls in classes() if cls.name in own]
    written = registry.CATALOGUE.read_text(encoding="utf-8")
    assert written == written_catalogue(), "run python -m tests.measurement.catalogue"


def define():
    """A measure as somebody outside the package writes one."""

    @register
    class Length(Measure):
        """The number of tokens before a token, times a factor.

        Source: Nobody 2026, section 1. More text.
        """

        name, cost = "place", "nothing"
        columns = {"importance_place": Column(("T",), doc="number of tokens before it")}

        factor: Draws = 1
        way: Literal["up", "down"] = "up"
        layers: Layers = "shown"
        target: Target = "predicted"

        def __call__(self, subject, batch, *, seed: int = 0):
            """Return the places."""
            counts = subject.attendable(batch).sum(1).tolist()
            return {"importance_place": [np.arange(count, dtype=np.float32) * self.factor + seed for count in counts]}

    return Length


def test_a_measure_from_outside(tiny_model, tiny_rows, tiny_batch):
    cls = define()
    assert find("place") is cls and "place" in names() and cls.takes_seed and not cls.takes_scores
    assert cls.source() == "Nobody 2026, section 1" and cls.role() == "importance" and not cls.signed()
    assert cls.options() == {"factor": 1, "way": "up", "layers": "shown", "target": "predicted"}
    scores = cls(factor=2)(tiny_model(), tiny_batch(tiny_rows([3])), seed=1)["importance_place"]
    assert [row.tolist() for row in scores] == [[1.0, 3.0, 5.0]]
    (measure,) = build(["place"], {"place": {"factor": 3}})
    assert measure.stated() == {"factor": 3, "way": "up", "layers": "shown", "target": "predicted"}
    define()  # the same class again, as a notebook's cell does
    with pytest.raises(ValueError, match="place"):
        register(type("Other", (Measure,), {"__doc__": "O.", "name": "place", "columns": cls.columns, "cost": "nothing"}))


WRONG = {
    "draws": (0, 2.5, True, "3", None),
    "restarts": (0, True), "steps": (0, 1.5), "samples": (0, 1, True), "beam": (0, True),
    "exact_tokens": (-1, 17), "max_steps": (14, 15.0),
    "learning_rate": (0, float("inf"), "1"), "penalty": (-1, float("nan")), "width": (0, float("inf")),
    "epsilon": (-0.1, float("nan"), True), "tolerance": (-1, None), "epsilons": ([], [0.1, 0.1], [0], [1], 0.1, [True]),
    "shares": ([], [0.5, 0.1], [0.1, 0.1], [0], [1], 0.1, None, ["a"]),
    "layers": ([], "first", [-1], [True], [0.0]), "layer": (-1, "first", True),
    "absent": ("gone", None), "by": ("blur", None), "inputs": ("x", None), "of": ("all", None),
    "output": ("logits", None), "baseline": ("noise", 0),
    "target": ("best", -1, True, 1.0, {"of": 1}, {"of": 1, "against": 1}, {"of": 1, "than": 0}),
}  # fmt: skip


@pytest.mark.parametrize("reads", READS)
def test_wrong_options_of_every_measure_name_the_option(reads):
    for name, option in ((cls.name, option) for cls in classes(reads) for option in cls.options()):
        for value in WRONG.get(option, ()):
            with pytest.raises(MeasurementError, match=f"^options of '{name}': .*{option}"):
                build([name], {name: {option: value}}, reads)


def test_the_example_of_the_documents(tmp_path):
    """As somebody follows it, from an empty folder: both orders add up to the logit of the text less that of nothing."""
    text = (ROOT / "docs/how_to/extend.md").read_text(encoding="utf-8")
    script = (
        re.search(r"```python\n(.*?)```", text, re.S)[1]
        + """
import attnfaith
from tests.small_classifiers import classifier, tokenizer

for options in ({}, {"prefix_odds": {"order": "backward"}}):
    added = {"measures": ["prefix_odds"], "progress": False, "tokenizer": tokenizer(), "options": options}
    record = attnfaith.measure(classifier("bert"), ["the old ship", "ship"], **added)
    print(*[f"{sum(row):.4f}" for row in record.table.column("importance_prefix_odds").to_pylist()])
"""
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), f"{ROOT}/src"])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment)
    forward, backward = done.stdout.splitlines()
    assert forward == backward, done.stderr


def test_an_entry_point_adds_a_measure(tmp_path, monkeypatch):
    """A package that is installed beside this one adds a measure without a line here."""
    source = (
        "from attnfaith.measurement.registry import Measure, register\nfrom attnfaith.record import Column\n\n\n"
        '@register\nclass Outside(Measure):\n    """A measure of another package."""\n\n'
        "    name, cost = 'outside', 'nothing'\n"
        "    columns = {'importance_outside': Column(('T',), doc='nothing')}\n"
    )
    offer(tmp_path, monkeypatch, "outside", source, "attnfaith.measures", "Outside")
    script = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom attnfaith.measurement import registry\n"
        "print(registry.check_names('outside'), registry.find('outside').__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["['outside']", "Outside"], done.stderr
