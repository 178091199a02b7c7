"""What it costs to compare an outbox with an inbox: of everything, and of what has come since the last audit. Both are in one database, and
nothing differs."""

import os
import subprocess
import time

import bed
import processes
from bed import median
from harness import Failure, say, wait_until

KEYS = 100_000
EMITTED = """
    INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
    SELECT (lpad(to_hex(m.now + n / 4096), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || substr(md5(n::text), 1, 15))::uuid, 'video',
           'v_' || n % {keys}, 'video.updated', m.last + n, convert_to('{{"title": "a title of moderate length", "video_id": "v_' || n || '"}}', 'UTF8')
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now, coalesce(max(seq), 0) AS last FROM app.outbox) m,
         generate_series(1, {count}) AS n"""
# What a worker writes when it has read everything.
READ = """
    INSERT INTO postbox.lane (publication, slice, system_identifier, floor, hwm, snapshot, next_xid, zone_upto, zone_snapshot, zone_next_xid)
    SELECT 'p1', 0, c.system_identifier, 0, n.seq, s.now, pg_snapshot_xmax(s.now), ARRAY[n.seq], ARRAY[s.now], ARRAY[pg_snapshot_xmax(s.now)]
    FROM pg_control_system() c, (SELECT max(seq) AS seq FROM app.outbox) n, (SELECT pg_current_snapshot() AS now) s
    ON CONFLICT (publication, slice) DO UPDATE SET hwm = excluded.hwm, snapshot = excluded.snapshot, next_xid = excluded.next_xid,
        zone_upto = excluded.zone_upto, zone_snapshot = excluded.zone_snapshot, zone_next_xid = excluded.zone_next_xid"""
# What a puller leaves of it.
RECEIVED = """
    INSERT INTO app.inbox (event_id, event_type, aggregate_type, aggregate_id, version, outcome, generation)
    SELECT o.id, o.event_type, o.aggregate_type, o.aggregate_id, o.version, 'applied', 0 FROM app.outbox o WHERE o.seq > {after} ORDER BY o.seq"""
APPLIED = """
    INSERT INTO app.video SELECT DISTINCT ON (o.aggregate_id) o.aggregate_id, convert_from(o.payload, 'UTF8')::jsonb ->> 'title', o.version
    FROM app.outbox o WHERE o.seq > {after} ORDER BY o.aggregate_id, o.version DESC
    ON CONFLICT (id) DO UPDATE SET version = excluded.version"""


def audit(report, smoke):
    events, new, rounds = (2_000, 100, 1) if smoke else (1_000_000, 60_000, 3)
    with bed.opened(smoke) as server:
        server.outbox("app.outbox")
        server.insert_by_hand("app.outbox")
        server.sql(f"""
            SELECT postbox.create_publication('p1', 'app.outbox', '{bed.TOPIC}');
            SELECT postbox.create_inbox('app.inbox');
            CREATE TABLE app.video (id text PRIMARY KEY, title text, version bigint);
            SELECT postbox.create_projection('app.inbox', '{{video.updated}}', 'app.video');
            SELECT postbox.create_subscription('s1', 'app.inbox', '{bed.TOPIC}.reader')""")
        arrive(server, events)
        say(f"audit of {events:,} events of {KEYS:,} keys, then of {new:,} new ones, {rounds} rounds")
        per_million = 1_000_000 / events
        plain = [run(server, events, "--no-rows")[0] * per_million for _ in range(rounds)]
        report.line("everything, events", median(plain), "s/million", target="<= 60 s/million")
        before = processes.cpu_seconds_of_ended_children(server.cluster.postmaster)
        whole = [run(server, events) for _ in range(rounds)]
        report.line("everything, events and rows", median([seconds for seconds, _, _ in whole]) * per_million, "s/million",
                    median([seconds * per_million / other for (seconds, _, _), other in zip(whole, plain)]), "everything, events")
        sessions = processes.cpu_seconds_of_ended_children(server.cluster.postmaster) - before
        report.line("everything, processor time of the server", sessions / rounds * per_million, "s/million")
        report.line("everything, processor time of the command", median([used for _, _, used in whole]) * per_million, "s/million")
        report.line("everything, memory of the command", max(memory for _, memory, _ in whole), "MiB", target="<= 200 MiB")
        state = server.directory / "audit-state"
        run(server, events, "--state", state)
        before = processes.cpu_seconds_of_ended_children(server.cluster.postmaster)
        idle = [run(server, 0, "--state", state) for _ in range(rounds)]
        sessions = processes.cpu_seconds_of_ended_children(server.cluster.postmaster) - before
        report.line("nothing new", median([seconds * 1000 for seconds, _, _ in idle]), "ms", target="<= 1000 ms")
        report.line("nothing new, processor time", 1000 * (sessions / rounds + median([used for _, _, used in idle])), "ms")
        busy = []
        for _ in range(rounds):
            arrive(server, new)
            busy.append(run(server, new, "--state", state)[0])
        report.line(f"{new} new events and their rows", median(busy), "s", target="<= 10 s")
        server.sql("SELECT postbox.drop_subscription('s1'); SELECT postbox.drop_inbox('app.inbox')")
        server.drop_publication("p1")


def arrive(server, count):
    """Events that were published, received and applied."""
    after = server.number("SELECT coalesce(max(seq), 0) FROM app.outbox")
    server.sql(EMITTED.format(count=count, keys=KEYS))
    server.sql(READ)
    server.sql(RECEIVED.format(after=after))
    server.sql(APPLIED.format(after=after))
    server.settle_down()


def run(server, expected, *options):
    """Seconds, and MiB and seconds of processor time of the command. Nothing may differ."""
    dsn = server.cluster.dsn(bed.DATABASE)
    others = processes.children(server.cluster.postmaster)
    begun = time.monotonic()
    with subprocess.Popen([server.postbox, "audit", "--source", dsn, "--reader", dsn, *map(str, options)], stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begun
    # Their processor time counts from then on.
    wait_until("its sessions have ended", lambda: processes.children(server.cluster.postmaster) <= others, bed.PATIENCE)
    if process.returncode != 0 or f"events    {expected}" not in text:
        raise Failure(f"audit ended with {process.returncode}:\n{text}")
    return seconds, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime
