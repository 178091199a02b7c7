"""From the backlog of an emulator to the commit, on the same processors: pull."""

import contextlib
import subprocess
import time

import bed
import harness
import processes
from bed import DATABASE, Failure, median
from harness import say, wait_until

KEYS = 1_000
SUBSCRIPTION = f"{bed.TOPIC}.bench-reader"
BARE_SUBSCRIPTION = f"{bed.TOPIC}.bench-bare"
OUTSTANDING = 10_000  # max_outstanding_messages, as a subscription has it
BATCH = 500  # batch_size, as a subscription has it
PER = 100_000  # events, of the processor times


def pull(report, smoke):
    """Outbox events that were published to an emulator, pulled and applied."""
    with bed.opened(smoke, postbox__endpoint="http://127.0.0.1:1") as server:
        server.sql("CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL)")
        against_sql(report, server, *(1, 1_000) if smoke else (5, 200_000))
        try:
            against_bare(report, server, *(1, 500) if smoke else (3, 20_000))
        except harness.Skip as why:
            if not smoke:
                raise bed.Incomplete(str(why)) from why
            say(f"    {why}")


@contextlib.contextmanager
def outbox(server, events):
    server.load(server.outbox("app.outbox"), events, f"'v_' || n % {KEYS}", 1_000)
    server.settle_down()
    yield
    server.sql("SELECT postbox.drop_outbox('app.outbox')")


def against_sql(report, server, rounds, events):
    """The embedded emulator, and the same events applied by SQL."""
    say(f"pull: {events} events of {KEYS} keys, {rounds} rounds")
    by_sql, pulled, spent = [], [], []
    with outbox(server, events):
        for number in range(rounds):
            by_sql.append(sql_once(server, f"sql_{number}", events))
            with embedded(server) as pubsub:
                before = publish(server, pubsub, events)
                rate, seconds = pull_once(server, pubsub, f"pull_{number}", SUBSCRIPTION, events)
            seconds["emulator"] -= before
            pulled.append(rate)
            spent.append({**seconds, "emulator, publishing": before})
    report.line("SQL apply", median(by_sql), "events/s")
    report.against("end to end", pulled, "events/s", by_sql, "SQL apply", ">= 0.75")
    for process in spent[0]:
        report.line(f"{process}, processor time of {PER:,} events", median(each[process] for each in spent) / events * PER, "s")


def against_bare(report, server, rounds, events):
    """Google's emulator, and a bare loop with the same messages."""
    bare, pulled = [], []
    with outbox(server, events), google(server) as pubsub:
        say(f"pull: {events} events from Google's emulator, {rounds} rounds")
        for number in range(-1 if rounds > 1 else 0, rounds):  # in the first one its code is compiled
            publish(server, pubsub, events)
            if number % 2 == 0:
                bare.append(bare_once(pubsub, events))
            pulled.append(pull_once(server, pubsub, f"google_{number + 1}", SUBSCRIPTION, events)[0])
            if number % 2 != 0:
                bare.append(bare_once(pubsub, events))
    counted = slice(-rounds, None)
    report.line("Google's emulator, bare loop", median(bare[counted]), "messages/s")
    report.against("Google's emulator", pulled[counted], "events/s", bare[counted], "Google's emulator, bare loop", ">= 0.95")


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


def pull_once(server, pubsub, name, subscription, events):
    """The rate, and the processor seconds of each process that takes part, since it began."""
    with reading(server, name) as inbox:
        server.settle_down()
        server.sql(f"SELECT postbox.create_subscription('{name}', '{inbox}', '{subscription}')")
        puller = server.puller(DATABASE, verbose=False, endpoint=pubsub.endpoint, arguments=("--subscription", name))
        backends = f"SELECT pid FROM pg_stat_activity WHERE application_name = 'postbox pull {name}'"
        applied = f"SELECT coalesce(sum(applied), 0) FROM postbox.subscription_status WHERE subscription = '{name}'"
        wait_until("the puller applies", lambda: server.watch.sql(backends))
        with contextlib.ExitStack() as profiles:
            for process, pid in (("puller", puller.process.pid), ("emulator", pubsub.process.pid), ("backend", server.watch.sql(backends)[0][0])):
                profiles.enter_context(bed.profile(server, pid, f"{process}-{name}"))
            wait_until("all is applied", lambda: int(server.watch.sql(applied)[0][0]) >= events, bed.PATIENCE, 0.2)
        seconds = {"puller": processes.cpu_seconds(puller.process.pid), "emulator": processes.cpu_seconds(pubsub.process.pid),
                   "backends": sum(processes.cpu_seconds(int(pid)) for pid, in server.watch.sql(backends))}
        puller.stop()
        check_applied(server, inbox, events)
        # Transactions are short, so when one began is about when it ended.
        took = float(server.sql(f"SELECT extract(epoch FROM max(received_at) - min(received_at)) FROM {inbox}")[0][0])
        server.sql(f"SELECT postbox.drop_subscription('{name}')")
    rate = events / max(took, 1e-6)
    say(f"    pulled: {rate:,.0f} events/s; " + ", ".join(f"{process} {each:.2f} s" for process, each in seconds.items()))
    return rate, seconds


def bare_once(pubsub, events):
    """bench/bare_pull.cc"""
    name = f"projects/{harness.PROJECT}/subscriptions/{BARE_SUBSCRIPTION}"
    done = subprocess.run([str(bed.program("bare_pull")), pubsub.address, name, str(events), str(OUTSTANDING)],
                          capture_output=True, text=True, timeout=bed.PATIENCE, check=False)
    if done.returncode != 0:
        raise Failure(f"bare_pull: {done.stderr}")
    rate = events / (int(done.stdout) / 1e6)
    say(f"    bare loop: {rate:,.0f} messages/s")
    return rate


@contextlib.contextmanager
def embedded(server):
    flags = ["--project", harness.PROJECT, "--topic", bed.TOPIC, "--subscription", f"{SUBSCRIPTION}={bed.TOPIC},ordered"]
    started = harness.Emulator(server, "embedded", flags)
    yield started
    started.process.stop()


@contextlib.contextmanager
def google(server):
    server.emulator = harness.Emulator(server, "google")
    subscriptions = [{"create_subscription": name, "topic": bed.TOPIC, "options": {"enableMessageOrdering": True}}
                     for name in (SUBSCRIPTION, BARE_SUBSCRIPTION)]
    server.emulator.resources({"create_topic": bed.TOPIC}, *subscriptions)
    yield server.emulator
    server.emulator.process.stop()


def publish(server, pubsub, events):
    """All events of the outbox, to the emulator; returns its processor seconds."""
    server.cluster.set(postbox__endpoint=pubsub.endpoint, postbox__publishers=1)
    publication = server.publication("app.outbox")
    wait_until("all is published", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.drop_publication(publication)
    server.cluster.set(postbox__publishers=0)
    wait_until("the worker has left", lambda: server.worker_pid() is None)
    say(f"    {events} events published")
    return processes.cpu_seconds(pubsub.process.pid)
