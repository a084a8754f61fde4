"""The fork server: a Python that has imported all modules of Spark's workers and forks a process for each.

A plain worker needs more than a second to import PySpark (from a zip, without compiled files) and Arrow, and a stream
needs five of them before its first row. Here they are imported once, while Java starts.

Rules:
1. Only a single-threaded process forks: locks held by other threads would stay locked forever. Otherwise requests are
   refused, and the client starts Python as usual. So are requests with other interpreter settings.
2. It imports on a byte on its standard input, or on the first request: before that, Java and the command itself need
   all cores.
3. A child has the client's arguments, environment, folder and standard streams, and its own random numbers.
4. It ends with its client, which receives its exit code. All end with the process that has started the server: its pipe
   to our standard input closes then.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import warnings
from contextlib import suppress
from typing import NamedTuple

from ottla.pipelines.spark.workers.client import ACCEPTED, STANDARD

MODULES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pandas",
    "pyarrow",
    "ottla.pipelines.source.data_source",
    "ottla.pipelines.source.range_reader",
    "ottla.pipelines.sinks.file_publisher",
    "confluent_kafka",
)
# Variables that an interpreter or library reads only at startup: a child cannot change them.
FIXED = ("PYTHONHASHSEED", "PYTHONHOME", "PYTHONOPTIMIZE", "OMP_NUM_THREADS", "LD_PRELOAD", "LD_LIBRARY_PATH")
REFUSED = b"-"
MESSAGE_BYTES_MAX = 4 << 20
MESSAGE_SECONDS_MAX = 5.0
LAST_SECONDS_MAX = 30.0  # time for children to end at shutdown


class Wanted(NamedTuple):
    """A requested process."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str


def main(listener: socket.socket) -> None:
    """Serve until standard input closes; a child runs the requested module. Requests during the import wait."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in all processes that Spark's Java starts
    folder = os.path.dirname(listener.getsockname())
    if is_wanted(listener):
        prepare()
    wanted = Server(listener).serve()
    if wanted is not None:
        run(wanted)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def is_wanted(listener: socket.socket) -> bool:
    """Wait for the signal to import; False if standard input closes first."""
    ready, _, _ = select.select([listener, sys.stdin], [], [])
    return listener in ready or bool(os.read(sys.stdin.fileno(), 1))


def prepare() -> None:
    """Import the available modules; a worker imports missing ones itself."""
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    # runpy would warn about imported modules that run as programs.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    os.register_at_fork(after_in_child=_renew_random_numbers)
    gc.collect()
    gc.freeze()  # otherwise the first collection of each child would copy all pages


class Server:
    """Owns the listening socket and the children."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.askers: dict[int, socket.socket] = {}  # keyed by child process id

    def __repr__(self) -> str:
        return f"<Server with {len(self.askers)} children>"

    def serve(self) -> Wanted | None:
        """Return None in the server, at its end; in each child the requested process."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, _do_nothing)  # otherwise the signal would not interrupt select
        signal.set_wakeup_fd(wake)
        while True:
            ready, _, _ = select.select([self.listener, sys.stdin, woken, *self.askers.values()], [], [])
            if woken in ready:
                os.read(woken, 4096)
            for child in [child for child, asker in self.askers.items() if asker in ready]:
                _kill(child, signal.SIGTERM)  # clients send nothing more: readable means closed
                self.askers.pop(child).close()
            self._tell_ended()
            if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
                self._end()
                return None
            if self.listener in ready and (wanted := self._answer()) is not None:
                os.close(woken)
                os.close(wake)
                return wanted

    def _answer(self) -> Wanted | None:
        """Return the requested process in the child."""
        asker, _ = self.listener.accept()
        asker.settimeout(MESSAGE_SECONDS_MAX)
        streams: list[int] = []
        try:
            wanted = receive(asker, streams)
            if threads() > 1 or not is_possible(wanted.environment):
                asker.sendall(REFUSED)
                asker.close()
                return None
            child = os.fork()
            if child == 0:
                self._become_child(asker, streams)
                return wanted
            self.askers[child] = asker
            asker.sendall(ACCEPTED)
        except (OSError, ValueError, TypeError):  # the client has gone, or sent an invalid request
            asker.close()
        finally:
            for number in streams:
                os.close(number)
        return None

    def _become_child(self, asker: socket.socket, streams: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.listener.close()
        for each in (asker, *self.askers.values()):
            each.close()
        self.askers.clear()
        for number, stream in zip(STANDARD, streams, strict=True):
            os.dup2(stream, number)

    def _tell_ended(self) -> None:
        with suppress(ChildProcessError):  # there are no children
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                asker = self.askers.pop(child, None)
                if asker is not None:
                    code = os.waitstatus_to_exitcode(status)
                    with suppress(OSError), asker:
                        asker.sendall(bytes([code if code >= 0 else 128 - code]))

    def _end(self) -> None:
        """The parent has exited, and Java will soon: workers notice that and end by themselves."""
        self.listener.close()
        deadline = time.monotonic() + LAST_SECONDS_MAX
        while self.askers and time.monotonic() < deadline:
            time.sleep(0.05)
            self._tell_ended()
        for child in self.askers:
            _kill(child, signal.SIGKILL)


def receive(asker: socket.socket, streams: list[int]) -> Wanted:
    """Raises OSError or ValueError; received streams are reported in any case."""
    head, numbers, _, _ = socket.recv_fds(asker, 4, len(STANDARD))
    streams += numbers
    length = int.from_bytes(head, "big")
    if len(head) < 4 or len(numbers) != len(STANDARD) or length > MESSAGE_BYTES_MAX:
        raise ValueError("invalid request")
    with asker.makefile("rb") as file:
        wanted = json.loads(file.read(length))
    return Wanted(**wanted)


def is_possible(environment: dict[str, str]) -> bool:
    """Whether a fork equals a new process with this environment."""
    return all(environment[name] == os.environ.get(name) for name in FIXED if name in environment)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def run(wanted: Wanted) -> None:
    """Like `python -m module`: sys.path begins with the folder and the entries of PYTHONPATH."""
    option, module, *arguments = wanted.arguments
    assert option == "-m", f"Spark starts modules only, not {wanted.arguments}"
    os.environ.clear()
    os.environ.update(wanted.environment)
    time.tzset()
    os.chdir(wanted.folder)
    named = [place for place in wanted.environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = list(dict.fromkeys([wanted.folder, *named, *sys.path]))
    sys.argv = ["-m", *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _renew_random_numbers() -> None:
    """Python reseeds its own generator after a fork; numpy's would be equal in all workers."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _kill(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _do_nothing(_number: int, _frame: object) -> None:
    pass


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
