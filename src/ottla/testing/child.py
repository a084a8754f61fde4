"""The processes of test servers: brokers, ZooKeeper and KDCs.

Rules:
1. The address is chosen here and reserved by a socket that never listens, so that no other process can take the port:
   neither between choosing and binding, nor while the server is down for a restart.
2. The child never outlives the test run. The standard input of a broker is a pipe that ends with this process; and it
   leads a process group, so that the kernel wakes and ends it even if it was paused.
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
from collections.abc import Mapping, Sequence
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


def reserve_port(port: int = 0) -> socket.socket:
    """A socket that holds a port and never listens; 0 is any free port."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((HOST, port))
    return reservation


class ServerProcess:
    """One server at one address; its process can be stopped and started. `name` and `error` are for its failures."""

    poll_seconds = POLL_SECONDS

    def __init__(self, output: Path, name: str, error: type[Exception], port: int = 0) -> None:
        self.output = output
        self.is_paused = False
        self.process: subprocess.Popen[bytes] | None = None
        self._name = name
        self._error = error
        self._position = 0  # where the output of the current process begins
        self._reservation = reserve_port(port)
        self.port: int = self._reservation.getsockname()[1]
        self.reserved_address = f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None or not self.is_running:
            raise self._error(f"{self._name} is not running")
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

    def run(self, command: Sequence[str], environment: Mapping[str, str], *, ends_with_stdin: bool = False) -> None:
        """Start the process. It ends with its standard input, or the kernel ends it with the test run."""
        self._position = self.size()
        has_death_signal = not ends_with_stdin and is_main_thread()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 (our own command line)
                command,
                stdin=subprocess.PIPE if ends_with_stdin else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                process_group=0,
                preexec_fn=set_parent_death_signal if has_death_signal else None,  # noqa: PLW1509 (it only asks the kernel)
            )
        self.is_paused = False

    def wait_for_output(self, ready: re.Pattern[str], seconds_max: float) -> re.Match[str]:
        """Wait until the output since the start of the process says that it serves."""
        process, deadline = self.process, time.monotonic() + seconds_max
        assert process is not None
        while (found := ready.search(self._new_text())) is None:
            code = process.poll()
            if code is not None:
                said = self._new_text()
                raise self._error(f"{self._name} ended with exit code {code} before it was ready:\n{said}")
            if time.monotonic() > deadline:
                self.kill()
                raise self._error(f"{self._name} was not ready in time:\n{self._new_text()}")
            time.sleep(self.poll_seconds)
        return found

    def terminate(self) -> int:
        """A clean stop (SIGTERM); returns the exit code, 0 if there is no process."""
        if self.process is None:
            return 0
        self.send_signal(signal.SIGTERM)
        self.resume()
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._error(f"{self._name} did not stop within {STOP_SECONDS_MAX:g} s:\n{self._tail()}") from None
        self._clear_process()
        return code

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
        return f"<{type(self).__name__} {self.reserved_address} {state}>"


class BrokerProcess(ServerProcess):
    """A broker."""

    def __init__(self, output: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(output, "the broker", BrokerError)
        self.environment = dict(environment or {})  # added to the current environment
        self.config: Path | None = None  # settings that must not show on the command line
        self.address = ""

    def start(self, settings: Mapping[str, str], seconds_max: float) -> None:
        """Start the process and wait until it serves."""
        self.launch(settings)
        self.wait_until_ready(seconds_max)

    def launch(self, settings: Mapping[str, str]) -> None:
        overrides = [word for key, value in settings.items() for word in ("--override", f"{key}={value}")]
        if self.config is not None:
            overrides += ["--config", str(self.config)]
        command = [sys.executable, "-P", "-m", "ottla.cli.main", "broker", "--stop-on-eof", *overrides]
        self.run(command, _environment() | self.environment, ends_with_stdin=True)

    def wait_until_ready(self, seconds_max: float) -> None:
        self.address = self.wait_for_output(READY, seconds_max).group(1)

    def stop(self) -> None:
        code = self.terminate()
        if code:
            raise BrokerError(f"the broker ended with exit code {code}:\n{self._tail()}")


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
