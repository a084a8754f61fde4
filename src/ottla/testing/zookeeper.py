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
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.security.jaas import escaped
from ottla.testing.child import HOST, ServerProcess
from ottla.testing.folders import Folder

READY = re.compile("ottla zookeeper ready on ")
START_SECONDS_MAX = 120.0
HEAP = "-Xmx192m"


class ZooKeeperError(Exception):
    """The server did not do what the test requested; the message ends with its output."""


class ZooKeeperProcess(ServerProcess):
    """One server. `options` are more arguments of `ottla zookeeper`, `environment` has more variables for it.

    `users` (names and passwords) can log in; with users a login is required. `properties` are lines of its
    configuration; with `is_tls` its only port is for TLS, and `properties` must include `ssl.keyStore.location`.
    """

    poll_seconds = 0.01

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
        super().__init__(self.folder / "zookeeper.log", "ZooKeeper", ZooKeeperError, port)
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

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`; a chroot can be appended."""
        return self.reserved_address

    def login_option(self, name: str) -> str:
        """The value of KAFKA_OPTS for a client that logs in as this user."""
        options = f'username="{escaped(name)}" password="{escaped(self._users[name])}"'
        return f"-Djava.security.auth.login.config={self._write('client_jaas.conf', _jaas_section('Client', options))}"

    def start(self, *, wait: bool = True) -> Self:
        """Start it on its existing data. All members of an ensemble are started before the first wait."""
        if self.is_running:
            return self
        words = [self._port_option, str(self.port), "--data", str(self.folder / "data"), *self._options]
        command = [sys.executable, "-P", "-m", "ottla.cli.main", "zookeeper", *words]
        self.run(command, {**os.environ, "KAFKA_HEAP_OPTS": HEAP, **self._environment})
        atexit.register(self.kill)
        if wait:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        """Wait until the output says that it serves."""
        self.wait_for_output(READY, START_SECONDS_MAX)

    def stop(self) -> None:
        self.terminate()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        super().close()
        atexit.unregister(self.kill)
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

    def _write(self, name: str, text: str) -> Path:
        """Writes a file that may hold secrets."""
        file = self.folder / name
        file.touch(0o600)
        file.write_text(text, encoding="utf-8")
        return file


def _jaas_section(name: str, options: str) -> str:
    return f"{name} {{ org.apache.zookeeper.server.auth.DigestLoginModule required {options}; }};\n"


def _jaas_users(users: Mapping[str, str]) -> str:
    return " ".join(f'user_{name}="{escaped(password)}"' for name, password in users.items())


def _property_lines(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
