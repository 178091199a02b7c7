"""What a scrape of the metrics of a database takes, with nothing and with much to publish, and that it reads no outbox."""

import contextlib
import re
import time
import urllib.request

import bed
from bed import DATABASE, median
from database import milliseconds
from harness import Failure, check, wait_until

SCRAPE = "SELECT name, type, help, labels::text, value::text FROM postbox.metrics WHERE value IS NOT NULL"
SCRAPER = "scraper"


def scrape(report, smoke):
    """By SQL in one session, and by `postbox metrics` over HTTP. A worker runs and measures the gauges; the publication is paused."""
    events, rounds, scrapes = (2_000, 1, 5) if smoke else (5_000_000, 5, 200)
    with bed.opened(smoke, shared_preload_libraries="postbox,pg_stat_statements", pg_stat_statements__track="all", postbox__endpoint="http://127.0.0.1:1",
                    postbox__publishers=1, postbox__time_scale=20 if smoke else 100) as server:
        server.sql(f"CREATE EXTENSION pg_stat_statements; CREATE ROLE {SCRAPER} LOGIN IN ROLE pg_monitor")
        publication = server.publication(server.outbox("app.log"))
        server.sql(f"SELECT postbox.pause_publication('{publication}', 'a bench')")
        url = serve(server)
        cases = ["nothing pending", f"{events:,} pending"]
        by_sql, by_http = [], []
        for number in range(2):
            if number:
                server.load("app.log", events)
            server.settle_down()
            wait_for_gauge(server, number * events)
            with reading_no_table(server):
                by_sql.append([milliseconds(server, SCRAPE, scrapes) for _ in range(rounds)])
                by_http.append([milliseconds_over_http(url, scrapes) for _ in range(rounds)])
        for what, measured in (("", by_sql), ("over HTTP, ", by_http)):
            report.line(what + cases[0], median(measured[0]), "ms")
            report.against(what + cases[1], measured[1], "ms", measured[0], what + cases[0], "<= 5 ms")


def serve(server):
    """The address of a `postbox metrics`, whose role can read the metrics and no outbox."""
    lines = []
    dsn = server.cluster.dsn(DATABASE).replace("user=postgres", f"user={SCRAPER}")
    server.start("metrics", [server.postbox, "metrics", "--dsn", dsn, "--listen", "127.0.0.1:0"], on_line=lines.append)
    said = wait_until("postbox metrics listens", lambda: lines)[0]
    return f"http://{re.fullmatch(r'postbox metrics listening on (.+)', said).group(1)}/metrics"


def milliseconds_over_http(url, times):
    begin = time.monotonic()
    for _ in range(times):
        with urllib.request.urlopen(url, timeout=bed.PATIENCE) as answer:
            if b"postbox_pending_events_estimate" not in answer.read():
                raise Failure("the scrape lacks a gauge of the publication")
    return (time.monotonic() - begin) / times * 1000


def wait_for_gauge(server, events):
    """Until a worker has measured about so many pending events."""
    query = "SELECT value FROM postbox.metrics WHERE name = 'postbox_pending_events_estimate'"

    def near():
        rows = server.watch.sql(query)
        return rows and 0.8 * events <= float(rows[0][0]) <= 1.2 * events

    wait_until(f"the gauge says that {events} events are pending", near, bed.PATIENCE, 0.5)


@contextlib.contextmanager
def reading_no_table(server):
    """What is run within this reads no table: neither by a statement of the role that scrapes, nor in the session that asks by SQL."""
    read = ("SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) FROM pg_stat_xact_all_tables WHERE schemaname NOT IN ('pg_catalog', 'pg_toast')")
    inside = server.watch.sql(f"BEGIN; {SCRAPE}; {read}; COMMIT")[-1][0]
    server.sql("SELECT pg_stat_statements_reset()")
    yield
    statements = server.sql(f"""SELECT s.calls, s.query FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid
        WHERE r.rolname = '{SCRAPER}' OR s.query LIKE '%postbox.metrics%' ORDER BY s.calls DESC""")
    wrong = [query for _, query in statements if "app." in query or "outbox" in query]
    check("a scrape reads no table", (inside, wrong), ("0", []))
    if not any(query == SCRAPE for _, query in statements):
        raise Failure(f"the statements lack the scrape: {statements}")
