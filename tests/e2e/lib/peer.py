"""The outside peer of the end-to-end tests."""

import contextlib
import json
import queue
import subprocess

from outcome import Hopeless, wait_until


class Peer:
    """Google's Node client, the outside peer: one process of tests/node/peer.js for all that a test orders, since starting Node is slow."""

    def __init__(self, start):
        """`start` starts it, with these arguments of Process."""
        self._answers = queue.Queue()
        self.messages = []  # received so far, in order
        self.process = start(on_line=self._take, stdin=subprocess.PIPE)

    def _take(self, line):
        value = json.loads(line)
        if "answer" in value:
            self._answers.put(value["answer"])
        else:
            self.messages.append(value)

    def order(self, *orders):
        """The answers to these orders."""
        with contextlib.suppress(BrokenPipeError):  # it has failed, and says why
            self.process.popen.stdin.write("".join(json.dumps(order) + "\n" for order in orders).encode())
            self.process.popen.stdin.flush()
        return [wait_until("Google's Node client answers", self._answer) for _ in orders]

    def _answer(self):
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=0.5)
        if not self.process.running():
            raise Hopeless(f"peer.js failed:\n{self.process.text()}")
        return None


class Receiver:
    """What Google's Node client has received of a subscription so far, in order."""

    def __init__(self, peer, subscription):
        self._peer, self._subscription = peer, subscription

    def messages(self):
        if not self._peer.process.running():
            raise Hopeless(f"peer.js failed:\n{self._peer.process.text()}")
        return [message for message in list(self._peer.messages) if message["subscription"] == self._subscription]

    def event_ids(self):
        return [message["attributes"].get("event_id") for message in self.messages()]
