"""What a process has used, as /proc shows it."""

import os
import pathlib

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """Processor time of all threads, in user and kernel mode; of children that have ended and were waited for, too."""
    return sum(_ticks(pid)) / TICK


def children(pid):
    """The ids of its processes, those included that have ended and are not waited for yet."""
    return set(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()))


def cpu_seconds_of_ended_children(pid):
    return sum(_ticks(pid)[2:]) / TICK


def _ticks(pid):
    """User and system time, and the same of children that have ended."""
    # The name of the program, in brackets, may have spaces.
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return list(map(int, fields[11:15]))


def sleeps(pid):
    """How often its threads have given up the processor by themselves."""
    return sum(int(line.split()[1])
               for task in pathlib.Path(f"/proc/{pid}/task").glob("*/status")
               for line in task.read_text(encoding="ascii", errors="replace").splitlines()
               if line.startswith("voluntary_ctxt_switches:"))


def private_mebibytes(pid):
    """Memory without the pages of shared_buffers."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields.get(name, "0").split()[0]) for name in ("RssAnon", "RssFile")) / 1024
