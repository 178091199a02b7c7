"""What an event costs in processor time: emitting, publishing and applying it with Postbox, in each process that takes part; and the
same by hand (by_hand.py) and with PgQ."""

import contextlib

import bed
import by_hand
import libpq
import measured
import pgq
import processes
from applying import KEYS
from bed import median
from harness import say, wait_until

PAYLOAD = '{"title": "a title of moderate length", "video_id": "v_1"}'
# Statements that store event n; a session runs them one by one, each in a transaction of its own.
POSTBOX = ("SELECT postbox.outbox_emit('video', 'v_' || {n} % 1000, 'video.updated', '" + PAYLOAD + "'::jsonb, version => {n} + 1, outbox => 'app.emitted')")
INSERT = ("INSERT INTO by_hand.outbox (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES "
          "(gen_random_uuid(), 'video', 'v_' || {n} % 1000, 'video.updated', {n} + 1, '" + PAYLOAD + "')")


class Sizes:
    def __init__(self, smoke):
        self.smoke = smoke
        self.rounds = 1 if smoke else 3
        self.emitted = 1_000 if smoke else 50_000
        self.events = 1_000 if smoke else 200_000
        self.by_hand = 20_000  # of ways that take many times as long
        self.pgq = 50_000


def cost(report, smoke):
    sizes = Sizes(smoke)
    failures = []
    with bed.opened(smoke, postbox__publishers=0, postbox__endpoint="http://127.0.0.1:1") as server:
        server.outbox("app.emitted")
        server.sql("CREATE SCHEMA by_hand")
        by_hand.make_outbox(server)
        emit = {"Postbox": lambda: emitted(server, sizes, POSTBOX), "INSERT": lambda: emitted(server, sizes, INSERT)}
        publish, apply = {"Postbox": lambda: published(server, sizes)}, {"Postbox": lambda: applied(server, sizes)}
        if smoke:
            say("cost: the loops in Go and Node, and PgQ, are left out of a smoke run")
        else:
            add_others(server, sizes, (emit, publish, apply), failures)
        for step, ways in (("emit", emit), ("publish", publish), ("apply", apply)):
            compare(report, step, ways, sizes.rounds)
        server.sql("DROP SCHEMA by_hand CASCADE")
    if failures:
        raise bed.Incomplete("; ".join(failures))


def add_others(server, sizes, steps, failures):
    """What is not there, and cannot be installed, is left out."""
    emit, publish, apply = steps
    for language, programs_of in by_hand.LANGUAGES.items():
        with noted(failures, language):
            programs = programs_of()
            for batch in by_hand.BATCHES:
                publish[f"{language}, {batch:,} a claim"] = lambda programs=programs, batch=batch: by_hand.publish(server, programs, batch, sizes.by_hand)
            apply[language] = lambda programs=programs: by_hand.apply(server, programs, sizes.by_hand)
    with noted(failures, "PgQ"):
        pgq.install(server)
        emit["PgQ"] = lambda: emitted(server, sizes, pgq.INSERT)
        publish["PgQ, reading only"] = lambda: pgq.read(server, sizes.pgq)


@contextlib.contextmanager
def noted(failures, what):
    try:
        yield
    except by_hand.Missing as missing:
        say(f"cost: {what} is left out: {missing}")
        failures.append(f"{what}: {missing}")


def compare(report, step, ways, rounds):
    """Measures the ways in turns. Each gives {process: microseconds of processor time an event}."""
    found = {way: [] for way in ways}
    for number in range(rounds):
        for way, measure in ways.items():
            parts = measure()
            found[way].append({**parts, "all": sum(parts.values())})
            say(f"    {step}, {way}: " + ", ".join(f"{part} {value:.2f}" for part, value in found[way][-1].items()) + f" us/event, round {number + 1}")
    own = found.pop("Postbox")
    for part in own[0]:
        values = [each[part] for each in own]
        others = [] if part != "all" else [way for way in found if "reading only" not in way]
        for way in others:
            report.against(f"{step}, Postbox: all", values, "us/event", [each["all"] for each in found[way]], f"{step}, {way}: all", None)
        if not others:
            report.line(f"{step}, Postbox: {part}", median(values), "us/event")
    for way, all_rounds in found.items():
        for part in all_rounds[0]:
            report.line(f"{step}, {way}: {part}", median(each[part] for each in all_rounds), "us/event", of_others=True)


def emitted(server, sizes, statement):
    """The backend's share, above that of a transaction that does nothing."""
    session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
    session.run("SET synchronous_commit = off")
    empty = backend_seconds(session, "SELECT {n}", sizes.emitted)
    used = backend_seconds(session, statement, sizes.emitted)
    session.close()
    return {"backend": 1e6 * (used - empty) / sizes.emitted}


def backend_seconds(session, statement, count):
    before = processes.cpu_seconds(session.pid)
    for number in range(count):
        session.run(statement.replace("{n}", str(number)))
    return processes.cpu_seconds(session.pid) - before


def published(server, sizes):
    """A backlog of 1,000 keys; the worker reads, sends and settles it."""
    server.load(server.outbox("app.outbox"), sizes.events, "'v_' || n % 1000", by_hand.STEP)
    server.settle_down()
    counting = server.counting_server()
    server.cluster.set(postbox__endpoint=counting.endpoint, postbox__publishers=1)
    pid = wait_until("the worker runs", server.worker_pid)
    used = measured.Used(worker=pid)
    publication = server.publication("app.outbox")
    counting.wait_for(sizes.events)
    wait_until("all is confirmed", lambda: server.pending(publication) == 0, bed.PATIENCE)
    parts = used.per_event(sizes.events)
    server.sql("SELECT postbox.drop_outbox('app.outbox')")
    server.cluster.set(postbox__publishers=0)
    wait_until("the worker has left", lambda: server.worker_pid() is None)
    counting.stop()
    return parts


def applied(server, sizes):
    """What the puller takes, and its sessions, from 1,000 keys into a projection."""
    server.sql("""
        CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
        SELECT postbox.create_inbox('app.inbox');
        SELECT postbox.create_projection('app.inbox', ARRAY['video.updated'], 'app.video');
        SELECT postbox.create_subscription('cost', 'app.inbox', 'catalog.video.events.bench-reader');
    """)
    service = bed.PullServer(server, sizes.events, KEYS, 0)
    puller = server.puller(bed.DATABASE, verbose=False, endpoint=service.endpoint, arguments=("--subscription", "cost"))
    parts = measured.pulled(server, service, sizes.events, not sizes.smoke, "postbox pull%", puller=puller.process.pid)
    puller.stop()
    service.stop()
    measured.check_applied(server, "app", sizes.events)
    server.sql("SELECT postbox.drop_subscription('cost'), postbox.drop_inbox('app.inbox'); DROP TABLE app.video")
    return parts
