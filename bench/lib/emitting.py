"""What emitting costs a transaction."""

import time

from bed import Bed, median
from harness import say

CLIENTS = 8
ACCOUNTS = 100_000
# Statements are parsed each time, or prepared; a commit waits for the disk, or not.
MODES = (("simple", "on"), ("prepared", "on"), ("prepared", "off"))
TRANSACTION = """
\\set account random(1, 100000)
\\set delta random(-500, 500)
\\set client 100 + :client_id
\\set number :number + 1
BEGIN;
UPDATE app.account SET balance = balance + :delta WHERE account = :account;
{emit};
COMMIT;
"""
PAYLOAD = """'{"text": "an amount has changed", "account_id": "a-1234567", "delta": 100}'"""


def emit(report, smoke):
    """pgbench: a change of a business row, and its event by outbox_emit or by a plain INSERT into the same table."""
    seconds, rounds = (1, 1) if smoke else (10, 3)
    with Bed(smoke) as server:
        say(f"emit: {CLIENTS} clients, {rounds} rounds of {seconds} s each")
        outbox = server.outbox("app.outbox")
        server.sql(f"""
            CREATE TABLE app.account (account int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 80);
            INSERT INTO app.account SELECT n, 0 FROM generate_series(1, {ACCOUNTS}) AS n;
            CREATE TABLE app.counter (aggregate_type text, aggregate_id text, version bigint NOT NULL,
                PRIMARY KEY (aggregate_type, aggregate_id)) WITH (fillfactor = 80);
            INSERT INTO app.counter SELECT 'account', 'a-' || n, 0 FROM generate_series(1, {ACCOUNTS}) AS n;
            INSERT INTO {outbox}_version SELECT * FROM app.counter""")
        server.settle_down()
        files = {}
        for case, statement in statements(outbox).items():
            files[case] = server.directory / f"{case}.sql"
            files[case].write_text(TRANSACTION.replace("{emit}", statement))
        first = 100_000_000_000  # of the numbers in the ids of one run
        for protocol, commit in MODES:
            rates = {case: [] for case in files}
            server.sql(f"ALTER DATABASE bench SET synchronous_commit = {commit}")
            for number in range(rounds):
                order = list(files)
                for case in order[number % len(order):] + order[:number % len(order)]:
                    first += 1_000_000_000
                    server.sql("VACUUM app.account")
                    rates[case].append(server.pgbench(seconds, [files[case]], CLIENTS, "-M", protocol, "-D", f"number={first}"))
                    say(f"    {case}, {protocol}, synchronous_commit {commit}: {rates[case][-1]:,.0f} tps")
            suffix = f", {protocol}" + ("" if commit == "on" else ", synchronous_commit off")
            report.line(f"insert{suffix}", median(rates["insert"]), "tps")
            report.against(f"emit{suffix}", rates["emit"], "tps", rates["insert"], f"insert{suffix}", ">= 0.9")
            report.line(f"insert, version counted{suffix}", median(rates["insert, version counted"]), "tps")
            report.against(f"emit, version counted{suffix}", rates["emit, version counted"], "tps", rates["insert, version counted"],
                           f"insert, version counted{suffix}", ">= 0.9")


def statements(outbox):
    # An id as a service would make it: UUIDv7, ascending, one range for each client.
    moment = f"{int(time.time() * 1000):012x}"
    event_id = f"('{moment[:8]}-{moment[8:]}-7000-8' || :client || '-' || :number)::uuid"
    emitted = (f"SELECT postbox.outbox_emit('account', 'a-' || :account, 'account.changed', {PAYLOAD}::jsonb, "
               "version => {version}, outbox => '" + outbox + "')")
    return {
        "insert": f"INSERT INTO {outbox} (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES "
                  f"({event_id}, 'account', 'a-' || :account, 'account.changed', :number, {PAYLOAD})",
        "insert, version counted":
            "WITH counted AS (UPDATE app.counter SET version = version + 1 WHERE aggregate_type = 'account' AND "
            "aggregate_id = 'a-' || :account RETURNING version) "
            f"INSERT INTO {outbox} (id, aggregate_type, aggregate_id, event_type, version, payload) SELECT "
            f"{event_id}, 'account', 'a-' || :account, 'account.changed', version, {PAYLOAD} FROM counted",
        "emit": emitted.replace("{version}", ":number"),
        "emit, version counted": emitted.replace("{version}", "NULL"),
    }
