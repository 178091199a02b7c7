"""Many writers of every kind against a log outbox in three lanes, read in small chunks: without crashes, then with. What
arrives is compared with the table: events lost, sent twice, out of order within a key."""

import os
import signal
import threading
import time

import bed
from bed import Bed, Failure
from harness import say, wait_until

WRITERS, SMOKE_WRITERS = 24, 8
OUTBOX = "app.outbox"


def emit(kind):
    return f"SELECT postbox.outbox_emit('video', 'key-' || :key, 'video.{kind}', '{{}}'::jsonb, outbox => '{OUTBOX}');"


# As large as an event may be, next to what goes into the message with it.
LARGE = emit("changed").replace("'{}'::jsonb", "jsonb_build_object('data', repeat('x', 9990000))")

# name: (weight, transaction). Those of `early` have an old transaction id when they take their sequence number.
SCRIPTS = {
    "short": (60, f"BEGIN; {emit('changed')} {emit('changed')} COMMIT;"),
    "long": (30, f"BEGIN; {emit('changed')}\n\\sleep 60 ms\n{emit('changed')} COMMIT;"),
    "savepoint": (20, f"BEGIN; {emit('changed')} SAVEPOINT s; {emit('undone')} ROLLBACK TO s; {emit('changed')} RELEASE s; COMMIT;"),
    "rolled_back": (20, f"BEGIN; {emit('undone')}\n\\sleep 5 ms\nROLLBACK;"),
    "early": (30, f"BEGIN; SELECT pg_current_xact_id();\n\\sleep 40 ms\n{emit('changed')} COMMIT;"),
    "prepared": (20, f"SELECT nextval('app.gid') AS gid \\gset\nBEGIN; {emit('changed')} PREPARE TRANSACTION 'p:gid';\n"
                    "\\sleep 20 ms\nCOMMIT PREPARED 'p:gid';"),
    "plain": (20, f"INSERT INTO {OUTBOX} (id, aggregate_type, aggregate_id, event_type, version, payload) "
                 "SELECT gen_random_uuid(), 'video', 'plain-' || c, 'video.changed', n, '{}' "
                 "FROM nextval('app.copied') c, generate_series(1, 3) n;"),
    "large": (1, f"BEGIN; {emit('changed')} {LARGE} {emit('changed')} COMMIT;"),
}


def torture(report, smoke):
    seconds, writers = (1, SMOKE_WRITERS) if smoke else (60, WRITERS)
    with Bed(smoke, postbox__publishers=3, postbox__read_chunk_size=11, postbox__poll_interval="50ms",
             max_prepared_transactions=50, postbox__endpoint="http://127.0.0.1:1") as server:
        record = server.directory / "arrivals"
        counting = server.counting_server(record)
        server.cluster.set(postbox__endpoint=counting.endpoint)
        server.outbox(OUTBOX)
        server.publication(OUTBOX, lanes=3)
        server.sql("CREATE SEQUENCE app.gid; CREATE SEQUENCE app.copied")
        files = []
        for name, (weight, text) in SCRIPTS.items():
            path = server.directory / f"{name}.sql"
            path.write_text(f"\\set key random(1, 25)\n{text}\n")
            files.append(f"{path}@{weight}")
        wait_until("three workers run", lambda: len(workers(server)) == 3)

        say(f"torture without crashes: {writers} writers for {seconds} s, one transaction open all the time")
        held = server.session(bed.DATABASE)
        held.sql("BEGIN")
        held.sql(emit("changed").replace("'key-' || :key", "'held'"))
        with copying(server):
            server.pgbench(files, writers, seconds=seconds)
        wait_until("all that is committed is published while a transaction is open", lambda: pending(server) == 0, 300)
        held.sql("COMMIT")
        calm = compare(server, record, "no crash")
        report_all(report, "no crash", calm)

        say(f"torture with crashes: {writers} writers for {seconds} s, workers killed and the server restarted")
        crashes = write_and_crash(server, files, writers, seconds)
        for (gid,) in ask(server, "SELECT gid FROM pg_prepared_xacts"):  # they survive a crash and must be ended
            ask(server, f"COMMIT PREPARED '{gid}'")
        wait_until("all is published after the crashes", lambda: pending(server) == 0, 300)
        crashed = compare(server, record, "crashes")
        report.line("crashes, crashes", crashes, "times")
        report_all(report, "crashes", crashed)

        counting.stop()
        for phase, found in (("no crash", calm), ("crashes", crashed)):
            if any(found[name] for name in NEVER[phase]):
                raise Failure(f"{phase}: {found}")


