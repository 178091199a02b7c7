"""End to end, from the committed event to a server that only counts: publish, latency."""

import bed
from bed import Bed, median
from harness import say, wait_until

CHANNELS = 2  # postbox.channels
MAX_OUTSTANDING = 10_000  # postbox.max_outstanding_messages
# worker/pubsub/publish_scheduler.h: the most requests at once, with and without ordering keys.
MAX_REQUESTS = 100 * CHANNELS
MAX_KEYLESS_REQUESTS = 4 * CHANNELS

# case: (aggregate id of event n, ordering of the publication, number of ordering keys; 0: none; None: one an event)
CASES = {
    "1 key": ("'v_1'", "key", 1),
    "1,000 keys": ("'v_' || n % 1000", "key", 1000),
    "each its own key": ("'v_' || n", "key", None),
    "bucket:256": ("'v_' || n", "bucket:256", 256),
    "none": ("'v_' || n", "none", 0),
}


def publish(report, smoke):
    """The worker against a bare loop over gRPC with the same messages in groups of the same size."""
    rounds = 1 if smoke else 3
    with Bed(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        for case, (key, ordering, keys) in CASES.items():
            events = 5_000 if smoke else 100_000 if keys is None else 400_000
            say(f"publish, {case}: {events} events, {rounds} rounds")
            outbox = server.outbox("app.outbox")
            server.load(outbox, events, key)
            server.settle_down()
            runs = [publish_once(server, outbox, events, ordering) for _ in range(rounds)]
            group = median(run["group"] for run in runs)
            in_flight = requests_in_flight(group, events, keys)
            bare = [bare_once(server, events, group, in_flight, events if keys is None else keys) for _ in range(rounds)]
            rate = median(run["rate"] for run in runs)
            say(f"    {group:.1f} messages a request, {in_flight} in flight, worker {runs[-1]['memory']:.0f} MiB")
            report.line(f"{case}, bare", median(bare), "messages/s")
            report.line(case, rate, "messages/s", rate / median(bare), f"{case}, bare", ">= 0.8")
            server.sql(f"SELECT postbox.drop_outbox('{outbox}')")


def requests_in_flight(group, events, keys):
    """As many as the worker has: one for a key, and no more than its budget of messages and its channels allow."""
    if keys == 0:
        return MAX_KEYLESS_REQUESTS
    return max(1, min(keys or events, MAX_REQUESTS, int(MAX_OUTSTANDING / group)))


def publish_once(server, outbox, events, ordering):
    counting = server.counting_server()
    server.cluster.set(postbox__endpoint=counting.endpoint)
    pid = wait_until("the worker runs", server.worker_pid)
    memory = bed.PeakMemory(pid)
    publication = server.publication(outbox, ordering=ordering)
    counting.wait_for(events)
    # Results on their way are stored first.
    wait_until("all is confirmed", lambda: server.watch.sql(
        f"SELECT pending FROM postbox.publication_status WHERE publication = '{publication}'") == [["0"]], bed.PATIENCE)
    server.drop_publication(publication)
    counting.stop()
    if counting.messages != events:
        raise bed.Failure(f"{counting.messages} messages instead of {events}")
    result = {"rate": events / max(counting.seconds, 1e-6), "group": counting.messages / counting.requests,
              "memory": memory.stop()}
    say(f"    worker: {result['rate']:,.0f} messages/s, {result['group']:.1f} a request")
    return result


def bare_once(server, events, group, in_flight, keys):
    counting = server.counting_server()
    bed.bare_publish(counting, events, group, in_flight, CHANNELS, keys)
    counting.stop()
    rate = events / max(counting.seconds, 1e-6)
    say(f"    bare: {rate:,.0f} messages/s, {counting.messages / counting.requests:.1f} a request")
    return rate
