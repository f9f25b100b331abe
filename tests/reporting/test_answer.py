"""The answer of the first screen: each rule at its threshold, by numbers made by hand, and the facts against the tables."""

import itertools
from dataclasses import astuple, replace

import numpy as np
import pandas as pd
import pytest

from attnfaith.reporting.cards.findings import Checkpoint, Number
from attnfaith.reporting.cells import one_cell
from attnfaith.reporting.page import answer as rules
from attnfaith.reporting.page import answer_facts
from attnfaith.reporting.page.answer import (
    AGAINST,
    FAILS,
    FOR,
    HOLDS,
    RULES,
    UNDECIDED,
    UNTOLD,
    Contest,
    Facts,
    Finding,
    Interval,
    answer,
)
from attnfaith.reporting.page.answer_facts import facts_of
from attnfaith.reporting.render import frame
from attnfaith.reporting.sections import saliency
from attnfaith.reporting.sections.agreement import agreement_table
from tests.reporting.test_report_advice import MIXED, SIX, told


UP, DOWN, OPEN = Interval(0.1, 0.01, 0.2, 0.01), Interval(-0.1, -0.2, -0.01, 0.01), Interval(0.1, -0.01, 0.2, 0.01)
GOOD = Facts(n=30, accuracy=Interval(0.8, 0.7, 0.9), majority=0.6)


def contests(*pairs):
    """A contest of each (difference to chance, difference to the other measure)."""
    return tuple(Contest(f"test{number}", *pair[:1], "gradient", *pair[1:]) for number, pair in enumerate(pairs))


def test_an_interval_is_beside_a_bound_where_it_is_without_it_and_p_is_small():
    assert UP.above(0) and not UP.above(0.01) and not UP.below(0) and UP.below(0.21) and not UP.below(0.2)
    assert DOWN.below(0) and not DOWN.below(-0.01) and not DOWN.above(0)
    assert replace(UP, p=0.05).above(0) and not replace(UP, p=0.051).above(0)
    assert not replace(DOWN, p=0.051).below(0)
    assert Interval(1, 0.5, 2).above(0)  # a test of its own has no correction
    assert not Interval().above(0) and not Interval().below(0)


@pytest.mark.parametrize(("n", "blocked"), [(29, True), (30, False)])
def test_few_texts_tell_nothing(n, blocked):
    facts = replace(GOOD, n=n, unmoved=Interval(0.9, 0.8, 1.0))
    assert bool(rules.too_few(facts)) == blocked
    assert answer(facts).outcome == (UNTOLD if blocked else FAILS)
    assert ("cannot be told" in answer(facts).instead) == blocked
    assert f"{n} texts" in answer(facts).sentence


@pytest.mark.parametrize(
    ("accuracy", "majority", "blocked"),
    [(Interval(0.8, 0.61, 0.9), 0.6, False), (Interval(0.8, 0.6, 0.9), 0.6, True), (Interval(0.8), 0.6, True)]
    + [(Interval(), np.nan, False)],
)
def test_a_model_that_is_no_better_than_its_commonest_class_is_not_judged(accuracy, majority, blocked):
    facts = replace(GOOD, accuracy=accuracy, majority=majority, unmoved=Interval(0.9, 0.8, 1.0))
    assert bool(rules.no_better_than_majority(facts)) == blocked
    assert answer(facts).outcome == (UNTOLD if blocked else FAILS)
    known = "accuracy not known" if np.isnan(accuracy.value) else "accuracy 80.0 %"
    assert known in answer(facts).sentence


CONTESTS = [
    ([(UP, UP), (UP, OPEN)], FOR),
    ([(UP, OPEN), (OPEN, OPEN)], UNDECIDED),  # half of the tests are not most
    ([(UP, OPEN), (UP, OPEN), (OPEN, OPEN)], FOR),
    ([(UP, OPEN), (UP, OPEN), (UP, DOWN)], UNDECIDED),  # beaten once: not for, and not against
    ([(UP, DOWN), (UP, DOWN), (UP, OPEN)], AGAINST),
    ([(UP, DOWN), (UP, OPEN)], UNDECIDED),
    ([(DOWN, OPEN), (DOWN, OPEN), (OPEN, OPEN)], AGAINST),
    ([(DOWN, OPEN), (OPEN, OPEN)], UNDECIDED),
    ([(OPEN, OPEN)], UNDECIDED),
    ([(Interval(), DOWN)], AGAINST),  # no random scores, and another measure is better
    ([(Interval(), UP)], UNDECIDED),  # better than the others, yet than chance?
]


