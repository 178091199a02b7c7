"""A healthy owner's publication while the same worker of the same database has another owner's hostile one, compared with
the same load without it: draining a backlog; publishing what is emitted below saturation, and how late it comes."""

import contextlib
import time
import uuid

import bed
import libpq
from bed import median, percentile
from harness import Failure, say, wait_until

HEALTHY = "app.healthy"
WAIT = 5  # s: an event that comes later counts as this late


class Sizes:
    def __init__(self, smoke):
        # More than a worker publishes in `seconds`; of a smoke run, so little that it is soon over.
        self.backlog, self.behind, self.refused = (1_000, 1_000, 200) if smoke else (4_000_000, 200_000, 20_000)
        self.seconds, self.patience, self.rounds = (2, 10, 1) if smoke else (10, 60, 3)
        self.offered = 1 if smoke else 10  # s
        self.rate = 30 if smoke else 500  # transactions/s offered, with one event each
        self.clients = 1 if smoke else 2
        self.quiet = 0.1 if smoke else 0.5  # s without an arrival
        self.pause = 0.05 if smoke else 0.005  # s between the events whose latency is taken


def neighbours(report, smoke):
    sizes = Sizes(smoke)
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        server.impatient = libpq.Connection(server.cluster.dsn(bed.DATABASE))
        server.impatient.run("SET lock_timeout = '300ms'")
        server.outbox(HEALTHY)
        server.load(HEALTHY, sizes.backlog, "'v_' || n % 1000")
        server.sql("CREATE SCHEMA hostile")
        server.settle_down()
        first = measure(server, contextlib.nullcontext, sizes) if smoke else None  # one for all attacks
        names = list(ATTACKS)
        for pair in zip(names[::2], names[1::2]):
            say(f"neighbours, {' and '.join(pair)}: {sizes.rounds} rounds")
            plain, hostile = [], {name: [] for name in pair}
            for number in range(sizes.rounds):
                # Two attacks share the run between them.
                for name in (pair[number % 2], None, pair[1 - number % 2]):
                    if name is None:
                        plain.append(first or measure(server, contextlib.nullcontext, sizes))
                        continue
                    attack = ATTACKS[name]
                    hostile[name].append(measure(server, lambda attack=attack: under_attack(server, attack, sizes), sizes))
            for name in pair:
                tell(report, name, plain, hostile[name])


def tell(report, name, plain, hostile):
    for what, unit, target in (("drain", "events/s", ">= 0.8"), ("load", "events/s", ">= 0.8"), ("p50", "ms", "<= 1.25"), ("p99", "ms", None)):
        without = [run[what] for run in plain]
        reference = f"{what} without: {name}"
        report.line(reference, median(without), unit)
        report.against(f"{what}: {name}", [run[what] for run in hostile], unit, without, reference, target)


def measure(server, condition, sizes):
    """One round: {'drain': events/s, 'load': events/s that arrived while they were offered, 'p50', 'p99': ms from COMMIT}."""
    record = server.directory / "arrivals"
    counting = server.counting_server(record)
    server.cluster.set(postbox__endpoint=counting.endpoint)
    wait_until("the worker runs", server.worker_pid)
    with condition():
        result = {"drain": drain(server, counting, sizes)}
        result.update(offered_load(server, counting, record, sizes))
    counting.stop()
    say(f"    {', '.join(f'{what} {value:,.4g}' for what, value in result.items())}")
    return result


def drain(server, counting, sizes):
    """Events/s of a backlog that arrive from the moment on at which the publication is made."""
    begun, before = time.time(), counting.messages
    publication = server.publication(HEALTHY)
    while time.time() < begun + sizes.seconds and counting.messages - before < sizes.backlog:
        time.sleep(0.01)
    rate = (counting.messages - before) / (time.time() - begun)
    drop(server, publication)
    # What is on its way belongs to this figure, and the worker waits for it when the endpoint changes.
    wait_until("nothing more comes", lambda: time.time() > counting.last_arrival + sizes.quiet, bed.PATIENCE, 0.1)
    return rate


def offered_load(server, counting, record, sizes):
    """pgbench emits at a fixed rate; one session commits an event at a time beside it and waits until that has come."""
    outbox = server.outbox("app.offered")
    publication = server.publication(outbox)
    script = server.directory / "offered.sql"
    script.write_text(
        "\\set key random(1, 1000)\n"
        f"SELECT postbox.outbox_emit('video', 'v_' || :key, 'video.updated', '{{\"title\": \"a title\"}}'::jsonb, version => 1, outbox => '{outbox}');\n")
    before = counting.messages
    load = start_pgbench(server, script, sizes.rate, sizes.offered, sizes.clients)
    late = latencies(server, outbox, record, time.time() + sizes.offered, sizes.pause)
    # The server tells its counts ten times a second: they may lag behind what has come.
    arrived = max(counting.messages - before, sum(one < 1000 * WAIT for one in late))
    load.wait(sizes.patience)
    drop(server, publication)
    server.sql(f"SELECT postbox.drop_outbox('{outbox}')")
    return {"load": arrived / sizes.offered, "p50": percentile(late, 0.5), "p99": percentile(late, 0.99)}


