"""The table and the plot of `cost`, whose cases are 'STEP, WAY: PROCESS': a row for each way of a step, with its processes side by side."""

import ledger
import plot as svg

BENCH = "cost"
UNIT = "us/event"
ALT = "Processor time of an event, by process"
OWN = "worker, puller or client"  # the process that is none of the server's sessions
HEADING = (f"| step | way | backend | {OWN} | together | Postbox takes | best | of |", "|---|---|---|---|---|---|---|---|")


def ways(lines):
    """{(step, way): {process: line}}. A ratio of Postbox to a way is the "share" of that way."""
    found = {}
    for line in lines:
        if line["bench"] == BENCH:
            step_and_way, part = named(line["case"])
            found.setdefault(step_and_way, {})[part] = line
            if line["ratio_to"] is not None:
                found.setdefault(named(line["ratio_to"])[0], {})["share"] = line
    steps = list(dict.fromkeys(step for step, _ in found))
    return dict(sorted(found.items(), key=lambda item: steps.index(item[0][0])))


def named(case):
    step, _, rest = case.partition(", ")
    way, _, part = rest.rpartition(": ")
    return (step, way), part


def values(parts):
    """Of the backend and of the other process."""
    return [sum(line["value"] for part, line in parts.items() if part not in ("all", "share") and (part == "backend") == is_backend)
            for is_backend in (True, False)]


def table(rows, lines):
    """`lines`: the ledger."""
    yield from HEADING
    for (step, way), parts in rows.items():
        numbers = [f"{value:.3g}" if value else "" for value in values(parts)]
        shown = parts["all"]
        cells = [step, way, *numbers, f"{shown['value']:.3g} {UNIT}", *share(parts.get("share"), lines), f"{shown['date']} {shown['commit'][:7]}"]
        yield "| " + " | ".join(cells) + " |"


def share(line, lines):
    """What part of this way's time Postbox takes, and the best there was."""
    if line is None:
        return "", ""
    best = ledger.best(lines, line)
    return f"{line['ratio']:.3g} of it", "this" if best["ratio"] == line["ratio"] else f"{best['ratio']:.3g} ({best['commit'][:7]})"


def plot(rows, theme):
    bars = [(f"{step}: {way}", values(parts), parts["all"]["value"]) for (step, way), parts in rows.items()]
    return svg.stacks(BENCH, UNIT, bars, ("backend", OWN), theme)
