"""What docs/performance.md says in figures: its tables and plots, made from bench/ledger.jsonl. Between the two markers nothing is
written by hand, and neither is anything in docs/figures."""

import collections
import textwrap

import costs
import ledger
import plot
from ledger import LEDGER, ROOT, is_measure, key, measures
from plot import number

PAGE = "docs/performance.md"
FOLDER = "docs/figures"
BEGIN = "<!-- from here on by bench/report, from bench/ledger.jsonl -->"
END = "<!-- up to here by bench/report -->"
MANY = 5  # figures in a group; more have a plot
LONGEST = 190  # characters of a row
HEADING = ("| case | value | ratio | best | target | of |", "|---|---|---|---|---|---|")


def rendered(lines, page):
    """The files that the ledger gives, by their names; `page` is docs/performance.md as it is."""
    begin, end = page.find(BEGIN), page.find(END)
    if begin < 0 or end < begin:
        raise ValueError(f"{PAGE} lacks the line {BEGIN!r} or, after it, {END!r}")
    files, parts = {}, [BEGIN, ""]
    for bench, rows in groups(lines).items():
        parts += [f"**{bench}**", ""]
        if bench == costs.BENCH:
            ways = costs.ways(newest(lines).values())
            parts += [*costs.table(ways, lines), "", picture(bench, costs.ALT), ""]
            files.update((f"{FOLDER}/{bench}-{theme}.svg", costs.plot(ways, theme)) for theme in plot.THEMES)
            continue
        parts += [*HEADING, *(row(line, lines) for line in rows), ""]
        if shown := drawn(rows):
            parts += [picture(bench, f"The {'ratios' if plot.shown(shown)[0] == 'ratio' else 'values'} of {bench}: the newest, the best and the target"), ""]
            with_best = [(line, ledger.best(lines, line)) for line in shown]
            files.update((f"{FOLDER}/{bench}-{theme}.svg", plot.bars(bench, with_best, theme)) for theme in plot.THEMES)
    files[PAGE] = page[:begin] + "\n".join(parts) + page[end:]
    return files


def groups(lines):
    """The newest line of each figure, by bench; without those that are there for others to be compared with."""
    shown = newest(lines).values()
    of_others = measures(shown)
    found = {}
    for line in sorted(shown, key=lambda line: line["bench"]):
        if not is_measure(line, of_others):
            found.setdefault(line["bench"], []).append(line)
    return found


def newest(lines):
    """The newest line of each figure, in the order of the newest run."""
    found = {}
    for line in lines:
        found.pop(key(line), None)
        found[key(line)] = line
    return found


def drawn(rows):
    """Of many figures the ratios, if these are many; or else the values of the unit that most of them have."""
    ratios = [line for line in rows if line["ratio"] is not None]
    if len(ratios) > MANY:
        return ratios
    unit, _ = collections.Counter(line["unit"] for line in rows).most_common(1)[0]
    return [line for line in rows if line["unit"] == unit] if len(rows) > MANY else []


def row(line, lines):
    cells = [line["case"], f"{number(line['value'])} {line['unit']}", "", "", line["target"] or "", f"{line['date']} {line['commit'][:7]}"]
    of_best = ledger.best(lines, line)
    if of_best is not None:
        best, now = ledger.compared(of_best), ledger.compared(line)
        cells[3] = "this" if best == now else f"{number(best)} ({of_best['commit'][:7]})"
    if line["ratio"] is not None:
        cells[2] = f"{number(line['ratio'])} of "
        room = LONGEST - sum(map(len, cells)) - len("|  |" * len(cells))
        cells[2] += textwrap.shorten(line["ratio_to"], max(room, 20), placeholder=" ...")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def picture(bench, alt):
    return (f'<picture><source media="(prefers-color-scheme: dark)" srcset="figures/{bench}-dark.svg">'
            f'<img alt="{alt}" src="figures/{bench}-light.svg"></picture>')


def write(root=ROOT):
    files = rendered(ledger.load(root), (root / PAGE).read_text(encoding="utf-8"))
    for old in (root / FOLDER).glob("*.svg"):
        old.unlink()
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
