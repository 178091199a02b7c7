"""A rebuild of a projection: how fast events are applied to the shadow, and how long sessions that write the target wait at the end."""

import time

import bed
from bed import median
from harness import Failure, say

BATCH = 500
PREPARED = """
    INSERT INTO app.prepared
    SELECT n / {batch}, array_agg(ROW(md5(n::text)::uuid::text, 'video.updated', 'video', 'v' || n, 1,
        convert_to(format('{{"title": "a title of moderate length %s", "duration": %s}}', n, n % 9000), 'UTF8'), '{{}}', NULL)::postbox.event ORDER BY n)
    FROM generate_series(0, {rows} - 1) AS n GROUP BY 1"""
APPLY = "SELECT count(postbox.inbox_apply_batch('{inbox}', p.events)) FROM app.prepared p"
COLUMNS = "video_id text PRIMARY KEY, title text NOT NULL, duration int, views int NOT NULL DEFAULT 0, version bigint NOT NULL"
PROJECTION = """SELECT postbox.create_projection('app.inbox', '{video.updated}', 'app.video', columns => '{"title": "title", "duration": "duration"}')"""


def rebuild(report, smoke):
    rows, rounds = (1_000, 1) if smoke else (1_000_000, 3)
    with bed.opened(smoke) as server:
        server.sql(f"""
            CREATE TABLE app.video ({COLUMNS});
            CREATE TABLE app.copy ({COLUMNS});
            CREATE TABLE app.prepared (number int PRIMARY KEY, events postbox.event[] NOT NULL);
            SELECT postbox.create_inbox('app.inbox');
            {PROJECTION}""")
        server.sql(PREPARED.format(batch=BATCH, rows=rows))
        say(f"rebuild: {rows:,} rows, {rounds} rounds")
        live, shadow, copied, filled, same, tenth = [], [], [], [], [], []
        for _ in range(rounds):
            server.sql("TRUNCATE app.inbox, app.video")
            server.settle_down()
            live.append(rows / timed(server, APPLY.format(inbox="app.inbox")))
            shadow.append(rows / begin(server))
            same.append(waited(server, rows, 0))
            begin(server)
            server.sql("UPDATE app.video SET title = 'wrong' WHERE duration % 10 = 0")
            tenth.append(waited(server, None, None))
            begin(server)
            server.sql("TRUNCATE app.video")
            server.settle_down()
            filled.append(rows / (waited(server, None, rows) / 1000))
            server.sql("TRUNCATE app.copy")
            server.settle_down()
            copied.append(rows / timed(server, "INSERT INTO app.copy SELECT * FROM app.video"))
        report.line("events applied to the live projection", median(live), "events/s")
        report.against("events applied to the shadow", shadow, "events/s", live, "events applied to the live projection", ">= 0.75")
        report.line("INSERT ... SELECT", median(copied), "rows/s")
        report.against("rows of an empty target", filled, "rows/s", copied, "INSERT ... SELECT", None)
        report.line("writers wait if nothing differs", median(same), "ms")
        report.against("writers wait if a tenth of the rows differs", tenth, "ms", same, "writers wait if nothing differs", None)


def timed(server, statement):
    begun = time.monotonic()
    server.watch.sql(statement)
    return time.monotonic() - begun


def begin(server):
    """A rebuild whose shadow has all events. The seconds of these."""
    server.sql("SELECT postbox.rebuild_projection('app.video')")
    server.settle_down()
    return timed(server, APPLY.format(inbox="app.video_rebuild_inbox"))


def waited(server, kept, inserted):
    """The milliseconds for which the target was locked."""
    outcome = server.watch.sql("SELECT postbox.finish_rebuild('app.video')")
    (updated, new, milliseconds), = server.watch.sql("""
        SELECT updated, inserted, extract(epoch FROM locked_for) * 1000 FROM postbox.rebuild_status""")
    if outcome != [["done"]] or (inserted is not None and int(new) != inserted) or (kept is not None and int(updated) != 0):
        raise Failure(f"the rebuild ended with {outcome}: {updated} rows updated, {new} inserted")
    return float(milliseconds)
