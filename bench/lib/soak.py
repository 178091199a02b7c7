"""Constant load for a long time, with faults of the fault matrix at random, and what it does to processes and tables.

Memory, descriptors and threads are those of one process: a fault ends some of them, so a slope is taken within the lives of
processes, of which the first WARM_UP seconds do not count. A backlog makes memory grow in a step, and malloc keeps it; a leak
grows all the time. So the slope of a process is the median of what it grows by in a minute. For most of the time no process
is ended, so that there are minutes enough: of fewer than MINUTES nothing is concluded, which is a failure. Tables grow and are
emptied in turn, so theirs is a least-squares fit; it is flat if it exceeds its limit by less than twice its standard error.
A smoke run judges none.
"""

import bisect
import contextlib
import math
import os
import random
import re
import statistics
import threading
import time

import bank
from bed import Failure
from faults import FAULTS, Stop
from harness import KeptSessions, say
from place import Site, may_mount
from steps import STEPS

SECONDS, SMOKE_SECONDS = 1200, 3
SETTLE = 120  # s
# Of processes, whose allocators fill up slowly, and of tables, whose retention has to pass first.
WARM_UP, TABLE_WARM_UP = 120, 300
MINUTES = 5
ENDING = 0.4  # of the time, the first part: faults and steps that end processes strike, too
# Longer than a puller is stopped: what it holds has been applied by another one meanwhile, which the inbox must still know.
INBOX_RETENTION = "3 minutes"
# What a slope may have in 10 minutes. Of memory, some 35 bytes for each event: the arenas of malloc still grow a little then.
LIMITS = {"RssAnon": (4096, "kB"), "descriptors": (1, "descriptors"), "threads": (1, "threads"), "size": (1024, "kB")}


class Steady:
    """What most minutes have added, over all lives."""

    def __init__(self, series):
        self.mean = mean_of(series)
        self._growth = [growth for points in series for growth in self._minutes(points)]
        self.per_minute = statistics.median(self._growth) if self._growth else 0.0

    @staticmethod
    def _minutes(points):
        for begin, value in points[:1]:
            for at, now in points:
                if at - begin >= 60:
                    yield (now - value) * 60 / (at - begin)
                    begin, value = at, now

    def __str__(self):
        return f"{self.per_minute:+.3f} in the median of {len(self._growth)} minutes"

    def flat(self, limit):
        """`limit` is for 10 minutes."""
        return len(self._growth) >= MINUTES and 10 * self.per_minute <= limit


class Fitted:
    """Least squares over several series with the same slope and each its own level."""

    def __init__(self, series):
        self.mean = mean_of(series)
        self.per_minute, self._error = self._fit([points for points in series if len(points) > 2])

    @staticmethod
    def _fit(series):
        sxx = sxy = syy = 0.0
        for points in series:
            mean_t = sum(at for at, _ in points) / len(points)
            mean_v = sum(value for _, value in points) / len(points)
            sxx += sum((at - mean_t) ** 2 for at, _ in points)
            sxy += sum((at - mean_t) * (value - mean_v) for at, value in points)
            syy += sum((value - mean_v) ** 2 for _, value in points)
        freedom = sum(map(len, series)) - len(series) - 1
        if sxx == 0 or freedom < 1:
            return 0.0, math.inf
        slope = sxy / sxx
        return 60 * slope, 60 * math.sqrt(max(0.0, syy - slope * sxy) / freedom / sxx)

    def __str__(self):
        return f"{self.per_minute:+.3f} ± {self._error:.3f}"

    def flat(self, limit):
        return 10 * (self.per_minute - 2 * self._error) <= limit


def mean_of(series):
    values = [value for points in series for _, value in points]
    return sum(values) / max(1, len(values))


def series_begin(points):
    return points[0][0]


class Samples:
    """What was seen of each subject: {(subject, quantity): {life: [(second, value)]}}. A life is a process or a table."""

    def __init__(self):
        self._values = {}

    def add(self, subject, quantity, life, at, value):
        self._values.setdefault((subject, quantity), {}).setdefault(life, []).append((at, value))

    def __bool__(self):
        return bool(self._values)

    def slopes(self, end):
        for (subject, quantity), lives in sorted(self._values.items()):
            # Less of a short run, so that something is left of it.
            warm_up = min(TABLE_WARM_UP if quantity == "size" else WARM_UP, end / 4)
            kind = Fitted if quantity == "size" else Steady
            yield subject, quantity, kind([points[bisect.bisect(points, (series_begin(points) + warm_up,)):] for points in lives.values()])


