"""From a StreamingPull stream to the ack, with the service near and far away: apply."""

import bed
from bed import median
from harness import say

KEYS = 1_000
ROUND_TRIP = 20  # ms


def apply(report, smoke, round_trip=ROUND_TRIP):
    """The puller on a subscription with ordering keys, with a service that answers after the round trip and one that answers at once."""
    rounds = 1 if smoke else 5
    events = 1_000 if smoke else 400_000
    with bed.opened(smoke) as server:
        server.sql("""
            CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
        """)
        near, far = [], []
        for number in range(rounds):
            near.append(apply_once(server, f"near_{number}", events, 0))
            far.append(apply_once(server, f"far_{number}", events, round_trip))
        report.line(f"{KEYS:,} keys, 0 ms", median(near), "events/s")
        report.against(f"{KEYS:,} keys, {round_trip} ms", far, "events/s", near, f"{KEYS:,} keys, 0 ms", ">= 0.9")


def apply_once(server, name, events, round_trip):
    inbox = f"app.inbox_{name}"
    server.sql(f"""
        TRUNCATE app.video;
        SELECT postbox.create_inbox('{inbox}');
        SELECT postbox.create_projection('{inbox}', ARRAY['video.updated'], 'app.video');
        SELECT postbox.create_subscription('{name}', '{inbox}', 'catalog.video.events.bench-reader');
    """)
    service = bed.PullServer(server, events, KEYS, round_trip)
    puller = server.puller(bed.DATABASE, verbose=False, endpoint=service.endpoint, arguments=("--subscription", name))
    service.wait_for(events)
    puller.stop()
    service.stop()
    applied = server.number(f"SELECT count(*) FROM {inbox} WHERE outcome = 'applied'")
    if applied != events:
        raise bed.Failure(f"{applied} events applied instead of {events}")
    server.sql(f"SELECT postbox.drop_subscription('{name}'), postbox.drop_inbox('{inbox}')")
    rate = events / max(service.seconds, 1e-6)
    say(f"    {round_trip} ms: {rate:,.0f} events/s")
    return rate