NEVER = {"no crash": ("lost", "sent twice", "out of order", "ghosts"), "crashes": ("lost", "out of order", "ghosts")}


def report_all(report, phase, figures):
    for name, value in figures.items():
        report.line(f"{phase}, {name}", value, "events", target="0" if name in NEVER[phase] else None)


def ask(server, text):
    """In a session of its own, as the server may have crashed since the last question."""
    return server.cluster.sql(bed.DATABASE, text, timeout=bed.PATIENCE)


def workers(server):
    return [int(pid) for (pid,) in ask(server, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'postbox publisher'")]


def pending(server):
    return int(ask(server, "SELECT pending FROM postbox.publication_status")[0][0])


class copying:
    """COPY into the table every half second until the end."""

    def __init__(self, server):
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._number = 0

    def _copy(self):
        while not self._ended.wait(0.5):
            self._number += 1
            key = f"copy-{time.monotonic_ns()}"
            rows = "".join(f"{self._number:08x}-{n:04x}-4000-8000-{time.monotonic_ns() % 16**12:012x}\tvideo\t{key}\tvideo.changed\t{n}\t{{}}\n"
                           for n in range(1, 21))
            try:
                ask(self._server, f"COPY {OUTBOX} (id, aggregate_type, aggregate_id, event_type, version, payload) FROM stdin;\n{rows}\\.\n")
            except Failure:
                pass  # the server has crashed; only what is in the table at the end counts

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def write_and_crash(server, files, clients, seconds):
    """Each crash ends all sessions, so the writers begin again after each. Every fourth crash is of the whole server."""
    end = time.monotonic() + seconds
    crashes = 0
    interval = 0.5 if server.smoke else 4
    with copying(server):
        while time.monotonic() < end or crashes < 2:
            writers = threading.Thread(target=server.pgbench, args=(files, clients), kwargs={"seconds": 3600, "may_fail": True})
            writers.start()
            time.sleep(interval)  # while the writers go on
            crashes += 1
            if crashes % 4 == 2:
                server.cluster.close(server.directory / "cluster")
                server.cluster.start()
            else:
                os.kill(wait_until("a worker runs", lambda: workers(server))[0], signal.SIGKILL)
            writers.join()
            wait_until("the server and its workers are back", lambda: len(workers(server)) == 3, 300)
    return crashes


def compare(server, record, phase):
    """Compares what is in the table with what has arrived."""
    stored = {event: (key, int(seq)) for event, key, seq in ask(server, f"SELECT id, aggregate_id, seq FROM {OUTBOX}")}
    undone = int(ask(server, f"SELECT count(*) FROM {OUTBOX} WHERE event_type = 'video.undone'")[0][0])

    def arrived():
        found = [line.split("\t")[2] for line in record.read_text().splitlines()]
        if len(set(found)) < len(stored):
            raise Failure(f"{len(set(found))} of {len(stored)} events")
        return found

    try:
        arrivals = wait_until("all events have come", arrived, 60, 1)
    except Failure:  # some are lost: the comparison says how many
        arrivals = [line.split("\t")[2] for line in record.read_text().splitlines()]
    last, seen, disorder, ghosts = {}, set(), 0, 0
    for event in arrivals:
        if event in seen:
            continue
        seen.add(event)
        if event not in stored:
            ghosts += 1
            continue
        key, seq = stored[event]
        disorder += seq < last.get(key, 0)
        last[key] = max(seq, last.get(key, 0))
    say(f"    {phase}: {len(stored)} events of {len(last)} keys, {len(arrivals)} messages")
    return {"events": len(stored), "lost": len(set(stored) - seen), "sent twice": len(arrivals) - len(seen),
            "out of order": disorder, "ghosts": ghosts + undone}
