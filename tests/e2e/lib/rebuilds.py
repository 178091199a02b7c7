"""A service with films, and a reader whose projection is rebuilt while live events arrive. A second inbox has the same projection
on another table, which is never rebuilt: the model.

With POSTBOX_E2E_FULL=1 there are as many films as docs/reliability.md says.
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import threading
import time

import harness
from harness import Failure, check, say, wait_until

FULL = os.environ.get("POSTBOX_E2E_FULL") == "1"
TOPIC = "shop.film.events"
LIVE, MODEL = f"{TOPIC}.reader-live", f"{TOPIC}.reader-model"
FILE = f"""
topics:
  - name: {TOPIC}
    retention: 1d
subscriptions:
""" + "".join(f"""  - name: {name}
    topic: {TOPIC}
    ordering: true
    dead_letter: none
""" for name in (LIVE, MODEL))
# Whole events, events with a part of the fields, deletes, and films that come back.
COLUMNS = "id text PRIMARY KEY, title text NOT NULL, year int CHECK (year > 1800), note text DEFAULT 'none', seen timestamptz DEFAULT now(), version bigint NOT NULL"
MAPPING = '{"title": "title", "year": "year", "note": "note"}'


class Rebuilds:
    def __init__(self, bed):
        self.bed, self.cluster = bed, bed.cluster
        path = bed.directory / "topics.yaml"
        path.write_text(FILE)
        done = bed.start("provision", [bed.postbox, "provision", "--file", path, "--project", harness.PROJECT, "--endpoint", bed.emulator.endpoint])
        if done.wait(60) != 0:
            raise Failure(f"provision has failed: {done.text()}")
        for database in ("shop", "reader"):
            bed.cluster.create_database(database)
        bed.cluster.sql("shop", f"""
            CREATE SCHEMA shop;
            CREATE TABLE shop.film (id bigint PRIMARY KEY, versions bigint NOT NULL);
            SELECT postbox.create_outbox('shop.outbox');
            SELECT postbox.create_publication('films', 'shop.outbox', '{TOPIC}', base_backoff => '1h', max_backoff => '1h');
            -- Film n is created whole, then changed in parts, deleted, and so on.
            CREATE FUNCTION shop.change(first bigint, last bigint) RETURNS bigint LANGUAGE sql AS $$
                SELECT count(postbox.outbox_emit('film', 'f' || id,
                    CASE WHEN v % 7 = 6 THEN 'film.deleted' WHEN v % 7 = 1 OR v % 3 = 0 THEN 'film.created' ELSE 'film.updated' END,
                    CASE WHEN v % 7 = 6 THEN '{{}}'::jsonb
                         WHEN v % 7 IN (0, 1) OR v % 3 = 0 THEN jsonb_build_object('title', 'Film ' || id || ' ' || v, 'year', 1900 + (id + v) % 100, 'note', 'v' || v)
                         WHEN v % 3 = 1 THEN jsonb_build_object('year', 1900 + (id * v) % 100)
                         ELSE jsonb_build_object('note', 'part ' || v) END))
                FROM (SELECT f.id, max(f.versions) AS v FROM changed f GROUP BY f.id) AS one
            $$;
        """.replace("FROM (SELECT f.id, max(f.versions) AS v FROM changed f GROUP BY f.id) AS one",
                    "FROM shop.raise(first, last) AS one(id, v)").replace("CREATE FUNCTION shop.change", """CREATE FUNCTION shop.raise(first bigint, last bigint) RETURNS TABLE (id bigint, v bigint) LANGUAGE sql AS $$
                INSERT INTO shop.film AS f SELECT n, 1 FROM generate_series(first, last) n ORDER BY n
                ON CONFLICT (id) DO UPDATE SET versions = f.versions + 1 RETURNING f.id, f.versions
            $$;
            CREATE FUNCTION shop.change""", 1))
        bed.cluster.sql("reader", f"""
            CREATE SCHEMA app;
            CREATE TABLE app.film ({COLUMNS});
            CREATE TABLE app.model ({COLUMNS});
            CREATE TABLE app.year (id text PRIMARY KEY, year int, version bigint NOT NULL);
            CREATE TABLE app.journal (id bigint GENERATED ALWAYS AS IDENTITY, event_id text);
            CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO app.journal (event_id) VALUES (event.event_id)';
            SELECT postbox.create_inbox('app.inbox'), postbox.create_inbox('app.model_inbox');
            SELECT postbox.create_projection('app.inbox', '{{film.created,film.updated}}', 'app.film', columns => '{MAPPING}', delete_types => '{{film.deleted}}');
            SELECT postbox.create_projection('app.model_inbox', '{{film.created,film.updated}}', 'app.model', columns => '{MAPPING}', delete_types => '{{film.deleted}}');
            SELECT postbox.create_projection('app.inbox', '{{film.created,film.updated}}', 'app.year', columns => '{{"year": "year"}}');
            SELECT postbox.create_handler('app.inbox', '{{film.created,film.updated,film.deleted}}', 'app.note(postbox.event)');
            SELECT postbox.create_subscription('live', 'app.inbox', '{LIVE}', min_backoff => '50ms', max_attempts => 1),
                   postbox.create_subscription('model', 'app.model_inbox', '{MODEL}', min_backoff => '50ms', max_attempts => 1);
        """)
        self.since = time.time() - 5
        self.emitted = 0

    def sql(self, text):
        return self.cluster.sql("reader", text)

    def ask(self, query):
        return self.cluster.ask("reader", query)

    def number(self, query):
        return self.cluster.ask_number("reader", query)

    def emit(self, first, last, run=None):
        self.cluster.sql("shop", f"SELECT shop.change({first}, {last})")
        self.emitted += last - first + 1

    def wait_applied(self, timeout=harness.TIMEOUT):
        def all_applied():
            seen = self.number("SELECT count(*) FROM app.inbox"), self.number("SELECT count(*) FROM app.model_inbox")
            if seen != (self.emitted, self.emitted):
                raise Failure(f"{seen} of {self.emitted} events are applied")
            return True

        wait_until("live events are applied", all_applied, timeout=timeout)

    def damage(self):
        """What an operator might repair with a rebuild."""
        self.sql("""
            UPDATE app.film SET title = 'wrong', note = NULL WHERE abs(hashtext(id)) % 5 = 0;
            DELETE FROM app.film WHERE abs(hashtext(id)) % 7 = 0;
            INSERT INTO app.film SELECT 'stranger ' || n, 'stranger', 2000, NULL, now(), 1 FROM generate_series(1, 5) n;
        """)

    def rebuild(self, *more, since=True, name="app.film"):
        if since:
            more = ["--since", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since)), *more]
        return self.bed.puller("reader", verbose=False, arguments=["--rebuild", name, *more])

    def wait_status(self, what, condition, timeout=harness.TIMEOUT):
        def holds():
            found = self.ask(f"SELECT state, reason, last_error, received FROM postbox.rebuild_status WHERE {condition}")
            if not found:
                raise Failure(str(self.ask("SELECT state, reason, last_error, caught_up, lagging, lagging_key FROM postbox.rebuild_status")))
            return found[0]

        return wait_until(what, holds, timeout=timeout)

    def check_equal(self):
        check("the rebuilt table equals one that was never rebuilt", self.sql("""
            SELECT * FROM (SELECT id, title, year, note, version FROM app.film) f FULL JOIN (SELECT id, title, year, note, version FROM app.model) m USING (id)
            WHERE (f.title, f.year, f.note, f.version) IS DISTINCT FROM (m.title, m.year, m.note, m.version) LIMIT 10"""), [])
        check("its tombstones, too", self.sql("""
            SELECT * FROM (SELECT key, version FROM app.inbox_tombstone WHERE target = 'app.film'::regclass) f
                FULL JOIN (SELECT key, version FROM app.model_inbox_tombstone) m USING (key) WHERE f.version IS DISTINCT FROM m.version LIMIT 10"""), [])
        # A live event may be rejected: a part of a row that was damaged away cannot be inserted.
        rejected = self.number("SELECT count(*) FROM postbox.dead_letter WHERE inbox = 'app.inbox'::regclass")
        check("the handler was called once for each event", self.number("SELECT count(*) FROM app.journal"), self.emitted - rejected)

    def subscriptions(self):
        done = self.bed.start("subscriptions", [self.bed.postbox, "subscriptions", "--json", "--project", harness.PROJECT, "--endpoint", self.bed.emulator.endpoint])
        done.wait(60)
        return sorted(json.loads(line)["name"].rsplit("/", 1)[1] for line in done.text().splitlines() if line.startswith("{"))

    def check_nothing_left(self):
        check("nothing is left in the database", self.sql("""
            SELECT relname FROM pg_class WHERE relname LIKE '%rebuild%' AND relnamespace = 'app'::regnamespace
            UNION ALL SELECT name FROM postbox.subscription WHERE name NOT IN ('live', 'model')
            UNION ALL SELECT name FROM postbox.projection WHERE marks IS NOT NULL
            UNION ALL SELECT relation::text FROM postbox.inbox WHERE relation NOT IN ('app.inbox'::regclass, 'app.model_inbox'::regclass)"""), [])
        check("nor at Pub/Sub", self.subscriptions(), [LIVE, MODEL])


def peak_memory(world, process, timeout):
    """The most that the puller, a session of it and the session that replaces the rows have had, in MB, until the process ends."""
    peaks = {"puller": 0, "its session": 0, "the session at the end": 0}
    deadline = time.monotonic() + timeout

    def note(name, pid):
        with contextlib.suppress(OSError, StopIteration):
            lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
            # Of a session without the shared memory of the server.
            kinds = ("RssAnon:",) if name != "puller" else ("VmHWM:",)
            peaks[name] = max(peaks[name], sum(int(line.split()[1]) for line in lines if line.startswith(kinds)) // 1024)

    while process.running() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                note("puller", pid)
        with contextlib.suppress(Failure):
            for pid, name in world.ask("SELECT pid, application_name FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%rebuild%'"):
                note("the session at the end" if "--rebuild" in name else "its session", pid)
        time.sleep(0.25)
    return peaks


@contextlib.contextmanager
def testbed(settings=None):
    with harness.Testbed("embedded", ["--release-on-disconnect"], {"postbox.time_scale": "20", "postbox.project_id": harness.PROJECT, **(settings or {})}) as bed:
        yield Rebuilds(bed)


class Traffic:
    """Live events, until the end of the block."""

    def __init__(self, world, films, pause=0.1):
        self.world, self.films, self.pause = world, films, pause
        self.over, self.error = threading.Event(), None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        dice = random.Random(7)
        try:
            while not self.over.wait(self.pause):
                first = dice.randrange(1, self.films + 20)
                for attempt in range(40):  # the server may recover
                    try:
                        self.world.emit(first, first + dice.randrange(1, 10))
                        break
                    except Failure:
                        if attempt == 39:
                            raise
                        time.sleep(0.5)
        except Exception as error:  # told to the test
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.error:
            raise Failure(f"live events could not be emitted: {self.error}")
