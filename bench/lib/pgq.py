"""PgQ, as the distribution has it: storing events and reading them in batches. It sends nothing to Pub/Sub."""

import pathlib
import shutil
import subprocess

import bed
import by_hand
import harness
import libpq
import measured

STEP = 1_000  # events of a batch
PAYLOAD = '{"title": "a title of moderate length", "video_id": "v_1"}'
INSERT = "SELECT pgq.insert_event('videos', 'video.updated', '" + PAYLOAD + "', 'v_' || {n} % 1000, 'video', ({n})::text, NULL)"


def install(server):
    by_hand.install([f"postgresql-{server.number('SHOW server_version_num') // 10000}-pgq3"])
    stage_extension("pgq")
    server.sql("CREATE EXTENSION pgq; SELECT pgq.create_queue('videos'); SELECT pgq.register_consumer('videos', 'cost')")


def stage_extension(name):
    """Copies an extension of the distribution into the private installation."""
    stage = harness.build_directory() / "stage"
    for kind, folder, pattern in (("--sharedir", "extension", f"{name}*"), ("--pkglibdir", "", f"{name}*.so")):
        found = subprocess.run(["pg_config", kind], check=True, capture_output=True, text=True).stdout.strip()
        for file in (pathlib.Path(found) / folder).glob(pattern):
            shutil.copy(file, f"{stage}{file}")


def read(server, events):
    """What the backend takes to read events in batches and to finish these."""
    server.sql("SELECT pgq.unregister_consumer('videos', 'cost'), pgq.force_tick('videos'), pgq.ticker()")
    server.sql("SELECT pgq.register_consumer('videos', 'cost')")
    for begin in range(0, events, STEP):
        server.watch.sql(f"SELECT count({INSERT.removeprefix('SELECT ').replace('{n}', 'n')}) FROM generate_series({begin}, {begin + STEP - 1}) AS n")
        server.watch.sql("SELECT pgq.force_tick('videos')")
        server.watch.sql("SELECT pgq.ticker()")
    session = libpq.Connection(server.cluster.dsn(bed.DATABASE))
    used = measured.Used(backend=session.pid)
    count = 0
    while batch := session.value("SELECT pgq.next_batch('videos', 'cost')"):
        count += session.rows(f"SELECT * FROM pgq.get_batch_events({batch})")
        session.run(f"SELECT pgq.finish_batch({batch})")
    parts = used.per_event(count)
    session.close()
    if count < events:
        raise harness.Failure(f"PgQ has given {count} of {events} events")
    return parts
