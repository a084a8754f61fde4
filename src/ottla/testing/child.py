"""The broker process behind a test broker.

Rules:
1. The address is chosen here and held by a socket that never listens, so nobody else can get the port: not between
   choosing and binding, and not while the broker is down for a restart.
2. The child never outlives the test run: its standard input is a pipe that ends when we do, and it is the leader of a
   process group, so that the kernel wakes and ends it even if it was paused.
3. Everything it says goes to one file, which is still there after it has died.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
READY = re.compile(r"^ottla broker -?\d+ ready on (\S+)$", re.MULTILINE)
LOOK_SECONDS = 0.002
STOP_SECONDS_MAX = 30.0
TAIL_CHARACTERS = 4000
NOT_INHERITED = ("KAFKA_", "JMX_PORT", "PYTHONUNBUFFERED")


class BrokerError(Exception):
    """The broker did not do what the test asked of it; the message ends with what the broker said."""


class Child:
    """One broker at one address; the process comes and goes."""

    def __init__(self, output: Path, environment: Mapping[str, str] | None = None) -> None:
        self.output = output
        self.environment = dict(environment or {})  # on top of ours
        self.config: Path | None = None  # settings that others on this machine are not to see
        self.address = ""
        self.is_paused = False
        self.process: subprocess.Popen[bytes] | None = None
        self._position = 0  # where the output of the present process begins
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
        """How many bytes it has said so far."""
        return self.output.stat().st_size if self.output.exists() else 0

    def text(self, position: int = 0) -> str:
        """What it has said from that byte on."""
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
            time.sleep(LOOK_SECONDS)
        self.address = found.group(1)

    def stop(self) -> None:
        """A clean stop, as an operator would do it."""
        if self.process is None:
            return
        self.send(signal.SIGTERM)
        self.resume()
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"the broker did not stop within {STOP_SECONDS_MAX:g} s:\n{self._tail()}") from None
        self._forget()
        if code:
            raise BrokerError(f"the broker ended with exit code {code}:\n{self._tail()}")

    def kill(self) -> None:
        """What a crash does; the data stays as it is."""
        if self.process is not None:
            self.send(signal.SIGKILL)
            self.process.wait(STOP_SECONDS_MAX)
            self._forget()

    def pause(self) -> None:
        """Returns when it stands still: a signal takes its time, and rule 2 holds for whoever has stopped."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.send(signal.SIGCONT)
            self.is_paused = False

    def send(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def close(self) -> None:
        self.kill()
        self._reservation.close()

    def _forget(self) -> None:
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
        return f"<Child {self.reserved_address} {state}>"


def _environment() -> dict[str, str]:
    """Ours, but for what a broker would take for its settings: only those that the test gives count.

    Without its buffer Python writes a line in two pieces, and another thread's line may come in between.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
