"""The faults. strike() begins with the system held at a step, and returns when the cause of the fault is over: what is left
is for Postbox to do."""

import contextlib
import os
import signal
import time

import bank
from harness import Failure, say, wait_until
from place import LEASE, process_state


class Fault:
    needs_disks = False
    needs_standby = False
    ends_processes = False  # of Postbox
    aborts_server = False   # with PANIC
    hurried = 30  # percent of the commits that do not wait for their WAL

    def __init__(self, name):
        self.name = name

    def prepare(self, site):
        pass

    def strike(self, site, step, victims):
        raise NotImplementedError


def require(struck, what):
    """A fault that has not struck says nothing about what it would have done."""
    if not struck:
        raise Failure(f"the fault has not struck: {what}")


class Kill(Fault):
    """SIGKILL of the workers that are held, which makes Postgres restart all processes; or of the pullers."""

    ends_processes = True

    def strike(self, site, step, victims):
        step.forget(site)
        position = site.log_position()
        for pid in victims.values():
            with contextlib.suppress(ProcessLookupError):  # the postmaster has been faster with the second
                os.kill(pid, signal.SIGKILL)
        if step.of_puller:
            killed, site.pullers = site.pullers, []
            for puller in killed:
                require(puller.process.wait() == -signal.SIGKILL, f"the puller of {puller.database} is not killed")
            site.start_pullers()
        else:
            site.wait_crash(position)
        site.wait_up()
        step.release(site)


class ImmediateStop(Fault):
    ends_processes = True

    def strike(self, site, step, victims):
        step.forget(site)
        position = site.log_position()
        site.restart("immediate")
        site.wait_crash(position)
        step.release(site)


class LostBroker(Fault):
    """Connections are reset and refused, while the load goes on."""

    def strike(self, site, step, victims):
        for link in (site.publish_link, site.pull_link):
            wait_until("there is a connection to cut", link.connections)  # workers may have just been started
            require(link.cut(), "there was no connection to cut")
        step.release(site)
        site.wait_load(2 * site.load["rate"])
        for link in (site.publish_link, site.pull_link):
            link.mend()


class Stop(Fault):
    """SIGSTOP for longer than the lease: until another worker has done what was in the stopped one's hands, or until the
    leases of the messages that a stopped puller holds have ended at the broker. Then it goes on."""

    def strike(self, site, step, victims):
        if step.of_puller:
            self._outlast_messages(site)
        else:
            self._outlast_claims(site, step, victims)
        for pid in victims.values():
            require(process_state(pid) == "T", f"process {pid} does not stand still")
        site.continue_processes()

    @staticmethod
    def _outlast_messages(site):
        def expired():
            return [one["expired"] for one in site.bed.emulator.stats_of_subscriptions([bank.subscription(kind, "reader") for kind in bank.KINDS])]

        before = expired()
        site.start_pullers()
        wait_until("the leases of messages have ended", lambda: all(now > was for now, was in zip(expired(), before)))

    def _outlast_claims(self, site, step, victims):
        before = {kind: site.cluster.ask_number(bank.database(kind), "SELECT coalesce(max(id), 0) FROM bank.journal") for kind in victims}
        begun = time.monotonic()
        for pid in victims.values():
            site.stop_process(pid)
        step.release(site)

        def taken_over():
            left = {} if step.holds_locks else {kind: self._left(site, kind, upto) for kind, upto in before.items()}
            if any(left.values()):
                raise Failure(f"events that wait for the stopped process: {left}")
            return time.monotonic() > begun + LEASE + 1

        wait_until("others have taken over, and the lease is over", taken_over, interval=0.2)

    @staticmethod
    def _left(site, kind, upto):
        return site.cluster.ask_number(bank.database(kind), f"""
            SELECT count(*) FROM bank.journal WHERE id <= {upto} AND account_id <> '{bank.POISON}'
                AND event_id NOT IN (SELECT event_id FROM reader.effect)""")


