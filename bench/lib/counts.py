"""What an event costs of what can be counted, whatever else the machine does: instructions, allocations, buffers, entries of
indexes, bytes of WAL. The server runs under callgrind, which counts from BeginUsage to EndUsage (bench/usage.h)."""

import contextlib
import os
import pathlib
import shutil
import tempfile

import bed
import callgrind
import libpq
from harness import say, stage_programs, wait_until

# Nothing that is done for the time that has passed: the server is slow here, and slower on a busy machine, so a second of its own
# is a minute. No page is written whole after a checkpoint, and nothing waits for a disk. All else is as in production.
SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "jit": "off", "checkpoint_timeout": "1h",
            "postbox__checkpoint_interval": "60s", "postbox__time_scale": 6000}
CHUNK = 2_000  # postbox.read_chunk_size
ALLOCATIONS = {
    "malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc",
    "palloc", "palloc0", "palloc_extended", "repalloc", "MemoryContextAlloc", "MemoryContextAllocZero",
    "MemoryContextAllocZeroAligned", "MemoryContextAllocExtended"}
MODULES = ("postbox.so", "postbox_bench.so")  # the latter holds the code of the publisher worker
KEYS = 100
TRANSACTION = 100  # events
PAYLOAD = '{"title": "a title of moderate length", "video_id": "v_1"}'
EMIT = "SELECT postbox.outbox_emit('{type}', 'v_' || $1::int % {keys}, 'video.updated', $2::jsonb, version => {version}, outbox => '{outbox}')"
APPLY = ("SELECT postbox.inbox_apply('app.inbox', 'one-' || $1, 'video.updated', 'video', 'v_' || $1::int % {keys}, $1::bigint, $2::text)")
APPLY_BATCH = """
    SELECT postbox.inbox_apply_batch('app.inbox', ARRAY(
        SELECT ROW('many-' || n, 'video.updated', 'video', 'w_' || n % {keys}, n, convert_to($2, 'UTF8'), NULL, NULL)::postbox.event
        FROM generate_series($1::bigint, $1::bigint + {batch} - 1) AS n))"""


def counts(report, _smoke):
    with under_callgrind() as profiles, bed.Bed(False, **SETTINGS) as server:
        measure = Measure(report, server, profiles)
        read(measure, server)
        emit(measure, server)
        emit_changes(measure, server)
        apply(measure, server)


def read(measure, server):
    """A chunk that is not counted, and four that are."""
    in_flight = "read a table with rows in flight"
    for case, kind, chunk, keys, mode in (("read a log", "log", CHUNK, KEYS, "drain"), ("read a table", "table", 500, KEYS, "drain"),
                                          (in_flight, "table", 500, 5 * 500, "flight")):
        outbox = server.outbox(f"app.{kind}", kind)
        server.load(outbox, 5 * chunk, f"'v_' || n % {keys}")
        server.settle_down()
        with measure.of_process(case) as counted:
            result = server.drain(server.publication(outbox), mode)
            counted.events, counted.all_events = result["measured_events"], result["events"]
            counted.buffers, counted.wal = result["buffers"], result["own_wal"]
        server.sql(f"SELECT postbox.drop_outbox('{outbox}')")


def emit(measure, server):
    outbox = server.outbox("app.outbox")
    for case, kind, version in (("emit", "video", "$1::bigint"), ("emit, version counted", "counted", "NULL")):
        statement = EMIT.format(type=kind, keys=KEYS, version=version, outbox=outbox)
        measure.of_session(case, 200, 1_000, one_by_one(statement))


def emit_changes(measure, server):
    server.sql("""
        CREATE TABLE app.item (id bigint PRIMARY KEY, title text NOT NULL, amount numeric NOT NULL, changed timestamptz NOT NULL);
        SELECT postbox.create_change_triggers('app.item', outbox => 'app.outbox')""")
    measure.of_session("emit_changes of a COPY", 200, 2_000, copy(server))


def apply(measure, server):
    server.sql("""
        CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
        SELECT postbox.create_inbox('app.inbox');
        SELECT postbox.create_projection('app.inbox', ARRAY['video.updated'], 'app.video')""")
    measure.of_session("apply", 200, 1_000, one_by_one(APPLY.format(keys=KEYS)))
    measure.of_session("apply a batch", 200, 1_000, batches(APPLY_BATCH.format(keys=KEYS, batch=TRANSACTION)))


