"""The steps of an event's path at which a fault strikes. Each brings the running system to that step and holds it there.

  prepare()  what the step needs, before there is a standby
  reach()    holds processes at the step; returns who they are, by kind of outbox
  forget()   processes that start from now on do not stop here
  release()  those that were held go on, if they still are
  finish()   after the fault, before the books are compared
"""

import contextlib
import pathlib
import re

import bank
import pg_control
from bank import KINDS, POISON
from harness import Failure, wait_until
from place import WORKERS


class Step:
    kinds = KINDS        # those that must have come to the step
    of_puller = False
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
        return self._wait_paused(site, position)

    def _wait_paused(self, site, position):
        def paused():
            pids = set(map(int, re.findall(rf"\[(\d+)\].*failpoint {self._failpoint}: paused", site.log_since(position))))
            found = {kind: here[0] for kind in KINDS if (here := [pid for pid in site.workers(kind) if pid in pids])}
            if not set(self.kinds) <= found.keys():
                raise Failure(f"paused there: {found}")
            return found

        return wait_until(f"workers are at {self._failpoint}", paused)

    def forget(self, site):
        site.cluster.write(postbox__failpoint="")

    def release(self, site):
        site.cluster.set(postbox__failpoint="")


class NoResponse(WorkerStep):
    """Pub/Sub has taken the messages, and its answer does not arrive."""

    def __init__(self, name):
        super().__init__(name, "before_send")

    def reach(self, site):
        victims = super().reach(site)
        site.publish_link.mute()
        before = self._sent(site)
        super().release(site)
        wait_until("messages were taken", lambda: all(now > was for now, was in zip(self._sent(site), before)))
        return victims

    @staticmethod
    def _sent(site):
        stats = [site.bed.emulator.subscription_stats(bank.subscription(kind, "witness")) for kind in KINDS]
        return [one["delivered"] + one["backlog"] for one in stats]

    def forget(self, site):
        pass

    def release(self, site):
        site.publish_link.unmute()


class Rebase(WorkerStep):
    """The log's positions come from another cluster."""

    def __init__(self, name):
        super().__init__(name, "during_rebase", ("log",), holds_locks=True)

    def prepare(self, site):
        site.set_workers(0)
        site.wait_load(30)  # these have not been read
        site.restart("fast", between=lambda: pg_control.change_system_identifier(site.cluster))

    def reach(self, site):
        position = site.log_position()
        site.cluster.set(postbox__failpoint="during_rebase=pause", postbox__publishers=WORKERS)
        return self._wait_paused(site, position)

    def release(self, site):
        super().release(site)
        site.set_workers(WORKERS)  # a standby was copied while there were none


class Retention(WorkerStep):
    """Published events are purged. A worker that had to give up a purge leaves that outbox alone for a while."""

    def __init__(self, name):
        super().__init__(name, "during_retention", ("table",), holds_locks=True)

    def prepare(self, site):
        site.set_workers(0)
        site.set_workers(WORKERS)


class Redrive(WorkerStep):
    """Parked events are made due again, in a transaction that is open when the fault strikes."""

    def __init__(self, name):
        super().__init__(name, "after_claim")
        self._sessions = []

    def prepare(self, site):
        site.bed.emulator.fault(f"rpc=Publish,code=INVALID_ARGUMENT,ordering-key={POISON}")
        for kind in KINDS:
            site.cluster.sql(bank.database(kind), f"SELECT bank.change('{POISON}', 1, 'first') FROM generate_series(1, 3)")
        wait_until("these events are parked", lambda: all(self._parked(site, kind) for kind in KINDS))

    @staticmethod
    def _parked(site, kind):
        return site.cluster.number(bank.database(kind), "SELECT count(*) FROM postbox.paused_keys")

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
            site.cluster.sql(bank.database(kind), "SELECT postbox.redrive('bank.outbox')")


class PullerStep(Step):
    """A failpoint of the puller, which stops the whole process."""

    of_puller = True

    def __init__(self, name, failpoint):
        super().__init__(name)
        self._failpoint = failpoint
        self._held = []

    def reach(self, site):
        site.stop_pullers()
        self._held = site.start_pullers(f"{self._failpoint}=pause")
        pids = {kind: puller.process.pid for kind, puller in zip(KINDS, self._held)}
        site.stopped += pids.values()
        wait_until(f"the pullers are at {self._failpoint}", lambda: all(self._state(pid) == "T" for pid in pids.values()))
        return pids

    @staticmethod
    def _state(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            raise Failure("the puller has ended") from None

    def release(self, site):
        site.continue_processes()


STEPS = [
    WorkerStep("after the claim", "after_claim"),
    WorkerStep("before sending", "before_send"),
    NoResponse("effect without response"),
    WorkerStep("after publishing, before the mark", "after_publish_before_mark"),
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
