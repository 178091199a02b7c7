"""What bench/run runs after the build: a bench, or several of a smoke run, with standard output kept for the figures."""

import argparse
import contextlib
import importlib
import pathlib
import signal
import sys
import traceback

TESTS = pathlib.Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(TESTS / "e2e/lib"), str(TESTS / "matrix")]
import bed  # first: it moves standard output away
from harness import Failure

BENCHES = {  # and the module of each, of which one is loaded
    "drain": "database",
    "backlog": "database",
    "status": "database",
    "wal": "database",
    "held-transaction": "database",
    "publish": "publishing",
    "apply": "applying",
    "parked": "publishing",
    "latency": "publishing",
    "fairness": "fairness",
    "emit": "emitting",
    "changes": "changes",
    "neighbours": "neighbours",
    "torture": "torture",
    "soak": "soak",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", metavar="name", choices=BENCHES, nargs="+")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--seconds", type=int, help="of soak")
    parser.add_argument("--round-trip", type=int, metavar="MS", help="of publish and apply: how much later the service answers")
    arguments = parser.parse_args()
    if arguments.round_trip is not None and not {"publish", "apply"}.issuperset(arguments.names):
        parser.error("--round-trip is for publish and apply")
    if len(arguments.names) > 1 and not arguments.smoke:
        parser.error("several benches are for --smoke")

    def interrupted(number, _frame):
        raise Failure(f"interrupted by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    try:
        more = {"seconds": arguments.seconds} if arguments.seconds else {}
        if arguments.round_trip is not None:
            more["round_trip"] = arguments.round_trip
        with bed.handing_on() if len(arguments.names) > 1 else contextlib.nullcontext():
            for name in arguments.names:
                bench = getattr(importlib.import_module(BENCHES[name]), name.replace("-", "_"))
                bench(bed.Report(name), arguments.smoke, **more)
    except Failure as failure:
        traceback.print_exc()
        sys.exit(f"FAILED: {failure}")


main()
