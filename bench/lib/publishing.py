"""End to end, from the committed event to a server that only counts: publish, parked, latency."""

import math
import random
import time
import uuid

import bed
import libpq
from bed import median, percentile
from harness import say, wait_until

MAX_OUTSTANDING = 20_000  # postbox.max_outstanding_messages
# Requests a connection of the bare loop: as many as it has streams, or as many again that wait for one in gRPC.
EACH_CONNECTION = (100, 200)
# worker/pubsub/publish/publish_scheduler.h: the most requests at once where nothing is far away, with and without ordering keys.
NEAR_REQUESTS = 200
KEYLESS_REQUESTS = 8
BACKLOG_STEP = 1_000  # events of a transaction: services write their backlog in small ones
WARM_UP = 10  # events that latency does not count: during these the worker connects and makes plans

# case: (aggregate id of event n, ordering of the publication, number of ordering keys; 0: none; None: one an event)
CASES = {
    "1 key": ("'v_1'", "key", 1),
    "1,000 keys": ("'v_' || n % 1000", "key", 1000),
    "each its own key": ("'v_' || n", "key", None),
    "bucket:256": ("'v_' || n", "bucket:256", 256),
    "none": ("'v_' || n", "none", 0),
}
FAR_KEYS = (0, 1)  # of the cases of a smoke run with a round trip: where requests wait for one, and where none waits


def publish(report, smoke, round_trip=None):
    """The worker against a bare loop over gRPC with the same messages in groups of the same size."""
    rounds = 1 if smoke else 3 if round_trip else 5
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        for case, (key, ordering, keys) in CASES.items():
            if smoke and round_trip and keys not in FAR_KEYS:
                continue
            events = events_of(keys, smoke, round_trip)
            name = case if round_trip is None else f"{case}, {round_trip} ms"
            say(f"publish, {name}: {events} events, {rounds} rounds")
            outbox = server.outbox("app.outbox")
            server.load(outbox, events, key, BACKLOG_STEP)
            server.settle_down()
            rates, bare = [], []
            bare_keys = events if keys is None else keys
            way = None
            for _ in range(rounds):
                rate, group = publish_once(server, outbox, events, ordering, round_trip or 0)
                way = way or best_way(server, events, group, keys, round_trip or 0, smoke)
                rates.append(rate)
                bare.append(bare_once(server, events, group, *way, bare_keys, round_trip or 0))
            report.line(f"{name}, bare", median(bare), "messages/s")
            report.against(name, rates, "messages/s", bare, f"{name}, bare", ">= 1.1" if round_trip is None else ">= 0.95")
            server.sql(f"SELECT postbox.drop_outbox('{outbox}')")


