"""How soon a session that waits learns of what it waits for, while a hundred wait: wait_for_version and wait_published."""

import random
import threading
import time

import bed
import libpq
from bed import percentile
from harness import Failure, say, wait_until

WAITERS = 100
PAUSE = 0.02  # s: most sleep again after this
MOMENT = "extract(epoch FROM clock_timestamp())"


def wait(report, smoke):
    rounds = 1 if smoke else 3  # of each waiter
    count = 10 if smoke else WAITERS
    with bed.opened(smoke, postbox__publishers=1, max_connections=WAITERS + 30) as server:
        for_version(report, server, count, rounds)
        for kind in ("log", "table"):
            until_published(report, server, kind, count, rounds)


class Waiters:
    """Sessions that run `body(session, number)` at the same time, again and again until it returns False."""

    def __init__(self, server, count, body):
        self.failures = []
        self._sessions = [libpq.Connection(server.cluster.dsn(bed.DATABASE)) for _ in range(count)]
        self._threads = [threading.Thread(target=self._run, args=(body, number)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, body, number):
        try:
            while body(self._sessions[number], number):
                pass
        except Failure as failure:
            self.failures.append(str(failure))

    def join(self):
        for thread in self._threads:
            thread.join()
        for session in self._sessions:
            session.close()
        if self.failures:
            raise Failure(self.failures[0])


def for_version(report, server, count, rounds):
    """Each session waits for the next version of its own key. One session applies an event at a time and waits until the session of its key has
    returned. It does not wait for the disk, which would count."""
    server.sql("""
        CREATE TABLE app.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
        SELECT postbox.create_inbox('app.inbox');
        SELECT postbox.create_projection('app.inbox', ARRAY['video.updated'], 'app.video')""")
    woken = [[] for _ in range(count)]

    def body(session, number):
        version = len(woken[number]) + 1
        answer = session.value(f"SELECT postbox.wait_for_version('app.video', 'v_{number}', {version}, '600s')::text || ' ' || {MOMENT}")
        reached, moment = answer.split(" ")
        if reached != "true":
            raise Failure(f"version {version} of v_{number} did not come")
        woken[number].append(float(moment))
        return version < rounds

    say(f"wait: {count} sessions in wait_for_version")
    waiters = Waiters(server, count, body)
    applier = libpq.Connection(server.cluster.dsn(bed.DATABASE))
    applier.run("SET synchronous_commit = off")
    late = []
    for version in range(1, rounds + 1):
        for number in random.sample(range(count), count):
            time.sleep(PAUSE)
            applier.run("BEGIN")
            applier.run(f"SELECT postbox.inbox_apply('app.inbox', gen_random_uuid()::text, 'video.updated', 'video', 'v_{number}', {version}, "
                        f"convert_to('{{\"video_id\": \"v_{number}\", \"title\": \"a title\"}}', 'UTF8'))")
            sent = time.time()
            applier.run("COMMIT")
            wait_until("it has returned", lambda number=number, version=version: waiters.failures or len(woken[number]) == version, bed.PATIENCE, 0.0005)
            if waiters.failures:
                break
            late.append(1000 * (woken[number][-1] - sent))
    waiters.join()
    applier.close()
    tell(report, f"wait_for_version, {count} sessions", late, "<= 1 ms")


def until_published(report, server, kind, count, rounds):
    """Each session emits an event and waits for it. Of a table the row says when the result was stored; of a log the time is from COMMIT."""
    counting = server.counting_server()
    server.cluster.set(postbox__endpoint=counting.endpoint)
    outbox = server.outbox(f"app.waited_{kind}", kind)
    publication = server.publication(outbox)
    wait_until("the worker runs", server.worker_pid)
    done, late, stored = [0] * count, [], []

    def body(session, number):
        event = session.value(f"SELECT (postbox.outbox_emit('video', 'v_{number}', 'video.updated', '{{}}'::jsonb, outbox => '{outbox}')).event_id")
        sent = time.time()
        answer = session.value(f"SELECT postbox.wait_published('{event}', '600s', '{outbox}')::text || ' ' || {MOMENT}")
        reached, moment = answer.split(" ")
        if reached != "true":
            raise Failure(f"event {event} was not published")
        late.append(1000 * (float(moment) - sent))
        if kind == "table":
            stored.append(1000 * (float(moment) - float(session.value(f"SELECT extract(epoch FROM published_at) FROM {outbox} WHERE id = '{event}'"))))
        done[number] += 1
        return done[number] < rounds

    say(f"wait: {count} sessions in wait_published, {kind}")
    Waiters(server, count, body).join()
    tell(report, f"wait_published of a {kind}, {count} sessions, from COMMIT", late, None)
    if stored:
        tell(report, f"wait_published of a {kind}, {count} sessions, from published_at", stored, None)
    server.drop_publication(publication)
    counting.stop()


def tell(report, case, late, target):
    report.line(f"{case}: p50", percentile(late, 0.5), "ms", target=target)
    report.line(f"{case}: p99", percentile(late, 0.99), "ms")
