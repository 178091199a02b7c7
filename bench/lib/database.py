"""The database side by itself, measured with bench/drain.cc: drain, backlog, wal, held-transaction."""

import bed
from bed import Bed, median
from harness import say


def drain(report, smoke):
    """Claim to confirm of both kinds of outbox, and a bare SELECT of the same rows."""
    log_events, table_events, rounds = (20_000, 4_000, 1) if smoke else (1_000_000, 100_000, 3)
    with Bed(smoke) as server:
        say(f"drain: {log_events} events in a log, {table_events} in a table, {rounds} rounds")
        server.load(server.outbox("app.log"), log_events)
        server.settle_down()
        log, table, select = [], [], []
        first = server.publication("app.log")
        server.drain(first, "select")  # into the caches
        for number in range(rounds):
            name = server.outbox(f"app.table_{number}", "table")
            server.load(name, table_events)
            server.settle_down()
            select.append(server.drain(first, "select"))
            publication = server.publication("app.log")
            log.append(server.drain(publication))
            server.drop_publication(publication)
            publication = server.publication(name)
            table.append(server.drain(publication))
            server.sql(f"SELECT postbox.drop_outbox('{name}')")
        expect_all(log, log_events)
        expect_all(select, log_events)
        expect_all(table, table_events)
        rates = {case: median(run["rate"] for run in runs) for case, runs in
                 (("log", log), ("table", table), ("select", select))}
        report.line("select", rates["select"], "events/s")
        report.line("table", rates["table"], "events/s")
        report.line("log", rates["log"], "events/s", rates["log"] / rates["table"], "table", ">= 15")
        report.line("log", rates["log"], "events/s", rates["log"] / rates["select"], "select", ">= 0.7")


def expect_all(runs, events):
    for run in runs:
        if run["events"] != events:
            raise bed.Failure(f"{run['events']:.0f} events instead of {events}")
