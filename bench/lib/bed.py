"""What the benches share: the figures they print, a private server with a database `bench` in it, the counting server,
and the worker of bench/drain.cc."""

import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

import harness
from harness import Failure, say, wait_until

# Standard output is for figures only. What this process and its children print there goes to standard error.
FIGURES = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
sys.stdout = sys.stderr

PROGRAMS = harness.build_directory() / "bench"
PATIENCE = 1800  # s, a time-out that a slow machine does not reach
DATABASE = "bench"
TOPIC = "catalog.video.events"


class Incomplete(Failure):
    """Something could not be measured. The figures that there are count."""


class Report:
    """Prints figures of one bench, and what they are compared with."""

    def __init__(self, bench):
        self.bench = bench
        self.figures = []

    def line(self, case, value, unit, ratio=None, ratio_to=None, target=None, of_others=False):
        """`target` is of the ratio if there is one ('>= 0.9'), of the value if it has a unit ('<= 2 ms'). This is the one place that
        has it: the ledger and docs/performance.md repeat it. A figure `of_others` is not compared with older ones."""
        digits = 0 if abs(value) >= 1000 else 4
        figure = {"bench": self.bench, "case": case, "value": round(value, digits) if digits else round(value), "unit": unit,
                  "ratio": None if ratio is None else round(ratio, 4), "ratio_to": ratio_to}
        FIGURES.write(json.dumps(figure) + "\n")
        self.figures.append({**figure, "target": target, "of_others": of_others})
        shown = "" if ratio is None else f", {ratio:.3g} of {ratio_to}"
        say(f"  {self.bench} {case}: {value:,.4g} {unit}{shown}{f'   (target {target})' if target else ''}")

    def against(self, case, values, unit, others, ratio_to, target):
        """The figure of several rounds: the median, and the median of the ratios of the rounds."""
        ratios = [value / other for value, other in zip(values, others)]
        self.line(case, median(values), unit, median(ratios), ratio_to, target)


