"""Processor time of the processes that take part in something, for an event."""

import bed
import processes
from applying import KEYS
from harness import Failure, wait_until

WARM = 10  # a tenth of the messages is not measured: programs connect, and a just-in-time compiler learns


class Used:
    """Processor time from now on: of these processes; and, as "backend", of the sessions with this name, also of such as begin later
    or end before it is asked for. Meanwhile no other session may end."""

    def __init__(self, server=None, sessions=None, **pids):
        self._server, self._sessions, self._pids = server, sessions, pids
        self._before = self._now()

    def _now(self):
        seconds = {name: processes.cpu_seconds(pid) for name, pid in self._pids.items()}
        if self._sessions:
            rows = self._server.watch.sql(
                f"SELECT pid FROM pg_stat_activity WHERE application_name LIKE '{self._sessions}' AND backend_type = 'client backend'")
            live = sum(processes.cpu_seconds(int(pid)) for (pid,) in rows)
            seconds["backend"] = live + processes.cpu_seconds_of_ended_children(self._server.cluster.postmaster)
        return seconds

    def per_event(self, events):
        """Microseconds, by process."""
        return {name: 1e6 * (seconds - self._before[name]) / events for name, seconds in self._now().items()}


def pulled(server, service, events, warm, sessions, **pids):
    """What these processes, and the sessions of this name, take for what is acked; `warm`: after the first messages."""
    first = now_acked(service, events // WARM) if warm else 0
    used = Used(server, sessions, **pids)
    service.wait_for(events)
    return used.per_event(events - first)


def now_acked(service, messages):
    """How many messages are acked at this moment, when so many have been. The server tells it ten times a second."""
    service.wait_for(messages)
    told = service.messages
    return wait_until("there is a newer count", lambda: service.messages if service.messages != told else None, bed.PATIENCE, 0.001)


def check_applied(server, schema, events):
    rows, newest = server.sql(f"SELECT (SELECT count(*) FROM {schema}.inbox), (SELECT count(*) FROM {schema}.video WHERE version = {events // KEYS})")[0]
    if (int(rows), int(newest)) != (events, KEYS):
        raise Failure(f"{rows} of {events} events were applied, and {newest} of {KEYS} keys have their last version")
