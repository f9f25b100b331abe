"""The campaign of hostile input sees what is wrong with an end, and repeats an input by its seed and number."""

import time
import warnings

import pytest

from attnfaith.errors import AttnfaithError
from tests.campaigns.fuzz import attempts, batch, cases, doors
from tests.campaigns.fuzz.plans import Recipes
from tests.campaigns.fuzz.probe import REFUSED, Case, probe


def raising(error):
    def act():
        raise error

    return act


class Loud(AttnfaithError):
    """A refusal that shows what it holds as it is."""

    __str__ = BaseException.__str__


def busy():
    while True:
        sum(range(1000))


@pytest.mark.parametrize(
    ("act", "refused", "kind"),
    [
        (lambda: 3, False, None),
        (lambda: REFUSED, True, None),
        (raising(AttnfaithError("no such file")), True, None),
        (raising(KeyError("a")), False, "KeyError at test_fuzz.py"),
        (raising(RecursionError()), False, "RecursionError at test_fuzz.py"),
        (raising(Loud("a\nb")), True, "an error of several lines"),
        (raising(Loud("")), True, "an error without words"),
        (raising(Loud("a\x1b[2J")), True, "an error with a control character"),
        (raising(Loud("a" * 2000)), True, "an error of 2,000 characters"),
        (lambda: warnings.warn("this", stacklevel=1), False, "UserWarning at test_fuzz.py"),
        (busy, False, "a hang"),
        (lambda: time.sleep(60), False, "a hang"),
    ],
)
def test_what_an_end_is_taken_for(act, refused, kind, tmp_path):
    end = probe(act, tmp_path, seconds=0.1)
    assert end.refused is refused and (end.defect is None) is (kind is None)
    assert kind is None or kind in end.defect.kind


class Planted(Recipes):
    """The door of recipes, and behind it something that breaks at a letter."""

    name, inputs, batch = "planted", 20, 10

    def case(self, chance, folder):
        case = super().case(chance, folder)

        def act():
            if case.file.is_file() and b":" in case.file.read_bytes():
                raise KeyError(":")

        return Case(act, case.shown, case.file)


def test_a_planted_defect_is_counted_once_with_its_smallest_input(tmp_path):
    outcome = batch(Planted, 1, 0, 10, tmp_path)
    (said,) = outcome.defects
    assert outcome.tried == 10 and outcome.measured["refused"] == 0
    assert said.startswith("planted: KeyError at test_fuzz.py") and "seed 1, input 0" in said
    assert "smallest mine.yaml: b':'" in said and said.endswith("inputs)")


@pytest.mark.parametrize("name", ["recipes", "metric"])
def test_an_input_is_repeated_by_its_seed_and_number(name, tmp_path):
    shown = []
    for run in range(2):
        made = cases(doors()[name], 5, 10, 6, tmp_path / str(run))
        shown.append([(number, case.shown) for number, case, _ in made])
    assert shown[0] == shown[1] and [number for number, _ in shown[0]] == [*range(10, 16)]
    assert len({words for _, words in shown[0]}) > 3


def test_the_full_campaign_has_ten_thousand_inputs_and_names_of_its_own():
    made = [*attempts(True, 1)]
    assert len({one.name for one in made}) == len(made) and sum(kind.inputs for kind in doors().values()) >= 10_000


@pytest.mark.slow
def test_a_few_inputs_of_every_door(tmp_path):
    (attempt,) = attempts(False, 1)
    outcome = attempt.act(tmp_path)
    assert outcome.tried >= 12 * len(doors()) and not outcome.defects, outcome.defects
