"""Many tenants in one database with one worker, each with a schema, an outbox, a publication and a topic: what making them takes,
what they cost while nothing happens and while one of them emits, and how long the first event of each waits, by itself and beside
the backlog of another one."""

import random
import threading
import time
import uuid

import bed
import libpq
import processes
from bed import median, percentile
from harness import say, wait_until

WARM_UP = 10  # events of the first tenant, during which the worker connects
PAUSE = 0.005  # s between the events whose wait is taken


class Sizes:
    def __init__(self, smoke):
        self.tenants = 6 if smoke else 300
        self.few = 2 if smoke else 10  # of which making is a figure
        self.still = 0.5 if smoke else 5  # s until nothing is left to be done
        self.plans = 0.5 if smoke else 35  # s until a still lane has freed its plans (worker/publisher/lane.cc)
        self.idle = 1 if smoke else 20  # s
        self.rate, self.busy = (50, 1) if smoke else (200, 10)  # events/s of one tenant, and for so many seconds
        self.backlog = 500 if smoke else 100_000


def tenants(report, smoke):
    sizes = Sizes(smoke)
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        record = server.directory / "arrivals"
        counting = server.counting_server(record)
        server.cluster.set(postbox__endpoint=counting.endpoint)
        session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
        wait_until("the worker runs", server.worker_pid)
        report_making(report, [make(session, number) for number in range(sizes.tenants)], sizes)
        for _ in range(WARM_UP):
            emit(session, 0)
        counting.wait_for(WARM_UP)
        report_idle(report, server, sizes)
        report_busy(report, server, session, counting, sizes)
        report_waits(report, "first event", first_events(session, record, sizes), 100)
        memory = processes.private_mebibytes(server.worker_pid())
        time.sleep(sizes.plans)
        report.line("memory of the worker, still again", processes.private_mebibytes(server.worker_pid()), "MiB", target="<= 150")
        report.line("memory of the worker, after an event of each", memory, "MiB")
        report_waits(report, f"event beside a backlog of {sizes.backlog:,}", beside_backlog(server, session, record, counting, sizes), 500)
        session.close()
        counting.stop()
        if smoke:
            server.sql(";".join(f"DROP SCHEMA tenant_{number} CASCADE" for number in range(sizes.tenants)))


def make(session, number):
    """Milliseconds that create_outbox and create_publication take."""
    session.run(f"CREATE SCHEMA tenant_{number}")
    begun = time.time()
    session.run(f"SELECT postbox.create_outbox('tenant_{number}.outbox')")
    between = time.time()
    session.run(f"SELECT postbox.create_publication('tenant_{number}', 'tenant_{number}.outbox', 'tenant.n{number}.events')")
    return 1000 * (between - begun), 1000 * (time.time() - between)


def report_making(report, made, sizes):
    for what, times in zip(("create_outbox", "create_publication"), zip(*made)):
        reference = f"{what}, the first {sizes.few}"
        first, last = median(times[:sizes.few]), median(times[-sizes.few:])
        report.line(reference, first, "ms")
        report.line(f"{what}, the last {sizes.few} of {sizes.tenants}", last, "ms", last / first, reference)


def emit(session, number):
    """Returns the event's id."""
    event = str(uuid.uuid4())
    session.run(f"SELECT postbox.outbox_emit('video', 'v_{number}', 'video.updated', '{{\"title\": \"a title of moderate length\"}}'::jsonb, "
                f"version => 1, event_id => '{event}', outbox => 'tenant_{number}.outbox')")
    return event


def report_idle(report, server, sizes):
    time.sleep(sizes.still)
    pid = server.worker_pid()
    wal, used, slept = server.wal_position(), processes.cpu_seconds(pid), processes.sleeps(pid)
    time.sleep(sizes.idle)
    used, slept = processes.cpu_seconds(pid) - used, processes.sleeps(pid) - slept
    report.line("idle, processor time of the worker", 100 * used / sizes.idle, "% of a core", target="<= 1")
    report.line("idle, wake-ups of the worker", slept / sizes.idle, "1/s")
    report.line("idle, WAL", (server.wal_position() - wal) / sizes.idle, "bytes/s")


def report_busy(report, server, session, counting, sizes):
    """One tenant emits, and all others are still."""
    pid = server.worker_pid()
    before, used, begun = counting.messages, processes.cpu_seconds(pid), time.time()
    events = sizes.rate * sizes.busy
    for number in range(events):
        time.sleep(max(0.0, begun + number / sizes.rate - time.time()))
        emit(session, 1)
    counting.wait_for(before + events)
    used = processes.cpu_seconds(pid) - used
    report.line(f"one tenant emits {sizes.rate}/s, processor time of the worker", 100 * used / sizes.busy, "% of a core")


def first_events(session, record, sizes):
    """Milliseconds from sending the statement to the arrival, one event of each tenant after the other."""
    order = list(range(2, sizes.tenants))
    random.shuffle(order)
    waits = []
    with open(record, encoding="utf-8") as arrivals:
        arrivals.seek(0, 2)
        for number in order:
            sent = time.time_ns() // 1000
            event = emit(session, number)
            waits.append((arrival(arrivals, event) - sent) / 1000)
            time.sleep(random.uniform(PAUSE, 2 * PAUSE))  # so that the next event finds the worker asleep
    return waits


def arrival(arrivals, event):
    """Microseconds since 1970."""
    def come():
        for line in iter(arrivals.readline, ""):
            moment, _, came = line.rstrip("\n").split("\t")
            if came == event:
                return int(moment)
        return None

    return wait_until("the event has come", come, bed.PATIENCE, 0.001)


def beside_backlog(server, session, record, counting, sizes):
    """The same of events of all other tenants, while the backlog of one of them is published."""
    before = counting.messages
    order = list(range(2, sizes.tenants))
    random.shuffle(order)
    sent = {}
    ended = threading.Event()

    def load():
        server.load("tenant_1.outbox", sizes.backlog, step=sizes.backlog)
        counting.wait_for(before + sizes.backlog)
        ended.set()

    loading = threading.Thread(target=load, daemon=True)
    loading.start()
    wait_until("the backlog is being published", lambda: counting.messages > before, bed.PATIENCE, 0.001)
    while order:  # one at least, also where a small backlog has been published before it is seen
        moment = time.time_ns() // 1000
        sent[emit(session, order.pop())] = moment
        if ended.wait(PAUSE):
            break
    loading.join()
    counting.wait_for(before + sizes.backlog + len(sent))
    moments = (line.split("\t") for line in record.read_text(encoding="utf-8").splitlines())
    arrived = {event: int(moment) for moment, _, event in moments if event in sent}
    say(f"    {len(sent)} events beside the backlog")
    return [(arrived[event] - moment) / 1000 for event, moment in sent.items()]


def report_waits(report, what, waits, target):
    for name, part in (("p50", 0.5), ("p99", 0.99), ("most", 1)):
        report.line(f"{what}: {name}", percentile(waits, part), "ms", target=f"<= {target}" if name == "p99" else None)
