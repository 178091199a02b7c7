"""The database side by itself, measured with bench/drain.cc: drain, backlog, wal, held-transaction."""

import contextlib
import time

import bed
from bed import DATABASE, Failure, median
from harness import say, wait_until


def drain(report, smoke):
    """Claim to confirm of both kinds of outbox, a bare SELECT of the rows of a log, and the loop that services write by hand."""
    log_events, table_events, rounds = (2_000, 500, 1) if smoke else (1_000_000, 100_000, 3)
    with bed.opened(smoke) as server:
        say(f"drain: {log_events} events in a log, {table_events} in a table, {rounds} rounds")
        server.load(server.outbox("app.log"), log_events)
        server.settle_down()
        log, table, select, loop = [], [], [], []
        first = server.publication("app.log")
        server.drain(first, "select")  # into the caches
        for number in range(rounds):
            name = server.outbox(f"app.table_{number}", "table")
            server.load(name, table_events)
            server.settle_down()
            for _ in range(1 if smoke else 3):  # several, since each of them is short
                select.append(server.drain(first, "select"))
                log.append(drain_all(server, "app.log", log_events))
            for first_one in (number % 2 == 0, number % 2 == 1):
                if first_one:
                    table.append(drain_all(server, name, table_events))
                else:
                    loop.append(loop_all(server, first, name, table_events))
            server.sql(f"SELECT postbox.drop_outbox('{name}')")
        rates = {case: [run["rate"] for run in runs] for case, runs in
                 (("log", log), ("table", table), ("select", select), ("loop by hand", loop))}
        report.line("select", median(rates["select"]), "events/s")
        report.line("loop by hand", median(rates["loop by hand"]), "events/s")
        report.against("table", rates["table"], "events/s", rates["loop by hand"], "loop by hand", ">= 1")
        report.against("log", rates["log"], "events/s", rates["select"], "select", ">= 0.95")


def loop_all(server, publication, outbox, events):
    """The same events by the hand-written loop, from a table with an index for its order. The publication is for the worker only."""
    server.sql(f"""
        CREATE TABLE bench.loop (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
            version bigint NOT NULL, schema_version text NOT NULL, payload bytea NOT NULL, attributes jsonb NOT NULL,
            occurred_at timestamptz NOT NULL, published_at timestamptz, publish_attempts int NOT NULL DEFAULT 0,
            next_retry_at timestamptz, lock_token text, locked_at timestamptz);
        CREATE INDEX ON bench.loop (occurred_at) WHERE published_at IS NULL;
        INSERT INTO bench.loop SELECT id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes,
            occurred_at + seq * interval '1 microsecond' FROM {outbox} ORDER BY seq""")
    server.settle_down()
    result = server.drain(publication, "loop")
    server.sql("DROP TABLE bench.loop")
    if result["events"] != events:
        raise Failure(f"{result['events']:.0f} events instead of {events}")
    return result


def drain_all(server, outbox, events):
    """All events of an outbox by a publication that has read none."""
    publication = server.publication(outbox)
    result = server.drain(publication)
    server.drop_publication(publication)
    if result["events"] != events:
        raise Failure(f"{result['events']:.0f} events instead of {events}")
    return result


def backlog(report, smoke):
    """Rate and memory with a long and with a short backlog, of drain.cc and of the publisher worker."""
    large, small, rounds = (3_000, 1_000, 1) if smoke else (5_000_000, 50_000, 3)
    with bed.opened(smoke, postbox__endpoint="http://127.0.0.1:1") as server:
        say(f"backlog: {large} events and {small} events")
        outboxes = {}
        for events in (small, large):
            outboxes[events] = server.outbox(f"app.log_{events}")
            server.load(outboxes[events], events, "'v_' || n % 1000")
        server.settle_down()
        first = {events: server.publication(outbox) for events, outbox in outboxes.items()}
        selects, rates, memory = ({small: [], large: []} for _ in range(3))
        for number in range(0 if smoke else -1, rounds):  # the first round fills the caches
            for events, times in ((large, 1), (small, 1 if smoke else 5)):
                turns = [(server.drain(first[events], "select"), drain_all(server, outboxes[events], events)) for _ in range(times)]
                if number >= 0:
                    selects[events].append(median(select["rate"] for select, _ in turns))
                    rates[events].append(median(run["rate"] for _, run in turns))
                    memory[events].append(max(run["private_kb"] for _, run in turns) / 1024)
        for publication in first.values():
            server.drop_publication(publication)
        cases = {events: f"{events:,} pending" for events in outboxes}
        for events, case in cases.items():
            report.line(f"select, {case}", median(selects[events]), "events/s", of_others=True)
        report.line(cases[small], median(rates[small]), "events/s")
        report.against(cases[large], rates[large], "events/s", rates[small], cases[small], ">= 0.95")
        for events, case in cases.items():
            report.line(f"memory, {case}", max(memory[events]), "MiB", target="<= 150")

        for events, case in cases.items():
            with publishing_worker(server) as (counting, pid):
                watched = bed.PeakMemory(pid)
                publication = server.publication(outboxes[events])
                counting.wait_for(events)
                server.drop_publication(publication)
                report.line(f"memory of the publisher worker, {case}", watched.stop(), "MiB", target="<= 64")
                say(f"    of this without the code of programs and libraries: {watched.own:.1f} MiB")
                say(f"    published at {events / max(counting.seconds, 1e-6):,.0f}/s")