@pytest.mark.parametrize("rule", [rules.erasure, rules.known_evidence], ids=["erasure", "evidence"])
@pytest.mark.parametrize(("pairs", "verdict"), CONTESTS)
def test_contests_are_counted(rule, pairs, verdict):
    name = "erasure" if rule is rules.erasure else "evidence"
    facts = replace(GOOD, **{name: contests(*pairs)})
    assert rule(facts).verdict == verdict
    assert answer(facts).outcome == {FOR: HOLDS, AGAINST: FAILS, UNDECIDED: UNTOLD}[verdict]
    assert rule(GOOD).verdict == UNDECIDED
    if all(np.isnan(to_chance.low) for to_chance, _ in pairs) and verdict == UNDECIDED:
        assert "random scores" in rule(facts).said


def test_contests_in_words():
    better = rules.erasure(replace(GOOD, erasure=contests((UP, DOWN), (UP, DOWN), (UP, UP))))
    assert better.said == "gradient tells what the model needs better than attention in 2 of 3 tests"
    several = (*contests((UP, DOWN), (UP, DOWN)), Contest("x", UP, "LRP", DOWN))
    assert rules.erasure(replace(GOOD, erasure=several)).said.startswith("another measure (gradient, LRP) tells")
    alone = (Contest("x", UP),)
    assert rules.known_evidence(replace(GOOD, evidence=alone)) == Finding(
        FOR, "attention finds the tokens that decide the label better than a random order in 1 of 1 test"
    )
    shown = rules.erasure(replace(GOOD, erasure=contests((UP, OPEN))))
    assert shown.said.endswith("in 1 of 1 test, and no measure is shown to tell it better")


def tau(high, low=0.0):
    return Interval((low + high) / 2, low, high)


@pytest.mark.parametrize(
    ("deletion", "gradient", "between", "verdict"),
    [
        (tau(0.29), Interval(), Interval(), AGAINST),
        (tau(0.3), Interval(), Interval(), UNDECIDED),
        (Interval(0.1), Interval(), Interval(), UNDECIDED),  # no interval
        (Interval(), tau(0.1), Interval(), UNDECIDED),
        (tau(0.29), tau(0.2), tau(0.5, 0.3), AGAINST),
        (tau(0.29), tau(0.2), tau(0.5, 0.29), UNDECIDED),
        (tau(0.2), tau(0.29), tau(0.5, 0.25), UNDECIDED),
        (tau(0.29), tau(0.3), tau(0.9, 0.8), UNDECIDED),
        (tau(0.9, 0.8), tau(0.9, 0.8), tau(0.1), UNDECIDED),  # agreement proves nothing
    ],
)
def test_agreement_speaks_against_only(deletion, gradient, between, verdict):
    facts = replace(GOOD, taus=(deletion, gradient), between=between)
    assert rules.agreement(facts).verdict == verdict
    assert answer(facts).outcome == (FAILS if verdict == AGAINST else UNTOLD)


@pytest.mark.parametrize(("low", "verdict"), [(0.5, UNDECIDED), (0.501, AGAINST), (np.nan, UNDECIDED)])
def test_shuffled_weights(low, verdict):
    finding = rules.shuffled(replace(GOOD, unmoved=Interval(0.7, low, 0.9)))
    assert finding.verdict == verdict and ("not measured" in finding.said) == np.isnan(low)


@pytest.mark.parametrize(("low", "verdict"), [(0.346, UNDECIDED), (0.347, AGAINST), (np.nan, UNDECIDED)])
def test_other_weights(low, verdict):
    """Half of ln 2 is 0.34657."""
    finding = rules.other_weights(replace(GOOD, furthest=Interval(0.5, low, 0.6)))
    assert finding.verdict == verdict and ("not measured" in finding.said) == np.isnan(low)


