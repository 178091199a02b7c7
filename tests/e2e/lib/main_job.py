"""The two use cases of Postbox, run for real. The demo and the test of the main job both run this code.

(a) Catalog: a service writes videos and emits video.created, video.updated and video.deleted in the transactions that
    write; catalog_read.video_projection in another database follows. Some transactions are rolled back:
    nothing of those may ever be seen.
(b) Points: an outside program (Google's Node client) publishes user events; a handler function adds the points to the
    user's account. Every message is delivered twice and must count once.
"""

import json
import random
import time
import uuid

from harness import Failure, check, say, wait_until

CATALOG_TOPIC = "catalog.video.events"
CATALOG_SUBSCRIPTION = "catalog.video.events.catalog-read-projection"
POINTS_TOPIC = "user.account.events"
POINTS_SUBSCRIPTION = "user.account.events.points-adder"
RESOURCES = [
    {"create_topic": CATALOG_TOPIC}, {"create_topic": POINTS_TOPIC},
    {"create_subscription": CATALOG_SUBSCRIPTION, "topic": CATALOG_TOPIC, "options": {"enableMessageOrdering": True}},
    {"create_subscription": POINTS_SUBSCRIPTION, "topic": POINTS_TOPIC, "options": {"enableMessageOrdering": True}}]


def emulator_flags(kind):
    """Every message is delivered twice. Google's emulator cannot do that; with it, the client publishes twice (run_points)."""
    return ["--deliver-twice"] if kind == "embedded" else []


def set_up(bed):
    """The three databases. The SQL here is all that a user has to write."""
    for database in ("catalog", "catalog_read", "points"):
        bed.cluster.create_database(database)

    bed.cluster.sql("catalog", f"""
        CREATE SCHEMA catalog;
        CREATE TABLE catalog.video (
            video_id text PRIMARY KEY,
            title text NOT NULL,
            status text NOT NULL,
            duration_micros bigint,
            version bigint NOT NULL
        );
        SELECT postbox.create_outbox('catalog.outbox');
        SELECT postbox.create_publication('catalog_video', 'catalog.outbox', '{CATALOG_TOPIC}');
    """)
    bed.cluster.sql("catalog_read", f"""
        CREATE SCHEMA catalog_read;
        CREATE TABLE catalog_read.video_projection (
            video_id text PRIMARY KEY,
            title text NOT NULL,
            status text NOT NULL,
            duration_micros bigint,
            version bigint NOT NULL
        );
        SELECT postbox.create_inbox('catalog_read.inbox');
        SELECT postbox.create_projection('catalog_read.inbox',
            ARRAY['video.created', 'video.updated', 'video.deleted'], 'catalog_read.video_projection',
            delete_types => ARRAY['video.deleted']);
        SELECT postbox.create_subscription('catalog_video', 'catalog_read.inbox', '{CATALOG_SUBSCRIPTION}');
    """)
    bed.cluster.sql("points", f"""
        CREATE SCHEMA points;
        CREATE TABLE points.user_points (
            user_id varchar(64) PRIMARY KEY,
            points bigint NOT NULL,
            updated_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE FUNCTION points.add_points(event postbox.event) RETURNS void LANGUAGE sql AS $$
            INSERT INTO points.user_points AS account (user_id, points)
            SELECT body->>'userId', (body->>'points')::bigint
            FROM CAST(convert_from((event).payload, 'UTF8') AS jsonb) AS body
            ON CONFLICT (user_id) DO UPDATE SET points = account.points + excluded.points, updated_at = now()
        $$;
        SELECT postbox.create_inbox('points.inbox');
        SELECT postbox.create_handler('points.inbox', ARRAY['USER_REGISTERED', 'USER_LOGGED_IN'],
            'points.add_points(postbox.event)');
        SELECT postbox.create_subscription('user_points', 'points.inbox', '{POINTS_SUBSCRIPTION}');
    """)


# ---- (a) catalog ------------------------------------------------------------------------------------------------------

_EMIT = "SELECT postbox.outbox_emit('video', '{0}', '{1}', to_jsonb(video) - 'version', version) FROM catalog.video WHERE video_id = '{0}'"


