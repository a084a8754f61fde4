"""The configuration of a node: the keys of Confluent's `schema-registry.properties`. Pure.

Rules:
1. Supported keys are read, irrelevant ones are ignored, all others are reported in one line.
2. The prefix `kafkastore.` marks client properties: TLS, SASL, timeouts.
3. The node listens on loopback unless `listeners` has another address.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from ottla.registry.access import User
from ottla.registry.election_protocol import GROUP, TOPIC
from ottla.registry.formats.compatibility import LEVELS
from ottla.registry.kafka_store import REPLICATION_FACTOR
from ottla.registry.subjects.settings import DEFAULT_LEVEL

HOST: Final = "127.0.0.1"
PORT: Final = 8081
KAFKASTORE: Final = "kafkastore."
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Prefixes of client properties behind `kafkastore.`.
CLIENT_PREFIXES: Final = ("ssl.", "sasl.", "security.", "client.", "request.")
# Ignored without a warning: done in another way here, or not needed.
IGNORED_KEYS: Final = frozenset(
    {
        "access.control.allow.methods",
        "access.control.allow.origin",
        "avro.compatibility.level",
        "debug",
        "kafkastore.checkpoint.dir",
        "kafkastore.checkpoint.version",
        "kafkastore.connection.url",
        "kafkastore.group.id",
        "kafkastore.update.handlers",
        "kafkastore.write.max.retries",
        "kafkastore.zk.session.timeout.ms",
        "master.eligibility",
        "metrics.jmx.prefix",
        "schema.cache.size",
        "schema.cache.expiry.secs",
        "shutdown.graceful.ms",
    }
)


class ConfigError(ValueError):
    """An invalid setting; str() is one line."""


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """The configuration of one node."""

    bootstrap: str
    host: str = HOST
    port: int = PORT
    advertised_host: str | None = None
    topic: str = TOPIC
    replication_factor: int = REPLICATION_FACTOR
    timeout_ms: int | None = None  # of a write; None: our default
    start_timeout_ms: int = 60_000
    default_level: str = DEFAULT_LEVEL
    has_mode_changes: bool = True
    group: str = GROUP
    is_eligible: bool = True  # as leader
    allowed_hosts: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None  # None: HTTP
    peers_tls: ssl.SSLContext | None = None  # for HTTPS connections to other nodes; None: the system's certificates
    users: Mapping[str, User] | None = None  # None: every request is allowed
    properties: Mapping[str, str] = field(default_factory=dict)  # of the client
    unknown: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    def __repr__(self) -> str:
        return f"<RegistryConfig {self.host}:{self.port} {self.bootstrap} {self.topic}>"


def read_config(properties: Mapping[str, str], base: RegistryConfig) -> RegistryConfig:
    """The settings of the file over the defaults. Raises ConfigError."""
    found = _UnreadKeys({key: value.strip() for key, value in properties.items()})
    config = base
    if listeners := found.take("listeners"):
        host, port = read_listener(listeners)
        config = replace(config, host=host, port=port)
    elif port_text := found.take("port"):
        config = replace(config, port=_number("port", port_text))
    if servers := found.take("kafkastore.bootstrap.servers"):
        config = replace(config, bootstrap=bootstrap_servers(servers))
    level = found.take("schema.compatibility.level") or found.take("avro.compatibility.level")
    if level:
        if level.upper() not in LEVELS:
            raise ConfigError(f"schema.compatibility.level={level} is not a level: it is one of {', '.join(LEVELS)}")
        config = replace(config, default_level=level.upper())
    config = replace(
        config,
        advertised_host=found.take("host.name") or config.advertised_host,
        topic=found.take("kafkastore.topic") or config.topic,
        replication_factor=found.number("kafkastore.topic.replication.factor", config.replication_factor),
        timeout_ms=found.number("kafkastore.timeout.ms", 0) or config.timeout_ms,
        start_timeout_ms=found.number("kafkastore.init.timeout.ms", config.start_timeout_ms),
        has_mode_changes=found.flag("mode.mutability", config.has_mode_changes),
        group=found.take("schema.registry.group.id") or config.group,
        is_eligible=found.flag("leader.eligibility", config.is_eligible),
    )
    client = {
        key.removeprefix(KAFKASTORE): value
        for key, value in found.left.items()
        if key.startswith(KAFKASTORE) and key.removeprefix(KAFKASTORE).startswith(CLIENT_PREFIXES)
    }
    for key in client:
        found.take(f"{KAFKASTORE}{key}")
    unknown = tuple(sorted(key for key in found.left if key not in IGNORED_KEYS))
    return replace(config, properties={**config.properties, **client}, unknown=unknown)


def read_listener(text: str) -> tuple[str, int]:
    """The address of the first listener, as in http://0.0.0.0:8081."""
    first = text.split(",", maxsplit=1)[0].strip()
    try:
        parts = urlsplit(first)
        port = parts.port
    except ValueError:
        raise ConfigError(f"listeners={first}: this is not an address such as http://127.0.0.1:8081") from None
    if parts.scheme != "http" or port is None:
        raise ConfigError(f"listeners={first}: only http://HOST:PORT is supported")
    return parts.hostname or "0.0.0.0", port  # noqa: S104 (as Confluent's: an address without a host is every address)


def bootstrap_servers(text: str) -> str:
    """The addresses from `PLAINTEXT://kafka:9092,...`, without protocols."""
    servers = []
    for part in text.split(","):
        protocol, is_given, address = part.strip().partition("://")
        if is_given and protocol.upper() not in PROTOCOLS:
            raise ConfigError(f"kafkastore.bootstrap.servers={part.strip()}: unknown protocol")
        servers.append(address if is_given else part.strip())
    return ",".join(server for server in servers if server)


class _UnreadKeys:
    """The keys that have not been read yet."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.left = dict(properties)

    def take(self, key: str) -> str | None:
        return self.left.pop(key, None) or None

    def number(self, key: str, default: int) -> int:
        text = self.take(key)
        return default if text is None else _number(key, text)

    def flag(self, key: str, default: bool) -> bool:
        text = self.take(key)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text}: must be true or false")
        return text.lower() == "true"


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= 2**31:
        raise ConfigError(f"{key}={text}: not a valid number")
    return int(text)
