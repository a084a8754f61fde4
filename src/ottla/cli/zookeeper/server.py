"""The configuration of a ZooKeeper server, from options, a file and defaults, and the lock of its data folder.

Options override the file, and the file overrides the defaults, because another ZooKeeper may have used it. The
defaults: a short tick (a dead broker is detected one tick after its session timeout), three snapshots, no admin server,
and only read-only four-letter commands. A JAAS file as an option requires logins. A TLS port replaces the plain one
unless both are requested.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.terminal import ToolError, UsageError

PORT: Final = 2181
LOCK_FILE: Final = ".ottla.zookeeper.lock"
HOST: Final = "127.0.0.1"
SERVER_KEY: Final = re.compile(r"server\.(\d+)")
DEFAULTS: Final = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "10",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "1",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "ruok,srvr,mntr",
}
SASL_PROVIDER: Final = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
LOGIN_REQUIRED: Final = "sessionRequireClientSASLAuth"
TLS_DEFAULTS: Final = {
    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",  # the default factory has no TLS
    "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
}
# If a file sets tickTime, ZooKeeper derives these from it.
TICK_DERIVED_KEYS: Final = ("initLimit", "syncLimit", "minSessionTimeout", "maxSessionTimeout")


class ConfigError(UsageError):
    """Invalid options or file, in one line."""


class ServerOptions(NamedTuple):
    """The options; None if not given."""

    port: int | None = None
    host: str | None = None
    data: str | None = None
    server_id: int | None = None
    ensemble: str | None = None
    secure_port: int | None = None
    jaas: str | None = None


class Config(NamedTuple):
    """The complete configuration of a server."""

    properties: dict[str, str]
    server_id: int | None
    host: str  # reachable by clients on this machine
    port: int
    is_open: bool  # bound to every address of the machine
    is_tls: bool = False  # clients use TLS on that port
    requires_login: bool = False  # clients need a login or a certificate

    @property
    def data(self) -> str:
        return self.properties["dataDir"]


def make_config(options: ServerOptions, file: Mapping[str, str] | None) -> Config:
    """Merge options, file and defaults. Raises ConfigError."""
    properties = dict(file or {})
    if options.data is not None:
        properties["dataDir"] = options.data
    if options.secure_port is not None:
        properties["secureClientPort"] = str(options.secure_port)
    if options.port is not None or not properties.keys() & {"clientPort", "secureClientPort"}:
        properties["clientPort"] = str(PORT if options.port is None else options.port)
    if options.host is not None or file is None:
        bound = [key for key in ("clientPort", "secureClientPort") if key in properties]
        properties |= {f"{key}Address": options.host or HOST for key in bound}
    if options.jaas is not None:
        properties = {"authProvider.sasl": SASL_PROVIDER, LOGIN_REQUIRED: "true", **properties}
    if "secureClientPort" in properties:
        properties = {**TLS_DEFAULTS, **properties}
    if options.ensemble is not None:
        properties |= ensemble_properties(options.ensemble)
    if not properties.get("dataDir"):
        raise ConfigError("the file has no dataDir: name the folder with --data DIR")
    _check_server_id(options.server_id, properties)
    has_tick = "tickTime" in properties
    for key, value in DEFAULTS.items():
        if not (has_tick and key in TICK_DERIVED_KEYS and key.endswith("Timeout")):
            properties.setdefault(key, value)
    is_tls = "clientPort" not in properties
    key = "secureClientPort" if is_tls else "clientPort"
    for each in ("clientPort", "secureClientPort"):
        _port(each, properties.get(each, str(PORT)))
    address = properties.get(f"{key}Address", "")
    is_open = address in ("", "0.0.0.0", "::")  # noqa: S104 (compared)
    requires_login = properties.get(LOGIN_REQUIRED) == "true" or (
        is_tls and properties.get("ssl.clientAuth", "need") == "need"
    )
    host = HOST if is_open else address
    return Config(properties, options.server_id, host, _port(key, properties[key]), is_open, is_tls, requires_login)


def ensemble_properties(text: str) -> dict[str, str]:
    """The server.N properties of `host:2888:3888,host:2888:3888,...`, numbered from 1."""
    servers = [part.strip() for part in text.split(",")]
    for server in servers:
        host, *ports = server.rsplit(":", 2)
        if not host or len(ports) != 2 or not all(port.isdigit() and 0 < int(port) < 65536 for port in ports):
            raise ConfigError(f"--ensemble: {server!r} is not host:port:port (host:2888:3888)")
    if len(set(servers)) != len(servers):
        raise ConfigError("--ensemble names a server twice")
    return {f"server.{number}": server for number, server in enumerate(servers, 1)}


def server_ids(properties: Mapping[str, str]) -> list[int]:
    matches = (SERVER_KEY.fullmatch(key) for key in properties)
    return sorted(int(match[1]) for match in matches if match)


def to_text(properties: Mapping[str, str]) -> str:
    """A .properties text; backslashes and line ends are escaped for Java."""
    lines = ["# written by `ottla zookeeper` at every start: change the options or the original file instead"]
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{key}={escaped}")
    return "\n".join([*lines, ""])


def _check_server_id(server_id: int | None, properties: Mapping[str, str]) -> None:
    known = server_ids(properties)
    if server_id is None or server_id in known:
        return
    if not known:
        raise ConfigError("--server-id is for an ensemble: name its servers with --ensemble host:2888:3888,...")
    raise ConfigError(f"--server-id {server_id}: the ensemble has the servers {', '.join(map(str, known))}")


def _port(key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise ConfigError(f"{key}={text} is not a port")
    return int(text)


def jvm_options(environment: Mapping[str, str]) -> Sequence[str]:
    """A small heap by default, and the variables of Kafka's and ZooKeeper's scripts."""
    heap = environment.get("KAFKA_HEAP_OPTS", "").split() or ["-Xmx512m"]
    names = ("KAFKA_OPTS", "SERVER_JVMFLAGS", "JVMFLAGS")
    more = [word for name in names for word in environment.get(name, "").split()]
    return (*heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "-Xshare:auto", *more)


def lock_folder(folder: Path) -> int:
    """Create the folder and lock it: two servers would overwrite each other's snapshots and logs.

    The program that replaces this process inherits the descriptor. The kernel releases the lock when that program ends.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _in_use(folder) from None
    os.set_inheritable(lock, True)
    return lock


def check_unlocked(folder: Path) -> None:
    """Raises ToolError if a server uses this folder; changes nothing."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return  # no server used the folder yet, or it is unreadable, which the server will report
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder) from None
    finally:
        os.close(lock)


def _in_use(folder: Path) -> ToolError:
    return ToolError(f"another ZooKeeper uses {folder}: stop it, or choose another folder with --data DIR")
