"""The steps of an event's path at which a fault strikes. Each brings the running system to that step and holds it there.

  prepare()  what the step needs, before there is a standby
  reach()    holds processes at the step; returns who they are, by kind of outbox
  forget()   processes that start from now on do not stop here
  release()  those that were held go on, if they still are
  finish()   after the fault, before the books are compared
"""

import contextlib
import re

import bank
import pg_control
from bank import KINDS, POISON
from harness import Failure, wait_until
from place import WORKERS, process_state


class Step:
    kinds = KINDS        # those that must have come to the step
    of_puller = False
    ends_processes = False  # of Postbox, to get there
    holds_locks = False  # others of the same outbox may have to wait for a process that is held here

    def __init__(self, name):
        self.name = name

    def prepare(self, site):
        pass

    def forget(self, site):
        pass

    def release(self, site):
        pass

    def finish(self, site):
        pass

    def repeats(self, _fault):
        """Whether events must be sent again, since Postbox cannot know that they were."""
        return False


class WorkerStep(Step):
    """A failpoint of the publisher worker."""

    def __init__(self, name, failpoint, kinds=KINDS, holds_locks=False):
        super().__init__(name)
        self._failpoint = failpoint
        self.kinds = kinds
        self.holds_locks = holds_locks

    def reach(self, site):
        position = site.log_position()
        site.cluster.set(postbox__failpoint=f"{self._failpoint}=pause")
        return self._wait_paused(site, position, self._failpoint, self.kinds)

    @staticmethod
    def _wait_paused(site, position, failpoint, kinds):
        def paused():
            pids = set(map(int, re.findall(rf"\[(\d+)\].*failpoint {failpoint}: paused", site.log_since(position))))
            found = {kind: here[0] for kind in KINDS if (here := [pid for pid in site.workers(kind) if pid in pids])}
            if not set(kinds) <= found.keys():
                raise Failure(f"paused there: {found}")
            return found

        return wait_until(f"workers are at {failpoint}", paused)

    def forget(self, site):
        site.cluster.write(postbox__failpoint="")

    def release(self, site):
        site.cluster.set(postbox__failpoint="")


class NoResponse(WorkerStep):
    """Pub/Sub has taken the messages, and its answer does not arrive."""

    def __init__(self, name):
        super().__init__(name, "before_send")

    def reach(self, site):
        self._wait_taken(site, self._sent(site))  # a worker that has no connection yet would get none
        victims = super().reach(site)
        site.publish_link.mute()
        before = self._sent(site)
        super().release(site)
        self._wait_taken(site, before)
        return victims

    def _wait_taken(self, site, before):
        wait_until("messages were taken", lambda: all(now > was for now, was in zip(self._sent(site), before)))

    @staticmethod
    def _sent(site):
        stats = site.bed.emulator.stats_of_subscriptions([bank.subscription(kind, "witness") for kind in KINDS])
        return [one["delivered"] + one["backlog"] for one in stats]

    def forget(self, site):
        pass

    def release(self, site):
        site.publish_link.unmute()

    def repeats(self, _fault):
        return True


class Unmarked(WorkerStep):
    """Pub/Sub has answered, and only the worker knows."""

    def __init__(self, name):
        super().__init__(name, "after_publish_before_mark")

    def repeats(self, fault):
        return fault.ends_processes


class Rebase(WorkerStep):
    """The log's positions come from another cluster."""

    ends_processes = True

    def __init__(self, name):
        super().__init__(name, "during_rebase", ("log",), holds_locks=True)

    def prepare(self, site):
        site.set_workers(0)
        site.wait_load(15)  # these have not been read
        site.restart("fast", between=lambda: pg_control.change_system_identifier(site.cluster))

    def reach(self, site):
        position = site.log_position()
        site.cluster.set(postbox__failpoint="during_rebase=pause", postbox__publishers=WORKERS)
        return self._wait_paused(site, position, self._failpoint, self.kinds)

    def release(self, site):
        super().release(site)
        site.set_workers(WORKERS)  # a standby was copied while there were none


