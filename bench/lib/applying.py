"""From a StreamingPull stream to the ack, with the service near and far away, and applying in the server by itself: apply."""

import contextlib
import time

import bed
import libpq
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
        report.against(f"{KEYS:,} keys, {round_trip} ms", far, "events/s", near, f"{KEYS:,} keys, 0 ms", ">= 0.95")
        in_the_server(report, server, smoke)


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


BATCH = 500
# What inbox_apply_batch does, by hand, for full rows of one table: a statement a batch, prepared.
BY_HAND = """
    PREPARE by_hand(int) AS
    WITH batch AS MATERIALIZED (SELECT e.* FROM app.prepared p, unnest(p.events) AS e WHERE p.number = $1),
    new AS (
        INSERT INTO app.seen (event_id, event_type, aggregate_type, aggregate_id, version, outcome)
        SELECT event_id::uuid, event_type, aggregate_type, aggregate_id, version, 'applied' FROM batch
        ON CONFLICT (event_id) DO NOTHING RETURNING event_id),
    latest AS (
        SELECT DISTINCT ON (b.aggregate_id) b.aggregate_id, b.version, convert_from(b.payload, 'UTF8')::jsonb AS fields
        FROM batch b JOIN new ON new.event_id = b.event_id::uuid ORDER BY b.aggregate_id, b.version DESC)
    INSERT INTO app.video_by_hand AS stored (video_id, title, version)
    SELECT aggregate_id, fields->>'title', version FROM latest
    ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version WHERE stored.version < EXCLUDED.version"""
BY_POSTBOX = """
    PREPARE by_postbox(int) AS
    SELECT postbox.inbox_apply_batch('app.inbox', p.events) FROM app.prepared p WHERE p.number = $1"""


def in_the_server(report, server, smoke):
    """inbox_apply_batch and the statement by hand, in turns, with the same batches in one session and tables of the same form."""
    events, rounds = (1_000, 1) if smoke else (100_000, 5)
    server.sql("""
        CREATE TABLE app.prepared (number int PRIMARY KEY, events postbox.event[] NOT NULL);
        CREATE TABLE app.video_by_hand (LIKE app.video INCLUDING ALL);
        SELECT postbox.create_inbox('app.inbox');
        CREATE TABLE app.seen (LIKE app.inbox INCLUDING DEFAULTS, PRIMARY KEY (event_id));
        ALTER TABLE app.seen DROP COLUMN generation;
        SELECT postbox.create_projection('app.inbox', ARRAY['video.updated'], 'app.video');
    """)
    for keys in (KEYS, 20 * KEYS):
        prepare_batches(server, events, keys)
        rates = {"by_hand": [], "by_postbox": []}
        for number in range(rounds):
            for way in sorted(rates, reverse=number % 2 == 1):
                rates[way].append(apply_batches(server, way, events))
        case = f"SQL, {keys:,} keys"
        report.line(f"{case}, by hand", median(rates["by_hand"]), "events/s")
        report.against(case, rates["by_postbox"], "events/s", rates["by_hand"], f"{case}, by hand", ">= 1.0")


def prepare_batches(server, events, keys):
    """Events in the form in which the puller passes them, each with the next version of one of the keys in random order."""
    server.sql(f"""
        SELECT setseed(0.5);
        TRUNCATE app.prepared;
        INSERT INTO app.prepared
        SELECT n / {BATCH}, array_agg(ROW(gen_random_uuid(), 'video.updated', 'video', 'v_' || key, version,
            convert_to(format('{{"title": "a title of moderate length", "video_id": "v_%s"}}', key), 'UTF8'), '{{}}', now())::postbox.event ORDER BY n)
        FROM (SELECT n, key, row_number() OVER (PARTITION BY key ORDER BY n) AS version
              FROM (SELECT n, (random() * {keys})::int % {keys} AS key FROM generate_series(0, {events - 1}) AS n) AS drawn) AS numbered
        GROUP BY n / {BATCH}""")


def apply_batches(server, way, events):
    """Events per second, into tables that are empty in the beginning."""
    server.sql("TRUNCATE app.video, app.video_by_hand, app.inbox, app.seen; VACUUM app.prepared; CHECKPOINT")
    with contextlib.closing(libpq.Connection(server.cluster.dsn(bed.DATABASE))) as client:
        client.run(BY_HAND if way == "by_hand" else BY_POSTBOX)
        begun = time.monotonic()
        for number in range(events // BATCH):
            client.run(f"EXECUTE {way}({number})")
        seconds = time.monotonic() - begun
    table, seen = ("app.video_by_hand", "app.seen") if way == "by_hand" else ("app.video", "app.inbox")
    if server.number(f"SELECT count(*) FROM {seen}") != events or server.number(f"SELECT sum(version) FROM {table}") != events:
        raise bed.Failure(f"{way} has not applied all events")
    rate = events / seconds
    say(f"    {way}: {rate:,.0f} events/s")
    return rate
