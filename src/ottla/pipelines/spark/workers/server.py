"""The fork server: a Python that has imported all that Spark's workers need, and splits off a process for each.

A plain worker needs more than a second to import PySpark (from a zip, without compiled files) and Arrow, and a stream
needs five of them before its first row. Here they are imported once, while Java starts.

Rules:
1. Only a process with one thread is split: what others held would be locked for ever. With more, requests are refused,
   and whoever asked starts Python as usual. So are requests with other settings of the interpreter than ours.
2. It imports when it is told to, by a byte on its standard input, or when somebody asks for a process: before that,
   Java and the command itself need all cores.
3. A child has the asker's arguments, environment, folder and standard streams, and random numbers of its own.
4. It ends with its asker, which is told its exit code. All end with the process that has started the server: its pipe
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
    "ottla.pipelines.source.reading",
    "ottla.pipelines.sinks.publishing",
    "confluent_kafka",
)
# What an interpreter, or a library when it is loaded, looks at once: a child cannot change it any more.
FIXED = ("PYTHONHASHSEED", "PYTHONHOME", "PYTHONOPTIMIZE", "OMP_NUM_THREADS", "LD_PRELOAD", "LD_LIBRARY_PATH")
REFUSED = b"-"
MESSAGE_BYTES_MAX = 4 << 20
MESSAGE_SECONDS_MAX = 5.0
LAST_SECONDS_MAX = 30.0  # for children to end when everything ends


class Wanted(NamedTuple):
    """A process as its asker describes it."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str


def main(listener: socket.socket) -> None:
    """Serves until standard input ends; a child runs the module that was asked for. Who comes while we import waits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in all that Spark's Java starts
    folder = os.path.dirname(listener.getsockname())
    if is_wanted(listener):
        prepare()
    wanted = Server(listener).serve()
    if wanted is not None:
        run(wanted)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def is_wanted(listener: socket.socket) -> bool:
    """Waits for the word to import; false if everything ends before."""
    ready, _, _ = select.select([listener, sys.stdin], [], [])
    return listener in ready or bool(os.read(sys.stdin.fileno(), 1))


def prepare() -> None:
    """Import what there is; a worker that needs more imports it itself."""
    for name in MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    # Modules that are run as programs are here already, which runpy would remark on.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    os.register_at_fork(after_in_child=_renew_random_numbers)
    gc.collect()
    gc.freeze()  # else the first collection of each child would copy all pages


class Server:
    """Owns the listening socket and the children."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.askers: dict[int, socket.socket] = {}  # by the child that each stands for

    def __repr__(self) -> str:
        return f"<Server with {len(self.askers)} children>"

    def serve(self) -> Wanted | None:
        """In the server: None, at its end. In each child: what it is to be."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, _do_nothing)  # else no signal would wake us
        signal.set_wakeup_fd(wake)
        while True:
            ready, _, _ = select.select([self.listener, sys.stdin, woken, *self.askers.values()], [], [])
            if woken in ready:
                os.read(woken, 4096)
            for child in [child for child, asker in self.askers.items() if asker in ready]:
                _kill(child, signal.SIGTERM)  # an asker says nothing: it is gone
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
        """What this process is to be, if it is the child."""
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
        except (OSError, ValueError, TypeError):  # the asker has gone, or is none
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
        with suppress(ChildProcessError):  # there are none
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                asker = self.askers.pop(child, None)
                if asker is not None:
                    code = os.waitstatus_to_exitcode(status)
                    with suppress(OSError), asker:
                        asker.sendall(bytes([code if code >= 0 else 128 - code]))

    def _end(self) -> None:
        """Whoever has started us is gone, and so is Java soon: workers see that, and end by themselves."""
        self.listener.close()
        deadline = time.monotonic() + LAST_SECONDS_MAX
        while self.askers and time.monotonic() < deadline:
            time.sleep(0.05)
            self._tell_ended()
        for child in self.askers:
            _kill(child, signal.SIGKILL)


def receive(asker: socket.socket, streams: list[int]) -> Wanted:
    """Raises OSError or ValueError; the streams that came are told in any case."""
    head, numbers, _, _ = socket.recv_fds(asker, 4, len(STANDARD))
    streams += numbers
    length = int.from_bytes(head, "big")
    if len(head) < 4 or len(numbers) != len(STANDARD) or length > MESSAGE_BYTES_MAX:
        raise ValueError("not a request of ours")
    with asker.makefile("rb") as file:
        wanted = json.loads(file.read(length))
    return Wanted(**wanted)


def is_possible(environment: dict[str, str]) -> bool:
    """Whether a copy of this process would be what a new one with this environment were."""
    return all(environment[name] == os.environ.get(name) for name in FIXED if name in environment)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def run(wanted: Wanted) -> None:
    """As `python -m module` would: sys.path begins with the folder and what PYTHONPATH names."""
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
    """Python's own are renewed by Python; those of numpy would be the same in all workers."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _kill(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _do_nothing(_number: int, _frame: object) -> None:
    pass


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
