"""Shells into which a test pastes the blocks of a page, as a reader of the page does.

The programs are those of the stage. With POSTBOX_FROM_PATH=1 they are those in PATH, for example from packages. If the folder or the port of the
page are in use on this machine, others are put in their place.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import harness
from harness import Failure, Hopeless, Process, say, wait_until

PORT = 8085  # of the emulator, if nothing else is said
USER = "postgres"  # of the shells, if the test runs as root


def without_trailing_space(text):
    """psql fills the cells of a header with spaces; a page does not have those at the end of a line."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class Terminal:
    """One shell. What one block exports, the next one has. A command that fails ends it."""

    def __init__(self, name, command, log, replaced):
        self._process = Process(name, command, log, stdin=subprocess.PIPE)
        self._replaced = replaced
        self._blocks = 0

    def _write(self, text):
        self._process.popen.stdin.write(text.encode())
        self._process.popen.stdin.flush()

    def _wait_for(self, text, start=0):
        def said():
            if text in self.text()[start:]:
                return True
            if not self._process.running():
                raise Hopeless(f"{self._process.name} ended:\n{self.text()}")
            return False

        wait_until(f"{self._process.name} says: {text}", said)

    def text(self):
        return self._process.text()

    def paste(self, block, until):
        """A block whose last command goes on running. Waits until it has printed `until`."""
        start = len(self.text())
        self._write(self._replaced(block))
        self._wait_for(until, start)

    def run(self, block):
        """A block that ends. Returns what it has printed."""
        start = len(self.text())
        self._blocks += 1
        end = f"--- end of block {self._blocks}\n"
        self._write(f"{self._replaced(block)}echo '{end.strip()}'\n")
        self._wait_for(end, start)
        return self.text()[start:].removesuffix(end)

    def control_c(self):
        """True if what ran in it has ended in order."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.popen.stdin.close()
        return self._process.wait(60) in (0, -signal.SIGINT, 128 + signal.SIGINT)

    def leave(self):
        if self._process.running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)
        self._process.popen.stdin.close()

    def print_log(self):
        print(f"---- {self._process.name}", *self.text().splitlines()[-40:], sep="\n", flush=True)


class Terminals:
    """The shells of one page. `folder` is where its server is."""

    def __init__(self, directory, folder):
        self._directory = directory
        self._replacements = []
        self._opened = []
        self._path = os.environ["PATH"]
        if os.environ.get("POSTBOX_FROM_PATH") != "1":
            programs, postbox = harness.stage_programs()
            self._path = f"{programs}:{postbox.parent}:{self._path}"
        self.folder = folder
        if pathlib.Path(folder).exists():
            self.folder = str(directory / "server")
            self._replace(folder, self.folder)
        if not _is_free(PORT):
            port = _free_port()
            self._replace(f":{PORT}", f":{port}")
            self._replace("postbox emulator --", f"postbox emulator --port {port} --")

    def _replace(self, old, new):
        say(f"    {old} is in use on this machine; {new} is used instead")
        self._replacements.append((old, new))

    def replaced(self, text):
        for old, new in self._replacements:
            text = text.replace(old, new)
        return text

    def open(self):
        number = len(self._opened) + 1
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--"] if os.getuid() == 0 else []
        # A reader sees the errors; here they end the shell. Nothing of this machine's environment is to help.
        clean = ["env", "-i", "-C", str(self._directory), f"PATH={self._path}", f"HOME={self._directory}", "LANG=C.UTF-8"]
        terminal = Terminal(f"terminal {number}", [*become, *clean, "bash", "-e", "-o", "pipefail"], self._directory / f"terminal-{number}.log", self.replaced)
        self._opened.append(terminal)
        return terminal

    def close(self, failed):
        if failed:
            for terminal in self._opened:
                terminal.print_log()
        if pathlib.Path(self.folder).exists():
            with contextlib.suppress(Failure):
                self.open().run(f"pg_ctl stop --mode=immediate --pgdata={self.folder}\n")
            shutil.rmtree(self.folder, ignore_errors=True)
        for terminal in self._opened:
            terminal.leave()


@contextlib.contextmanager
def opened(folder):
    """The terminals of a page whose server is in `folder`. Nothing that was started in them stays."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="postbox."))
    os.chmod(directory, 0o777)
    try:
        terminals = Terminals(directory, folder)
        failed = True
        try:
            yield terminals
            failed = False
        finally:
            terminals.close(failed)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
