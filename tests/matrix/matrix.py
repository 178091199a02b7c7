"""control/fault-matrix: strikes each step of an event's path with each fault, under load, and counts what went wrong."""

import argparse
import dataclasses
import pathlib
import signal
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e/lib"))
import bank
import planted
import report
from faults import FAULTS
from harness import Failure, say, wait_until
from place import Site, may_mount
from steps import STEPS

QUICK_LOAD = {"clients": 3, "rate": 10}  # of each bank: what is struck takes little of it
RECOVERY = 90  # s, after which what is not applied counts as lost
# What `control/test` runs: every fault and every step that needs something of its own. In two parts, which take equally long and run at
# the same time, since they wait more than they compute.
QUICK = {"1": [
    ("after the claim", "SIGKILL"), ("effect without response", "immediate stop"),
    ("after publishing, before the mark", "loss of the broker"), ("after COMMIT, before the ack", "SIGKILL"),
    ("during a re-base", "immediate stop"), ("during retention", "SIGKILL"),
], "2": [
    ("before sending", "SIGSTOP"), ("before a checkpoint", "full WAL disk"), ("during redrive", "full tablespace"),
    ("before sending", "failover"),
]}


@dataclasses.dataclass
class Result:
    step: str
    fault: str
    figures: dict  # by kind of outbox
    trouble: list  # why the cell has failed, beside figures that are not 0
    seconds: float
    recovery: float = 0  # s, from the end of the load until everything was applied

    def good(self):
        return not self.trouble and not any(figures.wrong() for figures in self.figures.values())


def run_cell(site, ledgers, step, fault):
    """One step and one fault, from a quiet system to a quiet system."""
    begun = time.monotonic()
    server, position = site.cluster, site.log_position()
    site.start_load(hurried=fault.hurried)
    step.prepare(site)
    fault.prepare(site)
    site.wait_load(5)
    victims = step.reach(site)
    if not set(step.kinds) <= victims.keys():
        raise Failure(f"only these are at the step: {victims}")
    fault.strike(site, step, victims)
    site.alter_publications()
    site.wait_workers()
    step.finish(site)
    site.wait_load(10)
    site.stop_load()
    site.touch_all()
    ended = time.monotonic()
    trouble = [late for ledger in ledgers.values() if (late := ledger.settle(RECOVERY))]
    recovery = time.monotonic() - ended
    figures = {}
    for kind, ledger in ledgers.items():
        figures[kind], differences = ledger.take()
        trouble += differences + ledger.dead_letters()
        if figures[kind].events <= bank.ACCOUNTS + 1:  # those that ended the cell
            trouble.append(f"{kind}: the load has committed nothing")
        if step.repeats(fault) and not figures[kind].again:
            trouble.append(f"{kind}: nothing was sent again, so nothing was at this step")
    signals = [signal.SIGKILL] + [signal.SIGABRT] * fault.aborts_server
    trouble += site.broken_off(position if site.cluster is server else 0, [int(number) for number in signals])
    return Result(step.name, fault.name, figures, trouble, time.monotonic() - begun, recovery)


def run_cells(cells, load, plant):
    """Runs cells on one site as long as they are good, and plants errors at the end if it shall. Yields their results."""
    with Site.open(**load) as site:
        ledgers = {kind: bank.Ledger(site, kind) for kind in bank.KINDS}
        for step, fault in cells:
            try:
                result = run_cell(site, ledgers, step, fault)
            except Failure as failure:
                traceback.print_exc(file=sys.stdout)
                yield Result(step.name, fault.name, {}, [str(failure)], 0)
                raise
            yield result
            if not result.good():
                raise Failure("the next cell begins with a new site, for the records of this one are not clean")
        if plant:
            planted.plant(site, ledgers)


def run_all(cells, load, plant):
    results = []
    while len(results) < len(cells):
        try:
            for result in run_cells(cells[len(results):], load, plant):
                results.append(result)
                say_result(result)
        except Failure as failure:
            say(f"  {failure}")
            if not results or results[-1].good():
                raise
    return results


def say_result(result):
    say(f"{'ok  ' if result.good() else 'FAIL'} {result.step} / {result.fault} ({result.seconds:.1f} s, of which {result.recovery:.1f} s until everything was applied)")
    for kind, figures in result.figures.items():
        say(f"       {kind}: " + ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(figures).items()))
    for line in result.trouble:
        say(f"       {line}")


def choose(arguments):
    cells = [(step, fault) for fault in FAULTS for step in STEPS]
    if arguments.quick:
        cells = [(step, fault) for step, fault in cells if (step.name, fault.name) in QUICK[arguments.quick]]
    for part, index in ((arguments.step, 0), (arguments.fault, 1)):
        if part:
            cells = [cell for cell in cells if part in cell[index].name]
    if not cells:
        sys.exit("no cell has such a name; --list prints them")
    return cells


def main():
    parser = argparse.ArgumentParser(prog="fault-matrix")
    parser.add_argument("--step", help="only steps whose name contains this")
    parser.add_argument("--fault", help="only faults whose name contains this")
    parser.add_argument("--quick", choices=QUICK, help="a part of a selection that takes a minute")
    parser.add_argument("--list", action="store_true", help="print the names of steps and faults")
    parser.add_argument("--record", action="store_true", help="write the figures of these cells into docs/reliability.md")
    arguments = parser.parse_args()
    if arguments.list:
        say("\n".join(["steps:", *(f"  {step.name}" for step in STEPS), "faults:", *(f"  {fault.name}" for fault in FAULTS)]))
        return
    chosen = choose(arguments)
    cells = [cell for cell in chosen if may_mount() or not cell[1].needs_disks]
    if len(cells) < len(chosen):
        say(f"{len(chosen) - len(cells)} cells are left out: only root can mount the small file systems that they fill up")
    begun = time.monotonic()
    results = run_all(cells, QUICK_LOAD if arguments.quick else {}, arguments.quick == "1")
    bad = [result for result in results if not result.good()]
    if arguments.quick:
        report.check(STEPS, FAULTS)
    say(f"{len(results)} cells in {time.monotonic() - begun:.0f} s, {len(bad)} failed; everything was applied "
        f"{max(result.recovery for result in results):.1f} s after the end of the load at the latest")
    for result in bad:
        say_result(result)
    if arguments.record:
        report.record(results, STEPS, FAULTS)
    sys.exit(1 if bad else 0)


def interrupted(number, _frame):
    sys.exit(f"interrupted by {signal.Signals(number).name}")  # no failure of a cell


signal.signal(signal.SIGTERM, interrupted)
signal.signal(signal.SIGINT, interrupted)
main()
