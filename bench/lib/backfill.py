"""A backfill of a table: how fast it is, alone and beside a live stream, and how late the events of that stream come."""

import contextlib
import threading
import time

import bed
from bed import median, percentile
from harness import Failure, say, wait_until
from neighbours import latencies

OUTBOX = "app.outbox"
TABLE = """
    CREATE TABLE app.item (id bigint PRIMARY KEY, title text NOT NULL, amount numeric NOT NULL, changed timestamptz NOT NULL);
    INSERT INTO app.item SELECT n, 'a title of moderate length ' || n, n * 1.25, now() FROM generate_series(1, {rows}) AS n"""
EMPTY = f"TRUNCATE {OUTBOX}, {OUTBOX}_version"
AT_ONCE = f"SELECT count(postbox.outbox_emit('item', i.id::text, 'item.updated', to_jsonb(i), outbox => '{OUTBOX}')) FROM app.item i"


def backfill(report, smoke):
    rows, rounds, seconds = (300, 1, 1) if smoke else (1_000_000, 3, 10)
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        server.outbox(OUTBOX)
        server.sql(TABLE.format(rows=rows))
        say(f"backfill: {rows:,} rows, {rounds} rounds")
        at_once, alone = [], []
        for _ in range(rounds):
            at_once.append(rate(server, rows, AT_ONCE))
            alone.append(rate(server, rows, lambda: run(server)))
        report.line("one statement with outbox_emit", median(at_once), "rows/s")
        report.against("backfill", alone, "rows/s", at_once, "one statement with outbox_emit", ">= 0.75")
        beside, quiet, busy = [], [], []
        for _ in range(rounds):
            server.sql(EMPTY)
            server.settle_down()
            with published(server) as record:
                quiet.append(percentile(latencies(server, OUTBOX, record, time.time() + seconds, 0.005), 0.5))
                done, late = beside_stream(server, record, rows)
            beside.append(done)
            busy.append(percentile(late, 0.5))
        report.against("backfill beside a live stream", beside, "rows/s", alone, "backfill", None)
        report.line("p50 of the stream without a backfill", median(quiet), "ms")
        report.against("p50 of the stream beside a backfill", busy, "ms", quiet, "p50 of the stream without a backfill", None)


def rate(server, rows, work):
    server.sql(EMPTY)
    server.settle_down()
    begun = time.monotonic()
    if callable(work):
        work()
    else:
        server.watch.sql(work)
    return rows / (time.monotonic() - begun)


def run(server):
    """A new backfill, to its end. It commits, so it has a session of its own."""
    server.sql("DELETE FROM postbox.backfill")
    server.sql(f"SELECT postbox.create_backfill('items', 'app.item', outbox => '{OUTBOX}')")
    server.cluster.sql(bed.DATABASE, "CALL postbox.run_backfill('items')", timeout=bed.PATIENCE)


@contextlib.contextmanager
def published(server):
    """The outbox has a publication, and the file has what arrives."""
    record = server.directory / "arrivals"
    counting = server.counting_server(record)
    server.cluster.set(postbox__endpoint=counting.endpoint)
    publication = server.publication(OUTBOX)
    wait_until("the worker runs", server.worker_pid)
    yield record
    wait_until("all is published", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.drop_publication(publication)
    counting.stop()


def beside_stream(server, record, rows):
    """Rows/s of a backfill, and the milliseconds to the arrival of each event that a session commits meanwhile."""
    figures = {}

    def work():
        begun = time.monotonic()
        run(server)
        figures["rate"] = rows / (time.monotonic() - begun)

    thread = threading.Thread(target=work)
    thread.start()
    late = []
    while thread.is_alive() or not late:
        late += latencies(server, OUTBOX, record, time.time() + 0.5, 0.005)
    thread.join()
    if "rate" not in figures:
        raise Failure("the backfill beside the stream failed")
    return figures["rate"], late