# A server that writes to disk as in production. A smoke run only checks that there are figures: its few events are several
# chunks, since the first chunk of a drain does not count.
MEASURED = {"jit": "on", "fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "4GB"}
SMALL = {"postbox.read_chunk_size": "500", "postbox.claim_batch_size": "100"}


SCHEMAS = """
    CREATE SCHEMA app;
    CREATE SCHEMA bench;
    CREATE FUNCTION bench.drain(publication text, mode text) RETURNS int
        LANGUAGE C AS 'postbox_bench', 'bench_drain';
    CREATE FUNCTION bench.begin_usage() RETURNS void LANGUAGE C AS 'postbox_bench', 'bench_begin_usage';
    CREATE FUNCTION bench.end_usage() RETURNS bigint[] LANGUAGE C AS 'postbox_bench', 'bench_end_usage';
    CREATE TABLE bench.result (publication text, mode text, events bigint, measured_events bigint,
        seconds float8, chunks bigint, bytes bigint, private_kb bigint, peak_kb bigint, buffers bigint, own_wal bigint)"""
handed_on = None  # the Bed of a smoke run of several benches: to start a server takes longer than most of them


@contextlib.contextmanager
def handing_on():
    """The benches within this use one server, one after the other."""
    global handed_on  # pylint: disable=global-statement
    with Bed(smoke=True) as handed_on:
        yield
    handed_on = None


@contextlib.contextmanager
def opened(smoke, **settings):
    """The Bed of one bench."""
    if not handed_on:
        with Bed(smoke, **settings) as server:
            yield server
        return
    handed_on.cluster.set(**settings)
    yield handed_on
    handed_on.hand_on()


class Bed(harness.Testbed):
    def __init__(self, smoke, **settings):
        self.smoke = smoke
        settings = {name.replace("__", "."): str(value) for name, value in settings.items()}
        super().__init__(settings={
            "postbox.publishers": "0", "autovacuum": "off", "postbox.maintenance_interval": "3600s",
            "dynamic_library_path": f"$libdir:{PROGRAMS}",
            **(SMALL if smoke else MEASURED), **settings})
        with self._closing_on_error():
            self.cluster.create_database(DATABASE)
            self.watch = self.session(DATABASE)
            if smoke:  # any statement of several that fails is a failure
                self.watch.sql("\\set ON_ERROR_STOP on\nSELECT")
            self.sql(SCHEMAS)
        self._publications = 0
        self._configuration = (self.cluster.directory / "data/postgresql.conf").read_text()

    def hand_on(self):
        """Leaves to the next bench what this one has found."""
        (self.cluster.directory / "data/postgresql.conf").write_text(self._configuration)
        self.cluster.set()
        wait_until("the worker has left", lambda: self.worker_pid() is None)
        self.sql(f"DROP SCHEMA app, bench CASCADE; ALTER DATABASE {DATABASE} RESET ALL;" + SCHEMAS)

    @contextlib.contextmanager
    def _closing_on_error(self):
        try:
            yield
        except BaseException:
            self.close(failed=True)
            raise

    def sql(self, text):
        """A smoke run asks in one session: to connect takes longer than its small statements."""
        if self.smoke:
            return self.watch.sql(text)
        return self.cluster.sql(DATABASE, text, timeout=PATIENCE)

    def number(self, text):
        return int(self.sql(text)[0][0])

    def outbox(self, name, kind="log"):
        self.sql(f"SELECT postbox.create_outbox('{name}', '{kind}')")
        return name

    def insert_by_hand(self, outbox):
        """Lets a plain INSERT into a log cost what it costs into a table of one's own: its trigger is disabled."""
        self.sql(f"""DO $$ DECLARE part regclass; BEGIN FOR part IN SELECT p.part FROM postbox.generation_partitions('{outbox}') p LOOP
            EXECUTE format('ALTER TABLE %s DISABLE TRIGGER postbox_stamp', part); END LOOP; END $$""")

    def publication(self, outbox, **options):
        """A new publication of the outbox, which begins with its first event."""
        self._publications += 1
        name = f"p{self._publications}"
        more = "".join(f", {option} => '{value}'" for option, value in options.items())
        self.sql(f"SELECT postbox.create_publication('{name}', '{outbox}', '{TOPIC}'{more})")
        return name

    def drop_publication(self, name):
        self.sql(f"SELECT postbox.drop_publication('{name}')")

    def load(self, outbox, count, key="'v_' || n", step=100_000, run=None):
        """
        Appends events with ids that grow as UUIDv7 do, in transactions of `step` events. `key` is SQL for the aggregate id of event n.
        `run`: what runs it, if not a session of its own.
        """
        moment = int(time.time() * 1000) - count // 4096 - 1
        (run or self.sql)(f"""
            DO $$
            BEGIN
                FOR begin_at IN 1..{count} BY {step} LOOP
                    INSERT INTO {outbox} (id, aggregate_type, aggregate_id, event_type, version, payload)
                    SELECT (lpad(to_hex({moment} + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' ||
                            substr(md5(n::text), 1, 15))::uuid, 'video', {key}, 'video.updated', n,
                           convert_to('{{"title": "a title of moderate length", "video_id": "v_' || n || '"}}', 'UTF8')
                    FROM generate_series(begin_at::bigint, least(begin_at + {step} - 1, {count})) AS n;
                    COMMIT;
                END LOOP;
            END $$""")

    def settle_down(self):
        """After loading: no hint bits to set, nothing to write back."""
        self.sql("VACUUM (ANALYZE) bench.result" if self.smoke else "VACUUM (ANALYZE)")
        self.sql("CHECKPOINT")

    def drain(self, publication, mode="drain"):
        """One run of bench/drain.cc in one of its modes; returns its row of bench.result as a dictionary."""
        self.sql("TRUNCATE bench.result")
        before = self.wal_position()
        columns = "events, measured_events, seconds, chunks, bytes, private_kb, peak_kb, buffers, own_wal"
        pid = self.watch.sql(f"SELECT bench.drain('{publication}', '{mode}')")[0][0]
        with profile(self, pid, f"{mode}-{publication}"):
            # No session polls in the meantime: its snapshots would cost something.
            wait_until(f"{mode} of {publication} has ended", lambda: not os.path.exists(f"/proc/{pid}"), PATIENCE)
        rows = self.watch.sql(f"SELECT {columns} FROM bench.result")
        if not rows:
            raise Failure(f"{mode} of {publication} left no result")
        result = dict(zip(columns.split(", "), map(float, rows[0])))
        result["wal"] = self.wal_position() - before
        result["rate"] = result["measured_events"] / max(result["seconds"], 1e-9)
        say(f"    {mode} {publication}: {result['events']:,.0f} events, {result['rate']:,.0f}/s, "
            f"{result['private_kb'] / 1024:.0f} MiB")
        return result

    def wal_position(self):
        return int(self.watch.sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])

    def wal_of(self, text):
        """Bytes of WAL that these statements write."""
        before = self.wal_position()
        self.sql(text)
        return self.wal_position() - before

    def pending(self, publication, which="pending"):
        """How many events are not published. `which` is the column of postbox.publication_status: pending, ready, or parked."""
        return int(self.watch.sql(f"SELECT {which} FROM postbox.publication_status WHERE publication = '{publication}'")[0][0])

    def pgbench(self, files, clients, *arguments, seconds=0, transactions=0, may_fail=False):
        """Runs scripts for so many seconds, or so many transactions of each client; returns transactions per second, or 0 if it failed
        and `may_fail` is set."""
        done = self.cluster.run(
            "pgbench", "-n", "-c", clients, "-j", 2, *(("-T", seconds) if seconds else ("-t", transactions)), *(part for file in files for part in ("-f", file)),
            *arguments, DATABASE, database=DATABASE, timeout=seconds + PATIENCE)
        found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
        if done.returncode == 0 and found and "aborted" not in done.stderr:
            return float(found.group(1))
        if may_fail:
            return 0.0
        raise Failure(f"pgbench failed:\n{done.stdout}{done.stderr}")

    def counting_server(self, record=None, round_trip=0):
        return CountingServer(self, record, round_trip)

    def worker_pid(self):
        rows = self.watch.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'postbox publisher'")
        return int(rows[0][0]) if rows else None


