"""From the backlog of a Pub/Sub server to the commit: pull. `postbox pull` with the embedded emulator on the same processors."""

import contextlib
import os
import time

import bed
import harness
from bed import DATABASE, Failure, median
from harness import say, wait_until

KEYS = 1_000
SUBSCRIPTION = f"{bed.TOPIC}.bench-reader"
TICKS = os.sysconf("SC_CLK_TCK")
BATCH = 500  # batch_size, as a subscription has it
PER = 100_000  # events, of the processor times


def pull(report, smoke):
    """Outbox events that were published to the embedded emulator, pulled and applied; and the same events applied by SQL."""
    rounds, events = (1, 1_000) if smoke else (5, 200_000)
    with bed.opened(smoke, postbox__endpoint="http://127.0.0.1:1") as server:
        say(f"pull: {events} events of {KEYS} keys, {rounds} rounds")
        server.sql("CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL)")
        server.load(server.outbox("app.outbox"), events, f"'v_' || n % {KEYS}", 1_000)
        server.settle_down()
        by_sql, pulled, spent = [], [], []
        for number in range(rounds):
            by_sql.append(sql_once(server, f"sql_{number}", events))
            rate, seconds = pull_once(server, f"pull_{number}", events)
            pulled.append(rate)
            spent.append(seconds)
        server.sql("SELECT postbox.drop_outbox('app.outbox')")
        report.line("SQL apply", median(by_sql), "events/s")
        report.against("end to end", pulled, "events/s", by_sql, "SQL apply", ">= 0.75")
        for process in spent[0]:
            report.line(f"{process}, {PER:,} events", median(each[process] for each in spent) / events * PER, "s")


@contextlib.contextmanager
def reading(server, name):
    """An inbox with a projection, while they are needed."""
    inbox = f"app.inbox_{name}"
    server.sql(f"""
        TRUNCATE app.video;
        SELECT postbox.create_inbox('{inbox}');
        SELECT postbox.create_projection('{inbox}', ARRAY['video.updated'], 'app.video')""")
    yield inbox
    server.sql(f"SELECT postbox.drop_inbox('{inbox}')")


def check_applied(server, inbox, events):
    applied = server.number(f"SELECT count(*) FROM {inbox} WHERE outcome = 'applied'")
    if applied != events:
        raise Failure(f"{applied} events applied instead of {events}")


def sql_once(server, name, events):
    """One session, one transaction for each BATCH of events that are there as arrays."""
    with reading(server, name) as inbox:
        server.sql(f"""
            CREATE TABLE bench.batch AS
            SELECT n / {BATCH} AS batch, array_agg(ROW(e.id, e.event_type, e.aggregate_type, e.aggregate_id, e.version, e.payload,
                '{{"schema_version": "v1"}}', e.occurred_at)::postbox.event ORDER BY n) AS events
            FROM (SELECT *, row_number() OVER (ORDER BY seq) - 1 AS n FROM app.outbox) AS e GROUP BY n / {BATCH};
            ALTER TABLE bench.batch ADD PRIMARY KEY (batch)""")
        server.settle_down()
        begin = time.monotonic()
        server.sql(f"""
            DO $$
            BEGIN
                FOR number IN 0..{(events - 1) // BATCH} LOOP
                    PERFORM postbox.inbox_apply_batch('{inbox}', batch.events) FROM bench.batch AS batch WHERE batch.batch = number;
                    COMMIT;
                END LOOP;
            END $$""")
        rate = events / (time.monotonic() - begin)
        check_applied(server, inbox, events)
        server.sql("DROP TABLE bench.batch")
    say(f"    SQL: {rate:,.0f} events/s")
    return rate


def pull_once(server, name, events):
    """The rate, and the processor seconds of each process that takes part."""
    with emulator(server) as pubsub, reading(server, name) as inbox:
        seconds = {"publishing, emulator": publish(server, pubsub, events)}
        server.settle_down()
        server.sql(f"SELECT postbox.create_subscription('{name}', '{inbox}', '{SUBSCRIPTION}')")
        before = cpu(pubsub.process.pid)
        puller = server.puller(DATABASE, verbose=False, endpoint=pubsub.endpoint, arguments=("--subscription", name))
        backends = f"SELECT pid FROM pg_stat_activity WHERE application_name = 'postbox pull {name}'"
        applied = f"SELECT coalesce(sum(applied), 0) FROM postbox.subscription_status WHERE subscription = '{name}'"
        wait_until("the puller applies", lambda: server.watch.sql(backends))
        with bed.profile(server, puller.process.pid, f"puller-{name}"), bed.profile(server, pubsub.process.pid, f"emulator-{name}"), bed.profile(server, server.watch.sql(backends)[0][0], f"backend-{name}"):
            wait_until("all is applied", lambda: int(server.watch.sql(applied)[0][0]) >= events, bed.PATIENCE, 0.2)
        seconds["puller"] = cpu(puller.process.pid)
        seconds["emulator"] = cpu(pubsub.process.pid) - before
        seconds["backends"] = sum(cpu(int(pid)) for pid, in server.watch.sql(backends))
        puller.stop()
        check_applied(server, inbox, events)
        # Transactions are short, so when one began is about when it ended.
        took = float(server.sql(f"SELECT extract(epoch FROM max(received_at) - min(received_at)) FROM {inbox}")[0][0])
        server.sql(f"SELECT postbox.drop_subscription('{name}')")
    rate = events / max(took, 1e-6)
    say(f"    pulled: {rate:,.0f} events/s; " + ", ".join(f"{process} {each:.2f} s" for process, each in seconds.items()))
    return rate, seconds


@contextlib.contextmanager
def emulator(server):
    flags = ["--project", harness.PROJECT, "--topic", bed.TOPIC, "--subscription", f"{SUBSCRIPTION}={bed.TOPIC},ordered"]
    started = harness.Emulator(server, "embedded", flags)
    yield started
    started.process.stop()


def publish(server, pubsub, events):
    """All events of the outbox, to the emulator; returns its processor seconds."""
    server.cluster.set(postbox__endpoint=pubsub.endpoint, postbox__publishers=1)
    publication = server.publication("app.outbox")
    wait_until("all is published", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.drop_publication(publication)
    server.cluster.set(postbox__publishers=0)
    wait_until("the worker has left", lambda: server.worker_pid() is None)
    backlog = pubsub.subscription_stats(SUBSCRIPTION)["backlog"]
    if backlog != events:
        raise Failure(f"{backlog} messages wait instead of {events}")
    return cpu(pubsub.process.pid)


def cpu(pid):
    """Processor seconds of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
