"""The servers under the fault matrix: a cluster with a bank for each kind of outbox, its pullers, the link to Pub/Sub, and
a witness beside them that no fault reaches.

With root's rights, and in a mount namespace of its own (control/fault-matrix), the WAL and the banks' tablespace are on
small file systems that can be filled up.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e/lib"))
import bank
import harness
import pg_control
from harness import Cluster, Failure, Puller, wait_until
from link import Link

LEASE = 10  # s, the least that postbox.lease_timeout may be
WORKERS = 2  # for each database
SETTINGS = {
    "postbox.publishers": "0", "postbox.lease_timeout": f"{LEASE}s", "postbox.maintenance_interval": "1s",
    "postbox.poll_interval": "200ms", "max_connections": "60"}
# The witness has as many processes allowed as it needs, so that the machine is left to the rest.
WITNESS_SETTINGS = {"postbox.publishers": "0", "max_worker_processes": "8"}


def may_mount():
    """Whether file systems may be mounted that nobody else sees."""
    return os.environ.get("POSTBOX_OWN_MOUNTS") == "1"


def process_state(pid):
    """The letter of /proc: T is a process that stands still."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        raise Failure(f"process {pid} has ended") from None


class Disk:
    """A small file system in memory."""

    def __init__(self, directory, megabytes):
        self.directory = directory
        directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(directory)], check=True)

    def fill(self):
        with open(self.directory / "ballast", "ab", buffering=0) as ballast:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        ballast.write(bytes(size))

    def free(self):
        (self.directory / "ballast").unlink(missing_ok=True)

    def unmount(self):
        subprocess.run(["umount", "--lazy", str(self.directory)], check=False)


