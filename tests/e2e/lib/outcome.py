"""How an end-to-end test waits, checks, and fails. All of it is part of harness.py, too."""

import os
import time

TIMEOUT = float(os.environ.get("POSTBOX_E2E_TIMEOUT", "120"))


class Failure(Exception):
    """A test has failed. The text says what was expected and what was seen."""


class Hopeless(Failure):
    """What is waited for cannot happen any more."""


class Skip(Exception):
    """The test cannot run on this machine. The text says why."""


def say(text):
    print(text, flush=True)


def wait_until(what, condition, timeout=None, interval=0.05):
    """Polls until condition() is true (and returns its value). A condition may raise Failure to say why
    it does not hold yet; the reason is part of the message when the time is over. A condition that takes
    long, since it starts a process for example, is asked less often; one that is new, more often."""
    first = time.monotonic()
    deadline = first + (timeout or TIMEOUT)
    seen = None
    while True:
        begun = time.monotonic()
        try:
            seen = condition()
            if seen:
                return seen
        except Hopeless:
            raise
        except Failure as reason:
            seen = reason
        if time.monotonic() > deadline:
            raise Failure(f"waited {timeout or TIMEOUT:.0f} s without success for: {what}\n  last seen: {seen!r}")
        now = time.monotonic()
        time.sleep(max(0.005, min(interval, (now - first) / 15), min(2 * (now - begun), 0.5)))


def check(what, actual, expected=True):
    """One assertion, printed. Without `expected`, `actual` must be true."""
    good = bool(actual) if expected is True else actual == expected
    say(f"  {'ok  ' if good else 'FAIL'} {what}")
    if not good:
        raise Failure(f"{what}\n  expected: {expected!r}\n  actual:   {actual!r}")
