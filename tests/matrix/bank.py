"""What the fault matrix and the soak run under: a bank whose accounts are changed by many writers, and three records of
what happened.

  journal   in the bank's own database: each event, written in the transaction that emits it. What is in here is committed.
  effects   where the events are applied: each time that an event took effect, appended by a handler. No unique key.
  witness   the same in another cluster that no fault reaches: what was on the topic, whatever became of the bank.

Each kind of outbox has a bank of its own. What the journal has and a record of effects has not is lost; what only the
effects have is a ghost.
"""

import contextlib
import dataclasses
import re
import signal
import threading

from harness import Failure, wait_until

KINDS = ("log", "table")
LANES = {"log": 4, "table": 1}  # a log's lanes are shared by the workers, a table has but one
# A generation of a log is written to for a minute at least, which is longer than a cell.
ROTATION = """UPDATE postbox.outbox SET generation_span = '1 second' WHERE relation = 'bank.outbox'::regclass;
        SELECT format('ALTER TABLE bank.outbox ALTER generation SET DEFAULT (%s)', postbox.generation_expression('1 second')) \\gexec"""
ACCOUNTS = 40
HASTY = "hasty"  # an account whose events are lost with a primary, and get the same versions again
POISON = "poison"  # an account whose events Pub/Sub refuses while a fault says so

# A third of the events has an id that is no UUIDv7. :hurried is the percentage of transactions that do not wait for their WAL.
TRANSACTION = rf"""
\set account random(1, {ACCOUNTS})
\set delta random(-500, 500)
\set fate random(1, 100)
\set hurry random(1, 100)
BEGIN;
\if :hurry <= :hurried
SET LOCAL synchronous_commit = off;
\endif
\if :fate <= 10
SELECT bank.change(:account, :delta, 'ghost');
ROLLBACK;
\elif :fate <= 30
SELECT bank.change(:account, :delta, 'first');
SAVEPOINT s;
SELECT bank.change(:account, :delta, 'ghost');
ROLLBACK TO SAVEPOINT s;
SELECT bank.change(:account, :delta, 'second');
COMMIT;
\elif :fate <= 35
SELECT bank.close(:account);
COMMIT;
\else
SELECT bank.change(:account, :delta, 'first');
COMMIT;
\endif
"""

# An event of each account.
TOUCH = f"""SELECT bank.change(account, 1, 'first') FROM generate_series(1, {ACCOUNTS}) AS account;
    SELECT bank.change('{HASTY}', 1, 'first')"""
READER = """
    CREATE SCHEMA {schema};
    CREATE TABLE {schema}.account (account_id text PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL);
    CREATE TABLE {schema}.effect (id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid, account_id text, version bigint);
    CREATE FUNCTION {schema}.note(event postbox.event) RETURNS void LANGUAGE sql AS
        'INSERT INTO {schema}.effect (event_id, account_id, version)
         VALUES ((event).event_id::uuid, (event).aggregate_id, (event).version)';
    SELECT postbox.create_inbox('{schema}.inbox', retention => '{retention}');
    SELECT postbox.create_projection('{schema}.inbox', ARRAY['account.changed', 'account.closed'], '{schema}.account',
        delete_types => ARRAY['account.closed']);
    SELECT postbox.create_handler('{schema}.inbox', ARRAY['account.changed', 'account.closed'], '{schema}.note(postbox.event)');
    SELECT postbox.create_subscription('{schema}', '{schema}.inbox', '{subscription}',
        min_backoff => '100ms', max_backoff => '1s');
"""


def database(kind):
    return f"bank_{kind}"


def topic(kind):
    return f"bank.{kind}.events"


def subscription(kind, reader):
    return f"bank.{kind}.events.bank-{reader}"


def emulator_flags():
    flags = ["--release-on-disconnect"]
    for kind in KINDS:
        flags += ["--topic", topic(kind)]
        for reader in ("reader", "witness"):
            flags += ["--subscription", f"{subscription(kind, reader)}={topic(kind)},ordered,ack-deadline=10"]
    return flags


