"""Publishing and applying as services write it by hand, with Google's libraries for Go and Node (bench/others)."""

import os
import subprocess

import bed
import harness
import measured
from applying import KEYS
from harness import ROOT, wait_until

PROGRAMS = ("outbox", "inbox")
BATCHES = (200, 2_000)  # rows of a claim: as many as such loops take, and ten times as many
CONNECTIONS = 10  # of the pool of one that applies, as the pool of Node's client has them
STEP = 1_000  # events of a transaction that writes a backlog
WARM_UP = 2_000  # events that are published before it is measured
NAME = "by_hand"  # of the sessions
GO_PACKAGES = ("golang-go", "golang-github-lib-pq-dev", "golang-google-cloud-dev")


class Missing(harness.Failure):
    """What is compared with is not on this machine, and cannot be installed."""


def install(packages):
    missing = [name for name in packages if subprocess.run(["dpkg-query", "-W", name], capture_output=True, check=False).returncode != 0]
    if missing:
        harness.say(f"installing {' '.join(missing)}")
        attempt(["apt-get", "update"])
        attempt(["apt-get", "install", "-y", "--no-install-recommends", *missing], {**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def attempt(command, environment=None):
    """Runs a command without which something is missing."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Missing(str(error)) from error
    if done.returncode != 0:
        raise Missing(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")


def go():
    """The commands, by the names of the programs, and their environment. What is compiled stays in the build directory."""
    install(GO_PACKAGES)
    folder = harness.build_directory() / "go"
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder / "cache"), "GOFLAGS": ""}
    for name in PROGRAMS:
        attempt(["go", "build", "-o", folder / name, ROOT / f"bench/others/{name}.go"], environment)
    return {name: [folder / name] for name in PROGRAMS}, {"PUBSUB_PROJECT_ID": harness.PROJECT}


def node():
    try:
        environment = harness.node_environment()
    except (harness.Failure, subprocess.CalledProcessError) as error:
        raise Missing(str(error)) from error
    return {name: ["node", ROOT / f"bench/others/{name}.js"] for name in PROGRAMS}, environment


LANGUAGES = {"Go": go, "Node": node}


def start(server, programs, name, address, number):
    commands, environment = programs
    return server.start(name, [*commands[name], number], env={
        **server.cluster.environment, "PGDATABASE": bed.DATABASE, "PGAPPNAME": NAME, "PGSSLMODE": "disable", "PUBSUB_EMULATOR_HOST": address,
        **environment})


def make_outbox(server):
    server.sql("""
        DROP TABLE IF EXISTS by_hand.outbox;
        CREATE TABLE by_hand.outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
            version bigint NOT NULL, schema_version int NOT NULL DEFAULT 1, payload bytea NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now(),
            published_at timestamptz, publish_attempts int NOT NULL DEFAULT 0, next_retry_at timestamptz, lock_token text, locked_at timestamptz);
        CREATE INDEX ON by_hand.outbox (published_at) WHERE published_at IS NULL;
        CREATE INDEX ON by_hand.outbox (next_retry_at) WHERE published_at IS NULL;
        CREATE INDEX ON by_hand.outbox (occurred_at, id) WHERE published_at IS NULL""")


def publish(server, programs, batch, events):
    """One loop, which claims so many rows at once."""
    make_outbox(server)
    counting = server.counting_server()
    server.load("by_hand.outbox", WARM_UP, "'v_' || n % 1000", STEP)
    loop = start(server, programs, "outbox", counting.address, batch)
    wait_until_marked(server)
    server.settle_down()
    used = measured.Used(server, NAME, client=loop.pid)
    # One transaction, so that each claim is a whole one; in the watching session, which is not measured.
    server.load("by_hand.outbox", events, "'v_' || n % 1000", events, run=server.watch.sql)
    wait_until_marked(server)
    parts = used.per_event(events)
    loop.stop()
    counting.wait_for(WARM_UP + events)
    counting.stop()
    if counting.messages != WARM_UP + events:
        raise harness.Failure(f"{counting.messages} messages instead of {WARM_UP + events}")
    return parts


def wait_until_marked(server):
    unmarked = "SELECT count(*) FROM by_hand.outbox WHERE published_at IS NULL"
    wait_until("all rows are marked", lambda: server.watch.sql(unmarked)[0][0] == "0", bed.PATIENCE)


def apply(server, programs, events):
    """A transaction for each message, in as many sessions as the pool has."""
    server.sql("""
        DROP TABLE IF EXISTS by_hand.inbox, by_hand.video;
        CREATE TABLE by_hand.inbox (event_id uuid PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now());
        CREATE TABLE by_hand.video (video_id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL)""")
    service = bed.PullServer(server, events, KEYS, 0)
    reader = start(server, programs, "inbox", service.address, CONNECTIONS)
    parts = measured.pulled(server, service, events, True, NAME, client=reader.pid)
    reader.stop()
    service.stop()
    measured.check_applied(server, "by_hand", events)
    return parts