class Site:
    def __init__(self, bed, inbox_retention="14 days", **load):
        self.bed = bed
        self.load = {"clients": 6, "rate": 80, **load}  # of each bank; the rate is transactions a second
        self.directory = bed.directory
        self.wal_disk = self.table_disk = None
        self.endpoint = bed.emulator.endpoint
        self.publish_link = Link(bed.emulator.address)
        self.pull_link = Link(bed.emulator.address)
        self.pullers = []
        self.loads = []
        self.stopped = []  # processes that a fault has stopped
        self.standby = None
        self._receiver = None  # the process of the standby that receives WAL, while it is stopped
        self.cluster = bed.cluster
        # Clients know both places where the primary can be. The sockets are in different directories.
        self._homes = [self.cluster.directory, self.directory / "cluster-b"]
        self._homes[1].mkdir()
        (self._homes[1] / "port").write_text(self.cluster.port + "\n")
        self.cluster.write(postbox__endpoint=self.publish_link.endpoint)
        if may_mount():
            self._use_small_disks()
        else:
            self.cluster.set()
        for kind in bank.KINDS:
            bank.create_bank(self.cluster, kind, "2 seconds", inbox_retention, "small" if self.table_disk else None)
        self.witness = Cluster(bed, WITNESS_SETTINGS, "witness")
        bank.create_witness(self.witness)
        self.witness_puller = Puller(bed, "witness", verbose=False, dsn=self.witness.dsn("witness"), endpoint=self.endpoint)
        self.start_pullers()
        self.set_workers(WORKERS)

    @classmethod
    @contextlib.contextmanager
    def open(cls, **how):
        site = None
        with harness.Testbed("embedded", bank.emulator_flags(), SETTINGS) as bed:
            try:
                site = cls(bed, **how)
                yield site
            finally:
                if site:
                    site.close()

    def _use_small_disks(self):
        self.wal_disk = Disk(self.directory / "wal-disk", 64)
        self.table_disk = Disk(self.directory / "table-disk", 192)
        self.cluster.stop()
        self.cluster.write(min_wal_size="2MB", max_wal_size="16MB")
        data = self.cluster.directory / "data"
        pg_control.run_as_postgres(self.cluster.bin / "pg_resetwal", "--wal-segsize=1", data)
        wal = self.wal_disk.directory / "wal"
        subprocess.run(["cp", "-a", data / "pg_wal", wal], check=True)
        shutil.rmtree(data / "pg_wal")
        (data / "pg_wal").symlink_to(wal)
        tables = self.table_disk.directory / "tables"
        tables.mkdir()
        shutil.chown(tables, "postgres")
        self.cluster.start()
        self.cluster.sql("postgres", f"CREATE TABLESPACE small LOCATION '{tables}'")

    def close(self):
        self.stop_load()
        self.continue_processes()
        for disk in (self.wal_disk, self.table_disk):
            if disk:
                disk.free()
        with contextlib.suppress(Exception):
            self.cluster.stop("immediate")
        for disk in (self.wal_disk, self.table_disk):
            if disk:
                disk.unmount()

    # Load.

    def pgbench(self, kind, arguments, on_error):
        environment = {**self.cluster.environment, "PGHOST": ",".join(map(str, self._homes)), "PGTARGETSESSIONATTRS": "read-write"}
        command = ["sh", "-c", 'exec "$0" "$@" 2>&1', self.cluster.bin / "pgbench", *arguments, bank.database(kind)]
        return harness.Process(f"pgbench-{kind}", command, self.directory / "pgbench.log", env=environment, on_line=on_error)

    def start_load(self, **more):
        self.loads = [bank.Load(self, kind, **{**self.load, **more}) for kind in bank.KINDS]

    def stop_load(self):
        for load in self.loads:
            load.stop()
        self.loads = []

    def wait_load(self, events):
        """Until each bank has committed so many events more."""
        goal = {kind: self.committed(kind) + events for kind in bank.KINDS}

        def reached():
            left = {kind: goal[kind] - self.committed(kind) for kind in bank.KINDS}
            if any(count > 0 for count in left.values()):
                raise Failure(f"events to come: {left}; the last errors: {[load.errors[-1:] for load in self.loads]}")
            return True

        wait_until("the load goes on", reached)

    def alter_publications(self):
        """With new settings the workers begin again, with the lanes that they have and those that are free."""
        for backoff in ("2s", "1s"):
            for kind in bank.KINDS:
                self.cluster.ask(bank.database(kind), f"SELECT postbox.alter_publication('accounts', max_backoff => '{backoff}')")

    def touch_all(self):
        """An event of each account, so that each lane has something to do."""
        for kind in bank.KINDS:
            self.cluster.ask(bank.database(kind), bank.TOUCH)

    def committed(self, kind):
        return self.cluster.ask_number(bank.database(kind), "SELECT count(*) FROM bank.journal")

    # Processes.

    def dsn(self, database):
        return f"host={','.join(map(str, self._homes))} port={self.cluster.port} user=postgres dbname={database} target_session_attrs=read-write"

    def start_pullers(self, failpoint=None):
        """One for each bank, beside those that run already."""
        started = [Puller(self.bed, bank.database(kind), failpoint, verbose=False, dsn=self.dsn(bank.database(kind)),
                          endpoint=self.pull_link.endpoint) for kind in bank.KINDS]
        self.pullers += started
        return started

    def stop_pullers(self):
        for puller in self.pullers:
            puller.process.kill(signal.SIGTERM)
        for puller in self.pullers:
            puller.process.wait()
        self.pullers = []

    def workers(self, kind):
        return self._workers()[kind]

    def _workers(self):
        rows = self.cluster.ask("postgres", "SELECT datname, pid FROM pg_stat_activity WHERE backend_type = 'postbox publisher'")
        return {kind: [int(pid) for database, pid in rows if database == bank.database(kind)] for kind in bank.KINDS}

    def set_workers(self, count):
        self.cluster.set(postbox__publishers=count)
        self.wait_workers(count)

    def wait_workers(self, count=WORKERS):
        def so():
            found = {kind: len(pids) for kind, pids in self._workers().items()}
            if set(found.values()) != {count}:
                raise Failure(f"workers: {found}")
            return True

        wait_until(f"each bank has {count} workers", so)

    def stop_process(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.stopped.append(pid)

    def stop_between_transactions(self, pid):
        """Stops a process of the server where it holds nothing that others would wait for."""
        def stopped():
            self.stop_process(pid)
            # One that was stopped with a lock of the server's own, such as those of the lock table, keeps the question waiting.
            with contextlib.suppress(subprocess.TimeoutExpired):
                (busy,), = self.cluster.sql("postgres", f"""
                    SELECT (SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND xact_start IS NOT NULL)
                        + (SELECT count(*) FROM pg_locks WHERE pid = {pid} AND locktype = 'relation')""", timeout=5)
                if busy == "0":
                    return True
            self.continue_processes()
            return False

        wait_until("a process is stopped between two transactions", stopped)

    def continue_processes(self):
        stopped, self.stopped = self.stopped, []
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    # The server.

    def session(self, database):
        return harness.Session(self.cluster, database)

    def log_since(self, position):
        with open(self.cluster.log, "rb") as log:
            log.seek(position)
            return log.read().decode("utf-8", "replace")

    def log_position(self):
        return self.cluster.log.stat().st_size

    def wait_up(self):
        def up():
            self.cluster.ask("postgres", "SELECT 1")
            return True

        wait_until("the server takes connections", up)

    def wait_crash(self, position):
        """Until the server has begun to recover from a crash."""
        wait_until("the server recovers", lambda: "automatic recovery in progress" in self.log_since(position))

    def broken_off(self, position, expected):
        """Processes of the server that have ended by a signal that no fault asks for."""
        lines = re.findall(r".*(?:terminated by signal|TRAP:).*", self.log_since(position))
        return [line for line in lines if not any(f"by signal {number}:" in line for number in expected)]

    def restart(self, mode="immediate", between=lambda: None):
        with contextlib.suppress(subprocess.CalledProcessError):  # it may have ended by itself
            self.cluster.stop(mode)
        between()
        self.cluster.start()

    # Failover.

    def make_standby(self):
        """A synchronous standby in the place where no server is."""
        home = next(home for home in self._homes if home != self.cluster.directory)
        for directory in ("data", "tables"):
            shutil.rmtree(home / directory, ignore_errors=True)
        (home / "server.log").unlink(missing_ok=True)
        places = self.cluster.sql("postgres", "SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = 'small'")
        self.cluster.set(wal_keep_size="16MB")  # what the standby lacks when it begins
        self.standby = Cluster.of_backup(self.cluster, home, *(f"--tablespace-mapping={place}={home / 'tables'}" for place, in places),
                                         synchronous_standby_names="")
        self.cluster.set(synchronous_commit="remote_apply", synchronous_standby_names="*")
        wait_until("the standby is synchronous", lambda: self.cluster.ask_number(
            "postgres", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1)

    def stop_receiver(self):
        """From now on the standby gets nothing more."""
        self._receiver = self.standby.number("postgres", "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'")
        self.stop_process(self._receiver)
        wait_until("the receiver stands still", lambda: process_state(self._receiver) == "T")

    def fail_over(self):
        """What the receiver has not written is gone with it, whereupon the standby starts its processes again."""
        self.cluster.stop("immediate")
        os.kill(self._receiver, signal.SIGKILL)
        self.stopped.remove(self._receiver)
        wait_until("the receiver is gone", lambda: not pathlib.Path(f"/proc/{self._receiver}").exists())
        wait_until("the standby takes connections", lambda: self.standby.value("postgres", "SELECT 1"))
        self.standby.sql("postgres", "SELECT pg_promote()")
        self.cluster, self.standby = self.standby, None