def latencies(server, outbox, record, end, pause, version=1):
    """Milliseconds from sending an event's COMMIT to its arrival. `version` NULL counts, as a table needs it."""
    late = []
    session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
    with open(record, encoding="utf-8") as arrivals:
        arrivals.seek(0, 2)
        while time.time() < end or not late:
            event = str(uuid.uuid4())
            sent = time.time()
            session.run(f"SELECT postbox.outbox_emit('video', 'sample', 'video.updated', '{{}}'::jsonb, version => {version}, event_id => '{event}', outbox => '{outbox}')")
            late.append(1000 * min(WAIT, arrival(arrivals, event, sent) - sent))
            time.sleep(pause)
    session.close()
    return late


def arrival(arrivals, event, sent):
    """When the event came, in seconds since 1970; `sent + WAIT` if it has not by then."""
    line = ""
    while time.time() < sent + WAIT:
        line += arrivals.readline()
        if not line.endswith("\n"):
            time.sleep(0.0005)
            continue
        moment, _, came = line.rstrip("\n").split("\t")
        if came == event:
            return int(moment) / 1e6
        line = ""
    return sent + WAIT


# Attacks.

@contextlib.contextmanager
def under_attack(server, attack, sizes):
    """Ends with all of it gone, also where the worker is stuck in it."""
    with attack(server, sizes):
        yield
    wait_until("the hostile publication is dropped", lambda: try_drop(server), bed.PATIENCE, 0.2)


def try_drop(server):
    """The worker may be in the middle of the trigger: what it does is cancelled."""
    server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'postbox publisher'")
    return impatient(server, "SELECT postbox.drop_outbox(relation) FROM postbox.outbox WHERE relation::text LIKE 'hostile.%'") is None


def drop(server, publication):
    def dropped():
        failure = impatient(server, f"SELECT postbox.drop_publication('{publication}')")
        return failure is None or "does not exist" in failure

    wait_until(f"{publication} is dropped", dropped, bed.PATIENCE, 0.1)


def impatient(server, statement):
    """Runs a statement that does not wait long for locks; returns why it has failed, or nothing."""
    try:
        server.impatient.run(statement)
    except Failure as failure:
        return str(failure)
    return None


def hostile(server, kind, topic, count, key="'h_' || n"):
    outbox = server.outbox("hostile.outbox", kind)
    server.load(outbox, count, key)
    server.sql(f"SELECT postbox.create_publication('hostile', '{outbox}', '{topic}', max_attempts => 1)")
    return outbox


@contextlib.contextmanager
def sleeping(server, _sizes):
    server.sql("CREATE OR REPLACE FUNCTION hostile.sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1e6); RETURN new; END'")
    outbox = server.outbox("hostile.outbox", "table")
    server.sql(f"CREATE TRIGGER sleep BEFORE UPDATE ON {outbox} FOR EACH ROW EXECUTE FUNCTION hostile.sleep()")
    server.load(outbox, 100)
    server.sql(f"SELECT postbox.create_publication('hostile', '{outbox}', 'hostile-topic')")
    yield


@contextlib.contextmanager
def locked(server, _sizes):
    outbox = hostile(server, "table", "hostile-topic", 100)
    session = server.session(bed.DATABASE)
    session.sql("BEGIN")
    session.sql(f"LOCK TABLE {outbox} IN ACCESS EXCLUSIVE MODE")
    yield
    session.sql("ROLLBACK")


def parked(kind):
    @contextlib.contextmanager
    def attack(server, sizes):
        # The first event goes through: the topic is not to blame.
        outbox = hostile(server, kind, "hostile-topic", 1)
        wait_until("it is published", lambda: server.pending("hostile") == 0, bed.PATIENCE)
        server.load(outbox, 1, "'refused'")
        wait_until("the next one is parked", lambda: server.number("SELECT count(*) FROM postbox.paused_keys"), bed.PATIENCE)
        server.load(outbox, sizes.behind, "'refused'")
        with emitting(server, outbox):
            yield
    return attack


def topic(name):
    @contextlib.contextmanager
    def attack(server, sizes):
        outbox = hostile(server, "log", name, sizes.refused)
        with emitting(server, outbox):
            yield
    return attack


@contextlib.contextmanager
def emitting(server, outbox):
    """Ten events a second, of keys of their own: the hostile publication has always something to do."""
    script = server.directory / "hostile.sql"
    script.write_text("\\set key random(1, 1000000)\n"
                      f"SELECT postbox.outbox_emit('video', 'h_' || :key, 'video.updated', '{{}}'::jsonb, version => 1, outbox => '{outbox}');\n")
    load = start_pgbench(server, script, 10, 3600, 2)
    yield
    load.stop()


def start_pgbench(server, script, rate, seconds, clients):
    command = [server.cluster.bin / "pgbench", "-n", "-c", clients, "-T", seconds, "-R", rate, "-f", script, bed.DATABASE]
    return server.start("pgbench", list(map(str, command)), env=server.cluster.environment)


ATTACKS = {
    "a trigger sleeps for ever": sleeping,
    "the outbox is locked": locked,
    "events behind a parked key, log": parked("log"),
    "events behind a parked key, table": parked("table"),
    "a topic refuses everything": topic("hostile-refused"),
    "a topic never answers": topic("hostile-silent"),
}
