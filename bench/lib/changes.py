"""What it costs a table to emit its changes: by a trigger for each row, and by postbox.emit_changes for each statement."""

import time

import bed
from bed import median
from harness import say

TABLE = """
    CREATE TABLE app.item (id bigint PRIMARY KEY, title text NOT NULL, amount numeric NOT NULL, changed timestamptz NOT NULL);
    TRUNCATE {outbox}, {outbox}_version"""
ROW_TRIGGER = """
    CREATE OR REPLACE FUNCTION app.each_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {step}; RETURN NULL; END $$;
    CREATE TRIGGER each_row AFTER INSERT OR UPDATE ON app.item FOR EACH ROW EXECUTE FUNCTION app.each_row()"""
INSERTED = """
    INSERT INTO {outbox} (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES
    (gen_random_uuid(), 'item', NEW.id::text, 'item.created', 1, convert_to(to_jsonb(NEW)::text, 'UTF8'))"""
EMITTED = "PERFORM postbox.outbox_emit('item', NEW.id::text, 'item.created', to_jsonb(NEW), outbox => '{outbox}')"
CASES = {  # the plain INSERT counts no versions
    "no trigger": None,
    "row trigger, plain insert": ROW_TRIGGER.replace("{step}", INSERTED),
    "row trigger, outbox_emit": ROW_TRIGGER.replace("{step}", EMITTED),
    "emit_changes": "SELECT postbox.create_change_triggers('app.item', outbox => '{outbox}')",
}


def changes(report, smoke):
    rows, rounds = (300, 1) if smoke else (1_000_000, 3)
    with bed.opened(smoke) as server:
        outbox = server.outbox("app.outbox")
        server.insert_by_hand(outbox)
        file = server.cluster.directory / "data/items"
        server.sql(f"""COPY (SELECT n, 'a title of moderate length ' || n, n * 1.25, now() FROM generate_series(1, {rows}) AS n)
                       TO '{file}'""")
        copied = {case: [] for case in CASES}
        updated = {case: [] for case in CASES}
        single = {case: [] for case in CASES}
        say(f"changes: COPY and UPDATE of {rows:,} rows, {rounds} rounds")
        for number in range(rounds):
            order = list(CASES)
            for case in order[number % len(order):] + order[:number % len(order)]:
                server.sql("DROP TABLE IF EXISTS app.item;" + TABLE.format(outbox=outbox))
                if CASES[case]:
                    server.sql(CASES[case].format(outbox=outbox))
                server.settle_down()
                copied[case].append(rate(server, rows, f"COPY app.item FROM '{file}'"))
                server.settle_down()
                updated[case].append(rate(server, rows // 10, f"UPDATE app.item SET amount = amount + 1 WHERE id <= {rows // 10}"))
                single[case].append(rate(server, rows // 10, f"""
                    DO $$ BEGIN FOR i IN 1..{rows // 10} LOOP INSERT INTO app.item VALUES ({rows} + i, 'a title', 1, now());
                    END LOOP; END $$"""))
        for kind, rates in (("COPY", copied), ("UPDATE", updated), ("INSERT of one row", single)):
            for case, values in rates.items():
                if case == "no trigger":
                    report.line(f"{kind}, {case}", median(values), "rows/s")
                    continue
                target = ">= 0.25" if (kind, case) == ("COPY", "emit_changes") else None
                report.against(f"{kind}, {case}", values, "rows/s", rates["no trigger"], f"{kind}, no trigger", target)


def rate(server, rows, statement):
    begun = time.monotonic()
    server.watch.sql(statement)
    return rows / (time.monotonic() - begun)
