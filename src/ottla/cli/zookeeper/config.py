"""What a ZooKeeper server is told: its configuration, from options, a file, and careful defaults. Pure.

What a file says counts as it stands, because it may have served another ZooKeeper before. Options win over the file.
Defaults fill what neither says: a short tick (a dead broker is noticed a tick after its session, not two seconds),
three snapshots kept, no admin server, and of the four-letter commands those that only look. A file with users (JAAS)
as an option means that nobody gets in without a login; a port for TLS stands alone unless another one is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PORT: Final = 2181
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
    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",  # the other one knows no TLS
    "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
}
# Where a file gives the tick, these follow from it as ZooKeeper computes them.
FOLLOW_TICK: Final = ("initLimit", "syncLimit", "minSessionTimeout", "maxSessionTimeout")


class ConfigError(ValueError):
    """Options or a file that no server can be started with: one line."""


class Wish(NamedTuple):
    """What the options say; None where they say nothing."""

    port: int | None = None
    host: str | None = None
    data: str | None = None
    server_id: int | None = None
    ensemble: str | None = None
    secure_port: int | None = None
    jaas: str | None = None


class Config(NamedTuple):
    """All that is needed for a start."""

    properties: dict[str, str]
    server_id: int | None
    host: str  # where clients reach it from this machine
    port: int
    is_open: bool  # bound to every address of the machine
    is_tls: bool = False  # clients speak TLS to that port
    asks_who: bool = False  # nobody gets in without a login or a certificate

    @property
    def data(self) -> str:
        return self.properties["dataDir"]


def make_config(wish: Wish, file: Mapping[str, str] | None) -> Config:
    """Raises ConfigError."""
    properties = dict(file or {})
    if wish.data is not None:
        properties["dataDir"] = wish.data
    if wish.secure_port is not None:
        properties["secureClientPort"] = str(wish.secure_port)
    if wish.port is not None or not properties.keys() & {"clientPort", "secureClientPort"}:
        properties["clientPort"] = str(PORT if wish.port is None else wish.port)
    if wish.host is not None or file is None:
        bound = [key for key in ("clientPort", "secureClientPort") if key in properties]
        properties |= {f"{key}Address": wish.host or HOST for key in bound}
    if wish.jaas is not None:
        properties = {"authProvider.sasl": SASL_PROVIDER, LOGIN_REQUIRED: "true", **properties}
    if "secureClientPort" in properties:
        properties = {**TLS_DEFAULTS, **properties}
    if wish.ensemble is not None:
        properties |= ensemble_properties(wish.ensemble)
    if not properties.get("dataDir"):
        raise ConfigError("there is no dataDir in the file: name the folder with --data DIR")
    _check_server_id(wish.server_id, properties)
    has_tick = "tickTime" in properties
    for key, value in DEFAULTS.items():
        if not (has_tick and key in FOLLOW_TICK and key.endswith("Timeout")):
            properties.setdefault(key, value)
    is_tls = "clientPort" not in properties
    key = "secureClientPort" if is_tls else "clientPort"
    for each in ("clientPort", "secureClientPort"):
        _port(each, properties.get(each, str(PORT)))
    address = properties.get(f"{key}Address", "")
    is_open = address in ("", "0.0.0.0", "::")  # noqa: S104 (the question is whether it is)
    asks_who = properties.get(LOGIN_REQUIRED) == "true" or (
        is_tls and properties.get("ssl.clientAuth", "need") == "need"
    )
    host = HOST if is_open else address
    return Config(properties, wish.server_id, host, _port(key, properties[key]), is_open, is_tls, asks_who)


def ensemble_properties(text: str) -> dict[str, str]:
    """server.N lines of `host:2888:3888,host:2888:3888,...`; the first has the number 1."""
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
    """A .properties text; Java takes a backslash and a line end for something else."""
    lines = ["# written by `ottla zookeeper` with every start: change the options or the file that it was given"]
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
        raise ConfigError(f"{key}={text} is no port")
    return int(text)


def jvm_options(environment: Mapping[str, str]) -> Sequence[str]:
    """Small by default; the variables count as they do for Kafka's and for ZooKeeper's own scripts."""
    heap = environment.get("KAFKA_HEAP_OPTS", "").split() or ["-Xmx512m"]
    names = ("KAFKA_OPTS", "SERVER_JVMFLAGS", "JVMFLAGS")
    more = [word for name in names for word in environment.get(name, "").split()]
    return (*heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError", "-Xshare:auto", *more)
