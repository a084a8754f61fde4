"""A ZooKeeper for tests: a real server on its own port, whose data is removed after the test.

    with ZooKeeperProcess() as zookeeper:
        store = ZooKeeperStore(zookeeper.connect)

    with ZooKeeperProcess(users={"kafka": "secret"}) as zookeeper:  # requires a login
        environment = {"KAFKA_OPTS": zookeeper.login_option("kafka")}

It needs Java, and ZooKeeper's jars as `ottla zookeeper` finds them (those inside PySpark, for example).
The port stays reserved while the server is down, so that it returns at the same address with the same data.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.security.jaas import escaped
from ottla.testing.child import is_main_thread, set_parent_death_signal
from ottla.testing.folders import Folder

HOST = "127.0.0.1"
READY = "ottla zookeeper ready on "
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.01
TAIL_CHARACTERS = 4000
HEAP = "-Xmx192m"


class ZooKeeperError(Exception):
    """The server did not do what the test requested; the message ends with its output."""


class ZooKeeperProcess:
    """One server. `options` are more arguments of `ottla zookeeper`, `environment` has more variables for it.

    `users` (names and passwords) can log in; with users a login is required. `properties` are lines of its
    configuration; with `is_tls` its only port is for TLS, and `properties` must include `ssl.keyStore.location`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int = 0,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        is_tls: bool = False,
    ) -> None:
        self._own_folder = Folder() if folder is None else None
        self.folder = folder or (self._own_folder.path if self._own_folder else Path())
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output = self.folder / "zookeeper.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._users = dict(users or {})
        self._options = tuple(options)
        if properties:
            self._options += (
                "--config",
                str(self._write("zookeeper.properties", _property_lines(properties))),
                "--host",
                HOST,
            )
        if self._users:
            self._options += (
                "--jaas",
                str(self._write("server_jaas.conf", _jaas_section("Server", _jaas_users(self._users)))),
            )
        self._port_option = "--secure-port" if is_tls else "--port"
        self._environment = dict(environment or {})
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((HOST, port))
        self.port: int = self._reservation.getsockname()[1]

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`; a chroot can be appended."""
        return f"{HOST}:{self.port}"

    def login_option(self, name: str) -> str:
        """The value of KAFKA_OPTS for a client that logs in as this user."""
        options = f'username="{escaped(name)}" password="{escaped(self._users[name])}"'
        return f"-Djava.security.auth.login.config={self._write('client_jaas.conf', _jaas_section('Client', options))}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        if self.process is None or not self.is_running:
            raise ZooKeeperError("ZooKeeper is not running")
        return self.process.pid

    def start(self, *, wait: bool = True) -> Self:
        """Start it on its existing data. All members of an ensemble are started before the first wait."""
        if self.is_running:
            return self
        position = self._size()
        words = [self._port_option, str(self.port), "--data", str(self.folder / "data"), *self._options]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 (our own command line)
                [sys.executable, "-P", "-m", "ottla.cli.main", "zookeeper", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "KAFKA_HEAP_OPTS": HEAP, **self._environment},
                process_group=0,
                preexec_fn=set_parent_death_signal if is_main_thread() else None,  # noqa: PLW1509 (it only asks the kernel)
            )
        atexit.register(self.kill)
        if wait:
            self.wait_until_ready(position)
        return self

    def wait_until_ready(self, position: int = 0) -> None:
        """Wait until the output says that it serves; `position` is where the output of this start begins."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while READY not in self._text(position):
            if not self.is_running:
                raise ZooKeeperError(f"ZooKeeper ended before it was ready:\n{self._text(position)}")
            if time.monotonic() > deadline:
                self.kill()
                raise ZooKeeperError(f"ZooKeeper was not ready in time:\n{self._text(position)}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """A clean stop (SIGTERM)."""
        self._stop_with(signal.SIGTERM)

    def kill(self) -> None:
        """A crash (SIGKILL); the data stays as it is."""
        self._stop_with(signal.SIGKILL)

    def pause(self) -> None:
        """Returns when the process has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.kill()
        atexit.unregister(self.kill)
        self._reservation.close()
        if self._own_folder is not None:
            self._own_folder.remove()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"pid {self.process.pid}" if self.process is not None and self.is_running else "stopped"
        return f"<ZooKeeperProcess {self.connect} {state}>"

    def _stop_with(self, number: int) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ZooKeeperError(f"ZooKeeper did not stop:\n{self._text()[-TAIL_CHARACTERS:]}") from None
        finally:
            self.process = None

    def _write(self, name: str, text: str) -> Path:
        """Writes a file that may hold secrets."""
        file = self.folder / name
        file.touch(0o600)
        file.write_text(text, encoding="utf-8")
        return file

    def _size(self) -> int:
        return self.output.stat().st_size if self.output.exists() else 0

    def _text(self, position: int = 0) -> str:
        with self.output.open("rb") as file:
            file.seek(position)
            return file.read().decode("utf-8", "replace")


def _jaas_section(name: str, options: str) -> str:
    return f"{name} {{ org.apache.zookeeper.server.auth.DigestLoginModule required {options}; }};\n"


def _jaas_users(users: Mapping[str, str]) -> str:
    return " ".join(f'user_{name}="{escaped(password)}"' for name, password in users.items())


def _property_lines(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
