"""The table of docs/reliability.md. control/fault-matrix --record writes the cells that it has run, and the quick run checks that
the table has the steps and faults that there are."""

import datetime
import os
import pathlib
import re

from bank import KINDS
from harness import Failure

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reliability.md"
BEGIN, END = "<!-- written by control/fault-matrix --record -->", "<!-- to here -->"
GOOD = re.compile(r"\d+ / \d+ of [1-9]\d*")


def machine():
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {gigabytes:.0f} GiB, Linux, PostgreSQL 15"


def _cell(result):
    wrong = [f"{kind}: {count} {name}" for kind, figures in result.figures.items() for name, count in figures.wrong().items()]
    if not result.good():
        return "**" + (", ".join(wrong) or "failed") + "**"
    again = " / ".join(str(result.figures[kind].again) for kind in KINDS)
    return f"{again} of {sum(figures.events for figures in result.figures.values())}"


def _recorded():
    """{(step, fault): cell} of the table in the page."""
    lines = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {(row[0], fault): cell for row in rows[1:] for fault, cell in zip(rows[0][1:], row[1:])}


def record(results, steps, faults):
    cells = _recorded() | {(result.step, result.fault): _cell(result) for result in results}
    rows = [["step", *(fault.name for fault in faults)]]
    rows += [[step.name, *(cells.get((step.name, fault.name), "") for fault in faults)] for step in steps]
    table = [f"| {' | '.join(row)} |" for row in rows]
    table.insert(1, "|---" * len(rows[0]) + "|")
    good = [list(map(int, re.findall(r"\d+", cell))) for row in rows[1:] for cell in row[1:] if GOOD.fullmatch(cell)]
    lines = [
        f"{datetime.date.today()}, {machine()}. {len(good)} cells of {len(steps) * len(faults)}, {sum(cell[2] for cell in good):,} events:",
        ", ".join(f"{what} 0" for what in ("lost", "out of order", "applied twice", "ghosts"))
        + f"; sent again {sum(cell[0] + cell[1] for cell in good):,}.", "", *table]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


def check(steps, faults):
    """What stands in the page are the steps and faults of now, each with the figures of a good run."""
    cells = _recorded()
    expected = {(step.name, fault.name) for step in steps for fault in faults}
    if cells.keys() != expected:
        raise Failure(f"docs/reliability.md and the matrix have different cells: {sorted(cells.keys() ^ expected)}; "
                      "run control/fault-matrix --record")
    bad = {names: cell for names, cell in cells.items() if not GOOD.fullmatch(cell)}
    if bad:
        raise Failure(f"docs/reliability.md has cells that are not those of a good run: {bad}")
