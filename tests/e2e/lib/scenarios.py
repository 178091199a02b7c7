"""Tests that run against both emulators, the embedded one and Google's."""

import base64
import json
import re

import harness
import main_job
from harness import check, say, wait_until


def main_job_end_to_end(emulator):
    with harness.Testbed(emulator, main_job.emulator_flags(emulator), resources=main_job.RESOURCES) as bed:
        main_job.set_up(bed)
        pullers = [bed.puller("catalog_read"), bed.puller("points")]
        main_job.run_catalog(bed, videos=80)
        main_job.run_points(bed, pullers[1], users=10, events=100)
        latencies = main_job.measure_latency(bed, samples=10)
        say(f"    commit to visible: p50 {1000 * main_job.percentile(latencies, 0.5):.1f} ms")
        for puller in pullers:
            check(f"the puller of {puller.database} ends in order when it is told to", puller.stop(), 0)


RESOURCES = [
    {"create_topic": "shop.order.events"},
    {"create_subscription": "shop.order.events.outside-reader", "topic": "shop.order.events", "options": {"enableMessageOrdering": True}},
    {"create_topic": "crm.customer.events"},
    {"create_subscription": "crm.customer.events.shop-reader", "topic": "crm.customer.events", "options": {"enableMessageOrdering": True}},
    {"create_topic": "shop.trace.events"}, {"create_topic": "shop.trace.dead"},
    {"create_subscription": "shop.trace.events.outside-reader", "topic": "shop.trace.events", "options": {}},
    {"create_subscription": "shop.trace.events.shop-reader", "topic": "shop.trace.events", "options": {}},
    {"create_subscription": "shop.trace.events.shop-mover", "topic": "shop.trace.events", "options": {}},
    {"create_subscription": "shop.trace.dead.outside-reader", "topic": "shop.trace.dead", "options": {}}]


def interoperability(emulator):
    with harness.Testbed(emulator, resources=RESOURCES) as bed:
        bed.cluster.create_database("shop")
        postbox_to_node(bed)
        node_to_postbox(bed)
        traces(bed)


def check_message(message, row):
    """Fails unless a message that the Node client has read is the event of this row of the outbox."""
    attributes = message["attributes"]
    _, aggregate, event_type, version, payload, aggregate_type, schema_version = row
    expected = {"event_type": event_type, "aggregate_id": aggregate, "aggregate_type": aggregate_type,
                "version": version, "schema_version": schema_version}
    if {name: attributes.get(name) for name in expected} != expected or message["ordering_key"] != aggregate:
        raise harness.Failure(f"a message is not what was emitted: {message}, {expected}")
    if base64.b64decode(message["data_base64"]) != base64.b64decode(payload):
        raise harness.Failure(f"the data of a message is not the payload: {message}, {payload}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", attributes["occurred_at"]):
        raise harness.Failure(f"occurred_at is no RFC 3339 time in UTC: {attributes}")


def postbox_to_node(bed):
    say("what Postbox publishes is read by Google's Node client")
    bed.cluster.sql("shop", """
        CREATE SCHEMA shop;
        SELECT postbox.create_outbox('shop.outbox', 'table');
        SELECT postbox.create_publication('orders', 'shop.outbox', 'shop.order.events');
    """)
    receiver = bed.receiver("shop.order.events.outside-reader")
    # Five orders, ten events each, emitted in turns; then bytes that are no text, and text beyond ASCII.
    bed.cluster.sql("shop", "\n".join(
        f"SELECT postbox.outbox_emit('order', 'order-{order}', 'order.changed', "
        f"jsonb_build_object('step', {step}), attributes => '{{\"shop\": \"Zürich\"}}');"
        for step in range(1, 11) for order in range(5)))
    bed.cluster.sql("shop", """
        BEGIN;
        SET LOCAL postbox.correlation_id = 'correlation-1';
        SET LOCAL postbox.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
        SELECT postbox.outbox_emit('blob', 'ключ-ü', 'blob.stored', '\\x00ff80c328'::bytea, version => 7,
            schema_version => 'v2', event_id => '0192f0c1-0000-7000-8000-00000000abcd',
            occurred_at => '2025-10-24 12:30:00.25+02');
        COMMIT;
    """)
    wait_until("the Node client has read all 51 messages", lambda: len(receiver.messages()) >= 51)
    received = receiver.messages()
    outbox = {row[0]: row for row in bed.cluster.sql("shop", """
        SELECT id, aggregate_id, event_type, version, encode(payload, 'base64'), aggregate_type, schema_version
        FROM shop.outbox ORDER BY seq""")}
    check("each event came once", sorted(message["attributes"]["event_id"] for message in received), sorted(outbox))
    for message in received:
        check_message(message, outbox[message["attributes"]["event_id"]])
    check("data, the standard attributes and the ordering key are those of the outbox, in all 51", True)

    orders = [message for message in received if message["attributes"]["aggregate_type"] == "order"]
    for order in range(5):
        of_order = [message for message in orders if message["ordering_key"] == f"order-{order}"]
        steps = [json.loads(base64.b64decode(message["data_base64"]))["step"] for message in of_order]
        check(f"the events of order {order} come in the order of their commits", steps, list(range(1, 11)))
        check(f"and their versions count from 1", [int(message["attributes"]["version"]) for message in of_order], list(range(1, 11)))
    check("the caller's attribute is on the message", {message["attributes"].get("shop") for message in orders}, {"Zürich"})

    blob = next(message for message in received if message["attributes"]["aggregate_type"] == "blob")
    check("bytes that are no text arrive as they are", base64.b64decode(blob["data_base64"]), b"\x00\xff\x80\xc3\x28")
    check("a key beyond ASCII arrives as it is", blob["ordering_key"], "ключ-ü")
    check("all attributes of a message are as they should be",
          {name: value for name, value in blob["attributes"].items() if name != "occurred_at"},
          {"event_id": "0192f0c1-0000-7000-8000-00000000abcd", "event_type": "blob.stored", "aggregate_id": "ключ-ü",
           "aggregate_type": "blob", "version": "7", "schema_version": "v2", "correlation_id": "correlation-1",
           "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           "googclient_traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
           **{name: blob["attributes"][name] for name in ("trace_id", "span_id") if name in blob["attributes"]}})
    check("occurred_at is the same moment, in UTC",
          blob["attributes"]["occurred_at"].rstrip("Z").rstrip("0"), "2025-10-24T10:30:00.25")


