"""What bench/run runs after the build: a bench, several, or all, with standard output kept for the figures."""

import argparse
import contextlib
import importlib
import pathlib
import signal
import sys
import time
import traceback

TESTS = pathlib.Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(TESTS / "e2e/lib"), str(TESTS / "matrix")]
import bed  # first: it moves standard output away
import ledger
import limits
import pages
from harness import SKIPPED, Failure, Skip, say

BENCHES = {  # and the module of each, of which one is loaded
    "drain": "database",
    "backlog": "database",
    "status": "database",
    "scrape": "scraping",
    "wal": "database",
    "held-transaction": "database",
    "publish": "publishing",
    "apply": "applying",
    "pull": "pulling",
    "parked": "publishing",
    "latency": "publishing",
    "fairness": "fairness",
    "emit": "emitting",
    "changes": "changes",
    "backfill": "backfill",
    "rebuild": "rebuild",
    "republish": "republishing",
    "wait": "waiting",
    "neighbours": "neighbours",
    "torture": "torture",
    "soak": "soak",
    "counts": "counts",
    "tenants": "tenants",
    "audit": "auditing",
    "cost": "cost",
}
# What is not in `all`: soak has no ratios, counts has limits (bench/lib/limits.py), both have tests.
APART = ("soak", "counts")
FAR = (5, 20, 100)  # ms, the round trips of `publish` in `all`


class Interrupted(BaseException):
    """By a signal: nothing goes on. No Exception, so that what waits, or expects a failure, does not take it for one."""


def main():
    arguments = parsed()

    def interrupted(number, _frame):
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    recorder = Recorder(arguments)
    failures = []
    with bed.handing_on() if arguments.smoke and len(arguments.runs) > 1 else contextlib.nullcontext():
        for name, options in arguments.runs:
            failure = run(name, arguments.smoke, options, recorder)
            failures += [failure] if failure else []
    failures += recorder.failures
    if failures:
        sys.exit("".join(f"FAILED: {failure}\n" for failure in failures))


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", metavar="name", choices=[*BENCHES, "all"], nargs="+")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--seconds", type=int, help="of soak")
    parser.add_argument("--round-trip", type=int, metavar="MS", help="of publish and apply: how much later the service answers")
    parser.add_argument("--record", action="store_true", help="append the figures to bench/ledger.jsonl, or write the limits of counts")
    parser.add_argument("--compare", action="store_true", help="with the best of the ledger, or with the limits of counts")
    arguments = parser.parse_args()
    if arguments.round_trip is not None and not {"publish", "apply"}.issuperset(arguments.names):
        parser.error("--round-trip is for publish and apply")
    if arguments.smoke and (arguments.record or arguments.compare or {"all", "counts"}.intersection(arguments.names)):
        parser.error("--smoke says nothing about speed: it is not recorded, not compared, and not for all or counts")
    if "soak" in arguments.names and (arguments.record or arguments.compare):
        parser.error("soak has no ratios to record or to compare")
    options = {"seconds": arguments.seconds} if arguments.seconds else {}
    if arguments.round_trip is not None:
        options["round_trip"] = arguments.round_trip
    arguments.runs = [run for name in arguments.names for run in (all_runs() if name == "all" else [(name, options)])]
    return arguments


def all_runs():
    for name in BENCHES:
        if name not in APART:
            yield name, {}
        if name == "publish":
            yield from ((name, {"round_trip": milliseconds}) for milliseconds in FAR)


def run(name, smoke, options, recorder):
    """Runs one bench. Returns what it failed with, or None."""
    report, failure, begun = bed.Report(name), None, time.monotonic()
    bench = getattr(importlib.import_module(BENCHES[name]), name.replace("-", "_"))
    try:
        bench(report, smoke, **options)
    except Exception as failed:  # the other benches go on, unless they share the server
        if smoke:
            raise
        traceback.print_exc()
        failure = f"{name}: {failed}"
        if not isinstance(failed, bed.Incomplete):
            return failure
    say(f"{name} took {time.monotonic() - begun:.0f} s")
    recorder.take(name, report.figures)
    return failure


class Recorder:
    """Appends the figures of each bench to the ledger as soon as there are all, so that they outlive a later failure, and compares them with
    what was there before."""

    def __init__(self, arguments):
        self._record, self._compare = arguments.record, arguments.compare
        self._commit = None
        self.failures = []  # of the comparison
        self._before = ledger.load()
        if (self._record or self._compare) and "counts" in arguments.names:
            limits.expect(self._record)
        if self._record and set(arguments.names) != {"counts"}:
            try:
                self._commit = ledger.commit()
            except ledger.Dirty as dirty:
                sys.exit(f"run: {dirty}")

    def take(self, name, figures):
        if name == "counts":
            self.failures += limits.take(figures, self._record, self._compare)
            return
        new = [ledger.line_of(figure, self._commit, ledger.machine()) for figure in figures]
        if self._record:
            ledger.append(new)
            pages.write()
            say("bench/ledger.jsonl and docs/performance.md have the figures")
        if self._compare:
            for text, failed in ledger.comparison(self._before, new):
                say(f"  {text}")
                self.failures += [text] if failed else []


if __name__ == "__main__":
    try:
        main()
    except Skip as skip:
        say(f"skipped: {skip}")
        sys.exit(SKIPPED)
    except (Failure, Interrupted) as failure_of_all:
        traceback.print_exc()
        sys.exit(f"FAILED: {failure_of_all}")
