"""What the end-to-end tests and the demo share: processes, a private Postgres, a Pub/Sub emulator, the puller, and
Google's Node client as the outside peer.

Rules that everything here keeps:
  * every wait polls a condition and has a time-out; there are no fixed sleeps;
  * every process is started here, is known by its process id, and is ended in Testbed.close(), also after a failure;
    when this program is killed, the kernel ends its direct children (setpriv --pdeathsig);
  * all files are in one temporary directory, which is removed; ports are free ones and all on loopback;
  * a failure prints what was expected, what was seen, and the end of every log.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from outcome import TIMEOUT, Failure, Hopeless, Skip, check, say, wait_until
from peer import Peer, Receiver
from resources import embedded_option

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROJECT = "postbox-dev"
SKIPPED = 77  # what ctest is told to read as "skipped"
# Of programs that end before the optimising compiler would have paid for itself.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


def build_directory():
    chosen = os.environ.get("POSTBOX_BUILD_DIR")
    if not chosen:  # control/lib.sh knows the default
        chosen = subprocess.run(
            ["bash", "-c", 'source "$0" && printf %s "$POSTBOX_BUILD_DIR"', str(ROOT / "control/lib.sh")],
            check=True, capture_output=True, text=True).stdout
    return pathlib.Path(chosen)


def stage_programs():
    """(directory of psql, pgbench and the server, path of the executable `postbox`)"""
    stage = build_directory() / "stage"
    programs = stage / "bin"
    executable = stage / "usr/local/bin/postbox"
    if not programs.exists() or not executable.exists():
        raise Failure(f"nothing is staged in {stage}: run control/build first")
    return programs, executable


class JavaClasses:
    """What a program in Java has loaded is kept in the build directory: with that it starts in half the time."""

    def __init__(self, directory, name, *programs):
        """`programs` are the files that the classes are in. `directory` is the testbed's."""
        files = [pathlib.Path(program).resolve() for program in (shutil.which("java"), *programs)]
        known = repr([(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files])
        self._kept = build_directory() / f"{name}-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"
        self._fresh = directory / self._kept.name
        # Before 13, Java knows none of this.
        self.options = f"{JAVA_OPTIONS} -XX:+IgnoreUnrecognizedVMOptions -Xlog:disable " + (
            f"-XX:SharedArchiveFile={self._kept}" if self._kept.exists() else f"-XX:ArchiveClassesAtExit={self._fresh}")

    def keep(self):
        """When the program has ended."""
        if self._fresh.exists():
            whole = self._kept.with_suffix(f".{os.getpid()}")
            shutil.move(self._fresh, whole)
            whole.replace(self._kept)


class Process:
    """A child process with its output in a file, or, with a line handler, read line by line on a thread."""

    def __init__(self, name, command, log, env=None, on_line=None, stdin=subprocess.DEVNULL):
        self.name = name
        self.log = pathlib.Path(log)
        self._on_line = on_line
        with open(self.log, "ab") as out:
            self.popen = subprocess.Popen(
                _tied_to_us(command), stdin=stdin, stdout=subprocess.PIPE if on_line else out, stderr=out,
                env={**os.environ, **(env or {})}, start_new_session=True)
        self._reader = None
        if on_line:
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def _read(self):
        for line in self.popen.stdout:
            self._on_line(line.decode("utf-8", "replace").rstrip("\n"))

    @property
    def pid(self):
        return self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def kill(self, number=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def wait(self, timeout=None):
        try:
            status = self.popen.wait(timeout or TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} did not end within {timeout or TIMEOUT:.0f} s") from None
        if self._reader:
            self._reader.join(10)
        return status

    def stop(self, number=signal.SIGTERM, timeout=60):
        """Ends it with the signal and returns its exit status. After the time-out it is killed, which is a failure."""
        self.kill(number)
        try:
            return self.wait(timeout)
        except Failure:
            self.kill()
            self.wait(30)
            raise

    def text(self):
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""


def _tied_to_us(command):
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


class Cluster:
    """A private Postgres (control/cluster) that listens on a Unix socket only."""

    def __init__(self, testbed, settings, name="cluster"):
        self.directory = testbed.directory / name
        self.bin = testbed.bin
        self._kept = KeptSessions()  # a standby shares them
        testbed.at_close(self._kept.close)
        settings = {"listen_addresses": "", "postbox.project_id": PROJECT, "postbox.restart_delay": "100ms",
                    "jit": "off",  # to compile a statement of a test takes longer than to run it
                    "log_min_messages": "info", **settings}
        self._control("start", self.directory, *(f"{name}={value}" for name, value in settings.items()))
        self._find_port()

    def _find_port(self):
        self.port = (self.directory / "port").read_text().strip()
        self.environment = {"PGHOST": str(self.directory), "PGPORT": self.port, "PGUSER": "postgres",
                            "PGOPTIONS": "", "PSQLRC": "/dev/null", "PGAPPNAME": "e2e"}

    @staticmethod
    def _control(*arguments):
        subprocess.run([str(ROOT / "control/cluster"), *map(str, arguments)], check=True, timeout=240,
                       env={**os.environ, "POSTBOX_BUILD_DIR": str(build_directory())}, stdin=subprocess.DEVNULL)

    def start(self):
        """Starts it again after a crash."""
        self._control("start", self.directory)

    def stop(self, mode="fast"):
        self._control("stop", self.directory, mode)

    @classmethod
    def of_backup(cls, primary, directory, *options, **settings):
        """A running standby of a running primary. Its settings are those of the primary, and then these. The options are pg_basebackup's."""
        standby = cls.__new__(cls)
        standby.directory, standby.bin, standby._kept = directory, primary.bin, primary._kept
        subprocess.run([str(ROOT / "control/cluster"), "standby", str(directory), primary.dsn("postgres"), *options,
                        *(f"{name.replace('__', '.')}={value}" for name, value in settings.items())], check=True, timeout=240,
                       env={**os.environ, "POSTBOX_BUILD_DIR": str(build_directory())}, stdin=subprocess.DEVNULL)
        standby._find_port()
        return standby

    @classmethod
    def close(cls, directory):
        """Stops the server of this directory, even if its start was interrupted."""
        cls._control("stop", directory, "immediate")

    @property
    def log(self):
        return self.directory / "server.log"

    def log_text(self):
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def write(self, **settings):
        """Appends settings to the configuration; `__` stands for the dot of a qualified name."""
        with open(self.directory / "data/postgresql.conf", "a", encoding="utf-8") as conf:
            for name, value in settings.items():
                conf.write(f"{name.replace('__', '.')} = '{value}'\n")

    def set(self, **settings):
        """Appends settings and tells the server to read them again."""
        self.write(**settings)
        os.kill(self.postmaster, signal.SIGHUP)

    @property
    def postmaster(self):
        """Its process."""
        return int((self.directory / "data/postmaster.pid").read_text().splitlines()[0])

    def dsn(self, database):
        return f"host={self.directory} port={self.port} user=postgres dbname={database}"

    def run(self, program, *arguments, database="postgres", text=None, timeout=None):
        """Runs psql, pgbench, ... of the stage; returns the finished process."""
        return subprocess.run([str(self.bin / program), *map(str, arguments)], input=text, text=True,
                              capture_output=True, timeout=timeout or TIMEOUT,
                              env={**os.environ, **self.environment, "PGDATABASE": database})

    def sql(self, database, text, timeout=None):
        """Runs SQL, which must succeed; returns the rows of its results as lists of strings."""
        done = self.run("psql", "-XAtq", "-F", "\x1f", "-v", "ON_ERROR_STOP=1", "-f", "-", database=database,
                        text=text, timeout=timeout)
        if done.returncode != 0:
            raise Failure(f"SQL failed in {database}:\n{text}\n{done.stderr}")
        return [line.split("\x1f") for line in done.stdout.splitlines()]

    def value(self, database, text):
        rows = self.sql(database, text)
        return rows[0][0] if rows else None

    def number(self, database, text):
        return int(self.value(database, text))

    def ask(self, database, query):
        """The rows of a query that is asked again and again, in a session that is kept."""
        return self._kept.ask(self, database, query)

    def ask_number(self, database, query):
        return int(self.ask(database, query)[0][0])

    def create_database(self, name):
        self.sql("postgres", f"CREATE DATABASE {name}")
        self.sql(name, "CREATE EXTENSION postbox")


class Session:
    """One psql that stays connected, where a new connection for each statement would take too long."""

    ENDS_ON_ERROR = 0
    OPTIONS = ""
    _END = "--end-of-answer--"

    def __init__(self, cluster, database):
        self._psql = subprocess.Popen(
            _tied_to_us([cluster.bin / "psql", "-XAtq", "-F", "\x1f", "-v", f"ON_ERROR_STOP={self.ENDS_ON_ERROR}"]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1,
            env={**os.environ, **cluster.environment, "PGDATABASE": database, "PGOPTIONS": self.OPTIONS})

    def sql(self, text):
        self._psql.stdin.write(f"{text.rstrip().rstrip(';')};\n\\echo {self._END} :ERROR\n")
        self._psql.stdin.flush()
        lines = []
        for line in self._psql.stdout:
            if line.startswith(self._END):
                if line.split()[1] != "false":
                    raise Failure(f"SQL failed: {text}\n{''.join(lines)}")
                return [line.rstrip("\n").split("\x1f") for line in lines]
            lines.append(line)
        raise Failure(f"psql ended during: {text}\n{''.join(lines)}")

    def close(self):
        self._psql.kill()
        self._psql.wait()
        self._psql.stdin.close()
        self._psql.stdout.close()


class KeptSessions:
    """Of one thread: a session for each database of each cluster in which something is asked again and again."""

    def __init__(self):
        self._sessions = {}

    def ask(self, cluster, database, query):
        """The rows. A session that has ended with its server is replaced by a new one, and asked again."""
        key = cluster.directory, database
        if key in self._sessions:
            try:
                return self._sessions[key].sql(query)
            except (Failure, OSError) as lost:
                self._forget(key)
                if "ERROR:" in str(lost):
                    raise
        self._sessions[key] = PatientSession(cluster, database)
        try:
            return self._sessions[key].sql(query)
        except (Failure, OSError) as lost:
            self._forget(key)
            raise Failure(f"{database} does not answer: {lost}") from lost

    def _forget(self, key):
        with contextlib.suppress(OSError):
            self._sessions.pop(key).close()

    def close(self):
        for key in list(self._sessions):
            self._forget(key)


class PatientSession(Session):
    """A session that a statement ends which fails or has no answer."""

    ENDS_ON_ERROR = 1
    # A server that crashes warns a session that it has just answered, and psql prints the warning before the answer.
    OPTIONS = "-c client_min_messages=error"

    def sql(self, text):
        late = threading.Timer(TIMEOUT, self._psql.kill)
        late.start()
        try:
            return super().sql(text)
        finally:
            late.cancel()


class Emulator:
    """The Pub/Sub server: Postbox's own emulator (kind 'embedded') or Google's (kind 'google')."""

    def __init__(self, testbed, kind, flags=()):
        self.kind = kind
        self._testbed = testbed
        self._lines = queue.Queue()
        self.said = []  # the lines of its output
        if kind == "embedded":
            # Without the delay, which is for clients' tests: benches measure over this emulator, too.
            self._start([testbed.postbox, "emulator", "--host", "127.0.0.1", "--port", "0", "--no-auto-create", "--delivery-delay", "0", *flags],
                        r"^postbox emulator listening on (\S+)$")
        elif kind == "google":
            self._start_google()
        else:
            raise Failure(f"unknown kind of emulator: {kind}")
        self.environment = {"PUBSUB_EMULATOR_HOST": self.address, "PUBSUB_PROJECT_ID": PROJECT}

    def _take(self, line):
        self.said.append(line)
        self._lines.put(line)

    def _start(self, command, pattern, address=None, env=None):
        process = self._testbed.start("emulator", command, env=env, on_line=self._take)
        self.process = process

        def ready():
            with contextlib.suppress(queue.Empty):
                while True:
                    found = re.search(pattern, self._lines.get_nowait())
                    if found:
                        self.address = address or found.group(1)
                        return True
            if not process.running():
                raise Hopeless(f"the emulator ended with status {process.popen.returncode}")
            return False

        wait_until("the emulator is ready", ready)

    def _start_google(self):
        program = find_google_emulator()
        classes = JavaClasses(self._testbed.directory, "pubsub-emulator", program)
        self._testbed.at_close(lambda: (self.process.stop(), classes.keep()))
        for attempt in range(3):  # the port is chosen here and may be taken before the emulator binds it
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            try:
                # Its log goes to standard output or error, depending on its version: the shell joins the two.
                self._start(["/bin/sh", "-c", 'exec "$0" "$@" 2>&1', program, "--host=127.0.0.1", f"--port={port}"],
                            r"Server started, listening on", address=f"127.0.0.1:{port}",
                            env={"JAVA_OPTS": f"-Xmx512m {classes.options}"})
                return
            except Failure:
                if attempt == 2 or self.process.running():
                    raise

    @property
    def endpoint(self):
        return f"http://{self.address}"

    def resources(self, *orders):
        """What peer.js answers to these orders."""
        return self._testbed.peer.order(*orders)

    def fault(self, specification):
        """Injects a fault into the embedded emulator; see `postbox emulator-fault --help`."""
        self._fault_client(*specification.split())

    def stats(self):
        """The embedded emulator's counters (proto/postbox/emulator/v1/faults.proto, StatsResponse)."""
        # JSON of protobuf writes 64-bit integers as strings.
        return json.loads(self._fault_client("--stats"), object_hook=lambda fields: {
            name: int(value) if isinstance(value, str) and value.isdigit() else value for name, value in fields.items()})

    def subscription_stats(self, name):
        return self.stats_of_subscriptions([name])[0]

    def stats_of_subscriptions(self, names):
        """In one look, which starts a process."""
        seen = {entry["name"]: entry for entry in self.stats()["subscriptions"]}
        return [seen[f"projects/{PROJECT}/subscriptions/{name}"] for name in names]

    def calls(self, rpc):
        return next((entry["calls"] for entry in self.stats()["rpcs"] if entry["name"] == rpc), 0)

    def _fault_client(self, *arguments):
        done = subprocess.run([str(self._testbed.postbox), "emulator-fault", "--endpoint", self.address, *arguments],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failure(f"emulator-fault {arguments}: {done.stderr}")
        return done.stdout


def find_google_emulator():
    needed = os.environ.get("POSTBOX_REQUIRE_GOOGLE_EMULATOR") == "1"

    def missing(why):
        return Failure(why) if needed else Skip(why)

    if not shutil.which("java"):
        raise missing("Google's emulator needs java, which is not installed")
    if not shutil.which("gcloud"):
        raise missing("Google's emulator comes with gcloud, which is not installed")
    place = "platform/pubsub-emulator/bin/cloud-pubsub-emulator"
    program = pathlib.Path(shutil.which("gcloud")).resolve().parents[1] / place
    if not program.exists():  # this gcloud is a wrapper that lies elsewhere
        root = subprocess.run(["gcloud", "info", "--format=value(installation.sdk_root)"], capture_output=True, text=True,
                              timeout=120, check=False).stdout.strip()
        program = pathlib.Path(root) / place
    if not program.exists():
        raise missing(f"Google's emulator is not installed: there is no {program}")
    return program


class Puller:
    """`postbox pull` for one database, with its log as JSON lines. `verbose` logs each event with its outcome. With endpoint="" the server's
    settings say where Pub/Sub is, and in which project."""

    def __init__(self, testbed, database, failpoint=None, arguments=(), verbose=True, dsn=None, endpoint=None, env=None):
        self.database = database
        peer = [] if endpoint == "" else ["--endpoint", endpoint or testbed.emulator.endpoint, "--project", PROJECT]
        self.process = testbed.start(
            f"puller-{database}",
            [testbed.postbox, "pull", "--dsn", dsn or testbed.cluster.dsn(database), *peer, "--log-format", "json", *arguments],
            env={"SPDLOG_LEVEL": "debug" if verbose else "info", **({"POSTBOX_FAILPOINT": failpoint} if failpoint else {}), **(env or {})})

    def records(self):
        """The log as a list of dictionaries; lines that are not JSON objects appear under the key 'text'."""
        found = []
        for line in self.process.text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            found.append(record if isinstance(record, dict) else {"text": line})
        return found

    def outcomes(self, outcome):
        return [record for record in self.records() if record.get("outcome") == outcome]

    def stop(self):
        return self.process.stop()


class Testbed:
    """The servers and processes of one test; a context manager. Without an emulator, the settings say where Pub/Sub is.
    `resources`: the topics and subscriptions that are there from the beginning, as orders of peer.js. The embedded emulator
    takes them as options, for which Node need not start. With server=False there is no Postgres."""

    def __init__(self, emulator=None, emulator_flags=(), settings=None, resources=(), server=True):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="postbox.", dir=os.environ.get("POSTBOX_TMPDIR", "/tmp")))
        self._processes = []
        self._closers = []
        self.cluster = None
        try:
            os.chmod(self.directory, 0o755)
            self.bin, self.postbox = stage_programs()
            if emulator == "embedded":
                emulator_flags = [*emulator_flags, *(part for order in resources for part in embedded_option(order))]
            self.emulator = Emulator(self, emulator, emulator_flags) if emulator else None
            if resources and emulator != "embedded":
                self.emulator.resources(*resources)
            peer = {"postbox.endpoint": self.emulator.endpoint} if self.emulator else {}
            if server:
                self.cluster = Cluster(self, {**peer, **(settings or {})})
        except BaseException:
            self.close(failed=True)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close(failed=kind is not None and not issubclass(kind, Skip))

    def start(self, name, command, env=None, on_line=None, stdin=subprocess.DEVNULL):
        log = self.directory / f"{name}-{len(self._processes)}.log"
        process = Process(name, command, log, env=env, on_line=on_line, stdin=stdin)
        self._processes.append(process)
        return process

    @functools.cached_property
    def peer(self):
        return Peer(functools.partial(self.start, "node", ["node", ROOT / "tests/node/peer.js"],
                                      env=node_environment(**self.emulator.environment)))

    def publish(self, messages, trace=False):
        """Through Google's Node client. Returns its answer."""
        return self.peer.order({"publish": messages, "trace": trace})[0]

    def puller(self, database, **more):
        return Puller(self, database, **more)

    def receiver(self, subscription):
        return self.receivers([subscription])[0]

    def receivers(self, subscriptions, trace=False):
        """One for each, and Google's Node client listens on them."""
        self.peer.order({"receive": subscriptions, "trace": trace})
        return [Receiver(self.peer, subscription) for subscription in subscriptions]

    def session(self, database):
        session = Session(self.cluster, database)
        self.at_close(session.close)
        return session

    def at_close(self, close):
        self._closers.append(close)

    def close(self, failed=False):
        # Cleaning up is not interrupted. What comes then is, as the next cell of a long run.
        handlers = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGTERM, signal.SIGINT)]
        for close in self._closers:
            with contextlib.suppress(Exception):
                close()
        if failed:
            self._print_logs()
        for process in reversed(self._processes):
            if process.running():
                with contextlib.suppress(Exception):
                    process.stop(signal.SIGTERM, timeout=20)
        for data in self.directory.glob("*/data"):
            with contextlib.suppress(Exception):
                Cluster.close(data.parent)
        shutil.rmtree(self.directory, ignore_errors=True)
        for number, handler in handlers:
            signal.signal(number, handler)

    def _print_logs(self):
        logs = [(process.name, process.text()) for process in self._processes]
        for server in sorted(self.directory.glob("*/server.log")):
            logs.append((f"postgres in {server.parent.name}", server.read_text("utf-8", "replace")))
        for name, text in logs:
            lines = text.splitlines()
            if lines:
                print(f"---- log of {name} (the last of {len(lines)} lines)", *lines[-40:], sep="\n", flush=True)


def node_environment(**more):
    """Of a program with Google's Node client, which is installed if it is not there (control/test has done it before)."""
    if not shutil.which("node"):
        raise Failure("node is not installed: run control/install-packages")
    done = subprocess.run([str(ROOT / "control/node-modules")], check=True, capture_output=True, text=True,
                          env={**os.environ, "POSTBOX_BUILD_DIR": str(build_directory())})
    return {"NODE_PATH": done.stdout.strip(), "PUBSUB_PROJECT_ID": PROJECT, **more}


def main(test, *arguments):
    """Runs a test and ends the program: 0 passed, 1 failed, 77 skipped. SIGTERM and SIGINT clean up as well."""
    def interrupted(number, _frame):
        raise Failure(f"interrupted by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    begun = time.monotonic()
    try:
        test(*arguments)
    except Skip as reason:
        say(f"SKIPPED: {reason}")
        sys.exit(SKIPPED)
    except Failure as failure:
        say(f"FAILED: {failure}")
        say("  at " + " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(traceback.extract_tb(failure.__traceback__))))
        sys.exit(1)
    say(f"PASSED in {time.monotonic() - begun:.1f} s")
