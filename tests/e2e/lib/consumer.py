"""What the tests of a consumer under stress share: a service that emits, and a consumer in another database whose handler can
be made to fail.

Event `v` of account `a` has the amount AMOUNT(a, v). The handler adds it to the account's total, which has no version guard,
and writes a journal without a unique key, which shows each time that an event took effect, and in which order. A projection
holds the last event of each account.

With POSTBOX_E2E_FULL=1 these tests run in full: for minutes, with the numbers of docs/reliability.md.
"""

import contextlib
import os
import random
import signal
import time

import drills
import harness
from harness import Failure, check, say, wait_until

FULL = os.environ.get("POSTBOX_E2E_FULL") == "1"
TOPIC = "shop.account.events"
SUBSCRIPTION = "shop.account.events.reader-projection"
READER = {"enableMessageOrdering": True, "retryPolicy": {"minimumBackoff": {"seconds": 0}, "maximumBackoff": {"seconds": 1}}}
RESOURCES = [{"create_topic": TOPIC}, {"create_subscription": SUBSCRIPTION, "topic": TOPIC, "options": READER}]


def amount(account, version):
    """An expression in SQL for the amount of this event."""
    return f"(({account}) * 31 + ({version}) * 7) % 100 + 1"


class Consumer:
    """The two databases, `shop` and `reader`."""

    def __init__(self, bed, **subscription):
        """`subscription`: further arguments of create_subscription."""
        self.bed, self.cluster = bed, bed.cluster
        self.rounds = {}  # the last version of the accounts that have events
        for database in ("shop", "reader"):
            bed.cluster.create_database(database)
        bed.cluster.sql("shop", f"""
            CREATE SCHEMA shop;
            CREATE TABLE shop.wave (first bigint, last bigint, before bigint, PRIMARY KEY (first, last, before));
            SELECT postbox.create_outbox('shop.outbox');
            SELECT postbox.create_publication('accounts', 'shop.outbox', '{TOPIC}', base_backoff => '1h', max_backoff => '1h');
        """)
        more = "".join(f", {name} => '{value}'" for name, value in subscription.items())
        bed.cluster.sql("reader", f"""
            CREATE SCHEMA shop;
            CREATE TABLE shop.account (account_id text PRIMARY KEY, amount bigint NOT NULL, version bigint NOT NULL);
            CREATE TABLE shop.total (account_id text PRIMARY KEY, amount bigint NOT NULL, events bigint NOT NULL);
            CREATE TABLE shop.journal (id bigint GENERATED ALWAYS AS IDENTITY, account_id text, version bigint,
                at timestamptz DEFAULT clock_timestamp());
            -- What fails: any event with the first probability, in a way that is not its fault; a part of the events, chosen by their ids, at
            -- every second attempt, in a way that looks like their fault; and poison.
            CREATE TABLE shop.weather (transient float NOT NULL, permanent float NOT NULL);
            INSERT INTO shop.weather VALUES (0, 0);
            CREATE TABLE shop.poison (account_id text, version bigint, PRIMARY KEY (account_id, version));
            CREATE FUNCTION shop.add_amount(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
            BEGIN
                IF random() < (SELECT transient FROM shop.weather) THEN
                    RAISE 'bad weather' USING ERRCODE = (ARRAY['40001', '40P01', '55P03', '53000'])[1 + floor(4 * random())];
                END IF;
                IF abs(hashtext(event.event_id)::bigint) % 1000 < (SELECT 1000 * permanent FROM shop.weather) AND random() < 0.5
                    OR EXISTS (SELECT FROM shop.poison
                               WHERE poison.account_id = event.aggregate_id AND poison.version = event.version) THEN
                    RAISE 'poison' USING ERRCODE = '23514';
                END IF;
                INSERT INTO shop.journal (account_id, version) VALUES (event.aggregate_id, event.version);
                INSERT INTO shop.total VALUES (event.aggregate_id, (convert_from(event.payload, 'UTF8')::jsonb ->> 'amount')::bigint, 1)
                ON CONFLICT (account_id) DO UPDATE SET amount = total.amount + excluded.amount, events = total.events + 1;
            END $$;
            SELECT postbox.create_inbox('shop.inbox');
            SELECT postbox.create_projection('shop.inbox', ARRAY['account.changed'], 'shop.account');
            SELECT postbox.create_handler('shop.inbox', ARRAY['account.changed'], 'shop.add_amount(postbox.event)');
            SELECT postbox.create_subscription('accounts', 'shop.inbox', '{SUBSCRIPTION}', min_backoff => '50ms'{more});
        """)

    def sql(self, text):
        return self.cluster.sql("reader", text)

    def number(self, text):
        return self.cluster.number("reader", text)

    def ask(self, query):
        return self.cluster.ask("reader", query)

    def ask_number(self, query):
        return self.cluster.ask_number("reader", query)

    def puller(self, **more):
        return self.bed.puller("reader", **{"verbose": False, **more})

    @property
    def emitted(self):
        return sum(self.rounds.values())

    def emit(self, first, last, rounds, attributes="'{}'", through=None):
        """Emits the next `rounds` events of the accounts `first` to `last`, round by round. All must have as many so far.
        `attributes`: an expression in SQL. `through`: what runs SQL, such as a session. After a failure, which may have come after the commit, the same call emits them once."""
        before = self.rounds.get(first, 0)
        version = f"({before} + round)"
        run = through or (lambda text: self.cluster.sql("shop", text))
        run(f"""
            WITH fresh AS (INSERT INTO shop.wave VALUES ({first}, {last}, {before}) ON CONFLICT DO NOTHING RETURNING true)
            SELECT count(postbox.outbox_emit('account', 'a' || account, 'account.changed',
                jsonb_build_object('account_id', 'a' || account, 'amount', {amount("account", version)}), attributes => {attributes}))
            FROM (SELECT account, round FROM generate_series(1, {rounds}) AS round, generate_series({first}, {last}) AS account
                  ORDER BY round, account) AS event, fresh;
        """)
        self.rounds.update({account: before + rounds for account in range(first, last + 1)})

    def poison(self, *events):
        """These (account, version) fail until `repair`."""
        self.sql("INSERT INTO shop.poison VALUES " + ", ".join(f"('a{account}', {version})" for account, version in events))

    def repair(self):
        self.sql("DELETE FROM shop.poison")

    def weather(self, transient, permanent=0):
        self.sql(f"UPDATE shop.weather SET transient = {transient}, permanent = {permanent}")

    def applied(self, accounts=None):
        """How many events have taken effect."""
        where = f"WHERE account_id = ANY ('{{{','.join(f'a{account}' for account in accounts)}}}')" if accounts else ""
        return self.ask_number(f"SELECT coalesce(sum(events), 0) FROM shop.total {where}")

    def wait_applied(self, events, accounts=None, what="all events are applied", **more):
        def enough():
            seen = self.applied(accounts)
            if seen < events:
                raise Failure(f"{seen} of {events} events are applied")
            return True

        wait_until(what, enough, **more)

    def wait_published(self):
        wait_until("every event is published",
                   lambda: self.cluster.ask_number("shop", "SELECT sum(pending) FROM postbox.publication_status") == 0)

    def versions(self, account):
        """Those of its events that took effect, in that order."""
        return [int(row[0]) for row in self.sql(f"SELECT version FROM shop.journal WHERE account_id = 'a{account}' ORDER BY id")]

    def inversions(self):
        """Events that did not take effect directly after the one before them."""
        return self.number("""
            SELECT count(*) FROM (SELECT version, lag(version, 1, 0::bigint) OVER (PARTITION BY account_id ORDER BY id) AS before
                                  FROM shop.journal) AS steps WHERE version <> before + 1""")

    def check_effects(self):
        """Every event took effect once, in the order of its account; total and projection are what the events say."""
        check("every event took effect", self.number("SELECT count(DISTINCT (account_id, version)) FROM shop.journal"), self.emitted)
        check("and once", self.number("SELECT count(*) FROM shop.journal"), self.emitted)
        check("within each account in order", self.inversions(), 0)
        model = " UNION ALL ".join(
            f"SELECT 'a' || {account} AS account_id, sum({amount(account, 'version')}) AS total, count(*) AS events, max(version) AS version "
            f"FROM generate_series(1, {rounds}) AS version" for account, rounds in self.rounds.items())
        check("the totals, and the projection, are what the events add up to", self.sql(f"""
            SELECT model.*, total.amount, total.events, account.version, account.amount
            FROM ({model}) AS model LEFT JOIN shop.total USING (account_id) LEFT JOIN shop.account USING (account_id)
            WHERE (total.amount, total.events, account.version, account.amount) IS DISTINCT FROM
                  (model.total, model.events, model.version, {amount("substr(account_id, 2)::bigint", "model.version")}) LIMIT 20"""), [])
        check("each event is in the inbox once", self.number("SELECT count(*) FROM shop.inbox"), self.emitted)