def node_to_postbox(bed):
    say("what Google's Node client publishes is applied by the puller")
    bed.cluster.sql("shop", """
        CREATE TABLE shop.customer (
            customer_id text PRIMARY KEY, name text NOT NULL, level int, tags jsonb, version bigint NOT NULL);
        CREATE TABLE shop.journal (id bigint GENERATED ALWAYS AS IDENTITY, event postbox.event);
        CREATE FUNCTION shop.remember(event postbox.event) RETURNS void LANGUAGE sql AS
            'INSERT INTO shop.journal (event) VALUES ($1)';
        SELECT postbox.create_inbox('shop.inbox');
        SELECT postbox.create_projection('shop.inbox', ARRAY['customer.changed', 'customer.removed'], 'shop.customer',
            delete_types => ARRAY['customer.removed']);
        SELECT postbox.create_handler('shop.inbox', ARRAY['customer.noted'], 'shop.remember(postbox.event)');
        SELECT postbox.create_subscription('customers', 'shop.inbox', 'crm.customer.events.shop-reader');
    """)
    puller = bed.puller("shop")

    def message(number, customer, event_type, version, data, **attributes):
        return {"topic": "crm.customer.events", "ordering_key": customer, "data_base64": base64.b64encode(data).decode(),
                "attributes": {"event_id": f"00000000-0000-4000-8000-{number:012d}", "event_type": event_type,
                               "aggregate_type": "customer", "aggregate_id": customer, "version": str(version),
                               "occurred_at": "2025-10-24T10:30:00.5Z", "schema_version": "v1", **attributes}}

    def customer(name, number, version):
        return json.dumps({"customer_id": name, "name": f"Ñame {version}", "level": number, "tags": ["a", {"b": None}]}).encode()

    messages, number = [], 0
    for version in range(1, 6):
        for who in range(4):
            number += 1
            messages.append(message(number, f"c{who}", "customer.changed", version, customer(f"c{who}", number, version)))
    messages.append(message(100, "c3", "customer.removed", 6, customer("c3", 0, 6)))
    messages.append(message(101, "c0", "customer.noted", 6, b"\x00\x01\xfe\xff", origin="Nöde"))
    messages.append(message(102, "c0", "customer.forgotten", 7, b"nobody takes this type"))
    bed.publish(messages)
    wait_until("all messages are in the inbox",
               lambda: bed.cluster.ask_number("shop", "SELECT count(*) FROM shop.inbox") >= len(messages))
    check("the projection holds the last version of each customer, and not the one that was removed",
          bed.cluster.sql("shop", "SELECT customer_id, name, level, tags, version FROM shop.customer ORDER BY 1"),
          [[f"c{who}", "Ñame 5", str(17 + who), '["a", {"b": null}]', "5"] for who in range(3)])
    check("the handler got the event as it was published", bed.cluster.sql("shop", """
        SELECT (event).event_id, (event).event_type, (event).aggregate_type, (event).aggregate_id, (event).version,
               encode((event).payload, 'hex'), (event).attributes->>'origin',
               (event).occurred_at = '2025-10-24T10:30:00.5Z' FROM shop.journal"""),
          [["00000000-0000-4000-8000-000000000101", "customer.noted", "customer", "c0", "6", "0001feff", "Nöde", "t"]])
    check("what came of the messages", bed.cluster.sql(
        "shop", "SELECT outcome, count(*) FROM shop.inbox GROUP BY 1 ORDER BY 1"), [["applied", "22"], ["ignored", "1"]])
    check("the puller ends in order when it is told to", puller.stop(), 0)