def _create(video, number):
    return (f"INSERT INTO catalog.video VALUES ('{video}', 'Title {number} of “{video[:8]}”', 'draft', {number * 1000}, 1); "
            + _EMIT.format(video, "video.created"))


def _update(video, number):
    return (f"UPDATE catalog.video SET title = 'Title {number}', status = 'published', version = version + 1 "
            f"WHERE video_id = '{video}'; " + _EMIT.format(video, "video.updated"))


def _delete(video):
    return (f"UPDATE catalog.video SET version = version + 1 WHERE video_id = '{video}'; "
            + _EMIT.format(video, "video.deleted") + f"; DELETE FROM catalog.video WHERE video_id = '{video}'")


def write_catalog(bed, videos):
    """The service's work: returns how many events its committed transactions have emitted."""
    dice = random.Random(20251024)
    script = []
    events = 0
    alive = []
    for number in range(videos):
        video = str(uuid.UUID(int=dice.getrandbits(128), version=4))
        script.append(f"BEGIN; {_create(video, number)}; COMMIT;")
        alive.append(video)
        events += 1
        for _ in range(3):
            chosen = dice.choice(alive)
            kind = dice.random()
            if kind < 0.15:
                script.append(f"BEGIN; {_update(chosen, -1)}; ROLLBACK;")
            elif kind < 0.25:  # the part before the savepoint is committed, the part after it is not
                script.append(f"BEGIN; {_update(chosen, number)}; SAVEPOINT s; {_update(chosen, -1)}; ROLLBACK TO s; COMMIT;")
                events += 1
            elif kind < 0.35 and len(alive) > 3:
                script.append(f"BEGIN; {_delete(chosen)}; COMMIT;")
                alive.remove(chosen)
                events += 1
            else:
                script.append(f"BEGIN; {_update(chosen, number)}; COMMIT;")
                events += 1
    bed.cluster.sql("catalog", "\n".join(script))
    return events


def catalog_rows(bed, database, table):
    return bed.cluster.sql(database, f"SELECT video_id, title, status, duration_micros, version FROM {table} ORDER BY video_id")


def differences(source, projection):
    """Rows of the one and not of the other, as readable lines; empty if the two are equal."""
    left, right = {tuple(row) for row in source}, {tuple(row) for row in projection}
    lines = [f"only in the source:     {row}" for row in sorted(left - right)]
    lines += [f"only in the projection: {row}" for row in sorted(right - left)]
    if not lines and len(source) != len(projection):
        lines.append(f"{len(source)} rows in the source, {len(projection)} in the projection")
    return lines


def wait_for_all_applied(bed, database, inbox, events):
    def applied():
        seen = bed.cluster.ask_number(database, f"SELECT count(*) FROM {inbox}")
        if seen < events:
            raise Failure(f"{seen} of {events} events are in {inbox}")
        return True

    wait_until(f"{events} events are in {database}'s {inbox}", applied)


def run_catalog(bed, videos=150):
    say(f"(a) catalog: {videos} videos are written, changed, deleted; some transactions are rolled back")
    begun = time.monotonic()
    events = write_catalog(bed, videos)
    say(f"    {events} events committed in {time.monotonic() - begun:.2f} s")
    check("every committed event is in the outbox, none of a rolled-back transaction",
          bed.cluster.number("catalog", "SELECT count(*) FROM catalog.outbox"), events)
    wait_for_all_applied(bed, "catalog_read", "catalog_read.inbox", events)
    wait_until("every event is published",
               lambda: bed.cluster.ask_number("catalog", "SELECT sum(pending) FROM postbox.publication_status") == 0)
    say(f"    all of them applied in the other database {time.monotonic() - begun:.2f} s after the first write")
    compare_catalog(bed)
    check("no more events were applied than emitted",
          bed.cluster.number("catalog_read", "SELECT count(*) FROM catalog_read.inbox"), events)
    check("nothing was rejected", bed.cluster.number("catalog_read", "SELECT count(*) FROM postbox.dead_letter"), 0)
    return events


def compare_catalog(bed):
    source = catalog_rows(bed, "catalog", "catalog.video")
    projection = catalog_rows(bed, "catalog_read", "catalog_read.video_projection")
    found = differences(source, projection)
    if found:
        raise Failure("the projection differs from its source:\n  " + "\n  ".join(found[:20]))
    check(f"the projection equals its source, row by row ({len(source)} rows)", bool(source))


