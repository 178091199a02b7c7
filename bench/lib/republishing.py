"""Events that are sent again: how fast, compared with a backlog of new ones, and what a live stream beside them loses."""

import threading
import time

import bed
from bed import median, percentile
from harness import Failure, wait_until
from neighbours import latencies, start_pgbench

RATE = 500  # transactions/s of the live stream, with one event each


def republish(report, smoke):
    events, rounds, seconds = (300, 1, 1) if smoke else (100_000, 3, 10)
    with bed.opened(smoke, postbox__publishers=1, postbox__endpoint="http://127.0.0.1:1") as server:
        for kind in ("log", "table"):
            runs = [measure(server, kind, number, events, seconds, smoke) for number in range(rounds)]
            values = {name: [run[name] for run in runs] for name in runs[0]}
            report.line(f"{kind}, new", median(values["new"]), "events/s")
            report.against(f"{kind}, again", values["again"], "events/s", values["new"], f"{kind}, new", ">= 0.5" if kind == "table" else None)
            report.line(f"{kind}, call of republish", median(values["call"]), "events/s")
            for what, unit, target in (("rate", "events/s", ">= 0.9"), ("p50", "ms", None), ("p99", "ms", "<= 2")):
                reference = f"{kind}, live stream alone: {what}"
                report.line(reference, median(values[f"quiet {what}"]), unit)
                report.against(f"{kind}, live stream beside it: {what}", values[f"busy {what}"], unit, values[f"quiet {what}"], reference, target)
            report.line(f"{kind}, again beside the live stream", median(values["beside"]), "events/s")


def measure(server, kind, number, events, seconds, smoke):
    record = server.directory / "arrivals"
    counting = server.counting_server(record)
    server.cluster.set(postbox__endpoint=counting.endpoint)
    outbox = server.outbox(f"app.{kind}_{number}", kind)
    server.load(outbox, events, "'v_' || n % 1000")
    server.settle_down()
    wait_until("the worker runs", server.worker_pid)
    run, begun = {}, time.time()
    publication = server.publication(outbox)
    counting.wait_for(events)
    run["new"] = events / (counting.last_arrival - begun)
    wait_until("all is stored", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.settle_down()
    begun = time.time()
    again(server, publication, events)
    run["call"] = events / (time.time() - begun)
    begun = time.time()
    counting.wait_for(2 * events)
    run["again"] = events / (counting.last_arrival - begun)
    wait_until("all is stored", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.settle_down()
    script = server.directory / "live.sql"
    script.write_text("\\set key random(1, 1000)\n"
                      f"SELECT postbox.outbox_emit('video', 'live_' || :key, 'video.updated', '{{}}'::jsonb, outbox => '{outbox}');\n")
    rate = 30 if smoke else RATE
    run.update(live(server, outbox, record, script, rate, lambda: time.sleep(seconds), "quiet"))
    before, figures = counting.messages, {}

    def beside():
        begun = time.time()
        again(server, publication, events)
        wait_until("all is sent again", lambda: republishing(server, publication) == 0, bed.PATIENCE, 0.1)
        figures["beside"] = events / (time.time() - begun)

    run.update(live(server, outbox, record, script, rate, beside, "busy"))
    run.update(figures)
    if counting.messages - before < events:
        raise Failure("not all events came again")
    wait_until("all is stored", lambda: server.pending(publication) == 0, bed.PATIENCE)
    server.drop_publication(publication)
    counting.stop()
    server.sql(f"SELECT postbox.drop_outbox('{outbox}')")
    return run


def again(server, publication, events):
    queued = server.number(f"SELECT events FROM postbox.republish('{publication}', \"to\" => now(), keys => ARRAY(SELECT 'v_' || k FROM generate_series(0, 999) k), max_events => 1000000)")
    if queued < events:
        raise Failure(f"{queued} events queued instead of {events}")


def republishing(server, publication):
    return int(server.watch.sql(f"SELECT republishing FROM postbox.publication_status WHERE publication = '{publication}'")[0][0])


def live(server, outbox, record, script, rate, work, name):
    """The live stream while `work` runs: the events of it that arrive in a second, and how late those of one session come."""
    late, failures = [], []

    def worked():
        try:
            work()
        except Failure as failure:
            failures.append(failure)

    begun = time.time()
    load = start_pgbench(server, script, rate, 3600, 2)
    thread = threading.Thread(target=worked)
    thread.start()
    while thread.is_alive() or not late:
        late += latencies(server, outbox, record, time.time() + 0.5, 0.005, "NULL")
    thread.join()
    end = time.time()
    load.stop()
    if failures:
        raise failures[0]
    return {f"{name} rate": arrived(record, begun, end) / (end - begun), f"{name} p50": percentile(late, 0.5), f"{name} p99": percentile(late, 0.99)}


def arrived(record, begun, end):
    """Events of the live stream between two moments."""
    with open(record, encoding="utf-8") as arrivals:
        lines = [line.split("\t") for line in arrivals if line.endswith("\n")]
    return sum(key.startswith("live_") and begun <= int(moment) / 1e6 <= end for moment, key, _ in lines)