def set_up_traces(bed):
    bed.cluster.sql("shop", """
        SELECT postbox.create_outbox('shop.traced');
        SELECT postbox.create_publication('traced', 'shop.traced', 'shop.trace.events');
        CREATE TABLE shop.seen (event_id text, traceparent text);
        CREATE TABLE shop.refused (event_type text);
        CREATE FUNCTION shop.see(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM shop.refused r WHERE r.event_type = $1.event_type) THEN RAISE 'not now'; END IF;
            INSERT INTO shop.seen VALUES (event.event_id, event.attributes->>'traceparent');
        END $$;
        SELECT postbox.create_inbox('shop.traced_inbox'), postbox.create_inbox('shop.moved_inbox');
        SELECT postbox.create_handler('shop.traced_inbox', ARRAY['page.viewed', 'page.lost'], 'shop.see(postbox.event)');
        SELECT postbox.create_handler('shop.moved_inbox', ARRAY['page.moved'], 'shop.see(postbox.event)');
        SELECT postbox.create_subscription('traced', 'shop.traced_inbox', 'shop.trace.events.shop-reader', max_attempts => 1);
        SELECT postbox.create_subscription('moved', 'shop.moved_inbox', 'shop.trace.events.shop-mover', max_attempts => 1,
            on_error => 'dead_letter_topic', dead_letter_topic => 'shop.trace.dead');
    """)


def traces(bed):
    say("a trace goes from Postbox to Google's Node client and back, and through dead letters")
    set_up_traces(bed)
    receiver, dead = bed.receivers(["shop.trace.events.outside-reader", "shop.trace.dead.outside-reader"], trace=True)
    puller = bed.puller("shop")

    def emit(trace, event_type):
        return bed.cluster.sql("shop", f"""
            BEGIN;
            SET LOCAL postbox.traceparent = '00-{trace}-00f067aa0ba902b7-01';
            SELECT (postbox.outbox_emit('page', 'p', '{event_type}', '{{}}'::jsonb, outbox => 'shop.traced')).event_id;
            COMMIT""")[0][0]

    def span(receiver, event):
        wait_until(f"the Node client has event {event}", lambda: event in receiver.event_ids())
        found = next(message for message in receiver.messages() if message["attributes"]["event_id"] == event)["span"]
        return found["trace_id"], found["parent_span_id"]

    def seen(event):
        wait_until(f"a handler has seen event {event}",
                   lambda: bed.cluster.ask_number("shop", f"SELECT count(*) FROM shop.seen WHERE event_id = '{event}'") == 1)
        return bed.cluster.sql("shop", f"SELECT traceparent FROM shop.seen WHERE event_id = '{event}'")[0][0]

    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    event = emit(trace, "page.viewed")
    check("what the Node client does with an event is a child of the span that emitted it", span(receiver, event), (trace, "00f067aa0ba902b7"))
    check("a handler has the context of the trace", seen(event), f"00-{trace}-00f067aa0ba902b7-01")

    event = "00000000-0000-4000-8000-000000000201"
    answer = bed.publish([{"topic": "shop.trace.events", "data": "{}", "attributes": {
        "event_id": event, "event_type": "page.viewed", "aggregate_type": "page", "aggregate_id": "q", "version": "1"}}], trace=True)
    check("a handler has the context of what the Node client publishes", seen(event).split("-")[:2], ["00", *answer["trace_ids"]])

    # The first is kept in the table of dead letters, the second goes to a topic.
    trace = "0af7651916cd43dd8448eb211c80319c"
    bed.cluster.sql("shop", "INSERT INTO shop.refused VALUES ('page.lost'), ('page.moved')")
    event = emit(trace, "page.lost")
    wait_until("the event is a dead letter",
               lambda: bed.cluster.ask_number("shop", f"SELECT count(*) FROM postbox.dead_letter WHERE event_id = '{event}'") == 1)
    bed.cluster.sql("shop", "DELETE FROM shop.refused WHERE event_type = 'page.lost'")
    bed.cluster.sql("shop", f"SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_id = '{event}'")
    check("a redriven event has the context of its trace", seen(event), f"00-{trace}-00f067aa0ba902b7-01")
    event = emit(trace, "page.moved")
    check("and so has a message on a dead-letter topic", span(dead, event), (trace, "00f067aa0ba902b7"))
    check("the puller ends in order when it is told to", puller.stop(), 0)