class FullWal(Fault):
    """No space for WAL: Postgres ends with PANIC and cannot start until there is space again."""

    needs_disks = True
    ends_processes = True
    aborts_server = True

    def strike(self, site, step, victims):
        step.forget(site)
        position = site.log_position()
        site.wal_disk.fill()

        def panic():
            with contextlib.suppress(Failure):
                site.cluster.sql("postgres", "SELECT pg_switch_wal()")
            return "PANIC:" in site.log_since(position)

        wait_until("the server is out of space for WAL", panic)
        site.restart("immediate", between=site.wal_disk.free)
        site.wait_crash(position)
        step.release(site)


class FullTablespace(Fault):
    """No space for tables: whoever emits gets an ERROR, and the workers and pullers have to wait."""

    needs_disks = True

    def strike(self, site, step, victims):
        # What is held may have locked the outbox of its kind.
        self._wait_refused(site, any if step.holds_locks else all)
        step.release(site)
        self._wait_refused(site, all)
        site.table_disk.free()

    @staticmethod
    def _wait_refused(site, enough):
        """Until who writes in a bank is refused. Emitters find space in tables of before: this emits, too, until that is used up. Where the
        file that a new session reads first has to be written again, it is refused before it can write, with a message that names no file."""
        position = site.log_position()
        paths = [(name, f"/{oid}/") for name, oid in site.cluster.sql("postgres", "SELECT datname, oid FROM pg_database WHERE datname LIKE 'bank%'")]

        def seen():
            site.table_disk.fill()  # what a purge has freed
            refused = [line for line in site.log_since(position).splitlines() if "No space left on device" in line]
            return enough([any(path in line for line in refused) or shut_out(database) for database, path in paths])

        def shut_out(database):
            try:
                site.cluster.sql(database, f"SET lock_timeout = '100ms'; {bank.TOUCH}")
            except Failure as failure:
                return "could not write init file" in str(failure)
            return False

        wait_until("there is no space in the banks", seen)


class Failover(Fault):
    """The primary is stopped at once and its synchronous standby promoted, which lacks the last commits: those that did not
    wait for it. No event of theirs may have been sent."""

    needs_standby = True
    ends_processes = True
    hurried = 50  # so that some are gone with the primary

    def prepare(self, site):
        site.make_standby()

    def strike(self, site, step, victims):
        step.forget(site)
        site.stop_receiver()
        unlocked = [kind for kind in bank.KINDS if self._hasten(site, kind)]
        require(unlocked if step.holds_locks else len(unlocked) == len(bank.KINDS), "nothing was committed without the standby")
        if step.of_puller:  # the workers run, and have time to send what they must not
            for kind in bank.KINDS:
                wait_until("events wait for the standby", lambda: site.cluster.value(
                    bank.database(kind), "SELECT state FROM postbox.publication_status") == "waiting")
        visible = self._committed(site)
        site.fail_over()
        gone = visible - self._committed(site)
        require(gone, "no commit is gone")
        say(f"  {len(gone)} events that were committed are gone with the primary")
        step.release(site)

    @staticmethod
    def _hasten(site, kind):
        """Events whose commits do not wait for the standby, of an account that nobody else uses. False if the outbox is locked."""
        with contextlib.suppress(Failure):
            site.cluster.sql(bank.database(kind), f"""
                SET synchronous_commit = off; SET lock_timeout = '1s';
                SELECT bank.change('{bank.HASTY}', 1, 'first') FROM generate_series(1, 3)""")
            return True
        return False

    @staticmethod
    def _committed(site):
        return {event for kind in bank.KINDS for event, in site.cluster.ask(bank.database(kind), "SELECT event_id FROM bank.journal")}


FAULTS = [
    Kill("SIGKILL"), ImmediateStop("immediate stop"), LostBroker("loss of the broker"), Stop("SIGSTOP"),
    FullWal("full WAL disk"), FullTablespace("full tablespace"), Failover("failover"),
]