def program(name):
    return PROGRAMS / name


class CountingServer:
    """bench/counting_server.cc"""

    def __init__(self, testbed, record=None, round_trip=0):
        self._start(testbed, "counting_server", *(["--record", record] if record else []), "--round-trip", round_trip)

    def _start(self, testbed, name, *arguments):
        self._lock = threading.Lock()
        self._counts = (0, 0, 0, 0)
        self.address = None
        self.process = testbed.start(name, [program(name), *arguments], on_line=self._line)
        wait_until(f"{name} is ready", lambda: self.address)

    def _line(self, line):
        with self._lock:
            if "listening on " in line:
                self.address = line.rpartition(" ")[2]
            else:
                self._counts = tuple(map(int, line.split()))

    @property
    def endpoint(self):
        return f"http://{self.address}"

    @property
    def requests(self):
        with self._lock:
            return self._counts[0]

    @property
    def messages(self):
        with self._lock:
            return self._counts[1]

    @property
    def seconds(self):
        """From the first request to the last."""
        with self._lock:
            return (self._counts[3] - self._counts[2]) / 1e6

    @property
    def last_arrival(self):
        """Seconds since 1970."""
        with self._lock:
            return self._counts[3] / 1e6

    @property
    def connections(self):
        """To it, now."""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        sockets = pathlib.Path("/proc/net/tcp").read_text().splitlines() + pathlib.Path("/proc/net/tcp6").read_text().splitlines()
        return sum(fields[1].endswith(port) and fields[3] == "01" for fields in map(str.split, sockets))

    def wait_for(self, messages, timeout=PATIENCE):
        wait_until(f"{messages} messages have come", lambda: self.messages >= messages, timeout, 0.02)

    def stop(self):
        self.process.stop()


class PullServer(CountingServer):
    """bench/pull_server.cc. Its requests are the messages that were sent, and its messages those that were acked."""

    def __init__(self, testbed, messages, keys, round_trip):
        self._start(testbed, "pull_server", messages, keys, "--round-trip", round_trip)


class PeakMemory:
    """The most memory (without shared_buffers) of a process, in MiB, sampled ten times a second; `own` is that part of it which
    is not of files: the code of programs and libraries, which all processes share."""

    def __init__(self, pid):
        self.mebibytes = self.own = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self):
        while True:
            with contextlib.suppress(OSError), open(f"/proc/{self._pid}/status", encoding="ascii", errors="replace") as status:
                fields = dict(line.split(":", 1) for line in status if ":" in line)
                own, of_files = (int(fields.get(name, "0").split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
                self.mebibytes, self.own = max(self.mebibytes, own + of_files), max(self.own, own)
            if self._ended.wait(0.1):
                return

    def stop(self):
        self._ended.set()
        self._thread.join()
        return self.mebibytes


@contextlib.contextmanager
def profile(testbed, pid, name):
    """With POSTBOX_BENCH_PROFILE=DIRECTORY, perf records what this process does, into NAME.data in it."""
    directory = os.environ.get("POSTBOX_BENCH_PROFILE")
    if not directory:
        yield
        return
    perf = testbed.start("perf", ["perf", "record", "-q", "-F", "1999", "-e", "cpu-clock", "-g", "-p", pid,
                                  "-o", os.path.join(directory, f"{name}.data")])
    try:
        yield
    finally:
        perf.stop(signal.SIGINT)


def bare_publish(server, messages, group, in_flight, channels=2, keys=0):
    """bench/bare_publish.cc against a counting server; returns the lines it printed."""
    done = subprocess.run([str(program("bare_publish")), server.address, str(messages), f"{group:.4f}", str(in_flight),
                           str(channels), str(keys)], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise Failure(f"bare_publish: {done.stderr}")
    server.wait_for(messages)
    return done.stdout.split()


def median(values):
    return statistics.median(values)


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
