"""bench/ledger.jsonl: every figure that was recorded, one JSON object a line, oldest first, and what a new figure is compared with.

A figure with a ratio is compared by its ratio, with all that were recorded. A figure without one is compared by its value, with
those of the same machine, and only where less is better (ms, bytes, MiB): a rate by itself belongs to the machine and the day. A
figure that others are compared with is a measure, and is not compared itself."""

import datetime
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LEDGER = "bench/ledger.jsonl"
# What recording writes, which changes nothing that is measured.
WRITTEN = (LEDGER, "bench/limits.json", "docs/performance.md", "docs/figures/")
LEAST = 0.85  # of the best; less is a failure
SLACK = 0.02  # of the target of what should be small: so much more is none
MORE_IS_BETTER = re.compile(r"(events|messages|rows)/s|tps")
LESS_IS_BETTER = re.compile(r"ms|[KM]iB|(bytes|us)/event")
FIELDS = ("commit", "date", "machine", "bench", "case", "value", "unit", "ratio", "ratio_to", "better", "target")


class Dirty(Exception):
    """What is measured is no commit."""


def better(unit):
    """higher, lower, or None for what is only counted."""
    return "higher" if MORE_IS_BETTER.fullmatch(unit) else "lower" if LESS_IS_BETTER.fullmatch(unit) else None


def machine(cpuinfo=pathlib.Path("/proc/cpuinfo")):
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
    return f"{found[1].strip() if found else 'unknown'}, {os.cpu_count()} cores"


def commit(root=ROOT):
    """The commit that is measured. Raises Dirty if the tree has something else in it."""
    changed = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    changed = [line for line in changed if not line[3:].startswith(WRITTEN)]
    if changed:
        raise Dirty("the tree differs from its commit, so a figure would belong to none; commit first:\n" + "\n".join(changed))
    return _git(root, "rev-parse", "--short=10", "HEAD").strip()


def _git(root, *arguments):
    return subprocess.run(["git", *arguments], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def read(text):
    return [json.loads(line) for line in text.splitlines()]


def load(root=ROOT):
    return read((root / LEDGER).read_text(encoding="utf-8"))


def line_of(figure, of_commit, of_machine, date=None):
    """A line of the ledger for what a bench has reported."""
    line = {**figure, "commit": of_commit, "machine": of_machine, "better": None if figure.get("of_others") else better(figure["unit"]),
            "date": date or datetime.datetime.now(datetime.timezone.utc).date().isoformat()}
    return {field: line[field] for field in FIELDS}


def append(lines, root=ROOT):
    with open(root / LEDGER, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def key(line):
    return line["bench"], line["case"], line["ratio_to"]


def measures(lines):
    """The (bench, case) that others of these are compared with."""
    return {(line["bench"], line["ratio_to"]) for line in lines if line["ratio_to"] is not None}


def is_measure(line, of_others):
    return line["ratio"] is None and (line["bench"], line["case"]) in of_others


def compared(line):
    """The number that is compared, or None."""
    if line["better"] is None:
        return None
    if line["ratio"] is not None:
        return line["ratio"]
    return line["value"] if line["better"] == "lower" else None


def best(lines, line):
    """The best of the ledger for this figure, or None."""
    same = [other for other in lines if key(other) == key(line) and compared(other) is not None and
            (line["ratio"] is not None or other["machine"] == line["machine"])]
    if not same or compared(line) is None:
        return None
    return (max if line["better"] == "higher" else min)(same, key=compared)


def target_of(line):
    """(whether it is about the ratio, its sign, its number) of a target such as '>= 0.9' or '<= 2 ms', or None."""
    found = re.match(r"(>=|<=) ([0-9.]+)( \w+)?", line["target"] or "")
    if not found:
        return None
    return line["ratio"] is not None and found[3] is None, found[1], float(found[2])


def share(line, of_best):
    """How much of the best this figure is: 1 as good, less is worse."""
    now, then = compared(line), compared(of_best)
    if line["better"] == "higher":
        return now / then if then else 1.0
    target = target_of(line)
    if target and target[0] == (line["ratio"] is not None) and now - then <= SLACK * target[2]:
        return max(1.0, then / now if now else 1.0)
    return then / now if now else 1.0


def comparison(lines, new):
    """(text, whether it is a failure) for each figure of `new` beside the ledger."""
    of_others = measures([*lines, *new])
    for line in new:
        if is_measure(line, of_others) or compared(line) is None:
            continue
        of_best = best(lines, line)
        what = f"{line['ratio']:.3g} of {line['ratio_to']}" if line["ratio"] is not None else f"{line['value']:.4g} {line['unit']}"
        target = f", target {line['target']}" if line["target"] else ""
        if of_best is None:
            yield f"{line['bench']} {line['case']}: {what}, nothing in the ledger{target}", False
            continue
        part = share(line, of_best)
        yield (f"{line['bench']} {line['case']}: {what}, best {compared(of_best):.4g} ({of_best['date']}, {of_best['commit']}), "
               f"{part:.2f} of it{target}{'' if part >= LEAST else '   BELOW ' + str(LEAST)}"), part < LEAST
