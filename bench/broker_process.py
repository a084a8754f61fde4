"""A broker as a child process: started on free ports with an empty data folder, always stopped, its data removed."""

import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.child import start_child, stop_child
from bench.errors import BenchError
from bench.paths import cache_folder
from bench.raw_client import Target, metadata_is_answered

HOST = "127.0.0.1"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
POLL_SECONDS = 0.002
LOG_TAIL_BYTES = 2000
# For both systems: files of a deleted topic are removed at once, so their dirty pages are not written back during the
# next measurement; a group rebalances when its first member joins. All other settings are defaults.
SHARED_SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerProcess(ABC):
    """`with KafkaProcess(log) as broker:` starts it; `startup_s` is the time to its first Metadata answer."""

    system: str

    def __init__(self, log_path: Path, *, host: str = HOST, settings: dict[str, str] | None = None) -> None:
        self.log_path = log_path
        self.host = host
        self.settings = settings or {}  # on top of the defaults
        self.startup_s = 0.0
        self.idle_topics: dict[str, int] = {}  # topics of a section for the next one: name, partitions
        self.port = free_port()
        self.folder = runs_folder() / f"{self.system}-{self.port}"
        self.data_folder = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_position = 0  # start of the current process's output

    def __enter__(self) -> Self:
        self.data_folder.mkdir(parents=True)
        try:
            self.prepare()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "alive" if self.is_alive else "stopped"
        return f"<{type(self).__name__} {state} on port {self.port}, started in {self.startup_s:.2f} s>"

    @abstractmethod
    def prepare(self) -> None:
        """Write the settings and format the data folder; not part of the start-up time."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that serves in the foreground."""

    def is_ready(self) -> bool:
        """Whether the broker reports that it is ready; a system without such a sign is ready when it answers."""
        return True

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def target(self) -> Target:
        assert self._process is not None
        return Target(self.host, self.port, self._process.pid)

    def log_text(self) -> str:
        """The output of the current process."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_bytes()[self._log_position :].decode(errors="replace")

    def end(self, seconds_max: float, *, by_force: bool) -> float:
        """End the process and keep its data for launch(); return the duration in seconds."""
        assert self._process is not None
        start = time.perf_counter()
        if by_force:
            self._process.kill()
            self._process.wait()
        stop_child(self._process, seconds_max)
        return time.perf_counter() - start

    def launch(self) -> float:
        """Start the process without waiting for an answer; return the start time (perf_counter)."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_position = self.log_path.stat().st_size if self.log_path.exists() else 0
        command = self.command()
        start = time.perf_counter()
        with self.log_path.open("ab") as log:
            self._process = start_child(command, cwd=self.folder, output=log)
        return start

    def check_alive(self, start: float, seconds_max: float) -> None:
        """BenchError if the process has ended, or is not ready in time."""
        if not self.is_alive:
            raise BenchError(f"{self.system} ended while it started: {self.log_text()[-LOG_TAIL_BYTES:]}")
        if time.perf_counter() - start > seconds_max:
            raise BenchError(f"{self.system} is not ready after {seconds_max:.0f} s; see {self.log_path}")

    def stop(self) -> None:
        """Terminate the broker, kill it after a timeout, and remove its data."""
        if self._process is not None:
            stop_child(self._process, STOP_SECONDS_MAX)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        start = self.launch()
        while not metadata_is_answered(self.target):
            self.check_alive(start, START_SECONDS_MAX)
            time.sleep(POLL_SECONDS)
        self.startup_s = time.perf_counter() - start
        while not self.is_ready():
            self.check_alive(start, START_SECONDS_MAX)
            time.sleep(POLL_SECONDS)


def properties(settings: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def runs_folder() -> Path:
    """Data of this run; removes the folders of killed runs."""
    parent = cache_folder() / "runs"
    for folder in parent.glob("*"):
        if not Path(f"/proc/{folder.name}").exists():
            shutil.rmtree(folder, ignore_errors=True)
    return parent / str(os.getpid())