def status(report, smoke):
    """What a look at postbox.publication_status takes, with nothing and with much to publish, and the first look of a new session."""
    events, rounds, looks = (1_000, 1, 5) if smoke else (5_000_000, 5, 200)
    look = "SELECT * FROM postbox.publication_status"
    with bed.opened(smoke) as server:
        publication = server.publication(server.outbox("app.log"))
        server.settle_down()
        before = [milliseconds(server, look, looks) for _ in range(rounds)]
        server.load("app.log", events)
        server.settle_down()
        if server.pending(publication) != events:
            raise Failure(f"{server.pending(publication)} pending instead of {events}")
        after = [milliseconds(server, look, looks) for _ in range(rounds)]
        report.line("nothing pending", median(before), "ms")
        report.against(f"{events:,} pending", after, "ms", before, "nothing pending", "<= 2 ms")
        report.line(f"{events:,} pending, first look", median([first_look(server, look) for _ in range(3 * rounds)]), "ms")


def first_look(server, query):
    """Milliseconds of the first query of a session that has just begun."""
    with contextlib.closing(server.session(DATABASE)) as session:
        session.sql("SELECT 1")
        begin = time.monotonic()
        session.sql(query)
        return (time.monotonic() - begin) * 1000


def milliseconds(server, query, times):
    begin = time.monotonic()
    for _ in range(times):
        server.watch.sql(query)
    return (time.monotonic() - begin) / times * 1000


@contextlib.contextmanager
def publishing_worker(server):
    """(counting server, pid of the worker) while the one publisher worker runs."""
    counting = server.counting_server()
    server.cluster.set(postbox__endpoint=counting.endpoint, postbox__publishers=1)
    yield counting, wait_until("the worker runs", server.worker_pid)
    server.cluster.set(postbox__publishers=0)
    wait_until("the worker has left", lambda: server.worker_pid() is None)
    counting.stop()


def wal(report, smoke):
    """WAL of publishing an event, and of emitting it."""
    events, rows, rounds = (1_500, 200, 1) if smoke else (1_000_000, 50_000, 4)
    with bed.opened(smoke, postbox__endpoint="http://127.0.0.1:1") as server:
        say(f"wal: {events} events drained, {rounds} times {rows} events emitted")
        server.load(server.outbox("app.log"), events, "'v_' || n % 1000")
        server.settle_down()
        result = drain_all(server, "app.log", events)
        report.line("drain", result["wal"] / events, "bytes/event", target="<= 0.1")
        with publishing_worker(server) as (counting, _):
            publication = server.publication("app.log")
            before = server.wal_position()
            counting.wait_for(events)
            wait_until("all is confirmed", lambda: server.pending(publication) == 0, bed.PATIENCE)
            written = server.wal_position() - before
            say(f"    published at {events / max(counting.seconds, 1e-6):,.0f}/s")
        report.line("drain by the publisher worker", written / events, "bytes/event", target="<= 0.1")

        # Two tables of the same form: what was emitted into one is inserted into the other, with the same ids.
        server.outbox("app.emitted")
        server.outbox("app.inserted")
        server.sql("CHECKPOINT")
        emitted, inserted = [], []
        for number in range(rounds + 1):
            first = number * rows + 1
            last = first + rows - 1
            emitted.append(server.wal_of(f"""
                SELECT count(postbox.outbox_emit('video', 'v_' || n, 'video.updated',
                    '{{"title": "a title of moderate length", "video_id": "v_' || n || '"}}', version => n, outbox => 'app.emitted'))
                FROM generate_series({first}::bigint, {last}) AS n"""))
            inserted.append(server.wal_of(f"""
                INSERT INTO app.inserted (id, aggregate_type, aggregate_id, event_type, version, payload)
                SELECT id, aggregate_type, aggregate_id, event_type, version, payload
                FROM app.emitted WHERE seq BETWEEN {first} AND {last} ORDER BY seq"""))
        # The first round touches pages for the first time after the checkpoint.
        per_event = [[each / rows for each in measured[1:]] for measured in (emitted, inserted)]
        report.line("insert", median(per_event[1]), "bytes/event")
        report.against("emit", per_event[0], "bytes/event", per_event[1], "insert", "<= 1.2")