class Retention(WorkerStep):
    """Published events are purged: rows of a table, a partition of a log. A purge that is held is given up after 2 s, and
    the worker leaves that outbox alone for a while."""

    ends_processes = True

    def __init__(self, name):
        super().__init__(name, "during_retention", holds_locks=True)

    def reach(self, site):
        """The log first: no partition is emptied while a transaction that is older than its events has written, as one that
        purges a table has."""
        def purging():
            self.release(site)
            site.set_workers(0)
            site.set_workers(WORKERS)
            position = site.log_position()
            site.cluster.set(postbox__failpoint="during_rotation=pause")
            held = self._wait_paused(site, position, "during_rotation", ("log",))
            site.cluster.set(postbox__failpoint="during_rotation=pause,during_retention=pause")
            held |= self._wait_paused(site, position, "during_retention", ("table",))
            if not self._has_emptied(site, held["log"]):
                raise Failure("the worker has given up to empty a partition, or could not lock it")
            return held

        return wait_until("events of both kinds are purged", purging)

    @staticmethod
    def _has_emptied(site, pid):
        return site.cluster.ask_number(bank.database("log"), f"""
            SELECT count(*) FROM pg_locks l JOIN pg_inherits i ON i.inhrelid = l.relation
            WHERE l.pid = {pid} AND l.mode = 'AccessExclusiveLock' AND l.granted AND i.inhparent = 'bank.outbox'::regclass""")


class Redrive(WorkerStep):
    """Parked events are made due again, in a transaction that is open when the fault strikes."""

    def __init__(self, name):
        super().__init__(name, "after_claim")
        self._sessions = []

    def prepare(self, site):
        site.bed.emulator.fault(f"rpc=Publish,code=INVALID_ARGUMENT,ordering-key={POISON}")
        for kind in KINDS:
            site.cluster.ask(bank.database(kind), f"SELECT bank.change('{POISON}', 1, 'first') FROM generate_series(1, 3)")
        wait_until("these events are parked", lambda: all(self._parked(site, kind) for kind in KINDS))

    @staticmethod
    def _parked(site, kind):
        return site.cluster.ask_number(bank.database(kind), "SELECT count(*) FROM postbox.paused_keys") > 0

    def reach(self, site):
        victims = super().reach(site)
        site.bed.emulator.fault("--clear")
        self._sessions = [site.session(bank.database(kind)) for kind in KINDS]
        for session in self._sessions:
            session.sql("BEGIN")
            session.sql("SELECT postbox.redrive('bank.outbox')")
        return victims

    def release(self, site):
        for session in self._sessions:
            with contextlib.suppress(Failure, OSError):  # it may have lost its server
                session.sql("COMMIT")
            with contextlib.suppress(OSError):
                session.close()
        self._sessions = []
        super().release(site)

    def finish(self, site):
        for kind in KINDS:
            site.cluster.ask(bank.database(kind), "SELECT postbox.redrive('bank.outbox')")


class PullerStep(Step):
    """A failpoint of the puller, which stops the whole process."""

    of_puller = True
    ends_processes = True

    def __init__(self, name, failpoint):
        super().__init__(name)
        self._failpoint = failpoint
        self._held = []

    def reach(self, site):
        site.stop_pullers()
        self._held = site.start_pullers(f"{self._failpoint}=pause")
        pids = {kind: puller.process.pid for kind, puller in zip(KINDS, self._held)}
        site.stopped += pids.values()
        wait_until(f"the pullers are at {self._failpoint}", lambda: all(process_state(pid) == "T" for pid in pids.values()))
        return pids

    def release(self, site):
        site.continue_processes()


STEPS = [
    WorkerStep("after the claim", "after_claim"),
    WorkerStep("before sending", "before_send"),
    NoResponse("effect without response"),
    Unmarked("after publishing, before the mark"),
    WorkerStep("after the mark", "after_mark"),
    WorkerStep("before a checkpoint", "before_checkpoint"),
    WorkerStep("after a checkpoint", "after_checkpoint"),
    Rebase("during a re-base"),
    Retention("during retention"),
    Redrive("during redrive"),
    PullerStep("before applying", "before_apply"),
    PullerStep("after COMMIT, before the ack", "after_commit_before_ack"),
    PullerStep("after the ack", "after_ack"),
]
