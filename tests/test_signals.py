"""The suite may be started with signals ignored; what it starts takes them."""

import signal
import subprocess
import sys

import pytest

from tests.signals import STOPS, ignore_alone


DEFAULTS = """
import signal, sys
print([signal.getsignal(int(number)) in (signal.SIG_DFL, signal.default_int_handler) for number in sys.argv[1:]])
"""


@pytest.fixture
def ignored():
    """SIGINT, SIGTERM and SIGHUP ignored, as nohup and & leave them."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_children_take_signals_that_the_tests_were_started_without(ignored):
    ignore_alone()
    child = [sys.executable, "-c", DEFAULTS, *(str(int(number)) for number in STOPS)]
    assert subprocess.run(child, capture_output=True, text=True, check=True).stdout == "[True, True, True]\n"
    for number in STOPS:  # this process goes on
        signal.raise_signal(number)
        assert signal.getsignal(number) not in (signal.SIG_IGN, signal.SIG_DFL)


def test_what_is_not_ignored_stays_as_it_is(ignored):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ignore_alone()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
