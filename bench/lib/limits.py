"""bench/limits.json: what `bench/run counts` has counted, by version of PostgreSQL and kind of machine, and what a new count is held
against. A count that has grown by a fifth is always above its limit."""

import json
import platform
import re
import subprocess

from harness import ROOT, Skip, build_directory, say, stage_programs

FILE = ROOT / "bench/limits.json"
MOST = 1.12  # of what was recorded
SLACK = 0.02  # an event, so that next to nothing may double
FALLEN = 0.8
ANEW = "`bench/run counts --record` records the counts anew"


def subject():
    """What the counts belong to. The libraries and the compiler are those of the distribution, which goes with the version."""
    done = subprocess.run([stage_programs()[0] / "postgres", "--version"], check=True, stdout=subprocess.PIPE, text=True)
    return f"PostgreSQL {re.search(r'[0-9]+', done.stdout)[0]}, {platform.machine()}"


def expect(record):
    """Raises Skip where counts cannot be recorded, or where nothing comparable was recorded."""
    cache = (build_directory() / "CMakeCache.txt").read_text(encoding="utf-8")
    if "\nCMAKE_BUILD_TYPE:STRING=RelWithDebInfo\n" not in cache or "\nPOSTBOX_SANITIZE:STRING=\n" not in cache:
        raise Skip("the limits are for a build with the usual options")
    if not record and subject() not in stored():
        raise Skip(f"bench/limits.json has no counts for {subject()}; {ANEW}")


def stored():
    return json.loads(FILE.read_text(encoding="utf-8"))


def take(figures, record, compare):
    """Stores the counts, or compares them; returns the failures."""
    counted = {figure["case"]: figure["value"] for figure in figures}
    failures = []
    recorded = stored().get(subject())
    if compare and recorded:
        failures, notes = compared(recorded, counted)
        for note in notes:
            say(f"  {note}; {ANEW}, so that it stays so")
    if record:
        FILE.write_text(json.dumps({**stored(), subject(): counted}, indent=2) + "\n", encoding="utf-8")
        say(f"bench/limits.json has the counts for {subject()}")
    return [f"{failure}; if it is meant, {ANEW}" for failure in failures]


def compared(recorded, counted):
    """(failures, what has fallen by a fifth)"""
    failures, notes = [], []
    for case in recorded.keys() | counted.keys():
        then, now = recorded.get(case), counted.get(case)
        if then is None or now is None:
            failures.append(f"{case} is {'not recorded' if then is None else 'not counted any more'}")
        elif now > MOST * then + SLACK:
            failures.append(f"{case}: {now:,.5g} an event, {MOST:g} of the recorded {then:,.5g} are allowed")
        elif now < FALLEN * then - SLACK:
            notes.append(f"{case} has fallen to {now:,.5g} an event from {then:,.5g}")
    return sorted(failures), sorted(notes)
