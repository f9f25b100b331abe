"""The list of mutants is in step with the source, and the script tells a killed one from a survivor."""

import pytest

from tests.mutation import run
from tests.mutation.mutants import MUTANTS, Mutant


def test_every_mutant_changes_one_place_of_today_s_source(repository):
    for mutant in MUTANTS:
        source = (repository / mutant.file).read_text()
        assert source.count(mutant.old) == 1, (
            f"{mutant.file}, {mutant.bug}: {mutant.old!r} stands {source.count(mutant.old)} times"
        )
        assert mutant.new != mutant.old
        if mutant.file.endswith(".py"):
            compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_names_tests_that_exist_and_no_mutant_twice(repository):
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS) >= 60
    assert {mutant.layer for mutant in MUTANTS} == {"mathematics", "verdicts"}
    for mutant in MUTANTS:
        assert mutant.tests and all((repository / test).exists() for test in mutant.tests)


@pytest.mark.slow
def test_a_bug_is_killed_and_a_change_without_effect_survives():
    file, test = "src/attnfaith/metrics/attention_faithfulness/divergences.py", "tests/metrics/test_divergences.py"
    bug = Mutant(file, "L1", "np.abs(p - q) / 2, p, q)", "np.abs(p - q), p, q)", (test,))
    same = Mutant(file, "nothing", "np.abs(p - q) / 2, p, q)", "np.abs(q - p) / 2, p, q)", (test,))
    outcomes = run.run([bug, same], processes=1)
    assert [outcome.killed_by for outcome in outcomes] == [test, ""]


@pytest.mark.slow
def test_without_slow_tests_what_only_they_notice_survives(repository):
    file, test = "src/attnfaith/metrics/attention_faithfulness/divergences.py", "tests/test_own_runs.py"
    assert "\npytestmark = pytest.mark.slow\n" in (repository / test).read_text()
    bug = Mutant(file, "L1", "np.abs(p - q) / 2, p, q)", "np.abs(p - q), p, q)", (test, "tests/metrics/test_divergences.py"))
    (outcome,) = run.run([bug], options=run.FAST)
    assert outcome.killed_by == "tests/metrics/test_divergences.py"
