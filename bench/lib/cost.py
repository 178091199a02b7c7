"""What an event costs in processor time: emitting, publishing and applying it, in each process that takes part; and the same of PgQ
and of a loop with SKIP LOCKED, in Go, as services write it by hand."""

import os
import pathlib
import shutil
import subprocess

import bed
import harness
import libpq
import processes
from applying import KEYS
from harness import ROOT, Failure, say, wait_until

STEP = 1_000  # events of a transaction that writes a backlog
BATCHES = (200, 2_000)  # rows of a claim of the loop
PACKAGES = ("golang-go", "golang-github-lib-pq-dev", "golang-google-grpc-dev", "golang-google-genproto-dev", "postgresql-{major}-pgq3")
PAYLOAD = '{"title": "a title of moderate length", "video_id": "v_1"}'


def cost(report, smoke):
    events = 1_000 if smoke else 200_000
    with bed.opened(smoke, postbox__publishers=0, postbox__endpoint="http://127.0.0.1:1") as server:
        server.outbox("app.emitted")
        emit(report, server, "Postbox", events, POSTBOX)
        publish(report, server, events)
        apply(report, server, events)
        if smoke:
            say("cost: the loop in Go and PgQ are left out of a smoke run")
            return
        install(server)
        by_hand(report, server, events)
        pgq(report, server, events)


class Used:
    """Processor time of processes since it was made; `begun` = 0: since they began."""

    def __init__(self, begun=None, **pids):
        self._pids = pids
        self._before = {name: processes.cpu_seconds(pid) if begun is None else begun for name, pid in pids.items()}

    def report(self, report, what, events):
        """A line for each process, and one for all but the receiving or sending server."""
        used = {name: processes.cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}
        for name, seconds in used.items():
            report.line(f"{what}: {name}", 1e6 * seconds / events, "us/event")
        report.line(f"{what}: all but the server", 1e6 * sum(seconds for name, seconds in used.items() if name != "server") / events, "us/event")


# Statements that store event n; a session runs them one by one, each in a transaction of its own.
POSTBOX = ("SELECT postbox.outbox_emit('video', 'v_' || {n} % 1000, 'video.updated', '" + PAYLOAD + "'::jsonb, version => {n} + 1, outbox => 'app.emitted')")
BY_HAND = ("INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES "
           "(gen_random_uuid(), 'video', 'v_' || {n} % 1000, 'video.updated', {n} + 1, '" + PAYLOAD + "')")
PGQ = "SELECT pgq.insert_event('videos', 'video.updated', '" + PAYLOAD + "', 'v_' || {n} % 1000, 'video', '{n}', NULL)"


def emit(report, server, name, events, statement):
    """The backend's share, above that of a transaction that does nothing."""
    count = min(events, 50_000)
    session, pid = connected(server)
    session.run("SET synchronous_commit = off")
    empty = backend_seconds(session, pid, "SELECT {n}", count)
    used = backend_seconds(session, pid, statement, count)
    session.close()
    report.line(f"emit, {name}: backend", 1e6 * (used - empty) / count, "us/event")


def connected(server):
    session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
    session.run("SET application_name = 'cost'")
    return session, server.number("SELECT pid FROM pg_stat_activity WHERE application_name = 'cost'")


def backend_seconds(session, pid, statement, count):
    before = processes.cpu_seconds(pid)
    for number in range(count):
        session.run(statement.replace("{n}", str(number)))
    return processes.cpu_seconds(pid) - before


def publish(report, server, events):
    """A backlog of 1,000 keys; the worker reads, sends and settles it."""
    server.outbox("app.outbox")
    server.load("app.outbox", events, "'v_' || n % 1000", STEP)
    server.settle_down()
    counting = server.counting_server()
    server.cluster.set(postbox__endpoint=counting.endpoint, postbox__publishers=1)
    pid = wait_until("the worker runs", server.worker_pid)
    used = Used(worker=pid, server=counting.process.pid)
    publication = server.publication("app.outbox")
    counting.wait_for(events)
    wait_until("all is confirmed", lambda: server.pending(publication) == 0, bed.PATIENCE)
    used.report(report, "publish, Postbox", events)
    server.sql("SELECT postbox.drop_outbox('app.outbox')")
    server.cluster.set(postbox__publishers=0)
    wait_until("the worker has left", lambda: server.worker_pid() is None)
    counting.stop()


def apply(report, server, events):
    """What the puller takes, and its session, from 1,000 keys into a projection."""
    server.sql("""
        CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
        SELECT postbox.create_inbox('app.inbox');
        SELECT postbox.create_projection('app.inbox', ARRAY['video.updated'], 'app.video');
        SELECT postbox.create_subscription('cost', 'app.inbox', 'catalog.video.events.bench-reader');
    """)
    service = bed.PullServer(server, events, KEYS, 0)
    puller = server.puller(bed.DATABASE, verbose=False, endpoint=service.endpoint, arguments=("--subscription", "cost"))
    service.wait_for(events)
    used = Used(0, puller=puller.process.pid, server=service.process.pid, **sessions(server, 'postbox pull%'))
    used.report(report, "apply, Postbox", events)
    puller.stop()
    service.stop()
    server.sql("SELECT postbox.drop_subscription('cost'), postbox.drop_inbox('app.inbox'); DROP TABLE app.video")


