"""What bench/run runs after the build: one bench, with standard output kept for its figures."""

import argparse
import pathlib
import signal
import sys
import traceback

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[2] / "tests/e2e/lib")]
import bed  # first: it moves standard output away
import database
import emitting
import neighbours
import publishing
import torture
from harness import Failure

BENCHES = {
    "drain": database.drain,
    "backlog": database.backlog,
    "wal": database.wal,
    "held-transaction": database.held_transaction,
    "publish": publishing.publish,
    "parked": publishing.parked,
    "latency": publishing.latency,
    "emit": emitting.emit,
    "neighbours": neighbours.neighbours,
    "torture": torture.torture,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=BENCHES)
    parser.add_argument("--smoke", action="store_true")
    arguments = parser.parse_args()

    def interrupted(number, _frame):
        raise Failure(f"interrupted by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    try:
        BENCHES[arguments.name](bed.Report(arguments.name), arguments.smoke)
    except Failure as failure:
        traceback.print_exc()
        sys.exit(f"FAILED: {failure}")


main()
