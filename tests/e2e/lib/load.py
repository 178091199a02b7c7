"""Load: pgbench with 16 clients and three publisher workers.

Each transaction changes a row and emits an event; some are rolled back, some roll back to a savepoint. Afterwards nothing
is lost, no event of a rolled-back transaction was published, and every key is in order.
"""

import os
import time

import harness
import main_job
from harness import Failure, check, say, wait_until

TOPIC = "bank.account.events"
ACCOUNTS = 100
# Of each client, or for how long.
TRANSACTIONS, SECONDS = 30, int(os.environ.get("POSTBOX_E2E_SECONDS", "0"))
TRANSACTION = r"""
\set account random(1, 100)
\set delta random(-500, 500)
\set fate random(1, 100)
BEGIN;
SELECT load.change(:account, :delta, 'first');
\if :fate <= 10
SELECT load.change(:account, :delta, 'ghost');
ROLLBACK;
\elif :fate <= 30
SAVEPOINT s;
SELECT load.change(:account, :delta, 'ghost');
ROLLBACK TO SAVEPOINT s;
SELECT load.change(:account, :delta, 'second');
COMMIT;
\else
COMMIT;
\endif
"""


RESOURCES = [
    {"create_topic": TOPIC},
    *({"create_subscription": f"{TOPIC}.{reader}", "topic": TOPIC, "options": {"enableMessageOrdering": True}} for reader in ("reader-projection", "witness"))]


def set_up(bed, kind):
    for database in ("bank", "reader"):
        bed.cluster.create_database(database)
    bed.cluster.sql("bank", f"""
        CREATE SCHEMA load;
        CREATE TABLE load.account (account_id text PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL);
        INSERT INTO load.account SELECT account, 0, 0 FROM generate_series(1, {ACCOUNTS}) AS account;
        -- what was emitted, written in the same transaction: what the topic is compared with
        CREATE TABLE load.journal (event_id uuid, account_id text, version bigint, fate text);
        SELECT postbox.create_outbox('load.outbox', '{kind}');
        SELECT postbox.create_publication('accounts', 'load.outbox', '{TOPIC}');
        CREATE FUNCTION load.change(chosen int, delta bigint, fate text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            changed bigint;
            receipt postbox.receipt;
        BEGIN
            UPDATE load.account SET balance = balance + delta WHERE account_id = chosen::text RETURNING balance INTO changed;
            receipt := postbox.outbox_emit('account', chosen::text, 'account.changed',
                jsonb_build_object('account_id', chosen::text, 'balance', changed, 'fate', fate));
            UPDATE load.account SET version = receipt.version WHERE account_id = chosen::text;
            INSERT INTO load.journal VALUES (receipt.event_id, receipt.aggregate_id, receipt.version, fate);
        END $$;
    """)
    bed.cluster.sql("reader", f"""
        CREATE SCHEMA load;
        CREATE TABLE load.account (account_id text PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL);
        SELECT postbox.create_inbox('load.inbox');
        SELECT postbox.create_projection('load.inbox', ARRAY['account.changed'], 'load.account');
        SELECT postbox.create_subscription('accounts', 'load.inbox', '{TOPIC}.reader-projection');
    """)


def load(kind):
    with harness.Testbed("embedded", settings={"postbox.publishers": "3"}, resources=RESOURCES) as bed:
        set_up(bed, kind)
        witness, puller = bed.receiver(f"{TOPIC}.witness"), bed.puller("reader", verbose=False)
        wait_until("three publishers work for this database", lambda: bed.cluster.number(
            "bank", "SELECT count(*) FROM postbox.workers WHERE database = 'bank' AND state = 'running'") == 3)
        script = bed.directory / "transaction.sql"
        script.write_text(TRANSACTION)
        amount = ("-T", SECONDS) if SECONDS else ("-t", TRANSACTIONS)
        say(f"pgbench: 16 clients, {f'{SECONDS} s' if SECONDS else f'{TRANSACTIONS} transactions each'}, 10 % of the transactions rolled back, 20 % with a savepoint")
        done = bed.cluster.run("pgbench", "-n", "-c", "16", "-j", "2", *amount, "-f", script, "bank",
                               timeout=SECONDS + harness.TIMEOUT)
        if done.returncode != 0 or "aborted" in done.stderr:
            raise Failure(f"pgbench failed:\n{done.stdout}{done.stderr}")
        for line in done.stdout.splitlines():
            if "transactions" in line or "tps" in line:
                say(f"    {line}")

        journal = {row[0]: (row[1], int(row[2]), row[3]) for row in bed.cluster.sql(
            "bank", "SELECT event_id, account_id, version, fate FROM load.journal")}
        say(f"    {len(journal)} events were committed")
        check("there was load", len(journal) > 100)
        check("no event of a rolled-back transaction or savepoint is in the source", {fate for _, _, fate in journal.values()}, {"first", "second"})

        ended = time.monotonic()
        main_job.wait_for_all_applied(bed, "reader", "load.inbox", len(journal))
        say(f"    all of them applied {time.monotonic() - ended:.1f} s after the last commit")

        def all_seen():
            seen = len(set(witness.event_ids()))
            if seen < len(journal):
                raise Failure(f"{seen} of {len(journal)} events were seen on the topic")
            return True

        wait_until("every event was seen on the topic", all_seen)
        say(f"    and seen by the Node client after {time.monotonic() - ended:.1f} s")
        compare = "SELECT account_id, balance, version FROM load.account WHERE version > 0 ORDER BY account_id"
        found = main_job.differences(bed.cluster.sql("bank", compare), bed.cluster.sql("reader", compare))
        if found:
            raise Failure("source and projection differ:\n  " + "\n  ".join(found[:20]))
        check("source and projection are equal, row by row", True)
        check("what was applied is what was committed, once each",
              bed.cluster.number("reader", "SELECT count(*) FROM load.inbox"), len(journal))
        check_topic(witness.messages(), journal)
        say(f"    {bed.emulator.calls('Publish')} requests to publish")
        for subscription in bed.emulator.stats()["subscriptions"]:
            say("    " + ", ".join(f"{name} {value}" for name, value in subscription.items()))
        check("the puller ends in order", puller.stop(), 0)


def check_topic(messages, journal):
    versions, seen = {}, set()
    for message in messages:
        attributes = message["attributes"]
        event = attributes["event_id"]
        if event not in journal:
            raise Failure(f"a ghost: event {event} was published, and no committed transaction has emitted it: {message}")
        if event in seen:
            continue  # delivered or published again, which is allowed
        seen.add(event)
        if journal[event][:2] != (attributes["aggregate_id"], int(attributes["version"])):
            raise Failure(f"a message is not what was emitted: {message}, {journal[event]}")
        versions.setdefault(message["ordering_key"], []).append(int(attributes["version"]))
    check("nothing is lost, and nothing of a rolled-back transaction was published", len(seen), len(journal))
    disordered = {key: found for key, found in versions.items() if found != list(range(1, len(found) + 1))}
    check(f"the versions of all {len(versions)} keys came in order and without a gap", disordered, {})
    ids = {message["message_id"] for message in messages}
    say(f"    {len(ids) - len(seen)} events were published again, {len(messages) - len(ids)} messages delivered again")
