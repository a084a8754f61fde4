"""Java processes of Spark's programs: a master, a worker, a Spark Connect server.

Rules:
1. Each writes to one file, and is ready when a line in it says so.
2. Each leads a process group, so its children end with it, and none outlives this process: a small companion in the
   group waits for the end of a pipe from this process and then kills the group.
3. They listen on 127.0.0.1 only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.base.java import Java
from ottla.pipelines.spark.launch import cause_in
from ottla.pipelines.spark.places import Installed, SparkStartError

HOST = "127.0.0.1"
LOOK_SECONDS = 0.05
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
COMPANION = ("/bin/sh", "-c", "trap '' TERM INT; cat > /dev/null; kill -9 0")


class JavaProcess:
    """A program in Spark's jars."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._companion: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"JavaProcess({self.name}, {f'pid {self.pid}' if self.is_running else 'not running'})"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    def start(self, spark: Installed, java: Java, arguments: Sequence[str], extra: Mapping[str, str]) -> None:
        """`arguments` are those of Spark's script spark-class."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (Spark's own script)
                [str(spark.home / "bin" / "spark-class"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(java, spark) | dict(extra),
                process_group=0,
            )
        self._companion = subprocess.Popen(  # # noqa: S603 (constant)
            COMPANION, stdin=subprocess.PIPE, process_group=self._process.pid
        )

    def wait_for(self, pattern: re.Pattern[str], seconds_max: float = READY_SECONDS_MAX) -> re.Match[str]:
        """The first match in its output. Raises SparkStartError."""
        deadline = time.monotonic() + seconds_max
        while (found := pattern.search(self.text())) is None:
            if not self.is_running:
                raise SparkStartError(f"{self.name} ended before it was ready: {cause_in(self.text())} ({self.log})")
            if time.monotonic() > deadline:
                self.kill()
                raise SparkStartError(f"{self.name} was not ready after {seconds_max:g} s ({self.log})")
            time.sleep(LOOK_SECONDS)
        return found

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Terminate, then kill after a timeout."""
        self._send(signal.SIGTERM)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS_MAX)
        self.kill()

    def kill(self) -> None:
        """Kill it with all its children, as in a machine failure."""
        self._send(signal.SIGKILL)
        companion, self._companion = self._companion, None
        for process in (self._process, companion):
            if process is not None:
                process.wait(STOP_SECONDS_MAX)
        if companion is not None and companion.stdin is not None:
            companion.stdin.close()

    def _send(self, number: int) -> None:
        """Signal the whole group, which exists as long as the companion; later its id may be reused."""
        if self._process is not None and self._companion is not None:
            os.killpg(self._process.pid, number)


def environment(java: Java, spark: Installed) -> dict[str, str]:
    """Our environment, and the variables that Spark's scripts need."""
    return os.environ | {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark.home),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }


def children_of(pid: int) -> list[int]:
    """The living child processes."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text(encoding="ascii").split()]
    return sorted(found)


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""
