"""What emitting costs a transaction."""

import time

from bed import Bed, median
from harness import say

CLIENTS = 8
ACCOUNTS = 100_000
PAYLOAD = '{"account_id": "a-:account", "delta": :delta, "text": "an amount has changed"}'
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


def emit(report, smoke):
    """pgbench: a change of a business row, and its event by outbox_emit or by a plain INSERT into the same table."""
    seconds, rounds = (1, 1) if smoke else (15, 3)
    with Bed(smoke) as server:
        say(f"emit: {CLIENTS} clients, {rounds} rounds of {seconds} s each")
        outbox = server.outbox("app.outbox")
        server.sql(f"""
            CREATE TABLE app.account (account int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 80);
            INSERT INTO app.account SELECT n, 0 FROM generate_series(1, {ACCOUNTS}) AS n""")
        server.settle_down()
        # An id as a service would make it by itself: UUIDv7, growing, one range for each client.
        moment = f"{int(time.time() * 1000):012x}"
        event_id = f"{moment[:8]}-{moment[8:]}-7000-8:client-:number"
        emitted = (f"SELECT postbox.outbox_emit('account', 'a-:account', 'account.changed', '{PAYLOAD}'::jsonb, "
                   "version => {version}, outbox => '" + outbox + "')")
        scripts = {
            "insert": f"INSERT INTO {outbox} (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES "
                      f"('{event_id}', 'account', 'a-:account', 'account.changed', :number, '{PAYLOAD}')",
            "emit": emitted.replace("{version}", ":number"),
            "emit, version counted": emitted.replace("{version}", "NULL"),
        }
        files = {}
        for case, statement in scripts.items():
            files[case] = server.directory / f"{case}.sql"
            files[case].write_text(TRANSACTION.replace("{emit}", statement))
        for commit in ("on", "off"):
            rates = {case: [] for case in scripts}
            server.sql(f"ALTER DATABASE bench SET synchronous_commit = {commit}")
            for number in range(rounds):
                for case in scripts:
                    first = 100_000_000_000 * (2 if commit == "off" else 1) + 1_000_000_000 * number
                    server.sql("VACUUM app.account")
                    rates[case].append(server.pgbench(seconds, [files[case]], CLIENTS, "-D", f"number={first}"))
                    say(f"    {case}: {rates[case][-1]:,.0f} tps, synchronous_commit = {commit}")
            suffix = "" if commit == "on" else ", synchronous_commit = off"
            report.line(f"insert{suffix}", median(rates["insert"]), "tps")
            for case in ("emit", "emit, version counted"):
                report.against(case + suffix, rates[case], "tps", rates["insert"], f"insert{suffix}",
                               ">= 0.9" if case == "emit" else None)