def install(server):
    """What only the others need."""
    major = server.number("SHOW server_version_num") // 10000
    wanted = [name.format(major=major) for name in PACKAGES]
    missing = [name for name in wanted if subprocess.run(["dpkg-query", "-W", name], capture_output=True, check=False).returncode != 0]
    if missing:
        say(f"installing {' '.join(missing)}")
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], check=True, stdout=subprocess.DEVNULL)


TABLE = """
    DROP TABLE IF EXISTS app.outbox;
    CREATE TABLE app.outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
        version bigint NOT NULL, schema_version int NOT NULL DEFAULT 1, payload bytea NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now(),
        published_at timestamptz, publish_attempts int NOT NULL DEFAULT 0, next_retry_at timestamptz, lock_token text, locked_at timestamptz);
    CREATE INDEX ON app.outbox (published_at) WHERE published_at IS NULL;
    CREATE INDEX ON app.outbox (next_retry_at) WHERE published_at IS NULL;
    CREATE INDEX ON app.outbox (occurred_at, id) WHERE published_at IS NULL"""


def by_hand(report, server, events):
    """bench/others/skip_locked.go, which claims as many rows at once as such loops do, and ten times as many."""
    program = server.directory / "skip_locked"
    subprocess.run(["go", "build", "-o", program, ROOT / "bench/others/skip_locked.go"], check=True,
                   env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(server.directory / "go"), "GOFLAGS": ""})
    server.sql(TABLE)
    emit(report, server, "SKIP LOCKED", events, BY_HAND)
    for batch in BATCHES:
        server.sql(TABLE)
        server.load("app.outbox", events, "'v_' || n % 1000", STEP)
        server.settle_down()
        counting = server.counting_server()
        loop = server.start("skip_locked", [program, server.cluster.dsn(bed.DATABASE) + " application_name=by_hand sslmode=disable", counting.address, batch])
        # All that these processes ever use: they begin with the loop.
        counting.wait_for(events)
        wait_until("all rows are marked", lambda: server.number("SELECT count(*) FROM app.outbox WHERE published_at IS NULL") == 0, bed.PATIENCE)
        used = Used(0, loop=loop.pid, server=counting.process.pid, **sessions(server, "by_hand"))
        used.report(report, f"publish, SKIP LOCKED, {batch:,} a claim", events)
        loop.stop()
        counting.stop()


def pgq(report, server, events):
    """Storing events, and reading them in batches. PgQ sends nothing to Pub/Sub, so what publishes them comes on top."""
    stage_extension("pgq")
    server.sql("CREATE EXTENSION pgq; SELECT pgq.create_queue('videos'); SELECT pgq.register_consumer('videos', 'cost')")
    emit(report, server, "PgQ", events, PGQ)
    server.sql("SELECT pgq.unregister_consumer('videos', 'cost'), pgq.force_tick('videos'), pgq.ticker()")
    server.sql("SELECT pgq.register_consumer('videos', 'cost')")
    for begin in range(0, events, STEP):
        server.watch.sql(f"SELECT count({PGQ.removeprefix('SELECT ').replace('{n}', 'n')}) FROM generate_series({begin}, {begin + STEP - 1}) AS n".replace("'n'", "n::text"))
        server.watch.sql("SELECT pgq.force_tick('videos')")
        server.watch.sql("SELECT pgq.ticker()")
    session, pid = connected(server)
    read, before = 0, processes.cpu_seconds(pid)
    while batch := session.value("SELECT pgq.next_batch('videos', 'cost')"):
        read += session.rows(f"SELECT * FROM pgq.get_batch_events({batch})")
        session.run(f"SELECT pgq.finish_batch({batch})")
    used = processes.cpu_seconds(pid) - before
    session.close()
    if read < events:
        raise Failure(f"PgQ has given {read} of {events} events")
    report.line("read, PgQ: backend", 1e6 * used / read, "us/event")


def sessions(server, name):
    """The processes of the sessions of this name."""
    rows = server.watch.sql(f"SELECT pid FROM pg_stat_activity WHERE application_name LIKE '{name}' AND backend_type = 'client backend'")
    return {f"backend {number}": int(pid) for number, (pid,) in enumerate(rows, 1)}


def stage_extension(name):
    """Copies an extension of the distribution into the private installation."""
    stage = harness.build_directory() / "stage"
    for kind, folder, pattern in (("--sharedir", "extension", f"{name}*"), ("--pkglibdir", "", f"{name}*.so")):
        found = subprocess.run(["pg_config", kind], check=True, capture_output=True, text=True).stdout.strip()
        for file in (pathlib.Path(found) / folder).glob(pattern):
            shutil.copy(file, f"{stage}{file}")