def held_transaction(report, smoke):
    """The same with and without a transaction that has emitted an event and stays open: draining a backlog; publishing
    what four sessions emit meanwhile; what grows."""
    events, length, rounds = (1_500, {"transactions": 20}, 1) if smoke else (1_000_000, {"seconds": 8}, 8)
    with bed.opened(smoke, postbox__endpoint="http://127.0.0.1:1") as server:
        amount = " ".join(f"{count} {what}" for what, count in length.items())
        say(f"held-transaction: {events} events drained, then {amount} of emitting, {rounds} rounds each")
        server.load(server.outbox("app.log"), events, "'v_' || n % 1000")
        server.settle_down()
        server.drain(server.publication("app.log"), "select")  # into the caches
        plain, held = [], []
        total = events
        for number in range(1 if smoke else 8):
            for open_one in (number % 2 == 0, number % 2 == 1):  # each is first in every other round
                with held_open(server, "app.log") if open_one else contextlib.nullcontext():
                    (held if open_one else plain).append(drain_all(server, "app.log", total)["rate"])
                total += open_one
        report.line("drain", median(plain), "events/s")
        report.against("drain, one transaction open", held, "events/s", plain, "drain", ">= 0.98")

        server.sql("SELECT postbox.drop_outbox('app.log')")
        outbox = server.outbox("app.live")
        with publishing_worker(server) as (counting, _):
            publication = server.publication(outbox)
            plain, held = [], []
            grown = {}
            if not smoke:
                publish_while_emitting(server, counting, outbox, length)  # the first is unlike all others
            for number in range(rounds):
                for open_one in (number % 2 == 0, number % 2 == 1):
                    before = sizes(server)
                    with held_open(server, outbox) if open_one else contextlib.nullcontext():
                        (held if open_one else plain).append(publish_while_emitting(server, counting, outbox, length))
                        for relation, size in sizes(server).items() if open_one else ():
                            grown[relation] = grown.get(relation, 0) + size - before.get(relation, 0)
            wait_until("all is published", lambda: server.pending(publication) == 0, bed.PATIENCE)
            rows = server.number(f"SELECT count(*) FROM {outbox}")
            counting.wait_for(rows)
            if counting.messages != rows:
                raise Failure(f"{counting.messages} messages for {rows} events")
        report.line("publish", median(plain), "events/s")
        report.against("publish, one transaction open", held, "events/s", plain, "publish", ">= 0.98")
        of_events = sum(size for relation, size in grown.items() if relation.startswith("app.live:"))
        others = {relation: size for relation, size in grown.items() if not relation.startswith("app.live:") and size > 0}
        say(f"    grown while it was open: {of_events / 1024:,.0f} KiB of events, else {others}")
        report.line("growth of the events", of_events / 1024, "KiB")
        report.line("growth of all else of Postbox", sum(others.values()) / 1024, "KiB",
                    sum(others.values()) / max(of_events, 1), "growth of the events", "<= 1, as little as can be")


@contextlib.contextmanager
def held_open(server, outbox):
    session = server.session(bed.DATABASE)
    session.sql("BEGIN")
    session.sql(f"SELECT postbox.outbox_emit('video', 'held', 'video.updated', '{{}}'::jsonb, outbox => '{outbox}')")
    yield
    session.sql("COMMIT")


def publish_while_emitting(server, counting, outbox, length):
    """Events that arrive per second while four sessions emit, twenty in a transaction, up to the last arrival."""
    script = server.directory / "emit.sql"
    script.write_text(
        "\\set first random(1, 1000)\n"
        "SELECT count(postbox.outbox_emit('video', 'v_' || (:first + n) % 1000, 'video.updated', '{\"title\": \"a title\"}'::jsonb, "
        f"version => n, outbox => '{outbox}')) FROM generate_series(1::bigint, 20) AS n;\n")
    before, begun = counting.messages, time.time()
    emitted = 20 * server.pgbench([script], clients=4, **length)
    after = wait_until("the rest has come", quiet(counting))
    rate = (after - before) / (counting.last_arrival - begun)
    say(f"    {emitted:,.0f} events/s emitted, {rate:,.0f}/s published, the last one {counting.last_arrival - begun:.1f} s after the first began")
    return rate


def quiet(counting):
    """A condition: no message has come for half a second; gives their number."""
    seen = {"count": -1, "times": 0}

    def condition():
        now = counting.messages
        seen["times"] = seen["times"] + 1 if now == seen["count"] else 0
        seen["count"] = now
        return now if seen["times"] >= 10 else None

    return condition


def sizes(server):
    """Bytes of each relation of Postbox; those that hold the events of app.live begin with 'app.live:'."""
    rows = server.sql("""
        SELECT CASE WHEN t.oid IN (SELECT relid FROM pg_partition_tree('app.live')) THEN 'app.live:' ELSE '' END || c.oid::regclass,
               pg_relation_size(c.oid)
        FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
        JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid)
        WHERE t.relnamespace IN ('postbox'::regnamespace, 'app'::regnamespace) AND c.relkind IN ('r', 'i', 'S')""")
    return {name: int(size) for name, size in rows}
