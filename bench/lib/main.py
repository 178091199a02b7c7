"""What bench/run runs after the build: one bench, with standard output kept for its figures."""

import argparse
import pathlib
import signal
import sys
import traceback

TESTS = pathlib.Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(TESTS / "e2e/lib"), str(TESTS / "matrix")]
import bed  # first: it moves standard output away
import applying
import changes
import database
import emitting
import fairness
import neighbours
import publishing
import soak
import torture
from harness import Failure

BENCHES = {
    "drain": database.drain,
    "backlog": database.backlog,
    "status": database.status,
    "wal": database.wal,
    "held-transaction": database.held_transaction,
    "publish": publishing.publish,
    "apply": applying.apply,
    "parked": publishing.parked,
    "latency": publishing.latency,
    "fairness": fairness.fairness,
    "emit": emitting.emit,
    "changes": changes.changes,
    "neighbours": neighbours.neighbours,
    "torture": torture.torture,
    "soak": soak.soak,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=BENCHES)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--seconds", type=int, help="of soak")
    parser.add_argument("--round-trip", type=int, metavar="MS", help="of publish and apply: how much later the service answers")
    arguments = parser.parse_args()
    if arguments.round_trip is not None and arguments.name not in ("publish", "apply"):
        parser.error("--round-trip is for publish and apply")

    def interrupted(number, _frame):
        raise Failure(f"interrupted by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    try:
        more = {"seconds": arguments.seconds} if arguments.seconds else {}
        if arguments.round_trip is not None:
            more["round_trip"] = arguments.round_trip
        BENCHES[arguments.name](bed.Report(arguments.name), arguments.smoke, **more)
    except Failure as failure:
        traceback.print_exc()
        sys.exit(f"FAILED: {failure}")


main()
