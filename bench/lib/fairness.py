"""How long an event waits behind a mass of earlier ones of other keys: of a COPY whose trigger emits for each row, or of an
INSERT of rows of few keys."""

import threading
import time
import uuid

import bed
import libpq
from bed import Bed, median, percentile
from harness import say, wait_until

PAUSE = 0.02  # s between the events that are looked at
QUIET = 2  # s without a mass, for comparison


def fairness(report, smoke):
    rows, rounds = (20_000, 1) if smoke else (1_000_000, 3)
    with Bed(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        for name, produce in MASSES.items():
            say(f"fairness, {name}: {rows:,} rows, {rounds} rounds")
            results = [measure(server, produce, rows) for _ in range(rounds)]
            quiet = [percentile(one["before"], 0.5) for one in results]
            report.line(f"{name}: wait before, p50", median(quiet), "ms")
            for phase, text in (("during", "while it is written"), ("after", "while it is published")):
                if not results[0][phase]:
                    continue
                for part, share in (("p50", 0.5), ("p99", 0.99), ("most", 1)):
                    values = [percentile(one[phase], share) for one in results]
                    report.against(f"{name}: wait {text}, {part}", values, "ms", quiet, f"{name}: wait before, p50", "<= 100")
            report.line(f"{name}: drain", median(one["rate"] for one in results), "events/s")


def measure(server, produce, rows):
    """Milliseconds from COMMIT to the arrival of each event of a key that has no other."""
    record = server.directory / "arrivals"
    counting = server.counting_server(record)
    outbox = server.outbox("app.outbox")
    server.cluster.set(postbox__endpoint=counting.endpoint)
    publication = server.publication(outbox)
    wait_until("the worker runs", server.worker_pid)
    with Prober(server, outbox) as prober:
        time.sleep(QUIET)
        begun = time.time()
        written = produce(server, outbox, rows)
        counting.wait_for(rows)
        ended = counting.last_arrival
    counting.wait_for(rows + len(prober.sent))
    arrived = {}
    for line in record.read_text().splitlines():
        moment, _, event = line.split("\t")
        arrived.setdefault(event, int(moment) / 1e6)
    server.drop_publication(publication)
    server.sql(f"SELECT postbox.drop_outbox('{outbox}')")
    counting.stop()
    waits = {"before": [], "during": [], "after": []}
    for event, sent in prober.sent.items():
        phase = "before" if sent < begun else "during" if sent < written else "after"
        if sent < ended:
            waits[phase].append(1000 * (arrived[event] - sent))
    rate = rows / (ended - written)
    say(f"    {rate:,.0f} events/s; most {', '.join(f'{phase} {max(values):,.0f} ms' for phase, values in waits.items() if values)}")
    return {**waits, "rate": rate}


class Prober:
    """Emits an event of one more key every now and then: when each was sent, by its id."""

    def __init__(self, server, outbox):
        self.sent = {}
        self._session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
        self._outbox = outbox
        self._ended = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        self._session.close()
        if self._failure is not None:
            raise self._failure

    def _run(self):
        try:
            while not self._ended.wait(PAUSE):
                event = str(uuid.uuid4())
                self.sent[event] = time.time()
                self._session.run(f"SELECT postbox.outbox_emit('video', 'probe-{len(self.sent)}', 'video.updated', '{{}}'::jsonb, "
                                  f"event_id => '{event}', outbox => '{self._outbox}')")
        except Exception as failure:  # told by __exit__
            self._failure = failure


# What makes a mass of events. Each returns when it was committed.

def copied(server, outbox, rows):
    file = server.cluster.directory / "data/items"
    server.sql(f"""DROP TABLE IF EXISTS app.item;
                   CREATE TABLE app.item (id bigint PRIMARY KEY, title text NOT NULL);
                   SELECT postbox.create_change_triggers('app.item', outbox => '{outbox}');
                   COPY (SELECT n, 'a title of moderate length ' || n FROM generate_series(1, {rows}) AS n) TO '{file}'""")
    server.sql(f"COPY app.item FROM '{file}'")
    return time.time()


def inserted(server, outbox, rows):
    server.load(outbox, rows, "'v_' || n % 1000", rows)
    return time.time()


MASSES = {"COPY, each row its own key": copied, "INSERT, 1,000 keys": inserted}
