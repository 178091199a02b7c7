"""A database with something to see in each view of the console: events that are published and applied, keys that are parked on both sides, dead
letters, things that are paused, and what was done. In one database, `reader`, which publishes through the emulator and reads its own events.
"""

import contextlib

import harness
from harness import wait_until

LETTERS = 100_000
OPS = ("ops", "operates")  # a member of postbox_operator and pg_monitor
WATCHER = ("watcher", "watches")  # a member of pg_monitor: sees much, may do nothing
EVENT = "7e57ab1e-0000-4000-8000-000000000001"
TRACE = "0af7651916cd43dd8448eb211c80319c"
TOPICS = ("shop.order.events", "shop.refund.events")
RESOURCES = [*({"create_topic": topic} for topic in TOPICS),
             {"create_subscription": "shop.order.events.shipping", "topic": "shop.order.events", "options": {"enableMessageOrdering": True}}]
ROLES = f"""
    CREATE ROLE ops LOGIN PASSWORD '{OPS[1]}' IN ROLE postbox_operator, pg_monitor;
    CREATE ROLE watcher LOGIN PASSWORD '{WATCHER[1]}' IN ROLE pg_monitor;"""
SET_UP = """
    CREATE SCHEMA shop;
    CREATE SCHEMA shipping;
    SELECT postbox.create_outbox('shop.outbox');
    SELECT postbox.create_publication('orders', 'shop.outbox', 'shop.order.events', aggregate_types => ARRAY['order'], base_backoff => '1h', max_backoff => '1h');
    SELECT postbox.create_publication('refunds', 'shop.outbox', 'shop.refund.events', aggregate_types => ARRAY['refund']);
    SELECT postbox.pause_publication('refunds', 'the refund service moves to another region', now() + interval '2 hours');
    CREATE TABLE shipping.parcel (id text PRIMARY KEY, customer text, total numeric CONSTRAINT total_is_positive CHECK (total >= 0), version bigint NOT NULL);
    SELECT postbox.create_inbox('shipping.inbox');
    SELECT postbox.create_projection('shipping.inbox', ARRAY['order.placed', 'order.imported'], 'shipping.parcel', name => 'parcels');
    SELECT postbox.create_subscription('shipping', 'shipping.inbox', 'shop.order.events.shipping', on_error => 'park_key', max_attempts => 1,
        min_backoff => '50ms', parked_min_backoff => '1h', parked_max_backoff => '1h');"""
LETTERS_SQL = f"""
    INSERT INTO postbox.dead_letter (inbox, event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, occurred_at, sqlstate, error,
                                     failed_at, attempts)
        SELECT 'shipping.inbox', gen_random_uuid(), CASE WHEN n % 1000 = 0 THEN 'order.imported' ELSE 'order.placed' END, 'order', 'order-' || 20000 + n, 1,
            convert_to(format('{{"id": "order-%s", "customer": "customer-%s", "total": -%s.50}}', 20000 + n, n % 977, n % 90), 'UTF8'),
            jsonb_build_object('source', 'importer', 'batch', (n / 5000)::text), now() - n * interval '3 s' - interval '2 min', '23514',
            CASE WHEN n % 20000 = 1 THEN 'the needle: ' ELSE '' END || 'new row for relation "parcel" violates check constraint "total_is_positive"',
            now() - n * interval '3 s', 1 + n % 3
        FROM generate_series({LETTERS}, 1, -1) n;
    ANALYZE postbox.dead_letter;"""
HBA = """
local all postgres trust
local all all scram-sha-256
"""


def emit(kind, key, total, more=""):
    return (f"SELECT postbox.outbox_emit('{kind}', '{key}', '{kind}.placed', jsonb_build_object('id', '{key}', 'customer', 'customer-7', 'total', {total})"
            f", outbox => 'shop.outbox'{more});")


class Content:
    """With a worker, an emulator and a puller. Where the emulator refuses an event, its key is parked in the outbox."""

    def __init__(self, bed):
        self.bed = bed
        bed.cluster.sql("postgres", "SET password_encryption = 'scram-sha-256'; CREATE DATABASE reader")
        bed.cluster.sql("reader", "CREATE EXTENSION postbox;" + ROLES + SET_UP + LETTERS_SQL)
        (bed.cluster.directory / "data/pg_hba.conf").write_text(HBA, encoding="utf-8")
        bed.cluster.sql("postgres", "SELECT pg_reload_conf()")
        self.puller = bed.puller("reader", verbose=False)
        self._let_events_flow()

    def _let_events_flow(self):
        self.bed.emulator.fault("rpc=Publish,code=INVALID_ARGUMENT,attribute=refuse:yes")
        refused = """, attributes => '{"refuse": "yes"}'"""
        self.sql(f"SET postbox.traceparent = '00-{TRACE}-b7ad6b7169203331-01';" + emit("order", "order-1", 120, f", event_id => '{EVENT}'") + "RESET postbox.traceparent;"
                 + "".join(emit("order", f"order-{n}", 10 * n) for n in range(2, 30))
                 + "".join(emit("order", f"order-{n}", total) for n, total in ((7, -70), (7, 70), (7, 75), (11, -5), (11, 50)))
                 + emit("order", "order-31", 1, refused) + emit("order", "order-31", 2) + emit("order", "order-32", 1, refused) + emit("refund", "refund-1", 5))
        for side, keys in (("inbox", 2), ("outbox", 2)):
            wait_until(f"keys of the {side} are parked", lambda side=side, keys=keys: self.number(
                f"SELECT count(*) FROM postbox.paused_keys WHERE side = '{side}'") == keys)
        wait_until("the events behind them wait", lambda: self.number("SELECT count(*) FROM postbox.dead_letter WHERE parked") == 5)
        wait_until("the others are applied", lambda: self.number("SELECT count(*) FROM shipping.parcel") == 29)

    def sql(self, text):
        return self.bed.cluster.sql("reader", text)

    def number(self, query):
        return self.bed.cluster.ask_number("reader", query)

    def accept_negative_totals(self):
        """What a redrive waits for."""
        self.sql("ALTER TABLE shipping.parcel DROP CONSTRAINT total_is_positive")

    def end_sessions(self):
        """Of the console. Their users have to log in again."""
        self.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'postbox console' AND usename = 'ops'")


@contextlib.contextmanager
def content(**settings):
    """`settings` are further ones of the server."""
    with harness.Testbed(emulator="embedded", resources=RESOURCES, settings=settings) as bed:
        yield Content(bed)