def measure_latency(bed, samples=200):
    """Commits one change at a time and waits until it is visible in the projection. Returns seconds, sorted: from the
    moment at which the client knew of the COMMIT to the moment at which another client saw the new version."""
    writer, reader = bed.session("catalog"), bed.session("catalog_read")
    videos = [row[0] for row in writer.sql("SELECT video_id FROM catalog.video ORDER BY video_id LIMIT 20")]
    latencies = []
    for number in range(samples):
        video = videos[number % len(videos)]
        writer.sql("BEGIN")
        writer.sql(_update(video, 100000 + number))
        version = writer.sql(f"SELECT version FROM catalog.video WHERE video_id = '{video}'")[0][0]
        writer.sql("COMMIT")
        committed = time.monotonic()
        seen = reader.sql(f"SELECT postbox.wait_for_version('catalog_read.video_projection', '{video}', {version}, '60s')")
        latencies.append(time.monotonic() - committed)
        if seen != [["t"]]:
            raise Failure(f"version {version} of video {video} was not visible within 60 s")
    compare_catalog(bed)
    return sorted(latencies)


def percentile(ordered, part):
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


# ---- (b) points -------------------------------------------------------------------------------------------------------


def points_messages(users, events, times):
    """The messages to publish, and the points that they add up to for each user."""
    dice = random.Random(20231027)
    messages, sums, versions = [], {}, {}
    ids = [f"usr_{uuid.UUID(int=dice.getrandbits(128), version=4)}" for _ in range(users)]
    for _ in range(events):
        user = dice.choice(ids)
        points = dice.randint(1, 100)
        event_type = "USER_LOGGED_IN" if user in sums else "USER_REGISTERED"
        event = f"evt_{uuid.UUID(int=dice.getrandbits(128), version=4)}"
        sums[user] = sums.get(user, 0) + points
        versions[user] = versions.get(user, 0) + 1
        body = {"eventId": event, "eventType": event_type, "userId": user, "points": points,
                "timestamp": "2023-10-27T10:00:00Z"}
        messages.append({
            "topic": POINTS_TOPIC, "data": json.dumps(body), "ordering_key": user, "times": times,
            "attributes": {"event_id": event, "event_type": event_type, "aggregate_type": "user", "aggregate_id": user,
                           "version": str(versions[user]), "occurred_at": "2023-10-27T10:00:00Z", "schema_version": "v1"}})
    return messages, sums


def run_points(bed, puller, users=20, events=300):
    """`puller` is the running puller of database points; it is asked how many duplicates it has seen."""
    by_emulator = bed.emulator.kind == "embedded"  # Google's emulator cannot redeliver
    say(f"(b) points: {events} events for {users} users from Google's Node client, every message "
        + ("delivered twice by the emulator" if by_emulator else "published twice by the client"))
    messages, expected = points_messages(users, events, 1 if by_emulator else 2)
    before = len(puller.outcomes("duplicate"))
    bed.publish(messages)
    wait_for_all_applied(bed, "points", "points.inbox", events)

    def all_duplicates():
        seen = len(puller.outcomes("duplicate")) - before
        if seen < events:
            raise Failure(f"{seen} of {events} second deliveries were seen")
        return seen

    duplicates = wait_until("every message was delivered a second time", all_duplicates)
    check(f"every message was delivered twice ({duplicates} duplicates were recognised)", duplicates >= events)
    check("each event is in the inbox once", bed.cluster.number("points", "SELECT count(*) FROM points.inbox"), events)
    actual = {user: int(points) for user, points in bed.cluster.sql("points", "SELECT user_id, points FROM points.user_points")}
    found = differences(expected.items(), actual.items())
    if found:
        raise Failure("the points are not what the events add up to:\n  " + "\n  ".join(found[:20]))
    check(f"the points of all {len(actual)} users are what the events add up to", len(actual), len(expected))
    check("nothing was rejected", bed.cluster.number("points", "SELECT count(*) FROM postbox.dead_letter"), 0)
    return events, duplicates