def create_bank(cluster, kind, retention, inbox_retention, tablespace=None):
    where = f" TABLESPACE {tablespace}" if tablespace else ""
    cluster.sql("postgres", f"CREATE DATABASE {database(kind)}{where}")
    cluster.sql(database(kind), f"""
        CREATE EXTENSION postbox;
        CREATE SCHEMA bank;
        CREATE TABLE bank.account (account_id text PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL, open boolean NOT NULL);
        INSERT INTO bank.account SELECT account, 0, 0, false FROM generate_series(1, {ACCOUNTS}) AS account;
        INSERT INTO bank.account VALUES ('{POISON}', 0, 0, false), ('{HASTY}', 0, 0, false);
        CREATE TABLE bank.journal (id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid, account_id text, version bigint, fate text);
        SELECT postbox.create_outbox('bank.outbox', '{kind}', retention => '{retention}');
        {ROTATION if kind == 'log' else ''}
        SELECT postbox.create_publication('accounts', 'bank.outbox', '{topic(kind)}', lanes => {LANES[kind]}, max_attempts => 1,
            base_backoff => '100ms', max_backoff => '1s');
        CREATE FUNCTION bank.emit(type text, chosen text, balance bigint, fate text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            receipt postbox.receipt;
        BEGIN
            receipt := postbox.outbox_emit('account', chosen, type,
                jsonb_build_object('account_id', chosen, 'balance', balance),
                source_event_id => CASE WHEN random() < 0.3 THEN gen_random_uuid()::text END);
            UPDATE bank.account AS a SET version = receipt.version WHERE a.account_id = chosen;
            INSERT INTO bank.journal (event_id, account_id, version, fate)
                VALUES (receipt.event_id, chosen, receipt.version, fate);
        END $$;
        CREATE FUNCTION bank.change(chosen text, delta bigint, fate text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            changed bigint;
        BEGIN
            UPDATE bank.account AS a SET balance = a.balance + delta, open = true WHERE a.account_id = chosen
                RETURNING a.balance INTO changed;
            PERFORM bank.emit('account.changed', chosen, changed, fate);
        END $$;
        CREATE FUNCTION bank.change(chosen int, delta bigint, fate text) RETURNS void LANGUAGE sql AS
            'SELECT bank.change(chosen::text, delta, fate)';
        CREATE FUNCTION bank.close(chosen int) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE bank.account AS a SET open = false WHERE a.account_id = chosen::text;
            PERFORM bank.emit('account.closed', chosen::text, 0, 'first');
        END $$;
    """)
    cluster.sql(database(kind), READER.format(
        schema="reader", subscription=subscription(kind, "reader"), retention=inbox_retention))


def create_witness(cluster):
    cluster.create_database("witness")
    for kind in KINDS:
        cluster.sql("witness", READER.format(schema=f"reader_{kind}", subscription=subscription(kind, "witness"), retention="14 days"))


class Load:
    """pgbench against one bank, started again whenever a fault has ended it."""

    def __init__(self, site, kind, clients, rate, hurried=30):
        self.kind = kind
        self._site = site
        self._script = site.directory / "transaction.sql"
        self._script.write_text(TRANSACTION)
        self._arguments = ["-n", "-c", str(clients), "-j", "1", "-R", str(rate), "-T", "36000", "-D", f"hurried={hurried}", "-f", self._script]
        self._ended = threading.Event()
        self._process = None
        self.errors = []  # what the server has told the clients
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended.is_set():
            process = self._site.pgbench(self.kind, self._arguments, self._error)
            self._process = process
            if self._ended.is_set():
                process.kill()
            with contextlib.suppress(Failure):
                process.wait(36000)
            self._ended.wait(0.1)  # before the next try to connect

    def _error(self, line):
        found = re.search(r"(ERROR|FATAL|PANIC): .*", line)
        if found:
            self.errors.append(found.group(0))

    def stop(self):
        self._ended.set()
        if self._process:
            self._process.kill(signal.SIGKILL)
        self._thread.join()


@dataclasses.dataclass
class Figures:
    events: int = 0       # committed
    lost: int = 0
    disordered: int = 0   # took effect after a later one of their key
    twice: int = 0
    ghosts: int = 0
    again: int = 0        # messages beyond one for each event

    WRONG = ("lost", "disordered", "twice", "ghosts")

    def wrong(self):
        return {name: getattr(self, name) for name in self.WRONG if getattr(self, name)}


