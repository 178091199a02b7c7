"""What the six drills share: one database that both emits and applies, so that a crash of its server hits both sides, and
a second subscription on which Google's Node client sees what was on the topic.

The effects of an event are visible in two places. The projection (account) shows whether an older version overwrote a
newer one. The journal, which a handler appends to and which has no unique key, shows each time that an event took effect.
"""

import collections
import contextlib
import os
import pathlib
import signal

import harness
from harness import Failure, check, wait_until

TOPIC = "bank.account.events"
SUBSCRIPTION = "bank.account.events.bank-projection"
WITNESS = "bank.account.events.outside-witness"
DATABASE = "bank"
# What a reader whose messages come back soon has.
READER_OPTIONS = {"enableMessageOrdering": True, "retryPolicy": {"minimumBackoff": {"seconds": 0}, "maximumBackoff": {"seconds": 1}}}
RESOURCES = [
    {"create_topic": TOPIC}, {"create_topic": f"{TOPIC}.dlq"},
    {"create_subscription": SUBSCRIPTION, "topic": TOPIC, "options": READER_OPTIONS},
    {"create_subscription": WITNESS, "topic": TOPIC, "options": {"enableMessageOrdering": True}},
    {"create_subscription": f"{TOPIC}.dlq.alarm", "topic": f"{TOPIC}.dlq", "options": {}}]
_KILLED = "terminated by signal 9"


@contextlib.contextmanager
def drill(settings=None, resources=()):
    # Messages of a dead consumer are delivered again when its stream ends, not only when its leases do: this is quicker.
    with harness.Testbed("embedded", ["--release-on-disconnect"], settings, [*RESOURCES, *resources]) as bed:
        bed.cluster.create_database(DATABASE)
        bed.cluster.sql(DATABASE, f"""
            CREATE SCHEMA bank;
            SELECT postbox.create_outbox('bank.outbox', 'table');
            SELECT postbox.create_publication('accounts', 'bank.outbox', '{TOPIC}');
            CREATE TABLE bank.account (account_id text PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL);
            CREATE TABLE bank.journal (id bigint GENERATED ALWAYS AS IDENTITY, event_id text, account_id text, version bigint);
            CREATE FUNCTION bank.write_journal(event postbox.event) RETURNS void LANGUAGE sql AS
                'INSERT INTO bank.journal (event_id, account_id, version)
                 VALUES ((event).event_id, (event).aggregate_id, (event).version)';
            SELECT postbox.create_inbox('bank.inbox');
            SELECT postbox.create_projection('bank.inbox', ARRAY['account.changed', 'account.closed'], 'bank.account',
                delete_types => ARRAY['account.closed']);
            SELECT postbox.create_handler('bank.inbox', ARRAY['account.changed'], 'bank.write_journal(postbox.event)');
            SELECT postbox.create_subscription('accounts', 'bank.inbox', '{SUBSCRIPTION}');
        """)
        yield Drill(bed)


def _stat(pid):
    """State and parent of a process, from /proc; None if there is none."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError):
        return None


def alive(pid):
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def children(pid):
    stats = ((int(entry.name), _stat(entry.name)) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit())
    return [child for child, stat in stats if stat and stat[1] == pid]


class Drill:
    def __init__(self, bed):
        self.bed = bed
        self.cluster = bed.cluster

    def sql(self, text):
        return self.cluster.sql(DATABASE, text)

    def number(self, text):
        return self.cluster.number(DATABASE, text)

    def ask(self, query):
        return self.cluster.ask(DATABASE, query)

    def puller(self, **more):
        return self.bed.puller(DATABASE, **more)

    def witness(self):
        return self.bed.receiver(WITNESS)

    def emit(self, accounts, rounds=1):
        """One transaction that changes each account `rounds` times. Returns the event ids."""
        rows = self.sql(f"""
            BEGIN;
            SELECT (postbox.outbox_emit('account', 'a' || account, 'account.changed',
                jsonb_build_object('account_id', 'a' || account, 'balance', 100 * account + round))).event_id
            FROM generate_series(1, {rounds}) AS round, generate_series(1, {accounts}) AS account
            ORDER BY round, account;
            COMMIT;
        """)
        return [row[0] for row in rows]

    def wait_for_crash(self, process="the worker"):
        wait_until(f"{process} was killed and the server noticed",
                   lambda: self.cluster.log_text().count(_KILLED) > 0)

    def hold_worker(self, failpoint):
        """The worker that is started after the crash waits at the failpoint instead of crashing again."""
        self.cluster.set(postbox__failpoint=f"{failpoint}=pause")
        wait_until("the server is back and its worker waits at the failpoint",
                   lambda: f"failpoint {failpoint}: paused" in self.cluster.log_text())

    def release_worker(self):
        self.cluster.set(postbox__failpoint="")

    def kill_server(self):
        """Kills the postmaster with SIGKILL; its children notice and exit. Then starts the server again."""
        pid_file = self.cluster.directory / "data/postmaster.pid"
        postmaster = int(pid_file.read_text().splitlines()[0])
        family = [postmaster, *children(postmaster)]
        os.kill(postmaster, signal.SIGKILL)
        wait_until("the server and all its processes have ended", lambda: not any(alive(pid) for pid in family))
        # A zombie still has its pid, which would look like a running server to the new one.
        for lock in (pid_file, *self.cluster.directory.glob(".s.PGSQL.*.lock")):
            lock.unlink()
        self.cluster.start()

    def wait_applied(self, events):
        """Until all these events are in the inbox and the outbox has none left to publish."""
        def applied():
            (seen, waiting), = self.ask("SELECT (SELECT count(*) FROM bank.inbox), (SELECT count(*) FROM bank.outbox WHERE published_at IS NULL)")
            if int(seen) < len(events) or int(waiting):
                raise Failure(f"{seen} of {len(events)} events in the inbox, {waiting} still to be published")
            return True

        wait_until("all events are published and applied", applied)

    def check_effects(self, events, accounts, rounds):
        """Every event took effect once, in the order of its key, and the projection is what the last ones say."""
        effects = collections.Counter(row[0] for row in self.sql("SELECT event_id FROM bank.journal"))
        check("every event took effect, and once", effects, collections.Counter(events))
        check("within each key in order", self.number("""
            SELECT count(*) FROM (SELECT version, lag(version, 1, 0::bigint) OVER (PARTITION BY account_id ORDER BY id) AS before
                                  FROM bank.journal) AS steps WHERE version <> before + 1"""), 0)
        check("the projection holds the last version of each key",
              self.sql("SELECT account_id, balance, version FROM bank.account ORDER BY length(account_id), account_id"),
              [[f"a{account}", str(100 * account + rounds), str(rounds)] for account in range(1, accounts + 1)])
        check("nothing was rejected", self.number("SELECT count(*) FROM postbox.dead_letter"), 0)
