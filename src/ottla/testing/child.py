"""The process of a test broker.

Rules:
1. The address is chosen here and reserved by a socket that never listens, so that no other process can take the port:
   neither between choosing and binding, nor while the broker is down for a restart.
2. The child never outlives the test run. Its standard input is a pipe that ends with this process; and it leads a
   process group, so that the kernel wakes and ends it even if it was paused.
3. All its output goes to one file, which still exists after its death.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
READY = re.compile(r"^ottla broker -?\d+ ready on (\S+)$", re.MULTILINE)
POLL_SECONDS = 0.002
STOP_SECONDS_MAX = 30.0
TAIL_CHARACTERS = 4000
SET_PARENT_DEATH_SIGNAL = 1  # prctl
NOT_INHERITED = ("KAFKA_", "JMX_PORT", "PYTHONUNBUFFERED")


class BrokerError(Exception):
    """The broker did not do what the test requested; the message ends with the broker's output."""


class BrokerProcess:
    """One broker at one address; its process can be stopped and started."""

    def __init__(self, output: Path, environment: Mapping[str, str] | None = None) -> None:
        self.output = output
        self.environment = dict(environment or {})  # added to the current environment
        self.config: Path | None = None  # settings that must not show on the command line
        self.address = ""
        self.is_paused = False
        self.process: subprocess.Popen[bytes] | None = None
        self._position = 0  # where the output of the current process begins
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((HOST, 0))
        self.reserved_address = f"{HOST}:{self._reservation.getsockname()[1]}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None or not self.is_running:
            raise BrokerError("the broker is not running")
        return self.process.pid

    def size(self) -> int:
        """The size of the output so far in bytes."""
        return self.output.stat().st_size if self.output.exists() else 0

    def text(self, position: int = 0) -> str:
        """The output from that byte on."""
        if not self.output.exists():
            return ""
        with self.output.open("rb") as file:
            file.seek(position)
            return file.read().decode("utf-8", "replace")

    def start(self, settings: Mapping[str, str], seconds_max: float) -> None:
        """Start the process and wait until it serves."""
        self.launch(settings)
        self.wait_until_ready(seconds_max)

    def launch(self, settings: Mapping[str, str]) -> None:
        self._position = self.size()
        overrides = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        if self.config is not None:
            overrides += ["--config", str(self.config)]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 (our own command line)
                [sys.executable, "-P", "-m", "ottla.cli.main", "broker", "--stop-on-eof", *overrides],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment() | self.environment,
                process_group=0,
            )
        self.is_paused = False

    def wait_until_ready(self, seconds_max: float) -> None:
        process, deadline = self.process, time.monotonic() + seconds_max
        assert process is not None
        while (found := READY.search(self._new_text())) is None:
            code = process.poll()
            if code is not None:
                raise BrokerError(f"the broker ended with exit code {code} before it was ready:\n{self._new_text()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(f"the broker was not ready in time:\n{self._new_text()}")
            time.sleep(POLL_SECONDS)
        self.address = found.group(1)

    def stop(self) -> None:
        """A clean stop (SIGTERM)."""
        if self.process is None:
            return
        self.send_signal(signal.SIGTERM)
        self.resume()
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop within {STOP_SECONDS_MAX:g} s:\n{self._tail()}") from None
        self._clear_process()
        if code:
            raise BrokerError(f"the broker ended with exit code {code}:\n{self._tail()}")

    def kill(self) -> None:
        """A crash (SIGKILL); the data stays as it is."""
        if self.process is not None:
            self.send_signal(signal.SIGKILL)
            self.process.wait(STOP_SECONDS_MAX)
            self._clear_process()

    def pause(self) -> None:
        """Returns when the process has stopped: a signal takes time, and rule 2 needs a stopped process."""
        self.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.send_signal(signal.SIGCONT)
            self.is_paused = False

    def send_signal(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def close(self) -> None:
        self.kill()
        self._reservation.close()

    def _clear_process(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        self.is_paused = False

    def _new_text(self) -> str:
        return self.text(self._position)

    def _tail(self) -> str:
        return self.text()[-TAIL_CHARACTERS:]

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else f"pid {self.process.pid}" if self.process is not None else "stopped"
        return f"<BrokerProcess {self.reserved_address} {state}>"


def _environment() -> dict[str, str]:
    """The current environment without variables that a broker would take for settings: only the test's settings count.

    PYTHONUNBUFFERED is removed, too: without a buffer Python writes a line in two pieces, and another thread's line may
    come in between.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}


# ---- servers that end with the test run, also when it is killed


def is_main_thread() -> bool:
    """The kernel's parent of a process is the thread that started it: the end of that thread would end the server."""
    return threading.current_thread() is threading.main_thread()


def set_parent_death_signal() -> None:
    """Also ends the server when the test run is killed, even if the server is paused then (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
