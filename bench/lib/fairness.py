"""How long an event waits beside and behind a mass of earlier ones: of a COPY into a table whose ready triggers, or whose row
trigger, emit for each row, or of an INSERT of rows of few keys. Events of keys that the mass does not have, and of keys that
it has."""

import contextlib
import threading
import time
import uuid

import bed
import changes
import libpq
from bed import median, percentile
from harness import say, wait_until

PAUSE = 0.02  # s between the events that are looked at


def fairness(report, smoke):
    rows, rounds, quiet = (2_000, 1, 0.3) if smoke else (1_000_000, 3, 2)  # s without a mass, for comparison
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        for name, (produce, own_key) in MASSES.items():
            say(f"fairness, {name}: {rows:,} rows, {rounds} rounds")
            results = [measure(server, produce, own_key, rows, quiet) for _ in range(rounds)]
            before = [percentile(one["before"], 0.5) for one in results]
            report.line(f"{name}: wait before, p50", median(before), "ms")
            for phase, text, target in PHASES:
                if not all(one[phase] for one in results):
                    continue
                for part, share in (("p50", 0.5), ("p99", 0.99), ("most", 1)):
                    values = [percentile(one[phase], share) for one in results]
                    report.against(f"{name}: wait {text}, {part}", values, "ms", before, f"{name}: wait before, p50", target)
            report.line(f"{name}: drain", median(one["rate"] for one in results), "events/s")


def measure(server, produce, own_key, rows, quiet):
    """Milliseconds from COMMIT to the arrival of each event of a key that has no other, and of keys of the mass."""
    record = server.directory / "arrivals"
    counting = server.counting_server(record)
    outbox = server.outbox("app.outbox")
    server.cluster.set(postbox__endpoint=counting.endpoint)
    publication = server.publication(outbox)
    wait_until("the worker runs", server.worker_pid)
    with contextlib.ExitStack() as probers:
        prober = probers.enter_context(Prober(server, outbox, "'probe-{n}'"))
        time.sleep(quiet)
        begun = time.time()
        written = produce(server, outbox, rows)
        of_mass = probers.enter_context(Prober(server, outbox, own_key.replace("{rows}", str(rows)))) if own_key else None
        counting.wait_for(rows)
        ended = counting.last_arrival
    own = of_mass.sent if of_mass else {}
    counting.wait_for(rows + len(prober.sent) + len(own))
    arrived = {}
    for line in record.read_text().splitlines():
        moment, _, event = line.split("\t")
        arrived.setdefault(event, int(moment) / 1e6)
    server.drop_publication(publication)
    server.sql(f"SELECT postbox.drop_outbox('{outbox}')")
    counting.stop()
    waits = {"before": [], "during": [], "after": [], "own": [1000 * (arrived[event] - sent) for event, sent in own.items() if sent < ended]}
    for event, sent in prober.sent.items():
        phase = "before" if sent < begun else "during" if sent < written else "after"
        if sent < ended:
            waits[phase].append(1000 * (arrived[event] - sent))
    rate = rows / (ended - written)
    say(f"    {rate:,.0f} events/s; most {', '.join(f'{phase} {max(values):,.0f} ms' for phase, values in waits.items() if values)}")
    return {**waits, "rate": rate}


class Prober:
    """Emits an event every now and then: when each was sent, by its id. `key` is SQL for the key of event {n}."""

    def __init__(self, server, outbox, key):
        self._key = key
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
                key = self._key.replace("{n}", str(len(self.sent)))
                self._session.run(f"SELECT postbox.outbox_emit('video', {key}, 'video.updated', '{{}}'::jsonb, "
                                  f"event_id => '{event}', outbox => '{self._outbox}')")
        except Exception as failure:  # told by __exit__
            self._failure = failure


# What makes a mass of events. Each returns when it was committed.

def copied(server, outbox, rows, trigger="SELECT postbox.create_change_triggers('app.item', outbox => '{outbox}')"):
    file = server.cluster.directory / "data/items"
    server.sql(f"""DROP TABLE IF EXISTS app.item;
                   CREATE TABLE app.item (id bigint PRIMARY KEY, title text NOT NULL);
                   {trigger.replace("{outbox}", outbox)};
                   COPY (SELECT n, 'a title of moderate length ' || n FROM generate_series(1, {rows}) AS n) TO '{file}'""")
    server.sql(f"COPY app.item FROM '{file}'")
    return time.time()


def copied_row_by_row(server, outbox, rows):
    return copied(server, outbox, rows, changes.ROW_TRIGGER.replace("{step}", changes.EMITTED))


def inserted(server, outbox, rows):
    server.load(outbox, rows, "'v_' || n % 1000", rows)
    return time.time()


# And keys that a mass has, from all over it.
MASSES = {
    "COPY, each row its own key": (copied, "(({n} * 7919) % {rows} + 1)::text"),
    "COPY, row trigger": (copied_row_by_row, "(({n} * 7919) % {rows} + 1)::text"),
    "INSERT, 1,000 keys": (inserted, None),
}
PHASES = (
    ("during", "while it is written", "<= 100 ms"),
    ("after", "while it is published", "<= 100 ms"),
    ("own", "of its keys, while it is published", None),
)