class Storm:
    """Kills pullers, and sessions of pullers, in turn, while a test waits for something.

    A session that is killed takes the whole server down, which recovers; so the publisher is killed, too.
    """

    def __init__(self, consumer, pullers, interval, most=None):
        """`interval`: between two kills, in seconds. `most`: kills after which it is over."""
        self._consumer, self._interval, self._most = consumer, interval, most
        self._dice = random.Random(20261130)
        self._next = time.monotonic() + interval
        self.pullers = [consumer.puller() for _ in range(pullers)]
        self.killed = {"puller": 0, "session": 0}

    @property
    def strikes(self):
        return sum(self.killed.values())

    def until(self, what, condition, timeout=40 * 60):
        """Kills until the condition holds, and returns its value."""
        def calm_or_struck():
            if time.monotonic() > self._next and self.strikes != self._most:
                self._strike()
                self._next = time.monotonic() + self._interval * self._dice.uniform(0.7, 1.3)
            return condition()

        return wait_until(what, calm_or_struck, timeout=timeout)

    def during(self, work):
        """The result of work that a killed session may interrupt. It may be done again."""
        return wait_until("the server takes it", lambda: (work(),))[0]

    def _strike(self):
        if self.strikes % 2:
            with contextlib.suppress(Failure):
                (pid,), = self._consumer.ask("""
                    SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%' AND datname = 'reader'
                    ORDER BY state = 'active' DESC, random() LIMIT 1""") or [[None]]
                if pid:
                    os.kill(int(pid), signal.SIGKILL)
                    self.killed["session"] += 1
                    return
        victim = self._dice.randrange(len(self.pullers))
        self.pullers[victim].process.kill()
        self.pullers[victim].process.wait()
        self.pullers[victim] = self._consumer.puller()
        self.killed["puller"] += 1

    def end(self):
        say(f"    {self.killed['puller']} pullers and {self.killed['session']} sessions were killed")
        for puller in self.pullers:
            check("a puller ends in order", puller.stop(), 0)
        self.during(self._consumer.applied)  # a server that recovers


def paused_keys(consumer):
    return consumer.ask_number("SELECT count(*) FROM postbox.paused_keys")


@contextlib.contextmanager
def testbed(emulator_flags=(), settings=None, **subscription):
    with harness.Testbed("embedded", ["--release-on-disconnect", *emulator_flags], settings, RESOURCES) as bed:
        yield Consumer(bed, **subscription)