class _Effects:
    """One record of effects, read on from where it was read before."""

    def __init__(self):
        self.last_id = 0
        self.counts = {}
        self.versions = {}
        self.twice = self.disordered = 0

    def read(self, cluster, where, schema):
        for number, event, account, version in cluster.ask(
                where, f"SELECT id, event_id, account_id, version FROM {schema}.effect WHERE id > {self.last_id} ORDER BY id"):
            self.last_id = max(self.last_id, int(number))
            count = self.counts[event] = self.counts.get(event, 0) + 1
            if count > 1:
                self.twice += 1
                continue
            self.disordered += int(version) <= self.versions.get(account, 0)
            self.versions[account] = max(int(version), self.versions.get(account, 0))


class Ledger:
    """Compares the records of one bank. The figures are what has happened since they were taken last."""

    def __init__(self, site, kind):
        self._site, self._kind = site, kind
        self._journal = set()
        self._last_id = 0
        self._effects = {"reader": _Effects(), "witness": _Effects()}
        self._before = Figures()
        self._sent = 0  # messages, when all was settled last

    def places(self):
        yield "reader", self._site.cluster, database(self._kind), "reader"
        yield "witness", self._site.witness, "witness", f"reader_{self._kind}"

    def behind(self):
        """What is committed and has not taken effect, by plain counts; and the state of the publication."""
        effects = "SELECT count(DISTINCT event_id) FROM {}.effect"
        (committed, applied, *status), = self._site.cluster.ask(database(self._kind), f"""
            SELECT (SELECT count(*) FROM bank.journal), ({effects.format("reader")}), state, pending, parked FROM postbox.publication_status""")
        (seen,), = self._site.witness.ask("witness", effects.format(f"reader_{self._kind}"))
        return {"reader": int(committed) - int(applied), "witness": int(committed) - int(seen)}, status

    def settle(self, timeout):
        """Waits until all that is committed has taken effect everywhere and nothing is on its way. Returns why it has not."""
        def settled():
            left, status = self.behind()
            if any(count > 0 for count in left.values()):
                raise Failure(f"{self._kind}: not applied: {left}")
            if status != ["active", "0", "0"]:
                raise Failure(f"{self._kind}: not all is marked as published (state, pending, parked): {status}")
            seen = self._site.bed.emulator.stats_of_subscriptions([subscription(self._kind, reader) for reader in ("reader", "witness")])
            for stats in seen:
                if stats["backlog"] or stats["outstanding"]:
                    raise Failure(f"{self._kind}: messages are not acknowledged: {stats}")
            self._sent = seen[1]["delivered"] - seen[1]["redelivered"]
            return True

        try:
            wait_until("all that is committed is applied", settled, timeout, interval=0.2)
        except Failure as late:
            return str(late)
        return None

    def take(self):
        """The figures since the last time, and the differences between the accounts and their projections."""
        for event, in self._new_journal():
            self._journal.add(event)
        total = Figures(events=len(self._journal), again=self._sent - len(self._journal))
        for name, cluster, where, schema in self.places():
            effects = self._effects[name]
            effects.read(cluster, where, schema)
            total.lost += len(self._journal - effects.counts.keys())
            total.ghosts += len(effects.counts.keys() - self._journal)
            total.twice += effects.twice
            total.disordered += effects.disordered
        since = Figures(**{field.name: getattr(total, field.name) - getattr(self._before, field.name)
                           for field in dataclasses.fields(Figures)})
        self._before = total
        return since, self._differences()

    def dead_letters(self):
        return [f"{self._kind}: {name} has {count} dead letters" for name, cluster, where, _ in self.places()
                if (count := cluster.ask_number(where, "SELECT count(*) FROM postbox.dead_letter"))]

    def _new_journal(self):
        rows = self._site.cluster.ask(database(self._kind), f"SELECT id, event_id FROM bank.journal WHERE id > {self._last_id} ORDER BY id")
        for number, event in rows:
            self._last_id = int(number)
            yield event,

    def _differences(self):
        rows = "SELECT account_id, balance, version FROM {} ORDER BY account_id"
        source = self._site.cluster.ask(database(self._kind), rows.format("bank.account WHERE open"))
        return [f"{self._kind}: {name} has {len(set(map(tuple, there)) ^ set(map(tuple, source)))} other rows"
                for name, cluster, where, schema in self.places()
                if (there := cluster.ask(where, rows.format(f"{schema}.account"))) != source]
