"""The network between Postbox and Pub/Sub: a TCP relay on loopback that can be cut and muted.

The embedded emulator keeps everything in memory, so it cannot be killed and come back. What a client sees of a broker
that is lost is this: its connections are reset and new ones refused, in the middle of whatever it does.
"""

import contextlib
import socket
import threading


class Link:
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._audible = threading.Event()
        self._audible.set()
        self._pairs = []  # sockets of a connection: that of the client, that of the broker
        self._listener = None
        self._port = 0
        self.mend()
        self._port = self._listener.getsockname()[1]

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def mend(self):
        """New connections come through again."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen(64)
        self._listener = listener
        self._audible.set()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def connections(self):
        with self._lock:
            return len(self._pairs)

    def cut(self):
        """All connections are reset, and new ones refused. Returns how many there were."""
        if self._listener:
            listener, self._listener = self._listener, None
            # close() alone would leave accept() waiting, and with it the port listening.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        return self.reset()

    def mute(self):
        """What the broker answers does not arrive; what clients send does."""
        self._audible.clear()

    def unmute(self):
        """The answers that were held back are lost with their connections."""
        self.reset()
        self._audible.set()

    def reset(self):
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(pairs)

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, broker))
            for source, sink, muted in ((client, broker, False), (broker, client, True)):
                threading.Thread(target=self._relay, args=(source, sink, muted), daemon=True).start()

    def _relay(self, source, sink, can_be_muted):
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                if can_be_muted:
                    self._audible.wait()
                sink.sendall(chunk)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        # The other direction may still use the sockets; they are closed when both have ended.
        with self._lock:
            self._pairs = [pair for pair in self._pairs if source not in pair]