def events_of(keys, smoke, round_trip):
    events = 1_200 if smoke else 200_000 if keys is None else 400_000
    if not round_trip or keys != 1:
        return events
    return min(events, 50_000_000 // round_trip // 10)  # 5 s: there is one request in a round trip


def best_way(server, events, group, keys, round_trip, smoke):
    """How many requests at once the bare loop has, of the numbers that the worker may have, and over how many connections: whatever is fastest."""
    if keys == 0:
        most = KEYLESS_REQUESTS if not round_trip else int(MAX_OUTSTANDING / group)
    else:
        most = min(keys or events, int(MAX_OUTSTANDING / group))
    least = min(most, NEAR_REQUESTS)
    numbers = {max(1, min(most, int(least * factor))) for factor in ((1, 2) if smoke or not round_trip else (1, 4, 8, 16, 1_000))}
    ways = {(number, max(2, math.ceil(number / each))) for number in numbers for each in EACH_CONNECTION}
    if smoke:  # that there is a choice
        ways = set(sorted(ways)[:2])
    if len(ways) == 1:
        return ways.pop()
    keys = events if keys is None else keys
    return max(sorted(ways), key=lambda way: bare_once(server, max(events // 4, 1), group, *way, keys, round_trip))


def publish_once(server, outbox, events, ordering, round_trip):
    counting = server.counting_server(round_trip=round_trip)
    server.cluster.set(postbox__endpoint=counting.endpoint)
    pid = wait_until("the worker runs", server.worker_pid)
    memory = bed.PeakMemory(pid)
    publication = server.publication(outbox, ordering=ordering)
    with bed.profile(server, pid, f"publish-{publication}"):
        counting.wait_for(events)
    connections = counting.connections
    # The publication is dropped when all results are stored.
    wait_until("all is confirmed", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.drop_publication(publication)
    counting.stop()
    if counting.messages != events:
        raise bed.Failure(f"{counting.messages} messages instead of {events}")
    rate, group = events / max(counting.seconds, 1e-6), counting.messages / counting.requests
    say(f"    worker: {rate:,.0f} messages/s, {group:.1f} a request, {connections} connections, {memory.stop():.0f} MiB")
    return rate, group


def parked(report, smoke):
    """Healthy keys beside a key that stands still with many events behind a parked one, against the same without that key."""
    rounds = 1 if smoke else 3
    waiting = 300 if smoke else 200_000
    with bed.opened(smoke, postbox__publishers=0, postbox__endpoint="http://127.0.0.1:1") as server:
        for kind, events in (("log", waiting if smoke else 1_000_000), ("table", waiting)):
            say(f"parked, {kind}: {events} events, {rounds} rounds")
            without, beside = [], []
            for _ in range(rounds):
                without.append(parked_once(server, kind, events, 0))
                beside.append(parked_once(server, kind, events, waiting))
            report.line(f"{kind}, nothing parked", median(without), "messages/s")
            report.against(f"{kind}, {waiting:,} behind a parked event", beside, "messages/s", without, f"{kind}, nothing parked", ">= 0.9")


def parked_once(server, kind, events, waiting):
    outbox = server.outbox(f"app.{kind}", kind)
    publication = server.publication(outbox)
    if waiting:
        stop_key(server, outbox, kind, publication, waiting)
    server.load(outbox, events, CASES["1,000 keys"][0])
    server.settle_down()
    counting = server.counting_server()
    server.cluster.set(postbox__endpoint=counting.endpoint, postbox__publishers=1)
    counting.wait_for(events)
    # Not `pending`: how many are parked is estimated where it is many.
    wait_until("all is confirmed", lambda: server.pending(publication, "ready") == 0, bed.PATIENCE)
    server.cluster.set(postbox__publishers=0)
    wait_until("the worker has left", lambda: server.worker_pid() is None)
    server.sql(f"SELECT postbox.drop_outbox('{outbox}')")
    counting.stop()
    if counting.messages != events:
        raise bed.Failure(f"{counting.messages} messages instead of {events}")
    rate = events / max(counting.seconds, 1e-6)
    say(f"    {waiting} waiting: {rate:,.0f} messages/s")
    return rate


def stop_key(server, outbox, kind, publication, waiting):
    """What workers leave of a key whose first event has failed for good."""
    columns, values = ("publication, seq, ", f"'{publication}', n - {waiting} - 1, ") if kind == "log" else ("", "")
    server.sql(f"""
        INSERT INTO {outbox}{'_parked' if kind == 'log' else ''} ({columns}id, aggregate_type, aggregate_id, event_type, version, payload,
            publish_attempts, next_retry_at, last_error)
        SELECT {values}gen_random_uuid(), 'video', 'stopped', 'video.updated', n + 1, '{{}}',
            CASE n WHEN 0 THEN 5 ELSE 0 END, 'infinity', CASE n WHEN 0 THEN 'INVALID_ARGUMENT' END
        FROM generate_series(0, {waiting}) AS n""")


def bare_once(server, events, group, in_flight, connections, keys, round_trip):
    counting = server.counting_server(round_trip=round_trip)
    bed.bare_publish(counting, events, group, in_flight, connections, keys)
    counting.stop()
    rate = events / max(counting.seconds, 1e-6)
    say(f"    bare: {rate:,.0f} messages/s, {counting.messages / counting.requests:.1f} a request, {in_flight} at once, "
        f"{connections} connections")
    return rate


def latency(report, smoke):
    """One event at a time, from its COMMIT to its arrival at the server; and the same for a bare RPC."""
    events = 20 if smoke else 2000
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        record = server.directory / "arrivals"
        counting = server.counting_server(record)
        sent = list(map(int, bed.bare_publish(counting, events + WARM_UP, 1, 1)))
        counting.stop()
        bare = [(int(line.split("\t")[0]) - at) / 1000 for at, line in zip(sent, record.read_text().splitlines(), strict=True)][WARM_UP:]

        counting = server.counting_server(record)
        server.cluster.set(postbox__endpoint=counting.endpoint)
        outbox = server.outbox("app.outbox")
        server.publication(outbox)
        wait_until("the worker runs", server.worker_pid)
        begun, ended = commit_one_by_one(server, outbox, record, events)
    say(f"latency: {events} events; a COMMIT takes {median(b - e for b, e in zip(begun, ended)):.2f} ms")
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        limit = {"p50": "<= 2", "p99": "<= 10"}[name]
        rpc = percentile(bare, part)
        report.line(f"{name}, bare RPC", rpc, "ms")
        for what, values in (("COMMIT sent", begun), ("COMMIT answered", ended)):
            report.line(f"{name} from {what}", percentile(values, part), "ms", percentile(values, part) / rpc, f"{name}, bare RPC")
            report.line(f"{name} from {what}, above the bare RPC", percentile(values, part) - rpc, "ms", target=limit)


def commit_one_by_one(server, outbox, record, events):
    """Milliseconds to the arrival of each event from sending its COMMIT, and from the answer to it."""
    begun, ended = [], []
    session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
    with open(record, encoding="utf-8") as arrivals:
        for number in range(events + WARM_UP):
            event = str(uuid.uuid4())
            session.run("BEGIN")
            session.run(f"SELECT postbox.outbox_emit('video', 'v_{number}', 'video.updated', '{{\"title\": \"a title\"}}'::jsonb, "
                        f"version => {number + 1}, event_id => '{event}', outbox => '{outbox}')")
            sent = time.time_ns() / 1e6
            session.run("COMMIT")
            answered = time.time_ns() / 1e6
            line = wait_until("the event has come", arrivals.readline, interval=0.001)
            while not line.endswith("\n"):
                line += arrivals.readline()
            moment, _, came = line.rstrip("\n").split("\t")
            if came != event:
                raise bed.Failure(f"event {came} came instead of {event}")
            if number >= WARM_UP:
                begun.append(int(moment) / 1000 - sent)
                ended.append(int(moment) / 1000 - answered)
            time.sleep(random.uniform(0, 0.01))  # so that the next event finds the worker asleep
    session.close()
    return begun, ended