def test_equal_weights_explain_nothing():
    assert answer(replace(GOOD, equal_weights=True)).sentence == (
        "Attention is not a reliable explanation of this model (accuracy 80.0 %, 30 texts): "
        "all tokens of a text have the same weight, whatever they are."
    )


def test_every_combination_of_rules(monkeypatch):
    """For with none against holds, against with none for fails, all else cannot be told; whatever the rule."""
    for verdicts in itertools.product((FOR, AGAINST, UNDECIDED), repeat=3):
        made = tuple(
            rules.Rule(str(place), "", lambda _, verdict=verdict, place=place: Finding(verdict, f"reason {place}"))
            for place, verdict in enumerate(verdicts)
        )
        monkeypatch.setattr(rules, "RULES", made)
        given = answer(GOOD)
        kinds = set(verdicts) - {UNDECIDED}
        assert given.outcome == {frozenset({FOR}): HOLDS, frozenset({AGAINST}): FAILS}.get(frozenset(kinds), UNTOLD)
        assert [finding.verdict for finding in given.findings] == list(verdicts)
        if kinds == {AGAINST}:
            first, *others = (f"reason {place}" for place, verdict in enumerate(verdicts) if verdict == AGAINST)
            assert given.sentence.endswith(f": {first}.") and given.also == tuple(others)
        if kinds == {FOR, AGAINST}:
            assert "contradict each other: reason" in given.sentence
        if not kinds:
            assert given.sentence.endswith("cannot be told: no test of it decides.")


def test_never_reliable_without_erasure_or_known_evidence():
    """All that the other rules could find in favour of attention is no proof."""
    best = replace(
        GOOD,
        taus=(Interval(1, 1, 1), Interval(1, 1, 1)),
        between=Interval(1, 1, 1),
        unmoved=Interval(0, 0, 0),
        furthest=Interval(0, 0, 0),
    )
    assert answer(best).outcome == UNTOLD
    assert answer(replace(best, erasure=contests((UP, OPEN)))).outcome == HOLDS
    against = replace(best, erasure=contests((UP, OPEN)), unmoved=Interval(0.9, 0.8, 1.0))
    assert answer(against).outcome == UNTOLD and "contradict" in answer(against).sentence


def test_rules_say_their_thresholds():
    said = {rule.name: rule.asks for rule in RULES}
    assert len(said) == len(RULES) == 6
    assert "0.3" in said["agreement"] and "0.05" in said["shuffled weights"] and "0.347" in said["other weights"]
    assert "50.0 %" in said["erasure"] and "30 texts" in rules.DECISION


def test_facts_are_those_of_the_tables(draw_record):
    cell = one_cell(draw_record(40))
    facts, table = facts_of(Checkpoint({}, cell.table)), agreement_table([cell])
    rows = table[table["class"] == "overall"].set_index("pair")
    names = ("attention–leave_one_out", "attention–gradient", "gradient–leave_one_out")
    for interval, name in zip((*facts.taus, facts.between), names, strict=True):
        row = rows.loc[name]
        expected = [row[end] / row["tie_ceiling"] for end in ("tau_mean", "ci_low", "ci_high")]
        assert [interval.value, interval.low, interval.high] == pytest.approx(expected)
    known = cell.labels[~np.isnan(cell.labels)]
    assert facts.n == 40 and facts.majority == max(np.mean(known == 0), np.mean(known == 1))
    assert facts.accuracy.value == np.mean((cell.predicted == cell.labels)[~np.isnan(cell.labels)])
    assert (facts.evidence, facts.erasure, facts.advice) == ((), (), "")
    assert np.isnan(facts.unmoved.value) and np.isnan(facts.furthest.value) and not facts.equal_weights


