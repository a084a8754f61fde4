"""Checks across broker settings, after each value is valid by itself. The messages are Kafka's where Kafka has one.

Each check returns a problem or None. The first problem stops the start or the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.base.listeners import LOOPBACK, Listener, is_listener_key, split_listener_key, without_mechanism
from ottla.base.setting_types import BadValueError, parse_int

if TYPE_CHECKING:
    from ottla.base.broker_settings import BrokerSettings

CLEANER_BUFFER_BYTES_MIN: Final = 1024 * 1024
ALL_FOLDERS: Final = "*"  # in cordoned.log.dirs
COMPRESSION_CODECS: Final = range(5)
_HOST: Final = r"[0-9a-zA-Z\-%._:]+"
CLUSTER_ADVICE: Final = (
    "a cluster needs ZooKeeper: leave out process.roles and controller.quorum.*, and set zookeeper.connect; "
    "to run one broker name this node alone"
)


class RequirementError(BadValueError):
    """Settings that conflict; Kafka puts "requirement failed" before the message."""


def check_broker_settings(settings: BrokerSettings) -> None:
    """Raises BadValueError with the first problem."""
    for problem in _problems(settings):
        raise problem


def broker_problems(settings: BrokerSettings) -> list[str]:
    """Values that conflict or are missing. Each is listed once, even if several checks fail because of it."""
    return list(dict.fromkeys(map(str, _problems(settings))))


def _problems(settings: BrokerSettings) -> Iterator[BadValueError]:
    for find_problem in (
        _node_problem,
        _role_problem,
        _listener_problem,
        _connection_problem,
        _log_problem,
        _replica_problem,
        _metrics_problem,
    ):
        try:
            problem = find_problem(settings)
        except BadValueError as bad:  # the value is invalid by itself: Kafka reports only that
            yield bad
        else:
            if problem is not None:
                yield RequirementError(problem)


def broker_warnings(settings: BrokerSettings) -> list[str]:
    """Settings that are allowed but risky."""
    found = [type(settings).advertised_listeners.host_warning(settings)]
    unguarded = [listener for listener in settings.listeners if not _requires_authentication(settings, listener)]
    open_to_all = [str(listener) for listener in unguarded if not is_loopback(listener.host)]
    if open_to_all:
        found.append(
            f"{', '.join(open_to_all)}: every client with access to this machine can read and write, without a "
            f"password; listen on {LOOPBACK} to keep it to this machine"
        )
    found.extend(_login_warnings(settings))
    found.extend(_listener_key_warnings(settings))
    return [warning for warning in found if warning is not None]


def _login_warnings(settings: BrokerSettings) -> Iterator[str]:
    for listener in settings.listeners:
        mechanisms = settings.of_listener(listener.name, "sasl.enabled.mechanisms")
        if listener.protocol == "SASL_PLAINTEXT" and "PLAIN" in mechanisms and not is_loopback(listener.host):
            yield f"{listener}: passwords cross the network as they are: use SASL_SSL, or SCRAM instead of PLAIN"
    if "sasl.jaas.config" in settings.explicit:
        yield (
            "sasl.jaas.config: has no effect: set listener.name.<listener>.<mechanism>.sasl.jaas.config, "
            "written small, or a JAAS file"
        )


def _listener_key_warnings(settings: BrokerSettings) -> Iterator[str]:
    names = {listener.name.lower() for listener in settings.listeners}
    names |= {name.lower() for name in settings.controller_listener_names}
    for name in settings.explicit:
        key = split_listener_key(name)
        if key is None:
            continue
        if key.listener not in names:
            yield f"{name}: has no effect: no listener is called {key.listener} (written small)"
        elif not is_listener_key(key.base):
            declared = settings.keys.get(without_mechanism(key.base))
            reason = declared.unused_reason if declared is not None else None
            yield f"{name}: has no effect, because {reason or 'all listeners share this setting'}"


def _requires_authentication(settings: BrokerSettings, listener: Listener) -> bool:
    if listener.protocol == "SSL":
        return bool(settings.of_listener(listener.name, "ssl.client.auth") == "required")
    return listener.protocol.startswith("SASL_")


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("localhost", "::1")


def parse_connection_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: connection limits by host."""
    overrides: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        host, separator, number = item.rpartition(":")
        if not separator:
            raise BadValueError(
                f"Error parsing configuration property 'max.connections.per.ip.overrides': '{item}' is not HOST:NUMBER"
            )
        if not re.fullmatch(_HOST, host.strip()):
            raise BadValueError(f"max.connections.per.ip.overrides contains invalid addresses : {host.strip()}")
        overrides[host.strip()] = _connection_count(number)
    return overrides


def _connection_count(text: str) -> int:
    try:
        return parse_int(text)
    except BadValueError:
        raise BadValueError(f'For input string: "{text.strip()}"') from None