def one_by_one(statement):
    """A prepared statement for each event."""
    def step(session, numbers):
        for number in numbers:
            if number % TRANSACTION == 0:
                session.run("BEGIN")
            session.run_prepared(statement, number, PAYLOAD)
            if number % TRANSACTION == TRANSACTION - 1:
                session.run("COMMIT")
    return step


def batches(statement):
    def step(session, numbers):
        for number in numbers[::TRANSACTION]:
            session.run_prepared(statement, number, PAYLOAD)
    return step


def copy(server):
    def step(session, numbers):
        file = server.cluster.directory / f"data/items-{numbers[0]}"
        server.sql(f"COPY (SELECT n, 'a title of moderate length ' || n, n * 1.25, now() FROM generate_series({numbers[0]}, {numbers[-1]}) AS n) "
                   f"TO '{file}'")
        session.run(f"COPY app.item FROM '{file}'")
    return step


@contextlib.contextmanager
def under_callgrind():
    """Servers that are started meanwhile run under it. Gives the directory of its profiles, each of which is named after a process."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="postbox.", dir=os.environ.get("POSTBOX_TMPDIR", "/tmp")))
    directory.chmod(0o777)
    program = directory / "postgres"
    program.write_text(
        "#!/bin/sh\nexec valgrind --tool=callgrind --instr-atstart=no --dump-line=no "
        f"--callgrind-out-file='{directory}/%p' --log-file='{directory}/log.%p' '{stage_programs()[0] / 'postgres'}' \"$@\"\n")
    program.chmod(0o755)
    os.environ["POSTBOX_SERVER_PROGRAM"] = str(program)
    try:
        yield directory
    finally:
        del os.environ["POSTBOX_SERVER_PROGRAM"]
        keep = os.environ.get("POSTBOX_BENCH_PROFILE")
        if keep:
            shutil.copytree(directory, keep, dirs_exist_ok=True)
        shutil.rmtree(directory)


class Counted:
    events = all_events = buffers = wal = 0  # all_events: with those before the stretch that is counted


class Measure:
    def __init__(self, report, server, profiles):
        self._report = report
        self._server = server
        self._profiles = profiles

    @contextlib.contextmanager
    def of_process(self, case):
        """Reports what a process counts that begins and ends within this."""
        before, there = self._index_entries(), set(self._profiles.iterdir())
        counted = Counted()
        yield counted
        entries = self._index_entries() - before
        profile = self._profile(there)
        own = sum(profile.instructions_of("/" + module) for module in MODULES)
        for what, unit, count, events in (
                ("instructions", "instructions", profile.instructions, counted.events),
                ("instructions of Postbox", "instructions", own, counted.events),
                ("allocations", "allocations", profile.calls_of(ALLOCATIONS), counted.events),
                ("buffers", "buffers", counted.buffers, counted.events),
                ("WAL", "bytes", counted.wal, counted.events),
                ("index entries", "entries", entries, counted.all_events)):
            self._report.line(f"{case}: {what}", count / events, f"{unit}/event")

    def of_session(self, case, warm_up, events, step):
        """`step` does something with a session for each of a range of numbers."""
        with self.of_process(case) as counted:
            session = libpq.Connection(self._server.cluster.dsn(bed.DATABASE))
            step(session, range(1_000_000, 1_000_000 + warm_up))
            session.run("SELECT bench.begin_usage()")
            step(session, range(2_000_000, 2_000_000 + events))
            counted.buffers, counted.wal = map(int, session.value("SELECT array_to_string(bench.end_usage(), ' ')").split())
            counted.events, counted.all_events = events, warm_up + events
            pid = session.pid
            session.close()
            wait_until("the session has ended", lambda: not os.path.exists(f"/proc/{pid}"))

    def _index_entries(self):
        self._server.watch.sql("SELECT pg_stat_force_next_flush()")
        return int(self._server.watch.sql("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes")[0][0])

    def _profile(self, there):
        """That of the one process that has counted; the others have counted nothing."""
        profiles = [callgrind.Profile(file.read_text()) for file in set(self._profiles.iterdir()) - there if file.name.isdigit()]
        counted = [profile for profile in profiles if profile.instructions]
        if len(counted) != 1:
            raise bed.Failure(f"{len(counted)} processes have counted instructions, instead of one")
        return counted[0]