class Watch:
    """Samples on a thread of its own, with sessions of its own for what SQL says."""

    def __init__(self, site, interval):
        self._site = site
        self._interval = interval
        self._kept = KeptSessions()
        self.samples = Samples()
        self.begun = time.monotonic()
        self._ended = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._ended.set()
        self._thread.join()
        if self._error:
            raise self._error
        return time.monotonic() - self.begun

    def _run(self):
        try:
            self._watch()
        except Exception as error:  # otherwise nothing would be watched, and nothing would say so
            self._error = error

    def _watch(self):
        said = self.begun
        while not self._ended.wait(self._interval):
            with contextlib.suppress(Failure):  # the server is down now and then
                self._sample()
            if time.monotonic() - said > 60:
                said = time.monotonic()
                say_slopes(self.samples, said - self.begun)
        self._kept.close()

    def _sample(self):
        at = time.monotonic() - self.begun
        for subject, pid in self._processes():
            with contextlib.suppress(OSError, AttributeError):
                status = open(f"/proc/{pid}/status", encoding="ascii", errors="replace").read()
                for quantity, pattern in (("RssAnon", r"RssAnon:\s+(\d+)"), ("threads", r"Threads:\s+(\d+)")):
                    self.samples.add(subject, quantity, pid, at, int(re.search(pattern, status).group(1)))
                self.samples.add(subject, "descriptors", pid, at, self._descriptors(pid))
        for kind in bank.KINDS:
            for subject, size in self._kept.ask(self._site.cluster, bank.database(kind), SIZES):
                self.samples.add(f"{kind}: {subject}", "size", kind, at, int(size) / 1024)

    def _descriptors(self, pid):
        """But those of tables and logs, of which Postgres keeps up to max_files_per_process open on purpose."""
        links = []
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        return sum(not link.startswith(str(self._site.directory)) for link in links)

    def _processes(self):
        rows = self._kept.ask(self._site.cluster, "postgres", """
            SELECT CASE backend_type WHEN 'postbox launcher' THEN 'launcher' ELSE 'worker of ' || datname END, pid
            FROM pg_stat_activity WHERE backend_type LIKE 'postbox %'""")
        yield from ((subject, int(pid)) for subject, pid in rows)
        yield "emulator", self._site.bed.emulator.process.pid
        yield "puller of witness", self._site.witness_puller.process.pid
        for puller in list(self._site.pullers):
            if puller.process.running():
                yield f"puller of {puller.database}", puller.process.pid


# The bank's own tables and the journal grow, since they are the books; they are not Postbox's.
SIZES = """
    SELECT CASE WHEN n.nspname = 'postbox' THEN 'tables of the schema postbox'
                WHEN c.relname LIKE 'inbox%' THEN 'inbox' ELSE 'outbox' END || CASE c.relkind WHEN 'i' THEN ', indexes' ELSE '' END,
           sum(pg_relation_size(c.oid))::bigint
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'i') AND (n.nspname = 'postbox' OR n.nspname = 'bank' AND c.relname LIKE 'outbox%'
                                       OR n.nspname = 'reader' AND c.relname LIKE 'inbox%')
    GROUP BY 1"""


def say_slopes(samples, end):
    say(f"after {end:.0f} s, the slope a minute:")
    for subject, quantity, slope in samples.slopes(end):
        say(f"    {subject}, {quantity}: {slope} {LIMITS[quantity][1]}, mean {slope.mean:.1f}")