def test_contests_are_those_of_the_table_of_tests(build_record):
    """Attention is above chance in all four tests, and below the other measure in the two where it is so by hand."""
    low, steps = np.full(12, 0.2), np.tile(SIX, 2)
    falls = {"attention": low + steps, "good": low + 2 * steps, "random": low}
    kept = {"attention": low + steps, "good": low + steps + np.tile(MIXED, 2) / 9, "random": low}
    cell = told(build_record, falls, kept)
    facts = facts_of(Checkpoint({}, cell.table))
    assert [one.test for one in facts.erasure] == ["comprehensiveness", "sufficiency", "deletion_area", "insertion_area"]
    assert all(one.to_chance.above(0) and one.other == "good" for one in facts.erasure)
    by_test = {one.test: one.to_other for one in facts.erasure}
    assert [name for name, interval in by_test.items() if interval.below(0)] == ["comprehensiveness", "deletion_area"]
    assert by_test["comprehensiveness"].value == pytest.approx(-SIX.mean())
    table = frame(saliency.TESTS_TABLE, [cell]).set_index(["test", "measure"]).loc[("comprehensiveness", "good")]
    one = by_test["comprehensiveness"]
    assert (one.low, one.high) == (-table["to_attention_ci_high"], -table["to_attention_ci_low"]) and one.low < one.high
    assert one.p == table["to_attention_p_holm"]
    assert facts.advice == saliency.advice_in_words(cell)
    assert rules.erasure(facts).verdict == UNDECIDED  # beaten in half of the tests


def test_a_floor_is_never_the_other_measure(build_record):
    """Equal scores happen to do best, and are no measure that could be shown instead."""
    low = np.full(12, 0.2)
    falls = {"attention": low + np.tile(SIX, 2), "good": low, "uniform": low + 2 * np.tile(SIX, 2)}
    facts = facts_of(Checkpoint({}, told(build_record, falls).table))
    assert [one.other for one in facts.erasure] == ["good"] * 4 and all(one.to_other.above(0) for one in facts.erasure)


def test_known_evidence_is_that_of_generated_texts(build_record):
    given = {"attention": [0.7, 0.2, 0.1], "gold": [1.0, 0.0, 0.0], "gradient": [1, 2, 3]}
    made = {"measures": ("gradient",), "rationale": True}
    generated = Checkpoint({}, build_record([given] * 4, dataset="planted_evidence", **made))
    (contest,) = facts_of(generated).evidence
    # the marked token is first: precision 1; in a random order of three it is (1 + 1/2 + 1/3) / 3
    assert contest.to_chance.value == pytest.approx(1 - 11 / 18) and contest.other == ""
    assert facts_of(Checkpoint({}, build_record([given] * 4, **made))).evidence == ()


def test_one_text_is_one():
    assert [rules.too_few(Facts(n=count)) for count in (1, 2)] == ["only 1 text was measured", "only 2 texts were measured"]


def test_attention_is_held_against_the_measure_of_the_first_rank():
    def row(measure, rank, to_attention):
        names = ("", "_ci_low", "_ci_high", "_p_holm")
        made = {f"to_random{name}": value for name, value in zip(names, (0.3, 0.2, 0.4, 0.01), strict=True)}
        made |= {f"to_attention{name}": value for name, value in zip(names, to_attention, strict=True)}
        return {"measure": measure, "rank": rank, **made}

    table = pd.DataFrame(
        [
            row("attention", 2.0, (0, 0, 0, 1)),
            row("gradient", 3.0, (-0.1, -0.2, -0.05, 0.02)),
            row("occlusion", 1.0, (0.2, 0.1, 0.3, 0.03)),
            row("random", 4.0, (-0.3, -0.4, -0.2, 0.01)),
        ]
    )
    contest = answer_facts._contest("aopc", table)
    assert (contest.other, contest.to_chance.value) == ("occlusion", 0.3)
    assert contest.to_other == Interval(-0.2, -0.3, -0.1, 0.03)


def test_a_rank_correlation_is_taken_in_parts_of_what_ties_allow():
    number = Number("agreement", "tau", 0.2, 0.1, 0.3, n=4, n_undefined=0, against=0.5)
    scaled = Interval(0.2 / 0.5, 0.1 / 0.5, 0.3 / 0.5)
    assert astuple(answer_facts._tau(number)) == pytest.approx(astuple(scaled), nan_ok=True)
    assert np.isnan(answer_facts._tau(number._replace(against=0.0)).value)