def _node_problem(settings: BrokerSettings) -> str | None:
    node_id = settings.texts.get("node.id")
    if node_id is not None and settings.broker_id >= 0 and settings.broker_id != settings.node_id:
        return "You must set `node.id` to the same value as `broker.id`."
    if not settings.zookeeper_connect:
        return None
    if not settings.broker_id_generation_enable and settings.node_id < 0:
        return "broker.id must be greater than or equal to 0"
    if settings.broker_id_generation_enable and settings.node_id > settings.reserved_broker_max_id:
        return "broker.id must be greater than or equal to -1 and not greater than reserved.broker.max.id"
    return None


def _role_problem(settings: BrokerSettings) -> str | None:
    roles = settings.process_roles
    if settings.zookeeper_connect and (roles or settings.controller_quorum_voters):
        return (
            "process.roles and controller.quorum.* describe a node that keeps its own metadata, zookeeper.connect one "
            "that shares it: set only one of them"
        )
    if roles and "broker" not in roles:
        return f"process.roles=controller asks for a node that only controls, and {CLUSTER_ADVICE}"
    if len(settings.controller_quorum_voters) > 1 or len(settings.controller_quorum_bootstrap_servers) > 1:
        return f"controller.quorum.* names several nodes, and {CLUSTER_ADVICE}"
    for voter in settings.controller_quorum_voters:
        voter_id, at, address = voter.partition("@")
        if not at or not voter_id.strip().isdecimal() or not address.rpartition(":")[2].isdecimal():
            return (
                "Invalid configuration value for controller.quorum.voters. "
                "Each entry should be in the form `{id}@{host}:{port}`."
            )
        if int(voter_id) != settings.node_id:
            return f"controller.quorum.voters={voter} is another node than {settings.node_id}, and {CLUSTER_ADVICE}"
    return None


def _listener_problem(settings: BrokerSettings) -> str | None:
    if not settings.listeners:
        return "listeners has none that clients could use: add one, such as PLAINTEXT://:9092"
    names = [listener.name for listener in settings.advertised_listeners]
    inter_broker = settings.inter_broker_listener_name
    if inter_broker is None:
        protocol = settings.security_inter_broker_protocol
        if settings.zookeeper_connect and all(each.protocol != protocol for each in settings.advertised_listeners):
            return (
                f"security.inter.broker.protocol is {protocol}, and no listener has it: set it to the protocol of a "
                f"listener that brokers use among themselves, or inter.broker.listener.name to one of {','.join(names)}"
            )
        return None
    if "security.inter.broker.protocol" in settings.texts:
        return "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
    if inter_broker.upper() not in names:
        return (
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(names)}"
        )
    return None


def _connection_problem(settings: BrokerSettings) -> str | None:
    overrides = parse_connection_overrides(settings.max_connections_per_ip_overrides)
    if settings.max_connections_per_ip == 0 and not overrides:
        return "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    if 0 < settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        return "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    return None


def _log_problem(settings: BrokerSettings) -> str | None:
    if settings.log_retention_ms == 0:
        return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    if settings.log_roll_ms < 1:
        return "log.roll.ms must be greater than or equal to 1"
    if settings.log_roll_jitter_ms < 0:
        return "log.roll.jitter.ms must be greater than or equal to 0"
    if settings.log_cleaner_threads < 1:
        return "log.cleaner.threads must be greater than or equal to 1"
    if settings.log_cleaner_dedupe_buffer_size <= CLEANER_BUFFER_BYTES_MIN * settings.log_cleaner_threads:
        return "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    unknown = [item for item in settings.cordoned_log_dirs if item not in (ALL_FOLDERS, *settings.log_dirs)]
    if unknown:
        return (
            "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            f"Missing entries : {', '.join(unknown)}"
        )
    if settings.remote_log_storage_system_enable:
        return "remote.log.storage.system.enable=true asks for remote storage, which is not built: remove the line"
    return None


def _replica_problem(settings: BrokerSettings) -> str | None:
    if settings.replica_fetch_wait_max_ms > settings.replica_socket_timeout_ms:
        return (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
            "to prevent unnecessary socket timeouts"
        )
    if settings.replica_fetch_wait_max_ms > settings.replica_lag_time_max_ms:
        return (
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
            "to prevent frequent changes in ISR"
        )
    if settings.offsets_topic_compression_codec not in COMPRESSION_CODECS:
        return f"Unknown compression type id: {settings.offsets_topic_compression_codec}"
    return None


def _metrics_problem(settings: BrokerSettings) -> str | None:
    if settings.ottla_metrics_port < 0:
        return None
    has_name, has_password = settings.ottla_metrics_username is not None, settings.ottla_metrics_password is not None
    if has_name != has_password:
        return "ottla.metrics.username and ottla.metrics.password are set together, or not at all"
    is_secure = has_password and settings.ottla_metrics_ssl_keystore_location is not None
    if is_secure or is_loopback(settings.ottla_metrics_host) or settings.ottla_metrics_insecure:
        return None
    return (
        f"ottla.metrics.host={settings.ottla_metrics_host} lets other machines read the metrics: set "
        "ottla.metrics.ssl.keystore.location, ottla.metrics.username and ottla.metrics.password, or listen on "
        f"{LOOPBACK}, or allow it with ottla.metrics.insecure=true"
    )
