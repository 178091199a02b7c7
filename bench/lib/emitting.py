"""What emitting costs a transaction."""

import time

import bed
from bed import median
from harness import say

CLIENTS, SMOKE_CLIENTS = 8, 2
# Statements are parsed each time, or prepared; a commit waits for the disk, or not.
MODES = (("simple", "on"), ("prepared", "on"), ("prepared", "off"))
# What one transaction of PL/pgSQL does in turn, and in a block or not.
LOOP = "DO $$ BEGIN FOR i IN 1..{events} LOOP {step} END LOOP; END $$"
BLOCK = "BEGIN {step} EXCEPTION WHEN division_by_zero THEN NULL; END;"
TRANSACTION = """
\\set account random(1, {accounts})
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
    accounts, rounds, length = (1_000, 1, {"transactions": 20}) if smoke else (100_000, 5, {"seconds": 5})
    clients = SMOKE_CLIENTS if smoke else CLIENTS
    with bed.opened(smoke) as server:
        amount = " ".join(f"{count} {what}" for what, count in length.items())
        say(f"emit: {clients} clients, {rounds} rounds of {amount} each")
        outbox = server.outbox("app.outbox")
        server.insert_by_hand(outbox)
        server.sql(f"""
            CREATE TABLE app.account (account int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 80);
            INSERT INTO app.account SELECT n, 0 FROM generate_series(1, {accounts}) AS n;
            CREATE TABLE app.counter (aggregate_type text, aggregate_id text, version bigint NOT NULL,
                PRIMARY KEY (aggregate_type, aggregate_id)) WITH (fillfactor = 80);
            INSERT INTO app.counter SELECT 'account', 'a-' || n, 0 FROM generate_series(1, {accounts}) AS n;
            INSERT INTO {outbox}_version SELECT 'counted', aggregate_id, version FROM app.counter""")
        server.settle_down()
        files = {}
        for case, statement in statements(outbox).items():
            files[case] = server.directory / f"{case}.sql"
            files[case].write_text(TRANSACTION.replace("{accounts}", str(accounts)).replace("{emit}", statement))
        first = 100_000_000_000  # of the numbers in the ids of one run
        for protocol, commit in MODES:
            rates = {case: [] for case in files}
            server.sql(f"ALTER DATABASE bench SET synchronous_commit = {commit}")
            for number in range(rounds):
                order = list(files)
                for case in order[number % len(order):] + order[:number % len(order)]:
                    first += 1_000_000_000
                    server.sql("VACUUM app.account")
                    rates[case].append(server.pgbench([files[case]], clients, "-M", protocol, "-D", f"number={first}", **length))
                    say(f"    {case}, {protocol}, synchronous_commit {commit}: {rates[case][-1]:,.0f} tps")
            suffix = f", {protocol}" + ("" if commit == "on" else ", synchronous_commit off")
            report.line(f"insert{suffix}", median(rates["insert"]), "tps")
            report.against(f"emit{suffix}", rates["emit"], "tps", rates["insert"], f"insert{suffix}", ">= 0.95")
            report.line(f"insert, version counted{suffix}", median(rates["insert, version counted"]), "tps")
            report.against(f"emit, version counted{suffix}", rates["emit, version counted"], "tps", rates["insert, version counted"],
                           f"insert, version counted{suffix}", ">= 1")
        in_one_transaction(report, server, outbox, accounts, smoke)


def in_one_transaction(report, server, outbox, accounts, smoke):
    """Many events of one key against few; in exception blocks and after savepoints against without, and against the plain INSERT."""
    few, rounds = (50, 1) if smoke else (10_000, 5)
    emitted = "PERFORM postbox.outbox_emit('{kind}', {key}, 'account.changed', {payload}::jsonb, version => {version}, outbox => '{outbox}');"
    inserted = ("INSERT INTO {outbox} (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES "
                "(gen_random_uuid(), '{kind}', {key}, 'account.changed', i, {payload});")
    each, one = "'a-' || i", "'one'"
    cases = {  # statement, kind, key, version, events, in blocks
        "one key, few events": (emitted, "one", one, "NULL", few, False),
        "one key, four times as many": (emitted, "one", one, "NULL", 4 * few, False),
        "one key, in blocks": (emitted, "one", one, "NULL", few, True),
        "plain insert, in blocks": (inserted, "plain", each, "i", few, True),
        "version given": (emitted, "given", each, "i", few, False),
        "version given, in blocks": (emitted, "given", each, "i", few, True),
        "version counted": (emitted, "counted", each, "NULL", few, False),
        "version counted, in blocks": (emitted, "counted", each, "NULL", few, True),
    }
    rates = {case: [] for case in cases}
    client = server.session("bench")
    for number in range(rounds + 1):  # the first one makes plans and rows, and is not counted
        for case, (statement, kind, key, version, events, blocks) in cases.items():
            step = statement.format(kind=kind, key=key, payload=PAYLOAD, version=version, outbox=outbox)
            server.sql(f"VACUUM {outbox}_version")
            begun = time.monotonic()
            client.sql(LOOP.format(events=events, step=BLOCK.format(step=step) if blocks else step))
            if number > 0:
                rates[case].append(events / (time.monotonic() - begun))
    for case in ("one key, few events", "version given", "version counted", "plain insert, in blocks"):
        report.line(case, median(rates[case]), "events/s")
    for case, others, target in (
            ("one key, four times as many", "one key, few events", ">= 0.8"),
            ("one key, in blocks", "one key, few events", ">= 0.67"),
            ("version given, in blocks", "version given", ">= 0.67"),
            ("version counted, in blocks", "version counted", ">= 0.67"),
            ("version given, in blocks", "plain insert, in blocks", ">= 0.67")):
        report.against(f"{case}, against {others}", rates[case], "events/s", rates[others], others, target)
    savepoints(report, server, outbox, accounts, {"transactions": 5} if smoke else {"seconds": 5}, rounds)


def savepoints(report, server, outbox, accounts, length, rounds):
    rates = {}
    for case in ("insert", "emit"):
        file = server.directory / f"savepoints {case}.sql"
        step = f"\\set number :number + 1\n\\set account random(1, {accounts})\nSAVEPOINT s;\n" + statements(outbox)[case] + ";\nRELEASE s;\n"
        file.write_text("\\set client 100 + :client_id\nBEGIN;\n" + 50 * step + "COMMIT;\n")
        rates[case] = (file, [])
    for number in range(rounds):
        for case, (file, values) in rates.items():
            first = 900_000_000_000 + (2 * number + (case == "emit")) * 1_000_000_000
            values.append(50 * server.pgbench([file], 1, "-M", "prepared", "-D", f"number={first}", **length))
    report.line("plain insert, after savepoints", median(rates["insert"][1]), "events/s")
    report.against("after savepoints", rates["emit"][1], "events/s", rates["insert"][1], "plain insert, after savepoints",
                   ">= 0.67")


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
        # A type of its own: where both kinds of versions are of one type, those that are given are counted, too.
        "emit, version counted": emitted.replace("'account'", "'counted'").replace("{version}", "NULL"),
    }
