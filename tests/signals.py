"""Signals that ask for an end, where the tests themselves were started with them ignored."""

import signal


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_alone() -> None:
    """Ignore in this process alone the STOPS that it was started with ignored, as nohup, & and cron leave them.

    A signal that is ignored stays so in all that a process starts, which then cannot be stopped. A handler that does nothing
    ignores as well, and the system takes it away from what is started.
    """
    for number in STOPS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