def check_rule():
    """That the rules see a leak with noise and over two lives, and take neither a level nor, of a process, a step for one. Of
    a short life nothing is said."""
    dice = random.Random(1)
    limit = LIMITS["RssAnon"][0]
    for rule, growth, step, flat in ((Steady, 0, 0, True), (Steady, 0, 20, True), (Steady, 2, 0, False), (Steady, 2, 20, False),
                                     (Fitted, 0, 0, True), (Fitted, 2, 0, False)):
        lives = [[(at, level + growth * limit / 600 * at + step * limit * (at > 400) + dice.uniform(-50, 50))
                  for at in range(begin, begin + 300, 2)] for begin, level in ((20, 5000), (300, 9000))]
        if rule(lives).flat(limit) != flat:
            raise Failure(f"{rule.__name__} takes a growth by {growth} times the limit and a step of {step} for {'a leak' if flat else 'none'}")
    if Steady([[(at, 5000) for at in range(0, 60 * MINUTES, 2)]]).flat(limit):
        raise Failure(f"less than {MINUTES} minutes are enough")


def soak(report, smoke, seconds=None):
    seconds = seconds or (SMOKE_SECONDS if smoke else SECONDS)
    seed = random.randrange(1 << 32) if "POSTBOX_SOAK_SEED" not in os.environ else int(os.environ["POSTBOX_SOAK_SEED"])
    check_rule()
    say(f"soak: {seconds} s, seed {seed} (POSTBOX_SOAK_SEED={seed} has the same faults in the same order)")
    with Site.open(inbox_retention=INBOX_RETENTION) as site:
        site.cluster.set(autovacuum_naptime="5s")
        ledgers = {kind: bank.Ledger(site, kind) for kind in bank.KINDS}
        site.start_load(clients=6, rate=30 if smoke else 100)
        watch = Watch(site, 1 if smoke else 2)
        struck = strike_at_random(site, random.Random(seed), ENDING * seconds, smoke, cells_of_soak(smoke))
        gentle = [(step, fault) for step, fault in cells_of_soak(smoke) if not step.ends_processes and not fault.ends_processes]
        struck += strike_at_random(site, random.Random(seed), (1 - ENDING) * seconds, smoke, gentle)
        end = watch.stop()
        site.stop_load()
        trouble = [late for ledger in ledgers.values() if (late := ledger.settle(SETTLE))]
        trouble += report_books(report, ledgers)
    seen = {quantity for _, quantity, _ in watch.samples.slopes(end)}
    trouble += [f"{quantity} was never looked at" for quantity in sorted(LIMITS.keys() - seen)]
    report.line("faults", struck, "faults")
    say_slopes(watch.samples, end)
    for subject, quantity, slope in watch.samples.slopes(end):
        limit, unit = LIMITS[quantity]
        report.line(f"{subject}, {quantity}, mean", slope.mean, unit)
        report.line(f"{subject}, {quantity}, slope", slope.per_minute, f"{unit}/min")
        if not smoke and not slope.flat(limit):
            trouble.append(f"{subject}: {quantity} grows a minute by {slope} {unit}")
    if trouble:
        raise Failure("\n".join(trouble))


def cells_of_soak(smoke):
    faults = [fault for fault in FAULTS if not fault.needs_standby and (may_mount() or not fault.needs_disks)]
    if smoke:  # a lease takes longer than the whole run
        faults = [fault for fault in faults if not isinstance(fault, Stop)]
    return [(step, fault) for step in STEPS for fault in faults]


def strike_at_random(site, dice, seconds, smoke, cells):
    """Steps and faults one after the other until the time is over. Returns how many."""
    end = time.monotonic() + seconds
    pause = 0.5 if smoke else 30
    struck = 0
    while time.monotonic() < end:
        time.sleep(min(dice.uniform(0.5, 1.5) * pause, max(0.0, end - time.monotonic())))  # the load goes on meanwhile
        step, fault = dice.choice(cells)
        say(f"  {step.name} / {fault.name}")
        step.prepare(site)
        fault.strike(site, step, step.reach(site))
        site.wait_workers()
        step.finish(site)
        struck += 1
    return struck


def report_books(report, ledgers):
    """The figures of the matrix, and whether source and projection are equal."""
    trouble = []
    for kind, ledger in ledgers.items():
        figures, differences = ledger.take()
        for name, value in vars(figures).items():
            report.line(f"{kind}, {name}", value, "events")
        report.line(f"{kind}, projections that are not their source", len(differences), "projections")
        trouble += differences
        if figures.wrong():
            trouble.append(f"{kind}: {figures.wrong()}")
    return trouble
